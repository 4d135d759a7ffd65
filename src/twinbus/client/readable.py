"""Messages that the official SDK cannot decode, made readable for it.

It knows neither char nor decimal32 nor decimal64, takes some decimal128 for other numbers, and fails at long lists. One
such value, anywhere in a message, ends the receiver that meets it: no message behind it is ever seen. A receiver that
`read_all_of` was called for gets a message in its place that says the same with types that the SDK knows. It is for
showing and counting: whoever moves messages moves their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from twinbus.amqp import sections
from twinbus.amqp.decoding import after_descriptor, decode, item_offsets
from twinbus.amqp.plain_values import Problems, plain, plain_map
from twinbus.amqp.sections import Layout, PropertyField
from twinbus.amqp.values import Value, text_of
from twinbus.client.sdk_parts import decode_payload
from twinbus.errors import DecodeError

UNREADABLE = "twinbus-unreadable"
"""A delivery annotation of messages that were made here: what is missing in them, and why."""
MORE, PAYLOAD = 5, 11
"""Where they are in a transfer frame."""
_DECIMAL128 = b"\x94"
_SECTION = b"\x00\x53"
"""How the SDK takes every section to start."""


def read_all_of(receiver: Any) -> None:
    """Let a receiver of the sync SDK, that is not open yet, get every message, whatever is in it."""
    create, request = receiver._create_handler, receiver._mgmt_request_response

    def create_and_read(auth: Any) -> None:
        create(auth)
        client = receiver._handler
        client._client_ready = _reading(client, client._client_ready)

    def request_and_read(
        mgmt_operation: Any, message: Any, callback: Callable[..., Any], *given: Any, **more: Any
    ) -> Any:
        def read(status: Any, response: Any, *facts: Any, **named: Any) -> Any:
            value = response.value
            for each in (value.get(b"messages") or ()) if isinstance(value, dict) else ():
                each[b"message"] = readable(each[b"message"])
            return callback(status, response, *facts, **named)

        return request(mgmt_operation, message, read, *given, **more)

    receiver._create_handler = create_and_read
    receiver._mgmt_request_response = request_and_read


def _reading(client: Any, is_ready: Callable[[], bool]) -> Callable[[], bool]:
    def is_ready_to_read() -> bool:
        result = is_ready()
        link = client._link
        if link is not None and "_incoming_transfer" not in vars(link):
            link._incoming_transfer = _taking(link, link._incoming_transfer)
        return result

    return is_ready_to_read


def _taking(link: Any, take: Callable[[Any], None]) -> Callable[[Any], None]:
    def take_readable(frame: Any) -> None:
        if not frame[MORE]:
            whole = bytes(link._received_payload) + bytes(frame[PAYLOAD])
            link._received_payload = bytearray()
            frame[PAYLOAD] = memoryview(readable(whole))
        take(frame)

    return take_readable


def missing_in(message: Any) -> Problems:
    """What a received message had that could not be made readable, and why."""
    said = message.raw_amqp_message.delivery_annotations or {}
    found = said.get(UNREADABLE.encode())
    return {text_of(name): text_of(why) for name, why in found.items()} if isinstance(found, dict) else {}


def readable(letter: bytes) -> bytes:
    """The letter itself if the SDK reads it right, else one in its place."""
    try:
        layout = sections.walk(letter)
    except DecodeError:
        return letter  # no message at all: whatever the SDK says of it
    return letter if _is_read_right(letter, layout) else _in_its_place(letter, layout)


def _is_read_right(letter: bytes, layout: Layout) -> bool:
    starts = [span[0] for span in layout if isinstance(span, tuple)]
    if not all(letter.startswith(_SECTION, start) for start in starts):
        return False
    try:
        found = decode_payload(memoryview(letter))
    except Exception:  # it has no kind of its own for what it cannot decode
        return False
    return _DECIMAL128 not in letter or not _has_decimal(found)


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


def _in_its_place(letter: bytes, layout: Layout) -> bytes:
    problems: Problems = {}

    def entries(section: str, span: sections.Span | None) -> dict[str, Value]:
        found, missing = plain_map(letter, span)
        problems.update({f"{section}: {name}" if name else section: why for name, why in missing.items()})
        return found

    delivery = entries("delivery annotations", layout.delivery_annotations)
    annotations = entries("annotations", layout.message_annotations)
    properties = entries("properties", layout.application_properties)
    fields = _fields(letter, layout, problems)
    body = _body(letter, layout, problems)
    header = None
    try:
        header = sections.read_header(letter, layout)
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


def _fields(letter: bytes, layout: Layout, problems: Problems) -> dict[PropertyField, Value]:
    if layout.properties is None:
        return {}
    found: dict[PropertyField, Value] = {}
    try:
        offsets = item_offsets(letter, after_descriptor(letter, layout.properties[0]))
    except DecodeError as error:
        problems["fields"] = str(error)
        return {}
    for field, at in zip(PropertyField, offsets[:-1], strict=False):
        try:
            found[field] = plain(decode(letter, at)[0])
        except DecodeError as error:
            problems[field.name.lower()] = str(error)
    return found


def _body(letter: bytes, layout: Layout, problems: Problems) -> dict[str, Any]:
    """A body that cannot be read is shown as it is encoded."""
    if layout.body is None:
        return {}
    if layout.body_kind == "data":
        return {"data": list(sections.data_sections(letter, layout))}
    try:
        if layout.body_kind == "value":
            return {"value": plain(sections.read_value(letter, layout))}
        return {"sequence": [plain(each) for each in _sequences(letter, layout.body)]}
    except DecodeError as error:
        problems["body"] = f"{error}; shown as it is encoded"
        return {"data": letter[slice(*layout.body)]}


def _sequences(letter: bytes, span: sections.Span) -> Iterable[Value]:
    at, end = span
    while at < end:
        value, at = decode(letter, after_descriptor(letter, at))
        yield value
