"""The envelope: what moves on the detour, what stays, and that the way home ends where it began."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Float32, Int, Long, Symbol, Timestamp, UInt, ULong, UShort
from twinbus.amqp.message.sections import (
    Header,
    PropertyField,
    delivery_form,
    encode_message,
    read_annotations,
    read_application_properties,
    read_delivery_annotations,
    read_header,
    read_properties,
    rewrite,
    walk,
)
from twinbus.errors import DecodeError, EnvelopeError, ReservedProperty
from twinbus.pairing.backlog.envelope import (
    RESERVED_NAMES,
    SCHEDULE_ANNOTATION,
    Aliases,
    Homeward,
    address,
    forward_envelope,
    open_envelope,
    read_aliases,
    reserved_names_in,
)

ALL_FIELDS = tuple(PropertyField)
CREATED_AT = 1_700_000_000_000


def fields_of(message: bytes) -> dict[PropertyField, Any]:
    values = read_properties(message, walk(message), tuple(map(int, ALL_FIELDS)))
    return {field: value for field, value in zip(ALL_FIELDS, values, strict=True) if value is not None}


def typed(value: Any) -> Any:
    """Equal only to a value of the same AMQP type."""
    if isinstance(value, dict):
        return {(type(key), key): typed(item) for key, item in value.items()}
    return type(value), str(value)


def visible_fields(message: bytes) -> dict[str, Any]:
    """Everything a message says, with types; a default that is left out counts as given."""
    layout = walk(message)
    return {
        "header": read_header(message, layout),
        "delivery annotations": typed(read_delivery_annotations(message, layout)),
        "annotations": typed(read_annotations(message, layout)),
        "properties": {field: typed(value) for field, value in fields_of(message).items()},
        "application properties": typed(read_application_properties(message, layout)),
        "body": message[slice(*layout.body)] if layout.body else b"",
        "body kind": layout.body_kind,
        "footer": message[slice(*layout.footer)] if layout.footer else b"",
    }


FULL = encode_message(
    header=Header(durable=True, priority=7, ttl_ms=90_000),
    annotations={"x-opt-partition-key": "s-1", SCHEDULE_ANNOTATION: Timestamp(1_800_000_000_000), "mine": 1},
    properties={
        PropertyField.MESSAGE_ID: "id-1",
        PropertyField.TO: "to",
        PropertyField.SUBJECT: "subject",
        PropertyField.CORRELATION_ID: uuid.UUID(int=5),
        PropertyField.CONTENT_TYPE: "text/plain",
        PropertyField.ABSOLUTE_EXPIRY_TIME: CREATED_AT + 90_000,
        PropertyField.CREATION_TIME: CREATED_AT,
        PropertyField.GROUP_ID: "s-1",
        PropertyField.REPLY_TO_GROUP_ID: "reply-session",
    },
    application_properties={"whole": UShort(7), "part": Float32(1.5), "guid": uuid.UUID(int=9)},
    data=[b"one", b"two"],
)


def test_session_time_to_live_and_schedule_move_into_application_properties_of_their_types() -> None:
    sent = address(FULL, "orders")
    layout = walk(sent)
    assert typed(read_application_properties(sent, layout)) == typed(
        {
            "whole": UShort(7),
            "part": Float32(1.5),
            "guid": uuid.UUID(int=9),
            "x-ms-sessionid": "s-1",
            "x-ms-timetolive": ULong(90_000),
            "x-ms-scheduledenqueuetimeutc": Timestamp(1_800_000_000_000),
            "x-ms-path": "orders",
        }
    )
    fields = fields_of(sent)
    assert PropertyField.GROUP_ID not in fields
    assert PropertyField.ABSOLUTE_EXPIRY_TIME not in fields
    assert read_header(sent, layout) == Header(durable=True, priority=7, ttl_ms=None)
    assert SCHEDULE_ANNOTATION not in read_annotations(sent, layout)


def test_everything_else_stays_where_it_is() -> None:
    before, after = visible_fields(FULL), visible_fields(address(FULL, "orders"))
    gone = {PropertyField.GROUP_ID, PropertyField.ABSOLUTE_EXPIRY_TIME}
    assert after["properties"] == {key: item for key, item in before["properties"].items() if key not in gone}
    assert after["annotations"] == typed({Symbol("x-opt-partition-key"): "s-1", Symbol("mine"): Long(1)})
    assert (after["body"], after["body kind"], after["footer"]) == (before["body"], "data", b"")


def test_only_set_values_move() -> None:
    plain = encode_message(properties={PropertyField.MESSAGE_ID: "id-1"}, data=b"body")
    sent = address(plain, "topics/news")
    assert read_application_properties(sent, walk(sent)) == {"x-ms-path": "topics/news"}
    assert sent.startswith(plain[: walk(plain).properties[1]])  # type: ignore[index]
    assert open_envelope(sent) == Homeward("topics/news", plain)


def test_an_empty_session_id_and_a_time_to_live_of_nothing_are_set_values() -> None:
    message = encode_message(header=Header(ttl_ms=0), properties={PropertyField.GROUP_ID: ""}, data=b"")
    sent = address(message, "q")
    assert read_aliases(sent) == Aliases("q", "", 0, None)
    assert visible_fields(open_envelope(sent).encoded) == visible_fields(message)


def test_the_way_home_gives_the_very_bytes_back() -> None:
    sdk_order = rewrite(FULL, remove_annotations=(SCHEDULE_ANNOTATION,))
    sdk_order = rewrite(sdk_order, set_annotations={SCHEDULE_ANNOTATION: Timestamp(1_800_000_000_000)})
    assert open_envelope(address(sdk_order, "orders")) == Homeward("orders", sdk_order)


def test_what_is_left_of_the_time_to_live_replaces_it_and_only_the_header_says_so() -> None:
    home = open_envelope(address(FULL, "orders"), ttl_left_ms=1_234).encoded
    assert read_header(home, walk(home)).ttl_ms == 1_234
    assert PropertyField.ABSOLUTE_EXPIRY_TIME not in fields_of(home)
    assert fields_of(home)[PropertyField.CREATION_TIME] == CREATED_AT


def test_a_message_without_a_time_to_live_gets_none_from_what_is_left() -> None:
    message = encode_message(data=b"x")
    assert open_envelope(address(message, "q"), ttl_left_ms=5).encoded == message


def test_a_time_to_live_beyond_what_a_header_holds_is_the_longest_there_is() -> None:
    message = encode_message(application_properties={"x-ms-path": "q", "x-ms-timetolive": ULong(2**40)}, data=b"")
    home = open_envelope(message).encoded
    assert read_header(home, walk(home)).ttl_ms == 2**32 - 1


def test_aliases_that_were_read_before_need_not_be_read_again() -> None:
    sent = address(FULL, "orders")
    aliases = read_aliases(sent)
    assert aliases == Aliases("orders", "s-1", 90_000, 1_800_000_000_000)
    assert open_envelope(sent, aliases=aliases) == open_envelope(sent)


def test_what_the_secondary_added_does_not_come_home() -> None:
    sent = address(FULL, "orders")
    token = bytes.fromhex("00 53 71") + encode({Symbol("x-opt-lock-token"): uuid.UUID(int=3)})
    added = {"x-opt-sequence-number": 7, "x-opt-enqueued-time": Timestamp(5), "x-opt-message-state": Int(0)}
    entries = b"".join(encode(Symbol(key)) + encode(value) for key, value in added.items())
    received = delivery_form(sent, walk(sent), Header(True, 7, None, None, 3), token, entries, 3, frozenset())
    assert read_header(received, walk(received)).delivery_count == 3
    assert visible_fields(open_envelope(received).encoded) == visible_fields(open_envelope(sent).encoded)
    assert walk(open_envelope(received).encoded).delivery_annotations is None


def test_delivery_annotations_of_the_sender_stay_beside_a_lock_token_that_goes() -> None:
    sent = address(encode_message(delivery_annotations={"mine": 1}, data=b""), "q")
    received = rewrite(sent, set_delivery_annotations={"x-opt-lock-token": uuid.UUID(int=3)})
    home = open_envelope(received).encoded
    assert read_delivery_annotations(home, walk(home)) == {"mine": 1}


@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_a_message_that_uses_a_reserved_name_is_refused_by_that_name(name: str) -> None:
    message = encode_message(application_properties={"a": 1, name: None}, data=b"x")
    assert reserved_names_in(message) == (name,)
    with pytest.raises(ReservedProperty, match=name) as refused:
        address(message, "q")
    assert refused.value.names == (name,)


def test_a_name_that_only_looks_reserved_is_free() -> None:
    message = encode_message(application_properties={"x-ms-path2": "x-ms-path", "X-MS-PATH": 1}, data=b"x-ms-path")
    assert reserved_names_in(message) == ()
    assert open_envelope(address(message, "q")) == Homeward("q", message)


@pytest.mark.parametrize(
    ("aliases", "reason"),
    [
        ({}, "x-ms-path is missing"),
        ({"x-ms-path": None}, "x-ms-path is missing"),
        ({"x-ms-path": ""}, "x-ms-path is missing"),
        ({"x-ms-path": Symbol("q")}, "x-ms-path must be a string, got symbol"),
        ({"x-ms-path": b"q"}, "x-ms-path must be a string, got bytes"),
        ({"x-ms-path": "q", "x-ms-sessionid": 5}, "x-ms-sessionid must be a string"),
        ({"x-ms-path": "q", "x-ms-timetolive": 5}, "x-ms-timetolive must be a ulong"),
        ({"x-ms-path": "q", "x-ms-timetolive": UInt(5)}, "x-ms-timetolive must be a ulong, got uint"),
        ({"x-ms-path": "q", "x-ms-scheduledenqueuetimeutc": 5}, "x-ms-scheduledenqueuetimeutc must be a timestamp"),
    ],
)
def test_a_missing_or_wrong_alias_is_named(aliases: dict[str, Any], reason: str) -> None:
    message = encode_message(application_properties={"mine": 1} | aliases, data=b"x")
    with pytest.raises(EnvelopeError, match=reason) as refused:
        open_envelope(message)
    assert refused.value.reason == str(refused.value)


def test_a_message_without_application_properties_does_not_say_where_it_belongs() -> None:
    with pytest.raises(EnvelopeError, match="x-ms-path is missing"):
        open_envelope(encode_message(data=b"x"))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (encode_message(annotations={SCHEDULE_ANNOTATION: 5}), f"{SCHEDULE_ANNOTATION} must be a timestamp"),
        (encode_message(properties={PropertyField.GROUP_ID: b"s"}), "group-id"),
    ],
)
def test_a_value_that_cannot_move_because_of_its_type_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(EnvelopeError, match=reason):
        address(message, "q")


# --- any message ------------------------------------------------------------------------------------

TEXT = st.text(max_size=20) | st.text("aé漢😀", min_size=60, max_size=130)
SIMPLE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**40), 2**40).map(Timestamp),
    st.floats(allow_nan=False),
    st.binary(max_size=20),
    st.uuids(),
    TEXT,
)
NAMES = TEXT.filter(lambda name: name not in RESERVED_NAMES)
TIMES = st.integers(0, 2**41).map(Timestamp)
FIELDS: dict[PropertyField, st.SearchStrategy[Any]] = {
    PropertyField.MESSAGE_ID: TEXT | st.uuids() | st.binary(max_size=9),
    PropertyField.USER_ID: st.binary(max_size=9),
    PropertyField.TO: TEXT,
    PropertyField.SUBJECT: TEXT,
    PropertyField.CORRELATION_ID: TEXT,
    PropertyField.CONTENT_TYPE: st.text("abc/", max_size=9).map(Symbol),
    PropertyField.CREATION_TIME: TIMES,
    PropertyField.GROUP_ID: TEXT,
    PropertyField.GROUP_SEQUENCE: st.integers(0, 9).map(UInt),
    PropertyField.REPLY_TO_GROUP_ID: TEXT,
}
BODIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(lambda parts: {"data": parts}),
    st.lists(st.lists(SIMPLE, max_size=3), min_size=1, max_size=2).map(lambda parts: {"sequence": parts}),
    SIMPLE.map(lambda value: {"value": value}),
)
ANNOTATIONS = st.dictionaries(st.text("abcx-", max_size=5), SIMPLE, max_size=3)


HEADERS = st.tuples(st.none() | st.booleans(), st.none() | st.integers(0, 9)).map(lambda start: Header(*start))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    header = draw(st.none() | HEADERS)
    fields = draw(st.fixed_dictionaries({}, optional=FIELDS))
    if header is not None and draw(st.booleans()):
        header = header._replace(ttl_ms=draw(st.integers(0, 2**32 - 1)))
        if PropertyField.CREATION_TIME in fields:  # as the official clients write it
            expiry = min(fields[PropertyField.CREATION_TIME] + header.ttl_ms, 253_402_243_199_000)
            fields[PropertyField.ABSOLUTE_EXPIRY_TIME] = Timestamp(expiry)
    annotations = draw(st.none() | ANNOTATIONS)
    if draw(st.booleans()):
        annotations = (annotations or {}) | {SCHEDULE_ANNOTATION: draw(TIMES)}
    return encode_message(
        header=header,
        delivery_annotations=draw(st.none() | ANNOTATIONS),
        annotations=annotations,
        properties=fields or None,
        application_properties=draw(st.none() | st.dictionaries(NAMES, SIMPLE, max_size=4)),
        **draw(BODIES),
    )


@given(messages(), st.text(min_size=1, max_size=80))
def test_the_way_there_and_home_changes_nothing(message: bytes, path: str) -> None:
    sent = address(message, path)
    home = open_envelope(sent)
    assert home.path == path
    assert visible_fields(home.encoded) == visible_fields(message)
    assert len(sent) > len(message)


@given(messages(), st.text(min_size=1, max_size=80))
def test_in_the_backlog_nothing_acts_and_the_body_keeps_its_bytes(message: bytes, path: str) -> None:
    sent = address(message, path)
    layout, before = walk(sent), walk(message)
    assert read_header(sent, layout).ttl_ms is None
    assert not {PropertyField.GROUP_ID} & set(fields_of(sent))
    assert SCHEDULE_ANNOTATION not in read_annotations(sent, layout)
    assert len(sent) > len(message)
    assert (layout.body is None) == (before.body is None)
    if layout.body and before.body:
        assert sent[slice(*layout.body)] == message[slice(*before.body)]


@given(messages(), st.text(min_size=1, max_size=80), st.integers(1, 2**32 - 1))
def test_a_message_that_goes_on_to_another_backlog_queue_is_as_it_was_put_into_the_first(
    message: bytes, path: str, left_ms: int
) -> None:
    stored = address(message, path)
    annotations = {
        "x-opt-sequence-number": Long(7),
        "x-opt-enqueued-time": Timestamp(1),
        "x-opt-locked-until": Timestamp(2),
    }
    delivered = rewrite(stored, set_annotations=annotations)
    onwards = forward_envelope(delivered)
    assert visible_fields(onwards) == visible_fields(stored)
    assert visible_fields(open_envelope(onwards).encoded) == visible_fields(message)
    if read_aliases(stored).ttl_ms is not None:
        shortened = forward_envelope(delivered, ttl_left_ms=left_ms)
        assert read_aliases(shortened) == read_aliases(stored)._replace(ttl_ms=left_ms)
        assert read_header(open_envelope(shortened).encoded, walk(open_envelope(shortened).encoded)).ttl_ms == left_ms


@given(messages(), st.text(min_size=1, max_size=80), st.integers(0, 2**32 - 1))
def test_a_message_in_which_nothing_moves_comes_home_with_its_very_bytes(message: bytes, path: str, left: int) -> None:
    still = rewrite(
        message,
        header=Header(priority=1),
        remove_annotations=(SCHEDULE_ANNOTATION,),
        set_properties={PropertyField.GROUP_ID: None, PropertyField.ABSOLUTE_EXPIRY_TIME: None},
        set_application_properties={"mine": "always"},
    )
    assert open_envelope(address(still, path), ttl_left_ms=left) == Homeward(path, still)


CUT_MESSAGES = messages().flatmap(lambda message: st.integers(0, len(message)).map(lambda end: message[:end]))


@given(st.binary(max_size=60) | CUT_MESSAGES)
def test_bytes_that_are_no_message_raise_nothing_but_our_errors(junk: bytes) -> None:
    looks: list[Callable[[bytes], object]] = [open_envelope, reserved_names_in, lambda message: address(message, "q")]
    for look in looks:
        with contextlib.suppress(DecodeError, EnvelopeError, ReservedProperty):
            look(junk)
