"""Request and response over a pair of links, as `$cbs` and `$management` use them."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.amqp.codec.types import Int, Symbol
from twinbus.amqp.message import sections
from twinbus.amqp.message.rewriting import pair_offsets
from twinbus.amqp.message.sections import PropertyField
from twinbus.errors import AmqpError, DecodeError, NamespaceError, TwinbusError


class Request(NamedTuple):
    message_id: Any
    """Of any AMQP type; the response carries it back in the same type, or the client never finds its answer."""
    reply_to: str | None
    operation: str
    properties: dict[Any, Any]
    body: Any
    payload: bytes = b""
    """The message itself, as it was sent."""

    @property
    def operation_name(self) -> str:
        """To compare with: small letters, without `com.microsoft:`. A proxy passes requests on to a namespace that may
        not care about either.
        """
        return self.operation.lower().removeprefix("com.microsoft:")


def read_request(payload: bytes, elements_max: int) -> Request:
    """Raises `DecodeError` if it is not a request, or has more values than `elements_max`: decoded they are large.

    Nor is it one if a property is in it twice: a proxy would check one operation, and its primary carry out another.
    """
    layout = sections.walk(payload)
    sections.check_elements(payload, layout, elements_max)
    message_id, reply_to = sections.read_properties(payload, layout, (PropertyField.MESSAGE_ID, PropertyField.REPLY_TO))
    properties = sections.read_application_properties(payload, layout)
    span = layout.application_properties
    if span is not None and len(pair_offsets(payload, span)) != 2 * len(properties) + 1:
        raise DecodeError("a request has one of its application properties twice")
    operation = properties.get("operation")
    if not isinstance(operation, str):
        raise DecodeError("a request needs the application property 'operation'")
    body = sections.read_value(payload, layout) if layout.body_kind == "value" else None
    return Request(message_id, reply_to if isinstance(reply_to, str) else None, operation, properties, body, payload)


def write_response(request: Request, properties: dict[str, Any], body: Any) -> bytes:
    return sections.encode_message(
        properties={PropertyField.CORRELATION_ID: request.message_id},
        application_properties=properties,
        value=body,
    )


def management_response(
    request: Request, code: int, text: str, body: dict[str, Any], condition: str | None = None
) -> bytes:
    """A response of `$management`, in the form that its clients expect."""
    status: dict[str, Any] = {"statusCode": Int(code), "statusDescription": text}
    if condition is not None:
        status["errorCondition"] = Symbol(condition)
    return write_response(request, status, body)


def failure_response(request: Request, error: TwinbusError) -> bytes:
    condition = error.condition if isinstance(error, NamespaceError | AmqpError) else "amqp:internal-error"
    return management_response(request, _STATUS.get(condition, 500), str(error), {}, condition)


_STATUS = {
    "amqp:not-found": 404,
    "com.microsoft:message-not-found": 404,
    "com.microsoft:message-lock-lost": 410,
    "com.microsoft:session-lock-lost": 410,
    "com.microsoft:entity-already-exists": 409,
    "com.microsoft:session-cannot-be-locked": 409,
    "com.microsoft:server-busy": 503,
    "com.microsoft:timeout": 408,
    "amqp:unauthorized-access": 401,
    "com.microsoft:auth-failed": 401,
    "amqp:resource-limit-exceeded": 403,
    "com.microsoft:entity-disabled": 403,
    "amqp:not-allowed": 400,
    "amqp:decode-error": 400,
    "amqp:link:message-size-exceeded": 400,
    "com.microsoft:argument-error": 400,
}
"""By condition; an unlisted one is the service's fault."""
