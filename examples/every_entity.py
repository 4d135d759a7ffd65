"""One small application on every kind of entity, with three clients: the SDK's sync one, its asyncio one, Qpid Proton.

    python examples/every_entity.py "CONNECTION STRING"      # what `twinbus serve` prints; without it, one in memory

Each client tells the same story: it sends LETTERS and finds in every source of MAIL exactly what belongs there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.management import CorrelationRuleFilter, ServiceBusAdministrationClient, SqlRuleAction
from azure.servicebus.management import SqlRuleFilter as Sql
from proton import Message, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection

from twinbus import Namespace
from twinbus.testing import LocalNamespace

WAIT_S = 10
TOPIC = "events"


class Letter(NamedTuple):
    to: str
    body: str
    id: str
    session: str | None = None
    amount: int = 0


class Source(NamedTuple):
    path: str
    session: str | None = None


Mail = dict[Source, list[str]]
LETTERS = [
    Letter("plain", "hello", "1"),
    Letter("partitioned", "in one of many partitions", "1"),
    Letter("once", "first", "same"), Letter("once", "again", "same"), Letter("once", "other", "2"),
    Letter("sessions", "a1", "1", "a"), Letter("sessions", "b1", "2", "b"), Letter("sessions", "a2", "3", "a"),
    Letter("first-stop", "passed on", "1"),
    Letter(TOPIC, "small", "1", "a", amount=5), Letter(TOPIC, "large", "2", "b", amount=500),
]  # fmt: skip
PATHS = ("plain", "partitioned", "once", "sessions", "first-stop", TOPIC)
ENDS = ("last-stop", "letter-box")
"""Where forwarded messages come to rest."""
MAIL: Mail = {
    Source("plain"): ["hello"],
    Source("partitioned"): ["in one of many partitions"],
    Source("once"): ["first", "other"],
    Source("last-stop"): ["passed on"],
    Source("letter-box"): ["large"],
    Source("sessions", "a"): ["a1", "a2"],
    Source("sessions", "b"): ["b1"],
    Source(f"{TOPIC}/Subscriptions/all"): ["small", "large"],
    Source(f"{TOPIC}/Subscriptions/large"): ["large"],
    Source(f"{TOPIC}/Subscriptions/two"): ["large"],
    Source(f"{TOPIC}/Subscriptions/by-session", "b"): ["large"],
}


def make_entities(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("plain")
    admin.create_queue("partitioned", enable_partitioning=True)
    admin.create_queue("once", requires_duplicate_detection=True)
    admin.create_queue("sessions", requires_session=True)
    for name in ENDS:
        admin.create_queue(name)
    admin.create_queue("first-stop", forward_to="last-stop")
    admin.create_topic(TOPIC)
    for name in ("all", "large", "two", "by-session"):
        admin.create_subscription(TOPIC, name, requires_session=name == "by-session")
    admin.create_subscription(TOPIC, "on-the-way", forward_to="letter-box")
    for name in ("large", "two", "on-the-way"):
        admin.delete_rule(TOPIC, name, "$Default")
    admin.create_rule(TOPIC, "large", "sql", filter=Sql("amount > 100"), action=SqlRuleAction("SET checked = 'yes'"))
    for name in ("two", "on-the-way"):
        admin.create_rule(TOPIC, name, "by-id", filter=CorrelationRuleFilter(message_id="2"))


def as_message(letter: Letter) -> ServiceBusMessage:
    properties: dict[Any, Any] = {"amount": letter.amount}
    return ServiceBusMessage(
        letter.body, message_id=letter.id, session_id=letter.session, application_properties=properties
    )


def place(source: Source) -> dict[str, Any]:
    """Where the SDK's receivers are made."""
    topic, _, subscription = source.path.partition("/Subscriptions/")
    where = {"topic_name": topic, "subscription_name": subscription} if subscription else {"queue_name": topic}
    return {**where, "session_id": source.session} if source.session else where


def with_threads(string: str) -> Mail:
    def send(path: str) -> None:
        make = client.get_topic_sender if path == TOPIC else client.get_queue_sender
        with make(path) as sender:
            sender.send_messages([as_message(letter) for letter in LETTERS if letter.to == path])

    def receive(source: Source) -> list[str]:
        found: list[str] = []
        make: Callable[..., Any] = client.get_subscription_receiver if "/" in source.path else client.get_queue_receiver
        with make(**place(source)) as receiver:
            while len(found) < len(MAIL[source]):
                for message in receiver.receive_messages(len(MAIL[source]), max_wait_time=WAIT_S):
                    found.append(str(message))
                    receiver.complete_message(message)
        return found

    with ServiceBusClient.from_connection_string(string) as client, ThreadPoolExecutor(len(MAIL)) as threads:
        list(threads.map(send, PATHS))
        return dict(zip(MAIL, threads.map(receive, MAIL), strict=True))


async def with_tasks(string: str) -> Mail:
    async def send(path: str) -> None:
        make = client.get_topic_sender if path == TOPIC else client.get_queue_sender
        async with make(path) as sender:
            await sender.send_messages([as_message(letter) for letter in LETTERS if letter.to == path])

    async def receive(source: Source) -> list[str]:
        found: list[str] = []
        make: Callable[..., Any] = client.get_subscription_receiver if "/" in source.path else client.get_queue_receiver
        async with make(**place(source)) as receiver:
            while len(found) < len(MAIL[source]):
                for message in await receiver.receive_messages(len(MAIL[source]), max_wait_time=WAIT_S):
                    found.append(str(message))
                    await receiver.complete_message(message)
        return found

    async with AsyncServiceBusClient.from_connection_string(string) as client:
        await asyncio.gather(*map(send, PATHS))
        return dict(zip(MAIL, await asyncio.gather(*map(receive, MAIL)), strict=True))


def with_proton(string: str) -> Mail:
    parts = dict(part.split("=", 1) for part in string.split(";") if part)
    key: Any = {"user": parts["SharedAccessKeyName"], "password": parts["SharedAccessKey"]}
    address = "amqp" + parts["Endpoint"].removeprefix("sb").rstrip("/")
    connection = BlockingConnection(address, WAIT_S, allowed_mechs="PLAIN", allow_insecure_mechs=True, **key)
    senders = {path: connection.create_sender(path) for path in PATHS}
    for to, body, number, session, amount in LETTERS:
        senders[to].send(Message(body, id=number, group_id=session, properties={"amount": amount}))
    found: Mail = {}
    for source, mail in MAIL.items():
        only: Any = {symbol("com.microsoft:session-filter"): source.session} if source.session else {}
        receiver = connection.create_receiver(source.path, credit=len(mail), options=Filter(only))
        for _ in mail:
            found.setdefault(source, []).append(str(receiver.receive(WAIT_S).body))
            receiver.accept()
        receiver.close()  # type: ignore[no-untyped-call]
    connection.close()
    return found


CLIENTS: dict[str, Callable[[str], Mail]] = {
    "sync": with_threads,
    "asyncio": lambda string: asyncio.run(with_tasks(string)),
    "proton": with_proton,
}


def is_right(client: str, string: str) -> bool:
    """Whether a client finds everything where it belongs, and nothing else is there."""
    with Namespace.from_connection_string(string).admin_client(attempt_s=WAIT_S) as admin:
        make_entities(admin)
        found = CLIENTS[client](string)
        left = leftovers(admin)
        for path in (*PATHS, *ENDS):
            (admin.delete_topic if path == TOPIC else admin.delete_queue)(path)
    return found == MAIL and left == {"by-session": 1}  # its session "a" was not asked for


def leftovers(admin: ServiceBusAdministrationClient) -> dict[str, int]:
    queues = {each.name: each.total_message_count or 0 for each in admin.list_queues_runtime_properties()}
    subscriptions = admin.list_subscriptions_runtime_properties(TOPIC)
    counts = {**queues, **{each.name: each.total_message_count or 0 for each in subscriptions}}
    return {name: count for name, count in counts.items() if count}


def main() -> None:
    with LocalNamespace() as local:
        string = sys.argv[1] if len(sys.argv) > 1 else local.connection_string
        results = {client: is_right(client, string) for client in CLIENTS}
    for client, right in results.items():
        sys.stdout.write(f"{client}: {'every message where it belongs' if right else 'WRONG'}\n")
    sys.exit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()
