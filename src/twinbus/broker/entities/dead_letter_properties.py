"""Application properties that a namespace sets on stored messages, e.g. why a message was dead-lettered."""

from __future__ import annotations

from typing import Any

from twinbus.broker.message import check_header_size, properties_of, with_properties, without_properties
from twinbus.broker.operations import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.broker.store.api import MessageRow
from twinbus.errors import DecodeError

_REASONS = (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION)
REASON_LENGTH_MAX = 4096
"""Of the reason for a dead letter, and of its description; the service truncates them too."""
SESSION_NEEDED = "Session ID is null."
"""The reason if an entity with sessions gets a message without one from another entity."""


def with_reason(row: MessageRow, reason: str, description: str) -> MessageRow:
    """A message with the reason for its dead-lettering."""
    return with_row_properties(row, reasons(reason, description))


def reasons(reason: str, description: str) -> dict[str, Any]:
    """The application properties that say why a message was dead-lettered, truncated."""
    return {DEAD_LETTER_REASON: reason[:REASON_LENGTH_MAX], DEAD_LETTER_DESCRIPTION: description[:REASON_LENGTH_MAX]}


def with_short_reasons(properties: dict[str, Any] | None) -> dict[str, Any]:
    """The properties that a receiver sets on a dead letter, with reason and description as truncated texts."""
    given = properties or {}
    cut = {name: str(given[name])[:REASON_LENGTH_MAX] for name in _REASONS if name in given}
    return given | cut


def reason_on(row: MessageRow) -> str | None:
    """Why a message was dead-lettered; None: it was not, or its properties cannot be read."""
    if row.dead_letter_source is None:
        return None
    try:
        found = properties_of(row.payload)
    except DecodeError:
        return None
    return f"{found.get(DEAD_LETTER_REASON)}: {found.get(DEAD_LETTER_DESCRIPTION)}"


def check_added_properties(row: MessageRow, properties: dict[str, Any] | None, *, beside_reasons: bool = False) -> int:
    """By how many bytes these properties make a message longer; raises `MessageTooLarge` if that is too much.

    Otherwise it could grow with every delivery until no client can receive it. `beside_reasons`: the reason and
    description of a dead letter do not count, so that they can always be given.
    """
    if not properties:
        return 0
    payload, counted = row.payload, properties
    if beside_reasons:
        counted = {name: value for name, value in properties.items() if name not in _REASONS}
        payload = without_properties(payload, [name for name in _REASONS if name in properties])
    changed = with_properties(payload, counted)
    check_header_size(changed)
    return len(changed) - len(payload)


def with_row_properties(row: MessageRow, properties: dict[str, Any] | None) -> MessageRow:
    """A message with these application properties set, if it can be read."""
    return row._replace(payload=with_properties(row.payload, properties))
