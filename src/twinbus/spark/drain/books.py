"""What a drain moved, read from what its attempts wrote down.

What Spark collects from tasks is no record: the output of a task that was killed is dropped, though its messages are
home. Every attempt writes segments of its own, and those count. That a message was stored at home is written down
before it is completed in the backlog; that it was completed, soon afterwards. So of a killed attempt some messages are
known to be at home, but not whether they left the backlog: those that another attempt brought home too had not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.ledger.events import Record
from twinbus.ledger.finding import segments_in
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.spark.drain.shard import program_of

Letter = tuple[str, str]
"""Entity and id: two entities may have messages with the same id."""
Unsure = dict[str, set[Letter]]
"""By attempt, what it stored at home of which nobody has said yet that it left the backlog."""


@dataclass(slots=True)
class Books:
    """Sums over all attempts of a run."""

    attempts: int = 0
    killed: int = 0
    """Attempts that never said goodbye."""
    received: int = 0
    stored: int = 0
    """Stored at home, repeats included."""
    moved: int = 0
    """Stored at home and gone from the backlog."""
    in_doubt: int = 0
    refused: int = 0
    expired: int = 0
    repeated: int = 0
    """Stored at home, and still in the backlog: they came again, with the same id."""

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


def books_of(directory: str, run: str) -> Books | None:
    """The books of a run; None if its ledger cannot be read from here, or nobody wrote into it."""
    books, unsure = Books(), Unsure()
    try:
        for record in records_of(Path(directory), run):
            books.add(record)
            _follow(record, unsure)
            books.attempts += record.kind == Kind.OPENED
        if not books.attempts:
            return None
        books.killed = len(unsure)
        books.moved += len(_left_unseen(Path(directory), run, unsure)) if unsure else 0
    except StoreError:
        return None
    books.repeated = max(0, books.stored - books.moved)
    return books


def _follow(record: Record, unsure: Unsure) -> None:
    """Keep what an attempt has stored and not completed: never more than it may borrow at a time."""
    if record.kind == Kind.OPENED:
        unsure[record.process] = set()
    elif record.kind == Kind.CLOSED:
        unsure.pop(record.process, None)
    elif record.kind == Kind.SENT_HOME and record.process in unsure:
        unsure[record.process].update(_letters(record))
    elif record.kind in (Kind.COMPLETED, Kind.LOCK_LOST) and record.process in unsure:
        unsure[record.process].difference_update(_letters(record))


def _left_unseen(directory: Path, run: str, unsure: Unsure) -> set[Letter]:
    """Of what killed attempts stored without a word of its completion, that which nobody met in the backlog again."""
    left = set[Letter]().union(*unsure.values())
    for record in records_of(directory, run):
        if record.kind == Kind.SENT_HOME:
            left -= _letters(record) - unsure.get(record.process, set())
    return left


def _letters(record: Record) -> set[Letter]:
    return {(record.entity, each) for each in record.message_ids}


def records_of(directory: Path, run: str) -> Iterator[Record]:
    """What the attempts of a run wrote; a segment of somebody else is put aside at its first line."""
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
