"""What a look at the backlog costs: a service charges for what is listed and for what is peeked at."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

Page = TypeVar("Page")


class LookCost(NamedTuple):
    requests: int = 0
    """Requests of the secondary's administration that were answered."""
    peeks: int = 0
    """Messages that were peeked at, and one for each peek that found none."""
    peeked_bytes: int = 0


class LookCounter:
    """Adds up what one look costs. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cost = LookCost()

    @property
    def total(self) -> LookCost:
        return self._cost

    def pages(self, pages: Iterable[Page]) -> Iterator[Page]:
        """The same pages; each of them was a request."""
        for page in pages:
            self._add(requests=1)
            yield page

    def peeked(self, sizes: Sequence[int]) -> None:
        """A peek has found messages of these sizes."""
        self._add(peeks=max(1, len(sizes)), peeked_bytes=sum(sizes))

    def _add(self, requests: int = 0, peeks: int = 0, peeked_bytes: int = 0) -> None:
        with self._lock:
            before = self._cost
            self._cost = LookCost(before.requests + requests, before.peeks + peeks, before.peeked_bytes + peeked_bytes)
