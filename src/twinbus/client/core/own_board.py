"""What a client does on the board: what its poster is made of, what it costs, and whether it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from twinbus.board.poster import BoardPoster
from twinbus.board.queue import board_path
from twinbus.client.reporting.board_report import Reporter
from twinbus.client.reporting.status import BoardStatus, Status

if TYPE_CHECKING:
    from twinbus.client.core.client_state import ClientState


class BoardEvent(Protocol):
    """Publishes an event of the pair."""

    def __call__(self, name: str, text: str, *, namespace: str | None) -> None: ...


class OwnBoard:
    """Raises `OptionsError` where it could never connect."""

    def __init__(self, state: ClientState, status: Callable[[], Status], report_event: BoardEvent) -> None:
        """`status` and `report_event` may be called where the poster runs."""
        self._state = state
        self._attempt_s = state.pair.rules.attempt_s
        self._dial = state.secondary.dial(self._attempt_s)
        self._status = status
        self._report_event = report_event
        self._reporter = Reporter(state.kind)
        self._path = board_path(state.pair.name)
        self._posts = 0
        self._posted_at: datetime | None = None
        self._trouble: str | None = None

    def make(self) -> BoardPoster:
        """The poster, for the event loop that runs now."""
        return BoardPoster(
            self._dial,
            self._state.pair.name,
            self._reporter.instance,
            lambda: self._reporter.report_of(self._status()),
            attempt_s=self._attempt_s,
            clears=self._state.options.enable_syphon,
            counts=self,
            on_trouble=self._troubled,
        )

    def status(self) -> BoardStatus:
        return BoardStatus(
            path=self._path,
            instance=self._reporter.instance,
            posts=self._posts,
            posted_at=self._posted_at,
            reason=self._trouble or "",
        )

    def _troubled(self, why: str | None) -> None:
        self._trouble = why
        name = "board_usable" if why is None else "board_unusable"
        text = "this process is seen on the board again" if why is None else f"nothing can be posted: {why}"
        self._report_event(name, text, namespace=self._state.secondary.name)

    # --- what it costs ---

    def posted(self, path: str, size: int) -> None:
        self._posts += 1
        self._posted_at = datetime.now(UTC)
        if self._state.recorder is not None:
            self._state.recorder.board.posted(path, size)

    def peeked(self, path: str, messages: Sequence[bytes]) -> None:
        if self._state.recorder is not None:
            self._state.recorder.board.peeked(path, messages)

    def cleared(self, path: str) -> None:
        if self._state.recorder is not None:
            self._state.recorder.board.cleared(path)
