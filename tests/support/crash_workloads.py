"""Applications on each kind of entity, to be interrupted, and what must be true of each kind afterwards.

A workload makes its entities, works on them until the namespace is gone, and keeps a tally of the answers. Then,
on whatever is left, it looks whether all of that is still true.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, ClassVar

from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.management import (
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)
from message_tally import MessageTally, assert_in_order

WAIT_S = 20
"""Upper bound; what is there comes at once."""
SOON, LATE = timedelta(seconds=1), timedelta(hours=1)
SCHEDULED, DEFERRED = ServiceBusMessageState.SCHEDULED, ServiceBusMessageState.DEFERRED

Work = Callable[[ServiceBusClient], Awaitable[None]]
Place = Callable[..., AbstractAsyncContextManager[ServiceBusReceiver]]
"""Makes receivers of one queue or subscription."""


class Workload(ABC):
    """One kind of entity and its application. `tally` is what the application was promised so far."""

    def __init__(self) -> None:
        self.tally = MessageTally()

    @abstractmethod
    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        """Make the entities."""

    @property
    @abstractmethod
    def works(self) -> tuple[Work, ...]:
        """What goes on side by side, until it is cancelled or the namespace is gone."""

    @abstractmethod
    async def audit(self, client: ServiceBusClient) -> None:
        """Raises `AssertionError` if something that was promised is not so."""

    async def send_numbers(
        self, sender: ServiceBusSender, parts: Callable[[int], dict[str, Any]] = lambda _: {}
    ) -> None:
        """Send 0, 1, 2 ... with these parts: one message, then three together, and so on."""
        first = 0
        for size in (1, 3) * 1_000_000:
            numbers = range(first, first := first + size)
            messages = [ServiceBusMessage(str(each), message_id=str(each), **parts(each)) for each in numbers]
            names = [str(message) for message in messages]
            self.tally.began(names)
            await sender.send_messages(messages if size > 1 else messages[0], timeout=WAIT_S)
            self.tally.stored.update(names)

    async def complete_slowly(self, receiver: ServiceBusReceiver) -> None:
        """Complete what comes, more slowly than it is sent."""
        while True:
            for message in await receiver.receive_messages(3, max_wait_time=WAIT_S):
                self.tally.ending.add(str(message))
                await receiver.complete_message(message)
                self.tally.ended.add(str(message))
            await asyncio.sleep(0.02)


async def peek_all(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while got := await receiver.peek_messages(250, sequence_number=_after(found)):
        found += got
    return found


def _after(messages: Sequence[ServiceBusReceivedMessage]) -> int:
    return (messages[-1].sequence_number or 0) + 1 if messages else 0


async def take_all(place: Place, **options: Any) -> list[ServiceBusReceivedMessage]:
    """Everything that can be received there; that is what peeking shows, but for what is deferred or scheduled."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with place(receive_mode=mode, prefetch_count=500, **options) as receiver:
        peeked = [each for each in await peek_all(receiver) if each.state not in (SCHEDULED, DEFERRED)]
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < len(peeked):
            got = await receiver.receive_messages(len(peeked) - len(found), max_wait_time=WAIT_S)
            assert got, "what was shown cannot be received"
            found += got
    return found


def names_of(messages: Sequence[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def queue(client: ServiceBusClient, name: str) -> Place:
    return lambda **options: client.get_queue_receiver(name, keep_alive=0, **options)


def subscription(client: ServiceBusClient, topic: str, name: str) -> Place:
    return lambda **options: client.get_subscription_receiver(topic, name, keep_alive=0, **options)


class TopicWithRules(Workload):
    WANTS: ClassVar[dict[str, Callable[[int], bool]]] = {
        "all": lambda _: True,
        "large": lambda number: number % 200 > 100,
        "red": lambda number: number % 2 == 1,
    }

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_topic("events")
        for name in self.WANTS:
            admin.create_subscription("events", name)
        action = SqlRuleAction("SET checked = 'yes'")
        admin.create_rule("events", "large", "amount", filter=SqlRuleFilter("amount > 100"), action=action)
        admin.create_rule("events", "red", "colour", filter=CorrelationRuleFilter(label="red"))
        for name in ("large", "red"):
            admin.delete_rule("events", name, "$Default")

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._publish,)

    @staticmethod
    def _parts(number: int) -> dict[str, Any]:
        return {"subject": ("blue", "red")[number % 2], "application_properties": {"amount": number % 200}}

    async def _publish(self, client: ServiceBusClient) -> None:
        async with client.get_topic_sender("events") as sender:
            await self.send_numbers(sender, self._parts)

    async def audit(self, client: ServiceBusClient) -> None:
        found = {name: await take_all(subscription(client, "events", name)) for name in self.WANTS}
        there = names_of(found["all"])
        self.tally.check(there)
        assert_in_order(there)
        for name, wants in self.WANTS.items():
            assert names_of(found[name]) == [each for each in there if wants(int(each))], f"'{name}' has others"
        for message in found["large"]:
            assert (message.application_properties or {}).get(b"checked") == b"yes", "an action was not done"
        await self._try_rules(client)

    async def _try_rules(self, client: ServiceBusClient) -> None:
        """The rules themselves were kept too."""
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages([ServiceBusMessage(str(each), **self._parts(each)) for each in (100, 101)])
        for name, wants in self.WANTS.items():
            found = names_of(await take_all(subscription(client, "events", name)))
            assert found == [str(each) for each in (100, 101) if wants(each)], f"the rules of '{name}' have changed"


class Sessions(Workload):
    NAMES = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, list[bytes | None]] = {name: [None] for name in self.NAMES}
        """By session: the last state whose setting was answered, and one that is being set."""

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_queue("sessions", requires_session=True)

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._send, *(self._receiver_of(name) for name in self.NAMES[:2]))

    async def _send(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("sessions") as sender:
            await self.send_numbers(sender, lambda number: {"session_id": self.NAMES[number % 3]})

    def _receiver_of(self, name: str) -> Work:
        async def receive(client: ServiceBusClient) -> None:
            async with client.get_queue_receiver("sessions", session_id=name) as receiver:
                while True:
                    for message in await receiver.receive_messages(2, max_wait_time=WAIT_S):
                        self.tally.ending.add(str(message))
                        await receiver.complete_message(message)
                        self.tally.ended.add(str(message))
                        self.states[name].append(str(message).encode())
                        await receiver.session.set_state(str(message))
                        del self.states[name][:-1]
                    await asyncio.sleep(0.02)

        return receive

    async def audit(self, client: ServiceBusClient) -> None:
        found: list[str] = []
        for name in self.NAMES:
            place = queue(client, "sessions")
            async with place(session_id=name) as receiver:
                state = await receiver.session.get_state()
            assert (state or None) in self.states[name], f"session {name} has the state {state!r}"
            mine = names_of(await take_all(place, session_id=name))
            assert_in_order(mine)
            assert all(self.NAMES[int(each) % 3] == name for each in mine), "in another session"
            found += mine
        self.tally.check(found)


class WithoutDuplicates(Workload):
    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_queue("once", requires_duplicate_detection=True)

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._send, self._receive)

    async def _send(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("once") as sender:
            await self.send_numbers(sender)

    async def _receive(self, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("once") as receiver:
            await self.complete_slowly(receiver)

    async def audit(self, client: ServiceBusClient) -> None:
        """Everything is sent a second time: what was in doubt is there now, and nothing is there twice."""
        names = sorted(self.tally.sent)
        async with client.get_queue_sender("once") as sender:
            for first in range(0, len(names), 100):
                some = names[first : first + 100]
                await sender.send_messages([ServiceBusMessage(name, message_id=name) for name in some])
        self.tally.stored = self.tally.sent
        self.tally.check(names_of(await take_all(queue(client, "once"))))


class ForwardingChain(Workload):
    """A subscription and two queues that forward, one of which has to look for duplicates, and where it ends."""

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_queue("end")
        admin.create_queue("way-2", requires_duplicate_detection=True, forward_to="end")
        admin.create_queue("way-1", forward_to="way-2")
        admin.create_topic("start")
        admin.create_subscription("start", "on", forward_to="way-1")

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._send,)

    async def _send(self, client: ServiceBusClient) -> None:
        async with client.get_topic_sender("start") as sender:
            await self.send_numbers(sender)

    async def audit(self, client: ServiceBusClient) -> None:
        found: list[str] = []
        async with asyncio.timeout(WAIT_S), queue(client, "end")() as receiver:
            while self.tally.must_be_there - set(found):  # what rested on the way goes on by itself
                found = names_of(await peek_all(receiver))
                await asyncio.sleep(0.05)
        self.tally.check(names_of(await take_all(queue(client, "end"))))
        assert_in_order(found)
        for place in (queue(client, "way-1/$deadletterqueue"), queue(client, "way-2/$transfer/$deadletterqueue")):
            assert await take_all(place) == [], "put aside on the way"


class Scheduled(Workload):
    """Schedules that come about while all this happens, others that are cancelled, and those of a topic."""

    def __init__(self) -> None:
        super().__init__()
        self.late = MessageTally()
        self.published = MessageTally()

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        for name in ("soon", "late"):
            admin.create_queue(name)
        admin.create_topic("diary")
        admin.create_subscription("diary", "all")

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._soon, self._publish, self._late)

    async def _soon(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("soon") as sender:
            await self._schedule(sender, self.tally, SOON)

    async def _publish(self, client: ServiceBusClient) -> None:
        async with client.get_topic_sender("diary") as sender:
            await self._schedule(sender, self.published, SOON)

    async def _late(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("late") as sender:
            await self._schedule(sender, self.late, LATE)

    async def _schedule(self, sender: ServiceBusSender, tally: MessageTally, wait: timedelta) -> None:
        for number in count():
            names = [f"{number}-{part}" for part in range(2)]
            tally.began(names)
            at = datetime.now(UTC) + wait
            sequences = await sender.schedule_messages([ServiceBusMessage(name) for name in names], at)
            tally.stored.update(names)
            if wait is LATE:
                tally.ending.add(names[0])
                await sender.cancel_scheduled_messages(sequences[0])
                tally.ended.add(names[0])

    async def audit(self, client: ServiceBusClient) -> None:
        async with queue(client, "late")() as receiver:
            waiting = await peek_all(receiver)
        assert all(message.state is SCHEDULED for message in waiting), "awake before its time"
        self.late.check(names_of(waiting))
        await asyncio.sleep(SOON.total_seconds() + 0.2)
        for place, tally in (
            (queue(client, "soon"), self.tally),
            (subscription(client, "diary", "all"), self.published),
        ):
            found = await take_all(place)
            tally.check(names_of(found))
            for message in found:
                assert message.enqueued_time_utc is not None
                due = message.scheduled_enqueue_time_utc
                assert due is None or message.enqueued_time_utc >= due, "awake before its time"


class Deferred(Workload):
    def __init__(self) -> None:
        super().__init__()
        self.put_aside: dict[str, int] = {}
        """Sequences of messages whose deferral was answered."""

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_queue("aside")

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._send, self._defer)

    async def _send(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("aside") as sender:
            await self.send_numbers(sender)

    async def _defer(self, client: ServiceBusClient) -> None:
        async with queue(client, "aside")() as receiver:
            while True:
                for message in await receiver.receive_messages(3, max_wait_time=WAIT_S):
                    await receiver.defer_message(message)
                    self.put_aside[str(message)] = message.sequence_number or 0
                name, sequence = next(iter(self.put_aside.items()))
                (again,) = await receiver.receive_deferred_messages(sequence)
                self.tally.ending.add(name)
                del self.put_aside[name]
                await receiver.complete_message(again)
                self.tally.ended.add(name)

    async def audit(self, client: ServiceBusClient) -> None:
        async with queue(client, "aside")() as receiver:
            found = await peek_all(receiver)
            self.tally.check(names_of(found))
            aside = {str(message): message.sequence_number for message in found if message.state is DEFERRED}
            assert self.put_aside.items() <= aside.items(), "deferred and lost, or with another number"
            sequences = list(self.put_aside.values())
            for first in range(0, len(sequences), 50):
                some = sequences[first : first + 50]
                assert len(await receiver.receive_deferred_messages(some)) == len(some)
        active = await take_all(queue(client, "aside"))
        assert set(names_of(active)) == {str(message) for message in found} - set(aside)


class Partitioned(Workload):
    KEYS = 4

    def prepare(self, admin: ServiceBusAdministrationClient) -> None:
        admin.create_queue("partitioned", enable_partitioning=True)

    @property
    def works(self) -> tuple[Work, ...]:
        return (self._send, self._receive)

    async def _send(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("partitioned") as sender:
            await self.send_numbers(sender, lambda number: {"partition_key": f"key-{number % self.KEYS}"})

    async def _receive(self, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("partitioned") as receiver:
            await self.complete_slowly(receiver)

    async def audit(self, client: ServiceBusClient) -> None:
        found = await take_all(queue(client, "partitioned"))
        self.tally.check(names_of(found))
        for key in range(self.KEYS):
            mine = [str(message) for message in found if message.partition_key == f"key-{key}"]
            assert_in_order(mine)
            assert all(int(name) % self.KEYS == key for name in mine), "with another key"


WORKLOADS: tuple[type[Workload], ...] = (
    TopicWithRules, Sessions, WithoutDuplicates, ForwardingChain, Scheduled, Deferred, Partitioned,
)  # fmt: skip
