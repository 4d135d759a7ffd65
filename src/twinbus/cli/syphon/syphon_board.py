"""`twinbus syphon --board`: the syphon says on the board how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from twinbus.cli.output import note

if TYPE_CHECKING:
    from twinbus.board.report import ProcessReport
    from twinbus.cli.syphon.syphon_setup import SyphonEnds
    from twinbus.ledger import Ledger
    from twinbus.syphon import Syphon

LOOK_EVERY_S = 2.0
"""How soon a change of the syphon is noticed."""


@asynccontextmanager
async def on_board(
    ends: SyphonEnds, syphon: Syphon, attempt_s: float, ledger: Ledger | None, *, wanted: bool
) -> AsyncIterator[None]:
    """The syphon reports until the block ends; a board that cannot be used costs a note, and nothing else."""
    if not wanted:
        yield
        return
    from twinbus.board.poster import BoardPoster
    from twinbus.board.report import ProcessKind
    from twinbus.client.core.own_syphon import status_of
    from twinbus.client.reporting.board_report import Reporter
    from twinbus.ledger.board_events import BoardEventLog

    reporter = Reporter(ProcessKind.SYPHON)

    def report() -> ProcessReport:
        latest = syphon.backlog
        return reporter.report_of_syphon(
            status_of(syphon.current_progress()), None if latest is None else latest.waiting_messages
        )

    poster = BoardPoster(
        ends.secondary,
        ends.names.primary,
        reporter.instance,
        report,
        attempt_s=attempt_s,
        clears=True,
        counts=None if ledger is None else BoardEventLog(ledger, ends.secondary.ledger_name),
        on_trouble=lambda why: note(
            "the board can be used again" if why is None else f"the board cannot be used: {why}"
        ),
    )
    tasks = [asyncio.create_task(poster.run()), asyncio.create_task(_keep_looking(poster.wake))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await poster.end()


async def _keep_looking(wake: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        wake()
