"""What was done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts since the start; each message is counted under everything that happened to it."""

    received: int = 0
    """Deliveries from the backlog, repeated ones too."""
    received_bytes: int = 0
    moved: int = 0
    """Stored at home and gone from the backlog."""
    moved_bytes: int = 0
    """Of what was stored at home."""
    stored: int = 0
    """Stored at home, completed or not."""
    batches: int = 0
    """Transfers to the primary."""
    repeated: int = 0
    """Stored at home, but the lock was lost before the backlog heard of it: they come again, with the same id."""
    in_doubt: int = 0
    """Sent, and no answer came: they come again, with the same id."""
    refused: int = 0
    """Dead-lettered, because they can never be stored at home."""
    expired: int = 0
    """Dead-lettered, because their time to live ended in the backlog."""
    released: int = 0
    """Given back to the backlog: their destination is down, or they are not wanted now."""
    outside: int = 0
    """For entities that are not among those that were named: they stay in the backlog."""
    locks_renewed: int = 0
    grants: int = 0
    """Grants of credit: what a bill calls receives."""
