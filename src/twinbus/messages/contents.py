"""What is in an encoded message, as people and programs read it; whatever cannot be read is named, not hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twinbus.amqp.codec.types import Value, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.plain_values import plain_map
from twinbus.amqp.message.sections import Layout
from twinbus.errors import DecodeError

Place = TypeVar("Place")


def properties_of(encoded: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """The application properties as texts; and why others cannot be read."""
    try:
        span = sections.walk(encoded).application_properties
    except DecodeError as error:
        return {}, {"properties": str(error)}
    found, missing = plain_map(encoded, span)
    texts = {name: text_of(value) if isinstance(value, bytes) else str(value) for name, value in found.items()}
    return texts, {name or "properties": why for name, why in missing.items()}


def body_of(encoded: bytes) -> tuple[bytes, str]:
    """The body's bytes and what kind of body that is; a value or a sequence as it is encoded."""
    try:
        layout = sections.walk(encoded)
    except DecodeError:
        return encoded, "unreadable"
    if layout.body_kind == "data":
        return b"".join(sections.data_sections(encoded, layout)), "data"
    return (b"", "none") if layout.body is None else (encoded[slice(*layout.body)], str(layout.body_kind))


def text_in(read: Callable[[bytes, Layout, Place], Value], encoded: bytes, layout: Layout, place: Place) -> str | None:
    """One field as text; None if it is not set, or cannot be decoded: it must not hide the other messages."""
    try:
        value = read(encoded, layout, place)
    except DecodeError:
        return None
    return None if value is None else text_of(value)
