"""What an outage costs whoever sends: the longest time without an accepted send, and the way back.

Clients on threads and on tasks, patient and impatient ones, send all the time, each to a queue of its own; the primary
becomes unreachable in one of three ways for all of them at once, and after a while comes back.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

import twinbus.aio
from bench.namespaces import ServedNamespace
from bench.results import Must, Row
from twinbus import NamespaceSide, PairedServiceBusClient, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.sending.retry import longest_s

HOWS = ("refuse", "drop", "silent")
ATTEMPTS = (3, 1)
ATTEMPT = timedelta(seconds=0.5)
PING_INTERVAL = timedelta(seconds=1)
ALLOWED_S = 0.3
"""How much longer than the retry schedule the gap may be."""
PAUSE_S = 0.005
SOME_SENDS = 20
PATIENCE_S = 30.0
SEED = 20
QUEUES = tuple(f"gap-{number}" for number in range(2 * len(ATTEMPTS)))


class Traffic(ABC):
    """One client that sends without end, and notes when each send was accepted, and where."""

    flavour: str

    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace, queue: str, attempts: int) -> None:
        self.attempts = attempts
        self.accepted: list[tuple[float, NamespaceSide]] = []
        self._primary = primary
        self._queue = queue
        self._options = SendAvailabilityPairedNamespaceOptions(
            secondary.namespace,
            failover_interval=timedelta(0),
            ping_primary_interval=PING_INTERVAL,
            attempt_timeout=ATTEMPT,
            retry=Retry(attempts=attempts),
            backlog_queue_count=2,
            entities=(queue,),
        )
        self._error: BaseException | None = None
        self._has_to_stop = False
        self._thread = threading.Thread(target=self._run, name=f"traffic-{queue}")

    @property
    def bound_s(self) -> float:
        """The retry schedule, and what is allowed beyond it."""
        return longest_s(self._options.rules()) + ALLOWED_S

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_to_stop = True
        self._thread.join()

    def wait_for(self, count: int, side: NamespaceSide, since: float) -> float:
        """When the first of so many sends was accepted by this side, after they all were."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := [at for at, where in tuple(self.accepted) if at >= since and where is side]) < count:
            if self._error is not None:
                raise SystemExit(f"bench: a paired send failed: {self._error}")
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: no send was accepted by the {side.value} for {PATIENCE_S:g} s")
            time.sleep(PAUSE_S)
        return found[0]

    def longest_gap_s(self, begin: float, end: float) -> float:
        times = [at for at, _ in tuple(self.accepted) if begin <= at <= end]
        return max(later - earlier for earlier, later in pairwise(times))

    def _run(self) -> None:
        try:
            self._send_on_and_on()
        except BaseException as error:
            self._error = error

    @abstractmethod
    def _send_on_and_on(self) -> None: ...


class ThreadTraffic(Traffic):
    flavour = "threads"

    def _send_on_and_on(self) -> None:
        with (
            PairedServiceBusClient(self._primary.namespace, self._options) as bus,
            bus.get_queue_sender(self._queue) as sender,
        ):
            while not self._has_to_stop:
                receipt = sender.send_messages(ServiceBusMessage(b"x" * 1024))
                self.accepted.append((time.monotonic(), receipt.side))
                time.sleep(PAUSE_S)


class TaskTraffic(Traffic):
    flavour = "tasks"

    def _send_on_and_on(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        async with (
            twinbus.aio.PairedServiceBusClient(self._primary.namespace, self._options) as bus,
            bus.get_queue_sender(self._queue) as sender,
        ):
            while not self._has_to_stop:
                receipt = await sender.send_messages(ServiceBusMessage(b"x" * 1024))
                self.accepted.append((time.monotonic(), receipt.side))
                await asyncio.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class Outage:
    """What one outage was like for one client."""

    how: str
    traffic: Traffic
    gap_s: float
    return_s: float


def measure(primary: ServedNamespace, secondary: ServedNamespace, outages: int) -> list[Row]:
    kinds = [(kind, attempts) for kind in (ThreadTraffic, TaskTraffic) for attempts in ATTEMPTS]
    clients = [kind(primary, secondary, queue, attempts) for (kind, attempts), queue in zip(kinds, QUEUES, strict=True)]
    return measure_clients(primary, clients, outages)


def measure_clients(primary: ServedNamespace, clients: Sequence[Traffic], outages: int) -> list[Row]:
    """A number of outages of each kind, for all clients at once."""
    dice = random.Random(SEED)
    with ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
        seen = [each for how in HOWS for _ in range(outages) for each in _outage(primary, clients, how, dice)]
    gaps = [
        _gap_row([each for each in seen if (each.how, each.traffic) == (how, it)]) for how in HOWS for it in clients
    ]
    return gaps + [_return_row([each for each in seen if each.how == how]) for how in HOWS]


def _outage(primary: ServedNamespace, clients: Sequence[Traffic], how: str, dice: random.Random) -> list[Outage]:
    now = time.monotonic()
    for client in clients:
        client.accepted.clear()
    for client in clients:
        client.wait_for(SOME_SENDS, NamespaceSide.PRIMARY, now)
    primary.break_("unreachable", how=how)
    for client in clients:
        client.wait_for(SOME_SENDS, NamespaceSide.BACKLOG, now)
    time.sleep(dice.uniform(0, PING_INTERVAL.total_seconds()))  # it comes back at any moment between two pings
    primary.clear()
    healed_at = time.monotonic()
    returns = [client.wait_for(SOME_SENDS, NamespaceSide.PRIMARY, healed_at) - healed_at for client in clients]
    return [
        Outage(how, client, client.longest_gap_s(now, healed_at), return_s)
        for client, return_s in zip(clients, returns, strict=True)
    ]


def _gap_row(outages: Sequence[Outage]) -> Row:
    traffic, gaps = outages[0].traffic, [each.gap_s for each in outages]
    attempts = "1 attempt" if traffic.attempts == 1 else f"{traffic.attempts} attempts"
    name = f"longest gap, {outages[0].how}, {traffic.flavour}, {attempts}"
    return _time_row(name, median(gaps), gaps, traffic.bound_s)


def _return_row(outages: Sequence[Outage]) -> Row:
    """Every single return counts, not only the median."""
    returns = [each.return_s for each in outages]
    bound_s = 1.1 * PING_INTERVAL.total_seconds() + ATTEMPT.total_seconds()
    return _time_row(f"back on the primary, {outages[0].how}, at most", max(returns), returns, bound_s)


def _time_row(name: str, value: float, times: Sequence[float], bound_s: float) -> Row:
    spread = [round(min(times), 3), round(median(times), 3), round(max(times), 3)]
    note = f"{spread[0]:.3f}..{spread[2]:.3f}"
    details: dict[str, Any] = {"outages": len(times), "least_median_most": spread}
    return Row(name, value, "s", Must("<=", round(bound_s, 3)), note=note, details=details)
