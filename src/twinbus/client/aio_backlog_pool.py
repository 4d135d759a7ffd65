"""A few links to each backlog queue, shared by all senders of a client (tasks)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic

from azure.servicebus.aio import ServiceBusClient

from twinbus.client.aio_links import CLOSED, AioOpenings, AioSenderLink
from twinbus.client.backlog_pool import IDLE_S, LINKS_MAX, NoFreeLink, fair_end, is_silence
from twinbus.client.failures import LinkFailed
from twinbus.client.messages import batch_of
from twinbus.client.parcel import STANDARD_BATCH_BYTES


class AioBacklogPool:
    """The twin of `BacklogPool`; nothing here awaits between looking and taking, so it needs no lock."""

    def __init__(self, client: ServiceBusClient, path_of: Callable[[int], str]) -> None:
        self._client = client
        self._path_of = path_of
        self._idle: dict[int, list[tuple[float, AioSenderLink]]] = {}
        self._room: dict[int, asyncio.Semaphore] = {}
        self._open: dict[int, int] = {}
        self._openings = AioOpenings()
        self._lent: set[AioSenderLink] = set()
        self._is_closed = False
        self._stored_at = 0.0
        self.batch_bytes = STANDARD_BATCH_BYTES
        """What a backlog queue takes at once, as its links say."""

    async def send(self, queue: int, letters: Sequence[bytes], timeout_s: float, *, is_patient: bool = True) -> None:
        """Store the letters in a backlog queue; raises `LinkFailed`.

        For who is patient the time runs from when there is a link.
        """
        since = monotonic()
        async with self._turn(queue, timeout_s):
            link = await self._borrow(queue, monotonic() + timeout_s if is_patient else since + timeout_s)
            until = fair_end(since, timeout_s, is_patient=is_patient)
            if until is None:
                self._give_back(queue, link)
                raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since)
            try:
                self._lent.add(link)
                await link.send(batch_of(letters), max(0.001, until - monotonic()))
            except BaseException as error:
                self._drop(queue, link)
                if is_silence(error):
                    self._distrust(since)
                raise
            finally:
                self._lent.discard(link)
            self._stored_at = monotonic()
            self._give_back(queue, link)

    async def open_another(self, queue: int, timeout_s: float) -> None:
        """Open a new link and keep it for whoever sends next, however many there are; raises `LinkFailed`."""
        if self._is_closed:
            raise LinkFailed(CLOSED)
        self._give_back(queue, await self._open_link(queue, monotonic() + timeout_s))

    @property
    def links(self) -> int:
        """How many links are open, or being opened."""
        return sum(self._open.values())

    def is_warm(self, queue: int) -> bool:
        """Whether a link to it is open, or being opened."""
        return self._open.get(queue, 0) > 0

    async def warm_up(self, queue: int, timeout_s: float) -> None:
        """Open a link before it is needed; failures surface on the next send."""
        with contextlib.suppress(LinkFailed):
            async with self._turn(queue, timeout_s):
                self._give_back(queue, await self._borrow(queue, monotonic() + timeout_s))

    def close_idle(self, keep: int | None = None) -> None:
        """Close links that are dead, and those that nobody used for a while; one to the queue `keep` stays."""
        for queue in tuple(self._idle):
            self._discard_old(queue, keep_one=queue == keep)

    def close(self) -> None:
        """Whoever opens or uses a link is told that it ended."""
        self._is_closed = True
        self._openings.end()
        for link in tuple(self._lent):
            link.discard()
        for links in self._idle.values():
            for _, link in links:
                link.discard()
        self._idle.clear()

    @contextlib.asynccontextmanager
    async def _turn(self, queue: int, timeout_s: float) -> AsyncIterator[None]:
        room, since = self._room.setdefault(queue, asyncio.Semaphore(LINKS_MAX)), monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await room.acquire()
        except TimeoutError:
            raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since) from None
        try:
            yield
        finally:
            room.release()

    async def _borrow(self, queue: int, until: float) -> AioSenderLink:
        if self._is_closed:
            raise LinkFailed(CLOSED)
        self._discard_old(queue, keep_one=True)
        if self._idle.get(queue):
            return self._idle[queue].pop()[1]
        return await self._open_link(queue, until)

    async def _open_link(self, queue: int, until: float) -> AioSenderLink:
        self._open[queue] = self._open.get(queue, 0) + 1
        try:
            deadline_s = max(0.001, until - monotonic())
            opening = AioSenderLink.open(self._client, self._path_of(queue), deadline_s=deadline_s)
            link = await self._openings.open(opening)
        except BaseException:
            self._open[queue] -= 1
            raise
        self.batch_bytes = link.max_batch_bytes or self.batch_bytes
        return link

    def _distrust(self, since: float) -> None:
        """A link gave no answer: those that nobody has used since then may be as dead, and only cost time."""
        for queue, links in self._idle.items():
            self._idle[queue] = [one for one in links if one[0] >= since]
            for at, link in links:
                if at < since:
                    self._drop(queue, link)

    def _discard_old(self, queue: int, *, keep_one: bool) -> None:
        links, oldest = self._idle.get(queue, []), monotonic() - IDLE_S
        alive = [one for one in links if one[1].is_alive]
        kept = [one for one in alive if one[0] >= oldest] or (alive[-1:] if keep_one else [])
        self._idle[queue] = kept
        for one in links:
            if one not in kept:
                self._drop(queue, one[1])

    def _give_back(self, queue: int, link: AioSenderLink) -> None:
        if self._is_closed:
            self._drop(queue, link)
        else:
            self._idle.setdefault(queue, []).append((monotonic(), link))

    def _drop(self, queue: int, link: AioSenderLink) -> None:
        self._open[queue] -= 1
        link.discard()
