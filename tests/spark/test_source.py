"""format("servicebus") between a session and a real namespace."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from received import received
from spark_backlog import ids_in

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Int
from twinbus.spark import register
from twinbus.spark.source import typed_text
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WRITE_SCHEMA = (
    "message_id STRING, body BINARY, body_type STRING, "
    "application_properties MAP<STRING, STRUCT<type: STRING, value: STRING>>, session_id STRING, "
    "correlation_id STRING, subject STRING, to STRING, reply_to STRING, reply_to_session_id STRING, "
    "content_type STRING, partition_key STRING, time_to_live_ms BIGINT, scheduled_enqueue_time_utc TIMESTAMP"
)

SUBSCRIPTION = "news/Subscriptions/all"


class Bus:
    """A namespace, and Spark's way to it."""

    def __init__(self, spark: SparkSession, namespace: LocalNamespace, folder: Path) -> None:
        self.spark = spark
        self.namespace = namespace
        self.folder = folder
        secret = folder / "secret"
        secret.write_text(namespace.connection_string)
        self.options = {"servicebus.credential": f"file:{secret}"}

    @property
    def key(self) -> str:
        return self.namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]

    def read(self, queue: str, **options: Any) -> DataFrame:
        return self.spark.read.format("servicebus").options(**self.options, **options).load(queue)

    def stream(self, queue: str, **options: Any) -> DataFrame:
        return self.spark.readStream.format("servicebus").options(**self.options, **options).load(queue)

    def write(self, frame: DataFrame, queue: str, **options: Any) -> None:
        frame.write.format("servicebus").options(**self.options, queue=queue, **options).mode("append").save()

    def send(self, queue: str, ids: range) -> None:
        with ServiceBusClient.from_connection_string(self.namespace.connection_string) as client:
            client.get_queue_sender(queue).send_messages(
                [ServiceBusMessage(f"body {each}", message_id=str(each)) for each in ids]
            )


@pytest.fixture
def bus(spark: SparkSession, tmp_path: Path) -> Iterator[Bus]:
    with LocalNamespace("contoso", queues=["orders", "copy"]) as namespace:
        register(spark)
        yield Bus(spark, namespace, tmp_path)


TYPED = {
    "null": None,
    "boolean": "true",
    "ubyte": "255",
    "ushort": "65535",
    "uint": "4294967295",
    "ulong": "18446744073709551615",
    "byte": "-128",
    "short": "-32768",
    "int": "-7",
    "long": "-9223372036854775808",
    "float": "0.5",
    "double": "0.1",
    "decimal32": "AAECAw==",
    "decimal64": "AAECAwQFBgc=",
    "decimal128": "AAECAwQFBgcICQoLDA0ODw==",
    "char": "ä",
    "timestamp": "1700000000000",
    "uuid": "00000000-0000-0000-0000-000000000007",
    "binary": "AAE=",
    "string": "ä",
    "symbol": "x",
    "amqp": base64.b64encode(encode([Int(1), "two", {"three": None}])).decode(),
}
"""A value of every type, as text."""


def test_every_column_and_every_type_survive_the_way_through_a_queue(bus: Bus) -> None:
    assert set(TYPED) == {*typed_text._READERS, "null"}
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    typed = {name: (name, value) for name, value in TYPED.items()}
    rows = [
        ("1", b"\x00\xff", "data", typed, None, "c", "s", "t", "r", "rs", "text/plain", "p", 3_600_000, None),
        ("2", b"", "data", None, "s1", *[None] * 7, None, later),
        ("3", b"\x00\x53\x77\xa1\x01x", "value", {}, *[None] * 10),
    ]
    written = bus.spark.createDataFrame(rows, WRITE_SCHEMA)
    bus.write(written, "orders")
    found = bus.read("orders").orderBy("message_id").select("state", *written.columns).collect()
    assert [row.state for row in found] == ["active", "scheduled", "active"]
    again = [tuple(row)[1:] for row in found]
    assert [row[1] for row in again] == [row[1] for row in rows]
    assert [{key: tuple(value) for key, value in (row[3] or {}).items()} for row in again] == [typed, {}, {}]
    assert [row[4:13] for row in again] == [row[4:13] for row in rows]
    assert [row[13] for row in again] == [row[13] for row in written.orderBy("message_id").collect()]


def test_topics_sessions_and_partitions_are_written_and_browsed(bus: Bus) -> None:
    """And the dead letters of a subscription."""
    bus.namespace.create_topic("news", "all")
    bus.namespace.create_queue("visits", requires_session=True)
    bus.namespace.create_queue("parts", partitioned=True)
    rows = [
        (entity, str(number), f"{entity} {number}", f"s{number % 3}" if entity == "visits" else None)
        for entity in ("news", "visits", "parts")
        for number in range(20)
    ]
    schema = "entity STRING, message_id STRING, body STRING, session_id STRING"
    frame = bus.spark.createDataFrame(rows, schema)
    frame.write.format("servicebus").options(**bus.options).mode("append").save()
    read = bus.spark.read.format("servicebus").options(**bus.options, queues=f"{SUBSCRIPTION},visits,parts").load()
    found = read.select("entity", "message_id", read.body.cast("string"), "session_id").collect()
    assert sorted(found) == sorted([(SUBSCRIPTION if row[0] == "news" else row[0], *row[1:]) for row in rows])
    client = ServiceBusClient.from_connection_string(bus.namespace.connection_string)
    with client, client.get_subscription_receiver("news", "all") as receiver:
        receiver.dead_letter_message(received(receiver, 1)[0], reason="odd")
    dead = bus.read(SUBSCRIPTION, deadLetter="true").select("message_id", "dead_letter_reason").collect()
    assert dead == [("0", "odd")]
    assert bus.read(SUBSCRIPTION).count() == 19


def test_reading_takes_nothing_and_can_be_done_again_in_pieces(bus: Bus) -> None:
    bus.send("orders", range(300))
    frame = bus.read("orders", maxMessagesPerPartition=100, peekBatchSize=40)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == frame.count() == 300
    assert frame.where("message_id = '7'").count() == 1
    assert bus.read("orders", fromSequenceNumber=291).count() == 10
    assert ids_in(bus.namespace, "orders").total() == 300
    client = ServiceBusClient.from_connection_string(bus.namespace.connection_string)
    with client, client.get_queue_receiver("orders", max_wait_time=60) as receiver:
        assert next(receiver).delivery_count == 0


def test_spark_finds_the_source_by_itself(bus: Bus) -> None:
    bus.send("orders", range(3))
    unprepared = bus.spark.newSession()
    assert unprepared.read.format("servicebus").options(**bus.options).load("orders").count() == 3


def test_fewer_columns_and_empty_queues_can_be_read(bus: Bus) -> None:
    bus.send("orders", range(3))
    reader = bus.spark.read.format("servicebus").options(**bus.options, queues="orders,copy")
    assert sorted(reader.schema("message_id STRING").load().collect()) == [("0",), ("1",), ("2",)]
    assert bus.read("copy").count() == 0


def test_dead_letters_can_be_read_with_their_reason(bus: Bus) -> None:
    bus.send("orders", range(2))
    with ServiceBusClient.from_connection_string(bus.namespace.connection_string) as client:
        with client.get_queue_receiver("orders") as receiver:
            for message in received(receiver, 2):
                receiver.dead_letter_message(message, reason="odd", error_description="very")
        found = bus.read("orders", deadLetter="true").select("message_id", "dead_letter_reason", "entity").collect()
        assert sorted(found) == [(each, "odd", "orders/$DeadLetterQueue") for each in ("0", "1")]
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            assert len(received(dead, 2)) == 2


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """A query at work, or done. Spark gives the Python of a source ten seconds to come up: here it has two chances."""
    query = writer.start()
    while query.isActive and query.lastProgress is None:
        time.sleep(0.05)
    return writer.start() if "connect back" in str(query.exception()) else query


@pytest.mark.long
def test_a_stream_goes_on_from_its_checkpoint_and_neither_skips_nor_repeats(bus: Bus, tmp_path: Path) -> None:
    """At first in small batches, then from where it was; what it reads is written to another queue."""

    def run(**options: Any) -> list[int]:
        writer = bus.stream("orders", **options).writeStream.format("servicebus").options(**bus.options, queue="copy")
        query = begun(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True))
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    bus.send("orders", range(250))
    assert run(maxMessagesPerTrigger=100) == [100, 100, 50]
    bus.send("orders", range(250, 300))
    assert run() == [50]
    assert run() == []
    assert ids_in(bus.namespace, "copy") == {str(each): 1 for each in range(300)}
    assert ids_in(bus.namespace, "orders").total() == 300
    kept = b"".join(file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    assert b'"orders"' in kept.replace(b"\\", b"")
    assert bus.key.encode() not in kept


def test_a_stream_of_what_comes_from_now_on(bus: Bus, tmp_path: Path) -> None:
    bus.send("orders", range(5))
    seen: set[str] = set()
    has_come = threading.Event()

    def note(frame: DataFrame, _number: int) -> None:
        seen.update(row.message_id for row in frame.select("message_id").collect())
        if "9" in seen:
            has_come.set()

    writer = bus.stream("orders", fromSequenceNumber="latest", idlePollIntervalMs=100).writeStream.foreachBatch(note)
    query = begun(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    try:
        while query.isActive and query.lastProgress is None:
            has_come.wait(0.05)
        bus.send("orders", range(5, 10))
        assert has_come.wait(60)
    finally:
        query.stop()
    assert seen == {"5", "6", "7", "8", "9"}


def test_no_plan_has_a_secret_in_it(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    frame = bus.read("orders")
    frame.explain(True)
    shown = capsys.readouterr().out + repr(frame) + str(bus.spark.sparkContext.getConf().getAll())
    assert "servicebus" in shown
    assert bus.key not in shown


def test_rows_that_cannot_be_sent_are_named(bus: Bus) -> None:
    frame = bus.spark.createDataFrame(
        [("1", "ok", 5), ("2", "bad", -5)], "message_id STRING, body STRING, time_to_live_ms INT"
    )
    with pytest.raises(Exception, match="message '2': time_to_live_ms must be above 0"):
        bus.write(frame.coalesce(1), "orders")


@pytest.mark.long
def test_a_queue_that_is_not_there_and_a_wrong_key_are_reported(bus: Bus, tmp_path: Path) -> None:
    frame = bus.spark.createDataFrame([("1", "ok")], "message_id STRING, body STRING")
    with pytest.raises(Exception, match="not found"):
        bus.write(frame, "nowhere")
    with pytest.raises(Exception, match="not found"):
        bus.read("nowhere").count()
    (tmp_path / "secret").write_text(bus.namespace.connection_string.replace(bus.key, "c2VjcmV0"))
    with pytest.raises(Exception, match="unauthorised") as caught:
        bus.read("orders").count()
    assert "c2VjcmV0" not in str(caught.value)


def test_mistakes_are_reported_when_loading(bus: Bus) -> None:
    with pytest.raises(Exception, match="do you mean peekBatchSize"):
        bus.read("orders", peekBatchsSize=1)
    with pytest.raises(Exception, match="latest is for streams"):
        bus.read("orders", fromSequenceNumber="latest").count()
    frame = bus.spark.createDataFrame([(1,)], "colour INT")
    with pytest.raises(Exception, match=r"no column colour to send; there is no column body"):
        bus.write(frame, "orders")
