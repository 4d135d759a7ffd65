"""Files that twinbus 0.1.0 wrote: `tests/fixtures/v0.1/README.md` says what they are."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "fixtures" / "v0.1"
WRITTEN_MS = 1_794_816_300_000
"""A moment shortly after everything was written."""
INVOICES = {"plain", "session", "ttl", "schedule", "everything", "value", "sequence", "data"}
"""The ids of what is in the backlog."""


def copied(what: str, target: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(FOLDER / what, target / what))


def backlog_message(message_id: str) -> bytes:
    """A message of the backlog, as its sender encoded it."""
    return (FOLDER / "backlog" / f"{message_id}.amqp").read_bytes()
