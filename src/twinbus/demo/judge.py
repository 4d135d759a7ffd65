"""The judge: what the sender was promised against what the receiver got."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinbus.demo.journal import JournalReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of the messages of one namespace."""

    namespace: str
    sent: int
    """Different messages that the sender tried to send."""
    failed_sends: int
    """Attempts that ended in an error; the sender tries the same message again."""
    acknowledged: int
    received: int
    """Different messages that were received."""
    duplicates: int
    """Further copies: a send that failed may have been stored all the same."""
    lost: tuple[str, ...]
    """Ids that were acknowledged and never received."""


def judge(namespace: str, sender_journal: Path, receiver_journal: Path) -> Tally:
    """Compare the two journals."""
    sends = list(JournalReader(sender_journal).new_entries())
    receipts = [entry.message_id for entry in JournalReader(receiver_journal).new_entries()]
    acknowledged = {entry.message_id for entry in sends if entry.kind == "acknowledged"}
    received = set(receipts)
    return Tally(
        namespace=namespace,
        sent=len({entry.message_id for entry in sends}),
        failed_sends=sum(entry.kind == "failed" for entry in sends),
        acknowledged=len(acknowledged),
        received=len(received),
        duplicates=len(receipts) - len(received),
        lost=tuple(sorted(acknowledged - received)),
    )
