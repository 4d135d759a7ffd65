"""What is to be prepared for a pair, in plain words: names, addresses, how many queues and with which rights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from twinbus.board.queue import board_path
from twinbus.pairing.backlog.backlog_queues import backlog_path

OUTAGE_AND_DRAIN_S = 4 * 3600.0
"""Minutes to hours, says the specification of an outage; then the backlog has to come home."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    primary_name: str | None
    """Its name in backlog queue paths; None: neither its address nor its owner gives one."""
    primary_address: str
    """`host:port`, in lower case."""
    secondary_name: str | None
    secondary_address: str
    queue_count: int = 10
    creates: bool = True
    """Whether missing backlog queues are created; otherwise those that exist are used."""
    listens: bool = False
    """Whether a syphon will run here, and needs to listen."""
    sends: bool = True
    """Whether Send on the backlog queues is needed; a syphon alone only has to listen, and `listens` says so."""
    entities: tuple[str, ...] = ()
    """Entities of the primary that are declared to exist."""
    attempts: int = 3
    can_wait: bool = False
    """Whether there is a pair although the secondary cannot be reached now: messages can wait elsewhere."""
    has_board: bool = False
    """Whether this process will post on the board, and the board is to be there."""
    reads_board: bool = False
    """Whether it will also read there what other hosts have found."""
    outage_s: float = OUTAGE_AND_DRAIN_S
    """For how long duplicates have to be known on the primary."""

    @cached_property
    def paths(self) -> dict[int, str]:
        """The backlog queues by index."""
        assert self.primary_name is not None
        return {index: backlog_path(self.primary_name, index) for index in range(self.queue_count)}

    @property
    def board_path(self) -> str:
        assert self.primary_name is not None
        return board_path(self.primary_name)

    @property
    def primary(self) -> str:
        return _called(self.primary_name, self.primary_address)

    @property
    def secondary(self) -> str:
        return _called(self.secondary_name, self.secondary_address)


def _called(name: str | None, address: str) -> str:
    return address if name is None else f"{name} ({address})"


def host_of(address: str) -> str:
    """The host in `host:port`; the names that a machine has for itself are one host."""
    host = address.rpartition(":")[0].strip("[]")
    return "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0") else host
