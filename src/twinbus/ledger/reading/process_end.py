"""How the records of a process end, and which of its last records may be missing.

The records of a process that closed its ledger are complete. Without that, the last ones may be missing: those of the
write interval if it was killed, those of the sync interval if the machine lost power. If its liveness mark says that
nothing waited, and the machine has been up since, nothing is missing. When it ended is a different question: it may
have been idle for hours before the events that were not written. So the unknown time lasts until it has surely ended.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from twinbus.ledger.reading.segment_files import FoundSegments, StoredSegment
from twinbus.ledger.writing.liveness import LivenessSeen, boot_id, booted_ms, read_liveness

FOREVER_MS = 1 << 62
SYNC_US_BEFORE = 5_000_000
"""What versions that did not record it promised."""
SLACK_MS = 5_000
"""By how much the writer of a busy process may be late."""

Ending = Literal["closed", "running", "stopped", "killed"]
"""How the records of a process end. stopped: it did not close its ledger, but nothing waited to be written. killed: it
holds no file any more, and its last records may be missing.
"""


class LastRecord(msgspec.Struct, frozen=True):
    """The last that is known of a process, and what it promised when it began."""

    process: str
    host: str
    number: int
    at_ms: int
    wait_us: int
    sync_us: int
    boot: str


class ProcessEnd(msgspec.Struct, frozen=True):
    """What is known of the end of a process that did not close its ledger."""

    is_complete: bool
    """Nothing is missing at its end."""
    until_ms: int
    """It had ended by then; `FOREVER_MS`: it may be running."""
    text: str
    missing: int = 0
    """Records that it wrote, and that are not there, behind the last one that is."""


class ProcessProbe:
    """Finds out how processes ended, from this machine at one moment. Owners are those of the segments found."""

    def __init__(self, found: FoundSegments, now_ms: int) -> None:
        self._owners = dict(_owners(found.segments))
        self._without_locks = {each.process for each in found.without_locks}
        self._now_ms = now_ms

    def end_of(self, last: LastRecord) -> ProcessEnd:
        """The end of a process that is not seen running and did not close its ledger."""
        if last.process in self._without_locks:
            text = "its file system has no file locks: unknown whether it still runs"
            return ProcessEnd(False, FOREVER_MS, text)
        is_same_start = bool(last.boot) and last.boot == boot_id()
        if is_same_start:
            owner = self._owners.get(last.process, os.getuid())  # of one whose segments were pruned: as likely as any
            return self._end_here(last, read_liveness(last.process, owner))
        lost = _describe_unsynced(last)
        if last.host != socket.gethostname():
            text = (
                f"it did not close its ledger, and it ran on {last.host}: from here it is unknown whether it still "
                f"runs, or ended in a power cut, which takes {lost}"
            )
            return ProcessEnd(False, FOREVER_MS, text)
        began_ms = booted_ms() if last.boot else 0
        until_ms = min(began_ms, self._now_ms) if began_ms > last.at_ms else self._now_ms
        text = f"it did not close its ledger, and a power cut cannot be excluded: {lost} may be missing"
        return ProcessEnd(False, max(until_ms, last.at_ms + _unsynced_ms(last)), text)

    def _end_here(self, last: LastRecord, mark: LivenessSeen | None) -> ProcessEnd:
        """There was no power cut since it began."""
        wait_ms = max(1, last.wait_us // 1000)
        text = f"it was killed: records of its last {wait_ms / 1000:g} s may never have been written"
        if mark is None:
            return ProcessEnd(False, max(self._now_ms, last.at_ms + wait_ms), text)
        until_ms = max(mark.alive_ms, last.at_ms) + wait_ms + SLACK_MS
        if mark.written > last.number:
            missing = mark.written - last.number
            return ProcessEnd(
                False, until_ms, f"its last {missing:,} records are not there: were segments removed?", missing
            )
        if mark.is_clear:
            return ProcessEnd(True, until_ms, "it did not close its ledger, but nothing waited to be written")
        return ProcessEnd(False, until_ms, text)


def _owners(segments: Iterable[StoredSegment]) -> Iterable[tuple[str, int]]:
    for each in segments:
        name = each.process
        if name is not None and each.folder.is_local:
            with suppress(OSError):
                yield name, each.path.stat().st_uid


def _unsynced_ms(last: LastRecord) -> int:
    """How much a power cut takes, at least."""
    sync_us = SYNC_US_BEFORE if last.sync_us == 0 else last.sync_us
    return max(1, last.wait_us // 1000, sync_us // 1000)


def _describe_unsynced(last: LastRecord) -> str:
    return "all it wrote last" if last.sync_us < 0 else f"the records of its last {_unsynced_ms(last) / 1000:g} s"
