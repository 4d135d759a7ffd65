"""What faults do: each effect says which operations it affects; the fault table decides what happens to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from twinbus.broker.operations import Operation

EVERYTHING = frozenset(Operation)
SENDING = frozenset({Operation.ATTACH_SENDER, Operation.SEND})
RECEIVING = frozenset({Operation.ATTACH_RECEIVER, Operation.DELIVER, Operation.SETTLE})
MANAGING = frozenset({Operation.MANAGE, Operation.ADMIN})
ATTACHING = frozenset({Operation.ATTACH_SENDER, Operation.ATTACH_RECEIVER})
REQUESTS = EVERYTHING - {Operation.CONNECT, Operation.DELIVER}
"""What a client asks for. A delivery is ours: throttling it would punish the wrong side."""


class OutageMode(Enum):
    """How something cannot be reached; of several, the first one counts for the port."""

    REFUSE = "refuse"
    """The port is closed."""
    DROP = "drop"
    """Connections are accepted and reset."""
    SILENT = "silent"
    """Connections are accepted and never answered."""


class Direction(Enum):
    SENDS = "sends"
    RECEIVES = "receives"
    BOTH = "both"


_OPERATIONS_OF = {Direction.SENDS: SENDING, Direction.RECEIVES: RECEIVING, Direction.BOTH: SENDING | RECEIVING}


@dataclass(frozen=True, slots=True)
class NoSend:
    affects: ClassVar = SENDING


@dataclass(frozen=True, slots=True)
class NoReceive:
    affects: ClassVar = RECEIVING


@dataclass(frozen=True, slots=True)
class NoManage:
    affects: ClassVar = MANAGING


@dataclass(frozen=True, slots=True)
class OutageEffect:
    affects: ClassVar = EVERYTHING
    how: OutageMode


@dataclass(frozen=True, slots=True)
class Restarting:
    """The first part of a restart; `Slow` follows."""

    affects: ClassVar = EVERYTHING


@dataclass(frozen=True, slots=True)
class Refusing:
    condition: str
    text: str | None
    on: Direction
    probability: float
    count: int | None

    @property
    def affects(self) -> frozenset[Operation]:
        """Attaching is refused too, but does not use up a count that is meant for messages."""
        operations = _OPERATIONS_OF[self.on]
        is_steady = self.probability >= 1 and self.count is None
        return operations if is_steady else operations - {Operation.ATTACH_SENDER, Operation.DELIVER}


@dataclass(frozen=True, slots=True)
class Busy:
    affects: ClassVar = REQUESTS
    per_second: float


@dataclass(frozen=True, slots=True)
class Slow:
    affects: ClassVar = EVERYTHING - {Operation.CONNECT}
    delay_ms: int
    jitter_ms: int = 0


@dataclass(frozen=True, slots=True)
class Late:
    affects: ClassVar = frozenset({Operation.SEND})
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    affects: ClassVar = frozenset({Operation.SEND})
    probability: float
    count: int | None


FaultEffect = NoSend | NoReceive | NoManage | OutageEffect | Restarting | Refusing | Busy | Slow | Late | Unanswered
