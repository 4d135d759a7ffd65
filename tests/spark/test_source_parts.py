"""The parts of format("servicebus") that need no session."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from integer_types import INTEGER_TYPES

from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import (
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Symbol,
    Timestamp,
    ULong,
    Value,
)
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.errors import OptionsError
from twinbus.spark.source.columns import COLUMNS, PROPERTIES_TYPE, WRITTEN, schema_of, write_problems
from twinbus.spark.source.offsets import PIECES_MAX, SequenceRange, share_limit, split_ranges
from twinbus.spark.source.options import read_options, write_options
from twinbus.spark.source.queue_offsets import LATEST, QueueOffsets
from twinbus.spark.source.rows import DecodedMessage, batch_of, encode_rows, message_of, reader_of
from twinbus.spark.source.typed_text import from_text, to_text

NOW_MS = 1_700_000_000_000
CREDENTIAL = {"servicebus.credential": "env:SB"}

TEXT = st.text(max_size=20).filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text))
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    TEXT.filter(str.isascii).map(Symbol),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(max_size=20),
    st.uuids(),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float32),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    *[st.integers(low, high).map(kind) for kind, low, high in INTEGER_TYPES],
)
ODD = st.one_of(
    st.lists(SIMPLE, max_size=3),
    st.lists(st.integers(0, 9).map(Int), min_size=1, max_size=3).map(Array),
    st.builds(Described, st.just(Symbol("x")), SIMPLE),
)


@given(st.one_of(SIMPLE, ODD))
def test_every_amqp_value_comes_back_from_its_type_and_text(value: Value) -> None:
    again = from_text(*to_text(value))
    assert (type(again), again) == (type(value), value)
    assert encode(again) == encode(value)


def test_what_is_no_number_comes_back_too() -> None:
    assert math.isnan(from_text(*to_text(math.nan)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int", "2147483648"), ("ubyte", "-1"), ("boolean", "yes"), ("uuid", "x"), ("binary", "*"), ("amqp", "AA=="),
     ("char", "ab"), ("decimal32", "AA=="), ("integer", "1"), ("string", None)],
)  # fmt: skip
def test_a_text_that_is_none_of_its_type_is_refused(kind: str, text: str | None) -> None:
    with pytest.raises(OptionsError):
        from_text(kind, text)


def read(message: bytes, column: str) -> object:
    return reader_of(column)(DecodedMessage("orders", message))


NOT_ANY_TEXT = {"message_id", "body_type", "content_type"}
ROWS = st.fixed_dictionaries(
    {"message_id": TEXT.filter(bool), "body": st.binary(max_size=50)},
    optional={
        **{name: TEXT for name, kinds in WRITTEN.items() if kinds == ("string",) and name not in NOT_ANY_TEXT},
        "content_type": TEXT.filter(str.isascii),
        "application_properties": st.dictionaries(
            TEXT, SIMPLE.map(to_text).map(lambda pair: {"type": pair[0], "value": pair[1]}), max_size=4
        ),
        "time_to_live_ms": st.sampled_from([1, 60_000, 2**32 - 2, 2**32, 10**11]),
        "scheduled_enqueue_time_utc": st.integers(0, 2**40).map(lambda ms: ms * 1000),
    },
)


@given(ROWS)
def test_every_column_that_is_written_is_read_again(row: dict[str, object]) -> None:
    message = message_of(row, NOW_MS)
    for name, value in row.items():
        expected = list(value.items()) if isinstance(value, dict) else value
        if name not in ("entity",):
            assert read(message, name) == expected, name


@pytest.mark.parametrize(
    ("kind", "parts"), [("value", {"value": {"a": [1, "b"]}}), ("sequence", {"sequence": [[1], ["x"]]})]
)
def test_other_kinds_of_body_go_through_as_they_are(kind: str, parts: dict[str, object]) -> None:
    message = sections.encode_message(**parts)  # type: ignore[arg-type]
    body = read(message, "body")
    assert read(message, "body_type") == kind
    again = message_of({"message_id": "1", "body": body, "body_type": kind}, NOW_MS)
    assert read(again, "body") == body
    with pytest.raises(OptionsError, match="the body is not an AMQP"):
        message_of({"message_id": "1", "body": b"text", "body_type": kind}, NOW_MS)


def test_every_column_can_be_read_from_a_bare_message() -> None:
    message = sections.encode_message(data=b"x")
    values = {column: read(message, column) for column in COLUMNS}
    assert {column: value for column, value in values.items() if value is not None} == {
        "entity": "orders",
        "body": b"x",
        "body_type": "data",
        "delivery_count": 0,
        "state": "active",
    }


ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    PROPERTIES_TYPE: pa.map_(pa.string(), pa.struct([("type", pa.string()), ("value", pa.string())])),
}
EVERY_COLUMN = pa.schema([(name, ARROW[kind]) for name, kind in COLUMNS.items()])
MS_MAX = 2**63 - 1
SAID_OF_A_MESSAGE = (
    "x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-partition-key", "x-opt-deadletter-source",
    "x-opt-scheduled-enqueue-time", "x-opt-enqueued-time", "x-opt-message-state",
)  # fmt: skip
TIMES = st.sampled_from([-(2**63), -1, 0, NOW_MS, 2**62, MS_MAX]).map(Timestamp)


def row_of(**parts: Any) -> dict[str, Any]:
    """What Spark gets of a message, with times as microseconds."""
    batch = batch_of("orders", [sections.encode_message(data=b"", **parts)], EVERY_COLUMN)
    return {
        name: (batch.column(name).cast(pa.int64()) if kind == "timestamp" else batch.column(name)).to_pylist()[0]
        for name, kind in COLUMNS.items()
    }


@given(
    st.dictionaries(st.sampled_from(SAID_OF_A_MESSAGE), st.one_of(TIMES, SIMPLE, ODD)),
    st.dictionaries(st.sampled_from([PropertyField.CREATION_TIME, PropertyField.ABSOLUTE_EXPIRY_TIME]), TIMES),
    st.sampled_from([0, 2**31, 2**32 - 1]),
)
def test_whatever_a_message_says_of_itself_it_has_a_row(
    annotations: dict[str, Value], times: dict[PropertyField, Value], number: int
) -> None:
    header = sections.Header(ttl_ms=number, delivery_count=number)
    assert row_of(header=header, annotations=annotations, properties=times)["entity"] == "orders"


@pytest.mark.parametrize("name", ["scheduled_enqueue_time_utc", "enqueued_time_utc"])
def test_a_time_that_no_column_can_hold_is_the_nearest_that_it_can(name: str) -> None:
    annotation = {"enqueued_time_utc": "x-opt-enqueued-time"}.get(name, "x-opt-scheduled-enqueue-time")
    said = [-(2**63), -62_135_424_000_001, 0, NOW_MS, 253_402_243_199_000, 253_402_243_199_001, 2**62, MS_MAX]
    found = [row_of(annotations={annotation: Timestamp(at)})[name] for at in said]
    first, last = -62_135_424_000_000_000, 253_402_243_199_000_000
    assert found == [first, first, 0, NOW_MS * 1000, last, last, last, last]


@pytest.fixture(params=["UTC+12", "UTC-14"])
def far_from_greenwich(request: pytest.FixtureRequest) -> Iterator[None]:
    """In POSIX's words the sign is that of the way back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
def test_the_first_and_the_last_moment_can_be_collected_in_every_time_zone() -> None:
    said = [row_of(annotations={"x-opt-enqueued-time": Timestamp(at)}) for at in (-(2**63), MS_MAX)]
    local = [datetime.fromtimestamp(row["enqueued_time_utc"] // 1_000_000) for row in said]  # as PySpark does
    assert [each.year for each in local] == [1, 9999]


def test_what_never_expires_does_so_at_the_last_moment() -> None:
    row = row_of(
        header=sections.Header(ttl_ms=2**32 - 1),
        annotations={"x-opt-enqueued-time": Timestamp(NOW_MS)},
        properties={PropertyField.CREATION_TIME: Timestamp(-1), PropertyField.ABSOLUTE_EXPIRY_TIME: Timestamp(MS_MAX)},
    )
    assert (row["time_to_live_ms"], row["expires_at_utc"]) == (MS_MAX, 253_402_243_199_000_000)
    again = message_of({"message_id": "1", "body": b"", "time_to_live_ms": row["time_to_live_ms"]}, NOW_MS)
    assert read(again, "time_to_live_ms") == 253_402_243_199_000 - NOW_MS


def test_of_numbers_that_no_column_can_hold_a_count_is_the_nearest_and_a_name_is_not_shown() -> None:
    row = row_of(
        header=sections.Header(delivery_count=2**31), annotations={"x-opt-enqueue-sequence-number": ULong(2**63)}
    )
    assert (row["delivery_count"], row["enqueued_sequence_number"]) == (2**31 - 1, None)


@pytest.mark.parametrize("name", [None, ""])
def test_a_row_without_an_id_is_reported_or_given_one(name: str | None) -> None:
    batch = pa.RecordBatch.from_pydict({"message_id": pa.array(["1", name], pa.string()), "body": ["x", "y"]})
    with pytest.raises(OptionsError, match="row 1 has no message_id"):
        list(encode_rows(batch, "orders", NOW_MS, makes_ids=False))
    ids = [read(message, "message_id") for _, message in encode_rows(batch, "orders", NOW_MS, makes_ids=True)]
    assert ids[0] == "1"
    assert str(uuid.UUID(str(ids[1]))) == ids[1]


# --- numbers ---

DEPTHS = st.dictionaries(st.tuples(st.sampled_from("abcde"), st.integers(0, 2)), st.integers(1, 200))


def numbers(ranges: list[SequenceRange]) -> list[tuple[str, int]]:
    return [(entity, number) for entity, first, last in ranges for number in range(first, last + 1)]


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 400)), max_size=4), st.integers(1, 50))
def test_pieces_are_the_same_numbers_and_none_is_too_long(spans: list[tuple[int, int]], most: int) -> None:
    ranges = [SequenceRange(f"q{index}", first, first + more) for index, (first, more) in enumerate(spans)]
    cut = split_ranges(ranges, most)
    assert numbers(cut) == numbers(ranges)
    assert all(1 <= piece.last - piece.first + 1 <= most for piece in cut)


def test_a_wide_gap_does_not_become_tasks() -> None:
    cut = split_ranges([SequenceRange("q", 1, 3 << 48)], 50_000)
    assert (len(cut), cut[0].first, cut[-1].last) == (PIECES_MAX, 1, 3 << 48)


@given(DEPTHS, st.one_of(st.none(), st.integers(1, 60)))
def test_a_batch_ends_within_its_limit_and_goes_on_if_it_can(
    depths: dict[tuple[str, int], int], most: int | None
) -> None:
    taken = share_limit(depths, most)
    assert sum(taken.values()) == min(sum(depths.values()), most or 10**9)
    assert all(0 <= taken[key] <= depths[key] for key in depths)
    if most is not None and most >= len(depths):
        assert all(taken.values()), "nobody starves"


# --- options ---


def test_options_have_defaults_and_their_case_does_not_matter() -> None:
    options = read_options(CREDENTIAL | {"QUEUES": "orders, invoices/ ,", "fromsequencenumber": "latest"})
    assert options.entities == ("orders", "invoices")
    assert (options.starting, options.page, options.trigger_max) == (QueueOffsets(LATEST), 250, None)
    assert (options.fail_on_data_loss, options.fail_on_missing, options.partition_max) == (True, False, 10_000)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"startingOffsets": "soon"}, 'startingOffsets must be earliest, latest or JSON as {"orders": 31'),
        ({"startingOffsets": "11"}, 'earliest or latest: write {"orders": 11}'),
        ({"startingOffsets": "-1"}, "earliest or latest: write latest"),
        ({"endingOffsets": "-2"}, "earliest or latest: write earliest"),
        ({"startingOffsets": "[7]"}, 'write {"orders": 31}'),
        ({"startingOffsets": '{"orders": 5, "Orders": 20}'}, "for each queue and partition: 'Orders' is there twice"),
        ({"startingOffsets": '{"orders": 5, "orders": 20}'}, "'orders' is there twice"),
        ({"startingOffsets": '{"orders": {"0": 5, "00": 20}}'}, "'00' is there twice"),
        ({"startingOffsets": '{"order": 3}'}, "startingOffsets names what is not read: order"),
        ({"endingOffsets": "[3]"}, "endingOffsets must be a JSON object with the names of queues"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": '{"orders": 0}'}, "orders: a sequence number, -1 or latest, -2 or earliest; not 0"),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, "orders: partitions are numbers, not 'x'"),
        ({"startingOffsets": '{"orders": {"3": 1}}'}, "orders: sequence number 1 is of partition 0, not 3"),
        ({"startingOffsets": "latest"}, "startingOffsets=latest is for streams"),
        ({"startingOffsets": "earliest", "fromSequenceNumber": "3"}, "another name of startingOffsets: give one"),
        ({"columns": "body,colour,body"}, "there is no column colour; column body is named twice"),
        ({"mode": "peek"}, "mode must be browse or receive, got 'peek'"),
        ({"stagingLocation": "/staging"}, "stagingLocation says nothing with mode=browse"),
        ({"mode": "receive", "peekBatchSize": "3"}, "peekBatchSize says nothing with mode=receive"),
        ({"mode": "receive"}, "mode=receive needs a stagingLocation"),
        ({"mode": "receive", "stagingLocation": "staging"}, "stagingLocation: the path must begin with /"),
        ({"mode": "receive", "stagingLocation": "ftp://a/b"}, "stagingLocation: ftp:// is not a place"),
        ({"mode": "receive", "stagingLocation": "/staging"}, "mode=receive is for streams"),
    ],
)
def test_options_that_contradict_each_other_or_say_nothing_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionsError) as caught:
        read_options(CREDENTIAL | {"queues": "orders"} | given, is_batch=True)
    assert problem in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionsError, match="endingOffsets is for reading at once: a stream goes on"):
        read_options(CREDENTIAL | {"queues": "orders", "endingOffsets": '{"orders": 7}'}, is_batch=False)


def test_only_the_columns_that_are_asked_for_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    options = read_options(CREDENTIAL | {"queues": "orders", "columns": "sequence_number, message_id"})
    assert schema_of(options.columns) == "`sequence_number` bigint, `message_id` string"
    monkeypatch.setattr(sections, "read_application_properties", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr(sections, "data_sections", lambda *_: pytest.fail("decoded"))
    message = sections.encode_message(
        properties={PropertyField.MESSAGE_ID: "1"}, application_properties={"a": 1}, data=b"x"
    )
    few = pa.schema([("message_id", pa.string())])
    assert batch_of("orders", [message], few).to_pylist() == [{"message_id": "1"}]
    with pytest.raises(OptionsError, match="columns and the schema name different columns"):
        read_options(CREDENTIAL | {"queues": "orders", "columns": "body"}, {"message_id": "string"})


def test_backlog_queues_and_dead_letter_queues_have_options_of_their_own() -> None:
    given = CREDENTIAL | {"primaryNamespace": "contoso", "backlogQueueCount": "2", "deadLetter": "true"}
    assert read_options(given).entities == (
        "contoso/x-servicebus-transfer/0/$DeadLetterQueue",
        "contoso/x-servicebus-transfer/1/$DeadLetterQueue",
    )


def test_all_mistakes_are_reported_at_once_and_no_secret_is() -> None:
    given = {
        "servicebus.credential": "Endpoint=sb://x;SharedAccessKey=hush",
        "servicebus.connectionString": "SharedAccessKey=hush",
        "qeues": "orders",
        "peekBatchSize": "none",
        "failOnDataLoss": "perhaps",
    }
    with pytest.raises(OptionsError) as caught:
        read_options(given)
    text = str(caught.value)
    assert "hush" not in text
    for part in (
        "servicebus.credential: the credential must be a reference",
        "servicebus.connectionstring cannot be given",
        "do you mean queues?",
        "nothing says what to read",
        "peekBatchSize must be a number from 1 to 1000",
        "failOnDataLoss must be true or false",
    ):
        assert part in text


def test_mistakes_in_options_and_in_columns_are_one_message() -> None:
    with pytest.raises(OptionsError) as reading:
        read_options(CREDENTIAL | {"queues": "orders", "peekBatchSize": "0"}, {"colour": "string", "body": "string"})
    for part in ("peekBatchSize must be", "there is no column colour", "column body is binary, not string"):
        assert part in str(reading.value)
    with pytest.raises(OptionsError) as writing:
        write_options(CREDENTIAL | {"sendBatchSize": "0"}, {"body": "int"}, overwrites=True)
    for part in (
        "sendBatchSize",
        "column body must be",
        "no column message_id",
        "nothing says where to",
        "overwritten",
    ):
        assert part in str(writing.value)
    assert write_options(CREDENTIAL, {"body": "string", "message_id": "string", "entity": "string"}).entity is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queues": "orders", "path": "invoices"}, "queues and the path say different things"),
        ({"queues": "orders", "backlogQueueCount": "3"}, "says nothing without primaryNamespace"),
        ({"queues": "orders", "fromSequenceNumber": "latest"}, "latest is for streams"),
    ],
)
def test_what_would_not_be_heeded_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        read_options(CREDENTIAL | given, is_batch=True)


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ("orders,bills,orders", "named twice: orders"),
        ("Orders,bills,orders", "named twice: Orders, orders"),
        ("contoso/X-ServiceBus-Transfer/0", "named twice: contoso/X-ServiceBus-Transfer/0, contoso/x-servicebus-tr"),
    ],
)
def test_an_entity_is_read_once_in_whatever_case_it_is_named(queues: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        read_options(CREDENTIAL | {"queues": queues, "primaryNamespace": "contoso"})


@pytest.mark.parametrize("suffix", ["/$DeadLetterQueue", "/$deadletterqueue", "/$Transfer/$DEADLETTERQUEUE/"])
def test_a_dead_letter_queue_has_none_of_its_own(suffix: str) -> None:
    named = CREDENTIAL | {"queues": f"bills,orders{suffix}"}
    assert read_options(named).entities == ("bills", f"orders{suffix.rstrip('/')}")
    with pytest.raises(OptionsError) as caught:
        read_options(named | {"deadLetter": "true", "peekBatchSize": "0"})
    assert f"deadLetter=true is for queues and subscriptions, not for orders{suffix.rstrip('/')}" in str(caught.value)
    assert "peekBatchSize must be" in str(caught.value)


def test_a_path_says_where_to_unless_it_contradicts_the_queue() -> None:
    assert write_options(CREDENTIAL | {"path": "orders"}).entity == "orders"
    with pytest.raises(OptionsError, match="say different things"):
        write_options(CREDENTIAL | {"path": "orders", "queue": "invoices"})


def test_columns_that_cannot_be_sent_are_all_reported() -> None:
    given = {"body": "int", "colour": "string", "time_to_live_ms": "string", "sequence_number": "bigint"}
    problems = write_problems(given, has_target=False, makes_ids=False)
    assert [problem.partition(":")[0] for problem in problems] == [
        "there is no column colour to send",
        "column body must be binary or string, not int",
        "column time_to_live_ms must be bigint or int, not string",
        "there is no column message_id",
        "nothing says where to",
    ]


def test_ids_are_texts_whatever_they_were() -> None:
    number = uuid.UUID(int=7)
    message = sections.encode_message(properties={PropertyField.MESSAGE_ID: number}, data=b"")
    assert read(message, "message_id") == str(number)
