"""`twinbus bench`: what a namespace does for one Python program: messages a second, and how long a call takes."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import signals
from twinbus.cli.arguments.common_options import AsJson, Timeout, timeout_s
from twinbus.cli.arguments.option_groups import PrimaryArguments, check_range
from twinbus.cli.output import json_text, note, say, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.receiving import MessageReceiver, ReceiveSource, receiving_from
from twinbus.errors import SendError, TwinbusError
from twinbus.units import exact_duration

if TYPE_CHECKING:
    from twinbus.cli.sending import SendPath
    from twinbus.client.namespace import Namespace

MESSAGES_MAX, BYTES_MAX, CLIENTS_MAX, BATCH_MAX = 1_000_000, 1_000_000, 64, 1_000
IDLE = timedelta(minutes=5)
"""A queue of ours that is left behind, because this process was killed, is removed by the namespace after this."""
HURRY_S = 2.0
"""How long whoever has pressed Ctrl-C waits for the end of a queue that may not be there."""
LIFE = timedelta(minutes=1)
AT_ONCE = 50


def bench(
    namespaces: PrimaryArguments,
    messages: Annotated[int, typer.Option(metavar="N", help=f"How many messages: 1 to {MESSAGES_MAX:,}.")] = 1_000,
    size: Annotated[int, typer.Option(metavar="BYTES", help=f"Bytes of a body: 0 to {BYTES_MAX:,}.")] = 1_024,
    clients: Annotated[
        int, typer.Option("--connections", metavar="N", help=f"Connections at a time: 1 to {CLIENTS_MAX}.")
    ] = 4,
    batch: Annotated[int, typer.Option(metavar="N", help=f"Messages a send: 1 to {BATCH_MAX:,}.")] = 1,
    entity: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A queue or topic that exists: only sends are measured, with messages that live for a minute.  "
            "[default: a queue of its own, which needs Manage and is removed afterwards]",
        ),
    ] = None,
    timeout: Timeout = "5s",
    as_json: AsJson = False,
) -> None:
    """Measure sends, then receives, with the official SDK: rate, and how long a call takes.

    It tells what one Python program gets from a namespace as it is now, network and all; a namespace can do more than
    one program asks of it. Operations on Azure cost money: a message is one for sending and two for receiving.

    \b
    Examples:
      twinbus bench
      twinbus bench --messages 10000 --size 4096 --connections 8
      twinbus bench --batch 100 --json
      twinbus bench --entity orders --messages 200
    """
    check_range("--messages", messages, 1, MESSAGES_MAX)
    check_range("--size", size, 0, BYTES_MAX)
    check_range("--connections", clients, 1, CLIENTS_MAX)
    check_range("--batch", batch, 1, BATCH_MAX)
    attempt_s = timeout_s(timeout)
    namespace = namespaces.namespace()
    load = Load(namespace, attempt_s, messages, size, min(clients, messages), batch)
    with contextlib.nullcontext(entity) if entity is not None else _own_queue(namespace, attempt_s) as name:
        phases = [load.sends(name, lives_on=entity is None)]
        if entity is None:
            phases.append(load.receives(name))
    if as_json:
        facts = {"namespace": namespace.host_label, "bytes": size, "clients": load.clients, "batch": batch}
        say(json_text(facts | {"phases": [asdict(each) for each in phases]}))
    else:
        say(result_text(phases))


@contextlib.contextmanager
def _own_queue(namespace: Namespace, attempt_s: float) -> Iterator[str]:
    """A queue that is there as long as the block; raises `TwinbusError` if it cannot be made."""
    from twinbus.client.setup.administration import admin_failure

    name = f"twinbus-bench-{secrets.token_hex(4)}"
    with namespace.admin_client(attempt_s) as admin:
        try:
            admin.create_queue(name, auto_delete_on_idle=IDLE)
        except Exception as error:
            raise TwinbusError(
                f"a queue to measure with cannot be made on {namespace.host_label}: {admin_failure(error)}; "
                "--entity takes one that exists"
            ) from None
        except BaseException:  # interrupted before the answer: it may have been made all the same
            hurry_s = min(attempt_s, HURRY_S)
            with contextlib.suppress(Exception), namespace.admin_client(hurry_s) as once_more:
                once_more.delete_queue(name)
            raise
        try:
            yield name
        finally:
            try:
                admin.delete_queue(name)
            except Exception as error:
                note(f"the queue {name} stays for {exact_duration(IDLE)}: {admin_failure(error)}")


class Load:
    """Sends and receives messages over several connections."""

    def __init__(
        self, namespace: Namespace, attempt_s: float, messages: int, body_bytes: int, clients: int, batch: int
    ) -> None:
        self._namespace = namespace
        self._attempt_s = attempt_s
        self._messages = messages
        self._body = os.urandom(body_bytes)
        self.clients = clients
        self._batch = batch

    def sends(self, entity: str, *, lives_on: bool) -> Measured:
        """Raises `TwinbusError` at the first message that is not taken."""
        from twinbus.cli.sending import straight_to

        quota = Quota(self._messages)
        with ExitStack() as stack:
            ways = [
                stack.enter_context(straight_to(self._namespace, entity, self._attempt_s)) for _ in range(self.clients)
            ]
            life = None if lives_on else LIFE
            return self._measure("send", [self._sender(way, quota, life) for way in ways])

    def _sender(self, way: SendPath, quota: Quota, life: timedelta | None) -> Any:
        from azure.servicebus import ServiceBusMessage

        def work(crew: LoadWorkers) -> None:
            while not crew.is_stopping and (count := quota.take(self._batch)):
                batch = [ServiceBusMessage(self._body, time_to_live=life) for _ in range(count)]
                began = monotonic()
                try:
                    way.send(batch if count > 1 else batch[0])
                except SendError as error:
                    raise TwinbusError(f"a message was not taken: {error}") from None
                crew.note(began, count)

        return work

    def receives(self, entity: str) -> Measured:
        """Under lock, each completed on its own. Raises `TwinbusError` if they do not come."""
        quota = Quota(self._messages)
        with ExitStack() as stack:
            receivers = [
                stack.enter_context(receiving_from(self._namespace, ReceiveSource(entity), self._attempt_s))
                for _ in range(self.clients)
            ]
            for receiver in receivers:
                receiver.open()
            return self._measure("receive", [self._receiver(receiver, quota) for receiver in receivers])

    def _receiver(self, receiver: MessageReceiver, quota: Quota) -> Any:
        def work(crew: LoadWorkers) -> None:
            while not crew.is_stopping and (wanted := quota.take(AT_ONCE)):
                found = receiver.receiver.receive_messages(wanted, max_wait_time=self._attempt_s)
                for message in found:
                    began = monotonic()
                    receiver.receiver.complete_message(message)
                    crew.note(began, 1)
                quota.give_back(wanted - len(found))

        return work

    def _measure(self, what: str, workers: list[Any]) -> Measured:
        crew = LoadWorkers()
        with ProgressBar(f"{what}s", self._messages) as bar:

            def show(done: int) -> None:
                bar.done = done

            took_s = crew.work(workers, patience_s=3 * self._attempt_s, show=show)
        return measured(what, crew.messages, took_s, crew.calls_s)


def result_text(phases: list[Measured]) -> str:
    heads = ("", "messages", "a second", "ms p50", "p95", "p99", "max")
    rows = [
        (
            each.what,
            each.messages,
            f"{each.per_second:,.0f}",
            *(f"{ms:,.1f}" for ms in (each.ms_p50, each.ms_p95, each.ms_p99, each.ms_max)),
        )
        for each in phases
    ]
    return table([heads, *rows])


LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a phase came to. Latencies are those of one call, in milliseconds."""

    what: str
    messages: int
    seconds: float
    per_second: float
    ms_p50: float
    ms_p95: float
    ms_p99: float
    ms_max: float


def measured(what: str, messages: int, seconds: float, calls_s: Sequence[float]) -> Measured:
    """The numbers of a phase, from how long each call took."""
    ordered = sorted(calls_s)
    p50, p95, p99, longest = (1000 * at_share(ordered, share) for share in (0.5, 0.95, 0.99, 1.0))
    return Measured(what, messages, seconds, messages / seconds if seconds > 0 else 0.0, p50, p95, p99, longest)


def at_share(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all is not above; 0 of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@dataclass(slots=True)
class Quota:
    """How many are still to be done, shared by all workers."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, most: int) -> int:
        """How many this worker is to do; 0: nothing is left."""
        with self._lock:
            taken = min(most, self.left)
            self.left -= taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self.left += count


@dataclass(slots=True)
class LoadWorkers:
    """Workers on threads that can be left behind; each notes what its calls took."""

    calls_s: list[float] = field(default_factory=list)
    messages: int = 0
    errors: list[BaseException] = field(default_factory=list)
    is_stopping: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, began: float, messages: int) -> None:
        """A call is over."""
        with self._lock:
            self.calls_s.append(monotonic() - began)
            self.messages += messages

    def work(
        self, workers: Sequence[Callable[[LoadWorkers], None]], *, patience_s: float, show: Callable[[int], None]
    ) -> float:
        """Seconds until all are done. Raises what one of them raised, or `TwinbusError` if nothing moves any more."""
        threads = [threading.Thread(target=self._run, args=(one,), name="twinbus-load", daemon=True) for one in workers]
        began = moved_at = monotonic()
        before = 0
        for thread in threads:
            thread.start()
        try:
            while (busy := [thread for thread in threads if thread.is_alive()]) and not self.errors:
                busy[0].join(LOOK_EVERY_S)
                signals.raise_if_interrupted()
                if self.messages != before:
                    before, moved_at = self.messages, monotonic()
                    show(before)
                elif monotonic() - moved_at > patience_s:
                    raise TwinbusError(f"nothing has moved for {patience_s:g} s: the namespace does not answer")
        finally:
            self.is_stopping = True
        if self.errors:
            raise self.errors[0]
        return monotonic() - began

    def _run(self, worker: Callable[[LoadWorkers], None]) -> None:
        try:
            worker(self)
        except BaseException as error:
            self.errors.append(error)
