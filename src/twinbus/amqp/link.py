"""What sending and receiving links share: the life cycle.

peer attaches:  REQUESTED --accept()--> ATTACHED
                REQUESTED --refuse()--> DETACHING
we attach:      ATTACHING --attach of the peer--> ATTACHED
either:         ATTACHED --detach()--> DETACHING --detach of the peer--> DETACHED
                any state --detach of the peer--> DETACHED
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.performatives import Attach, Coordinator, Detach, Fields, Flow, LinkRole, Source, Target

if TYPE_CHECKING:
    from twinbus.amqp.events import Event
    from twinbus.amqp.session import Session


class LinkState(Enum):
    REQUESTED = "requested"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DETACHED = "detached"


class Link(ABC):
    """Our end of a link. `source`, `target`, `properties` and the settle modes are those the peer sent last."""

    role: ClassVar[LinkRole]

    def __init__(self, session: Session, name: str, handle: int, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.source: Source | None = None
        self.target: Target | Coordinator | None = None
        self.properties: Fields | None = None
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.max_message_size: int | None = None
        """The peer's limit; None or 0: no limit."""
        self.context: Any = None
        """Free for the user of the engine."""
        self.state = state
        self.attached = state is LinkState.ATTACHED
        """Both sides have attached and neither has detached."""
        self.refused = False
        self.delivery_count = 0
        self.cost = 0
        """Bytes charged to the account."""

    @property
    def is_open(self) -> bool:
        """Neither side has detached."""
        return self.state not in (LinkState.DETACHING, LinkState.DETACHED)

    def accept(
        self,
        *,
        source: Source | None = None,
        properties: Fields | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Accept the requested link; without a `source` that of the peer is repeated. Does nothing if the link is
        gone."""
        if self.state is not LinkState.REQUESTED:
            return
        # A missing terminus would read as a refusal.
        self.source = source or self.source or Source()
        self.target = self.target or Target()
        self._send_attach(self.source, self.target, properties, max_message_size)
        self._move(LinkState.ATTACHED)

    def refuse(self, error: Error) -> None:
        """Refuse the requested link. Does nothing if the link is gone."""
        if self.state is not LinkState.REQUESTED:
            return
        self.refused = True
        self._send_refusal()
        self._send_detach(error, True)
        self._move(LinkState.DETACHING)
        self._forget_deliveries()

    def detach(self, error: Error | None = None) -> None:
        """Detach; unsettled deliveries are forgotten. Does nothing if the link is detached or detaching."""
        if self.state is LinkState.REQUESTED:
            self.refuse(error or Error("amqp:link:detach-forced"))
        elif self.state in (LinkState.ATTACHED, LinkState.ATTACHING):
            self._send_detach(error, True)
            self._move(LinkState.DETACHING)
            self._forget_deliveries()

    def begin_attach(self, source: Source, target: Target | Coordinator, properties: Fields | None) -> None:
        self.source, self.target = source, target
        self._send_attach(source, target, properties)

    def handle_attach(self, attach: Attach) -> None:
        self.source = attach.source
        self.target = attach.target
        self.properties = attach.properties
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.max_message_size = attach.max_message_size
        if self.state is LinkState.ATTACHING:
            self.refused = (self.target if self.role is LinkRole.SENDER else self.source) is None
            if not self.refused:
                self._move(LinkState.ATTACHED)

    def handle_detach(self, detach: Detach) -> None:
        """Answer the peer's detach, unless we detached first."""
        if self.state is LinkState.REQUESTED:  # it did not wait for our answer; both attach and detach are due
            self._send_refusal()
        if self.state in (LinkState.REQUESTED, LinkState.ATTACHING, LinkState.ATTACHED):
            self._send_detach(None, detach.closed)
        self.drop()

    @abstractmethod
    def handle_flow(self, flow: Flow, events: list[Event]) -> None:
        """Handle a flow for this link."""

    def drop(self) -> None:
        """Drop the link without sending anything: its session or connection has ended."""
        self._move(LinkState.DETACHED)
        self._forget_deliveries()

    def _move(self, state: LinkState) -> None:
        self.state = state
        self.attached = state is LinkState.ATTACHED

    def _send_attach(
        self,
        source: Source | None,
        target: Target | Coordinator | None,
        properties: Fields | None = None,
        max_message_size: int | None = None,
    ) -> None:
        sends = self.role is LinkRole.SENDER
        self.session.send_frame(
            Attach(
                name=self.name,
                handle=self.handle,
                role=self.role,
                snd_settle_mode=self.snd_settle_mode,
                rcv_settle_mode=self.rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=self.delivery_count if sends else None,
                max_message_size=max_message_size,
                properties=properties,
            )
        )

    def _send_refusal(self) -> None:
        if self.role is LinkRole.SENDER:
            self._send_attach(None, self.target)
        else:
            self._send_attach(self.source, None)

    def _send_detach(self, error: Error | None, closed: bool) -> None:
        self.session.send_frame(Detach(self.handle, closed, error))

    @abstractmethod
    def _forget_deliveries(self) -> None:
        """Drop unsettled deliveries."""
