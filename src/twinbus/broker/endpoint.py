"""Where a namespace is reached: one port that serves AMQP, AMQP over WebSocket and HTTP, with TLS or without.

Faults can close it, reset its connections, or make it silent.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, Self, TypeVar

from aiohttp.web import Application

from twinbus.broker.admin.error_responses import REFUSE, error_response
from twinbus.broker.auth.access_rules import AccessRule
from twinbus.broker.faults.effects import OutageMode
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.accepted_connection import AcceptedConnection, ProtocolHandler
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.net.http_server import HttpServer
from twinbus.broker.net.listener import Listener
from twinbus.broker.net.sniffer import ConnectionProtocol
from twinbus.broker.net.tls import Tls, names_in, open_tls, read_identity
from twinbus.broker.net.websocket_connection import WebSocketConnection
from twinbus.connection_string import EVERY_ADDRESS, ROOT_KEY_NAME, ConnectionString, can_be_written
from twinbus.errors import OptionsError, TwinbusError
from twinbus.options import EndpointOptions

logger = logging.getLogger("twinbus.namespace")

PORT_PAUSE_S = 1.0

Options = TypeVar("Options", bound=EndpointOptions)


class Endpoint:
    """`bind` it, `open` it with what is served there, `listen`; then `close` it."""

    def __init__(self, options: EndpointOptions, limits: ServerLimits, faults: FaultTable) -> None:
        self._options = options
        self._limits = limits
        self._faults = faults
        self._tls: Tls | None = None
        self._http: HttpServer | None = None
        self._amqp: AmqpServer | None = None
        self.listener = Listener(
            options.host,
            options.port,
            limits=limits,
            handlers={
                ConnectionProtocol.AMQP: self._amqp_handler,
                ConnectionProtocol.HTTP: self._http_handler,
                ConnectionProtocol.WEBSOCKET: self._websocket_handler,
            },
            tls_context=self._tls_context,
            tls_only=options.tls_only,
            is_dropping=lambda: faults.outage() is OutageMode.DROP,
        )

    async def bind(self) -> None:
        """Bind the port without listening; harmless when it is bound. Raises a `TwinbusError`."""
        self._loop = asyncio.get_running_loop()
        if self._options.cert is not None and self._options.key_file is not None:
            read_identity(self._options.cert, self._options.key_file)  # now, to report what is wrong with them
        await self.listener.bind()

    async def open(self, amqp: AmqpServer, app: Application) -> None:
        """What is served on the port from now on; raises a `TwinbusError` if there is no certificate for TLS."""
        self._amqp = amqp
        self._tls = await asyncio.to_thread(open_tls, self._options, self.listener.port, datetime.now(UTC))
        self._http = HttpServer(app, self._limits, app[REFUSE], error_response)
        await self._http.open()

    def listen(self) -> None:
        self.listener.listen()
        if not self.listener.is_tls_only and not self.listener.is_for_this_machine:
            logger.warning(
                "namespace %s can be reached from other machines without TLS: keys and messages can be read on the way",
                self._options.name,
            )

    async def close(self) -> None:
        """Accept nothing more, and answer the HTTP requests under way; AMQP connections stay."""
        self.listener.close()
        if self._http is not None:
            await self._http.close()
            self._http = None

    def forget_certificate(self) -> None:
        """Remove a certificate that was made for this run."""
        if self._tls is not None:
            self._tls.close()

    # --- protocols and TLS ---

    def _amqp_handler(self, accepted: AcceptedConnection) -> ProtocolHandler:
        assert self._amqp is not None
        return AmqpConnection(self._amqp, accepted)

    def _websocket_handler(self, accepted: AcceptedConnection) -> ProtocolHandler:
        assert self._amqp is not None
        return WebSocketConnection(self._amqp, accepted)

    def _http_handler(self, accepted: AcceptedConnection) -> ProtocolHandler:
        assert self._http is not None
        return self._http.handler_of(accepted)

    def _tls_context(self) -> ssl.SSLContext:
        assert self._tls is not None
        return self._tls.context(datetime.now(UTC))

    @property
    def ca_file(self) -> Path | None:
        """The certificate that clients have to trust for TLS; None: one that their machines trust anyway."""
        return None if self._tls is None else self._tls.identity.ca

    def connection_string(self, key_name: str, key: str) -> str:
        """What an application needs to connect with this key, in one line."""
        reached = ConnectionString(
            host=self.reachable_host(),
            port=self.listener.port,
            namespace=self._options.name,
            key=key,
            key_name=key_name,
            ca_file=self.ca_file if self.ca_file is not None and can_be_written(str(self.ca_file)) else None,
            is_emulator=not self.listener.is_tls_only,
        )
        return str(reached)

    def reachable_host(self) -> str:
        """A host to connect to: over TLS one that the given certificate names."""
        host = self._options.host
        if self.listener.is_tls_only and self._tls is not None and self._options.cert is not None:
            named = names_in(self._tls.identity.certificate)
            if named and host not in named:
                return named[0]
        return EVERY_ADDRESS.get(host, host)

    # --- faults, see `FaultableServer` ---

    def pause_listening(self) -> None:
        self.listener.pause()

    def resume_listening(self) -> None:
        """Accept connections again, as soon as the port is free: another process may have taken it."""
        try:
            self.listener.resume()
        except TwinbusError as error:
            logger.warning("namespace %s has no port and tries again: %s", self._options.name, error)
            self._loop.call_later(PORT_PAUSE_S, self._resume_if_wanted)

    def _resume_if_wanted(self) -> None:
        if self._http is not None and self._faults.outage() is not OutageMode.REFUSE:
            self.resume_listening()

    def drop_connections(self) -> None:
        self.listener.drop_connections()

    def go_silent(self) -> None:
        self.listener.go_silent()
        if self._http is not None:
            self._http.go_silent()

    def speak_again(self) -> None:
        if self._http is not None:
            self._http.speak_again()
        self.listener.speak_again()

    def faults_changed(self) -> None:
        if self._amqp is not None:
            self._amqp.faults_changed()


class EndpointServer(Generic[Options]):
    """Whatever is reached at an endpoint. `async with` it: it serves until the block ends."""

    def __init__(self, options: Options, limits: ServerLimits, faults: FaultTable) -> None:
        self.options = options
        self.rules: tuple[AccessRule, ...] = ()
        """With their keys, once they are known; the one with all rights comes first."""
        self._endpoint = Endpoint(options, limits, faults)

    @property
    def port(self) -> int:
        return self._endpoint.listener.port

    @property
    def connection_string(self) -> str:
        """With the key that opens everything."""
        return self.connection_string_for(ROOT_KEY_NAME)

    def connection_string_for(self, rule_name: str) -> str:
        """With the first key of one of the rules; raises `OptionsError` if there is no such rule."""
        for rule in self.rules:
            if rule.name == rule_name:
                return self._endpoint.connection_string(rule.name, rule.keys[0])
        names = ", ".join(rule.name for rule in self.rules)
        raise OptionsError(f"namespace {self.options.name} has no rule {rule_name!r}; rules are {names}")

    @property
    def ca_file(self) -> Path | None:
        """The certificate that clients have to trust for TLS; None: one that their machines trust anyway."""
        return self._endpoint.ca_file

    @property
    def is_tls_only(self) -> bool:
        """Whether peers that do not use TLS are refused; known once the port is bound."""
        return self._endpoint.listener.is_tls_only

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Bind the port, open what is behind it, listen. Raises a `TwinbusError`, with everything closed."""
        await self.bind()
        try:
            await self._open()
            self._endpoint.listen()
        except BaseException:
            await self.stop()
            raise

    async def bind(self) -> None:
        """Bind the port without listening; `start` does this too.

        It comes before anything is opened, so that a port in use leaves no trace on disk.
        """
        await self._endpoint.bind()

    async def _open(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Accept nothing more, answer what was accepted, close. Harmless when it is stopped."""
        raise NotImplementedError
