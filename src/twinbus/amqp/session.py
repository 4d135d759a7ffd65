"""A session: the handles of its links, the ids of its deliveries, and both flow-control windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from twinbus.amqp.codec.frame_codec import DispositionFields, read_transfer
from twinbus.amqp.codec.outcomes import (
    ConnectionViolation,
    Declared,
    DeliveryState,
    Error,
    Outcome,
    SessionViolation,
    TransactionalState,
)
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Coordinator,
    Detach,
    End,
    Fields,
    Flow,
    LinkRole,
    Performative,
    Source,
    Target,
)
from twinbus.amqp.events import (
    Attached,
    AttachRequested,
    Detached,
    DispositionArrived,
    LinkRefused,
    SessionEnded,
)
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.peer_memory import FRAME_COST, LINK_COST, SESSION_COST
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import SERIAL_MASK, ids_between, steps
from twinbus.errors import AmqpError

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection
    from twinbus.amqp.events import Event

OUTGOING_WINDOW = 2**31 - 1
"""Outgoing transfers are never limited on this side."""

IDS_PER_STEP = 1000
"""Deliveries of one disposition that are handled in one go."""

FIRST_DELIVERY_ID = 1
"""Not 0: clients in scripting languages tend to read it as "none"."""


_Waiting: TypeAlias = "tuple[SendingLink, bytes, bytes, bool]"


class Session:
    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self.context: Any = None
        """Free for the user of the engine."""
        self.begun = False
        self.ended = False
        """We sent end; later frames are ignored."""
        self.reported = False
        """SessionEnded was reported."""
        self.next_delivery_id = FIRST_DELIVERY_ID
        self.unsettled: dict[int, SendingLink] = {}
        self.awaiting: dict[int, ReceivingLink] = {}
        self.remote_window = 0
        self.waiting: deque[_Waiting] = deque()
        """Transfer frames beyond the peer's window: (link, head, payload, is the last of its delivery)."""
        self.chunks = connection.outbox.chunks
        self._links: dict[int, Link] = {}
        self._links_by_remote_handle: dict[int, Link] = {}
        self._attaching: dict[tuple[str, LinkRole], Link] = {}
        self._next_incoming_id = 0
        self._next_outgoing_id = 0
        self._remote_handle_max = 2**32 - 1
        self._window = connection.limits.incoming_window
        self._window_left = self._window
        connection.account.charge(SESSION_COST)

    @property
    def links(self) -> list[Link]:
        """The links that are not detached; after the end, those that were not detached by then."""
        return list(self._links.values())

    # -- attaching

    def attach_sender(
        self,
        name: str,
        target: Target | Coordinator | str,
        *,
        source: Source | str | None = None,
        snd_settle_mode: int = 2,
        properties: Fields | None = None,
    ) -> SendingLink:
        """Request a link to send to `target`; Attached or LinkRefused follows."""
        link = SendingLink(self, name, self._free_handle(), LinkState.ATTACHING)
        link.snd_settle_mode = snd_settle_mode
        self._attach(link, _source(source or name), _target(target), properties)
        return link

    def attach_receiver(
        self,
        name: str,
        source: Source | str,
        *,
        target: Target | str | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: Fields | None = None,
    ) -> ReceivingLink:
        """Request a link to receive from `source`; Attached or LinkRefused follows."""
        link = ReceivingLink(self, name, self._free_handle(), LinkState.ATTACHING)
        link.snd_settle_mode, link.rcv_settle_mode = snd_settle_mode, rcv_settle_mode
        self._attach(link, _source(source), _target(target or name), properties)
        return link

    def end(self, error: Error | None = None) -> None:
        """End the session and all its links. Does nothing if it has ended."""
        if self.ended:
            return
        self.send_frame(End(error))
        self.drop()

    def drop(self) -> None:
        """End the session without sending anything."""
        if self.ended:
            return
        self.ended = True
        self._release(self.waiting)
        self.waiting.clear()
        self.connection.release_links(len(self._links))
        self.connection.account.release(sum(link.cost for link in self._links.values()) + SESSION_COST)
        for link in self._links.values():
            link.drop()

    # -- sending

    def send_frame(self, performative: Performative) -> None:
        if not self.ended:
            self.connection.outbox.add(self.channel, performative)

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Send a flow: the full incoming window, and the credit of a link if one is given."""
        self._window_left = self._window
        self.send_frame(
            Flow(
                next_incoming_id=self._next_incoming_id if self.begun else None,
                incoming_window=self._window,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=OUTGOING_WINDOW,
                handle=handle,
                delivery_count=delivery_count,
                link_credit=link_credit,
                drain=drain,
            )
        )

    def dispose(self, role: LinkRole, first: int, last: int, outcome: DeliveryState | None, settled: bool) -> None:
        if not self.ended:
            self.connection.outbox.dispose(self.channel, role, first, last, outcome, settled)

    def count_outgoing(self) -> None:
        self.remote_window -= 1
        self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL_MASK

    def send_or_wait(self, link: SendingLink, head: bytes, payload: bytes, last: bool) -> None:
        """Send a transfer frame now, or when the peer's window opens."""
        if self.remote_window > 0 and not self.waiting:
            self.count_outgoing()
            self.chunks.append(head)
            self.chunks.append(payload)
        else:
            self.wait(link, head, payload, last)

    def wait(self, link: SendingLink, head: bytes, payload: bytes, last: bool) -> None:
        """Keep a transfer frame until the peer's window opens."""
        self.waiting.append((link, head, payload, last))
        link.unsent += last
        self.connection.account.queue(_cost(head, payload))

    def forget_links(self) -> None:
        """Drop all references to links: the connection is gone."""
        self.waiting.clear()
        self._links.clear()
        self._links_by_remote_handle.clear()
        self._attaching.clear()

    def forget_waiting(self, link: SendingLink) -> None:
        """Drop the waiting frames of a link that is gone."""
        if link.unsent:
            self._release(entry for entry in self.waiting if entry[0] is link)
            self.waiting = deque(entry for entry in self.waiting if entry[0] is not link)

    def _release(self, waiting: Iterable[_Waiting]) -> None:
        self.connection.account.queue(-sum([_cost(head, payload) for _, head, payload, _ in waiting]))

    # -- frames of the peer

    def handle_begin(self, begin: Begin, remote_channel: int) -> None:
        self.begun = True
        self.remote_channel = remote_channel
        self._next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max

    def handle_transfer(self, buffer: bytes, at: int, end: int, events: list[Event]) -> None:
        """Handle a transfer frame: its list starts at `at`, its payload ends at `end`."""
        fields = read_transfer(buffer, at, end)
        handle, delivery_id, tag, message_format, settled, more, aborted, start, transaction = fields
        self._next_incoming_id = (self._next_incoming_id + 1) & SERIAL_MASK
        self._window_left -= 1
        if self._window_left * 2 <= self._window:
            self.send_flow()
        link = self._links_by_remote_handle.get(handle)
        if isinstance(link, ReceivingLink):
            if link.attached or link.state is LinkState.REQUESTED:
                payload = buffer[start:end]
                link.handle_transfer(
                    delivery_id, tag, message_format, settled, more, aborted, payload, transaction, events
                )
        elif link is not None:
            raise SessionViolation("amqp:not-allowed", "transfer on a link on which this side sends")

    def handle(self, performative: Attach | Flow | Detach, cost: int, events: list[Event]) -> None:
        """Handle a frame about a link; `cost` is charged while it is kept."""
        match performative:
            case Flow():
                self._handle_flow(performative, events)
            case Attach():
                self._handle_attach(performative, cost, events)
            case Detach():
                self._handle_detach(performative, events)
            case _:
                assert_never(performative)

    def handle_disposition(self, received: DispositionFields, events: list[Event]) -> Iterator[list[Event]] | None:
        """Handle the outcome of a range of deliveries: one event per link concerned.

        A long range is returned as an iterator of partial events, so that other connections get their turn.
        """
        held = self.awaiting if received.role is LinkRole.SENDER else self.unsettled
        ids = ids_between(received.first, received.last, held)
        if len(ids) > IDS_PER_STEP:
            return self._handle_in_parts(ids, held, received)
        self._handle_ids(ids, received, events)
        return None

    def _handle_in_parts(
        self, ids: list[int], held: Container[int], received: DispositionFields
    ) -> Iterator[list[Event]]:
        for start in range(0, len(ids), IDS_PER_STEP):
            events: list[Event] = []
            if not self.ended:
                part = ids[start : start + IDS_PER_STEP]
                self._handle_ids([each for each in part if each in held], received, events)
            yield events

    def _handle_ids(self, ids: list[int], received: DispositionFields, events: list[Event]) -> None:
        if received.role is LinkRole.SENDER:
            self._handle_answers(ids, received, events)
        else:
            self._handle_outcomes(ids, received, events)

    def _handle_outcomes(self, ids: list[int], received: DispositionFields, events: list[Event]) -> None:
        found: dict[SendingLink, list[tuple[int, bytes]]] = {}
        for delivery_id in ids:
            link = self.unsettled[delivery_id]
            tag = link.forget(delivery_id) if received.settled else link.unsettled[delivery_id]
            found.setdefault(link, []).append((delivery_id, tag))
        outcome, transaction = _parts(received.outcome)
        for link, deliveries in found.items():
            events.append(DispositionArrived(link, deliveries, outcome, received.settled, transaction))
            link.raise_limit(events)

    def handle_end(self, end: End, events: list[Event]) -> None:
        """Answer the peer's end, unless we ended first."""
        if not self.ended:
            self.send_frame(End())
            self.drop()
        if not self.reported:
            events.append(SessionEnded(self, end.error))

    def _handle_answers(self, ids: list[int], received: DispositionFields, events: list[Event]) -> None:
        found: dict[ReceivingLink, list[tuple[int, bytes]]] = {}
        for delivery_id in ids:
            link = self.awaiting.pop(delivery_id)
            link.awaiting.discard(delivery_id)
            found.setdefault(link, []).append((delivery_id, b""))
        outcome, transaction = _parts(received.outcome)
        for link, deliveries in found.items():
            events.append(DispositionArrived(link, deliveries, outcome, received.settled, transaction))

    def _handle_flow(self, flow: Flow, events: list[Event]) -> None:
        # A peer that has not seen our begin gives no id; ours start at 0.
        in_flight = max(0, steps(flow.next_incoming_id or 0, self._next_outgoing_id))
        self.remote_window = max(0, flow.incoming_window - in_flight)
        self._send_waiting()
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
        elif (link := self._links_by_remote_handle.get(flow.handle)) is not None and link.is_open:
            link.handle_flow(flow, events)

    def _send_waiting(self) -> None:
        while self.waiting and self.remote_window > 0:
            link, head, payload, last = self.waiting.popleft()
            self.count_outgoing()
            self.chunks.append(head)
            self.chunks.append(payload)
            self.connection.account.queue(-_cost(head, payload))
            if last:
                link.delivery_sent()

    def _handle_attach(self, attach: Attach, cost: int, events: list[Event]) -> None:
        if attach.handle >= self.connection.limits.links_per_session_max:
            raise ConnectionViolation("amqp:connection:framing-error", f"handle {attach.handle} is above handle-max")
        if attach.handle in self._links_by_remote_handle:
            raise SessionViolation("amqp:session:handle-in-use", f"handle {attach.handle} is in use")
        ours = self._attaching.pop((attach.name, attach.role.other), None)
        link = ours or self._new_link(attach)
        self._links_by_remote_handle[attach.handle] = link
        link.cost += cost
        self.connection.account.charge(cost)
        link.handle_attach(attach)
        if ours is None:
            events.append(AttachRequested(link))
        elif link.attached:
            events.append(Attached(link))

    def _new_link(self, attach: Attach) -> Link:
        wanted = attach.handle if attach.handle not in self._links else self._free_handle()
        kind = ReceivingLink if attach.role is LinkRole.SENDER else SendingLink
        link = kind(self, attach.name, wanted, LinkState.REQUESTED)
        self._register(link)
        return link

    def _handle_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._links_by_remote_handle.pop(detach.handle, None)
        if link is None:
            return
        refused_by_peer = link.refused and link.state is LinkState.ATTACHING
        link.handle_detach(detach)
        self._unregister(link)
        if refused_by_peer:
            events.append(LinkRefused(link, detach.error))
        elif not link.refused:
            events.append(Detached(link, detach.error, detach.closed))

    def _attach(self, link: Link, source: Source, target: Target | Coordinator, properties: Fields | None) -> None:
        self._register(link)
        self._attaching[link.name, link.role] = link
        link.begin_attach(source, target, properties)

    def _register(self, link: Link) -> None:
        self.connection.reserve_link()
        self._links[link.handle] = link
        link.cost = LINK_COST
        self.connection.account.charge(LINK_COST)

    def _unregister(self, link: Link) -> None:
        self.connection.release_links(1)
        self.connection.account.release(link.cost)
        self._links.pop(link.handle, None)

    def _free_handle(self) -> int:
        if self.ended:
            raise AmqpError("the session has ended")
        free = next(handle for handle in range(len(self._links) + 1) if handle not in self._links)
        if free > self._remote_handle_max:
            raise SessionViolation("amqp:resource-limit-exceeded", f"the peer allows {free} links per session")
        return free


def _cost(head: bytes, payload: bytes) -> int:
    return len(head) + len(payload) + FRAME_COST


def _source(given: Source | str) -> Source:
    return Source(given) if isinstance(given, str) else given


def _target(given: Target | Coordinator | str) -> Target | Coordinator:
    return Target(given) if isinstance(given, str) else given


def _parts(state: DeliveryState | None) -> tuple[Outcome | None, bytes | None]:
    """The outcome in a state, and the transaction it belongs to."""
    match state:
        case TransactionalState(txn_id, outcome):
            return outcome, txn_id
        case Declared(txn_id):
            return None, txn_id
        case _:
            return state, None
