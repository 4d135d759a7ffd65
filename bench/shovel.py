"""The rows about coming home: a syphon between two namespaces beside a shovel between two RabbitMQ servers.

Both move the same: durable messages of 1 KiB, stored at home before they are gone from where they were (a shovel calls
that on-confirm). Nothing is bound to a core: two servers and whatever moves are more than there are cores, for both.
Time runs from the start of the mover until nothing is left, as it sees it itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.backlog import backlog_message, make_backlog, put
from bench.brokers import QUEUE, Broker, ask_rabbitmq, start_rabbitmq
from bench.load import BODY_BYTES, SLOWEST_RATE, LoadClient
from bench.namespaces import ServedNamespace, served_pair
from bench.processes import LOOPBACK, Processes
from bench.results import Must, Row

PREFETCH = 1_000
"""Of the shovel; its default, and what its manual measures with."""
QUEUES = 10
"""Backlog queues, as many as a pairing has by default."""
CHUNK = 20_000
START_S = 120


def measure_homecoming(
    folder: Path, build: Path, client: LoadClient, *, rounds: int, messages: int, many: int | None, alone: bool
) -> list[Row]:
    """`many` messages are moved once more to see whether memory grows; None: not this time."""
    with served_pair(folder / "home", None, (QUEUE,)) as (primary, secondary), Processes() as processes:
        ours = Syphoning(primary, secondary)
        theirs = None if alone else Shovelling(folder, build, client, processes)
        rates: list[float] = []
        their_rates: list[float] = []
        for _ in range(rounds):
            rates.append(ours.rate(messages))
            if theirs is not None:
                their_rates.append(theirs.rate(messages))
        rows = [_rate_row(messages, rates, their_rates)]
        before_mb = ours.memory_mb
        rows.append(Row(f"{messages:,} home: memory of the syphon", before_mb, "MB"))
        if many is not None:
            ours.rate(many)
            growth = ours.memory_mb / before_mb
            rows.append(Row(f"{many:,} home: memory, beside {messages:,}", growth, "x", Must("<=", 1.2)))
        return rows


def _rate_row(messages: int, ours: list[float], theirs: list[float]) -> Row:
    name = f"{messages:,} home"
    details = {"twinbus_rounds": [round(rate) for rate in ours], "shovel_rounds": [round(rate) for rate in theirs]}
    if not theirs:
        return Row(name, max(ours), "msgs/s", ours=round(max(ours)), details=details)
    ratio = max(ours) / max(theirs)
    return Row(name, ratio, "x", Must(">=", 3.0), round(max(ours)), round(max(theirs)), details=details)


class Syphoning:
    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace) -> None:
        self._primary = primary
        self._secondary = secondary
        self._paths = make_backlog(secondary, primary.name, QUEUES)
        with primary.namespace.admin_client(attempt_s=60.0) as admin:
            admin.delete_queue(QUEUE)
            admin.create_queue(QUEUE, max_size_in_megabytes=5_120)
        self.memory_mb = 0.0

    def rate(self, messages: int) -> float:
        """Messages a second."""
        asyncio.run(self._fill(messages))
        strings = self._primary.connection_string, self._secondary.connection_string
        environment = dict(zip(("TWINBUS_PRIMARY", "TWINBUS_SECONDARY"), strings, strict=True))
        command = (sys.executable, "-m", "bench.mover", str(messages), str(QUEUES))
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            timeout=START_S + messages / SLOWEST_RATE,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"bench: the syphon ended: {done.stderr.strip()[-300:]}")
        said = json.loads(done.stdout)
        self.memory_mb = float(said["memory_mb"])
        return messages / float(said["seconds"])

    async def _fill(self, messages: int) -> None:
        body = os.urandom(BODY_BYTES)
        share = messages // QUEUES
        for index, path in enumerate(self._paths):
            for start in range(0, share, CHUNK):
                numbers = range(start, min(share, start + CHUNK))
                await put(
                    self._secondary, path, [backlog_message(QUEUE, f"{index}-{number}", body) for number in numbers]
                )


class Shovelling:
    def __init__(self, folder: Path, build: Path, client: LoadClient, processes: Processes) -> None:
        self._build = build
        self._client = client
        self._source = start_rabbitmq(folder / "source", build, processes, None, ("rabbitmq_shovel",))
        self._home = start_rabbitmq(folder / "target", build, processes, None)

    def rate(self, messages: int) -> float:
        """Messages a second."""
        self._client.send(self._source, messages)
        wait_s = START_S + messages / SLOWEST_RATE
        seconds = float(ask_rabbitmq(self._source, self._build, self._expression(), wait_s)) / 1e6
        arrived = int(ask_rabbitmq(self._home, self._build, PURGE, START_S))
        if arrived != messages:
            raise SystemExit(f"bench: the shovel brought {arrived} of {messages} messages home")
        return messages / seconds

    def _expression(self) -> str:
        source, home = (_uri(broker) for broker in (self._source, self._home))
        return MOVE.format(source=source, home=home, prefetch=PREFETCH, queue=QUEUE)


def _uri(broker: Broker) -> str:
    return f"amqp://{broker.user}:{broker.password}@{LOOPBACK}:{broker.port}"


FIND = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{QUEUE}">>)), '
MOVE = (
    FIND.replace("{", "{{").replace("}", "}}")
    + """
Began = erlang:monotonic_time(microsecond),
Shovel = [
  {{<<"src-protocol">>, <<"amqp091">>}}, {{<<"src-uri">>, <<"{source}">>}}, {{<<"src-queue">>, <<"{queue}">>}},
  {{<<"src-prefetch-count">>, {prefetch}}},
  {{<<"dest-protocol">>, <<"amqp091">>}}, {{<<"dest-uri">>, <<"{home}">>}}, {{<<"dest-queue">>, <<"{queue}">>}},
  {{<<"ack-mode">>, <<"on-confirm">>}}],
ok = rabbit_runtime_parameters:set(<<"/">>, <<"shovel">>, <<"home">>, Shovel, none),
Wait = fun Again() ->
  case rabbit_amqqueue:info(Q, [messages]) of [{{messages, 0}}] -> ok; _ -> timer:sleep(10), Again() end
end,
Wait(),
Took = erlang:monotonic_time(microsecond) - Began,
rabbit_runtime_parameters:clear(<<"/">>, <<"shovel">>, <<"home">>, <<"bench">>),
Took.
"""
)
"""Begin to shovel, wait until the source is empty and everything is acknowledged; the microseconds that took."""
PURGE = FIND + "{ok, Count} = rabbit_amqqueue:purge(Q), Count."
