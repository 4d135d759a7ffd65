"""A message that was peeked at."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.errors import DecodeError
from twinbus.messages.contents import body_of, properties_of, text_in
from twinbus.syphon.pump.dead_letter_reasons import DEAD_LETTER_PROPERTIES
from twinbus.transport.links.annotations import enqueued_ms, is_scheduled, is_waiting, sequence_of

BODY_SHOWN_BYTES = 64 * 1024


class BrowsedState(StrEnum):
    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    sequence: int
    message_id: str | None
    session_id: str | None
    subject: str | None
    correlation_id: str | None
    content_type: str | None
    enqueued_ms: int | None
    state: BrowsedState
    delivery_count: int | None
    """How often it was delivered before, without success."""
    reason: str | None
    """Why it was dead-lettered; None if it was not."""
    description: str | None
    size: int
    encoded: bytes = field(repr=False)
    """The whole message."""

    def as_dict(self) -> dict[str, Any]:
        """Everything but properties and body, for JSON."""
        return {
            "sequence_number": self.sequence,
            "message_id": self.message_id,
            "session_id": self.session_id,
            "subject": self.subject,
            "correlation_id": self.correlation_id,
            "content_type": self.content_type,
            "enqueued_ms": self.enqueued_ms,
            "state": self.state.value,
            "delivery_count": self.delivery_count,
            "dead_letter_reason": self.reason,
            "dead_letter_description": self.description,
            "size": self.size,
        }

    def as_whole(self, body_bytes_max: int = BODY_SHOWN_BYTES) -> dict[str, Any]:
        """The same with properties and body: text where it is text, else in base64; `body_is_whole` says if cut."""
        body, kind = body_of(self.encoded)
        properties, unreadable = properties_of(self.encoded)
        shown = body[:body_bytes_max]
        try:
            content = {"body": shown.decode()} if kind in ("data", "none") else {"body_base64": _base64(shown)}
        except UnicodeDecodeError:
            content = {"body_base64": _base64(shown)}
        more = {"properties": properties, "body_kind": kind, "body_bytes": len(body), **content}
        more["body_is_whole"] = len(shown) == len(body)
        return self.as_dict() | more | ({"unreadable": unreadable} if unreadable else {})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def browsed(encoded: bytes) -> BrowsedMessage:
    """Raises `DecodeError` only for what has no sequence number, and so did not come from a queue."""
    layout = sections.walk(encoded)
    id_, session, subject, correlation, content_type = [
        text_in(sections.read_property, encoded, layout, place)
        for place in (
            PropertyField.MESSAGE_ID,
            PropertyField.GROUP_ID,
            PropertyField.SUBJECT,
            PropertyField.CORRELATION_ID,
            PropertyField.CONTENT_TYPE,
        )
    ]
    reason, description = [
        text_in(sections.read_application_property, encoded, layout, name) for name in DEAD_LETTER_PROPERTIES
    ]
    return BrowsedMessage(
        sequence=sequence_of(encoded),
        message_id=id_,
        session_id=session,
        subject=subject,
        correlation_id=correlation,
        content_type=content_type,
        enqueued_ms=enqueued_ms(encoded),
        state=_state(encoded),
        delivery_count=_delivery_count(encoded, layout),
        reason=reason,
        description=description,
        size=len(encoded),
        encoded=encoded,
    )


def _state(encoded: bytes) -> BrowsedState:
    if is_waiting(encoded):
        return BrowsedState.ACTIVE
    return BrowsedState.SCHEDULED if is_scheduled(encoded) else BrowsedState.DEFERRED


def _delivery_count(encoded: bytes, layout: sections.Layout) -> int | None:
    try:
        return 0 if layout.header is None else sections.read_header(encoded, layout).delivery_count or 0
    except DecodeError:
        return None
