"""Request and response over a pair of links: the manner of `$cbs` and `$management`."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
from twinbus.errors import DecodeError


class Request(NamedTuple):
    message_id: Any
    """Of any AMQP type; the response carries it back in the same type, or the client never finds its answer."""
    reply_to: str | None
    operation: str
    properties: dict[Any, Any]
    body: Any


def read_request(payload: bytes, elements_max: int) -> Request:
    """Read a request; raises `DecodeError` if it is none, or has more values than that: a byte can become a hundred."""
    layout = sections.walk(payload)
    sections.check_elements(payload, layout, elements_max)
    message_id, reply_to = sections.read_properties(payload, layout, (PropertyField.MESSAGE_ID, PropertyField.REPLY_TO))
    properties = sections.read_application_properties(payload, layout)
    operation = properties.get("operation")
    if not isinstance(operation, str):
        raise DecodeError("a request needs the application property 'operation'")
    body = sections.read_value(payload, layout) if layout.body_kind == "value" else None
    return Request(message_id, reply_to if isinstance(reply_to, str) else None, operation, properties, body)


def write_response(request: Request, properties: dict[str, Any], body: Any) -> bytes:
    return sections.encode_message(
        properties={PropertyField.CORRELATION_ID: request.message_id},
        application_properties=properties,
        value=body,
    )
