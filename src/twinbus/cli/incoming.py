"""Received messages, for people and for programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from twinbus.cli.plain_text import harmless, on_one_line

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

BODY_SHOWN = 10_000
FIELDS = ("subject", "content_type", "correlation_id", "reply_to", "to", "partition_key")


def body_bytes(message: ServiceBusReceivedMessage) -> bytes:
    """The body; a value or a sequence as JSON."""
    if message.body_type.value == "data":
        return b"".join(message.body)
    return json.dumps(_plain(_decoded(message))).encode()


def document(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Everything that is known of a message; a body that is no text is `body_base64`."""
    facts: dict[str, Any] = {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "session_id": message.session_id,
        **{name: getattr(message, name) for name in FIELDS},
        "enqueued_at": _written(message.enqueued_time_utc),
        "expires_at": _written(message.expires_at_utc),
        "scheduled_for": _written(message.scheduled_enqueue_time_utc),
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_error_description,
        "dead_letter_source": message.dead_letter_source,
        "properties": _plain(message.application_properties or {}),
        "body_type": message.body_type.value,
    }
    return facts | _body(message)


def _body(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    if message.body_type.value != "data":
        return {"body": _plain(_decoded(message))}
    data = body_bytes(message)
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(data).decode()}


def _decoded(message: ServiceBusReceivedMessage) -> Any:
    return message.body if message.body_type.value == "value" else list(message.body)


def _plain(value: Any) -> Any:
    """With nothing in it that JSON does not know."""
    match value:
        case Mapping():
            return {_text(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return _written(value)
        case _:
            return _text(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _written(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- for people ---


def text_of(message: ServiceBusReceivedMessage) -> str:
    """A head line, what else there is to know, and the body."""
    facts = document(message)
    lines = [f"#{facts['sequence_number']}  {_word(facts['message_id'])}  {facts['enqueued_at'] or ''}".rstrip()]
    lines += [f"  {name.replace('_', ' '):<16} {_word(facts[name])}" for name in ("session_id", *FIELDS) if facts[name]]
    if facts["delivery_count"]:
        lines.append(f"  {'delivered before':<16} {facts['delivery_count']}")
    if facts["dead_letter_reason"] or facts["dead_letter_description"]:
        why = ": ".join(filter(None, (facts["dead_letter_reason"], facts["dead_letter_description"])))
        lines.append(f"  {'dead letter':<16} {_word(why)}")
    lines += [f"  {'property':<16} {_word(name)} = {_word(each)}" for name, each in facts["properties"].items()]
    return "\n".join([*lines, *_shown(message)])


def _shown(message: ServiceBusReceivedMessage) -> list[str]:
    """The body, without anything that could harm a terminal."""
    data = body_bytes(message)
    letters = data[:BODY_SHOWN].decode("utf-8", "replace")
    text = harmless(letters, kept="\n\t")
    more = [f"  ... and {len(data) - BODY_SHOWN:,} bytes more: --body has all"] if len(data) > BODY_SHOWN else []
    return [*(f"  {line}" for line in text.splitlines()), *more]


def _word(value: object) -> str:
    return "-" if value is None else on_one_line(str(value))
