"""The tokens of a connection: waiting for their end can be cancelled."""

from __future__ import annotations

import asyncio
import gc

import pytest

from twinbus.amqp.codec.types import Value
from twinbus.transport.dial import CbsToken, Dial
from twinbus.transport.links.requests import Response
from twinbus.transport.tokens import TokenRenewer

NEVER = 4e9


async def put(properties: dict[str, Value], token: str) -> Response:
    return Response(202, "Accepted", None, None)


def dial() -> Dial:
    return Dial("localhost", 5672, None, None, lambda audience: CbsToken("t", "servicebus.windows.net:sastoken", NEVER))


async def test_a_close_that_is_cancelled_ends() -> None:
    renewer = TokenRenewer(dial(), put)
    await renewer.provide("orders")
    closing = asyncio.create_task(renewer.close())
    await asyncio.sleep(0)  # it waits for the task that renews tokens
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_after_the_close_nothing_renews_tokens() -> None:
    before = asyncio.all_tasks()
    renewer = TokenRenewer(dial(), put)
    await renewer.provide("orders")
    await renewer.close()
    await renewer.close()
    assert asyncio.all_tasks() == before


async def test_a_renewal_that_breaks_is_logged_at_once_and_asyncio_has_nothing_to_add(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_first = True

    async def put_once(properties: dict[str, Value], token: str) -> Response:
        nonlocal is_first
        if not is_first:
            raise ValueError("a frame that nobody understands")
        is_first = False
        return await put(properties, token)

    renewer = TokenRenewer(dial(), put_once)
    await renewer.provide("orders")
    renewer._renew_at["orders"] = 0.0  # it is due
    async with asyncio.timeout(60):
        while not caplog.records:
            await asyncio.sleep(0)
    await renewer.close()
    await renewer.close()
    del renewer
    gc.collect()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("twinbus.syphon", "ERROR")
    assert record.getMessage() == "tokens are renewed no longer: ValueError: a frame that nobody understands"


async def test_a_close_that_ends_the_renewal_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    renewer = TokenRenewer(dial(), put)
    await renewer.provide("orders")
    await renewer.close()
    assert caplog.records == []
