"""Whether our credential is of no use any more: every backlog queue refuses it, for long, and more than once.

One refusal means little: rights take minutes to spread, a token may just have ended. That nobody answers means nothing
at all here, and neither does a credential that cannot get its token at the moment: those are outages, and they pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.pairing.failure import Failure, FailureKind

REFUSALS_MIN = 3
"""So often in a row a queue must have refused us."""


class Refusals:
    def __init__(self, paths: Iterable[str], patience_ms: int) -> None:
        self._paths = list(paths)
        self._patience_ms = patience_ms
        self._counts: dict[str, int] = {}
        self._since_ms: int | None = None

    def add(self, path: str) -> None:
        """One more queue that may refuse us, or let us in."""
        self._paths.append(path)

    def remove(self, path: str) -> None:
        """A queue that is gone: nobody asks it any more."""
        self._paths.remove(path)
        self._counts.pop(path, None)

    def failed(self, path: str, failure: Failure, now_ms: int) -> bool:
        """A queue could not be read; True when that settles it: we shall never be let in."""
        if failure.kind is not FailureKind.UNAUTHORISED or failure.error is not None:
            return False
        self._counts[path] = self._counts.get(path, 0) + 1
        if self._since_ms is None:
            self._since_ms = now_ms
        is_long = now_ms - self._since_ms >= self._patience_ms
        return is_long and all(self._counts.get(each, 0) >= REFUSALS_MIN for each in self._paths)

    def admitted(self) -> None:
        """A queue has let us in: the credential is fine."""
        self._counts.clear()
        self._since_ms = None
