"""Sends of a proxy against two served namespaces, without the proxy's own port: applications are function calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

from paired import WAIT_S, LoopThread, PairHarness, wait_until

from twinbus import PairEvent, SendAvailabilityPairedNamespaceOptions
from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.amqp.message.sections import Header, PropertyField, encode_message, read_property, walk
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Done, Refused, SenderOpened
from twinbus.client.namespace import Namespace
from twinbus.errors import NamespaceError
from twinbus.proxy.sending.pair_client import ProxySends
from twinbus.transport.links.requests import Response, read_response

Result = TypeVar("Result")


def encoded(
    text: str | bytes,
    message_id: str | None = None,
    session_id: str | None = None,
    due: datetime | None = None,
    ttl_ms: int | None = None,
    properties: dict[str, Value] | None = None,
) -> bytes:
    fields: dict[PropertyField, Value] = {}
    if message_id is not None:
        fields[PropertyField.MESSAGE_ID] = message_id
    if session_id is not None:
        fields[PropertyField.GROUP_ID] = session_id
    due_ms = None if due is None else int(due.astimezone(UTC).timestamp() * 1000)
    return encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        annotations=None if due_ms is None else {"x-opt-scheduled-enqueue-time": Timestamp(due_ms)},
        properties=fields or None,
        application_properties=properties,
        data=text if isinstance(text, bytes) else text.encode(),
    )


def arrival(text: str | bytes, message_id: str | None = None, **said: Any) -> Arrival:
    """A message as the link layer hands it on: with an id, whether its sender gave one or not."""
    return read_arrival(encoded(text, message_id, **said), lambda: os.urandom(16).hex())


class Proxied:
    """Started in a `with` block, in an event loop of its own."""

    def __init__(self, harness: PairHarness, *, primary: Namespace | None = None, **wishes: Any) -> None:
        self._harness = harness
        self._loop = LoopThread()
        self.replies: list[tuple[str, Done | Refused]] = []
        """Ids of what was sent, and the answers, in the order of the answers."""
        self.events: list[PairEvent] = []
        options = SendAvailabilityPairedNamespaceOptions(harness.secondary.namespace, **harness.options(**wishes))

        async def make() -> ProxySends:
            sends = ProxySends(primary or harness.primary.namespace, options, after_replies=self._count_flush)
            sends.on("*", self.events.append)
            return sends

        self.flushes = 0
        self.sends = self.run(make())

    def run(self, work: Any) -> Any:
        return self._loop.run(work)

    def __enter__(self) -> Proxied:
        self.run(self.sends.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.sends.stop())
        self._loop.close()

    def _count_flush(self) -> None:
        self.flushes += 1

    def call(self, act: Callable[[], Result]) -> Result:
        """On the loop."""

        async def on_loop() -> Result:
            return act()

        result: Result = self.run(on_loop())
        return result

    # --- what applications do ---

    def begin(self, *arrivals: Arrival, path: str | None = None) -> Future[Done | Refused]:
        """Send one transfer; the answer comes."""
        return self.begin_all([arrivals], path)[0]

    def begin_all(
        self, transfers: Sequence[Sequence[Arrival]], path: str | None = None
    ) -> list[Future[Done | Refused]]:
        """The same for transfers that come together, one after the other."""
        futures: list[Future[Done | Refused]] = [Future() for _ in transfers]

        def answered(future: Future[Done | Refused], name: str, reply: Done | Refused) -> None:
            self.replies.append((name, reply))
            future.set_result(reply)

        def send() -> None:
            for future, transfer in zip(futures, transfers, strict=True):
                name = transfer[0].message_id or ""
                reply = lambda said, future=future, name=name: answered(future, name, said)  # noqa: E731
                self.sends.send(path or self._harness.orders, tuple(transfer), 0, reply)

        self.call(send)
        return futures

    def send(self, *arrivals: Arrival, path: str | None = None) -> Done | Refused:
        return self.begin(*arrivals, path=path).result(WAIT_S)

    def refusal(self, *arrivals: Arrival, path: str | None = None) -> NamespaceError:
        """Of a send that is not to succeed."""
        reply = self.send(*arrivals, path=path)
        assert isinstance(reply, Refused), reply
        return reply.error

    def open(self, path: str | None = None) -> SenderOpened | Refused:
        future: Future[SenderOpened | Refused] = Future()
        self.call(lambda: self.sends.open_sender(path or self._harness.orders, 0, future.set_result))
        return future.result(WAIT_S)

    def schedule(self, *messages: bytes, path: str | None = None, **entry: Value) -> Response:
        body = {"messages": [{"message": message, **entry} for message in messages]}
        request = Request("request-1", "reply", "com.microsoft:schedule-message", {"operation": "schedule"}, body)
        future: Future[bytes] = Future()
        self.call(lambda: self.sends.schedule(path or self._harness.orders, request, 0, future.set_result))
        payload = future.result(WAIT_S)
        correlation = read_property(payload, walk(payload), PropertyField.CORRELATION_ID)
        assert correlation == "request-1"
        return read_response(payload)

    # --- sight ---

    def names(self) -> list[str]:
        return [str(event.name) for event in self.events]

    def wait_for(self, name: str, times: int = 1) -> PairEvent:
        wait_until(lambda: self.names().count(name) >= times)
        return [event for event in self.events if event.name == name][times - 1]

    @property
    def unwritten_bytes(self) -> int:
        size: int = self.call(lambda: self.sends.unwritten_bytes)
        return size
