"""A port for monitoring a proxy: `/metrics` for Prometheus, `/healthz` for health probes.

It is separate because these paths would be names of entities on the proxy's own port. It needs no key, and shows names
of entities and numbers, but no contents of messages.

    /healthz, /healthz/live    200 as long as the process works
    /healthz/ready             200 if messages can be stored somewhere, else 503; the text says why
"""

from __future__ import annotations

import os
from typing import Protocol

from aiohttp import web

from twinbus.broker.ops.metrics import PROMETHEUS_CONTENT_TYPE
from twinbus.errors import TwinbusError

SHUTDOWN_S = 1.0
IDLE_S = 15.0
READY_HELP = "1 while messages that are sent to the proxy can be stored somewhere, else 0."


class WatchedProxy(Protocol):
    def ready(self) -> tuple[bool, str]: ...

    def metrics_text(self) -> str:
        """All numbers, as Prometheus scrapes them."""


class MetricsPort:
    def __init__(self, host: str, port: int, watched: WatchedProxy) -> None:
        self._host, self._port = host, port
        self._watched = watched
        app = web.Application(client_max_size=1024)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/healthz/live", self._live)
        app.router.add_get("/healthz/ready", self._ready)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=IDLE_S, shutdown_timeout=SHUTDOWN_S, handle_signals=False
        )

    @property
    def port(self) -> int:
        """Where it listens, once it has started."""
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Raises `TwinbusError` if it cannot listen on the address."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            text = os.strerror(error.errno) if error.errno else str(error)
            raise TwinbusError(f"--metrics: cannot listen on {self._host}:{self._port}: {text}") from None

    async def stop(self) -> None:
        """Harmless if it is stopped already."""
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        is_ready = self._watched.ready()[0]
        ready = f"# HELP twinbus_proxy_ready {READY_HELP}\n# TYPE twinbus_proxy_ready gauge\n"
        text = f"{self._watched.metrics_text()}{ready}twinbus_proxy_ready {int(is_ready)}\n"
        return web.Response(body=text.encode(), headers={"Content-Type": PROMETHEUS_CONTENT_TYPE})

    async def _live(self, _: web.Request) -> web.Response:
        is_ready, reason = self._watched.ready()
        return web.json_response({"is_live": True, "is_ready": is_ready, "reason": reason})

    async def _ready(self, _: web.Request) -> web.Response:
        is_ready, reason = self._watched.ready()
        return web.json_response({"is_ready": is_ready, "reason": reason}, status=200 if is_ready else 503)
