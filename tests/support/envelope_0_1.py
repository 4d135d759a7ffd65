"""What version 0.1.0 takes from a message in a backlog queue: a copy of its rules that does not change with ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.amqp.codec.types import Timestamp, ULong
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField

ALIASES: dict[str, type] = {
    "x-ms-path": str,
    "x-ms-sessionid": str,
    "x-ms-timetolive": ULong,
    "x-ms-scheduledenqueuetimeutc": Timestamp,
}


class Envelope(NamedTuple):
    path: str
    session_id: str | None
    ttl_ms: int | None
    due_at_ms: int | None
    others: dict[str, Any]
    """Application properties that are not for the way home."""


def read_envelope(message: bytes) -> Envelope:
    """Raises `AssertionError` where 0.1.0 would refuse the message, or where the backlog queue would act on it."""
    layout = sections.walk(message)
    found = {str(name): value for name, value in sections.read_application_properties(message, layout).items()}
    for name, kind in ALIASES.items():
        assert type(found.get(name)) in (kind, type(None)), f"{name} is a {type(found[name]).__name__}"
    assert found.get("x-ms-path"), "nothing says where the message belongs"
    assert sections.read_property(message, layout, PropertyField.GROUP_ID) is None, "it would be in a session here"
    assert sections.read_property(message, layout, PropertyField.ABSOLUTE_EXPIRY_TIME) is None
    assert layout.header is None or sections.read_header(message, layout).ttl_ms is None, "it would expire here"
    assert sections.read_annotation(message, layout, "x-opt-scheduled-enqueue-time") is None, "it would wait here"
    path, session_id, ttl_ms, due_at_ms = [found.pop(name, None) for name in ALIASES]
    return Envelope(path, session_id, ttl_ms, due_at_ms, found)
