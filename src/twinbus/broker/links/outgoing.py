"""Messages out, on one connection: deliveries of the back end become transfers, and outcomes become settlements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import assert_never

from twinbus.amqp.events import CreditChanged, DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import ranges
from twinbus.broker.faults.decisions import Drop, Ignore, Proceed, Refuse
from twinbus.broker.links.backend import EncodedDelivery, ReceiverNotice
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.link_roles import SETTLED_BY_SENDER, ReceiverRole
from twinbus.broker.links.outcomes import amqp_error, confirmation_of, outcome_of, rejection
from twinbus.broker.operations import Operation, ReceiverDrained, ReceiverLost, Refused, Settled, SettlementOutcome
from twinbus.broker.ops.meter import Metered
from twinbus.errors import NamespaceError

BYTES_AT_ONCE = 1024 * 1024
"""Delivered before the connection is flushed, which shows whether the peer keeps up."""


class OutgoingDeliveries:
    def __init__(
        self,
        context: ConnectionContext,
        faults: FaultGate,
        flush_later: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        """`flush_later` is called when there is something to send to the peer; `flush` sends it at once.

        If the peer does not keep up, `flush` leads to a call of `pause`.
        """
        self._context = context
        self._backend = context.backend
        self._faults = faults
        self._flush_later = flush_later
        self._flush = flush
        self._unflushed_bytes = 0
        self._links: dict[int, SendingLink] = {}
        self._holders: dict[tuple[str, str | None], int] = {}
        """Receivers by entity and session."""
        self._by_name: dict[str, ReceiverRole] = {}
        """Receivers of sessions, by the names of their links."""
        self._silenced: set[int] = set()
        self._held: dict[int, deque[tuple[int, ReceiverNotice]]] = {}
        self._is_paused = False

    # --- receivers ---

    def open(self, role: ReceiverRole, link: SendingLink, now_ms: int) -> None:
        """A receiver is attached; it gets messages when it grants credit."""
        self._links[role.receiver] = link
        if role.session_id is not None:
            self._holders[role.entity, role.session_id] = role.receiver
            self._by_name[link.name] = role
        if not self._faults.is_open:
            self._review(role, link, now_ms)
        if self._is_paused:
            self._backend.pause_receiver(role.receiver, now_ms)

    def close(self, receiver: int, now_ms: int) -> None:
        """The receiver is gone. Its locks stay until they end."""
        link = self._links.pop(receiver, None)
        if link is not None:
            self._forget_holder(link)
            self._silenced.discard(receiver)
            self._held.pop(receiver, None)
            self._context.forget_receiver(receiver)
            self._backend.close_receiver(receiver, now_ms)

    def holder_of(self, entity: str, session_id: str) -> int:
        """The receiver of this connection that has a session, as far as is known here; 0: none."""
        return self._holders.get((entity, session_id), 0)

    def session_of(self, entity: str, link_name: str) -> str | None:
        """The session of an entity that a link of this connection has, by the link's name."""
        role = self._by_name.get(link_name)
        return None if role is None or role.entity != entity else role.session_id

    def _forget_holder(self, link: SendingLink) -> None:
        role: ReceiverRole = link.context
        if self._by_name.get(link.name) is role:
            del self._by_name[link.name]
        held = (role.entity, role.session_id)
        if self._holders.get(held) == role.receiver:  # it may have the session on another link by now
            del self._holders[held]

    def close_all(self, now_ms: int) -> None:
        for receiver in list(self._links):
            self.close(receiver, now_ms)

    def pause(self, now_ms: int) -> None:
        """The peer does not keep up: deliver nothing more for now."""
        self._is_paused = True
        for receiver in self._links:
            self._backend.pause_receiver(receiver, now_ms)

    def resume(self, now_ms: int) -> None:
        """Deliver again, until the peer does not keep up again: then the others come first the next time."""
        self._is_paused = False
        for receiver in list(self._links):
            if self._is_paused:
                return
            if receiver in self._links:
                self._links[receiver] = self._links.pop(receiver)  # now the last
                self._resume(receiver, now_ms)

    def _resume(self, receiver: int, now_ms: int) -> None:
        if not self._is_paused and receiver not in self._silenced:
            self._backend.resume_receiver(receiver, now_ms)

    # --- faults ---

    def faults_changed(self, now_ms: int) -> None:
        for link in list(self._links.values()):
            self._review(link.context, link, now_ms)

    def _review(self, role: ReceiverRole, link: SendingLink, now_ms: int) -> None:
        """Deliver or not, as the faults are now."""
        receiver = role.receiver
        decision = self._faults.decide(Operation.DELIVER, role.path, now_ms)
        match decision:
            case Refuse(error=error):
                self.close(receiver, now_ms)
                link.detach(amqp_error(error))
                self._flush_later()
            case Ignore():
                self._silenced.add(receiver)
                self._backend.pause_receiver(receiver, now_ms)
            case Proceed():
                if receiver in self._silenced:
                    self._silenced.discard(receiver)
                    self._resume(receiver, now_ms)
            case Drop():
                self._faults.drop()
            case _:
                assert_never(decision)

    # --- deliveries ---

    def credit(self, event: CreditChanged, role: ReceiverRole, now_ms: int) -> None:
        if event.credit > 0 and not event.drain:
            self._context.meter.count(Metered.RECEIVE_GRANT, role.entity)
        delay_ms = 0
        if event.link.snd_settle_mode == SETTLED_BY_SENDER and not self._faults.is_open:
            # What is deleted when it is delivered must not be held back afterwards, so the grant is.
            delay_ms = self._delay_ms(role.path, now_ms)
        self._faults.call_later(delay_ms, now_ms, partial(self._grant, event.link, role.receiver, now_ms))

    def _grant(self, link: SendingLink, receiver: int, now_ms: int) -> None:
        if link.attached:  # its credit now counts, not that of when this was delayed
            self._backend.grant_credit(receiver, link.credit_limit, link.drain, now_ms)

    def notify(self, link: SendingLink, notice: ReceiverNotice) -> None:
        """Send a delivery, or what else the back end has for a receiver; late if a fault says so."""
        held = self._held.get(notice.receiver)
        if held is None and self._faults.is_open:
            self._send(link, notice)
            return
        now_ms = self._context.clock()
        is_locked = link.snd_settle_mode != SETTLED_BY_SENDER
        delay_ms = self._delay_ms(link.context.path, now_ms) if is_locked and not self._faults.is_open else 0
        if held is None and delay_ms == 0:
            self._send(link, notice)
        else:
            self._hold(link, notice, now_ms + delay_ms, now_ms)

    def _delay_ms(self, path: str, now_ms: int) -> int:
        decision = self._faults.decide(Operation.DELIVER, path, now_ms)
        return decision.delay_ms if isinstance(decision, Proceed) else 0

    def _hold(self, link: SendingLink, notice: ReceiverNotice, due_ms: int, now_ms: int) -> None:
        """Keep a notice until its time, and whatever follows it until then: order is kept per link."""
        held = self._held.setdefault(notice.receiver, deque())
        if held:
            due_ms = max(due_ms, held[-1][0])
        held.append((due_ms, notice))
        delay_ms = max(1, due_ms - now_ms)
        self._faults.call_later(delay_ms, now_ms, partial(self._send_held, link, notice.receiver, due_ms))

    def _send_held(self, link: SendingLink, receiver: int, now_ms: int) -> None:
        held = self._held.get(receiver, deque())
        while held and held[0][0] <= now_ms:
            self._send(link, held.popleft()[1])
        if not held:
            self._held.pop(receiver, None)

    def _send(self, link: SendingLink, notice: ReceiverNotice) -> None:
        if not link.attached:
            return
        self._flush_later()
        if isinstance(notice, EncodedDelivery):  # not a case: a pattern takes longer, and this is the hot path
            _, payload, token = notice
            self._context.meter.count(Metered.DELIVERY, link.context.entity, len(payload))
            link.send(payload, tag=token or b"", settled=token is None)
            self._unflushed_bytes += len(payload)
            if self._unflushed_bytes > BYTES_AT_ONCE:
                self._unflushed_bytes = 0
                self._flush()
            return
        match notice:
            case ReceiverDrained():
                link.drained()
            case ReceiverLost(receiver, error):
                self._links.pop(receiver, None)
                self._forget_holder(link)
                self._context.forget_receiver(receiver)
                link.detach(amqp_error(error))
            case _:
                assert_never(notice)

    # --- settlements ---

    def disposition(self, event: DispositionArrived, link: SendingLink, role: ReceiverRole, now_ms: int) -> None:
        """Settle deliveries as the receiver says."""
        outcome = outcome_of(event.outcome, is_final=event.settled)
        if outcome is None:
            return
        if self._faults.is_open:
            self._settle(event, link, role, outcome, 0, now_ms)
            return
        decision = self._faults.decide(Operation.SETTLE, role.path, now_ms)
        if isinstance(decision, Proceed):
            self._settle(event, link, role, outcome, decision.delay_ms, now_ms)
            return
        self._faults.apply(decision, now_ms, lambda: None, partial(self._refuse, event, link))

    def _settle(
        self,
        event: DispositionArrived,
        link: SendingLink,
        role: ReceiverRole,
        outcome: SettlementOutcome,
        delay_ms: int,
        now_ms: int,
    ) -> None:
        tokens = tuple([tag for _, tag in event.deliveries])
        self._context.meter.count(Metered.SETTLE, role.entity, operations=len(tokens))

        def settled(reply: Settled | Refused) -> None:
            self._faults.call_later(delay_ms, now_ms, partial(self._settled, event, link, reply))

        self._backend.settle(role.receiver, role.path, tokens, outcome, now_ms, None if event.settled else settled)

    def _settled(self, event: DispositionArrived, link: SendingLink, reply: Settled | Refused) -> None:
        """Answer a settlement: the same outcome means yes."""
        if isinstance(reply, Refused):
            self._refuse(event, link, reply.error)
            return
        if not link.attached:
            return
        yes, failures = confirmation_of(event.outcome), reply.failures
        for first, last in ranges([delivery_id for delivery_id, token in event.deliveries if token not in failures]):
            link.settle(first, last, yes)
        for delivery_id, token in event.deliveries if failures else ():
            if token in failures:
                link.settle(delivery_id, delivery_id, rejection(failures[token]))
        self._flush_later()

    def _refuse(self, event: DispositionArrived, link: SendingLink, error: NamespaceError) -> None:
        if link.attached and not event.settled:
            for delivery_id, _ in event.deliveries:
                link.settle(delivery_id, delivery_id, rejection(error))
            self._flush_later()
