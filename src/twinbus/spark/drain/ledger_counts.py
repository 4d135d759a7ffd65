"""What a drain moved, counted from what its attempts recorded in the ledger.

What Spark collects from tasks is no record: the output of a killed task is dropped, although its messages are home.
Every attempt writes segments of its own, and those count. That a message was stored at home is recorded before it is
completed in the backlog; that it was completed, soon afterwards. So of a killed attempt some messages are known to be
at home, but not whether they left the backlog: those that another attempt sent home too had not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.ledger.schema import Record
from twinbus.spark.drain.shard import program_of

EntityMessage = tuple[str, str]
"""Entity and message id: two entities may have messages with the same id."""
Unsettled = dict[str, set[EntityMessage]]
"""By attempt, what it stored at home and is not recorded as completed yet."""


@dataclass(slots=True)
class DrainCounts:
    """Sums over all attempts of a run."""

    attempts: int = 0
    killed: int = 0
    """Attempts without an end in the ledger."""
    received: int = 0
    stored: int = 0
    """Stored at home, repeats included."""
    moved: int = 0
    """Stored at home and gone from the backlog."""
    in_doubt: int = 0
    refused: int = 0
    expired: int = 0
    repeated: int = 0
    """Stored at home, and still in the backlog then: they came again, with the same id."""

    def add(self, record: Record) -> None:
        name = _NAMES.get(record.kind)
        if name is not None:
            setattr(self, name, getattr(self, name) + (len(record.message_ids) or record.count))


_NAMES: dict[str, str] = {
    Kind.RECEIVED_FROM_BACKLOG: "received",
    Kind.SENT_HOME: "stored",
    Kind.COMPLETED: "moved",
    Kind.IN_DOUBT: "in_doubt",
    Kind.DEAD_LETTERED: "refused",
    Kind.EXPIRED: "expired",
}


def counts_of(directory: str, run: str) -> DrainCounts | None:
    """The counts of a run; None if its ledger cannot be read from here, or is empty."""
    counts, unsettled = DrainCounts(), Unsettled()
    try:
        for record in records_of(Path(directory), run):
            counts.add(record)
            _update(record, unsettled)
            counts.attempts += record.kind == Kind.OPENED
        if not counts.attempts:
            return None
        counts.killed = len(unsettled)
        counts.moved += len(_left_unrecorded(Path(directory), run, unsettled)) if unsettled else 0
    except StoreError:
        return None
    counts.repeated = max(0, counts.stored - counts.moved)
    return counts


def _update(record: Record, unsettled: Unsettled) -> None:
    """Keep what an attempt has stored and not completed: never more than it may hold at a time."""
    if record.kind == Kind.OPENED:
        unsettled[record.process] = set()
    elif record.kind == Kind.CLOSED:
        unsettled.pop(record.process, None)
    elif record.kind == Kind.SENT_HOME and record.process in unsettled:
        unsettled[record.process].update(_messages_in(record))
    elif record.kind in (Kind.COMPLETED, Kind.LOCK_LOST) and record.process in unsettled:
        unsettled[record.process].difference_update(_messages_in(record))


def _left_unrecorded(directory: Path, run: str, unsettled: Unsettled) -> set[EntityMessage]:
    """Of what killed attempts stored without recording its completion, that which was not received again."""
    left = set[EntityMessage]().union(*unsettled.values())
    for record in records_of(directory, run):
        if record.kind == Kind.SENT_HOME:
            left -= _messages_in(record) - unsettled.get(record.process, set())
    return left


def _messages_in(record: Record) -> set[EntityMessage]:
    return {(record.entity, each) for each in record.message_ids}


def records_of(directory: Path, run: str) -> Iterator[Record]:
    """What the attempts of a run recorded; other segments are skipped at their first line."""
    mark = program_of(run, 0, 0).partition(" shard ")[0] + " "
    for path in segments_in(directory):
        try:
            with path.open("rb") as file:
                for line in file:
                    record = read_line(line)
                    if isinstance(record, Flaw):
                        continue  # torn, as the last line of a killed process is
                    if not record.program.startswith(mark):
                        break
                    yield record
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
