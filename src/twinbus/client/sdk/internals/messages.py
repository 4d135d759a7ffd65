"""Messages and batches of the SDK: their private fields, and how it encodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.amqp.codec.types import text_of
from twinbus.amqp.message.sections import read_application_properties, walk
from twinbus.client.sdk.internals.required_parts import (
    PyamqpTransportAsync,
    convert_to_message,
    encode_payload,
    is_tracing_enabled,
    trace_message,
)
from twinbus.pairing.sending.encoded_messages import size_in_batch, stamp_of

# The asyncio sender only takes a batch of its own transport, the sync sender any of the same kind: this one is both.
_TRANSPORT = PyamqpTransportAsync
_to_outgoing = _TRANSPORT.to_outgoing_amqp_message
_DATA = 5
"""Where the data sections are in a message of the SDK."""


def to_message(message: object) -> ServiceBusMessage:
    """What the SDK makes of an object that is to be sent; raises what it raises for what it does not take."""
    return convert_to_message(message, ServiceBusMessage, _to_outgoing)  # type: ignore[arg-type]


def set_raw(message: ServiceBusMessage, raw: AmqpAnnotatedMessage) -> None:
    message._raw_amqp_message = raw


def light_id(message: object, room_bytes: int) -> str | None:
    """The id of one ordinary small message: then there is nothing to prepare.

    None for anything else: then `prepare`, `can_take_detour` and so on have to look. This is done for every send, after
    a wait that left the processor's caches to others: what counts is to touch little.
    """
    if type(message) is not ServiceBusMessage:
        return None
    raw: Any = message._raw_amqp_message
    try:
        if (
            raw._application_properties
            or raw._annotations
            or len(raw._data_body) != 1
            or len(raw._data_body[0]) >= room_bytes
            or raw._footer is not None
            or raw._delivery_annotations is not None
        ):
            return None
        found = raw._properties.message_id
    except (AttributeError, TypeError):  # the body is not bytes, or the application put strange things into it
        return None
    return found if type(found) is str and found else text_of(found) or None


def data_of(raw: AmqpAnnotatedMessage) -> list[bytes] | None:
    """The data sections of a body; None or nothing if it has other sections."""
    data: list[bytes] | None = raw._data_body  # type: ignore[assignment]  # in this form since it was given
    return data


def other_body_of(raw: AmqpAnnotatedMessage) -> Any:
    return raw._sequence_body or raw._value_body


def encode(raw: AmqpAnnotatedMessage) -> bytes:
    """A message as the SDK would put it into a batch, with the trace context of this moment."""
    encoded = bytearray()
    encode_payload(encoded, trace_message(_to_outgoing(raw), amqp_transport=_TRANSPORT))  # type: ignore[arg-type]
    return bytes(encoded)


def sections_of(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The encoded messages of a batch; the list itself."""
    sections: list[bytes] = batch._message[_DATA]
    return sections


def size_of(batch: ServiceBusMessageBatch) -> int:
    size: int = batch._size
    return size


def set_size(batch: ServiceBusMessageBatch, size: int) -> None:
    batch._size = size


class HookedBatch(ServiceBusMessageBatch):
    """A batch for senders of both kinds; each message goes through `choose` before it is added."""

    def __init__(self, max_size_in_bytes: int | None, tracing_attributes: Mapping[str, Any] | None) -> None:
        super().__init__(
            max_size_in_bytes, amqp_transport=_TRANSPORT, tracing_attributes=dict(tracing_attributes or {})
        )

    def choose(self, message: Any, add: Callable[[Any], None]) -> None:
        """Add a message, or another in its place."""
        add(message)

    def _add(self, add_message: Any) -> None:
        self.choose(add_message, super()._add)


class _EncodedBatch(ServiceBusMessageBatch):
    def __init__(self, messages: list[bytes]) -> None:
        size = sum(map(size_in_batch, messages))
        super().__init__(size, amqp_transport=_TRANSPORT)
        self._message[_DATA] = messages
        self._count, self._size = len(messages), size
        if messages:
            stamp = stamp_of(messages[0])
            _TRANSPORT.set_batch_envelope_properties(
                self._message, stamp.message_id, stamp.session_id, stamp.partition_key
            )
        if is_tracing_enabled():  # type: ignore[no-untyped-call]
            self._messages = [_Traced(message) for message in messages]  # type: ignore[misc]


class _Traced:
    """As much of a message as the SDK asks for when it links the span of a send to those of its messages."""

    def __init__(self, encoded: bytes) -> None:
        found = read_application_properties(encoded, walk(encoded))
        self.application_properties = {str(key).encode(): value for key, value in found.items()}
        self._message = self


def batch_of(messages: Iterable[bytes]) -> ServiceBusMessageBatch:
    """What an SDK sender, sync or aio, sends as one batch of these encoded messages, each as it is.

    The caller makes sure that they fit (`twinbus.pairing.sending.encoded_messages.pack`).
    """
    return _EncodedBatch(list(messages))
