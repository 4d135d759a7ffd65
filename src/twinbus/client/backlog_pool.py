"""A few links to each backlog queue, shared by all senders of a client (threads)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.failures import LinkFailed
from twinbus.client.links import SenderLink
from twinbus.client.messages import batch_of
from twinbus.client.parcel import STANDARD_BATCH_BYTES
from twinbus.client.watchdog import Watchdog
from twinbus.pairing.failure import Failure, FailureKind

LINKS_MAX = 8
"""Links to one backlog queue; further senders wait for one."""
IDLE_S = 30.0
"""A link that nobody used for longer is closed."""


class NoFreeLink(LinkFailed):
    """All links to a backlog queue were in use, all the time: that is no trouble of the queue's."""

    def __init__(self, path: str, *, is_moving: bool) -> None:
        """`is_moving`: they got something done meanwhile."""
        self.is_moving = is_moving
        text = f"all {LINKS_MAX} links to {path} were in use"
        super().__init__(Failure(FailureKind.NO_ANSWER, text, error=OperationTimeoutError(message=text)))


class BacklogPool:
    def __init__(self, client: ServiceBusClient, path_of: Callable[[int], str], watchdog: Watchdog) -> None:
        self._client = client
        self._path_of = path_of
        self._watchdog = watchdog
        self._changed = threading.Condition()
        self._idle: dict[int, list[tuple[float, SenderLink]]] = {}
        self._open: dict[int, int] = {}
        self._is_closed = False
        self._stored_at = 0.0
        self.batch_bytes = STANDARD_BATCH_BYTES
        """What a backlog queue takes at once, as its links say."""

    def send(self, queue: int, letters: Sequence[bytes], timeout_s: float, *, is_patient: bool = True) -> None:
        """Store the letters in a backlog queue; raises `LinkFailed`.

        For who is patient the time runs from when there is a link.
        """
        since = monotonic()
        link = self._borrow(queue, since + timeout_s)
        until = fair_end(since, timeout_s, is_patient=is_patient)
        if until is None:
            self._give_back(queue, link)
            raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since)
        try:
            link.send(batch_of(letters), max(0.001, until - monotonic()))
        except BaseException as error:
            self._drop(queue, link)
            if is_silence(error):
                self._distrust(since)
            raise
        self._stored_at = monotonic()
        self._give_back(queue, link)

    def open_another(self, queue: int, timeout_s: float) -> None:
        """Open a new link and keep it for whoever sends next, however many there are; raises `LinkFailed`."""
        with self._changed:
            if self._is_closed:
                raise LinkFailed(Failure(FailureKind.UNREACHABLE, "the client is closed"))
            self._open[queue] = self._open.get(queue, 0) + 1
        self._give_back(queue, self._open_link(queue, monotonic() + timeout_s))

    @property
    def links(self) -> int:
        """How many links are open, or being opened."""
        return sum(self._open.values())

    def is_warm(self, queue: int) -> bool:
        """Whether a link to it is open, or being opened."""
        with self._changed:
            return self._open.get(queue, 0) > 0

    def warm_up(self, queue: int, timeout_s: float) -> None:
        """Open a link before it is needed; failures surface on the next send."""
        with contextlib.suppress(LinkFailed):
            self._give_back(queue, self._borrow(queue, monotonic() + timeout_s))

    def close_idle(self, keep: int | None = None) -> None:
        """Close links that are dead, and those that nobody used for a while; one to the queue `keep` stays."""
        with self._changed:
            old = [link for queue in self._idle for link in self._take_old(queue, keep_one=queue == keep)]
        for link in old:
            link.discard()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            idle = [link for links in self._idle.values() for _, link in links]
            self._idle.clear()
            self._changed.notify_all()
        for link in idle:
            link.discard()

    def _distrust(self, since: float) -> None:
        """A link gave no answer: those that nobody has used since then may be as dead, and only cost time."""
        with self._changed:
            old = [(queue, link) for queue, links in self._idle.items() for at, link in links if at < since]
            self._idle = {queue: [one for one in links if one[0] >= since] for queue, links in self._idle.items()}
        for queue, link in old:
            self._drop(queue, link)

    def _borrow(self, queue: int, until: float) -> SenderLink:
        with self._changed:
            old = self._take_old(queue)
            link = self._wait_for_link(queue, until)
        for each in old:
            each.discard()
        return link or self._open_link(queue, until)

    def _take_old(self, queue: int, *, keep_one: bool = True) -> list[SenderLink]:
        """Idle links that are dead or were not used for long; called with the lock held."""
        links, oldest = self._idle.get(queue, []), monotonic() - IDLE_S
        alive = [one for one in links if one[1].is_alive]
        kept = [one for one in alive if one[0] >= oldest] or (alive[-1:] if keep_one else [])
        self._idle[queue] = kept
        self._open[queue] = self._open.get(queue, 0) - (len(links) - len(kept))
        return [link for since, link in links if (since, link) not in kept]

    def _wait_for_link(self, queue: int, until: float) -> SenderLink | None:
        """An idle link; None: there is room for a new one. Raises `NoFreeLink` when neither comes in time."""
        since = monotonic()
        while not self._is_closed:
            if self._idle.get(queue):
                return self._idle[queue].pop()[1]
            if self._open.get(queue, 0) < LINKS_MAX:
                self._open[queue] = self._open.get(queue, 0) + 1
                return None
            left_s = until - monotonic()
            if left_s <= 0:
                raise NoFreeLink(self._path_of(queue), is_moving=self._stored_at >= since)
            self._changed.wait(left_s)
        raise LinkFailed(Failure(FailureKind.UNREACHABLE, "the client is closed"))

    def _open_link(self, queue: int, until: float) -> SenderLink:
        try:
            deadline_s = max(0.001, until - monotonic())
            link = SenderLink.open(self._client, self._path_of(queue), deadline_s=deadline_s, watchdog=self._watchdog)
        except BaseException:
            self._count_out(queue)
            raise
        self.batch_bytes = link.max_batch_bytes or self.batch_bytes
        return link

    def _give_back(self, queue: int, link: SenderLink) -> None:
        with self._changed:
            if not self._is_closed:
                self._idle.setdefault(queue, []).append((monotonic(), link))
                self._changed.notify()
                return
        link.discard()

    def _drop(self, queue: int, link: SenderLink) -> None:
        self._count_out(queue)
        link.discard()

    def _count_out(self, queue: int) -> None:
        with self._changed:
            self._open[queue] -= 1
            self._changed.notify()


def is_silence(error: BaseException) -> bool:
    """Whether a send got no answer in time."""
    return isinstance(error, LinkFailed) and error.failure.kind is FailureKind.NO_ANSWER


def fair_end(since: float, timeout_s: float, *, is_patient: bool) -> float | None:
    """Until when a send may last that waited for a link since then; None: it would have no fair time to be answered."""
    now = monotonic()
    if is_patient:
        return now + timeout_s
    return since + timeout_s if since + timeout_s - now >= timeout_s / 2 else None
