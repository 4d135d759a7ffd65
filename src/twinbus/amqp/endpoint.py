"""What both ends of a link have in common: how it comes and how it goes.

peer asks:  REQUESTED --accept()--> ATTACHED
            REQUESTED --refuse()--> DETACHING
we ask:     ATTACHING --attach of the peer--> ATTACHED
either:     ATTACHED --detach()--> DETACHING --detach of the peer--> DETACHED
            any state --detach of the peer--> DETACHED
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from twinbus.amqp.outcomes import Error
from twinbus.amqp.performatives import Attach, Detach, Fields, Flow, LinkRole, Source, Target

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
    """One end of a link, ours. `source`, `target`, `properties` and the modes are what the peer said last."""

    role: ClassVar[LinkRole]

    def __init__(self, session: Session, name: str, handle: int, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_handle: int | None = None
        self.source: Source | None = None
        self.target: Target | None = None
        self.properties: Fields | None = None
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.max_message_size: int | None = None
        """The largest message the peer takes; None or 0 when it set no limit."""
        self.context: Any = None
        """Free for the user of the engine."""
        self.state = state
        self.attached = state is LinkState.ATTACHED
        """Both sides have agreed and neither has detached."""
        self.refused = False
        self.delivery_count = 0
        self.cost = 0
        """What is charged for it."""

    @property
    def lives(self) -> bool:
        """Neither side has detached."""
        return self.state not in (LinkState.DETACHING, LinkState.DETACHED)

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | None = None,
        properties: Fields | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Agree to the link the peer asked for; what is not given is said as the peer said it.

        Does nothing when the link is gone by now.
        """
        if self.state is not LinkState.REQUESTED:
            return
        # A missing terminus would read as a refusal.
        self.source = source or self.source or Source()
        self.target = target or self.target or Target()
        self._say_attach(self.source, self.target, properties, max_message_size)
        self._move(LinkState.ATTACHED)

    def refuse(self, error: Error) -> None:
        """Decline the link the peer asked for. Does nothing when the link is gone by now."""
        if self.state is not LinkState.REQUESTED:
            return
        self.refused = True
        self._say_refusal()
        self._say_detach(error, True)
        self._move(LinkState.DETACHING)
        self._forget_deliveries()

    def detach(self, error: Error | None = None, closed: bool = True) -> None:
        """Leave the link; its unsettled deliveries are forgotten. Does nothing when it is already left."""
        if self.state is LinkState.REQUESTED:
            self.refuse(error or Error("amqp:link:detach-forced"))
        elif self.state in (LinkState.ATTACHED, LinkState.ATTACHING):
            self._say_detach(error, closed)
            self._move(LinkState.DETACHING)
            self._forget_deliveries()

    def begin_attach(self, source: Source, target: Target, properties: Fields | None, max_size: int | None) -> None:
        """Ask the peer for this link."""
        self.source, self.target = source, target
        self._say_attach(source, target, properties, max_size)

    def hear_attach(self, attach: Attach) -> None:
        """Remember what the peer said in its attach."""
        self.remote_handle = attach.handle
        self.source = attach.source
        self.target = attach.target if isinstance(attach.target, Target) else None
        self.properties = attach.properties
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.max_message_size = attach.max_message_size
        if self.state is LinkState.ATTACHING:
            self.refused = (self.target if self.role is LinkRole.SENDER else self.source) is None
            if not self.refused:
                self._move(LinkState.ATTACHED)

    def hear_detach(self, detach: Detach) -> None:
        """The peer leaves: answer it unless we left first."""
        if self.state is LinkState.REQUESTED:  # it did not wait for our answer, but both attach and detach are due
            self._say_refusal()
        if self.state in (LinkState.REQUESTED, LinkState.ATTACHING, LinkState.ATTACHED):
            self._say_detach(None, detach.closed)
        self.drop()

    @abstractmethod
    def hear_flow(self, flow: Flow, events: list[Event]) -> None:
        """The peer said something about this link's state."""

    def drop(self) -> None:
        """The link is over without a word: its session or connection is."""
        self._move(LinkState.DETACHED)
        self._forget_deliveries()

    def _move(self, state: LinkState) -> None:
        self.state = state
        self.attached = state is LinkState.ATTACHED

    def _say_attach(
        self,
        source: Source | None,
        target: Target | None,
        properties: Fields | None = None,
        max_message_size: int | None = None,
    ) -> None:
        sends = self.role is LinkRole.SENDER
        self.session.say(
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

    def _say_refusal(self) -> None:
        if self.role is LinkRole.SENDER:
            self._say_attach(None, self.target)
        else:
            self._say_attach(self.source, None)

    def _say_detach(self, error: Error | None, closed: bool) -> None:
        self.session.say(Detach(self.handle, closed, error))

    @abstractmethod
    def _forget_deliveries(self) -> None:
        """Nobody will settle them any more."""
