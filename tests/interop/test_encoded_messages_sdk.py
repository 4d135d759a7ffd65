"""Letters through the official SDK, sync and aio, to a real namespace and back: nothing of a message is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.aio import ServiceBusSender as AioSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient
from engine_client import EngineClient

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.client.sdk.messages import PairedMessageBatch, batch_of, encode_messages, for_schedule, prepare
from twinbus.connection_string import ConnectionString
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS, backlog_path
from twinbus.pairing.backlog.envelope import address, open_envelope
from twinbus.pairing.sending.encoded_messages import pack
from twinbus.testing import LocalNamespace

WAIT_S = 10
"""Upper bound; what is there comes at once."""

BACKLOG = backlog_path("contoso", 0)
PRESENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2090, 1, 2, 3, 4, 5, tzinfo=UTC)
GUID = uuid.UUID(int=77)

TYPED_PROPERTIES: dict[str | bytes, Any] = {
    "text": "ü", "whole": 7, "large": {TYPE: AMQPTypes.long, VALUE: 2**40}, "part": 1.5, "flag": True, "guid": GUID,
    "when": PRESENT,
}  # fmt: skip

SYSTEM_PROPERTIES: dict[str, Any] = {
    "message_id": "id-1",
    "correlation_id": "c-1",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply",
    "reply_to_session_id": "reply-session",
    "content_type": "text/plain",
    "session_id": "s-1",
    "partition_key": "s-1",
    "time_to_live": timedelta(minutes=5),
}


def everything() -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    """Messages of every kind of body, with every property that can be set."""
    return [
        ServiceBusMessage(b"\x00\xffbody", application_properties=dict(TYPED_PROPERTIES), **SYSTEM_PROPERTIES),
        ServiceBusMessage(None, message_id="empty"),
        AmqpAnnotatedMessage(data_body=[b"one", b"", bytes(70_000)], **_raw_parts("several")),
        AmqpAnnotatedMessage(value_body={"key": [1, "two", GUID, None], 5: b"raw"}, **_raw_parts("value")),
        AmqpAnnotatedMessage(sequence_body=[[1, "two"], [3.0, [True]]], **_raw_parts("sequence")),
    ]


def _raw_parts(message_id: str) -> dict[str, Any]:
    return {
        "header": AmqpMessageHeader(durable=True, priority=7),
        "properties": AmqpMessageProperties(
            message_id=message_id, user_id=b"user", content_encoding="gzip", group_sequence=3
        ),
        "application_properties": {"a": 1},
        "annotations": {"x-mine": 1},
        "footer": {"sum": 2},
    }


def visible_fields(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """All that a receiver sees of a message, but what the service says of its own copy of it."""
    raw = message.raw_amqp_message
    own = (b"x-opt-sequence", b"x-opt-enqueue", b"x-opt-locked", b"x-opt-message-state")
    times = ("creation_time", "absolute_expiry_time")  # the SDK writes them when it encodes: the test does so twice
    return {
        "body": raw.body if raw.body_type.value == "value" else list(raw.body),
        "body type": raw.body_type,
        "header": dict(raw.header or {}),
        "properties": {key: item for key, item in (raw.properties or {}).items() if key not in times},
        "application properties": raw.application_properties,
        "annotations": {key: item for key, item in (raw.annotations or {}).items() if not key.startswith(own)},  # type: ignore[arg-type]
        "footer": raw.footer,
        "time to live": message.time_to_live,
        "state": message.state,
    }


# --- one namespace for all: every link of an SDK costs a second to open and close -------------------


class Mailboxes:
    """Links to the queues of one namespace, of both SDK flavours, each opened when it is first used."""

    def __init__(self, namespace: LocalNamespace) -> None:
        self.connection_string = namespace.connection_string
        self._links, self._aio_links = ExitStack(), AsyncExitStack()
        self._runner = self._links.enter_context(asyncio.Runner())
        self._client = self._links.enter_context(
            ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)
        )
        self._aio_client = AioServiceBusClient.from_connection_string(self.connection_string, retry_total=0)
        self.sender = cache(lambda queue: self._links.enter_context(self._client.get_queue_sender(queue)))
        self.receiver = cache(lambda queue: self._links.enter_context(self._client.get_queue_receiver(queue)))
        self._aio_senders: dict[str, AioSender] = {}

    def close(self) -> None:
        self._runner.run(self._close_aio())
        self._links.close()

    async def _close_aio(self) -> None:
        await self._aio_links.aclose()
        await self._aio_client.close()

    def send_sync(self, queue: str, messages: list[Any]) -> None:
        for message in messages:
            self.sender(queue).send_messages(message, timeout=WAIT_S)

    def send_aio(self, queue: str, messages: list[Any]) -> None:
        self._runner.run(self._send_aio(queue, messages))

    async def _send_aio(self, queue: str, messages: list[Any]) -> None:
        if queue not in self._aio_senders:
            opened = await self._aio_links.enter_async_context(self._aio_client.get_queue_sender(queue))
            self._aio_senders[queue] = opened
        for message in messages:
            await self._aio_senders[queue].send_messages(message, timeout=WAIT_S)

    def receive(self, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
        """Exactly this many messages, in order, completed."""
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < count:
            got = self.receiver(queue).receive_messages(count - len(found), max_wait_time=WAIT_S)
            assert got, f"only {len(found)} of {count} messages came within {WAIT_S} s"
            for message in got:
                self.receiver(queue).complete_message(message)
            found += got
        return found

    def take_encoded(self, queue: str, count: int) -> list[bytes]:
        """The bytes of deliveries, which no SDK shows, by our own engine."""
        to = ConnectionString.parse(self.connection_string)
        reader = PayloadReader(to.port, to.key_name, to.key)
        with reader:
            link = reader.receiver(queue, credit=count)
            assert isinstance(link, ReceivingLink)
            return [reader.next_payload(link) for _ in range(count)]


class PayloadReader(EngineClient):
    def next_payload(self, link: ReceivingLink) -> bytes:
        return self._next(TransferArrived, link=link).payload


@pytest.fixture(scope="module")
def mailboxes() -> Iterator[Mailboxes]:
    with LocalNamespace("local", queues=["plain", "encoded", BACKLOG, "to-be-opened"]) as namespace:
        mailboxes = Mailboxes(namespace)
        yield mailboxes
        mailboxes.close()


Send = Callable[[str, list[Any]], None]


@pytest.fixture(params=["sync", "aio"])
def send(request: pytest.FixtureRequest, mailboxes: Mailboxes) -> Send:
    return mailboxes.send_sync if request.param == "sync" else mailboxes.send_aio


def encode_received(message: ServiceBusReceivedMessage) -> bytes:
    """The message as it would be sent on."""
    return encode_messages(prepare(message))[0]


# --- what must be true -----------------------------------------------------------------------------


def test_encoded_messages_in_a_batch_arrive_as_the_messages_they_were_made_from(
    mailboxes: Mailboxes, send: Send
) -> None:
    send("plain", everything())
    send("encoded", [batch_of(encode_messages(prepare(everything())))])
    plain, messages = mailboxes.receive("plain", 5), mailboxes.receive("encoded", 5)
    assert [visible_fields(message) for message in messages] == [visible_fields(message) for message in plain]
    assert messages[0].application_properties == {
        b"text": "ü".encode(), b"whole": 7, b"large": 2**40, b"part": 1.5, b"flag": True, b"guid": GUID,
        b"when": int(PRESENT.timestamp() * 1000),
    }  # fmt: skip
    assert {name: getattr(messages[0], name) for name in SYSTEM_PROPERTIES} == SYSTEM_PROPERTIES


def test_addressed_messages_arrive_with_their_aliases_instead_of_what_moved(mailboxes: Mailboxes, send: Send) -> None:
    messages = everything()
    messages[0].scheduled_enqueue_time_utc = LATER  # type: ignore[union-attr]
    sent = [address(message, "orders") for message in encode_messages(prepare(messages))]
    batches = pack(sent, 256 * 1024)
    assert len(batches) == 1
    send(BACKLOG, [batch_of(batch) for batch in batches])
    found = mailboxes.receive(BACKLOG, 5)
    assert found[0].application_properties is not None
    assert {key: item for key, item in found[0].application_properties.items() if key.startswith(b"x-ms-")} == {  # type: ignore[arg-type]
        b"x-ms-path": b"orders",
        b"x-ms-sessionid": b"s-1",
        b"x-ms-timetolive": 300_000,
        b"x-ms-scheduledenqueuetimeutc": int(LATER.timestamp() * 1000),
    }
    assert found[0].session_id is None
    assert found[0].time_to_live is None
    assert found[0].scheduled_enqueue_time_utc is None
    assert [
        message.application_properties[b"x-ms-path"] for message in found[1:] if message.application_properties
    ] == ([b"orders"] * 4)


def test_a_message_that_was_opened_arrives_at_home_like_one_that_was_never_away(
    mailboxes: Mailboxes, send: Send
) -> None:
    messages = encode_messages(prepare(everything()))
    send("to-be-opened", [batch_of([address(message, "encoded") for message in messages])])
    homeward = [open_envelope(message) for message in mailboxes.take_encoded("to-be-opened", 5)]
    assert {home.path for home in homeward} == {"encoded"}
    send("encoded", [batch_of([home.encoded for home in homeward])])
    send("plain", everything())
    plain, home_again = mailboxes.receive("plain", 5), mailboxes.receive("encoded", 5)
    assert [visible_fields(message) for message in home_again] == [visible_fields(message) for message in plain]


def test_our_batch_is_sent_by_either_kind_of_sender(mailboxes: Mailboxes, send: Send) -> None:
    batch = PairedMessageBatch(10_000)
    batch.add_message(ServiceBusMessage("one", message_id="a"))
    batch.add_message(AmqpAnnotatedMessage(data_body=b"two"))
    batch.add_message({"body": "three"})
    send("plain", [batch])
    found = mailboxes.receive("plain", 3)
    assert [str(message) for message in found] == ["one", "two", "three"]
    assert tuple(message.message_id for message in found) == batch.message_ids


def test_every_kind_of_prepared_message_is_sent_and_received_under_its_ids(mailboxes: Mailboxes, send: Send) -> None:
    prepared = [prepare(one) for one in (
        ServiceBusMessage("1"), [ServiceBusMessage("2"), AmqpAnnotatedMessage(data_body=b"3")], {"body": "4"},
        AmqpAnnotatedMessage(data_body=b"5"),
    )]  # fmt: skip
    send("plain", [each.message for each in prepared])
    found = mailboxes.receive("plain", 5)
    assert [message.message_id for message in found] == [an_id for each in prepared for an_id in each.ids]


def test_a_received_message_can_take_the_detour(mailboxes: Mailboxes, send: Send) -> None:
    send("plain", [ServiceBusMessage("again", message_id="a", application_properties={"k": "v"})])
    (received,) = mailboxes.receive("plain", 1)
    message = address(encode_received(received), "orders")
    send(BACKLOG, [batch_of([message])])
    (found,) = mailboxes.receive(BACKLOG, 1)
    assert (str(found), found.message_id) == ("again", "a")
    assert found.application_properties == {b"k": b"v", b"x-ms-path": b"orders"}


def test_a_scheduled_message_lies_in_the_backlog_at_once(mailboxes: Mailboxes, send: Send) -> None:
    messages = for_schedule(prepare([ServiceBusMessage("1"), ServiceBusMessage("2")]), LATER)
    send(BACKLOG, [batch_of([address(message, "orders") for message in messages])])
    for message in mailboxes.receive(BACKLOG, 2):
        assert message.application_properties is not None
        assert message.application_properties[b"x-ms-scheduledenqueuetimeutc"] == int(LATER.timestamp() * 1000)


def test_a_batch_packed_to_the_limit_is_taken(mailboxes: Mailboxes, send: Send) -> None:
    messages = encode_messages(prepare([ServiceBusMessage(bytes(5_000), message_id=f"id-{n}") for n in range(120)]))
    batches = pack([address(message, "orders") for message in messages], 256 * 1024)
    assert len(batches) == 3
    send(BACKLOG, [batch_of(batch) for batch in batches])
    found = mailboxes.receive(BACKLOG, 120)
    assert [message.message_id for message in found] == [f"id-{n}" for n in range(120)]


def test_a_backlog_queue_can_be_made_with_the_settings(namespace: LocalNamespace) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_file)
    ) as admin:
        made: QueueProperties = admin.create_queue(BACKLOG, **BACKLOG_SETTINGS)  # type: ignore[arg-type]
        assert made.name == BACKLOG
        found = admin.get_queue(BACKLOG)
    assert (found.max_size_in_megabytes, found.max_delivery_count) == (5120, 2**31 - 1)
    assert (found.lock_duration, found.dead_lettering_on_message_expiration) == (timedelta(minutes=1), True)
    assert found.enable_batched_operations
    assert isinstance(found.auto_delete_on_idle, timedelta)
    assert found.auto_delete_on_idle >= timedelta(days=10_675_199)
