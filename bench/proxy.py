"""The rows about the proxy: what it costs to go through it, beside the same client without it.

The primary is on one core, the proxy on the other, beside the load client: as a sidecar is beside its application.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench import outage_gap
from bench.brokers import Broker
from bench.load import LoadClient
from bench.namespaces import QUEUE, ServedNamespace, ServedProxy, served_pair
from bench.outage_gap import Traffic
from bench.processes import Cores, Process, Processes
from bench.results import Must, Row
from twinbus import NamespaceSide
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.link_handler import LinkHandler

IDLE = 1_000
IDLE_ATTEMPT_S = 60.0
AT_ONCE = 50
"""Connections that are opened at a time."""
GAP_QUEUES = tuple(f"gap-{attempts}" for attempts in outage_gap.ATTEMPTS)


@dataclass(slots=True)
class Rounds:
    """What the rounds of one kind came to, direct and through the proxy."""

    rates: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    """CPU of the primary for each message."""
    proxy_us: list[float] = field(default_factory=list)


def measure_proxy(
    folder: Path, cores: Cores, client: LoadClient, *, rounds: int, messages: int, singles: int, outages: int
) -> list[Row]:
    with served_pair(folder / "proxied", cores.broker) as (primary, secondary), Processes() as processes:
        proxy = ServedProxy(primary, secondary, folder / "proxied", processes, cores.client)
        process = proxy.start()
        assert primary.process is not None
        direct = Broker("twinbus", primary.port, QUEUE, ROOT_KEY_NAME, primary.key, primary.process)
        through = Broker("twinbus proxy", proxy.port, QUEUE, ROOT_KEY_NAME, proxy.key, process)
        rows = [
            *_throughput(client, direct, through, rounds, messages),
            *_latency(client, direct, through, rounds, singles),
        ]
        rows += _idle_memory(proxy, process)
    with served_pair(folder / "gaps", cores.broker, GAP_QUEUES) as (primary, secondary), Processes() as processes:
        return rows + _gaps(primary, secondary, folder, processes, cores, outages)


# --- throughput ---


def _throughput(client: LoadClient, direct: Broker, through: Broker, rounds: int, messages: int) -> list[Row]:
    """Rounds take turns, and the best of each counts."""
    kinds: dict[str, Callable[[Broker, int], float]] = {"ingest": client.send, "egress": client.receive}
    seen = {(kind, broker.name): Rounds() for kind in kinds for broker in (direct, through)}
    for _ in range(rounds):
        for broker in (direct, through):
            for kind, run in kinds.items():
                found, before = seen[kind, broker.name], (direct.process.cpu_s(), through.process.cpu_s())
                found.rates.append(run(broker, messages))
                found.broker_us.append((direct.process.cpu_s() - before[0]) / messages * 1e6)
                found.proxy_us.append((through.process.cpu_s() - before[1]) / messages * 1e6)
    return [row for kind in kinds for row in _throughput_rows(kind, seen[kind, direct.name], seen[kind, through.name])]


def _throughput_rows(kind: str, direct: Rounds, through: Rounds) -> list[Row]:
    straight, proxied = max(direct.rates), max(through.rates)
    details = {"direct_rounds": list(map(round, direct.rates)), "proxy_rounds": list(map(round, through.rates))}
    must = Must(">=", 0.5) if kind == "ingest" else None
    return [
        Row(f"{kind}, direct", straight, "msgs/s", ours=round(straight)),
        Row(f"{kind} through the proxy, of direct", proxied / straight, "x", must, round(proxied), details=details),
        Row(f"{kind}, CPU of the proxy a message", min(through.proxy_us), "µs"),
        Row(f"{kind}, CPU of the primary a message, direct", min(direct.broker_us), "µs"),
        Row(f"{kind}, CPU of the primary a message, through the proxy", min(through.broker_us), "µs"),
    ]


def _latency(client: LoadClient, direct: Broker, through: Broker, rounds: int, singles: int) -> list[Row]:
    """What the proxy adds while one message is in flight; the best round of each counts."""
    seen: dict[str, list[tuple[float, float]]] = {direct.name: [], through.name: []}
    for _ in range(rounds):
        for broker in (direct, through):
            seen[broker.name].append(client.send_one_by_one(broker, singles))
    rows = []
    for number, name in enumerate(("p50", "p99")):
        straight = min(found[number] for found in seen[direct.name])
        proxied = min(found[number] for found in seen[through.name])
        rows += [
            Row(f"one in flight, direct, {name}", straight, "ms"),
            Row(f"one in flight, the proxy adds, {name}", proxied - straight, "ms"),
        ]
    return rows


# --- memory ---


def _idle_memory(proxy: ServedProxy, process: Process) -> list[Row]:
    """Of connections that have a link each and do nothing. A receiver has a connection to the primary of its own."""
    before_mb = process.memory_mb()
    rows = [Row("memory before", before_mb, "MB")]
    for kind in ("sender", "receiver"):
        grown_mb = asyncio.run(_memory_with_idle(proxy, process, kind))
        rows.append(Row(f"{IDLE:,} idle connections with a {kind} each, memory", grown_mb, "MB"))
    return rows


async def _memory_with_idle(proxy: ServedProxy, process: Process, kind: str) -> int:
    dial, turns = proxy.namespace.dial(), asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:

        async def connect() -> None:
            async with turns:
                connection = await stack.enter_async_context(NamespaceConnection(dial, attempt_s=IDLE_ATTEMPT_S))
                open_link = connection.open_sender if kind == "sender" else connection.open_receiver
                await open_link(QUEUE, LinkHandler())

        await asyncio.gather(*[connect() for _ in range(IDLE)])
        return process.memory_mb()


# --- outages ---


class ProxyTraffic(Traffic):
    """The official SDK through a proxy that has the options of this client."""

    flavour = "SDK through a proxy"

    def __init__(
        self, primary: ServedNamespace, secondary: ServedNamespace, queue: str, attempts: int, proxy: ServedProxy
    ) -> None:
        super().__init__(primary, secondary, queue, attempts)
        self._proxy = proxy

    def _send_on_and_on(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self._proxy.connection_string) as bus,
            bus.get_queue_sender(self._queue) as sender,
        ):
            backlogged = 0
            while not self._has_to_stop:
                sender.send_messages(ServiceBusMessage(b"x" * 1024))
                at = time.monotonic()
                before, backlogged = backlogged, self._proxy.entity_status(self._queue).get("sent_to_backlog", 0)
                side = NamespaceSide.BACKLOG if backlogged > before else NamespaceSide.PRIMARY
                self.accepted.append((at, side))
                time.sleep(outage_gap.PAUSE_S)


def _gaps(
    primary: ServedNamespace,
    secondary: ServedNamespace,
    folder: Path,
    processes: Processes,
    cores: Cores,
    outages: int,
) -> list[Row]:
    """As `outage_gap` measures them, with the same bounds."""
    clients = []
    for attempts, queue in zip(outage_gap.ATTEMPTS, GAP_QUEUES, strict=True):
        data = folder / f"proxy-{queue}"
        data.mkdir()
        options = (
            *("--failover-interval", "0s", "--backlog-queue-count", "2", "--entities", queue),
            *("--ping-primary-interval", f"{outage_gap.PING_INTERVAL.total_seconds():g}s"),
            *("--attempt-timeout", f"{outage_gap.ATTEMPT.total_seconds():g}s", "--retry-attempts", str(attempts)),
        )
        proxy = ServedProxy(primary, secondary, data, processes, cores.client, *options)
        proxy.start()
        clients.append(ProxyTraffic(primary, secondary, queue, attempts, proxy))
    return outage_gap.measure_clients(primary, clients, outages)
