"""`twinbus syphon --spool`: empty the folders that processes with a spool have left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.cli.output import note, say, say_event
from twinbus.cli.signals import on_signals
from twinbus.cli.syphon.syphon_run import SIGNALS, Ending, SyphonRun
from twinbus.cli.syphon.syphon_screens import screen_for
from twinbus.errors import StoreError, TwinbusError
from twinbus.units import size_text

if TYPE_CHECKING:
    from twinbus.cli.metrics_export import MetricsFile
    from twinbus.cli.syphon.syphon_setup import SyphonEnds
    from twinbus.ledger import Ledger
    from twinbus.spool.open_spool import OpenSpool
    from twinbus.spool.survey import FolderReport
    from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions

RESCAN_S = 5.0
"""How often a service looks for folders that were left behind."""
NO_LIMIT = 2**62
_ENDINGS = {signal.SIGTERM: Ending.STOPPED, signal.SIGINT: Ending.INTERRUPTED}


@dataclass
class SpoolResult:
    """What came of all folders together."""

    ending: Ending = Ending.EMPTY
    moved: int = 0
    """Gone from the spool: home, or to the backlog."""
    moved_bytes: int = 0
    to_backlog: int = 0
    quarantined: int = 0
    folders: int = 0
    kept: list[str] = field(default_factory=list)
    """Folders with messages in quarantine."""
    in_use: list[str] = field(default_factory=list)
    """Why folders were left alone."""
    problems: list[str] = field(default_factory=list)
    """Folders that cannot be used, and why."""

    def add(self, spool: OpenSpool, progress: Progress) -> None:
        self.folders += 1
        self.moved += progress.moved
        self.moved_bytes += progress.moved_bytes
        self.to_backlog += progress.to_backlog
        dead_letters = spool.counts().dead_letters
        self.quarantined += dead_letters
        self.kept += [str(spool.folder.path)] if dead_letters else []

    @property
    def is_all_gone(self) -> bool:
        return self.ending is Ending.EMPTY and not self.quarantined and not self.in_use

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ending": self.ending.value}

    def text(self) -> str:
        home = self.moved - self.to_backlog
        how = _EMPTY if self.ending is Ending.EMPTY else "stopped; what is left stays in the spool"
        went = [f"{home:,} messages are home"]
        went += [f"{self.to_backlog:,} in the backlog, because their entities are down"] if self.to_backlog else []
        lines = [f"{', '.join(went)} ({size_text(self.moved_bytes)}, from {self.folders:,} folders): {how}"]
        lines += [_quarantine_text(self.quarantined, self.kept)] if self.quarantined else []
        return "\n".join([*lines, *self.in_use])


_EMPTY = "no folder with messages is left behind"


class SpoolEmptying:
    def __init__(
        self,
        folder: Path,
        ends: SyphonEnds,
        options: SyphonOptions,
        ledger: Ledger | None,
        metrics: MetricsFile | None,
        *,
        as_json: bool,
    ) -> None:
        from twinbus.spool.folder import SpoolDirectory

        self._directory = SpoolDirectory(folder, ends.names.primary)
        self._ends, self._options = ends, options
        self._ledger, self._metrics = ledger, metrics
        self._as_json = as_json
        self._stopping: Ending | None = None
        self._seen: set[Path] = set()
        self._queues: Sequence[int] = ()
        self._run: SyphonRun | None = None
        self._wake = asyncio.Event()
        self.result = SpoolResult()

    async def run(self) -> SpoolResult:
        """Empty what was left behind: once with `until_empty`, else until it is stopped. Raises `StoreError`."""
        await asyncio.to_thread(self._directory.open_existing)
        with on_signals({number: partial(self._signal, number) for number in SIGNALS}):
            while self._stopping is None:
                folder = await asyncio.to_thread(self._directory.take_left_behind, self._seen)
                if folder is not None:
                    self._seen.add(folder.path)
                    await self._empty(folder)
                elif self._options.until_empty:
                    break
                else:
                    self._seen = {path for path in self._seen if path.exists()}
                    await self._pause()
            self.result.ending = self._stopping or Ending.EMPTY
            self.result.in_use = [_in_use_text(each) for each in await asyncio.to_thread(self._left)]
        return self.result

    def _signal(self, number: signal.Signals) -> None:
        if self._run is not None:
            self._run.signal(number)
        elif number in _ENDINGS:
            self._stopping = self._stopping or _ENDINGS[number]
            self._wake.set()

    async def _empty(self, folder: Any) -> None:
        from twinbus.spool.open_spool import OpenSpool, SpoolRoutes

        if not self._queues:
            self._queues = await backlog_queues(self._ends, self._options.attempt_s)
        routes = SpoolRoutes(
            primary_name=self._ends.names.primary,
            primary=self._ends.primary,
            secondary=self._ends.secondary,
            queues=tuple(self._queues),
            options=self._options,
            ledger=self._ledger,
        )
        alerts: list[Callable[[Alert], None]] = []
        spool = OpenSpool(folder, routes, bytes_max=NO_LIMIT, on_alert=lambda alert: alerts[0](alert))
        try:
            await spool.open()
        except StoreError as error:
            folder.release()
            self.result.problems.append(str(error))
            return

        def make(on_alert: Callable[[Alert], None]) -> Syphon:
            alerts.append(on_alert)
            return spool.make_syphon(until_empty=True)

        try:
            self._run = SyphonRun(make, screen_for(self._as_json), self._metrics)
            ending, progress = await self._run.run_without_signals()
            self.result.add(spool, progress)
            if ending not in (Ending.EMPTY, Ending.UNSURE):
                self._stopping = ending
        finally:
            self._run = None
            await spool.close()

    async def _pause(self) -> None:
        """Wait for the next look, or for a signal."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESCAN_S):
                await self._wake.wait()

    def _left(self) -> list[FolderReport]:
        """Folders that others use, with something in them."""
        from twinbus.spool.survey import survey

        return [each for each in survey(self._directory) if each.process is not None and each.messages]


def _quarantine_text(count: int, folders: Sequence[str]) -> str:
    return f"{count:,} messages are in quarantine: see twinbus syphon quarantine list --spool-folder {folders[0]}"


def _in_use_text(report: FolderReport) -> str:
    return (
        f"{report.messages:,} messages are in {report.folder}, which process {report.process} uses: it brings them home"
    )


async def backlog_queues(ends: SyphonEnds, attempt_s: float) -> Sequence[int]:
    """Where messages go whose entity is down; none if the secondary does not answer."""
    from twinbus.transport.failures import ConnectionFailed

    try:
        return (await ends.search(attempt_s).search()).queues
    except ConnectionFailed as error:
        note(f"the secondary does not answer: {error.failure}")
        return ()


def show_result(result: SpoolResult, *, as_json: bool) -> None:
    """Say how it went; raises `TwinbusError` if a folder cannot be used."""
    if as_json:
        say_event("finished", result.as_dict())
    else:
        say(result.text())
    if result.problems:
        raise TwinbusError("; ".join(result.problems))
