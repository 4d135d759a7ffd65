"""Tokens for everything we use on one connection: put before the first use, and again before they end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twinbus.amqp.types import Value
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.failures import failure_of
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.requests import Answer, put_token_request

if TYPE_CHECKING:
    from twinbus.dial import Dial, Token

logger = logging.getLogger("twinbus.syphon")

PutToken = Callable[[dict[str, Value], str], Awaitable[Answer]]
_USED_PART = 0.8
"""A token is renewed when this part of its time is over."""
_RETRY_S = 5.0
_PLAIN_PORTS = (5671, 5672)


class TokenKeeper:
    def __init__(self, dial: Dial, put: PutToken) -> None:
        self._dial = dial
        self._put = put
        self._renew_at: dict[str, float] = {}
        """Path -> when its token is to be renewed, in seconds since 1970."""
        self._locks: dict[str, asyncio.Lock] = {}
        """Path -> who puts its token now; those of other paths do not wait for it."""
        self._task: asyncio.Task[None] | None = None

    async def provide(self, path: str) -> None:
        """Make sure that the connection has a token for this entity. Raises `LineFailed` if it cannot."""
        if path in self._renew_at:
            return
        async with self._lock(path):
            if path not in self._renew_at:
                await self._put_one(path)
        if self._task is None:
            self._task = asyncio.create_task(self._renew_in_time(), name="syphon-tokens")
            self._task.add_done_callback(_log_why)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})  # not the task itself: its end is not to be taken for that of the caller

    def _lock(self, path: str) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    async def _put_one(self, path: str) -> None:
        audience = self._audience(path)
        token = await self._get(audience)
        answer = await self._put(put_token_request(audience, token.type, token.expires_at), token.text)
        if not answer.is_good:
            raise LineFailed(failure_of(answer.error))
        now = time.time()
        self._renew_at[path] = now + max(1.0, (token.expires_at - now) * _USED_PART)

    async def _get(self, audience: str) -> Token:
        """A credential may do anything to get its token, so it does it on a thread of its own."""
        try:
            return await asyncio.to_thread(self._dial.get_token, audience)
        except Exception as error:
            text = f"no token: {type(error).__name__}"  # the text of a stranger's exception may hold a secret
            raise LineFailed(Failure(FailureKind.UNAUTHORISED, text, error=error)) from None

    def _audience(self, path: str) -> str:
        host = self._dial.hostname or self._dial.host
        port = "" if self._dial.port in _PLAIN_PORTS else f":{self._dial.port}"
        return f"sb://{host}{port}/{path}"

    async def _renew_in_time(self) -> None:
        while True:
            path, due = min(self._renew_at.items(), key=lambda entry: entry[1])
            delay_s = due - time.time()
            if delay_s > 0:
                await asyncio.sleep(min(delay_s, 60.0))  # in steps: the clock may be set, paths may be added
                continue
            try:
                async with self._lock(path):
                    await self._put_one(path)
            except LineFailed:
                self._renew_at[path] = time.time() + _RETRY_S  # if it stays so, the server ends the links and says why


def _log_why(task: asyncio.Task[None]) -> None:
    """Say why tokens are renewed no longer, unless somebody wanted that: nobody else asks the task."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("tokens are renewed no longer: %s: %s", type(error).__name__, error, exc_info=error)
