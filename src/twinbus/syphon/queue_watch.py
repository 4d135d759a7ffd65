"""Which backlog queues a running syphon empties: those it began with, and those that are found meanwhile (P2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.pairing.backlog_queues import backlog_path, index_of
from twinbus.syphon.backoff import Backoff
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.queue_search import ABSENT, doubts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from twinbus.pairing.failure import Failure
    from twinbus.syphon.backlog import BacklogQueue
    from twinbus.syphon.backlog_side import BacklogSide
    from twinbus.syphon.chronicle import Chronicle
    from twinbus.syphon.ordered_pump import Witness
    from twinbus.syphon.pump import Pump
    from twinbus.syphon.queue_search import BacklogQueues, QueueSearch


def is_absent(queue: BacklogQueue) -> bool:
    """Whether a queue was deleted, or never there: nothing can lie in it."""
    return queue.is_gone or (queue.refusal is not None and queue.refusal.kind in ABSENT)


class QueueWatch:
    def __init__(
        self,
        primary_name: str,
        search: QueueSearch | None,
        pump: Pump,
        backlog: BacklogSide,
        chronicle: Chronicle,
        witness: Witness | None,
    ) -> None:
        """Without a `search` the pump's queues are all there will be."""
        self._primary_name = primary_name
        self._search = search
        self._pump = pump
        self._backlog = backlog
        self._chronicle = chronicle
        self._witness = witness
        self.doubts: list[str] = []
        """Why the backlog cannot be called empty, as far as the last look of `are_these_all` tells; a line each."""
        for queue in pump.queues:
            index = index_of(queue.path, primary_name)
            queue.is_extra = search is not None and index is not None and index >= search.queue_count

    @property
    def doubt(self) -> str | None:
        """The same in one line; None: it can."""
        return "; ".join(self.doubts) or None

    @property
    def shut(self) -> list[str]:
        """The queues that let nobody in, or not us, until somebody does something; those that are deleted are not."""
        return [queue.path for queue in self._pump.queues if queue.refusal is not None and not is_absent(queue)]

    @property
    def paths(self) -> list[str]:
        """The queues that are emptied, as far as they are there."""
        return [queue.path for queue in self._pump.queues if not queue.is_gone]

    @property
    def hidden(self) -> int:
        """How many others may be there, by the latest search, and cannot be seen into."""
        return 0 if self._search is None else self._search.hidden(self.paths)

    @property
    def indexes(self) -> list[int]:
        """The same by index."""
        return self._indexes(queue for queue in self._pump.queues if not queue.is_gone)

    @property
    def extra(self) -> list[int]:
        """Those beyond the count that messages came from."""
        return self._indexes(queue for queue in self._pump.queues if queue.is_extra and queue.has_lent)

    def _indexes(self, queues: Iterable[BacklogQueue]) -> list[int]:
        found = [index_of(queue.path, self._primary_name) for queue in queues]
        return sorted([index for index in found if index is not None])

    async def run(self) -> None:
        """Look at the start and every quarter of an hour: a sender elsewhere may begin with more queues at any time.

        Sooner while nobody could say of some whether they are there: messages may lie in them.
        """
        search, options = self._search, self._pump.options
        if search is None:
            return
        pauses, found, has_looked = Backoff(options), search.latest, False
        while True:
            if found is not None:
                self._take_up(found)
            if found is not None and not found.passing:
                pauses.reset()
                await asyncio.sleep(options.look_again_s * (0.95 + 0.1 * options.chance()))
            elif has_looked:
                await asyncio.sleep(pauses.next_ms() / 1000)
            has_looked = True
            try:
                found = await search.look()
            except LineFailed:
                found = None

    async def are_these_all(self) -> bool:
        """Whether a look says all there is to know: what it finds is taken up, and `doubts` says what stays unknown.

        False: more can be known in a while, as of a queue that lets us in again. Raises `LineFailed`.
        """
        refusals = self._refusals()
        if self._search is None:
            self.doubts = self._doubts(refusals)
            return True
        found = await self._search.look()
        self._take_up(found)
        opened = set(found.queues) - set(found.shut)
        self.doubts = self._doubts(refusals | found.refused | found.shut | found.unsure)
        return not found.passing and not opened & set(refusals)

    def _doubts(self, failures: Mapping[int, Failure]) -> list[str]:
        if not failures and all(is_absent(queue) for queue in self._pump.queues):
            return [f"{self._primary_name} has no backlog queue there: is the name right, and has anybody paired them?"]
        return doubts(dict(sorted(failures.items())))

    def _refusals(self) -> dict[int, Failure]:
        """By index, what the queues said that let us not in, those that are not there apart."""
        found = {queue.path: queue.refusal for queue in self._pump.queues if not is_absent(queue)}
        by_index = {index_of(path, self._primary_name): why for path, why in found.items()}
        return {index: why for index, why in by_index.items() if index is not None and why is not None}

    def _take_up(self, found: BacklogQueues) -> None:
        """Empty from now on what was found."""
        if found.requests:
            self._chronicle.listed(found.requests)
        self._backlog.unsure("; ".join(doubts(found.passing)) or None)
        known = {queue.path: queue for queue in self._pump.queues}
        for index in found.queues:
            path = backlog_path(self._primary_name, index)
            queue = known.get(path)
            if queue is not None and not queue.is_gone:
                continue
            if queue is None:
                queue = self._pump.add_queue(path, is_extra=index >= found.queue_count)
                if self._witness is not None:
                    self._witness.added(index)
            self._backlog.add(queue)
