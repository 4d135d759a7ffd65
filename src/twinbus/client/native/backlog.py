"""Backlog queues on links of our own engine: one link for each queue, which all senders of a pair share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from time import monotonic

from twinbus.client.core.link_rules import IDLE_S
from twinbus.client.flows.send_request import STANDARD_BATCH_BYTES
from twinbus.client.native.links import NativeLinks
from twinbus.client.native.send_window import SendWindow
from twinbus.client.sdk.failures import LinkFailed
from twinbus.pairing.sending.encoded_messages import encode_batch


class NativeBacklog:
    """As `BacklogLinks` says. Messages sent at the same time travel on one link, in their order."""

    def __init__(self, links: NativeLinks, path_of: Callable[[int], str]) -> None:
        self._links = links
        self._path_of = path_of
        self.batch_bytes = STANDARD_BATCH_BYTES
        self._used: set[int] = set()

    @property
    def links(self) -> int:
        return self._links.count

    async def send(self, queue: int, encoded: Sequence[bytes], timeout_s: float, *, is_patient: bool = True) -> None:
        window = self._links.ready(self._path_of(queue))
        if window is None:
            window = await self._open(queue, timeout_s)
        payload, message_format = encode_batch(list(encoded))
        await self._links.store(window, payload, message_format)

    async def open_another(self, queue: int, timeout_s: float) -> None:
        self._opened(queue, await self._links.open_anew(self._path_of(queue), timeout_s))

    def is_warm(self, queue: int) -> bool:
        return self._links.is_known(self._path_of(queue))

    async def warm_up(self, queue: int, timeout_s: float) -> None:
        with contextlib.suppress(LinkFailed):
            await self._open(queue, timeout_s)

    def close_idle(self, keep: int | None = None) -> None:
        oldest = monotonic() - IDLE_S
        for queue in tuple(self._used):
            window = self._links.ready(self._path_of(queue))
            if window is None:
                self._used.discard(queue)
            elif queue != keep and window.is_empty and window.used_at < oldest:
                self._used.discard(queue)
                self._links.retire(window)

    async def _open(self, queue: int, timeout_s: float) -> SendWindow:
        return self._opened(queue, await self._links.get(self._path_of(queue), timeout_s))

    def _opened(self, queue: int, window: SendWindow) -> SendWindow:
        self._used.add(queue)
        self.batch_bytes = window.batch_bytes_max
        return window
