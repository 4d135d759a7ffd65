"""What a namespace writes on messages it keeps: application properties, and why a message was dead-lettered."""

from __future__ import annotations

from typing import Any

from twinbus.errors import DecodeError
from twinbus.namespace.message import with_properties
from twinbus.namespace.store.api import MessageRow


def noted(row: MessageRow, reason: str, description: str) -> MessageRow:
    """A message with the reason for its dead-lettering written on it."""
    return annotated(row, {"DeadLetterReason": reason, "DeadLetterErrorDescription": description})


def annotated(row: MessageRow, properties: dict[str, Any] | None) -> MessageRow:
    """A message with these application properties set.

    One whose properties cannot be read keeps them: nobody checked them when it was sent, and a message that could
    be neither abandoned nor dead-lettered would stop its queue.
    """
    try:
        return row._replace(payload=with_properties(row.payload, properties))
    except DecodeError:
        return row
