from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from twinbus.client.credentials import (
    AioBoundedCredential,
    BoundedCredential,
    NoToken,
    ThreadedCredential,
    for_aio,
    token_source,
)

LATER = 4_102_444_800
SOON_S = 0.2
WAIT_S = 60


class Hanging:
    """A credential whose authority does not answer until it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = 0

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked += 1
        self.may_answer.wait(WAIT_S)
        return AccessToken("at last", LATER)


class Refusing:
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise ClientAuthenticationError("no such client")


class AioHanging:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        await asyncio.sleep(WAIT_S)
        return AccessToken("at last", LATER)


class AioPrompt:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("at once", LATER)


def test_a_credential_that_hangs_is_not_waited_for() -> None:
    hanging = Hanging()
    began = monotonic()
    with pytest.raises(NoToken, match=r"within 0\.2 s"):
        BoundedCredential(hanging, SOON_S).get_token("scope")
    assert monotonic() - began < WAIT_S / 2
    hanging.may_answer.set()


def test_while_a_question_hangs_nobody_asks_again() -> None:
    hanging = Hanging()
    credential = BoundedCredential(hanging, SOON_S)
    for _ in range(3):
        with pytest.raises(NoToken):
            credential.get_token("scope")
    assert hanging.asked == 1
    hanging.may_answer.set()
    assert BoundedCredential(hanging, WAIT_S).get_token("scope").token == "at last"


def test_every_question_after_an_answer_is_asked_anew() -> None:
    hanging = Hanging()
    hanging.may_answer.set()
    credential = BoundedCredential(hanging, WAIT_S)
    assert {credential.get_token("scope").token for _ in range(3)} == {"at last"}
    assert hanging.asked == 3


def test_what_a_credential_raises_is_raised() -> None:
    with pytest.raises(ClientAuthenticationError, match="no such client"):
        BoundedCredential(Refusing(), WAIT_S).get_token("scope")


async def test_an_asyncio_credential_that_hangs_is_not_waited_for() -> None:
    with pytest.raises(NoToken, match=r"within 0\.2 s"):
        await AioBoundedCredential(AioHanging(), SOON_S).get_token("scope")


async def test_a_sync_credential_serves_asyncio_too() -> None:
    hanging = Hanging()
    credential = for_aio(hanging, WAIT_S)
    assert isinstance(credential, ThreadedCredential)
    asked = asyncio.ensure_future(credential.get_token("scope"))
    await asyncio.sleep(0)  # the loop is free meanwhile
    hanging.may_answer.set()
    assert (await asked).token == "at last"


async def test_tokens_of_an_asyncio_credential_can_be_fetched_from_another_thread() -> None:
    fetch = token_source(AioPrompt(), WAIT_S)  # type: ignore[arg-type]
    token = await asyncio.to_thread(fetch, "sb://contoso.servicebus.windows.net/orders")
    assert token.text == "at once"
