"""Messages that the official SDK cannot decode, made readable for it.

It knows neither char nor decimal32 nor decimal64, takes some decimal128 for other numbers, and fails at long lists. One
such value, anywhere in a message, ends the receiver that meets it: no message behind it is ever seen. A receiver that
`read_all_of` was called for gets a message in its place that says the same with types that the SDK knows. It is for
showing and counting: whoever moves messages moves their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from twinbus.amqp.codec.decoding import after_descriptor, decode, item_offsets
from twinbus.amqp.codec.types import Value, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.plain_values import Problems, plain, plain_map
from twinbus.amqp.message.sections import Layout, PropertyField
from twinbus.client.sdk.internals.handlers import convert_received
from twinbus.client.sdk.internals.required_parts import decode_payload
from twinbus.errors import DecodeError

UNREADABLE = "twinbus-unreadable"
"""A delivery annotation of messages that were made here: what is missing in them, and why."""
_DECIMAL128 = b"\x94"
_SECTION = b"\x00\x53"
"""How the SDK takes every section to start."""


def read_all_of(receiver: Any) -> None:
    """Let a receiver of the sync SDK, that is not open yet, get every message, whatever is in it."""
    convert_received(receiver, readable)


def missing_in(message: Any) -> Problems:
    """What a received message had that could not be made readable, and why."""
    annotations = message.raw_amqp_message.delivery_annotations or {}
    found = annotations.get(UNREADABLE.encode())
    return {text_of(name): text_of(why) for name, why in found.items()} if isinstance(found, dict) else {}


def readable(encoded: bytes) -> bytes:
    """The message itself if the SDK reads it right, else one in its place."""
    try:
        layout = sections.walk(encoded)
    except DecodeError:
        return encoded  # no message at all: whatever the SDK says of it
    return encoded if _is_read_right(encoded, layout) else _in_its_place(encoded, layout)


def _is_read_right(encoded: bytes, layout: Layout) -> bool:
    starts = [span[0] for span in layout if isinstance(span, tuple)]
    if not all(encoded.startswith(_SECTION, start) for start in starts):
        return False
    try:
        found = decode_payload(memoryview(encoded))
    except Exception:  # it has no kind of its own for what it cannot decode
        return False
    return _DECIMAL128 not in encoded or not _has_decimal(found)


def _has_decimal(value: Any) -> bool:
    match value:
        case Decimal():
            return True
        case dict():
            return _has_decimal([*value.keys(), *value.values()])
        case list() | tuple():
            return any(_has_decimal(each) for each in value)
        case _:
            return False


def _in_its_place(encoded: bytes, layout: Layout) -> bytes:
    problems: Problems = {}

    def entries(section: str, span: sections.Span | None) -> dict[str, Value]:
        found, missing = plain_map(encoded, span)
        problems.update({f"{section}: {name}" if name else section: why for name, why in missing.items()})
        return found

    delivery = entries("delivery annotations", layout.delivery_annotations)
    annotations = entries("annotations", layout.message_annotations)
    properties = entries("properties", layout.application_properties)
    fields = _fields(encoded, layout, problems)
    body = _body(encoded, layout, problems)
    header = None
    try:
        header = sections.read_header(encoded, layout)
    except DecodeError as error:
        problems["header"] = str(error)
    return sections.encode_message(
        header=header,
        delivery_annotations=delivery | ({UNREADABLE: problems} if problems else {}),
        annotations=annotations,
        properties=fields,
        application_properties=properties,
        **body,
    )


def _fields(encoded: bytes, layout: Layout, problems: Problems) -> dict[PropertyField, Value]:
    if layout.properties is None:
        return {}
    found: dict[PropertyField, Value] = {}
    try:
        offsets = item_offsets(encoded, after_descriptor(encoded, layout.properties[0]))
    except DecodeError as error:
        problems["fields"] = str(error)
        return {}
    for field, at in zip(PropertyField, offsets[:-1], strict=False):
        try:
            found[field] = plain(decode(encoded, at)[0])
        except DecodeError as error:
            problems[field.name.lower()] = str(error)
    return found


def _body(encoded: bytes, layout: Layout, problems: Problems) -> dict[str, Any]:
    """A body that cannot be read is shown as it is encoded."""
    if layout.body is None:
        return {}
    if layout.body_kind == "data":
        return {"data": list(sections.data_sections(encoded, layout))}
    try:
        if layout.body_kind == "value":
            return {"value": plain(sections.read_value(encoded, layout))}
        return {"sequence": [plain(each) for each in _sequences(encoded, layout.body)]}
    except DecodeError as error:
        problems["body"] = f"{error}; shown as it is encoded"
        return {"data": encoded[slice(*layout.body)]}


def _sequences(encoded: bytes, span: sections.Span) -> Iterable[Value]:
    at, end = span
    while at < end:
        value, at = decode(encoded, after_descriptor(encoded, at))
        yield value
