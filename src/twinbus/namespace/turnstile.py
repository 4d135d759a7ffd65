"""One connection's turnstile: every operation passes it, and faults stop some.

Without faults it is one look at a flag. With them, an operation may be refused, answered late, never answered, or
cost the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twinbus.errors import NamespaceError, ServerBusy
from twinbus.namespace.faults.book import FaultBook
from twinbus.namespace.faults.postponed import Postponed
from twinbus.namespace.faults.rulings import PROCEED, Drop, Proceed, Refuse, Ruling, Silence
from twinbus.namespace.operations import Operation


class Turnstile:
    def __init__(
        self,
        book: FaultBook,
        postponed: Postponed,
        hang_up: Callable[[], None],
        note_busy: Callable[[str, NamespaceError], None],
    ) -> None:
        """`hang_up` cuts the connection without a word; `note_busy` hears of operations that are throttled."""
        self._book = book
        self._postponed = postponed
        self.hang_up = hang_up
        self._note_busy = note_busy
        self._is_left = False

    @property
    def is_open(self) -> bool:
        """Nothing is wrong with anything: nobody needs to ask."""
        return self._book.is_quiet

    def ruling(self, operation: Operation, path: str, now_ms: int) -> Ruling:
        return PROCEED if self._book.is_quiet else self._noted(path, self._book.ruling(operation, path, now_ms))

    def request_ruling(self, name: str, path: str, now_ms: int) -> Ruling:
        return PROCEED if self._book.is_quiet else self._noted(path, self._book.request_ruling(name, path, now_ms))

    def _noted(self, path: str, ruling: Ruling) -> Ruling:
        if isinstance(ruling, Refuse) and isinstance(ruling.error, ServerBusy):
            self._note_busy(path, ruling.error)
        return ruling

    def obey(
        self, ruling: Ruling, now_ms: int, go: Callable[[], None], refuse: Callable[[NamespaceError], None]
    ) -> None:
        """Go on, refuse, or let the peer wait for ever, as the ruling says; late if it says so."""
        match ruling:
            case Proceed(delay_ms=delay_ms):
                self.later(delay_ms, now_ms, go)
            case Refuse(error=error, delay_ms=delay_ms):
                self.later(delay_ms, now_ms, partial(refuse, error))
            case Drop():
                self.hang_up()
            case Silence():
                pass

    def later(self, delay_ms: int, now_ms: int, action: Callable[[], None]) -> None:
        """Do something after a delay, at once if there is none; not at all if the peer is gone by then."""
        if delay_ms <= 0 or not self._postponed.put(now_ms + delay_ms, partial(self._do, action)):
            action()

    def _do(self, action: Callable[[], None]) -> None:
        if not self._is_left:
            action()

    def leave(self) -> None:
        """The peer is gone: nothing that was put off for it is done any more."""
        self._is_left = True
