"""The tokens of a connection: who waits for their end can be told to stop waiting."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.amqp.types import Value
from twinbus.dial import Dial, Token
from twinbus.syphon.requests import Answer
from twinbus.syphon.tokens import TokenKeeper

NEVER = 4e9


async def put(properties: dict[str, Value], token: str) -> Answer:
    return Answer(202, "Accepted", None, None)


def dial() -> Dial:
    return Dial("localhost", 5672, None, None, lambda audience: Token("t", "servicebus.windows.net:sastoken", NEVER))


async def test_who_is_told_to_end_while_he_closes_it_ends() -> None:
    keeper = TokenKeeper(dial(), put)
    await keeper.provide("orders")
    closing = asyncio.create_task(keeper.close())
    await asyncio.sleep(0)  # it waits for the task that renews tokens
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_after_the_close_nothing_renews_tokens() -> None:
    before = asyncio.all_tasks()
    keeper = TokenKeeper(dial(), put)
    await keeper.provide("orders")
    await keeper.close()
    await keeper.close()
    assert asyncio.all_tasks() == before
