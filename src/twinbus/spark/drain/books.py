"""What a drain moved, read from what its attempts wrote down.

What Spark collects from tasks is no record: the output of a task that was killed is dropped, though its messages are
home. Every attempt writes segments of its own, and those count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.ledger.events import Record
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.reader import segments_in
from twinbus.spark.drain.shard import program_of


@dataclass(slots=True)
class Books:
    """Sums over all attempts of a run."""

    attempts: int = 0
    killed: int = 0
    """Attempts that never said goodbye: what they did in their last moments is not written down."""
    received: int = 0
    stored: int = 0
    """Stored at home, repeats included."""
    moved: int = 0
    """Stored at home and gone from the backlog."""
    in_doubt: int = 0
    refused: int = 0
    expired: int = 0
    repeated: int = 0
    """Stored at home more often than they left the backlog, as far as is written down."""

    def add(self, record: Record) -> None:
        count = len(record.message_ids) or record.count
        name = _NAMES.get(record.kind)
        if name is not None:
            setattr(self, name, getattr(self, name) + count)
        self.attempts += record.kind == Kind.OPENED
        self.killed += (record.kind == Kind.OPENED) - (record.kind == Kind.CLOSED)


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
    books = Books()
    try:
        for record in records_of(Path(directory), run):
            books.add(record)
    except StoreError:
        return None
    if not books.attempts:
        return None
    books.repeated = max(0, books.stored - books.moved)
    return books


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
