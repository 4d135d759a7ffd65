"""What can be wrong: each trouble says which operations it touches; the book says what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from twinbus.namespace.operations import Operation

EVERYTHING = frozenset(Operation)
SENDING = frozenset({Operation.ATTACH_SENDER, Operation.SEND})
RECEIVING = frozenset({Operation.ATTACH_RECEIVER, Operation.DELIVER, Operation.SETTLE})
MANAGING = frozenset({Operation.MANAGE, Operation.ADMIN})
ATTACHING = frozenset({Operation.ATTACH_SENDER, Operation.ATTACH_RECEIVER})
REQUESTS = EVERYTHING - {Operation.CONNECT, Operation.DELIVER}
"""What a client asks for. A delivery is ours: refusing one for being asked too often would punish the wrong side."""


class How(Enum):
    """How something cannot be reached."""

    REFUSE = "refuse"
    """The port is closed."""
    DROP = "drop"
    """Connections are taken and reset."""
    SILENT = "silent"
    """Connections are taken and nothing is ever said."""


class Ability(Enum):
    SENDS = "sends"
    RECEIVES = "receives"
    BOTH = "both"


_OF_ABILITY = {Ability.SENDS: SENDING, Ability.RECEIVES: RECEIVING, Ability.BOTH: SENDING | RECEIVING}


@dataclass(frozen=True, slots=True)
class NoSend:
    @property
    def touches(self) -> frozenset[Operation]:
        return SENDING


@dataclass(frozen=True, slots=True)
class NoReceive:
    @property
    def touches(self) -> frozenset[Operation]:
        return RECEIVING


@dataclass(frozen=True, slots=True)
class NoManage:
    @property
    def touches(self) -> frozenset[Operation]:
        return MANAGING


@dataclass(frozen=True, slots=True)
class Unreachable:
    how: How

    @property
    def touches(self) -> frozenset[Operation]:
        return EVERYTHING


@dataclass(frozen=True, slots=True)
class Restarting:
    """The first part of a restart; it is followed by `Slow`."""

    @property
    def touches(self) -> frozenset[Operation]:
        return EVERYTHING


@dataclass(frozen=True, slots=True)
class Refusing:
    condition: str
    text: str | None
    on: Ability
    probability: float
    count: int | None

    @property
    def touches(self) -> frozenset[Operation]:
        """Opening a link is refused too, but does not use up a count that was meant for messages."""
        operations = _OF_ABILITY[self.on]
        return operations if self.is_steady else operations - {Operation.ATTACH_SENDER, Operation.DELIVER}

    @property
    def is_steady(self) -> bool:
        return self.probability >= 1 and self.count is None


@dataclass(frozen=True, slots=True)
class Busy:
    per_second: float

    @property
    def touches(self) -> frozenset[Operation]:
        return REQUESTS


@dataclass(frozen=True, slots=True)
class Slow:
    delay_ms: int
    jitter_ms: int = 0

    @property
    def touches(self) -> frozenset[Operation]:
        return EVERYTHING - {Operation.CONNECT}


@dataclass(frozen=True, slots=True)
class Late:
    delay_ms: int

    @property
    def touches(self) -> frozenset[Operation]:
        return frozenset({Operation.SEND})


@dataclass(frozen=True, slots=True)
class Unanswered:
    probability: float
    count: int | None

    @property
    def touches(self) -> frozenset[Operation]:
        return frozenset({Operation.SEND})


Trouble = NoSend | NoReceive | NoManage | Unreachable | Restarting | Refusing | Busy | Slow | Late | Unanswered
