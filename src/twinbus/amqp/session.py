"""A session: the handles of its links, the ids of its deliveries, and how many frames each side may send."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from twinbus.amqp.account import FRAME_COST, LINK_COST, SESSION_COST
from twinbus.amqp.dispositions import Settling
from twinbus.amqp.events import (
    Attached,
    AttachRequested,
    Detached,
    DispositionArrived,
    LinkRefused,
    SessionEnded,
)
from twinbus.amqp.link import Link, LinkState, ReceivingLink, SendingLink
from twinbus.amqp.outcomes import Error, Outcome
from twinbus.amqp.performatives import (
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
from twinbus.amqp.serial import SERIAL_MASK, ids_between, steps
from twinbus.amqp.transfers import read_transfer
from twinbus.amqp.violations import ConnectionViolation, SessionViolation
from twinbus.errors import AmqpError

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection
    from twinbus.amqp.events import Event

OUTGOING_WINDOW = 2**31 - 1
"""We hold nothing back, so the peer is told of no limit."""

IDS_PER_STEP = 1000
"""Deliveries of a disposition that are handled before anything else may be done."""

FIRST_DELIVERY_ID = 1
"""Not 0: clients in scripting languages tend to take that for "none"."""


_Waiting: TypeAlias = "tuple[SendingLink, bytes, bytes, bool]"


class Session:
    """One session, ours and the peer's half together."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self.context: Any = None
        """Free for the user of the engine."""
        self.begun = False
        self.ended = False
        """We have said end; whatever still comes is ignored."""
        self.reported = False
        """SessionEnded was an event already."""
        self.next_delivery_id = FIRST_DELIVERY_ID
        self.unsettled: dict[int, SendingLink] = {}
        self.awaiting: dict[int, ReceivingLink] = {}
        self.remote_window = 0
        self.waiting: deque[_Waiting] = deque()
        """Transfer frames the peer has no room for: (link, head, payload, is the last of its delivery)."""
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
        """The links that are not detached; after the end, those that were not."""
        return list(self._links.values())

    # -- asking for links

    def attach_sender(
        self,
        name: str,
        target: Target | str,
        *,
        source: Source | str | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: Fields | None = None,
        max_message_size: int | None = None,
    ) -> SendingLink:
        """Ask the peer for a link on which we send to `target`; Attached or LinkRefused tells the answer."""
        link = SendingLink(self, name, self._free_handle(), LinkState.ATTACHING)
        link.snd_settle_mode, link.rcv_settle_mode = snd_settle_mode, rcv_settle_mode
        self._attach(link, _source(source or name), _target(target), properties, max_message_size)
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
        max_message_size: int | None = None,
    ) -> ReceivingLink:
        """Ask the peer for a link on which we receive from `source`; Attached or LinkRefused tells the answer."""
        link = ReceivingLink(self, name, self._free_handle(), LinkState.ATTACHING)
        link.snd_settle_mode, link.rcv_settle_mode = snd_settle_mode, rcv_settle_mode
        self._attach(link, _source(source), _target(target or name), properties, max_message_size)
        return link

    def end(self, error: Error | None = None) -> None:
        """End the session and all its links. Does nothing when it is ended already."""
        if self.ended:
            return
        self.say(End(error))
        self.drop()

    def drop(self) -> None:
        """The session is over for us without a word."""
        if self.ended:
            return
        self.ended = True
        self._release(self.waiting)
        self.waiting.clear()
        self.connection.free_link_places(len(self._links))
        self.connection.account.release(sum(link.cost for link in self._links.values()) + SESSION_COST)
        for link in self._links.values():
            link.drop()

    # -- what links say

    def say(self, performative: Performative) -> None:
        """Send a frame on this session's channel."""
        if not self.ended:
            self.connection.outbox.say(self.channel, performative)

    def say_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Tell the peer how much room there is: the whole window again, and a link's credit if one is given."""
        self._window_left = self._window
        self.say(
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

    def dispose(self, role: LinkRole, first: int, last: int, outcome: Outcome | None, settled: bool) -> None:
        """Send a disposition."""
        if not self.ended:
            self.connection.outbox.dispose(self.channel, role, first, last, outcome, settled)

    def count_outgoing(self) -> None:
        """One transfer frame goes out."""
        self.remote_window -= 1
        self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL_MASK

    def send_or_wait(self, link: SendingLink, head: bytes, payload: bytes, last: bool) -> None:
        """Send a transfer frame now, or when the peer has room."""
        if self.remote_window > 0 and not self.waiting:
            self.count_outgoing()
            self.chunks.append(head)
            self.chunks.append(payload)
        else:
            self.wait(link, head, payload, last)

    def wait(self, link: SendingLink, head: bytes, payload: bytes, last: bool) -> None:
        """Keep a transfer frame until the peer has room."""
        self.waiting.append((link, head, payload, last))
        link.unsent += last
        self.connection.account.queue(_cost(head, payload))

    def forget_links(self) -> None:
        """The connection is gone: links that somebody still knows are over, and the others are no more."""
        self.waiting.clear()
        self._links.clear()
        self._links_by_remote_handle.clear()
        self._attaching.clear()

    def forget_waiting(self, link: SendingLink) -> None:
        """Frames of a link that is gone are not sent any more."""
        if link.unsent:
            self._release(entry for entry in self.waiting if entry[0] is link)
            self.waiting = deque(entry for entry in self.waiting if entry[0] is not link)

    def _release(self, waiting: Iterable[_Waiting]) -> None:
        self.connection.account.queue(-sum([_cost(head, payload) for _, head, payload, _ in waiting]))

    # -- what the peer says

    def hear_begin(self, begin: Begin, remote_channel: int) -> None:
        """The peer's half of the session starts."""
        self.begun = True
        self.remote_channel = remote_channel
        self._next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max

    def hear_transfer(self, buffer: bytes, at: int, end: int, events: list[Event]) -> None:
        """A transfer frame: its list starts at `at`, its payload ends at `end`."""
        handle, delivery_id, tag, message_format, settled, more, aborted, start = read_transfer(buffer, at, end)
        self._next_incoming_id = (self._next_incoming_id + 1) & SERIAL_MASK
        self._window_left -= 1
        if self._window_left * 2 <= self._window:
            self.say_flow()
        link = self._links_by_remote_handle.get(handle)
        if isinstance(link, ReceivingLink):
            if link.attached or link.state is LinkState.REQUESTED:
                payload = buffer[start:end]
                link.hear_transfer(delivery_id, tag, message_format, settled, more, aborted, payload, events)
        elif link is not None:
            raise SessionViolation("amqp:not-allowed", "a transfer on a link whose sender is the other side")

    def hear(self, performative: Attach | Flow | Detach, cost: int, events: list[Event]) -> None:
        """Anything about links that is not sent per message; `cost` is what keeping it costs."""
        match performative:
            case Flow():
                self._hear_flow(performative, events)
            case Attach():
                self._hear_attach(performative, cost, events)
            case Detach():
                self._hear_detach(performative, events)

    def hear_disposition(self, said: Settling, events: list[Event]) -> Iterator[list[Event]] | None:
        """The peer says how deliveries ended: one event per link that has some of them.

        A range can be as long as everything that was ever lent. Of a long one the events come in parts, so that
        something else can be done between them.
        """
        held = self.awaiting if said.role is LinkRole.SENDER else self.unsettled
        ids = ids_between(said.first, said.last, held)
        if len(ids) > IDS_PER_STEP:
            return self._hear_in_parts(ids, held, said)
        self._hear_ids(ids, said, events)
        return None

    def _hear_in_parts(self, ids: list[int], held: Container[int], said: Settling) -> Iterator[list[Event]]:
        for start in range(0, len(ids), IDS_PER_STEP):
            events: list[Event] = []
            if not self.ended:
                part = ids[start : start + IDS_PER_STEP]
                self._hear_ids([each for each in part if each in held], said, events)
            yield events

    def _hear_ids(self, ids: list[int], said: Settling, events: list[Event]) -> None:
        if said.role is LinkRole.SENDER:
            self._hear_answers(ids, said, events)
        else:
            self._hear_outcomes(ids, said, events)

    def _hear_outcomes(self, ids: list[int], said: Settling, events: list[Event]) -> None:
        found: dict[SendingLink, list[tuple[int, bytes]]] = {}
        for delivery_id in ids:
            link = self.unsettled[delivery_id]
            tag = link.forget(delivery_id) if said.settled else link.unsettled[delivery_id]
            found.setdefault(link, []).append((delivery_id, tag))
        for link, deliveries in found.items():
            events.append(DispositionArrived(link, deliveries, said.outcome, said.settled))
            link.raise_limit(events)

    def hear_end(self, end: End, events: list[Event]) -> None:
        """The peer's half is over: answer it unless we ended first."""
        if not self.ended:
            self.say(End())
            self.drop()
        if not self.reported:
            events.append(SessionEnded(self, end.error))

    def _hear_answers(self, ids: list[int], said: Settling, events: list[Event]) -> None:
        found: dict[ReceivingLink, list[tuple[int, bytes]]] = {}
        for delivery_id in ids:
            link = self.awaiting.pop(delivery_id)
            link.awaiting.discard(delivery_id)
            found.setdefault(link, []).append((delivery_id, b""))
        events.extend(DispositionArrived(link, ids, said.outcome, said.settled) for link, ids in found.items())

    def _hear_flow(self, flow: Flow, events: list[Event]) -> None:
        # A peer that has not seen our begin names no id; ours start at 0.
        on_the_way = max(0, steps(flow.next_incoming_id or 0, self._next_outgoing_id))
        self.remote_window = max(0, flow.incoming_window - on_the_way)
        self._send_waiting()
        if flow.handle is None:
            if flow.echo:
                self.say_flow()
        elif (link := self._links_by_remote_handle.get(flow.handle)) is not None and link.lives:
            link.hear_flow(flow, events)

    def _send_waiting(self) -> None:
        while self.waiting and self.remote_window > 0:
            link, head, payload, last = self.waiting.popleft()
            self.count_outgoing()
            self.chunks.append(head)
            self.chunks.append(payload)
            link.unsent -= last
            self.connection.account.queue(-_cost(head, payload))

    def _hear_attach(self, attach: Attach, cost: int, events: list[Event]) -> None:
        if attach.handle >= self.connection.limits.links_per_session_max:
            raise ConnectionViolation("amqp:connection:framing-error", f"handle {attach.handle} is above handle-max")
        if attach.handle in self._links_by_remote_handle:
            raise SessionViolation("amqp:session:handle-in-use", f"handle {attach.handle} is in use")
        ours = self._attaching.pop((attach.name, attach.role.other), None)
        link = ours or self._new_link(attach)
        self._links_by_remote_handle[attach.handle] = link
        link.cost += cost
        self.connection.account.charge(cost)
        link.hear_attach(attach)
        if ours is None:
            self._ask_or_refuse(link, attach, events)
        elif link.attached:
            events.append(Attached(link))

    def _new_link(self, attach: Attach) -> Link:
        wanted = attach.handle if attach.handle not in self._links else self._free_handle()
        kind = ReceivingLink if attach.role is LinkRole.SENDER else SendingLink
        link = kind(self, attach.name, wanted, LinkState.REQUESTED)
        self._register(link)
        return link

    def _ask_or_refuse(self, link: Link, attach: Attach, events: list[Event]) -> None:
        if isinstance(attach.target, Coordinator):
            link.refuse(Error("amqp:not-implemented", "transactions are not offered"))
        else:
            events.append(AttachRequested(link))

    def _hear_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._links_by_remote_handle.pop(detach.handle, None)
        if link is None:
            return
        refused_by_peer = link.refused and link.state is LinkState.ATTACHING
        link.hear_detach(detach)
        self._unregister(link)
        if refused_by_peer:
            events.append(LinkRefused(link, detach.error))
        elif not link.refused:
            events.append(Detached(link, detach.error, detach.closed))

    def _attach(
        self, link: Link, source: Source, target: Target, properties: Fields | None, max_size: int | None
    ) -> None:
        self._register(link)
        self._attaching[link.name, link.role] = link
        link.begin_attach(source, target, properties, max_size)

    def _register(self, link: Link) -> None:
        self.connection.take_link_place()
        self._links[link.handle] = link
        link.cost = LINK_COST
        self.connection.account.charge(LINK_COST)

    def _unregister(self, link: Link) -> None:
        self.connection.free_link_places(1)
        self.connection.account.release(link.cost)
        self._links.pop(link.handle, None)

    def _free_handle(self) -> int:
        if self.ended:
            raise AmqpError("the session is ended")
        free = next(handle for handle in range(len(self._links) + 1) if handle not in self._links)
        if free > self._remote_handle_max:
            raise SessionViolation("amqp:resource-limit-exceeded", f"the peer takes {free} links in a session")
        return free


def _cost(head: bytes, payload: bytes) -> int:
    return len(head) + len(payload) + FRAME_COST


def _source(given: Source | str) -> Source:
    return Source(given) if isinstance(given, str) else given


def _target(given: Target | str) -> Target:
    return Target(given) if isinstance(given, str) else given
