"""Which backlog queues of a primary there are, and which a running syphon empties.

Senders elsewhere may use more queues than are configured here. With the right to list, one listing finds all of them.
Without it a link is probed to each of the first hundred, which is as many as a sender can have; no message is taken.
While a probe is refused, the backlog must not be called empty: nobody knows what is behind it. The same is true for a
queue that gives nothing to a syphon (it is *shut*): it requires sessions, forwards its messages, or is disabled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinbus.pairing.backlog.backlog_queues import backlog_path, index_of
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed

if TYPE_CHECKING:
    from twinbus.syphon.pump.backlog_queue import BacklogQueue
    from twinbus.syphon.pump.ordered_pump import BacklogObserver
    from twinbus.syphon.pump.pump import Pump
    from twinbus.syphon.secondary_connection import SecondaryConnection
    from twinbus.transport.dial import Dial

QUEUES_MAX = 100
"""As many backlog queues as a sender can have."""
LINKS_AT_ONCE = 20
ABSENT = frozenset((FailureKind.NOT_FOUND, FailureKind.DELETED))
FOR_GOOD = ABSENT | {FailureKind.UNAUTHORISED}
"""What does not pass by itself: somebody has to create a queue, or to grant a right."""
SHUT = frozenset((FailureKind.NOT_ALLOWED, FailureKind.DISABLED, FailureKind.REJECTED))
"""The queue exists and gives us nothing, whatever our rights: somebody has to change its settings or its status."""
SAYS_NOTHING = frozenset(
    (
        FailureKind.BUSY,
        FailureKind.INTERNAL,
        FailureKind.NO_ANSWER,
        FailureKind.TIMED_OUT,
        FailureKind.UNREACHABLE,
    )
)
"""Answers that leave open whether a queue exists."""

_NAMED_MAX = 5
"""Shut queues that are named with their reason; the others are counted."""

Answers = Mapping[int, Failure | None]
"""By index, the answer to a probe; None: the link was opened."""


@dataclass(frozen=True, slots=True)
class DiscoveredQueues:
    queue_count: int
    """How many there should be."""
    queues: tuple[int, ...]
    """Those to work with, by index: readable, or with a failure that may pass or be repaired."""
    missing: dict[int, Failure]
    """Those of the first `queue_count` that do not exist, or may not be read, and why."""
    refused: dict[int, Failure]
    """Those that may exist and refuse us, whatever their index."""
    unsure: dict[int, Failure]
    """Those beyond `queue_count` of which it is unknown now whether they exist."""
    shut: dict[int, Failure] = field(default_factory=dict)
    """Those of `queues` that give nothing to a syphon until somebody changes their settings or their status."""
    requests: int = 0
    """What it cost: requests to list queues. Links cost nothing."""

    @property
    def extra(self) -> tuple[int, ...]:
        """Those beyond the count: not sent to from here, and emptied all the same."""
        return tuple([index for index in self.queues if index >= self.queue_count])

    @property
    def passing(self) -> dict[int, Failure]:
        """Those of which more will be known in a while: no answer now, or our credential has no token now."""
        return {**self.unsure, **{index: why for index, why in self.refused.items() if not is_permanent(why)}}

    @property
    def doubt(self) -> str | None:
        """Why it is uncertain that all messages of these queues come home, in one line; None: it is certain."""
        return "; ".join(self.doubts) or None

    @property
    def doubts(self) -> list[str]:
        """The same, a line each."""
        return doubts({**self.shut, **self.refused, **self.unsure})


def is_permanent(failure: Failure) -> bool:
    """Whether an answer to a link stays the same until somebody changes something: an outage passes by itself."""
    return failure.error is None and failure.kind in FOR_GOOD | SHUT


def doubts(failures: Mapping[int, Failure]) -> list[str]:
    """Why messages may stay in the queues with these failures, or may be unseen; a line each."""
    shut = {index: why for index, why in failures.items() if why.kind in SHUT}
    unseen = {index: why for index, why in failures.items() if index not in shut}
    named = [f"backlog queue {index} {describe_shut(why)}" for index, why in sorted(shut.items())]
    lines = named[:_NAMED_MAX]
    if len(named) > _NAMED_MAX:
        lines.append(f"{len(named) - _NAMED_MAX} more backlog queues cannot be emptied either")
    if unseen:
        index, failure = next(iter(unseen.items()))
        others = len(unseen) - 1
        which = f"backlog queue {index}" + (f" and {others} more" if others else "")
        lines.append(f"unknown whether messages are in {which}: {failure}")
    return lines


def describe_shut(failure: Failure) -> str:
    """Why a queue is shut, and what would help."""
    return f"cannot be emptied: {failure}; {remedy(failure)}"


def remedy(failure: Failure) -> str:
    """What opens a queue that is shut."""
    if failure.kind is FailureKind.DISABLED:
        return "set its status to Active"
    if failure.kind is FailureKind.NOT_ALLOWED:
        return "it must neither require sessions nor forward: recreate it without sessions, or remove the forwarding"
    return "compare its settings with those of the other backlog queues"


class QueueDiscovery:
    def __init__(self, secondary: Dial, primary_name: str, queue_count: int, *, attempt_s: float = 15.0) -> None:
        self._secondary = secondary
        self._primary_name = primary_name
        self.queue_count = queue_count
        self._attempt_s = attempt_s
        self._may_list = True
        self._lock = asyncio.Lock()
        self.latest: DiscoveredQueues | None = None

    def count_unseen(self, known: Iterable[str]) -> int:
        """How many queues beside the known ones may exist, by the latest search, and cannot be read."""
        if self.latest is None:
            return 0
        unseen = {backlog_path(self._primary_name, index) for index in (*self.latest.refused, *self.latest.unsure)}
        return len(unseen - set(known))

    async def search(self) -> DiscoveredQueues:
        """Which queues there are now. Raises `ConnectionFailed` if the secondary cannot be reached.

        One search at a time, or the result of an earlier one could replace that of a later one.
        """
        async with self._lock:
            listed, requests = await self._list()
            indexes = sorted({*range(self.queue_count), *(range(QUEUES_MAX) if listed is None else listed)})
            async with NamespaceConnection(self._secondary, attempt_s=self._attempt_s) as connection:
                answers = await self._probe_all(connection, indexes)
            self.latest = classify_queues(self.queue_count, answers, requests)
            return self.latest

    async def _list(self) -> tuple[set[int] | None, int]:
        """The indexes of all that exist, and the number of requests; None if they cannot be listed."""
        list_queues = self._secondary.list_queues
        if list_queues is None or not self._may_list:
            return None, 0
        try:
            pages = await list_queues()
        except PermissionError:
            self._may_list = False  # it would be refused every time
            return None, 1
        except OSError:
            return None, 1
        found = {index_of(name, self._primary_name) for page in pages for name in page}
        return {index for index in found if index is not None}, max(1, len(pages))

    async def _probe_all(self, connection: NamespaceConnection, indexes: Iterable[int]) -> dict[int, Failure | None]:
        semaphore = asyncio.Semaphore(LINKS_AT_ONCE)

        async def probe(index: int) -> Failure | None:
            async with semaphore:
                try:
                    await connection.probe_receiver(backlog_path(self._primary_name, index))
                except ConnectionFailed as error:
                    if not connection.is_open:
                        raise
                    return error.failure
                return None

        first, *others = indexes
        answers = {first: await probe(first)}  # alone: it opens the links that all of them share
        return answers | dict(zip(others, await asyncio.gather(*map(probe, others)), strict=True))


def classify_queues(queue_count: int, answers: Answers, requests: int = 0) -> DiscoveredQueues:
    """What the answers to probes say of the queues."""
    failures = {index: why for index, why in sorted(answers.items()) if why is not None}
    unsure = {index: why for index, why in failures.items() if index >= queue_count and why.kind in SAYS_NOTHING}
    closed = {index: why for index, why in failures.items() if why.kind in FOR_GOOD}
    return DiscoveredQueues(
        queue_count,
        queues=tuple([index for index in sorted(answers) if index not in unsure and index not in closed]),
        missing={index: why for index, why in closed.items() if index < queue_count},
        shut={index: why for index, why in failures.items() if why.kind in SHUT},
        refused={index: why for index, why in closed.items() if why.kind not in ABSENT},
        unsure=unsure,
        requests=requests,
    )


def is_absent(queue: BacklogQueue) -> bool:
    """Whether a queue was deleted or never existed: it holds nothing."""
    return queue.is_deleted or (queue.refusal is not None and queue.refusal.kind in ABSENT)


class QueueWatch:
    """The queues that a running syphon empties: those it began with, and those found meanwhile."""

    def __init__(
        self,
        primary_name: str,
        discovery: QueueDiscovery | None,
        pump: Pump,
        secondary: SecondaryConnection,
        observer: BacklogObserver | None,
    ) -> None:
        """Without a `discovery` the pump's queues are all there will be."""
        self._primary_name = primary_name
        self._discovery = discovery
        self._pump = pump
        self._secondary = secondary
        self._observer = observer
        self.doubts: list[str] = []
        """Why the backlog cannot be called empty, by the last call of `are_these_all`; a line each."""
        for queue in pump.queues:
            index = index_of(queue.path, primary_name)
            queue.is_extra = discovery is not None and index is not None and index >= discovery.queue_count

    @property
    def doubt(self) -> str | None:
        """The same in one line; None: it can."""
        return "; ".join(self.doubts) or None

    @property
    def shut(self) -> list[str]:
        """The queues that let nobody in, or not us, until somebody changes something; without deleted ones."""
        return [queue.path for queue in self._pump.queues if queue.refusal is not None and not is_absent(queue)]

    @property
    def paths(self) -> list[str]:
        """The queues that are emptied and not deleted."""
        return [queue.path for queue in self._pump.queues if not queue.is_deleted]

    @property
    def unseen(self) -> int:
        """How many others may exist, by the latest search, and cannot be read."""
        return 0 if self._discovery is None else self._discovery.count_unseen(self.paths)

    @property
    def indexes(self) -> list[int]:
        """The indexes of `paths`."""
        return self._indexes(queue for queue in self._pump.queues if not queue.is_deleted)

    @property
    def extra(self) -> list[int]:
        """Those beyond the count from which messages came."""
        return self._indexes(queue for queue in self._pump.queues if queue.is_extra and queue.has_delivered)

    def _indexes(self, queues: Iterable[BacklogQueue]) -> list[int]:
        found = [index_of(queue.path, self._primary_name) for queue in queues]
        return sorted([index for index in found if index is not None])

    async def run(self) -> None:
        """Search at the start and every quarter of an hour: a sender elsewhere may begin with more queues at any time.

        Sooner while it is unknown of some whether they exist: they may hold messages.
        """
        discovery, options = self._discovery, self._pump.options
        if discovery is None:
            return
        pauses, found, has_searched = options.new_backoff(), discovery.latest, False
        while True:
            if found is not None:
                self._add(found)
            if found is not None and not found.passing:
                pauses.reset()
                await asyncio.sleep(options.look_again_s * (0.95 + 0.1 * options.chance()))
            elif has_searched:
                await asyncio.sleep(pauses.next_ms() / 1000)
            has_searched = True
            try:
                found = await discovery.search()
            except ConnectionFailed:
                found = None

    async def are_these_all(self) -> bool:
        """Whether a search says all there is to know: what it finds is emptied too, and `doubts` says what is unknown.

        False: more will be known in a while, e.g. of a queue that lets us in again. Raises `ConnectionFailed`.
        """
        refusals = self._refusals()
        if self._discovery is None:
            self.doubts = self._doubts(refusals)
            return True
        found = await self._discovery.search()
        self._add(found)
        opened = set(found.queues) - set(found.shut)
        self.doubts = self._doubts(refusals | found.refused | found.shut | found.unsure)
        return not found.passing and not opened & set(refusals)

    def _doubts(self, failures: Mapping[int, Failure]) -> list[str]:
        if not failures and all(is_absent(queue) for queue in self._pump.queues):
            return [f"{self._primary_name} has no backlog queue there: check the name, and whether it was ever paired"]
        return doubts(dict(sorted(failures.items())))

    def _refusals(self) -> dict[int, Failure]:
        """By index, why queues that exist do not let us in."""
        found = {queue.path: queue.refusal for queue in self._pump.queues if not is_absent(queue)}
        by_index = {index_of(path, self._primary_name): why for path, why in found.items()}
        return {index: why for index, why in by_index.items() if index is not None and why is not None}

    def add(self, index: int) -> None:
        """Empty this queue too: somebody has made it."""
        path = backlog_path(self._primary_name, index)
        if all(queue.path != path for queue in self._pump.queues):
            self._secondary.add(self._pump.add_queue(path, is_extra=False))

    def _add(self, found: DiscoveredQueues) -> None:
        """Empty from now on what was found."""
        if found.requests:
            self._pump.event_log.record_listing(found.requests)
        self._secondary.set_doubt("; ".join(doubts(found.passing)) or None)
        known = {queue.path: queue for queue in self._pump.queues}
        for index in found.queues:
            path = backlog_path(self._primary_name, index)
            queue = known.get(path)
            if queue is not None and not queue.is_deleted:
                continue
            if queue is None:
                queue = self._pump.add_queue(path, is_extra=index >= found.queue_count)
                if self._observer is not None:
                    self._observer.queue_added(index)
            self._secondary.add(queue)
