"""A proxy on a thread of this process, in front of two namespaces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from twinbus.broker.auth.access_rules import AccessRule
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.broker.net.ports import reserve_port
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.proxy.options import ProxyOptions
from twinbus.proxy.server import ProxyServer
from twinbus.testing import LocalNamespace

Result = TypeVar("Result")
WAIT_S = 60.0


class LocalProxy:
    """Stopped and started again it has the same port and key."""

    def __init__(
        self,
        primary: str,
        secondary: str,
        *,
        key: str | None = "the-key-of-the-proxy",
        rules: tuple[AccessRule, ...] = (),
        data: Path | None = None,
        limits: TrafficLimits | None = None,
        server_limits: ServerLimits | None = None,
        **pairing: Any,
    ) -> None:
        """`primary` and `secondary` are connection strings; `pairing` are options of the pair.

        Without a `key` it makes one and keeps it in `data`.
        """
        reserved = reserve_port()
        assert reserved is not None, "there is a free port"
        self._reserved = reserved
        options = SendAvailabilityPairedNamespaceOptions(Namespace.from_connection_string(secondary), **pairing)
        self._options = ProxyOptions(
            port=self._reserved.getsockname()[1],
            key=key,
            data=data,
            rules=rules,
            limits=limits or TrafficLimits(),
            server_limits=server_limits or ServerLimits(),
            primary=Namespace.from_connection_string(primary),
            pairing=options,
        )
        self.server: ProxyServer
        self.connection_string = ""

    @property
    def port(self) -> int:
        return self._options.port

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.server = ProxyServer(self._options)
        try:
            self.ask(self.server.start())
        except BaseException:
            self._end_thread()
            raise
        self.connection_string = self.server.connection_string

    def stop(self) -> None:
        try:
            self.ask(self.server.stop())
        finally:
            self._end_thread()

    def ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine, in the thread of the proxy."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def _end_thread(self) -> None:
        self.ask(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> LocalProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._reserved.close()


class ProxiedNamespace(LocalNamespace):
    """A namespace that is reached through a proxy only: then every test of a namespace is one of the proxy, too."""

    _proxy: LocalProxy | None = None
    _secondary: LocalNamespace | None = None

    def start(self) -> None:
        super().start()
        if self._proxy is not None:
            return  # it was restarted, and the proxy was not
        self._secondary = LocalNamespace("backup")
        self._secondary.start()
        running = self._running
        self._proxy = LocalProxy(
            super().connection_string,
            self._secondary.connection_string,
            key=running.key,
            rules=running.rules[1:],
            limits=running.options.limits,
            failover_interval=timedelta(minutes=10),
            backlog_queue_count=1,
            primary_name=running.options.name,
        )
        self._proxy.start()

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None
        if self._secondary is not None:
            self._secondary.stop()
            self._secondary = None
        super().stop()

    @property
    def _reached(self) -> ProxyServer:
        assert self._proxy is not None, "start it first"
        return self._proxy.server

    @property
    def port(self) -> int:
        return self._reached.port

    @property
    def connection_string(self) -> str:
        return self._reached.connection_string

    def connection_string_for(self, rule_name: str) -> str:
        return self._reached.connection_string_for(rule_name)

    @property
    def ca_file(self) -> Path | None:
        return self._reached.ca_file
