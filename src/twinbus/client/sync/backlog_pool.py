# Generated from client/aio/backlog_pool.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""A few links to each backlog queue, shared by all senders of a client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from azure.servicebus import ServiceBusClient

from twinbus.client.core.link_rules import CLOSED, IDLE_S, LINKS_MAX, NoFreeLink, fair_end, is_silence
from twinbus.client.flows.send_request import STANDARD_BATCH_BYTES
from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.sdk.messages import batch_of
from twinbus.client.sync.concurrency import Semaphore, acquire_within, guard_of_the_core
from twinbus.client.sync.links import LinkOpener, SenderLink


class BacklogPool:
    def __init__(self, client: ServiceBusClient, path_of: Callable[[int], str], opener: LinkOpener) -> None:
        self._client = client
        self._path_of = path_of
        self._opener = opener
        self._lock = guard_of_the_core()
        """Guards what follows; never held while a link is opened, used or closed."""
        self._idle: dict[int, list[tuple[float, SenderLink]]] = {}
        self._slots: dict[int, Semaphore] = {}
        self._open: dict[int, int] = {}
        self._is_closed = False
        self._stored_at = 0.0
        self.batch_bytes = STANDARD_BATCH_BYTES
        """What a backlog queue takes at once, as its links say."""

    def send(self, queue: int, encoded: Sequence[bytes], timeout_s: float, *, is_patient: bool = True) -> None:
        """Store encoded messages in a backlog queue; raises `LinkFailed`.

        `is_patient`: the time runs from when there is a link, and the send takes no more than twice its time.
        """
        since = monotonic()
        with self._turn(queue, timeout_s):
            link = self._borrow(queue, monotonic() + timeout_s if is_patient else since + timeout_s)
            until = fair_end(since, timeout_s, is_patient=is_patient)
            if until is None:
                self._give_back(queue, link)
                raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since)
            try:
                link.send(batch_of(encoded), max(0.001, until - monotonic()))
            except BaseException as error:
                self._drop(queue, link)
                if is_silence(error):
                    self._distrust(since)
                raise
            self._stored_at = monotonic()
            self._give_back(queue, link)

    def open_another(self, queue: int, timeout_s: float) -> None:
        """Open a new link and keep it for the next send, however many there are; raises `LinkFailed`."""
        if self._is_closed:
            raise LinkFailed(CLOSED)
        self._give_back(queue, self._open_link(queue, monotonic() + timeout_s))

    @property
    def links(self) -> int:
        """How many links are open, or being opened."""
        return sum(self._open.values())

    def is_warm(self, queue: int) -> bool:
        """Whether a link to it is open, or being opened."""
        return self._open.get(queue, 0) > 0

    def warm_up(self, queue: int, timeout_s: float) -> None:
        """Open a link before it is needed; failures surface on the next send."""
        with contextlib.suppress(LinkFailed), self._turn(queue, timeout_s):
            self._give_back(queue, self._borrow(queue, monotonic() + timeout_s))

    def close_idle(self, keep: int | None = None) -> None:
        """Close links that are dead, and those that nobody used for a while; one to the queue `keep` stays."""
        for queue in tuple(self._idle):
            self._discard_old(queue, keep_one=queue == keep)

    def close(self) -> None:
        """Whoever waits for a link, or has one opened, is told that the client is closed."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
            slots_of_queues = list(self._slots.values())
        self._opener.end(self._client)
        for links in idle.values():
            for _, link in links:
                link.discard()
        for slots in slots_of_queues:
            slots.release()  # whoever gets in finds it closed, and lets the next one in

    @contextlib.contextmanager
    def _turn(self, queue: int, timeout_s: float) -> Iterator[None]:
        with self._lock:
            slots, since = self._slots.setdefault(queue, Semaphore(LINKS_MAX)), monotonic()
        if not acquire_within(slots, timeout_s):
            raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since)
        try:
            yield
        finally:
            slots.release()

    def _borrow(self, queue: int, until: float) -> SenderLink:
        if self._is_closed:
            raise LinkFailed(CLOSED)
        self._discard_old(queue, keep_one=True)
        with self._lock:
            if self._idle.get(queue):
                return self._idle[queue].pop()[1]
        return self._open_link(queue, until)

    def _open_link(self, queue: int, until: float) -> SenderLink:
        self._count(queue, 1)
        try:
            deadline_s = max(0.001, until - monotonic())
            link = self._opener.open(self._client, self._path_of(queue), deadline_s=deadline_s)
        except BaseException:
            self._count(queue, -1)
            raise
        self.batch_bytes = link.max_batch_bytes or self.batch_bytes
        return link

    def _distrust(self, since: float) -> None:
        """A link gave no answer: those that nobody has used since then may be as dead, and only cost time."""
        with self._lock:
            old = [(queue, link) for queue, links in self._idle.items() for at, link in links if at < since]
            self._idle = {queue: [one for one in links if one[0] >= since] for queue, links in self._idle.items()}
        for queue, link in old:
            self._drop(queue, link)

    def _discard_old(self, queue: int, *, keep_one: bool) -> None:
        with self._lock:
            links, oldest = self._idle.get(queue, []), monotonic() - IDLE_S
            alive = [one for one in links if one[1].is_alive]
            kept = [one for one in alive if one[0] >= oldest] or (alive[-1:] if keep_one else [])
            self._idle[queue] = kept
        for one in links:
            if one not in kept:
                self._drop(queue, one[1])

    def _give_back(self, queue: int, link: SenderLink) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(queue, []).append((monotonic(), link))
                return
        self._drop(queue, link)

    def _drop(self, queue: int, link: SenderLink) -> None:
        self._count(queue, -1)
        link.discard()

    def _count(self, queue: int, links: int) -> None:
        with self._lock:
            self._open[queue] = self._open.get(queue, 0) + links
