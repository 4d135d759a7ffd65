"""A board in memory: reports as processes post them, and looks as readers make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twinbus.board.board_peek import BoardLook, BoardPeek, Look, PostedReport, look
from twinbus.board.report import EntityFinding, ProcessKind, ProcessReport, ReportedState, encode_report

THERE_S = 1_700_000_000.0
"""What the secondary's clock shows when a test begins."""


def report(instance: str = "a", number: int = 1, **facts: Any) -> ProcessReport:
    usual: dict[str, Any] = {"host": f"host-{instance}", "process": 7, "kind": ProcessKind.CLIENT, "every_s": 60.0}
    return ProcessReport(instance=instance, number=number, **usual | facts)


def failed_over(entity: str = "orders", **facts: Any) -> EntityFinding:
    usual: dict[str, Any] = {"for_s": 5.0, "reason": "down"}
    return EntityFinding(entity=entity, state=ReportedState.FAILED_OVER, **usual | facts)


class BoardInMemory:
    """Keeps everything, as a service does that nobody receives from."""

    def __init__(self) -> None:
        self.posts: list[PostedReport] = []
        self.peeks = 0
        self.shown = 0
        self.operations = 0
        """As the service charges for them: an empty answer costs as much as one message."""

    def post(self, what: ProcessReport | bytes, at: float) -> None:
        """`at`: seconds on the secondary's clock since the test began."""
        body = what if isinstance(what, bytes) else encode_report(what)
        enqueued_ms = int((THERE_S + at) * 1000)
        self.posts.append(PostedReport(len(self.posts) + 1, enqueued_ms, body, len(body) + 200))

    def answer(self, ask: BoardPeek) -> Sequence[PostedReport]:
        self.peeks += 1
        found = self.posts[max(0, ask.from_sequence - 1) :][: ask.most]
        self.shown += len(found)
        self.operations += max(1, len(found))
        return found

    def run(self, flow: Look) -> BoardLook:
        try:
            ask = next(flow)
            while True:
                ask = flow.send(self.answer(ask))
        except StopIteration as done:
            found: BoardLook = done.value
            return found

    def look(self, from_sequence: int | None = None, **limits: Any) -> BoardLook:
        return self.run(look(from_sequence, **limits))
