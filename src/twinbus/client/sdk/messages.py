"""Messages of the official SDK that are to be sent, or were received: ids, sizes, encoded messages, batches.

Everything that the SDK accepts for a send is accepted here; what is not a message ends in the SDK's own error. Messages
are encoded by the SDK, exactly as it would put them into a batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.amqp.codec.types import Timestamp, Value, text_of
from twinbus.amqp.message.sections import PropertyField, read_property, rewrite, walk
from twinbus.client.sdk.internals.messages import (
    HookedBatch,
    data_of,
    encode,
    other_body_of,
    sections_of,
    set_raw,
    set_size,
    size_of,
    to_message,
)
from twinbus.client.sdk.internals.messages import batch_of as batch_of
from twinbus.client.sdk.internals.messages import light_id as light_id
from twinbus.pairing.backlog.envelope import RESERVED_NAMES, SCHEDULE_ANNOTATION, reserved_names_in
from twinbus.pairing.sending.encoded_messages import size_in_batch

OneMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
SendableMessage: TypeAlias = OneMessage | list[OneMessage] | ServiceBusMessageBatch

_PROPERTIES_ROOM_BYTES = 8 * 1024
_DEPTH_MAX = 32
_SCHEDULE_KEY = SCHEDULE_ANNOTATION.encode()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RESERVED_KEYS: dict[str | bytes, str] = {name: name for name in RESERVED_NAMES} | {
    name.encode(): name for name in RESERVED_NAMES
}


class Prepared(NamedTuple):
    """A message, a list of them or a batch that an SDK sender takes as it is, and the ids in it, in order.

    An id is empty only where an SDK batch is so full that the id which a message lacks does not fit into it.
    """

    message: SendableMessage
    ids: tuple[str, ...]


def prepare(message: object) -> Prepared:
    """What is to be sent, with an id in every message; the caller's objects stay as they are.

    A mapping becomes a message of its own. Raises what the SDK raises for what it does not take.
    """
    if type(message) is ServiceBusMessage:  # nearly always
        try:
            one, message_id = _named(message)
            return Prepared(one, (message_id,))
        except AttributeError:
            pass  # somebody put strange things into it: the SDK has the word
    if isinstance(message, ServiceBusMessageBatch):
        return Prepared(message, _ids_in(message))
    if isinstance(message, Iterable) and not (isinstance(message, Mapping) and message):
        return _prepare_many(list(message))  # the SDK sends nothing for an empty mapping
    one, message_id = _named(_one(message))
    return Prepared(one, (message_id,))


def schedulable(message: object, when: object) -> object:
    """What `prepare` is to be given for messages that are to be enqueued at a time.

    Raises what the SDK raises for what it cannot schedule, and `TypeError` for what is no time: without one the message
    would be enqueued at once.
    """
    _check_time(when)
    return _one(message) if isinstance(message, ServiceBusMessageBatch | Mapping) else message


def _prepare_many(messages: list[Any]) -> Prepared:
    try:
        named = [_named(each) for each in messages]
    except AttributeError:  # not all of them are the SDK's usual messages
        named = [_named(_one(each)) for each in messages]
    return Prepared([each for each, _ in named], tuple([message_id for _, message_id in named]))


def _one(message: object) -> OneMessage:
    if isinstance(message, AmqpAnnotatedMessage):
        return message
    if isinstance(message, ServiceBusMessage) and isinstance(message.raw_amqp_message, AmqpAnnotatedMessage):
        return message
    return to_message(message)


def _raw(message: OneMessage) -> AmqpAnnotatedMessage:
    return message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message


def _named(message: OneMessage) -> tuple[OneMessage, str]:
    """The message and its id; in place of one that has none, or an empty one, a copy with a random one.

    Who sends such an object again may mean another message: with the same id it would be dropped as a duplicate, and
    lost. Better a duplicate if it is the same after all.
    """
    raw = _raw(message)
    properties = raw.properties
    found = None if properties is None else properties.message_id
    if type(found) is str and found:
        return message, found
    if found is not None and found not in ("", b""):
        return message, text_of(found)
    with_id = copy(raw)
    named = AmqpMessageProperties() if properties is None else copy(properties)
    named.message_id = given = _new_id()
    with_id.properties = named
    if isinstance(message, AmqpAnnotatedMessage):
        return with_id, given
    instead = copy(message)
    set_raw(instead, with_id)
    return instead, given


def _new_id() -> str:
    return os.urandom(16).hex()


def _ids_in(batch: ServiceBusMessageBatch) -> tuple[str, ...]:
    if isinstance(batch, PairedMessageBatch):
        return batch.message_ids
    return tuple([_id_in(batch, place) for place in range(len(batch))])


def _id_in(batch: ServiceBusMessageBatch, place: int) -> str:
    """The id of an encoded message; one that has none is written anew with one, if the batch has room for that."""
    sections = sections_of(batch)
    encoded = bytes(sections[place])
    layout = walk(encoded)
    found = read_property(encoded, layout, PropertyField.MESSAGE_ID)
    if found not in (None, "", b""):
        return text_of(found)
    given = _new_id()
    longer = rewrite(encoded, layout, set_properties={PropertyField.MESSAGE_ID: given})
    size = size_of(batch) + size_in_batch(longer) - size_in_batch(encoded)
    if size > batch.max_size_in_bytes:
        return ""
    sections[place] = longer
    set_size(batch, size)
    return given


# --- received --------------------------------------------------------------------------------------


class MessageFacts(NamedTuple):
    """The little that a record says of a received message. Names are as the SDK keeps them: `text_of` reads them."""

    message_id: Value
    session_id: Value
    sequence_number: int
    size: int
    """Nearly: as its sender has sent it, without what the service has added."""


def read_facts(message: ServiceBusReceivedMessage) -> MessageFacts:
    """Nothing is decoded, and neither the message nor its body is kept: for whoever has no time and little room."""
    raw = message.raw_amqp_message
    properties, own = raw.properties, raw.application_properties
    size = _encoded_body_size(raw) + (_MAP_BYTES + _encoded_size(own) if own else 0)
    header = raw.header
    if header is not None and header.time_to_live:
        size += _HEADER_BYTES
    if properties is not None:
        size += _PROPERTIES_BYTES + sum([_encoded_size(value) for value in properties.values()])
    if properties is None:
        return MessageFacts(None, None, message.sequence_number or 0, size)
    return MessageFacts(properties.message_id, properties.group_id, message.sequence_number or 0, size)


_HEADER_BYTES, _PROPERTIES_BYTES, _MAP_BYTES = 15, 6, 3
"""What is around the values of these sections, as the SDK encodes them."""


def _encoded_body_size(raw: AmqpAnnotatedMessage) -> int:
    data = data_of(raw)
    if data:
        return sum([(5 if len(part) < 256 else 8) + len(part) for part in data])
    return 3 + _encoded_size(other_body_of(raw))


def _encoded_size(value: Any, depth: int = 0) -> int:
    """Nearly how many bytes the value has when it is encoded."""
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, str | bytes | bytearray):
        size = len(value) if not isinstance(value, str) or value.isascii() else len(value.encode())
        return (2 if size < 256 else 5) + size
    if isinstance(value, Mapping | list | tuple):
        if depth == _DEPTH_MAX:
            return 0
        parts = (part for pair in value.items() for part in pair) if isinstance(value, Mapping) else value
        inside = sum(_encoded_size(part, depth + 1) for part in parts)
        return (3 if inside < 255 else 9) + inside
    return 17 if isinstance(value, UUID) else 9


# --- messages ---------------------------------------------------------------------------------------


def encode_messages(prepared: Prepared) -> list[bytes]:
    """The messages as the SDK would put them into a batch, each with an id and the trace context of this moment.

    Raises what the SDK raises for a value that it cannot encode.
    """
    message = prepared.message
    if isinstance(message, ServiceBusMessageBatch):
        return [_with_id(bytes(section)) for section in sections_of(message)]
    return [encode(_raw(each)) for each in _several(message)]


def _several(message: OneMessage | list[OneMessage]) -> list[OneMessage]:
    return message if isinstance(message, list) else [message]


def _with_id(encoded: bytes) -> bytes:
    layout = walk(encoded)
    if read_property(encoded, layout, PropertyField.MESSAGE_ID) not in (None, "", b""):
        return encoded
    return rewrite(encoded, layout, set_properties={PropertyField.MESSAGE_ID: _new_id()})


def for_schedule(prepared: Prepared, when: datetime) -> list[bytes]:
    """The messages with this time to be enqueued at; a time without a zone is UTC, as in the SDK.

    Batches cannot be scheduled: the SDK's TypeError.
    """
    if isinstance(prepared.message, ServiceBusMessageBatch):
        _one(prepared.message)
    due_at = {SCHEDULE_ANNOTATION: Timestamp(milliseconds(when))}
    return [rewrite(encoded, set_annotations=due_at) for encoded in encode_messages(prepared)]


def due_times(message: SendableMessage) -> tuple[int, ...]:
    """When each message is to be enqueued, as it says itself: UTC ms, 0 for at once. Empty: all of them at once, as far
    as a glance tells; a batch is not looked into.
    """
    if isinstance(message, ServiceBusMessageBatch):
        return ()
    due = tuple([_due_ms(_raw(each)) for each in _several(message)])
    return due if any(due) else ()


def _due_ms(raw: AmqpAnnotatedMessage) -> int:
    when = (raw.annotations or {}).get(_SCHEDULE_KEY)
    return milliseconds(when) if isinstance(when, datetime) else 0


def _check_time(when: object) -> None:
    if not isinstance(when, datetime):
        raise TypeError(f"the time to enqueue at must be a datetime, got {type(when).__name__}")


def milliseconds(when: datetime) -> int:
    """Since 1970; a time without a zone is UTC, as in the SDK."""
    _check_time(when)
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


# --- cheap looks for the healthy path --------------------------------------------------------------


def room_in(limit_bytes: int) -> int:
    """How much of what a backlog queue takes at once is left for bodies and application properties."""
    return limit_bytes - _PROPERTIES_ROOM_BYTES


def prepare_light(messages: list[Any], limit_bytes: int) -> Prepared | None:
    """A list of ordinary small messages, with ids; None if one of them has to be looked at."""
    room = room_in(limit_bytes)
    ids = [light_id(each, room) for each in messages]
    return None if None in ids else Prepared(list(messages), tuple(ids))  # type: ignore[arg-type]


def can_take_detour(prepared: Prepared, limit_bytes: int) -> bool:
    """Whether a glance shows that all of this could go to backlog queues that take `limit_bytes` at once.

    False asks for a closer look: `reserved_names` and `might_not_fit`.
    """
    room = room_in(limit_bytes)
    message = prepared.message
    if type(message) is PairedMessageBatch:
        return not message.reserved_names and (size_of(message) <= room or message.largest_bytes <= room)
    if type(message) is not list:
        return light_id(message, room) is not None
    return all(light_id(each, room) is not None for each in message)


def might_not_fit(prepared: Prepared, limit_bytes: int) -> bool:
    """Whether one of the messages may be too large for a backlog queue that takes `limit_bytes` at once.

    A hint without encoding: False is right unless the system properties alone have kilobytes; True asks for a real look
    at the messages in their envelopes, as the send itself takes it.
    """
    room = room_in(limit_bytes)
    return any(size > room for size in rough_sizes(prepared.message))


def rough_sizes(message: SendableMessage) -> tuple[int, ...]:
    """About how many bytes each message has, without encoding it: its body and properties, not what frames them."""
    if isinstance(message, ServiceBusMessageBatch):
        return tuple(map(len, sections_of(message)))
    return tuple([_rough_size(_raw(each)) for each in _several(message)])


def _rough_size(raw: AmqpAnnotatedMessage) -> int:
    size = _body_size(raw)
    extras = (raw.application_properties, raw.annotations, raw.footer, raw.delivery_annotations)
    return size + sum([_rough(extra) for extra in extras if extra])


def _body_size(raw: AmqpAnnotatedMessage) -> int:
    data = data_of(raw)
    if data and len(data) == 1:  # as nearly always
        return 8 + len(data[0])
    return sum(map(len, data)) + 8 * len(data) if data else _rough(other_body_of(raw))


def _rough(value: Any, depth: int = 0) -> int:
    """At least as many bytes as the value has when it is encoded."""
    if isinstance(value, str):
        return 8 + (len(value) if value.isascii() else 4 * len(value))
    if isinstance(value, bytes | bytearray):
        return 8 + len(value)
    if isinstance(value, Mapping | list | tuple):
        if depth == _DEPTH_MAX:
            return 1 << 40  # not worth following: somebody has to look
        parts = (part for pair in value.items() for part in pair) if isinstance(value, Mapping) else value
        return 16 + sum(_rough(part, depth + 1) for part in parts)
    return 24


def reserved_names(prepared: Prepared) -> tuple[str, ...]:
    """The application properties in use that the detour needs for itself; usually none. Without encoding."""
    message = prepared.message
    if isinstance(message, PairedMessageBatch):
        return message.reserved_names
    if isinstance(message, ServiceBusMessageBatch):
        suspects = [bytes(section) for section in sections_of(message) if section.find(b"x-ms-") >= 0]
        found = {name for encoded in suspects for name in reserved_names_in(encoded)}
    else:
        found = {name for each in _several(message) for name in _reserved_in(_raw(each))}
    return _in_order(found)


def _reserved_in(raw: AmqpAnnotatedMessage) -> tuple[str, ...]:
    used = raw.application_properties
    if not used or _RESERVED_KEYS.keys().isdisjoint(used):
        return ()
    return _in_order({_RESERVED_KEYS.get(key) for key in used})


def _in_order(found: Collection[str | None]) -> tuple[str, ...]:
    return tuple([name for name in RESERVED_NAMES if name in found])


# --- batches ---------------------------------------------------------------------------------------


class PairedMessageBatch(HookedBatch):
    """The SDK's batch, for senders of both kinds; every message gets its id when it is added."""

    def __init__(self, max_size_in_bytes: int | None = None, *, tracing_attributes: Mapping[str, Any] | None = None):
        super().__init__(max_size_in_bytes, tracing_attributes)
        self._ids: list[str] = []
        self._reserved: set[str] = set()

    @property
    def message_ids(self) -> tuple[str, ...]:
        return tuple(self._ids)

    @property
    def reserved_names(self) -> tuple[str, ...]:
        """The application properties in it that the detour needs for itself."""
        return _in_order(self._reserved) if self._reserved else ()

    @property
    def largest_bytes(self) -> int:
        """The size of its largest message."""
        return max(map(len, sections_of(self)), default=0)

    def choose(self, message: Any, add: Callable[[Any], None]) -> None:
        message_id = light_id(message, self.max_size_in_bytes)
        if message_id is not None:
            add(message)
            self._ids.append(message_id)
            return
        named, message_id = _named(_one(message))
        add(named)
        self._ids.append(message_id)
        self._reserved.update(_reserved_in(_raw(named)))
