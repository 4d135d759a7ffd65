"""What a namespace writes on messages it keeps: application properties, and why a message was dead-lettered."""

from __future__ import annotations

from typing import Any

from twinbus.errors import DecodeError
from twinbus.namespace.message import check_header_size, properties_of, with_properties, without_properties
from twinbus.namespace.store.api import MessageRow

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
"""The application properties that say why a message was dead-lettered."""
REASON_LENGTH_MAX = 4096
"""Of the reason for a dead letter, and of its description; the service cuts them too."""
SESSION_NEEDED = "Session ID is null."
"""The reason where an entity with sessions gets a message without one, and its sender cannot be told."""


def noted(row: MessageRow, reason: str, description: str) -> MessageRow:
    """A message with the reason for its dead-lettering written on it."""
    return annotated(row, reasons(reason, description))


def reasons(reason: str, description: str) -> dict[str, Any]:
    """The application properties that say why a message was dead-lettered, cut to their longest."""
    return {REASON: reason[:REASON_LENGTH_MAX], DESCRIPTION: description[:REASON_LENGTH_MAX]}


def with_short_reasons(properties: dict[str, Any] | None) -> dict[str, Any]:
    """What a receiver writes on a dead letter; a reason and a description are texts, cut to their longest."""
    given = properties or {}
    cut = {name: str(given[name])[:REASON_LENGTH_MAX] for name in (REASON, DESCRIPTION) if name in given}
    return given | cut


def reason_on(row: MessageRow) -> str | None:
    """Why a message was dead-lettered, as it is written on it; None: it was not, or that cannot be read."""
    if row.dead_letter_source is None:
        return None
    try:
        found = properties_of(row.payload)
    except DecodeError:
        return None
    return f"{found.get(REASON)}: {found.get(DESCRIPTION)}"


def check_notes(row: MessageRow, properties: dict[str, Any] | None, *, beside_reasons: bool = False) -> int:
    """By how many bytes these make a message longer; raises `MessageTooLarge` if they may not be set on it.

    It would grow with every delivery otherwise, until no client can receive it. `beside_reasons`: the reason and the
    description for a dead letter among them have room of their own, so that they can always be given.
    """
    if not properties:
        return 0
    payload, counted = row.payload, properties
    if beside_reasons:
        counted = {name: value for name, value in properties.items() if name not in (REASON, DESCRIPTION)}
        payload = without_notes(payload, [name for name in (REASON, DESCRIPTION) if name in properties])
    changed = with_notes(payload, counted)
    check_header_size(changed)
    return len(changed) - len(payload)


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


def without_notes(payload: bytes, names: list[str]) -> bytes:
    """The encoded message without these application properties."""
    try:
        return without_properties(payload, names)
    except DecodeError:
        return payload
