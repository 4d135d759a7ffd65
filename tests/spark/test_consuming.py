"""format("servicebus") with mode=receive between a session and a real namespace."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from backlog_messages import fill
from spark_backlog import ids_in

from twinbus.client.namespace import Namespace
from twinbus.errors import TwinbusError
from twinbus.spark import register
from twinbus.spark.queue_browser import QueueUnreachable
from twinbus.spark.source.consuming.staged_files import FILE_MESSAGES_MAX, read_staged
from twinbus.spark.source.consuming.staging import ReceiveTask, StagedFile, parse_name
from twinbus.spark.source.consuming.task_receiver import TaskReceiver
from twinbus.spark.source.consuming.task_steps import run_steps, stage_steps
from twinbus.spark.source.rows import message_of
from twinbus.storage import open_folder
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTERS = "orders/$DeadLetterQueue"


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders", "copy"]) as running:
        running.create_queue("visits", requires_session=True)
        yield running


def send(namespace: LocalNamespace, queue: str, ids: range, **parts: Any) -> None:
    rows = [{"message_id": str(each), "body": b"x"} | parts for each in ids]
    if queue == "visits":
        rows = [row | {"session_id": f"s{int(str(row['message_id'])) % 4}"} for row in rows]
    fill(namespace.connection_string, queue, [message_of(row, 0) for row in rows])


class Consumer:
    """A stream with its checkpoint and its staging location, run after run."""

    def __init__(self, spark: SparkSession, namespace: LocalNamespace, folder: Path) -> None:
        register(spark)
        self._spark = spark
        self._folder = folder
        secret = folder / "secret"
        secret.write_text(namespace.connection_string)
        self._options = {"servicebus.credential": f"file:{secret}", "mode": "receive", "receiveWaitMs": "200"}
        self.staging = folder / "staging"
        self.found: Counter[tuple[str, str]] = Counter()
        self.last: dict[str, Any] = {}

    def run(self, queues: str, *, evaluations: int = 1, **options: Any) -> int:
        """The number of rows of a run until nothing is left."""
        before = self.found.total()
        where = {"stagingLocation": self.staging.as_uri(), "queues": queues}
        frame = self._spark.readStream.format("servicebus").options(**self._options, **where, **options).load()

        def keep(batch: DataFrame, _number: int) -> None:
            rows = [batch.select("entity", "message_id").collect() for _ in range(evaluations)]
            assert all(sorted(each) == sorted(rows[0]) for each in rows), "every evaluation is the same"
            self.found.update((row.entity, row.message_id) for row in rows[0])

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return self.found.total() - before

    @property
    def staged(self) -> list[str]:
        names = [file.name for file in open_folder(self.staging).files()]
        return [name for name in names if isinstance(parse_name(name), StagedFile)]


def test_messages_are_consumed_once_also_those_of_sessions_and_dead_letters(
    spark: SparkSession, namespace: LocalNamespace, tmp_path: Path
) -> None:
    """The second run goes on where the first one was."""
    consumer = Consumer(spark, namespace, tmp_path)
    send(namespace, "orders", range(250))
    send(namespace, "visits", range(100))
    queues = f"orders,visits,{DEAD_LETTERS}"
    assert consumer.run(queues, evaluations=2, maxMessagesPerPartition=100) == 350
    assert consumer.staged == [], "Spark does not say that its last batch is done, but asks for more, and gets nothing"
    send(namespace, "orders", range(250, 260))
    asyncio.run(dead_letter(namespace, "orders", 3))
    assert consumer.run(queues, columns="message_id,entity") == 10
    expected = {("visits", str(each)) for each in range(100)}
    expected |= {("orders" if each not in (250, 251, 252) else DEAD_LETTERS, str(each)) for each in range(260)}
    assert consumer.found == dict.fromkeys(expected, 1)
    assert [ids_in(namespace, queue).total() for queue in queues.split(",")] == [0, 0, 0]


async def dead_letter(namespace: LocalNamespace, queue: str, count: int) -> None:
    from azure.servicebus.aio import ServiceBusClient

    async with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        done = 0
        while done < count:
            for message in await receiver.receive_messages(count - done, max_wait_time=30):
                await receiver.dead_letter_message(message, reason="odd")
                done += 1


# --- the link of a task, without Spark ---


def receiver(namespace: LocalNamespace, queue: str, wait_s: float = 0.2) -> TaskReceiver:
    dial = Namespace.from_connection_string(namespace.connection_string).dial()
    return TaskReceiver(dial, queue, attempt_s=30.0, wait_s=wait_s)


@pytest.mark.parametrize("queue", ["orders", "visits"])
def test_a_task_takes_as_many_as_it_may_and_gives_the_rest_back(
    namespace: LocalNamespace, tmp_path: Path, queue: str
) -> None:
    count, most = 2_600, 2_100
    send(namespace, queue, range(count))
    folder = open_folder(tmp_path)
    with receiver(namespace, queue) as link:
        manifest = run_steps(stage_steps(ReceiveTask("a1", 1, 0, queue, most), "0f"), folder, link)
    assert (manifest.rows, manifest.uncompleted) == (most, 0)
    staged = list(read_staged(folder, manifest.files))
    assert {each.entity for each in staged} == {queue}
    assert max(len(each.messages) for each in staged) <= FILE_MESSAGES_MAX
    assert ids_in(namespace, queue).total() == count - most
    with receiver(namespace, queue) as link:  # nothing is under lock any more
        rest = run_steps(stage_steps(ReceiveTask("a1", 1, 1, queue, most), "0f"), folder, link)
    assert rest.rows == count - most


def test_large_messages_come_in_small_chunks(namespace: LocalNamespace) -> None:
    for number in range(120):  # a batch of them would be refused
        send(namespace, "orders", range(number, number + 1), body=b"x" * 200_000)
    found = 0
    with receiver(namespace, "orders") as link:
        while chunk := link.receive(10_000):
            assert sum(len(each.message) for each in chunk) <= 9 * 1024 * 1024
            found += link.complete(chunk)
    assert found == 120


def test_messages_whose_locks_ended_are_staged_and_counted_because_they_come_again(tmp_path: Path) -> None:
    with LocalNamespace("contoso", data=tmp_path / "data", queues=["orders"]) as namespace:
        send(namespace, "orders", range(5))
        with receiver(namespace, "orders") as link:
            chunk = link.receive(5)
            namespace.restart()  # ends the locks, and the link
            assert (len(chunk), link.complete(chunk)) == (5, 0)
        assert ids_in(namespace, "orders").total() == 5


def test_a_queue_that_is_not_there_is_reported(namespace: LocalNamespace) -> None:
    with receiver(namespace, "nowhere") as link, pytest.raises(QueueUnreachable, match=r"nowhere of .*not found"):
        link.receive(1)


def test_a_task_that_does_not_see_the_mark_of_the_driver_receives_nothing(
    namespace: LocalNamespace, tmp_path: Path
) -> None:
    """A folder of this machine only: what is staged there would be lost to the others."""
    from pyspark.sql.types import StringType, StructType

    from twinbus.spark.source.consuming.consuming_reader import ConsumePartition, ConsumingStreamReader
    from twinbus.spark.source.options import read_options

    send(namespace, "orders", range(3))
    (tmp_path / "secret").write_text(namespace.connection_string)
    given = {"servicebus.credential": f"file:{tmp_path / 'secret'}", "mode": "receive", "queues": "orders"}
    options = read_options(given | {"stagingLocation": str(tmp_path / "here"), "failOnDataLoss": "false"})
    reader = ConsumingStreamReader(StructType().add("message_id", StringType()), options)
    with pytest.raises(TwinbusError, match="does not share with the driver"):
        list(reader.read(ConsumePartition(ReceiveTask("a1", 1, 0, "orders", 10))))
    assert ids_in(namespace, "orders").total() == 3
