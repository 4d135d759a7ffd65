"""The link to a backlog queue that is open before an outage: so the first detour need not wait for one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from twinbus.client.core import answers
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.pair import Pair


class WarmLink:
    def __init__(self, pair: Pair, lock: AbstractContextManager[Any], open_link: Callable[[int], None]) -> None:
        """`lock` guards the pair; `open_link` begins to open a link to a queue, unless there is one."""
        self._pair = pair
        self._lock = lock
        self._open_link = open_link
        self._is_assigned = False
        self.queue: int | None = None
        """None: nobody has chosen it yet."""

    def choose(self) -> None:
        """Choose a queue by chance, and have a link to it."""
        self.queue = self._pick()
        self.keep()

    def keep(self) -> None:
        """Open the link again if it was lost."""
        if self.queue is not None and self._pair.secondary.is_open:
            self._open_link(self.queue)

    def assign(self, choice: QueueChoice) -> None:
        """The first sender gets this queue: its own choice would have been by chance too."""
        with self._lock:
            if not self._is_assigned and self.queue is not None:
                choice.queue, self._is_assigned = self.queue, True

    def expect_detour(self, choice: QueueChoice) -> None:
        """An attempt failed: have a link ready for the sender's backlog queue, in case it is needed."""
        if choice.queue is None:
            choice.queue = self._pick()
        if choice.queue is not None and self._pair.secondary.is_open:
            self._open_link(choice.queue)

    def _pick(self) -> int | None:
        with self._lock:
            return self._pair.rotation.pick(None, monotonic(), answers.chance())
