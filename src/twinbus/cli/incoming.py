"""Received messages, for people and for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from twinbus.amqp.types import text_of as text_of_name
from twinbus.plain_text import harmless, on_one_line

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

BODY_SHOWN = 10_000
DEEPEST = 100
"""A value that is nested deeper (not every SDK has a bound) is written as Python would."""
FIELDS = ("subject", "content_type", "correlation_id", "reply_to", "to", "partition_key")

Reading: TypeAlias = "Callable[[ServiceBusReceivedMessage], Any]"


def body_bytes(message: ServiceBusReceivedMessage) -> bytes:
    """The body; a value or a sequence as JSON."""
    if message.body_type.value == "data":
        return b"".join(message.body)
    return json.dumps(_plain(_decoded(message))).encode()


def document(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Everything that is known of a message, for JSON; a body that is no text is `body_base64`.

    It is made of any message, for one that is deleted already has nothing else left: a fact that cannot be read is None
    or missing, and `unreadable` tells why.
    """
    from twinbus.client.readable import missing_in

    facts: dict[str, Any] = {}
    unreadable = missing_in(message)
    for name, read in _READINGS.items():
        try:
            facts[name] = _plain(read(message))
        except Exception as error:  # a sender may have written anything, and the SDK looks at it only now
            facts[name], unreadable[name] = None, f"{type(error).__name__}: {error}"
    return facts | _body(message) | ({"unreadable": unreadable} if unreadable else {})


def _named(attribute: str) -> Reading:
    def read(message: ServiceBusReceivedMessage) -> str | None:
        value = getattr(message, attribute)
        return None if value is None else text_of_name(value)

    return read


def _state(message: ServiceBusReceivedMessage) -> str:
    """By its name, or by its number if the SDK has no name for it."""
    return str(getattr(message.state, "name", message.state)).lower()


_READINGS: dict[str, Reading] = {
    "sequence_number": attrgetter("sequence_number"),
    **{name: _named(name) for name in ("message_id", "session_id", *FIELDS)},
    "enqueued_at": attrgetter("enqueued_time_utc"),
    "expires_at": attrgetter("expires_at_utc"),
    "scheduled_for": attrgetter("scheduled_enqueue_time_utc"),
    "delivery_count": attrgetter("delivery_count"),
    "state": _state,
    "dead_letter_reason": _named("dead_letter_reason"),
    "dead_letter_description": _named("dead_letter_error_description"),
    "dead_letter_source": _named("dead_letter_source"),
    "properties": lambda message: message.application_properties or {},
    "body_type": attrgetter("body_type.value"),
}


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


def _plain(value: Any, depth: int = 0) -> Any:
    """With nothing in it that JSON does not know."""
    match value:
        case Mapping() if depth < DEEPEST:
            return {text_of_name(key): _plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple() if depth < DEEPEST:
            return [_plain(each, depth + 1) for each in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return _written(value)
        case _:
            return text_of_name(value)


def _written(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    lines += [f"  {'property':<16} {_word(name)} = {_word(each)}" for name, each in (facts["properties"] or {}).items()]
    lines += [f"  {'unreadable':<16} {_word(name)}: {_word(why)}" for name, why in facts.get("unreadable", {}).items()]
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
