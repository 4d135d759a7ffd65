"""The port for those who watch a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from twinbus.errors import TwinbusError
from twinbus.proxy.metrics_port import MetricsPort


class FakeProxy:
    def __init__(self) -> None:
        self.state = (True, "")

    def ready(self) -> tuple[bool, str]:
        return self.state

    def metrics_text(self) -> str:
        return "twinbus_connections 3\n"


@pytest.fixture
def proxy() -> FakeProxy:
    return FakeProxy()


@pytest.fixture
async def port(proxy: FakeProxy) -> AsyncIterator[MetricsPort]:
    port = MetricsPort("127.0.0.1", 0, proxy)
    await port.start()
    yield port
    await port.stop()
    await port.stop()


async def get(port: MetricsPort, path: str, method: str = "GET") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port.port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_prometheus_gets_the_numbers(port: MetricsPort, proxy: FakeProxy) -> None:
    status, text = await get(port, "/metrics")
    assert status == 200
    assert text.startswith("twinbus_connections 3\n")
    assert text.endswith("\ntwinbus_proxy_ready 1\n")
    proxy.state = (False, "no place")
    assert (await get(port, "/metrics"))[1].endswith("\ntwinbus_proxy_ready 0\n")


async def test_a_proxy_that_is_not_ready_is_alive(port: MetricsPort, proxy: FakeProxy) -> None:
    assert await get(port, "/healthz/ready") == (200, '{"is_ready": true, "reason": ""}')
    proxy.state = (False, "neither namespace answers")
    assert await get(port, "/healthz/ready") == (503, '{"is_ready": false, "reason": "neither namespace answers"}')
    for path in ("/healthz", "/healthz/live"):
        status, text = await get(port, path)
        assert (status, "neither namespace answers" in text) == (200, True)


async def test_nothing_else_is_there(port: MetricsPort) -> None:
    assert (await get(port, "/"))[0] == 404
    assert (await get(port, "/orders"))[0] == 404
    assert (await get(port, "/metrics", "PUT"))[0] == 405


async def test_a_port_that_is_taken_is_said(port: MetricsPort, proxy: FakeProxy) -> None:
    with pytest.raises(TwinbusError, match=f"--metrics: cannot listen on 127.0.0.1:{port.port}: "):
        await MetricsPort("127.0.0.1", port.port, proxy).start()
