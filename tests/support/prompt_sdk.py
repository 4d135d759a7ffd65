"""Clients of the official SDK close at once.

They wait for a thread (or task) of theirs that looks once a second whether it is to end. In hundreds of tests these
seconds add up. Here the thread is woken; whatever else it does is as in the SDK.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync
from azure.servicebus._pyamqp.client import AMQPClient

PERIOD_S = 1.0
"""That of the SDK."""


def close_at_once() -> None:
    """From now on, in the whole process."""
    for owner, replacements in (
        (AMQPClient, {"_keep_alive": _keep_alive, "close": _close}),
        (AMQPClientAsync, {"_keep_alive_async": _keep_alive_async, "close_async": _close_async}),
    ):
        for name, function in replacements.items():
            setattr(owner, name, function)


_sdk_close: Any = AMQPClient.close
_sdk_close_async: Any = AMQPClientAsync.close_async


def _keep_alive(self: Any) -> None:
    self.test_wake = threading.Event()
    last = time.time()
    try:
        while self._connection and not self._shutdown:
            if time.time() - last >= self._keep_alive_interval:
                self._connection.listen(wait=self._socket_timeout, batch=self._link.current_link_credit)
                last = time.time()
            self.test_wake.wait(PERIOD_S)
    except Exception:  # the SDK says it to its debug log
        pass


def _close(self: Any) -> None:
    self._shutdown = True
    if hasattr(self, "test_wake"):
        self.test_wake.set()
    _sdk_close(self)


async def _keep_alive_async(self: Any) -> None:
    self.test_wake = asyncio.Event()
    last = time.time()
    try:
        while self._connection and not self._shutdown:
            if time.time() - last >= self._keep_alive_interval:
                await asyncio.shield(
                    self._connection.listen(wait=self._socket_timeout, batch=self._link.current_link_credit)
                )
                last = time.time()
            try:
                await asyncio.wait_for(self.test_wake.wait(), PERIOD_S)
            except TimeoutError:
                continue
    except Exception:  # the same
        pass


async def _close_async(self: Any) -> None:
    self._shutdown = True
    if hasattr(self, "test_wake"):
        self.test_wake.set()
    await _sdk_close_async(self)
