"""Options of a ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path

from twinbus.ranges import check_ranges
from twinbus.units import GIB, KIB, MIB

SHIP_VARIABLE = "TWINBUS_LEDGER_SHIP_TO"


def ship_to_or_variable(ship_to: str | None) -> str | None:
    """Where a ledger is shipped to; TWINBUS_LEDGER_SHIP_TO is the default. None: nowhere."""
    return (os.environ.get(SHIP_VARIABLE) or None) if ship_to is None else ship_to


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Any number of processes may share the directory."""

    directory: Path
    program: str = ""
    """The name of the process in its records."""
    write_interval_s: float = 0.1
    """How long a record waits in memory, at most, while the disk keeps up: `kill -9` loses this much."""
    sync_interval_s: float | None = 5.0
    """How long what was written may wait to be forced to the disk; None: the system decides. A power cut loses it."""
    memory_bytes_max: int = 32 * MIB
    """What may wait in memory while the disk does not keep up; beyond it events are lost, and the gap is recorded."""
    segment_bytes_max: int = 64 * MIB
    segment_age_max_s: float = 15 * 60.0
    """When the next segment is begun; finished ones never change, so they can be compacted and moved away."""
    directory_bytes_max: int = 4 * GIB
    """Nothing more is written while the segments in the directory take up this much. Old ones are never deleted."""
    free_bytes_min: int = 256 * MIB
    """Nothing more is written while the file system has less room than this: the ledger leaves the rest to others."""
    ship_to: str | None = None
    """Where finished segments are copied to, e.g. `s3a://bucket/ledger`, by a thread: no send waits for it. Its first
    work, beside its own segments, is what earlier processes left."""
    ship_interval_s: float = 10.0
    """How often it looks for them; after a failure, less and less often."""

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES if self.sync_interval_s is None else _RANGES | {"sync_interval_s": (0, 3_600)})


_RANGES: dict[str, tuple[float, float]] = {
    "write_interval_s": (0.001, 60),
    "memory_bytes_max": (64 * KIB, inf),
    "segment_bytes_max": (KIB, inf),
    "segment_age_max_s": (1, inf),
    "directory_bytes_max": (KIB, inf),
    "free_bytes_min": (0, inf),
    "ship_interval_s": (0.01, 3_600),
}
