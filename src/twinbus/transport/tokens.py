"""The tokens of one connection: put before the first use of an entity, and renewed before they expire."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.failures import ConnectionFailed, failure_of
from twinbus.transport.links.requests import Response

if TYPE_CHECKING:
    from twinbus.transport.dial import CbsToken, Dial

PutToken = Callable[[dict[str, Value], str], Awaitable[Response]]
_RENEW_AT_PART = 0.8
"""A token is renewed when this part of its lifetime is over."""
_RETRY_S = 5.0
_DEFAULT_PORTS = (5671, 5672, 443)


class TokenRenewer:
    def __init__(self, dial: Dial, put: PutToken, name: str = "syphon") -> None:
        """`name` says who connects, for the names of task and log."""
        self._dial = dial
        self._put = put
        self._name = name
        self._renew_at: dict[str, float] = {}
        """By path, when its token is to be renewed, in seconds since 1970."""
        self._locks: dict[str, asyncio.Lock] = {}
        """By path, held while its token is put; other paths do not wait for it."""
        self._task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Entities that the connection has a token for, or soon has."""
        return len(self._renew_at) + len(self._locks)

    def has(self, path: str) -> bool:
        return path in self._renew_at or path in self._locks

    async def provide(self, path: str) -> None:
        """Make sure that the connection has a token for this entity. Raises `ConnectionFailed`."""
        if path in self._renew_at:
            return
        lock = self._locks.setdefault(path, asyncio.Lock())
        try:
            async with lock:
                if path not in self._renew_at:
                    await self._put_one(path)
        finally:
            if not lock.locked():  # names can be invented without end; at worst a token is put twice
                self._locks.pop(path, None)
        if self._task is None:
            self._task = asyncio.create_task(self._renew_all(), name=f"{self._name}-tokens")
            self._task.add_done_callback(self._log_error)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})  # awaiting the task itself would raise its cancellation here

    async def _put_one(self, path: str) -> None:
        audience = self._audience(path)
        token = await self._get(audience)
        expiration = Timestamp(int(token.expires_at * 1000))
        properties = {"operation": "put-token", "type": token.type, "name": audience, "expiration": expiration}
        response = await self._put(properties, token.text)
        if not response.is_ok:
            raise ConnectionFailed(failure_of(response.error))
        now = time.time()
        self._renew_at[path] = now + max(1.0, (token.expires_at - now) * _RENEW_AT_PART)

    async def _get(self, audience: str) -> CbsToken:
        """On a thread: a credential may block for as long as it likes."""
        try:
            return await asyncio.to_thread(self._dial.get_token, audience)
        except Exception as error:
            text = f"no token: {type(error).__name__}"  # the text of a credential's exception may contain a secret
            raise ConnectionFailed(Failure(FailureKind.UNAUTHORISED, text, error=error)) from None

    def _audience(self, path: str) -> str:
        host = self._dial.hostname or self._dial.host
        port = "" if self._dial.port in _DEFAULT_PORTS else f":{self._dial.port}"
        return f"sb://{host}{port}/{path}"

    async def _renew_all(self) -> None:
        while True:
            path, due = min(self._renew_at.items(), key=lambda entry: entry[1])
            delay_s = due - time.time()
            if delay_s > 0:
                await asyncio.sleep(min(delay_s, 60.0))  # in steps: the clock may be set, and paths may be added
                continue
            try:
                await self._put_one(path)
            except ConnectionFailed:
                # If it keeps failing, the server detaches the links and says why.
                self._renew_at[path] = time.time() + _RETRY_S

    def _log_error(self, task: asyncio.Task[None]) -> None:
        """Nobody awaits the task, so its error is logged here."""
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "tokens are renewed no longer: %s: %s"
            logging.getLogger(f"twinbus.{self._name}").error(text, type(error).__name__, error, exc_info=error)
