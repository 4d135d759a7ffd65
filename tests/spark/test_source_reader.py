"""Readers and senders of format("servicebus") at a real namespace, without a session."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient
from backlog_messages import put
from connect_proxy import ConnectProxy
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType
from received import received
from spark_backlog import ids_in

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.sasl import ClientSasl
from twinbus.client.namespace import Namespace
from twinbus.errors import TwinbusError
from twinbus.spark.queue_browser import QueueBrowser, QueueUnreachable
from twinbus.spark.source import writer as writer_module
from twinbus.spark.source.consuming.staging import ReceiveOffset
from twinbus.spark.source.options import read_options
from twinbus.spark.source.reader import ServiceBusReader, ServiceBusStreamReader
from twinbus.spark.source.rows import message_of
from twinbus.spark.source.writer import BlockingSender
from twinbus.testing import LocalNamespace
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import sequence_of
from twinbus.transport.links.link_handler import LinkHandler

SCHEMA = StructType().add("message_id", StringType()).add("sequence_number", LongType())


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", data=tmp_path / "data", queues=["orders", "invoices"]) as running:
        (tmp_path / "secret").write_text(running.connection_string)
        yield running


def messages(count: int, first: int = 0) -> list[bytes]:
    return [message_of({"message_id": str(number), "body": b"x"}, 0) for number in range(first, first + count)]


def fill(namespace: LocalNamespace, queue: str, count: int) -> None:
    asyncio.run(put(namespace.connection_string, queue, messages(count)))


def reader(tmp_path: Path, **options: Any) -> ServiceBusStreamReader:
    given = {"servicebus.credential": f"file:{tmp_path / 'secret'}", "queues": "orders,invoices"} | options
    return ServiceBusStreamReader(SCHEMA, read_options(given))


def numbers(source: ServiceBusStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for piece in source.partitions(start, end) for batch in source.read(piece)]
    return [number for batch in batches for number in batch.column(1).to_pylist()]


def following(offset: dict[str, Any], queue: str) -> int:
    """The number of the next message, in the one partition that our own queues have."""
    found: int = offset[queue]["0"]["next"]
    return found


def test_offsets_are_the_numbers_after_the_last_message(namespace: LocalNamespace, tmp_path: Path) -> None:
    fill(namespace, "orders", 30)
    source = reader(tmp_path, idlePollIntervalMs="0")
    start = source.initialOffset()
    assert (following(start, "orders"), start["invoices"]) == (1, {})
    end = source.latestOffset(start, ReadAllAvailable())
    assert (following(end, "orders"), end["invoices"]) == (31, {})
    assert source.latestOffset(end, ReadAllAvailable()) == end
    assert numbers(source, start, end) == numbers(source, start, end) == list(range(1, 31))
    assert following(source.latestOffset(start, ReadMaxRows(10)), "orders") == 11
    source.stop()


def test_reading_and_writing_go_over_websockets_and_through_an_http_proxy(
    namespace: LocalNamespace, tmp_path: Path
) -> None:
    with ConnectProxy() as gate:
        way = f";TransportType=AmqpWebSockets;TwinbusProxy=http://127.0.0.1:{gate.port}"
        (tmp_path / "secret").write_text(namespace.connection_string + way)
        options = read_options({"servicebus.credential": f"file:{tmp_path / 'secret'}", "queues": "orders"})
        with closing(BlockingSender(options.access.namespace().dial(), 60.0, 50)) as writer:
            writer.put("orders", messages(3))
            writer.flush()
        assert gate.asked == [f"127.0.0.1:{namespace.port}"]
        source = ServiceBusStreamReader(SCHEMA, options)
        start = source.initialOffset()
        assert numbers(source, start, source.latestOffset(start, ReadAllAvailable())) == [1, 2, 3]
        source.stop()
        assert set(gate.asked[1:]) == {f"127.0.0.1:{namespace.port}"}


def test_available_now_ends_at_what_was_there_at_first(namespace: LocalNamespace, tmp_path: Path) -> None:
    fill(namespace, "orders", 5)
    source = reader(tmp_path, idlePollIntervalMs="0")
    source.prepareForTriggerAvailableNow()
    fill(namespace, "orders", 5)
    start = source.initialOffset()
    assert following(source.latestOffset(start, ReadAllAvailable()), "orders") == 6
    source.stop()


def test_an_idle_stream_pauses_between_looks(namespace: LocalNamespace, tmp_path: Path) -> None:
    source = reader(tmp_path, idlePollIntervalMs="1000")
    start = source.initialOffset()
    began = time.monotonic()
    source.latestOffset(start, ReadAllAvailable())
    source.latestOffset(start, ReadAllAvailable())
    assert time.monotonic() - began >= 1
    source.stop()


def take(namespace: LocalNamespace, queue: str, count: int) -> None:
    client = ServiceBusClient.from_connection_string(namespace.connection_string)
    with client, client.get_queue_receiver(queue) as receiver:
        for message in received(receiver, count):
            receiver.complete_message(message)


def test_what_others_took_meanwhile_is_counted_or_reported(
    namespace: LocalNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(namespace, "orders", 10)
    source, strict = reader(tmp_path), reader(tmp_path, failOnMissing="true")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    take(namespace, "orders", 3)
    assert numbers(source, start, end) == list(range(4, 11))
    assert "7 of the 10 messages from 1 to 10: others took 3" in caplog.text
    with pytest.raises(TwinbusError, match="orders has 7 of the 10 messages from 1 to 10"):
        numbers(strict, start, end)
    assert following(source.initialOffset(), "orders") == 4, "a new stream begins at what is there"
    source.stop()


def test_a_batch_that_a_consuming_stream_planned_is_not_run_by_one_that_browses(tmp_path: Path) -> None:
    planned = ReceiveOffset("a1", 1).as_json()
    (tmp_path / "secret").write_text("")
    with pytest.raises(TwinbusError, match=r"a stream with mode=receive.*of its own"):
        reader(tmp_path).partitions({}, planned)


def test_a_reader_travels_without_its_connection(namespace: LocalNamespace, tmp_path: Path) -> None:
    fill(namespace, "orders", 3)
    source = reader(tmp_path)
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    travelled = pickle.loads(pickle.dumps(source))
    assert numbers(travelled, {}, end) == [1, 2, 3]
    source.stop()


def read_on(source: ServiceBusStreamReader, start: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The numbers in the next batch, and where it ends."""
    end = source.latestOffset(start, ReadAllAvailable())
    return numbers(source, start, end), end


def test_a_queue_that_was_deleted_and_made_anew_is_noticed(namespace: LocalNamespace, tmp_path: Path) -> None:
    fill(namespace, "orders", 10)
    source = reader(tmp_path, idlePollIntervalMs="0", failOnDataLoss="false")
    _, offset = read_on(source, source.initialOffset())
    source.stop()
    with administration(namespace) as admin:
        admin.delete_queue("orders")
        admin.create_queue("orders")
    fill(namespace, "orders", 3)
    strict = reader(tmp_path)
    with pytest.raises(TwinbusError, match="orders was deleted and made anew: the stream had read it up to number 10"):
        strict.latestOffset(offset, ReadAllAvailable())
    strict.stop()
    assert read_on(source, offset)[0] == [1, 2, 3]
    source.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_queue_that_was_deleted_and_not_made_anew_is_an_error(
    namespace: LocalNamespace, tmp_path: Path, fails: str
) -> None:
    fill(namespace, "orders", 10)
    running, later = (reader(tmp_path, idlePollIntervalMs="0", failOnDataLoss=fails) for _ in range(2))
    end = running.latestOffset(start := running.initialOffset(), ReadMaxRows(5))
    with administration(namespace) as admin:
        admin.delete_queue("orders")
    for source in (running, later):
        with pytest.raises(TwinbusError, match="'orders' could not be found"):
            source.prepareForTriggerAvailableNow()
        with pytest.raises(TwinbusError, match="'orders' could not be found"):
            source.latestOffset(end, ReadAllAvailable())
        with pytest.raises(TwinbusError, match="'orders' could not be found"):
            numbers(source, start, end)
        source.stop()


def test_another_case_of_the_name_goes_on_where_the_stream_was(namespace: LocalNamespace, tmp_path: Path) -> None:
    fill(namespace, "orders", 10)
    source = reader(tmp_path, idlePollIntervalMs="0")
    _, offset = read_on(source, source.initialOffset())
    source.stop()
    fill(namespace, "orders", 2)
    other = reader(tmp_path, queues="Orders,INVOICES")
    assert read_on(other, offset)[0] == [11, 12]
    other.stop()


def number_from(namespace: LocalNamespace, folder: Path, queue: str, number: int) -> None:
    """The next message of a queue gets this number, as if it came into another partition of the service."""
    namespace.stop()
    store = sqlite3.connect(folder / "data" / "contoso" / "store.sqlite")
    (entity_id,) = store.execute("select entity_id from entities where path = ?", (queue,)).fetchone()
    store.execute("update counters set value = ? where name = ?", (number, f"next_sequence/{entity_id}"))
    store.commit()
    store.close()
    namespace.start()
    (folder / "secret").write_text(namespace.connection_string)


def test_partitions_numbered_as_the_service_does_are_all_read(namespace: LocalNamespace, tmp_path: Path) -> None:
    low, high = 33 << 48, 97 << 48
    number_from(namespace, tmp_path, "orders", high + 1)
    fill(namespace, "orders", 3)
    source = reader(tmp_path, idlePollIntervalMs="0")
    found, offset = read_on(source, source.initialOffset())
    assert found == [high + 1, high + 2, high + 3]
    source.stop()
    number_from(namespace, tmp_path, "orders", low + 1)
    fill(namespace, "orders", 2)
    found, offset = read_on(source, offset)
    assert found == [low + 1, low + 2]
    assert read_on(source, offset)[0] == []
    source.stop()
    given = read_options({"servicebus.credential": f"file:{tmp_path / 'secret'}", "queues": "orders"})
    whole = ServiceBusReader(SCHEMA, given)
    rows = [
        number for piece in whole.partitions() for batch in whole.read(piece) for number in batch.column(1).to_pylist()
    ]
    assert rows == [low + 1, low + 2, high + 1, high + 2, high + 3]
    assert len(whole.partitions()) == 2, "the numbers between partitions are no work"


def test_a_browser_connects_again_when_the_namespace_was_gone(namespace: LocalNamespace) -> None:
    fill(namespace, "orders", 3)
    with QueueBrowser(Namespace.from_connection_string(namespace.connection_string).dial(), 60.0) as browser:
        assert sequence_of(browser.peek("orders", 1, 1)[0]) == 1
        namespace.restart()
        assert sequence_of(browser.peek("orders", 2, 1)[0]) == 2
        namespace.stop()
        with pytest.raises(QueueUnreachable) as caught:
            browser.peek("orders", 1, 1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


# --- sending ---


@pytest.fixture
def post(namespace: LocalNamespace) -> Iterator[BlockingSender]:
    sending = BlockingSender(Namespace.from_connection_string(namespace.connection_string).dial(), 60.0, 50)
    yield sending
    sending.close()


def test_everything_is_stored_once_and_in_order(namespace: LocalNamespace, post: BlockingSender) -> None:
    post.put("orders", messages(500))
    post.put("invoices", messages(10))
    post.put("orders", messages(500, first=500))
    post.flush()
    assert post.stored == 1_010
    assert list(ids_in(namespace, "orders").items()) == [(str(number), 1) for number in range(1_000)]


def test_a_large_message_goes_alone_and_a_too_large_one_is_reported(
    namespace: LocalNamespace, post: BlockingSender
) -> None:
    large = [message_of({"message_id": str(number), "body": b"x" * 200_000}, 0) for number in range(6)]
    post.put("orders", large)
    post.flush()
    assert ids_in(namespace, "orders").total() == 6
    post.put("orders", [message_of({"message_id": "huge", "body": b"x" * 2_000_000}, 0)])
    with pytest.raises(QueueUnreachable, match=r"orders of .*: message 'huge' of 2000\d\d\d? bytes: too large"):
        post.flush()


def administration(namespace: LocalNamespace) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_file)
    )


def kilobytes(count: int) -> list[bytes]:
    return [message_of({"message_id": str(number), "body": b"x" * 1_000}, 0) for number in range(count)]


def posting(namespace: LocalNamespace) -> AbstractContextManager[BlockingSender]:
    return closing(BlockingSender(Namespace.from_connection_string(namespace.connection_string).dial(), 60.0, 500))


@pytest.mark.parametrize("limit", [1_024, 65_536])
def test_batches_are_as_large_as_the_namespace_takes_them(limit: int) -> None:
    with (
        LocalNamespace("contoso", queues=["orders"], limits={"message_bytes_max": limit}) as namespace,
        posting(namespace) as post,
    ):
        post.put("orders", messages(600) if limit == 1_024 else kilobytes(600))
        post.flush()
        assert post.stored == 600
        assert list(ids_in(namespace, "orders")) == [str(number) for number in range(600)], "none was cut again"


def test_batches_are_cut_again_if_nobody_could_say_how_large_they_may_be() -> None:
    with LocalNamespace("contoso", queues=["orders"]) as gone:
        port, string = gone.port, gone.connection_string
    with closing(BlockingSender(Namespace.from_connection_string(string).dial(), 60.0, 500)) as post:
        post.put("orders", kilobytes(400))
        key, limits = string.partition("SharedAccessKey=")[2].partition(";")[0], {"message_bytes_max": 65_536}
        with LocalNamespace("contoso", queues=["orders"], port=port, key=key, limits=limits) as back:
            post.flush()
            assert post.stored == 400
            assert ids_in(back, "orders") == Counter(map(str, range(400)))


def test_of_a_batch_that_is_refused_as_too_large_the_message_that_is_it_is_named(
    namespace: LocalNamespace, post: BlockingSender
) -> None:
    """The link has said more than the queue takes by now."""
    post.put("orders", messages(1))
    post.flush()
    with administration(namespace) as admin:
        queue = admin.get_queue("orders")
        queue.max_message_size_in_kilobytes = 1
        admin.update_queue(queue)
    large = message_of({"message_id": "large", "body": b"x" * 2_000}, 0)
    post.put("orders", [*messages(20, first=1), large])
    with pytest.raises(QueueUnreachable, match=r"orders of .*: message 'large' of 2\d\d\d bytes: too large"):
        post.flush()
    assert post.stored == 21
    assert list(ids_in(namespace, "orders")) == [str(number) for number in range(21)]


def test_sending_goes_on_after_an_outage(namespace: LocalNamespace, post: BlockingSender) -> None:
    post.put("orders", messages(100))
    namespace.faults.add("no-send", entities=["orders"], length=timedelta(seconds=1))
    post.put("orders", messages(100, first=100))
    post.flush()
    assert set(ids_in(namespace, "orders")) == {str(number) for number in range(200)}


def test_whatever_keeps_a_batch_from_being_stored_is_reported(namespace: LocalNamespace, post: BlockingSender) -> None:
    post.put("orders", [*messages(1), "no bytes: they cannot be put together"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        post.flush()
    assert post.stored == 0


async def test_credit_that_never_comes_is_not_waited_for() -> None:
    connection = Connection(role=Role.CLIENT, container_id="patient", sasl=ClientSasl())
    connection.open()
    link = connection.begin().attach_sender("link", "orders")
    with pytest.raises(ConnectionFailed, match="orders grants no credit at the moment"):
        await LinkHandler().wait_for_credit(link, 0.01, "orders")


def test_a_queue_that_is_not_there_is_reported_at_once(post: BlockingSender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BACKOFF_S", (60.0,) * 4)
    began = time.monotonic()
    post.put("nowhere", messages(1))
    with pytest.raises(QueueUnreachable, match="not found"):
        post.flush()
    with pytest.raises(QueueUnreachable, match="not found"):
        post.put("orders", messages(1))
    assert time.monotonic() - began < 60, "nobody tries again"
