"""Ids, messages and batches of the official SDK's messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.tracing import get_span_links_from_batch
from azure.servicebus._common.utils import transform_outbound_messages
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError
from fake_span import FakeSpan
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message.sections import (
    PropertyField,
    read_annotation,
    read_application_properties,
    read_header,
    read_property,
    walk,
)
from twinbus.client.sdk.messages import (
    PairedMessageBatch,
    Prepared,
    batch_of,
    can_take_detour,
    encode_messages,
    for_schedule,
    might_not_fit,
    prepare,
    prepare_light,
    reserved_names,
)
from twinbus.pairing.backlog.envelope import RESERVED_NAMES, address
from twinbus.pairing.sending.encoded_messages import size_alone

LIMIT = 256 * 1024


def id_in(encoded: bytes) -> Any:
    return read_property(encoded, walk(encoded), PropertyField.MESSAGE_ID)


def nameless(body: bytes = b"x") -> AmqpAnnotatedMessage:
    """The SDK's own constructor gives a `ServiceBusMessage` an id; one of these has none."""
    return AmqpAnnotatedMessage(data_body=body)


def nameless_message() -> ServiceBusMessage:
    message = ServiceBusMessage("x")
    message.message_id = None
    return message


def sdk_batch(*messages: Any, max_size: int = LIMIT) -> ServiceBusMessageBatch:
    batch = ServiceBusMessageBatch(max_size)
    for message in messages:
        batch.add_message(message)
    return batch


def our_batch(*messages: Any, max_size: int = LIMIT) -> PairedMessageBatch:
    batch = PairedMessageBatch(max_size)
    for message in messages:
        batch.add_message(message)
    return batch


# --- ids -------------------------------------------------------------------------------------------


def test_a_message_keeps_its_id_and_is_passed_on_as_it_is() -> None:
    message = ServiceBusMessage("body", message_id="mine")
    assert prepare(message) == Prepared(message, ("mine",))


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_message_without_an_id_is_sent_with_one_and_the_callers_object_stays_as_it_is(nothing: str | None) -> None:
    message = ServiceBusMessage("body", subject="subject", application_properties={"a": 1})
    message.message_id = nothing
    before = dict(message.raw_amqp_message.properties or {})
    prepared = prepare(message)
    assert isinstance(prepared.message, ServiceBusMessage)
    assert prepared.ids == (prepared.message.message_id,)
    assert len(prepared.ids[0]) == 32
    assert dict(message.raw_amqp_message.properties or {}) == before
    assert dict(prepared.message.raw_amqp_message.properties or {}) == before | {"message_id": prepared.ids[0]}
    assert (prepared.message.subject, prepared.message.application_properties) == ("subject", {"a": 1})
    assert prepare(message).ids != prepared.ids, "sent again it is another message"


@pytest.mark.parametrize("kind", [nameless, nameless_message])
def test_the_same_object_without_an_id_several_times_is_several_messages(kind: Callable[[], Any]) -> None:
    message = kind()
    prepared = prepare([message, message, message])
    assert len(set(prepared.ids)) == 3
    assert list(map(id_in, encode_messages(prepared))) == list(prepared.ids)
    batch = our_batch(message, message, message)
    assert len(set(batch.message_ids)) == 3
    assert list(map(id_in, encode_messages(prepare(batch)))) == list(batch.message_ids)


def test_no_two_messages_are_given_the_same_id() -> None:
    assert len(set(prepare([nameless() for _ in range(100)]).ids)) == 100


def test_an_annotated_message_without_properties_is_given_an_id() -> None:
    message = nameless()
    prepared = prepare(message)
    assert isinstance(prepared.message, AmqpAnnotatedMessage)
    assert prepared.message.properties is not None
    assert (prepared.message.properties.message_id,) == prepared.ids
    assert message.properties is None


@pytest.mark.parametrize(
    ("message_id", "text"), [(b"received", "received"), (uuid.UUID(int=1), str(uuid.UUID(int=1))), (7, "7"), (0, "0")]
)
def test_ids_of_any_kind_are_kept_and_reported_as_text(message_id: Any, text: str) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id=message_id))
    prepared = prepare(message)
    assert prepared.ids == (text,)
    assert id_in(encode_messages(prepared)[0]) == message_id


def test_a_mapping_is_not_changed_and_becomes_a_message() -> None:
    mapping = {"body": "hello", "subject": "s"}
    prepared = prepare(mapping)
    assert mapping == {"body": "hello", "subject": "s"}
    assert isinstance(prepared.message, ServiceBusMessage)
    assert (str(prepared.message), prepared.message.subject) == ("hello", "s")
    assert prepared.ids == (prepared.message.message_id,)


def test_lists_tuples_and_generators_of_all_kinds_become_lists() -> None:
    one, two = ServiceBusMessage("1", message_id="a"), nameless()
    for messages in ([one, two, {"body": "3"}], (one, two, {"body": "3"}), iter([one, two, {"body": "3"}])):
        prepared = prepare(messages)
        assert isinstance(prepared.message, list)
        assert prepared.message[0] is one
        assert isinstance(prepared.message[1], AmqpAnnotatedMessage)
        assert prepared.ids[0] == "a"
        assert list(map(id_in, encode_messages(prepared))) == list(prepared.ids)


@pytest.mark.parametrize("nothing", [[], (), {}, "", iter(())])
def test_nothing_is_nothing_as_in_the_sdk(nothing: Any) -> None:
    assert prepare(nothing) == Prepared([], ())
    assert encode_messages(prepare(nothing)) == []


def broken_message() -> ServiceBusMessage:
    message = ServiceBusMessage("x")
    message._raw_amqp_message = None
    return message


@pytest.mark.parametrize(
    "wrong",
    [
        None, 5, "text", b"bytes", object(), [5], [[ServiceBusMessage("x")]], {"nobody": 1}, {"body": 5},
        broken_message(), [None], {1: 2}, {"body": "x", "message_id": "i" * 200},
        {"body": "x", "session_id": "a", "partition_key": "b"},
    ],
)  # fmt: skip
def test_what_is_no_message_raises_what_the_sdk_raises(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)) as theirs:
        transform_outbound_messages(wrong, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message)
    with pytest.raises(type(theirs.value)) as ours:
        prepare(wrong)
    assert str(ours.value) == str(theirs.value)


# --- the SDK's batch -------------------------------------------------------------------------------


def test_ids_in_an_sdk_batch_are_read_from_its_bytes() -> None:
    batch = sdk_batch(ServiceBusMessage("1", message_id="a"), ServiceBusMessage("2", message_id="b"))
    before = [bytes(section) for section in batch._message[5]]
    assert prepare(batch) == Prepared(batch, ("a", "b"))
    assert encode_messages(prepare(batch)) == before == [bytes(section) for section in batch._message[5]]


def test_a_message_without_an_id_in_an_sdk_batch_is_written_anew_in_its_place() -> None:
    batch = sdk_batch(ServiceBusMessage("1", message_id="a"), nameless(b"2"), nameless(bytes(240)))
    size = batch.size_in_bytes
    prepared = prepare(batch)
    assert prepared.message is batch
    assert list(map(id_in, encode_messages(prepared))) == list(prepared.ids)
    assert prepared.ids[0] == "a"
    assert prepare(batch).ids == prepared.ids
    assert batch.size_in_bytes > size
    assert batch.size_in_bytes == sum(len(each) + (5 if len(each) < 256 else 8) for each in encode_messages(prepared))


def test_a_batch_that_has_no_room_for_an_id_is_left_alone_and_its_message_gets_one() -> None:
    message = nameless(b"2")
    full = sdk_batch(message, max_size=sdk_batch(message).size_in_bytes + 3)
    before = bytes(full._message[5][0])
    prepared = prepare(full)
    assert prepared.ids == ("",)
    assert bytes(full._message[5][0]) == before
    assert len(id_in(encode_messages(prepared)[0])) == 32


# --- messages ---------------------------------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False), st.text(max_size=20), st.uuids()
)
SENT = st.builds(
    lambda body, **properties: ServiceBusMessage(body, message_id="id", **properties),
    st.text(max_size=300) | st.binary(max_size=300) | st.none(),
    application_properties=st.none() | st.dictionaries(st.text(max_size=9), VALUES, max_size=4),
    session_id=st.none() | st.text(min_size=1, max_size=9),
    subject=st.none() | st.text(max_size=9),
    correlation_id=st.none() | st.text(max_size=9),
    to=st.none() | st.text(max_size=9),
    scheduled_enqueue_time_utc=st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
)


@given(st.lists(SENT, max_size=4))
def test_messages_are_what_the_sdk_puts_into_a_batch(messages: list[ServiceBusMessage]) -> None:
    assert encode_messages(prepare(messages)) == [bytes(section) for section in sdk_batch(*messages)._message[5]]


def test_a_value_that_cannot_be_encoded_raises_as_in_the_sdk() -> None:
    message = ServiceBusMessage("x", application_properties={"a": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError) as theirs:
        sdk_batch(message)
    with pytest.raises(TypeError) as ours:
        encode_messages(prepare(message))
    assert str(ours.value) == str(theirs.value)


def test_making_messages_leaves_the_message_as_it_was() -> None:
    message = ServiceBusMessage("x", time_to_live=timedelta(minutes=1))
    (encoded,) = encode_messages(prepare(message))
    assert message._message is None
    assert read_header(encoded, walk(encoded)).ttl_ms == 60_000


@pytest.mark.parametrize(
    "when",
    [
        datetime(2030, 1, 2, 3, 4, 5, 678_900),
        datetime(2030, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC),
        datetime(2030, 1, 2, 5, 4, 5, 678_900, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_scheduled_message_says_when_to_the_millisecond_as_the_sdk_does(when: datetime) -> None:
    message = ServiceBusMessage("x", message_id="id")
    (encoded,) = for_schedule(prepare(message), when)
    assert message.scheduled_enqueue_time_utc is None
    assert read_annotation(encoded, walk(encoded), "x-opt-scheduled-enqueue-time") == Timestamp(1_893_553_445_678)
    message.scheduled_enqueue_time_utc = when
    assert encode_messages(prepare(message)) == [encoded]


def test_a_batch_cannot_be_scheduled_nor_anything_at_no_time() -> None:
    with pytest.raises(TypeError, match="Received instead: ServiceBusMessageBatch"):
        for_schedule(prepare(sdk_batch(ServiceBusMessage("x"))), datetime.now(UTC))
    with pytest.raises(TypeError, match="must be a datetime, got str"):
        for_schedule(prepare(ServiceBusMessage("x")), "tomorrow")  # type: ignore[arg-type]


# --- hints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1_000, LIMIT - 20_000])
def test_a_message_that_is_clearly_small_enough_needs_no_second_look(size: int) -> None:
    message = ServiceBusMessage(bytes(size), application_properties={"a": 1, "b": "text"})
    for sent in (message, [message, message], sdk_batch(message)):
        assert not might_not_fit(prepare(sent), LIMIT)


def test_a_message_near_the_limit_asks_for_a_second_look() -> None:
    message = ServiceBusMessage(bytes(LIMIT - 200))
    for sent in (message, [ServiceBusMessage("x"), message], sdk_batch(message)):
        assert might_not_fit(prepare(sent), LIMIT)


def test_messages_that_take_several_bytes_are_counted_as_such() -> None:
    message = ServiceBusMessage("x", application_properties={"k": "漢" * 5_000})
    assert might_not_fit(prepare(message), 14_000)


def test_something_nested_without_end_asks_for_a_second_look() -> None:
    nested: list[Any] = []
    nested.append(nested)
    assert might_not_fit(prepare(AmqpAnnotatedMessage(value_body=nested)), LIMIT)


BODIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.lists(st.integers(0, 3_000).map(bytes), min_size=1, max_size=3).map(lambda parts: {"data_body": parts}),
    st.lists(st.lists(VALUES, max_size=60), min_size=1).map(lambda parts: {"sequence_body": parts}),
    st.dictionaries(st.text(max_size=20), VALUES | st.lists(VALUES, max_size=9)).map(
        lambda value: {"value_body": value}
    ),
)


def fits(letter: bytes, limit: int) -> bool:
    """Whether it can be put into a backlog queue that takes so many bytes at once."""
    return size_alone(address(letter, "orders")) <= limit


@given(BODIES, st.dictionaries(st.text("aé漢😀", max_size=90), VALUES, max_size=9), st.integers(8_200, 14_000))
def test_the_hint_never_misses_a_message_that_does_not_fit(body: Any, properties: Any, limit: int) -> None:
    prepared = prepare(AmqpAnnotatedMessage(**body, application_properties=properties))
    (encoded,) = encode_messages(prepared)
    assert might_not_fit(prepared, limit) or fits(encoded, limit)


@given(
    st.lists(st.integers(0, 14_000).map(bytes), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from((*RESERVED_NAMES, "a")), VALUES, max_size=2),
    st.integers(8_200, 14_000),
)
def test_a_glance_never_misses_a_message_that_cannot_take_the_detour(bodies: Any, properties: Any, limit: int) -> None:
    messages = [ServiceBusMessage(body, application_properties=dict(properties)) for body in bodies]
    for prepared in (prepare(messages), prepare(messages[0]), prepare(our_batch(*messages))):
        if can_take_detour(prepared, limit):
            assert not reserved_names(prepared)
            assert all(fits(encoded, limit) for encoded in encode_messages(prepared))


def test_a_list_of_ordinary_messages_is_prepared_in_one_go() -> None:
    messages = [ServiceBusMessage("1", message_id="a"), ServiceBusMessage("2")]
    prepared = prepare_light(messages, LIMIT)
    assert prepared is not None
    assert prepared == prepare(messages)
    assert (prepared.message, prepared.ids[0]) == (messages, "a")
    assert prepared.message is not messages, "who changes his list meanwhile does not change what is sent"
    for odd in ({"body": "3"}, AmqpAnnotatedMessage(data_body=b"x"), ServiceBusMessage(bytes(LIMIT)), "text", None):
        assert prepare_light([*messages, odd], LIMIT) is None


def test_at_a_glance_ordinary_messages_can_take_the_detour_and_all_others_need_a_look() -> None:
    plain = ServiceBusMessage(bytes(1_000))
    for sent in (plain, [plain, plain], our_batch(plain)):
        assert can_take_detour(prepare(sent), LIMIT)
    with_annotations = AmqpAnnotatedMessage(data_body=b"x", annotations={"x-opt-partition-key": "k"})
    reserved = ServiceBusMessage("x", application_properties={RESERVED_NAMES[0]: 5})
    large = ServiceBusMessage(bytes(LIMIT - 5_000))
    for odd in ([plain, with_annotations], reserved, [plain, reserved], large, our_batch(plain, reserved)):
        assert not can_take_detour(prepare(odd), LIMIT)
    assert not can_take_detour(prepare(our_batch(plain, large)), LIMIT)


@pytest.mark.parametrize("name", RESERVED_NAMES)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_reserved_names_are_seen_in_every_kind_of_message(name: str, as_bytes: bool) -> None:
    message = ServiceBusMessage("x", application_properties={"a": 1, name.encode() if as_bytes else name: 5})
    for sent in (
        message,
        [ServiceBusMessage("x"), message],
        message.raw_amqp_message,
        sdk_batch(message),
        our_batch(message),
    ):
        assert reserved_names(prepare(sent)) == (name,)


def test_other_names_are_not_reserved() -> None:
    message = ServiceBusMessage("x-ms-path", application_properties={"x-ms-path2": "x-ms-path"})
    for sent in (message, [message], sdk_batch(message), ServiceBusMessage("x")):
        assert reserved_names(prepare(sent)) == ()


# --- our batches -----------------------------------------------------------------------------------


def test_our_batch_gives_ids_when_messages_are_added_and_keeps_them() -> None:
    batch = PairedMessageBatch(1_000)
    for message in (ServiceBusMessage("1", message_id="a"), nameless(), {"body": "3"}):
        batch.add_message(message)
    assert batch.message_ids[0] == "a"
    assert len(set(batch.message_ids)) == 3
    prepared = prepare(batch)
    assert prepared == Prepared(batch, batch.message_ids)
    assert list(map(id_in, encode_messages(prepared))) == list(batch.message_ids)
    assert (len(batch), batch.max_size_in_bytes) == (3, 1_000)


def test_our_batch_counts_bytes_and_is_full_as_the_sdks() -> None:
    messages = [ServiceBusMessage("x" * size, message_id="id") for size in (10, 300)]
    ours, theirs = PairedMessageBatch(500), ServiceBusMessageBatch(500)
    for message in messages:
        ours.add_message(message)
        theirs.add_message(message)
    assert ours.size_in_bytes == theirs.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        ours.add_message(messages[1])
    assert ours.message_ids == ("id", "id")
    with pytest.raises(TypeError, match="Received instead: int"):
        ours.add_message(5)  # type: ignore[arg-type]


def test_a_batch_of_messages_has_the_messages_and_a_copy_of_what_the_first_says() -> None:
    message = ServiceBusMessage("x", message_id="id", session_id="s", partition_key="s")
    encoded_messages = encode_messages(prepare([message, ServiceBusMessage("y")]))
    batch = batch_of(encoded_messages)
    theirs = sdk_batch(message, ServiceBusMessage("y"))
    assert batch._message == [*theirs._message[:5], encoded_messages, *theirs._message[6:]]
    assert (len(batch), batch.size_in_bytes) == (2, sum(len(encoded) + 5 for encoded in encoded_messages))
    assert len(batch_of([])) == 0


# --- tracing ---------------------------------------------------------------------------------------


@pytest.fixture
def tracing() -> Iterator[None]:
    settings.tracing_implementation.set_value(FakeSpan)  # type: ignore[arg-type]
    yield
    settings.tracing_implementation.unset_value()


@pytest.mark.usefixtures("tracing")
def test_messages_carry_the_trace_context_and_their_batch_is_linked_to_it() -> None:
    (encoded,) = encode_messages(prepare(ServiceBusMessage("x")))
    assert read_application_properties(encoded, walk(encoded)) == {
        "Diagnostic-Id": "00-trace-span-01",
        "traceparent": "00-trace-span-01",
        "tracestate": "a=b",
    }
    (link,) = get_span_links_from_batch(batch_of([address(encoded, "orders")]))
    assert link.headers == {"traceparent": "00-trace-span-01", "tracestate": "a=b"}
