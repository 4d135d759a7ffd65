"""Messages out: credit of one connection's receivers becomes deliveries, and their outcomes become settlements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from twinbus.amqp.events import CreditChanged, DispositionArrived
from twinbus.amqp.link import SendingLink
from twinbus.amqp.performatives import Outcome, Rejected
from twinbus.errors import NamespaceError
from twinbus.namespace.commands import CloseReceiver, Grant, PauseReceiver, ResumeReceiver, Settle, Verdict
from twinbus.namespace.faults.rulings import Drop, Proceed, Refuse, Silence
from twinbus.namespace.message import outgoing
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation
from twinbus.namespace.outcomes import amqp_error, confirmation_of, verdict_of
from twinbus.namespace.places import SETTLED_BY_SENDER, Receiving
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import Delivery, Drained, ReceiverLost, Refused, Settled
from twinbus.namespace.turnstile import Turnstile

BYTES_AT_ONCE = 1024 * 1024
"""Delivered before it is looked whether the peer takes them: its receivers can be many, each with much to get."""


class Outlet:
    def __init__(
        self,
        reception: Reception,
        turnstile: Turnstile,
        note_change: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        """`note_change` is called when there is something to send to the peer; `flush` sends it at once.

        If the peer does not keep up, `flush` leads to a call of `block`.
        """
        self._reception = reception
        self._turnstile = turnstile
        self._note_change = note_change
        self._flush = flush
        self._unflushed = 0
        self._links: dict[int, SendingLink] = {}
        self._holders: dict[tuple[str, str | None], int] = {}
        """Receivers by entity and session."""
        self._silenced: set[int] = set()
        self._held: dict[int, deque[tuple[int, Delivery | Drained | ReceiverLost]]] = {}
        self._is_blocked = False

    # --- receivers ---

    def open(self, receiving: Receiving, link: SendingLink, now_ms: int) -> None:
        """A receiver is there; it gets messages when it grants credit."""
        self._links[receiving.receiver] = link
        if receiving.session_id is not None:
            self._holders[receiving.entity, receiving.session_id] = receiving.receiver
        if not self._turnstile.is_open:
            self._review(receiving, link, now_ms)
        if self._is_blocked:
            self._reception.ask(PauseReceiver(receiving.receiver), now_ms)

    def close(self, receiver: int, now_ms: int) -> None:
        """The receiver is gone. Its locks stay until they end."""
        link = self._links.pop(receiver, None)
        if link is not None:
            self._forget_holder(link.context)
            self._silenced.discard(receiver)
            self._held.pop(receiver, None)
            self._reception.forget_receiver(receiver)
            self._reception.ask(CloseReceiver(receiver), now_ms)

    def holder_of(self, entity: str, session_id: str) -> int:
        """The receiver of this connection that has a session, as far as is known here; 0, which none is: no one."""
        return self._holders.get((entity, session_id), 0)

    def _forget_holder(self, receiving: Receiving) -> None:
        place = (receiving.entity, receiving.session_id)
        if self._holders.get(place) == receiving.receiver:  # it may have the session on another link by now
            del self._holders[place]

    def close_all(self, now_ms: int) -> None:
        for receiver in list(self._links):
            self.close(receiver, now_ms)

    def block(self, now_ms: int) -> None:
        """The peer does not keep up: deliver nothing more for now."""
        self._is_blocked = True
        for receiver in self._links:
            self._reception.ask(PauseReceiver(receiver), now_ms)

    def unblock(self, now_ms: int) -> None:
        """Deliver again, until the peer does not keep up again: then the others come first the next time."""
        self._is_blocked = False
        for receiver in list(self._links):
            if self._is_blocked:
                return
            if receiver in self._links:
                self._links[receiver] = self._links.pop(receiver)  # now the last
                self._resume(receiver, now_ms)

    def _resume(self, receiver: int, now_ms: int) -> None:
        if not self._is_blocked and receiver not in self._silenced:
            self._reception.ask(ResumeReceiver(receiver), now_ms)

    # --- faults ---

    def review(self, now_ms: int) -> None:
        """The faults have changed: what may be delivered may have, too."""
        for link in list(self._links.values()):
            self._review(link.context, link, now_ms)

    def _review(self, receiving: Receiving, link: SendingLink, now_ms: int) -> None:
        receiver = receiving.receiver
        match self._turnstile.ruling(Operation.DELIVER, receiving.path, now_ms):
            case Refuse(error=error):
                self.close(receiver, now_ms)
                link.detach(amqp_error(error))
                self._note_change()
            case Silence():
                self._silenced.add(receiver)
                self._reception.ask(PauseReceiver(receiver), now_ms)
            case Proceed() if receiver in self._silenced:
                self._silenced.discard(receiver)
                self._resume(receiver, now_ms)
            case Drop():
                self._turnstile.hang_up()
            case _:
                pass

    # --- deliveries ---

    def credit(self, event: CreditChanged, receiving: Receiving, now_ms: int) -> None:
        if event.credit > 0 and not event.drain:
            self._reception.meter.count(Metered.RECEIVE_GRANT, receiving.entity)
        delay_ms = 0
        if event.link.snd_settle_mode == SETTLED_BY_SENDER and not self._turnstile.is_open:
            # What is deleted when it is lent must not be held back afterwards, so the grant is.
            delay_ms = self._delay_ms(receiving.path, now_ms)
        self._turnstile.later(delay_ms, now_ms, partial(self._grant, event.link, receiving.receiver, now_ms))

    def _grant(self, link: SendingLink, receiver: int, now_ms: int) -> None:
        if link.attached:  # what it says now counts, not what it said when this was put off
            self._reception.ask(Grant(receiver, link.credit_limit, link.drain), now_ms)

    def tell(self, link: SendingLink, reply: Delivery | Drained | ReceiverLost) -> None:
        held = self._held.get(reply.receiver)
        if held is None and self._turnstile.is_open:
            self._tell(link, reply)
            return
        now_ms = self._reception.clock()
        is_lent = link.snd_settle_mode != SETTLED_BY_SENDER
        delay_ms = self._delay_ms(link.context.path, now_ms) if is_lent and not self._turnstile.is_open else 0
        if held is None and delay_ms == 0:
            self._tell(link, reply)
        else:
            self._hold(link, reply, now_ms + delay_ms, now_ms)

    def _delay_ms(self, path: str, now_ms: int) -> int:
        ruling = self._turnstile.ruling(Operation.DELIVER, path, now_ms)
        return ruling.delay_ms if isinstance(ruling, Proceed) else 0

    def _hold(self, link: SendingLink, reply: Delivery | Drained | ReceiverLost, due_ms: int, now_ms: int) -> None:
        """Keep what is for a receiver until its time, and whatever follows it until then: order is kept per link."""
        held = self._held.setdefault(reply.receiver, deque())
        if held:
            due_ms = max(due_ms, held[-1][0])
        held.append((due_ms, reply))
        self._turnstile.later(max(1, due_ms - now_ms), now_ms, partial(self._let_go, link, reply.receiver, due_ms))

    def _let_go(self, link: SendingLink, receiver: int, now_ms: int) -> None:
        held = self._held.get(receiver, deque())
        while held and held[0][0] <= now_ms:
            self._tell(link, held.popleft()[1])
        if not held:
            self._held.pop(receiver, None)

    def _tell(self, link: SendingLink, reply: Delivery | Drained | ReceiverLost) -> None:
        if not link.attached:
            return
        self._note_change()
        match reply:
            case Delivery():
                _, row, token, until_ms = reply
                payload = outgoing(row, token, until_ms)
                self._reception.meter.count(Metered.DELIVERY, link.context.entity, len(payload))
                link.send(payload, tag=token or b"", settled=token is None)
                self._unflushed += len(payload)
                if self._unflushed > BYTES_AT_ONCE:
                    self._unflushed = 0
                    self._flush()
            case Drained():
                link.drained()
            case ReceiverLost(error=error):
                self._links.pop(reply.receiver, None)
                self._forget_holder(link.context)
                self._reception.forget_receiver(reply.receiver)
                link.detach(amqp_error(error))

    # --- settlements ---

    def disposition(self, event: DispositionArrived, link: SendingLink, receiving: Receiving, now_ms: int) -> None:
        """Settle loans as the receiver says."""
        verdict = verdict_of(event.outcome, is_final=event.settled)
        if verdict is None:
            return
        if self._turnstile.is_open:
            self._settle(event, link, receiving, verdict, 0, now_ms)
            return
        ruling = self._turnstile.ruling(Operation.SETTLE, receiving.path, now_ms)
        if isinstance(ruling, Proceed):
            self._settle(event, link, receiving, verdict, ruling.delay_ms, now_ms)
            return
        self._turnstile.obey(ruling, now_ms, lambda: None, partial(self._refuse, event, link))

    def _settle(
        self,
        event: DispositionArrived,
        link: SendingLink,
        receiving: Receiving,
        verdict: Verdict,
        delay_ms: int,
        now_ms: int,
    ) -> None:
        tokens = tuple([tag for _, tag in event.deliveries])
        self._reception.meter.count(Metered.SETTLE, receiving.entity, operations=len(tokens))

        def answer(reply: Settled | Refused) -> None:
            self._turnstile.later(delay_ms, now_ms, partial(self._settled, event, link, reply))

        self._reception.ask(Settle(receiving.path, tokens, verdict, None if event.settled else answer), now_ms)

    def _settled(self, event: DispositionArrived, link: SendingLink, reply: Settled | Refused) -> None:
        """Tell the peer what became of its settlement: the same outcome means yes."""
        if isinstance(reply, Refused):
            self._refuse(event, link, reply.error)
            return
        if not link.attached:
            return
        yes = confirmation_of(event.outcome)
        for delivery_id, token in event.deliveries:
            error = reply.failures.get(token)
            link.settle(delivery_id, delivery_id, yes if error is None else _no(error))
        self._note_change()

    def _refuse(self, event: DispositionArrived, link: SendingLink, error: NamespaceError) -> None:
        if link.attached and not event.settled:
            for delivery_id, _ in event.deliveries:
                link.settle(delivery_id, delivery_id, _no(error))
            self._note_change()


def _no(error: NamespaceError) -> Outcome:
    return Rejected(amqp_error(error))
