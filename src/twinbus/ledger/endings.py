"""How the records of a process end, and what it may have done that they do not tell.

A process that closed its ledger has told everything. One that did not may have kept its last records: those of the
write interval if it was killed, those of the sync interval if the machine lost power. If its mark says that nothing
waited, and the machine has been up ever since, nothing is missing all the same. When it ended is another matter: it may
have been quiet for hours before it did what nobody knows of. So what is dark lasts until it had ended for certain.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from twinbus.ledger.boot import boot_id, booted_ms
from twinbus.ledger.finding import Found
from twinbus.ledger.mark import MarkSeen, read_mark
from twinbus.ledger.segment import process_of

FOREVER_MS = 1 << 62
SYNC_US_BEFORE = 5_000_000
"""What versions that did not record it promised."""
SLACK_MS = 5_000
"""By how much the writer of a busy process may be late."""

Ending = Literal["closed", "running", "stopped", "killed"]
"""How the records of a process end. stopped: it never said goodbye, but nothing waited to be written. killed: nobody
holds a file of it any more, and its last records may be missing.
"""


class Last(msgspec.Struct, frozen=True):
    """The last that is known of a process, and what it promised when it began."""

    process: str
    host: str
    number: int
    at_ms: int
    wait_us: int
    sync_us: int
    boot: str


class End(msgspec.Struct, frozen=True):
    """What is known of the end of a process that did not close its ledger."""

    is_complete: bool
    """Nothing is missing at its end."""
    until_ms: int
    """It had ended by then; `FOREVER_MS`: it may be running."""
    text: str
    missing: int = 0
    """Records that it wrote, and that are not there, behind the last one that is."""


class Look:
    """Where to ask about processes: this machine, at one moment. Owners are those of segments that were found."""

    def __init__(self, found: Found, now_ms: int) -> None:
        self._owners = dict(_owners(found.segments))
        self._without_locks = {name[0] for name in map(process_of, found.without_locks) if name is not None}
        self._now_ms = now_ms

    def end_of(self, last: Last) -> End:
        """How a process ended that nobody saw running, and that did not close its ledger."""
        if last.process in self._without_locks:
            text = "its file system has no file locks: nobody can tell whether it still runs"
            return End(False, FOREVER_MS, text)
        is_same_start = bool(last.boot) and last.boot == boot_id()
        if is_same_start:
            owner = self._owners.get(last.process, os.getuid())  # of one whose segments were pruned: as likely as any
            return self._end_here(last, read_mark(last.process, owner))
        if last.host != socket.gethostname():
            text = (
                f"it did not close its ledger, and it ran on {last.host}: from here nobody can tell whether it still "
                f"runs, or ended in a power cut, which takes {_unsynced(last)}"
            )
            return End(False, FOREVER_MS, text)
        began_ms = booted_ms() if last.boot else 0
        until_ms = min(began_ms, self._now_ms) if began_ms > last.at_ms else self._now_ms
        text = f"it did not close its ledger, and a power cut cannot be excluded: {_unsynced(last)} may be missing"
        return End(False, max(until_ms, last.at_ms + _unsynced_ms(last)), text)

    def _end_here(self, last: Last, mark: MarkSeen | None) -> End:
        """There was no power cut since it began."""
        wait_ms = max(1, last.wait_us // 1000)
        text = f"it was killed: records of its last {wait_ms / 1000:g} s may never have been written"
        if mark is None:
            return End(False, max(self._now_ms, last.at_ms + wait_ms), text)
        until_ms = max(mark.alive_ms, last.at_ms) + wait_ms + SLACK_MS
        if mark.written > last.number:
            missing = mark.written - last.number
            return End(False, until_ms, f"its last {missing:,} records are not there: were segments removed?", missing)
        if mark.is_clear:
            return End(True, until_ms, "it did not close its ledger, but nothing waited to be written")
        return End(False, until_ms, text)


def _owners(segments: Iterable[Path]) -> Iterable[tuple[str, int]]:
    for path in segments:
        name = process_of(path)
        if name is not None:
            with suppress(OSError):
                yield name[0], path.stat().st_uid


def _unsynced_ms(last: Last) -> int:
    """How much a power cut takes, at least."""
    sync_us = SYNC_US_BEFORE if last.sync_us == 0 else last.sync_us
    return max(1, last.wait_us // 1000, sync_us // 1000)


def _unsynced(last: Last) -> str:
    return "all it wrote last" if last.sync_us < 0 else f"the records of its last {_unsynced_ms(last) / 1000:g} s"
