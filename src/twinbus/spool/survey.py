"""What is in the folders of a spool, read without changing or holding them, also while processes use them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinbus.broker.core.registry import DEAD_LETTER_QUEUE
from twinbus.spool.contents import entity_of_settings
from twinbus.spool.folder import STORE_FILE, SpoolDirectory
from twinbus.units import utc_time_ms

WAIT_S = 5.0
"""For a process that changes the store just now."""
_COUNT = """
select q.kind, q.settings, count(m.sequence), coalesce(sum(m.size), 0), min(m.enqueued_at_ms)
from entities q left join messages m on m.entity_id = q.entity_id group by q.entity_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReport:
    """One folder of a spool."""

    folder: str
    process: int | None
    """The process that uses it; None: it was left behind."""
    messages: int = 0
    """Waiting for a namespace."""
    size_bytes: int = 0
    """Of all messages in it."""
    quarantined: int = 0
    """Messages that expired or were refused permanently."""
    oldest_ms: int | None = None
    """When the oldest message that waits was stored, in milliseconds since 1970."""
    entities: dict[str, int] = field(default_factory=dict)
    """How many wait for each."""
    problem: str | None = None
    """Why it cannot be read; then nothing is known of what is in it."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = asdict(self)
        oldest_ms = plain.pop("oldest_ms")
        return plain | {"oldest_at": None if oldest_ms is None else utc_time_ms(oldest_ms)}


def survey(directory: SpoolDirectory) -> list[FolderReport]:
    """One report for each folder. Raises `StoreError` if there is no such spool, or it is of another pair."""
    directory.open_existing()
    return [_report(path, process) for path, process in directory.holders().items()]


def _report(path: Path, process: int | None) -> FolderReport:
    store = path / STORE_FILE
    if not store.exists():
        return FolderReport(folder=str(path), process=process)
    try:
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as connection:
            rows = connection.execute(_COUNT).fetchall()
    except sqlite3.Error as error:
        return FolderReport(folder=str(path), process=process, problem=f"the store {store} cannot be read: {error}")
    waiting = [(settings, count, oldest) for kind, settings, count, _, oldest in rows if kind != DEAD_LETTER_QUEUE]
    return FolderReport(
        folder=str(path),
        process=process,
        messages=sum(count for _, count, _ in waiting),
        size_bytes=sum(size for _, _, _, size, _ in rows),
        quarantined=sum(count for kind, _, count, _, _ in rows if kind == DEAD_LETTER_QUEUE),
        oldest_ms=min((oldest for _, _, oldest in waiting if oldest is not None), default=None),
        entities={entity_of_settings(settings): count for settings, count, _ in waiting if count},
    )
