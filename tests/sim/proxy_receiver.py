"""A receiver of a simulated application: credit, drains, settlements of all kinds, sessions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from sim.clock import START_MS
from sim.invariants import check
from sim.proxy_accounts import Delivery, LinkTerms
from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Error, Modified, Outcome, Rejected
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Symbol, UInt
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.session import Session
from twinbus.broker.links.attach import LOCKED_UNTIL, SESSION_FILTER, TICKS_PER_MS, TICKS_TO_1970, WAIT_PROPERTY
from twinbus.broker.links.outcomes import confirmation_of, outcome_of
from twinbus.broker.operations import Defer, ReceiveMode

if TYPE_CHECKING:
    from sim.proxy_application import Application

DEAD = Rejected(Error("com.microsoft:dead-letter", None, {Symbol("DeadLetterReason"): "simulated"}))
OUTCOMES: tuple[Outcome, ...] = (
    ACCEPTED,
    ACCEPTED,
    ACCEPTED,
    RELEASED,
    Modified(delivery_failed=True),
    Modified(undeliverable_here=True),
    DEAD,
)
DETACHES = {
    "amqp:link:detach-forced",
    "com.microsoft:session-lock-lost",
    "com.microsoft:entity-disabled",
    "amqp:internal-error",
}
"""After each of these an application attaches again by itself: what clients of the service retry."""
REFUSALS = DETACHES | {
    "com.microsoft:timeout",
    "com.microsoft:session-cannot-be-locked",
    "amqp:not-allowed",
    "amqp:resource-limit-exceeded",
}


class AppReceiver:
    def __init__(
        self, app: Application, session: Session, path: str, mode: ReceiveMode, session_id: str | bool | None = False
    ) -> None:
        """`session_id`: False: the entity itself; None: any session; else that one."""
        self.app, self.path, self.mode = app, path, mode
        self.accounts, self.random = app.accounts, app.random
        self.name = app.new_name("r")
        self.accounts.links[self.name] = LinkTerms(path, mode)
        self.is_attached = self.is_gone = False
        self.asked_at = app.loop.now
        self.wants_session = session_id is not False
        self.session_id: str | None = None
        self.held: dict[int, Delivery] = {}
        self.settling: dict[int, tuple[Delivery, Outcome]] = {}
        self.drain_since: float | None = None
        self._limit = 0
        self._may_drain = True
        filters = {Symbol(SESSION_FILTER): session_id} if self.wants_session else None
        deletes = mode is ReceiveMode.RECEIVE_AND_DELETE
        wait_ms = self.random.choice((500, 5_000, 20_000))
        self.link = session.attach_receiver(
            self.name,
            Source(path, filter=filters),
            snd_settle_mode=1 if deletes else 0,
            rcv_settle_mode=0 if deletes else 1,
            properties={Symbol(WAIT_PROPERTY): UInt(wait_ms)} if self.wants_session else None,
        )
        self.link.context = self
        app.note(f"attaches {self.name} to {path} {mode.value} {session_id!r}")
        if self.random.random() < 0.5:
            self.grant(self.random.choice((1, 5, 50)))  # early: it does not wait for the answer

    def __repr__(self) -> str:
        return self.name

    # --- what the application does ---

    def grant(self, credit: int) -> None:
        self._limit = max(self._limit, self.link.delivery_count + credit)
        self._may_drain &= self.drain_since is None  # the answer to one that was taken back could come any time
        self.drain_since = None
        self.link.grant(credit)
        self.app.note(f"{self.name} grants {credit} after {self.link.delivery_count}")

    def drain(self) -> None:
        if self.is_attached and self._may_drain and self.drain_since is None:
            self.drain_since = self.app.loop.now
            self.link.drain()
            self.app.note(f"{self.name} drains")

    def settle_some(self) -> None:
        """Settle some of what it holds: one message or several, waiting for the answer or not."""
        if not self.held or not self.is_attached:
            return
        outcome = self.random.choice(OUTCOMES)
        first = self.random.choice(list(self.held))
        length = self.random.choice((1, 1, 2, 10))
        ids = [each for each in sorted(self.held) if each >= first][:length]
        together = [ids[0]]
        for delivery_id in ids[1:]:
            if delivery_id != together[-1] + 1:
                break
            together.append(delivery_id)
        self.settle(together, outcome, waits=self.random.random() < 0.8)

    def settle(self, ids: list[int], outcome: Outcome, *, waits: bool) -> None:
        meaning = outcome_of(outcome, is_final=True)
        assert meaning is not None
        for delivery_id in ids:
            delivery = self.held.pop(delivery_id)
            self.accounts.ask(delivery, meaning)
            if waits:
                self.settling[delivery_id] = (delivery, outcome)
            self.app.note(f"settles {delivery} {type(meaning).__name__}{'' if waits else ' without an answer'}")
        self.link.settle(ids[0], ids[-1], outcome, settled=not waits)

    def detach(self) -> None:
        self.app.note(f"detaches {self.name}")
        self.gone()
        self.link.detach()

    def gone(self) -> None:
        """The link is no more; what it was asked and has not answered is unknown."""
        self.is_gone, self.is_attached = True, False
        if self.wants_session and self.session_id is not None:
            self.app.sessions.pop((self.path, self.session_id), None)
        self.held.clear()
        self.settling.clear()
        self.drain_since = None
        self.link.context = None
        self.app.forget(self)

    # --- what happens to it ---

    def attached(self) -> None:
        self.is_attached = True
        self.app.seen["receivers attached"] += 1
        if self.wants_session:
            filters = (self.link.source.filter if self.link.source else None) or {}
            session_id, ticks = filters.get(SESSION_FILTER), (self.link.properties or {}).get(LOCKED_UNTIL)
            check(isinstance(session_id, str) and isinstance(ticks, int), f"{self.name} has no session")
            until_ms = (int(ticks or 0) - TICKS_TO_1970) // TICKS_PER_MS
            check(until_ms > START_MS, f"{self.name} has its session until {until_ms}")
            self.session_id = str(session_id)
            self.app.sessions[self.path, self.session_id] = self
            self.app.seen["sessions accepted"] += 1
        self.app.note(f"{self.name} is attached {self.session_id or ''}")

    def ended(self, error: Error | None, *, is_refusal: bool) -> None:
        condition = None if error is None else str(error.condition)
        self.app.note(f"{self.name} {'refused' if is_refusal else 'detached'}: {error}")
        self.app.seen[f"{'refused' if is_refusal else 'detached'}: {condition}"] += 1
        expected = REFUSALS if is_refusal else DETACHES
        check(condition in expected, f"{self.name} ended with {error}, after which no client attaches again")
        self.gone()

    def arrived(self, event: TransferArrived) -> None:
        count, limit = self.link.delivery_count, self._limit
        check(count <= limit, f"{self.name} got {count} messages and granted credit for {limit}")
        delivery = self.accounts.arrived(self.name, event.tag, event.payload, settled=event.settled)
        if delivery is not None:
            self.app.note(f"{self.name} gets {delivery}")
            self.held[event.delivery_id] = delivery

    def answered(self, event: DispositionArrived) -> None:
        """The answer to a settlement."""
        for delivery_id, _ in event.deliveries:
            found = self.settling.pop(delivery_id, None)
            check(found is not None, f"{self.name} got an answer to a settlement that it did not make")
            assert found is not None
            delivery, outcome = found
            said = event.outcome
            self.app.note(f"{delivery} answered: {said}")
            if isinstance(said, Rejected) and said.error is not None:
                self.accounts.refused(delivery, str(said.error.condition))
                continue
            check(said == confirmation_of(outcome), f"{delivery}: {outcome} was answered with {said}")
            self.accounts.confirmed(delivery)
            if isinstance(delivery.asked, Defer):
                self.accounts.deferred.append(delivery)

    def drained(self) -> None:
        check(self.drain_since is not None, f"{self.name} was drained and did not ask for it")
        self.drain_since = None
        self._limit = self.link.delivery_count
        self.app.seen["drained"] += 1
        self.app.note(f"{self.name} is drained after {self._limit}")


def some_mode(random: Random) -> ReceiveMode:
    return ReceiveMode.RECEIVE_AND_DELETE if random.random() < 0.15 else ReceiveMode.PEEK_LOCK
