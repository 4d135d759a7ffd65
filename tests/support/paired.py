"""A paired client against two served namespaces, on threads or on tasks, in the same words.

The asyncio client lives on a loop in a thread of its own and is handed out behind the interface of the sync one, so
that a test about what both have to do is written once and run with both.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Any, TypeVar, cast

from azure.servicebus import ServiceBusReceivedMessage
from served import Served

import twinbus
import twinbus.aio
from twinbus import PairedServiceBusClient, PairEvent, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.client.namespace import Namespace

SYNC, AIO = "threads", "tasks"
BOTH = (SYNC, AIO)
WAIT_S = 60.0

Result = TypeVar("Result")
_numbers = count(1)


def wait_until(is_true: Callable[[], Any], within_s: float = WAIT_S) -> None:
    """For what happens by itself after a while; a bound, not a pace."""
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop-of-the-test", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class OnLoop:
    """Something of asyncio, used as its sync twin: every call runs on the loop and is waited for."""

    def __init__(self, target: Any, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found
        return lambda *arguments, **keywords: self._loop.run(self._call(found, arguments, keywords))

    async def _call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        result = function(*arguments, **keywords)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, twinbus.aio.PairedServiceBusSender | twinbus.aio.PairedServiceBusReceiver):
            return OnLoop(result, self._loop)
        return self if result is self._target else result

    def __enter__(self) -> OnLoop:
        self._loop.run(self._target.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._target.__aexit__(kind, error, trace))


class PairHarness:
    """Two namespaces, queues with names that no other test has, and clients of this pair."""

    def __init__(self, primary: Served, secondary: Served, flavour: str = SYNC) -> None:
        number = next(_numbers)
        self.primary = primary
        self.secondary = secondary
        self.flavour = flavour
        self.name = f"contoso-{number}"
        """The primary's name, by which its backlog queues are called."""
        self.orders = f"orders-{number}"
        self.invoices = f"invoices-{number}"
        self._loops: list[LoopThread] = []
        for queue in (self.orders, self.invoices):
            primary.admin.create_queue(queue)

    # --- clients ---

    def options(self, **wishes: Any) -> dict[str, Any]:
        """Everything happens soon, a failure needs no second try, and a busy machine is no outage."""
        quick = {
            "failover_interval": timedelta(0),
            "ping_primary_interval": timedelta(seconds=1),
            "attempt_timeout": timedelta(seconds=20),
            "retry": Retry(attempts=1),
            "backlog_queue_count": 2,
            "primary_name": self.name,
            "probe": "ping",
        }
        return quick | wishes

    def client(self, flavour: str | None = None, **wishes: Any) -> PairedServiceBusClient:
        """A paired client that is not paired yet."""
        return self.client_of(self.primary.namespace, self.secondary.namespace, flavour, **wishes)

    def client_of(
        self, primary: Namespace, secondary: Namespace, flavour: str | None = None, **wishes: Any
    ) -> PairedServiceBusClient:
        options = SendAvailabilityPairedNamespaceOptions(secondary, **self.options(**wishes))
        if (flavour or self.flavour) == SYNC:
            return PairedServiceBusClient(primary, options)
        loop = LoopThread()
        self._loops.append(loop)

        async def make() -> twinbus.aio.PairedServiceBusClient:
            return twinbus.aio.PairedServiceBusClient(primary, options)

        return cast("PairedServiceBusClient", OnLoop(loop.run(make()), loop))

    @contextmanager
    def bus(self, flavour: str | None = None, **wishes: Any) -> Iterator[PairedServiceBusClient]:
        with self.client(flavour, **wishes) as bus:
            yield bus

    # --- sight ---

    def backlog(self, index: int) -> str:
        return f"{self.name}/x-servicebus-transfer/{index}"

    def in_backlog(self, queues: int = 2) -> list[ServiceBusReceivedMessage]:
        """What lies in the backlog queues, one queue after the other."""
        return [message for index in range(queues) for message in self.secondary.messages(self.backlog(index))]

    def backlog_texts(self, queues: int = 2) -> list[str]:
        return [str(message) for message in self.in_backlog(queues)]

    # --- the end ---

    def leave(self) -> None:
        """Everything as it was before."""
        self.primary.heal()
        self.secondary.heal()
        for loop in self._loops:
            loop.close()


class Heard:
    """Events of a paired client, in their order."""

    def __init__(self, bus: PairedServiceBusClient, name: str = "*") -> None:
        self.events: list[PairEvent] = []
        bus.on(name, self.events.append)

    def names(self, *without: str) -> list[str]:
        return [str(event.name) for event in self.events if event.name not in without]

    def named(self, name: str) -> list[PairEvent]:
        return [event for event in self.events if event.name == name]

    def wait_for(self, name: str, times: int = 1, within_s: float = WAIT_S) -> PairEvent:
        wait_until(lambda: len(self.named(name)) >= times, within_s)
        return self.named(name)[times - 1]
