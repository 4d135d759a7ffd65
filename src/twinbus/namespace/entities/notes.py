"""What a namespace writes on messages it keeps: application properties, and why a message was dead-lettered."""

from __future__ import annotations

from typing import Any

from twinbus.errors import DecodeError, MessageTooLarge
from twinbus.namespace.message import check_header_size, properties_of, with_properties
from twinbus.namespace.store.api import MessageRow

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
"""The application properties that say why a message was dead-lettered."""
SESSION_NEEDED = "Session ID is null."
"""The reason where an entity with sessions gets a message without one, and its sender cannot be told."""


def noted(row: MessageRow, reason: str, description: str) -> MessageRow:
    """A message with the reason for its dead-lettering written on it."""
    return annotated(row, reasons(reason, description))


def reasons(reason: str, description: str) -> dict[str, Any]:
    """The application properties that say why a message was dead-lettered."""
    return {REASON: reason, DESCRIPTION: description}


def reason_on(row: MessageRow) -> str | None:
    """Why a message was dead-lettered, as it is written on it; None: it was not, or that cannot be read."""
    if row.dead_letter_source is None:
        return None
    try:
        found = properties_of(row.payload)
    except DecodeError:
        return None
    return f"{found.get(REASON)}: {found.get(DESCRIPTION)}"


def notes_problem(row: MessageRow, properties: dict[str, Any] | None) -> MessageTooLarge | None:
    """Why these may not be set on a message; None: they may.

    It would grow with every delivery otherwise, until no client can receive it.
    """
    if not properties:
        return None
    try:
        check_header_size(with_notes(row.payload, properties))
    except MessageTooLarge as error:
        return error
    return None


def annotated(row: MessageRow, properties: dict[str, Any] | None) -> MessageRow:
    """A message with these application properties set.

    One whose properties cannot be read keeps them: nobody checked them when it was sent, and a message that could
    be neither abandoned nor dead-lettered would stop its queue.
    """
    return row._replace(payload=with_notes(row.payload, properties))


def with_notes(payload: bytes, properties: dict[str, Any] | None) -> bytes:
    """The same for the encoded message."""
    try:
        return with_properties(payload, properties)
    except DecodeError:
        return payload
