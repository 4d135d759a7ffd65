"""What pairing costs while all is well: CPU of a paired send beside a send of the plain SDK, and the rates.

Both send equal messages to the same queue over links that are open. They take turns after a few calls, so that whatever
else the machine does happens to both; not after each call, because an application uses one of them, and finds its code
in the processor's caches. What counts is the CPU time of the thread that sends: a round's is that of its usual call
(the median; a call that was interrupted says more about the interruption), and the row's the median over all rounds.
The ratio of all the time that was spent is kept beside it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

import twinbus.aio
from bench.namespaces import QUEUE, ServedNamespace
from bench.results import Must, Row
from twinbus import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions

BODY = bytes(range(256)) * 4
RATIO_MAX = 1.03
PLAIN, PAIRED = 0, 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What is sent: so many messages a call, and how the call gets them."""

    name: str
    messages: int
    turns: int
    """How often each of the two has its turn in a round."""
    calls: int
    """Calls a turn."""
    is_batch: bool = False
    has_ids: bool = True

    @property
    def must(self) -> Must | None:
        """A message without an id is given one, which then is sent, too: more than the same work, shown but not held
        against it."""
        return Must("<=", RATIO_MAX) if self.has_ids else None


KINDS = (
    Kind("one message", 1, 10, 30),
    Kind("list of 100", 100, 4, 5),
    Kind("batch of 100", 100, 4, 5, is_batch=True),
    Kind("one message, id given", 1, 10, 30, has_ids=False),
)


@dataclass(slots=True)
class Spent:
    """CPU and wall seconds of the calls of one sender, round by round."""

    cpu_s: list[list[float]] = field(default_factory=list)
    wall_s: list[list[float]] = field(default_factory=list)

    def new_round(self) -> None:
        gc.collect()
        self.cpu_s.append([])
        self.wall_s.append([])

    def note(self, cpu_at: float, wall_at: float) -> None:
        """A call that began at these times has just ended."""
        self.cpu_s[-1].append(time.thread_time() - cpu_at)
        self.wall_s[-1].append(time.perf_counter() - wall_at)

    @property
    def usual_cpu_s(self) -> list[float]:
        """Of a call, in each round."""
        return [median(calls) for calls in self.cpu_s]

    @property
    def all_cpu_s(self) -> float:
        return sum(map(sum, self.cpu_s))

    @property
    def round_s(self) -> list[float]:
        return [sum(calls) for calls in self.wall_s]


def measure(primary: ServedNamespace, secondary: ServedNamespace, rounds: int) -> list[Row]:
    """The rows, first on threads, then on tasks."""
    gc.collect()
    gc.freeze()  # what is there already is not looked through again in the middle of a send
    try:
        on_threads = [_row("threads", kind, *_on_threads(primary, secondary, kind, rounds)) for kind in KINDS]
        on_tasks = [_row("tasks", kind, *asyncio.run(_on_tasks(primary, secondary, kind, rounds))) for kind in KINDS]
        return on_threads + on_tasks
    finally:
        gc.unfreeze()


def _row(flavour: str, kind: Kind, plain: Spent, paired: Spent) -> Row:
    return row(f"CPU, paired : SDK, {flavour}, {kind.name}", kind, plain, paired, kind.must)


def row(name: str, kind: Kind, plain: Spent, paired: Spent, must: Must | None) -> Row:
    """The ratio of what the second and the first have spent."""
    ratios = _ratios(paired.usual_cpu_s, plain.usual_cpu_s)
    low, _, high = quantiles(ratios, n=4)
    sent = kind.turns * kind.calls * kind.messages
    details = {
        "rounds": len(ratios),
        "quartiles": [round(low, 3), round(high, 3)],
        "least_and_most": [round(min(ratios), 3), round(max(ratios), 3)],
        "of_all_cpu": round(paired.all_cpu_s / plain.all_cpu_s, 3),
        "plain_cpu_us": round(median(plain.usual_cpu_s) / kind.messages * 1e6, 1),
        "paired_cpu_us": round(median(paired.usual_cpu_s) / kind.messages * 1e6, 1),
        "rate_ratio": round(median(_ratios(plain.round_s, paired.round_s)), 3),
        "plain_per_s": round(sent / median(plain.round_s)),
        "paired_per_s": round(sent / median(paired.round_s)),
    }
    note = f"{low:.3f}..{high:.3f}, rate {details['rate_ratio']:.3f}"
    return Row(name, median(ratios), "x", must, note=note, details=details)


def _ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def _order(kind: Kind) -> list[int]:
    """Whose call it is, for a round: nobody is always the first."""
    turns = [(PLAIN, PAIRED) if turn % 2 else (PAIRED, PLAIN) for turn in range(kind.turns)]
    return [which for pair in turns for which in pair for _ in range(kind.calls)]


def _messages(kind: Kind) -> Any:
    """What one call sends; for a batch, what is put into it."""
    ids = [f"order-{number:026}" if kind.has_ids else None for number in range(kind.messages)]
    made = [ServiceBusMessage(BODY, message_id=each) for each in ids]
    return made if kind.messages > 1 else made[0]


def paired_client(
    client: Callable[..., Any], primary: ServedNamespace, secondary: ServedNamespace, ledger: Path | None = None
) -> Any:
    options = SendAvailabilityPairedNamespaceOptions(secondary.namespace, backlog_queue_count=1, ledger=ledger)
    return client(primary.namespace, options)


# --- threads ---


def _on_threads(primary: ServedNamespace, secondary: ServedNamespace, kind: Kind, rounds: int) -> tuple[Spent, Spent]:
    with (
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
        client.get_queue_sender(QUEUE) as plain,
        paired_client(PairedServiceBusClient, primary, secondary) as bus,
        bus.get_queue_sender(QUEUE) as paired,
    ):
        return in_turns((plain, paired), kind, rounds)


def in_turns(senders: tuple[Any, Any], kind: Kind, rounds: int) -> tuple[Spent, Spent]:
    """What each of two senders spends, in rounds in which they take turns."""
    spent = (Spent(), Spent())
    for sender in senders:
        sender.send_messages(_messages(kind))
    for _ in range(rounds):
        for each in spent:
            each.new_round()
        for which in _order(kind):
            _send(senders[which], kind, spent[which])
    return spent


def _send(sender: Any, kind: Kind, spent: Spent) -> None:
    messages = _messages(kind)
    cpu_at, wall_at = time.thread_time(), time.perf_counter()
    if kind.is_batch:
        batch = sender.create_message_batch()
        for message in messages:
            batch.add_message(message)
        messages = batch
    sender.send_messages(messages)
    spent.note(cpu_at, wall_at)


# --- tasks ---


async def _on_tasks(
    primary: ServedNamespace, secondary: ServedNamespace, kind: Kind, rounds: int
) -> tuple[Spent, Spent]:
    async with AsyncExitStack() as stack:
        client = AioServiceBusClient.from_connection_string(primary.connection_string)
        plain = await stack.enter_async_context((await stack.enter_async_context(client)).get_queue_sender(QUEUE))
        bus = await stack.enter_async_context(paired_client(twinbus.aio.PairedServiceBusClient, primary, secondary))
        senders = (plain, await stack.enter_async_context(bus.get_queue_sender(QUEUE)))
        return await in_turns_on_tasks(senders, kind, rounds)


async def in_turns_on_tasks(senders: tuple[Any, Any], kind: Kind, rounds: int) -> tuple[Spent, Spent]:
    spent = (Spent(), Spent())
    for sender in senders:
        await sender.send_messages(_messages(kind))
    for _ in range(rounds):
        for each in spent:
            each.new_round()
        for which in _order(kind):
            await _send_in_task(senders[which], kind, spent[which])
    return spent


async def _send_in_task(sender: Any, kind: Kind, spent: Spent) -> None:
    messages = _messages(kind)
    cpu_at, wall_at = time.thread_time(), time.perf_counter()
    if kind.is_batch:
        batch = await sender.create_message_batch()
        for message in messages:
            batch.add_message(message)
        messages = batch
    await sender.send_messages(messages)
    spent.note(cpu_at, wall_at)
