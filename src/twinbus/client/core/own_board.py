"""What a client does on the board: what its poster is made of, what it costs, and whether it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from twinbus.board.poster import BoardPoster
from twinbus.board.queue import board_path
from twinbus.board.quorum import SharedFindings
from twinbus.board.sharer import BoardSharer
from twinbus.client.reporting.board_report import Reporter
from twinbus.client.reporting.status import BoardStatus, Status

if TYPE_CHECKING:
    from twinbus.client.core.client_state import ClientState


class BoardEvent(Protocol):
    """Publishes an event of the pair."""

    def __call__(self, name: str, text: str, *, namespace: str | None) -> None: ...


class BoardWork:
    """Posting, and where findings are shared also reading, as one."""

    def __init__(self, poster: BoardPoster, sharer: BoardSharer | None) -> None:
        self._poster, self._sharer = poster, sharer

    def wake(self) -> None:
        """Something may have changed."""
        self._poster.wake()

    async def run(self) -> None:
        """Until cancelled."""
        if self._sharer is None:
            await self._poster.run()
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poster.run())
                group.create_task(self._sharer.run())

    async def end(self) -> None:
        """Say goodbye if that is possible at once, and close; when `run` has ended."""
        try:
            await self._poster.end()
        finally:
            if self._sharer is not None:
                await self._sharer.close()


class OwnBoard:
    """Raises `OptionsError` where it could never connect."""

    def __init__(
        self,
        state: ClientState,
        status: Callable[[], Status],
        report_event: BoardEvent,
        is_suspect: Callable[[], bool],
        on_confirmed: Callable[[Mapping[str, Sequence[str]]], None],
    ) -> None:
        """`status` and `report_event` may be called where the poster runs, as may what concerns findings of
        other hosts: `is_suspect` says whether one is wanted, `on_confirmed` gets entities with the hosts.
        """
        self._state = state
        self._attempt_s = state.pair.rules.attempt_s
        self._dial = state.secondary.dial(self._attempt_s)
        self._status = status
        self._report_event = report_event
        share = state.options.share_failover
        self._reporter = Reporter(state.kind) if share is None else Reporter(state.kind, share.own_host)
        self._is_suspect, self._on_confirmed = is_suspect, on_confirmed
        self._path = board_path(state.pair.name)
        self._posts = 0
        self._posted_at: datetime | None = None
        self._trouble: str | None = None

    def make(self) -> BoardWork:
        """What is to be done, for the event loop that runs now."""
        share = self._state.options.share_failover
        if share is None:
            return BoardWork(self._poster(None), None)
        findings = SharedFindings(self._path, share.key_bytes(), share.own_host, share.quorum)
        sharer = BoardSharer(
            self._dial,
            self._path,
            findings,
            has_posted=lambda: self._posts > 0,
            is_suspect=self._is_suspect,
            on_confirmed=self._on_confirmed,
            attempt_s=self._attempt_s,
            on_peek=self.peeked,
        )
        return BoardWork(self._poster(findings), sharer)

    def _poster(self, findings: SharedFindings | None) -> BoardPoster:
        return BoardPoster(
            self._dial,
            self._state.pair.name,
            self._reporter.instance,
            lambda: self._reporter.report_of(self._status()),
            attempt_s=self._attempt_s,
            clears=self._state.options.enable_syphon,
            counts=self,
            findings=findings,
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
