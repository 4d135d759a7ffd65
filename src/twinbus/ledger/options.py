"""What can be chosen about a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinbus.errors import OptionsError
from twinbus.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Where and how much. The directory may be shared by any number of processes."""

    directory: Path
    program: str = ""
    """What the process calls itself in its records."""
    write_interval_s: float = 0.1
    """How long a record waits in memory, at most, while the disk keeps up: so much is lost by a `kill -9`."""
    sync_interval_s: float | None = 5.0
    """How long what was written may wait to be forced to the disk; None: the system decides. A power cut loses it."""
    memory_bytes_max: int = 32 * MIB
    """What may wait in memory while the disk does not keep up; beyond it events are lost, and the gap is recorded."""
    segment_bytes_max: int = 64 * MIB
    segment_age_max_s: float = 15 * 60.0
    """When the next segment is begun; finished ones never change, so they can be compacted and moved away."""
    directory_bytes_max: int = 4 * GIB
    """Nothing more is written while the segments in the directory take up so much. Old ones are never deleted."""
    free_bytes_min: int = 256 * MIB
    """Nothing more is written while the file system has less room than this: the ledger leaves the rest to others."""

    def __post_init__(self) -> None:
        wrong = [text for fine, text in self._demands() if not fine]
        if wrong:
            raise OptionsError("; ".join(wrong))

    def _demands(self) -> list[tuple[bool, str]]:
        sync_s = self.sync_interval_s
        return [
            (
                0.001 <= self.write_interval_s <= 60,
                f"write_interval_s is from 0.001 to 60, got {self.write_interval_s}",
            ),
            (sync_s is None or 0 <= sync_s <= 3600, f"sync_interval_s is from 0 to 3600 or None, got {sync_s}"),
            (self.memory_bytes_max >= 64 * KIB, f"memory_bytes_max is 65536 or more, got {self.memory_bytes_max}"),
            (self.segment_bytes_max >= KIB, f"segment_bytes_max is 1024 or more, got {self.segment_bytes_max}"),
            (self.segment_age_max_s >= 1, f"segment_age_max_s is 1 or more, got {self.segment_age_max_s}"),
            (self.directory_bytes_max >= KIB, f"directory_bytes_max is 1024 or more, got {self.directory_bytes_max}"),
            (self.free_bytes_min >= 0, f"free_bytes_min is 0 or more, got {self.free_bytes_min}"),
        ]
