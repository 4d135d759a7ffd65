"""The console's port: the listener and the HTTP of a namespace, with limits of their own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.http_server import HttpServer
from twinbus.broker.net.listener import Listener
from twinbus.broker.net.sniffer import ConnectionProtocol
from twinbus.broker.net.tls import Tls, read_identity
from twinbus.console.access import ConsoleAccess, host_names, is_loopback
from twinbus.console.actions import ConsoleActions, ConsolePair
from twinbus.console.app import ConsoleApp, error_response
from twinbus.console.state import ConsoleState
from twinbus.console.watch import ConsoleWatch
from twinbus.errors import OptionsError

LIMITS = ServerLimits(
    connections=200,
    unauthenticated_connections=50,
    unauthenticated_bytes_all=4 * 1024 * 1024,
    held_bytes=1024 * 1024,
    held_bytes_all=64 * 1024 * 1024,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """How the console is reached. Raises `OptionsError` with everything that is wrong."""

    host: str = "127.0.0.1"
    port: int = 9470
    """0 picks a free one."""
    token: str = field(repr=False)
    names: tuple[str, ...] = ()
    """Further names of the machine, by which browsers may reach it."""
    allows_changes: bool = False
    cert: Path | None = None
    key_file: Path | None = None

    def __post_init__(self) -> None:
        problems = []
        if (self.cert is None) != (self.key_file is None):
            problems.append("--cert and --key-file need each other")
        if self.cert is None and not is_loopback(self.host):
            problems.append(
                f"{self.host} can be reached from other machines: give --cert and --key-file, or reach the console "
                "through a tunnel (ssh -L)"
            )
        if not host_names(self.host, 1, self.names):
            problems.append(f"--host {self.host} has no name: say by --host-name how browsers reach it")
        if problems:
            raise OptionsError("; ".join(problems))

    @property
    def is_tls(self) -> bool:
        return self.cert is not None


class ConsoleServer:
    """`start` it in an event loop, and `stop` it."""

    def __init__(self, options: ConsoleOptions, pair: ConsolePair, state: ConsoleState, watch: ConsoleWatch) -> None:
        self._options, self._pair, self._state, self._watch = options, pair, state, watch
        self._tls: Tls | None = None
        self._http: HttpServer | None = None
        self._app: ConsoleApp | None = None
        self._listener = Listener(
            options.host,
            options.port,
            limits=LIMITS,
            handlers={ConnectionProtocol.HTTP: lambda accepted: self._running_http.handler_of(accepted)},
            tls_context=self._tls_context,
            tls_only=options.is_tls,
        )

    async def start(self) -> None:
        """Raises `TwinbusError` if it cannot listen there."""
        options = self._options
        if options.cert is not None and options.key_file is not None:
            cert, key = options.cert, options.key_file
            self._tls = await asyncio.to_thread(Tls, lambda _: read_identity(cert, key), datetime.now(UTC))
        await self._listener.bind()
        names: Iterable[str] = host_names(options.host, self.port, options.names, is_tls=options.is_tls)
        app = self._app = ConsoleApp(
            ConsoleAccess(options.token, names, is_tls=options.is_tls),
            self._state,
            ConsoleActions(self._pair, self._watch.queues),
            about={
                "primary": self._pair.primary.host_label,
                "secondary": self._pair.secondary.host_label,
            },
            allows_changes=options.allows_changes,
            is_tls=options.is_tls,
            cookie_name=lambda: f"twinbus-console-{self.port}",  # cookies do not tell ports apart
        )
        self._http = HttpServer(app.web, LIMITS, app.refusal_of, error_response)
        await self._http.open()
        self._listener.listen()
        self._watch.start()

    async def stop(self) -> None:
        """Harmless if it is stopped already."""
        self._listener.close()
        if self._app is not None:
            self._app.close_streams()
        await self._watch.stop()
        if self._http is not None:
            await self._http.close()
            self._http = None

    @property
    def port(self) -> int:
        """Where it listens, once it has started."""
        return self._listener.port

    @property
    def address(self) -> str:
        """Where a browser finds it, without the token."""
        options = self._options
        name = options.names[0] if options.names else "127.0.0.1" if is_loopback(options.host) else options.host
        name = f"[{name}]" if ":" in name and not name.startswith("[") else name
        return f"{'https' if options.is_tls else 'http'}://{name}:{self.port}/"

    @property
    def entrance(self) -> str:
        """The same with the token, behind the #: browsers do not send that part to anybody."""
        return f"{self.address}#{self._options.token}"

    @property
    def _running_http(self) -> HttpServer:
        assert self._http is not None, "started"
        return self._http

    def _tls_context(self) -> ssl.SSLContext:
        assert self._tls is not None
        return self._tls.context(datetime.now(UTC))
