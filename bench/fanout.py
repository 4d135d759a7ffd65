"""Topics beside exchanges: fan-out to many subscriptions, and many rules on one topic.

Every subscription is a durable queue in RabbitMQ, bound to a fanout exchange; every correlation rule is a binding of a
headers exchange. RabbitMQ has nothing like SQL rules. What is shown is how the cost grows, too: of one more
subscription, and of one more rule that does not match.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from bench.brokers import START_WAIT_S, Broker, rabbitmq_queue, start_rabbitmq
from bench.load import LoadClient
from bench.processes import Cores, Processes, free_port
from bench.results import Must, Row
from twinbus import Namespace
from twinbus.broker.core.commands import AdminCommand, CreateRule, CreateSubscription, CreateTopic
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TypedValue
from twinbus.broker.server import NamespaceServer
from twinbus.connection_string import ROOT_KEY_NAME, ConnectionString
from twinbus.errors import TwinbusError
from twinbus.options import NamespaceOptions

SUBSCRIPTIONS = (10, 100, 1_000)
CORRELATIONS = (10, 1_000)
SQL_RULES = (10, 100)
SHARES = 10
"""Subscriptions that the rules of a topic are spread over."""
MATCHED = "colour-3"
"""One rule of each topic wants it."""
FEWEST = 100
"""Messages of the smallest measurement, and of the first: until then nobody knows how long it takes."""
COPIES_WAIT_S = 120.0
SECONDS = 4.0
"""About how long a measurement takes at most."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of ours and what comes nearest to it in RabbitMQ."""

    name: str
    subscriptions: int
    rules: int = 0
    """None: every subscription takes everything."""
    is_sql: bool = False

    @property
    def copies(self) -> int:
        """Of each message."""
        return self.subscriptions if not self.rules else 1

    def commands(self) -> list[AdminCommand]:
        nothing = Rule("nothing", FalseFilter())
        made: list[AdminCommand] = [CreateTopic(self.name, TopicSettings(max_size_mb=5_120))]
        for number in range(self.subscriptions):
            first = nothing if self.rules else None
            made.append(CreateSubscription(self.name, f"s{number}", QueueSettings(max_size_mb=5_120), first))
        for number in range(self.rules):
            path = f"{self.name}/Subscriptions/s{number % self.subscriptions}"
            made.append(CreateRule(path, Rule(f"r{number}", self._filter(number))))
        return made

    def _filter(self, number: int) -> Filter:
        if self.is_sql:
            return SqlFilter(f"colour = 'colour-{number}'")
        return CorrelationFilter(properties=(("colour", TypedValue("string", f"colour-{number}")),))

    def definitions(self) -> dict[str, list[Any]]:
        """Exchange, queues and bindings."""
        kind = "headers" if self.rules else "fanout"
        exchange = {"name": self.name, "vhost": "/", "type": kind, "durable": True, "auto_delete": False}
        queues = [f"{self.name}-{number}" for number in range(self.subscriptions)]
        bindings = [self._binding(name, {}) for name in queues]
        if self.rules:
            wanted = ({"x-match": "all", "colour": f"colour-{number}"} for number in range(self.rules))
            bindings = [self._binding(queues[number % len(queues)], each) for number, each in enumerate(wanted)]
        return {
            "exchanges": [{**exchange, "internal": False, "arguments": {}}],
            "queues": [rabbitmq_queue(name) for name in queues],
            "bindings": bindings,
        }

    def _binding(self, queue: str, arguments: dict[str, str]) -> dict[str, Any]:
        where = {"source": self.name, "vhost": "/", "destination": queue, "destination_type": "queue"}
        return {**where, "routing_key": "", "arguments": arguments}


FANOUT = [Topic(f"fan-{count}", count) for count in SUBSCRIPTIONS]
CORRELATION = [Topic(f"correlation-{count}", SHARES, count) for count in CORRELATIONS]
SQL = [Topic(f"sql-{count}", SHARES, count, is_sql=True) for count in SQL_RULES]


def measure_fanout(folder: Path, build: Path, cores: Cores, *, rounds: int, copies: int, alone: bool) -> list[Row]:
    """`copies`: how many are stored in each round of each measurement, about."""
    client = LoadClient(build, cores)
    with Processes() as processes:
        brokers = [_start_twinbus(folder / "fanout", processes, cores.broker, [*FANOUT, *CORRELATION, *SQL])]
        if not alone:
            more = _joined([topic.definitions() for topic in (*FANOUT, *CORRELATION)])
            brokers.append(start_rabbitmq(folder / "rabbitmq-fanout", build, processes, cores.broker, more=more))
        rates = _rates(client, brokers, rounds, copies)
    return [*_fanout_rows(rates), *_rule_rows(rates)]


Rates = dict[tuple[str, str], list[float]]
"""Messages a second in each round, by topic and broker."""


def _rates(client: LoadClient, brokers: Sequence[Broker], rounds: int, copies: int) -> Rates:
    rates: Rates = {}
    for _ in range(rounds):
        for topic in (*FANOUT, *CORRELATION, *SQL):
            for broker in brokers:
                if broker.name == "twinbus" or not topic.is_sql:
                    count = max(FEWEST, copies // topic.copies // (4 if topic.rules else 1))
                    known = rates.setdefault((topic.name, broker.name), [])
                    known.append(_send(client, broker, topic, count, max(known, default=0.0)))
    return rates


def _send(client: LoadClient, broker: Broker, topic: Topic, count: int, rate: float) -> float:
    """Messages a second, of so many, or of those that fit into some seconds at the rate known so far."""
    address = topic.name if broker.name == "twinbus" else f"/exchange/{topic.name}"
    count = max(FEWEST, min(count, round(rate * SECONDS))) if rate else FEWEST
    if broker.name != "twinbus":
        return client.send(replace(broker, address=address), count, MATCHED)
    # A large send is acknowledged when it is stored, its copies are made later: they count when they are there.
    where = Namespace.from_connection_string(broker.environment["CONNECTION_STRING"])
    with where.admin_client(COPIES_WAIT_S) as admin:
        there = _stored(admin, topic)
        acknowledged_s = count / client.send(replace(broker, address=address), count, MATCHED)
        began = time.monotonic()
        while _stored(admin, topic) < there + count:
            if time.monotonic() - began > COPIES_WAIT_S:
                raise TwinbusError(f"{topic.name}: copies of {count} messages are missing after {COPIES_WAIT_S:g} s")
            time.sleep(0.005)
        return count / (acknowledged_s + time.monotonic() - began)


def _stored(admin: ServiceBusAdministrationClient, topic: Topic) -> int:
    """Messages in the subscription that gets all of them; every other one of a fan-out gets its copies with it."""
    name = "s3" if topic.rules else "s0"
    return admin.get_subscription_runtime_properties(topic.name, name).active_message_count or 0


def _fanout_rows(rates: Rates) -> list[Row]:
    rows = [_beside(f"fan-out to {topic.subscriptions:,}", topic, rates) for topic in FANOUT]
    few, many = FANOUT[0], FANOUT[-1]
    cost = {topic.name: 1 / (_best(rates, topic) * topic.copies) for topic in FANOUT}
    growth = cost[many.name] / cost[few.name]
    name = f"fan-out: a copy among {many.copies:,} costs, of one among {few.copies}"
    return [*rows, Row(name, growth, "x", Must("<=", 2), details={"seconds_a_copy": cost})]


def _rule_rows(rates: Rates) -> list[Row]:
    few, many = CORRELATION
    rows = [_beside(f"{topic.rules:,} correlation rules", topic, rates) for topic in CORRELATION]
    growth = _best(rates, few) / _best(rates, many)
    rows.append(Row(f"{many.rules:,} correlation rules cost, of {few.rules}", growth, "x", Must("<=", 2)))
    rows += [_beside(f"{topic.rules} SQL rules", topic, rates) for topic in SQL]
    growth = _best(rates, SQL[0]) / _best(rates, SQL[1])
    return [*rows, Row(f"{SQL[1].rules} SQL rules cost, of {SQL[0].rules}", growth, "x")]


def _best(rates: Rates, topic: Topic, broker: str = "twinbus") -> float:
    return max(rates[topic.name, broker])


def _beside(name: str, topic: Topic, rates: Rates) -> Row:
    ours = _best(rates, topic)
    details: dict[str, Any] = {"twinbus_rounds": [round(rate, 1) for rate in rates[topic.name, "twinbus"]]}
    if (topic.name, "RabbitMQ") not in rates:
        return Row(name, ours, "msgs/s", ours=round(ours), details=details)
    theirs = _best(rates, topic, "RabbitMQ")
    details["rabbitmq_rounds"] = [round(rate, 1) for rate in rates[topic.name, "RabbitMQ"]]
    return Row(name, ours / theirs, "x", ours=round(ours), theirs=round(theirs), details=details)


def _joined(parts: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    return {name: [each for part in parts for each in part[name]] for name in parts[0]}


def _start_twinbus(folder: Path, processes: Processes, core: int | None, topics: Sequence[Topic]) -> Broker:
    key = secrets.token_hex(16)
    folder.mkdir()

    async def make() -> None:
        async with NamespaceServer(NamespaceOptions(name="bench", port=0, data=folder, key=key)) as server:
            for topic in topics:
                for command in topic.commands():
                    await server.administer(command)

    asyncio.run(make())
    port = free_port()
    command = (
        sys.executable,
        "-m",
        "twinbus",
        "serve",
        "--namespace",
        f"bench:{port}",
        "--data",
        str(folder),
        "--json",
    )
    process = processes.start(command, core, folder / "serve.log", {"TWINBUS_KEY": key})
    process.wait_for_port(port, START_WAIT_S)
    (ca_file,) = folder.rglob("ca.pem")
    where = ConnectionString(host="127.0.0.1", port=port, namespace="bench", key=key, ca_file=ca_file)
    return Broker("twinbus", port, "", ROOT_KEY_NAME, key, process, {"CONNECTION_STRING": str(where)})
