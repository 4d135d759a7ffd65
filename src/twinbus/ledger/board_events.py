"""What a process records of its work on the board: each step is an operation of the service."""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event, Recorder


class BoardEventLog:
    def __init__(self, recorder: Recorder, secondary: str) -> None:
        self._record = recorder.record
        self._secondary = secondary

    def posted(self, _path: str, size: int) -> None:
        """A report was stored."""
        self._record(Event(Kind.BOARD_POSTED, namespace=self._secondary, count=1, bytes=size))

    def peeked(self, _path: str, messages: Sequence[bytes]) -> None:
        """An empty answer costs as much as one message."""
        size = sum(map(len, messages))
        self._record(Event(Kind.BOARD_PEEKED, namespace=self._secondary, count=max(1, len(messages)), bytes=size))

    def cleared(self, _path: str) -> None:
        """One message was asked for."""
        self._record(Event(Kind.BOARD_CLEARED, namespace=self._secondary, count=1))
