"""The administration of a running namespace on a plain HTTP port of its own, and official clients that speak to it.

The official administration clients dial https, always; these transports dial http instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from admin_booth import AdminBooth
from aiohttp import web
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.namespace.admin.app import make_admin_app
from twinbus.testing import LocalNamespace


class PlainTransport(RequestsTransport):  # type: ignore[misc]
    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


class PlainAioTransport(AioHttpTransport):  # type: ignore[misc]
    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


@contextmanager
def admin_port(namespace: LocalNamespace) -> Iterator[str]:
    """Serve it; yields a connection string for the clients below."""
    server = namespace._running
    house = AdminBooth(server._seam.do, server.clock, server.reception.authority)
    runner = web.AppRunner(make_admin_app(house), access_log=None)

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    port = namespace._ask(start())
    try:
        yield f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={server.key}"
    finally:
        namespace._ask(runner.cleanup())


def admin_client(connection_string: str, **options: Any) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, transport=PlainTransport(), **options
    )


def aio_admin_client(connection_string: str, **options: Any) -> AioAdministrationClient:
    return AioAdministrationClient.from_connection_string(connection_string, transport=PlainAioTransport(), **options)
