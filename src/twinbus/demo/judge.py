"""The judge: what the sender was promised against what the receiver got."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinbus.demo.journal import Entry, JournalReader

PRIMARY = "primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of the messages for one queue."""

    queue: str
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
    lost: tuple[str, ...]
    """Ids that were acknowledged and never received."""


def judge(sender_journal: Path, receiver_journal: Path) -> list[Tally]:
    """Compare the two journals, queue by queue."""
    sends = [entry for entry in JournalReader(sender_journal).new_entries() if entry.kind != "news"]
    receipts = [entry.message_id for entry in JournalReader(receiver_journal).new_entries()]
    queues = dict.fromkeys(_queue_of(entry.message_id) for entry in sends)
    return [
        _judge_queue(
            queue,
            [entry for entry in sends if _queue_of(entry.message_id) == queue],
            [message_id for message_id in receipts if _queue_of(message_id) == queue],
        )
        for queue in queues
    ]


def _judge_queue(queue: str, sends: list[Entry], receipts: list[str]) -> Tally:
    acknowledged = {entry.message_id: entry.place for entry in sends if entry.kind == "acknowledged"}
    received = set(receipts)
    on_primary = sum(place == PRIMARY for place in acknowledged.values())
    return Tally(
        queue=queue,
        sent=len({entry.message_id for entry in sends}),
        failed_sends=sum(entry.kind == "failed" for entry in sends),
        to_primary=on_primary,
        to_backlog=len(acknowledged) - on_primary,
        received=len(received),
        duplicates=len(receipts) - len(received),
        lost=tuple(sorted(set(acknowledged) - received)),
    )


def _queue_of(message_id: str) -> str:
    return message_id.rpartition("-")[0]
