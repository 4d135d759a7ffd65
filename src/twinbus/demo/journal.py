"""The journals of the demo's processes, one JSON object a line: sends and receipts are compared by them alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["acknowledged", "failed", "received", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    kind: Kind
    entity: str = ""
    message_id: str = ""
    session: str | None = None
    place: str = ""
    """Where an acknowledged message is: "primary", or the path of a backlog queue; empty: its sender was not told."""
    event: str = ""
    """The name of what happened."""
    note: str = ""
    """A line for people."""
    took_s: float = 0.0
    """How long a call of send lasted."""
    at_s: float = field(default_factory=time.time)


class JournalWriter:
    """Entries are in the file when `write` returns. Threads may share one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._turn = threading.Lock()

    def write(self, entry: JournalEntry) -> None:
        with self._turn:
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class JournalReader:
    """Follows a journal while it grows. A file that does not exist yet is an empty journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_entries(self) -> Iterator[JournalEntry]:
        """What came since the last call; a line that is still being written comes next time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                yield JournalEntry(**json.loads(line))


PRIMARY = "primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    entity: str
    sent: int
    """Different messages that the sender tried to send."""
    failed_sends: int
    """Calls that ended in an error; the sender tries the same message again."""
    to_primary: int
    """Acknowledged by the primary."""
    to_backlog: int
    """Acknowledged by a backlog queue of the secondary."""
    received: int
    """Different messages that were received, from the primary."""
    duplicates: int
    """Further copies: an attempt without an answer may have been stored all the same."""
    out_of_order: int
    """Messages that came after a later one of the same entity, or session where there are sessions."""
    slowest_send_s: float
    """The longest that the application had to wait for one send."""
    lost: tuple[str, ...]
    """Ids that were acknowledged and never received."""

    @property
    def availability(self) -> float:
        """The share of calls of send that ended well."""
        calls = self.to_primary + self.to_backlog + self.failed_sends
        return (calls - self.failed_sends) / calls if calls else 1.0


def compare_journals(
    sender_journal: Path, receiver_journals: Sequence[Path], backlog: Mapping[str, int] | None = None
) -> list[MessageCounts]:
    """Compare the journals, entity by entity. `backlog`: messages that went there, if the sender was not told."""
    sends = [entry for entry in JournalReader(sender_journal).new_entries() if entry.kind != "event"]
    receipts = [entry for path in receiver_journals for entry in JournalReader(path).new_entries()]
    return [
        _compare_entity(
            entity,
            [entry for entry in sends if entry.entity == entity],
            [entry for entry in receipts if entry.entity == entity],
            None if backlog is None else backlog.get(entity, 0),
        )
        for entity in dict.fromkeys(entry.entity for entry in sends)
    ]


def total_counts(counts: Sequence[MessageCounts]) -> MessageCounts:
    """The same for all entities at once."""
    numbers = ("sent", "failed_sends", "to_primary", "to_backlog", "received", "duplicates", "out_of_order")
    return MessageCounts(
        entity="all",
        **{name: sum(getattr(count, name) for count in counts) for name in numbers},
        slowest_send_s=max((count.slowest_send_s for count in counts), default=0.0),
        lost=tuple(name for count in counts for name in count.lost),
    )


def _compare_entity(
    entity: str, sends: list[JournalEntry], receipts: list[JournalEntry], backlog: int | None
) -> MessageCounts:
    acknowledged = {entry.message_id: entry.place for entry in sends if entry.kind == "acknowledged"}
    received = {entry.message_id for entry in receipts}
    on_primary = sum(place == PRIMARY for place in acknowledged.values())
    if backlog is not None:
        on_primary = max(0, len(acknowledged) - backlog)
    return MessageCounts(
        entity=entity,
        sent=len({entry.message_id for entry in sends}),
        failed_sends=sum(entry.kind == "failed" for entry in sends),
        to_primary=on_primary,
        to_backlog=len(acknowledged) - on_primary,
        received=len(received),
        duplicates=len(receipts) - len(received),
        out_of_order=out_of_order(receipts),
        slowest_send_s=max((entry.took_s for entry in sends), default=0.0),
        lost=tuple(sorted(set(acknowledged) - received)),
    )


def out_of_order(receipts: Iterable[JournalEntry]) -> int:
    """How many came after a later one. Ids are numbered in the order of sending; only a first copy counts."""
    latest: dict[str | None, str] = {}
    seen: set[str] = set()
    late = 0
    for entry in receipts:
        if entry.message_id in seen:
            continue
        seen.add(entry.message_id)
        late += entry.message_id < latest.get(entry.session, "")
        latest[entry.session] = max(entry.message_id, latest.get(entry.session, ""))
    return late
