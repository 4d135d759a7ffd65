"""What one task of a drain does, without Spark."""

from __future__ import annotations

import asyncio
import pickle
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessageState
from backlog_messages import backlog_message, backlog_messages_for, fill, unaddressed
from idle_progress import IDLE
from spark_backlog import SparkBacklog, ids_in

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message.sections import Header
from twinbus.client.namespace import Namespace
from twinbus.errors import OptionsError
from twinbus.ledger import Event, Kind, Ledger
from twinbus.spark.access import Access
from twinbus.spark.drain.ledger_counts import counts_of
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.shard import LOCKED, Patience, drain_shard, program_of
from twinbus.syphon.progress import DestinationProgress
from twinbus.testing import NamespacePair
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.link_handler import LinkHandler

BOTH = Shard(0, (0, 1))


@pytest.fixture
def backlog(namespace_pair: NamespacePair, tmp_path: Path) -> SparkBacklog:
    return SparkBacklog(namespace_pair, tmp_path)


@pytest.fixture
def brief(namespace_pair: NamespacePair, tmp_path: Path) -> SparkBacklog:
    """Where locks end soon enough to be waited for."""
    return SparkBacklog(namespace_pair, tmp_path, lock_ms=5_000)


def test_a_shard_brings_home_what_is_in_its_queues(backlog: SparkBacklog) -> None:
    messages = backlog_messages_for("orders", 700)
    fill(backlog.secondary.connection_string, backlog.path(0), [*messages[:500], unaddressed()])
    fill(backlog.secondary.connection_string, backlog.path(1), messages[500:])
    report = drain_shard(backlog.options(), BOTH)
    assert (report.moved, report.refused, report.trouble) == (700, 1, "")
    assert ids_in(backlog.primary, "orders").total() == 700


def test_a_schedule_that_is_still_to_come_lengthens_no_time_to_live(backlog: SparkBacklog) -> None:
    due = {"x-opt-scheduled-enqueue-time": Timestamp(int(time.time() * 1000) + 3_600_000)}
    waiting = backlog_message("orders", "m1", header=Header(ttl_ms=5_000), annotations=due)
    fill(backlog.secondary.connection_string, backlog.path(0), [waiting])
    assert drain_shard(backlog.options(), BOTH).moved == 1
    with (
        ServiceBusClient.from_connection_string(backlog.primary.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        (found,) = receiver.peek_messages(5)
    assert (found.state, found.time_to_live) == (ServiceBusMessageState.SCHEDULED, timedelta(seconds=5))


def test_each_attempt_writes_segments_of_its_own(backlog: SparkBacklog) -> None:
    options = backlog.options()
    for attempt in range(2):
        fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 50))
        drain_shard(options, BOTH, attempt)
    with Ledger.at(backlog.ledger, "somebody else"):
        pass
    counts = counts_of(str(backlog.ledger), options.run)
    assert counts is not None
    assert (counts.attempts, counts.killed, counts.moved, counts.received) == (2, 0, 100, 100)
    assert counts_of(str(backlog.ledger), "another run") is None


class Borrower(LinkHandler):
    """Takes a message under lock and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_one = asyncio.Event()

    def on_transfers(self, arrived: list[TransferArrived]) -> None:
        self.has_one.set()


async def borrow_one(connection_string: str, path: str) -> None:
    dial = Namespace.from_connection_string(connection_string).dial()
    connection = NamespaceConnection(dial, attempt_s=60.0)
    await connection.open()
    borrower = Borrower()
    link = await connection.open_receiver(path, borrower)
    link.grant(1)
    connection.flush()
    await asyncio.wait_for(borrower.has_one.wait(), 60)
    connection._stream.abort()  # gone without a word, as a killed process


def test_a_shard_is_not_done_while_somebody_has_a_message_under_lock(brief: SparkBacklog) -> None:
    fill(brief.secondary.connection_string, brief.path(0), backlog_messages_for("orders", 20))
    began = time.monotonic()
    asyncio.run(borrow_one(brief.secondary.connection_string, brief.path(0)))
    report = drain_shard(brief.options(), BOTH)
    assert (report.moved, report.trouble) == (20, "")
    assert time.monotonic() - began >= brief.lock_ms / 1000, "the message came back when its lock ended"


@pytest.mark.long
def test_in_order_the_others_wait_for_a_message_that_a_dead_task_had_under_lock(brief: SparkBacklog) -> None:
    fill(brief.secondary.connection_string, brief.path(0), backlog_messages_for("orders", 20))
    asyncio.run(borrow_one(brief.secondary.connection_string, brief.path(0)))
    report = drain_shard(brief.options(order="session"), BOTH)
    assert (report.moved, report.trouble) == (20, "")
    assert list(ids_in(brief.primary, "orders")) == [f"orders-{number}" for number in range(20)]


def test_a_lock_that_outlasts_the_patience_is_a_trouble(backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 20))
    asyncio.run(borrow_one(backlog.secondary.connection_string, backlog.path(0)))
    report = drain_shard(backlog.options(patience_s=5.0), BOTH)
    assert report.moved == 19
    assert "under lock elsewhere" in report.trouble


def test_a_wrong_key_is_reported_at_once_and_never_shown(backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 5))
    key = backlog.secondary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    wrong = backlog.secret(backlog.secondary, backlog.secondary.connection_string.replace(key, "c2VjcmV0"))
    began = time.monotonic()
    options = backlog.options(secondary=wrong, refused_s=60.0)
    report = drain_shard(options, BOTH)
    assert "unauthorised" in report.trouble
    assert "c2VjcmV0" not in report.trouble
    assert time.monotonic() - began < options.refused_s, "no patience with it"


def test_a_primary_that_refuses_us_is_given_up_soon(backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 5))
    key = backlog.primary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    wrong = backlog.secret(backlog.primary, backlog.primary.connection_string.replace(key, "c2VjcmV0"))
    report = drain_shard(backlog.options(primary=wrong, refused_s=1.0), BOTH)
    assert report.trouble.partition(": ")[2].startswith("orders: unauthorised")
    assert ids_in(backlog.secondary, backlog.path(0)).total() == 5


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_namespace_out_of_reach_is_given_up_when_patience_ends(backlog: SparkBacklog, side: str) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 5))
    options = backlog.options(patience_s=5.0)
    (backlog.primary if side == "primary" else backlog.secondary).stop()
    report = drain_shard(options, BOTH)
    assert "unreachable" in report.trouble
    assert report.moved == 0


@dataclass(frozen=True)
class Look:
    """What a task sees of its syphon after all patience, and what it says of it."""

    says: str
    is_connected: bool = True
    destinations: tuple[DestinationProgress, ...] = ()
    troubles: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "look",
    [
        Look(LOCKED),
        Look("secondary: no answer yet", is_connected=False),
        Look("secondary: unreachable", is_connected=False, troubles=("secondary: unreachable",)),
        Look("orders: no answer yet", destinations=(DestinationProgress("orders", "opening", None, 5, 0),)),
        Look("orders: no answer yet", destinations=(DestinationProgress("orders", "open", None, 0, 5),)),
        Look(LOCKED, destinations=(DestinationProgress("orders", "open", None, 5, 0),)),
        Look("orders: quota", destinations=(DestinationProgress("orders", "resting", "quota", 5, 0),)),
    ],
)
def test_locks_of_others_are_blamed_only_when_everybody_has_answered(backlog: SparkBacklog, look: Look) -> None:
    patience = Patience(backlog.options(patience_s=1.0), now_s=0.0)
    progress = replace(IDLE, destinations=look.destinations, troubles=look.troubles)
    assert patience.trouble(progress, 0.9, is_connected=look.is_connected) == ""
    assert patience.trouble(progress, 1.0, is_connected=look.is_connected) == look.says


def test_a_secret_that_is_not_there_is_a_trouble_that_names_its_place(backlog: SparkBacklog) -> None:
    report = drain_shard(backlog.options(primary=Access("env:TWINBUS_NOT_SET")), BOTH)
    assert "env:TWINBUS_NOT_SET: nothing is there" in report.trouble


def test_what_travels_to_executors_has_no_secret_in_it(backlog: SparkBacklog) -> None:
    options = backlog.options()
    key = backlog.primary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert key.encode() not in pickle.dumps(options)
    assert key not in repr(options)


def test_all_mistakes_in_the_options_are_reported_at_once() -> None:
    with pytest.raises(OptionsError) as caught:
        DrainOptions(
            primary=Access("Endpoint=sb://x;SharedAccessKey=hush"),
            secondary=Access("identity"),
            primary_name="",
            queue_count=0,
            tasks=0,
            order="entity",  # type: ignore[arg-type]
        )
    text = str(caught.value)
    wrong = ("primary: the credential", "secondary: identity needs", "primary_name", "queue_count", "tasks", "order")
    assert all(part in text for part in wrong)
    assert "hush" not in text


def test_counts_include_what_a_killed_attempt_moved_and_what_came_twice(tmp_path: Path) -> None:
    """The first attempt stored five, said of two that they left the backlog, and died; two of the others came again."""
    stored = ("a", "b", "c", "d", "e")
    dead = Ledger.at(tmp_path, program_of("r", 0, 0))
    dead.record(Event(Kind.SENT_HOME, "orders", message_ids=stored))
    dead.record(Event(Kind.COMPLETED, "orders", message_ids=("a", "b")))
    assert dead.flush(60)
    with Ledger.at(tmp_path, program_of("r", 0, 1)) as second:
        second.record(Event(Kind.SENT_HOME, "orders", message_ids=("d", "e", "f")))
        second.record(Event(Kind.COMPLETED, "orders", message_ids=("d", "e", "f")))
    counts = counts_of(str(tmp_path), "r")
    assert counts is not None
    assert (counts.attempts, counts.killed, counts.stored, counts.moved, counts.repeated) == (2, 1, 8, 6, 2)
    dead.close(60)


def test_counts_keep_messages_of_two_entities_with_one_id_apart(tmp_path: Path) -> None:
    """The killed attempt stored three that all left; one of them was said to, and one with its id came for tests."""
    dead = Ledger.at(tmp_path, program_of("r", 0, 0))
    for entity in ("orders", "bills", "news"):
        dead.record(Event(Kind.SENT_HOME, entity, message_ids=("1",)))
    dead.record(Event(Kind.COMPLETED, "orders", message_ids=("1",)))
    assert dead.flush(60)
    with Ledger.at(tmp_path, program_of("r", 0, 1)) as second:
        second.record(Event(Kind.SENT_HOME, "tests", message_ids=("1",)))
        second.record(Event(Kind.COMPLETED, "tests", message_ids=("1",)))
    counts = counts_of(str(tmp_path), "r")
    assert counts is not None
    assert (counts.killed, counts.stored, counts.moved, counts.repeated) == (1, 4, 4, 0)
    dead.close(60)


def test_counts_show_to_which_of_two_entities_a_message_came_twice(tmp_path: Path) -> None:
    dead = Ledger.at(tmp_path, program_of("r", 0, 0))
    dead.record(Event(Kind.SENT_HOME, "orders", message_ids=("1",)))
    dead.record(Event(Kind.SENT_HOME, "bills", message_ids=("1",)))
    assert dead.flush(60)
    with Ledger.at(tmp_path, program_of("r", 0, 1)) as second:
        second.record(Event(Kind.SENT_HOME, "bills", message_ids=("1",)))
        second.record(Event(Kind.COMPLETED, "bills", message_ids=("1",)))
    counts = counts_of(str(tmp_path), "r")
    assert counts is not None
    assert (counts.killed, counts.stored, counts.moved, counts.repeated) == (1, 3, 2, 1)
    dead.close(60)
