"""What version 0.1.0 has written, served and brought home by this version (the files: `tests/fixtures/v0.1`)."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from envelope_0_1 import read_envelope
from received import received
from version_0_1 import FOLDER, INVOICES, WRITTEN_MS, copied

from twinbus import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from twinbus.broker.net.certificates import load_or_make_identity
from twinbus.client.namespace import Namespace
from twinbus.errors import StoreTooNew
from twinbus.syphon import SyphonOptions, syphon
from twinbus.testing import LocalNamespace

LATER = datetime(2099, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the data directories."""
    return copied("data", tmp_path)


@pytest.fixture
def that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces live shortly after the files were written: times to live and windows for duplicates have not ended.

    The official client compares locks with the clock of its own machine, so this is not for tests that settle.
    """
    started_s = time.monotonic()

    def clock() -> int:
        return WRITTEN_MS + round((time.monotonic() - started_s) * 1000)

    monkeypatch.setattr("twinbus.broker.server.WallClock", lambda: clock)


@pytest.fixture
def contoso(data: Path) -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", data=data) as running:
        yield running


@pytest.fixture
def client(contoso: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        yield client


def peeked(client: ServiceBusClient, queue: str) -> dict[str, ServiceBusReceivedMessage]:
    with client.get_queue_receiver(queue) as receiver:
        return {str(each.message_id): each for each in receiver.peek_messages(100)}


def test_messages_of_every_state_are_there(client: ServiceBusClient) -> None:
    orders = peeked(client, "orders")
    states = {message_id: message.state.name for message_id, message in orders.items()}
    healthy = {f"healthy-{n}": "ACTIVE" for n in range(3)} | {f"home-{n}": "ACTIVE" for n in range(4)}
    taken = healthy.keys() - states.keys()
    deferred = [message_id for message_id, state in states.items() if state == "DEFERRED"]
    assert len(taken) == 2, "one was completed, one dead-lettered"
    assert len(deferred) == 1
    assert states == {key: healthy[key] for key in healthy.keys() - taken} | {
        deferred[0]: "DEFERRED",
        "scheduled": "SCHEDULED",
    }
    assert orders["scheduled"].scheduled_enqueue_time_utc == LATER
    number = orders[deferred[0]].sequence_number
    assert number is not None
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_deferred_messages(number)
        receiver.complete_message(message)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = received(receiver, 1)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("wrong", "for the fixture")


def test_sessions_keep_their_messages_and_their_state(client: ServiceBusClient) -> None:
    with client.get_queue_receiver("conversations", session_id="s-1") as receiver:
        assert receiver.session.get_state() == b"halfway"
        assert [str(message.message_id) for message in received(receiver, 2)] == ["c-1", "c-2"]


@pytest.mark.usefixtures("that_day")
def test_an_id_that_was_sent_before_is_still_a_duplicate(data: Path) -> None:
    with (
        LocalNamespace("contoso", data=data) as contoso,
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
    ):
        check_duplicates(client)


def check_duplicates(client: ServiceBusClient) -> None:
    with client.get_queue_sender("once") as sender:
        sender.send_messages(
            [ServiceBusMessage("again", message_id="once-1"), ServiceBusMessage("new", message_id="2")]
        )
    assert peeked(client, "once").keys() == {"once-1", "2"}
    assert str(peeked(client, "once")["once-1"]) == "once"


def test_topics_rules_forwarding_and_partitions_work_as_before(client: ServiceBusClient) -> None:
    with client.get_topic_sender("news") as sender:
        for colour in ("red", "green"):
            sender.send_messages(ServiceBusMessage(colour, application_properties={"colour": colour}))
    for subscription, bodies in {"all": ["red", "blue", "red", "green"], "red": ["red", "red"]}.items():
        with client.get_subscription_receiver("news", subscription) as receiver:
            assert [str(message) for message in received(receiver, len(bodies))] == bodies
    with client.get_queue_sender("onwards") as sender:
        sender.send_messages(ServiceBusMessage("onwards", message_id="onwards"))
    assert "onwards" in peeked(client, "invoices")
    assert peeked(client, "parts").keys() == {"p-1", "p-2"}


def test_numbers_go_on_where_they_were(client: ServiceBusClient) -> None:
    last = max(message.sequence_number or 0 for message in peeked(client, "events").values())
    with client.get_queue_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("next", message_id="next"))
    assert peeked(client, "events")["next"].sequence_number == last + 1 == 11


def test_the_key_stays_the_same(data: Path, contoso: LocalNamespace) -> None:
    assert (data / "contoso" / "key").read_bytes() == (FOLDER / "data" / "contoso" / "key").read_bytes()
    assert (data / "contoso" / "key").read_text().strip() in contoso.connection_string


def test_clients_that_trust_the_authority_need_not_learn_another(data: Path) -> None:
    names, that_day = frozenset({"localhost"}), datetime.fromtimestamp(WRITTEN_MS / 1000, UTC)
    load_or_make_identity(data / "contoso", names, that_day)
    for file in ("ca.pem", "ca-key.pem"):
        assert (data / "contoso" / file).read_bytes() == (FOLDER / "data" / "contoso" / file).read_bytes()
    assert (data / "contoso" / "server.pem").read_bytes() != (FOLDER / "data" / "contoso" / "server.pem").read_bytes()


def test_a_data_directory_of_a_later_version_is_refused_untouched(data: Path) -> None:
    store = data / "contoso" / "store.sqlite"
    connection = sqlite3.connect(store)
    connection.execute("pragma user_version = 99")
    connection.close()
    before = store.read_bytes()
    with pytest.raises(StoreTooNew, match="has format 99, made by a newer twinbus; this one knows up to "):
        LocalNamespace("contoso", data=data).start()
    assert store.read_bytes() == before


# --- backlogs ---


@pytest.mark.usefixtures("that_day")
async def test_a_backlog_of_old_senders_comes_home_whole(data: Path) -> None:
    """The times to live go on from when they were sent, which is a moment ago."""
    with LocalNamespace("contoso", data=data) as primary, LocalNamespace("backup", data=data) as secondary:
        home_dial, away_dial = [
            Namespace.from_connection_string(each.connection_string).dial() for each in (primary, secondary)
        ]
        result = await syphon(home_dial, away_dial, "contoso", 2, SyphonOptions(until_empty=True))
        assert (result.moved, result.refused, result.held) == (8, 0, 0)
        with ServiceBusClient.from_connection_string(primary.connection_string) as client:
            home = peeked(client, "invoices")
            with client.get_queue_receiver("invoices", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
                assert receiver.peek_messages(10) == []
    assert home.keys() == INVOICES
    assert home["session"].session_id == home["session"].partition_key == "s-1"
    assert timedelta(hours=23) < (home["ttl"].time_to_live or timedelta(0)) <= timedelta(days=1)
    assert home["schedule"].scheduled_enqueue_time_utc == home["everything"].scheduled_enqueue_time_utc == LATER
    everything = home["everything"]
    assert everything.session_id == "s-2"
    assert everything.time_to_live == timedelta(hours=6), "all of it: its schedule is still to come"
    assert (everything.subject, everything.correlation_id, everything.to) == ("subject", "correlated", "somebody")
    assert (everything.content_type, everything.reply_to) == ("text/plain", "somebody else")
    assert everything.reply_to_session_id == "s-3"
    names = {key.decode() if isinstance(key, bytes) else key for key in everything.application_properties or {}}
    assert names == {"text", "number", "truth", "double", "uuid", "time"}
    assert list(home["data"].body) == [b"one", b"two", b""]
    assert home["value"].body == {b"a": [1, b"two", 3.5, None, True]}


def sent_by_this_version() -> list[Any]:
    everything = ServiceBusMessage(
        "body",
        message_id="everything",
        session_id="s-2",
        time_to_live=timedelta(hours=6),
        scheduled_enqueue_time_utc=LATER,
        application_properties={"number": 5},
    )
    properties = AmqpMessageProperties(message_id="value")
    return [
        ServiceBusMessage("body", message_id="plain"),
        everything,
        AmqpAnnotatedMessage(value_body={"a": 1}, properties=properties),
    ]


def test_what_this_version_puts_into_a_backlog_is_what_an_old_syphon_reads(tmp_path: Path) -> None:
    """By the rules of 0.1.0, written down in `envelope_0_1`."""
    with (
        LocalNamespace("contoso", queues=["orders"]) as primary,
        LocalNamespace("backup", data=tmp_path) as secondary,
    ):
        ends = [Namespace.from_connection_string(each.connection_string) for each in (primary, secondary)]
        options = SendAvailabilityPairedNamespaceOptions(ends[1], backlog_queue_count=1)
        with PairedServiceBusClient(ends[0], options) as bus:
            sender = bus.get_queue_sender("orders")
            bus.force_failover("orders", stay=True)
            for message in sent_by_this_version():
                sender.send_messages(message)
    rows = stored(tmp_path / "backup" / "store.sqlite", tmp_path)
    read = {message_id: read_envelope(payload) for message_id, payload in rows.items()}
    assert {message_id: each.path for message_id, each in read.items()} == dict.fromkeys(
        ("plain", "everything", "value"), "orders"
    )
    everything = read["everything"]
    assert (everything.session_id, everything.ttl_ms) == ("s-2", 6 * 3_600_000)
    assert everything.due_at_ms == round(LATER.timestamp() * 1000)
    assert everything.others == {"number": 5}
    assert (read["plain"].session_id, read["plain"].ttl_ms, read["plain"].due_at_ms) == (None, None, None)


def stored(store: Path, folder: Path) -> dict[str, bytes]:
    copy = shutil.copy(store, folder / "copy.sqlite")
    connection = sqlite3.connect(copy)
    rows = connection.execute("select message_id, payload from messages").fetchall()
    connection.close()
    return {str(message_id): payload for message_id, payload in rows}
