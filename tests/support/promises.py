"""Whether records have what the reference page of the ledger promises."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from twinbus.ledger import Kind, LedgerReader
from twinbus.ledger.kinds import FACTS, By
from twinbus.ledger.schema import PER_MESSAGE_FIELDS, Record


def records_of(*folders: Path) -> list[Record]:
    return [record for folder in folders for record in LedgerReader(folder).records()]


def of_kind(records: Iterable[Record], kind: Kind) -> list[Record]:
    return [record for record in records if record.kind == kind]


def broken_promises(records: Iterable[Record]) -> list[str]:
    """Fields that are promised and not there, and lists of messages that are of different length."""
    problems = []
    for record in records:
        missing = [name for name in FACTS[Kind(record.kind)].fields if not getattr(record, name)]
        problems += [f"{record.kind} by {record.program} has no {name}" for name in missing]
        if len({len(getattr(record, name)) for name in PER_MESSAGE_FIELDS if getattr(record, name)}) > 1:
            problems.append(f"{record.kind} by {record.program} has lists of different length")
    return sorted(set(problems))


def kinds_by(writer: By) -> set[str]:
    """What this one is said to record."""
    return {str(kind) for kind, facts in FACTS.items() if writer in facts.by}


def kinds_in(records: Iterable[Record]) -> set[str]:
    """What was recorded, without what the ledger says of itself."""
    return {record.kind for record in records} - kinds_by("ledger")
