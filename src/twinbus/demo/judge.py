"""The judge: what the sender was promised against what the receivers got."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinbus.demo.journal import Entry, JournalReader

PRIMARY = "primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of the messages for one entity."""

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


def judge(sender_journal: Path, receiver_journals: Sequence[Path]) -> list[Tally]:
    """Compare the journals, entity by entity."""
    sends = [entry for entry in JournalReader(sender_journal).new_entries() if entry.kind != "news"]
    receipts = [entry for path in receiver_journals for entry in JournalReader(path).new_entries()]
    return [
        _judge_entity(
            entity,
            [entry for entry in sends if entry.entity == entity],
            [entry for entry in receipts if entry.entity == entity],
        )
        for entity in dict.fromkeys(entry.entity for entry in sends)
    ]


def altogether(tallies: Sequence[Tally]) -> Tally:
    """The same for all entities at once."""
    numbers = ("sent", "failed_sends", "to_primary", "to_backlog", "received", "duplicates", "out_of_order")
    return Tally(
        entity="all",
        **{name: sum(getattr(tally, name) for tally in tallies) for name in numbers},
        slowest_send_s=max((tally.slowest_send_s for tally in tallies), default=0.0),
        lost=tuple(name for tally in tallies for name in tally.lost),
    )


def _judge_entity(entity: str, sends: list[Entry], receipts: list[Entry]) -> Tally:
    acknowledged = {entry.message_id: entry.place for entry in sends if entry.kind == "acknowledged"}
    received = {entry.message_id for entry in receipts}
    on_primary = sum(place == PRIMARY for place in acknowledged.values())
    return Tally(
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


def out_of_order(receipts: Iterable[Entry]) -> int:
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
