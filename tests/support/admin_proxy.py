"""A proxy that administers only: the port of the real one, the relay of administration behind it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar, cast

from twinbus import Namespace
from twinbus.broker.auth.access_rules import RuleBook, parse_rule
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.keyring import rules_with_keys
from twinbus.broker.clock import WallClock
from twinbus.broker.endpoint import Endpoint
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.connection_string import ConnectionString
from twinbus.options import EndpointOptions
from twinbus.proxy.administration.administration import ANSWER_S, make_administration

T = TypeVar("T")
WAIT_S = 30


class AdminProxy:
    """`with AdminProxy(primary) as proxy:` serves on a thread of its own."""

    def __init__(
        self,
        primary: Namespace,
        *rules: str,
        connect_s: float = 5.0,
        answer_s: float = ANSWER_S,
        host: str = "127.0.0.1",
    ) -> None:
        self.primary = primary
        self.counted: list[tuple[str, int]] = []
        self._connect_s, self._answer_s = connect_s, answer_s
        self.options = EndpointOptions(name="proxy", host=host, port=0, rules=tuple(map(parse_rule, rules)))
        self.rules = rules_with_keys(None, self.options.rules, None)
        clock = WallClock()
        faults = FaultTable(random.random, Throttle(ThrottleLimits(), lambda _: False))
        self.endpoint = Endpoint(self.options, self.options.server_limits, faults)
        self._authority, self._clock = Authority(RuleBook(self.rules)), clock

    async def _start(self) -> None:
        app = make_administration(
            self.primary,
            self._authority,
            self._clock,
            lambda path, size: self.counted.append((path, size)),
            connect_s=self._connect_s,
            answer_s=self._answer_s,
        )
        await self.endpoint.bind()
        await self.endpoint.open(cast(AmqpServer, None), app)
        self.endpoint.listen()

    async def _stop(self) -> None:
        await self.endpoint.close()
        self.endpoint.forget_certificate()

    @property
    def port(self) -> int:
        return self.endpoint.listener.port

    @property
    def ca_file(self) -> str:
        return str(self.endpoint.ca_file)

    @property
    def connection_string(self) -> str:
        return self.connection_string_for(self.rules[0].name)

    def connection_string_for(self, rule_name: str) -> str:
        (rule,) = [rule for rule in self.rules if rule.name == rule_name]
        said = ConnectionString(
            host=self.options.host, port=self.port, namespace="proxy", key=rule.keys[0], key_name=rule.name
        )
        return str(said)

    def __enter__(self) -> AdminProxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.ask(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ask(self._stop())
        self.ask(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)
