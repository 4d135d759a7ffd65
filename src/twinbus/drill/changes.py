"""What a drill changes on the primary, and how it is put back whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from os import getpid
from pathlib import Path
from time import monotonic

from twinbus.drill.canaries import MARK
from twinbus.drill.entity_admin import EntityAdministration
from twinbus.drill.injection import injection_for
from twinbus.drill.plan import DrillPlan
from twinbus.drill.undo import ChangeRecord, ChangeRecordFile, change_records_in
from twinbus.errors import TwinbusError
from twinbus.units import offset_time

PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Before each attempt to put something back: an administration that is busy gets half a minute."""

ReportLine = Callable[[str], None]


class NotPutBack(TwinbusError):
    """Something is still as the drill made it."""


class DrillChanges:
    """One fault and, for a topic, one subscription; recorded on disk from before the first until after the last."""

    def __init__(
        self, plan: DrillPlan, drill: str, admin: EntityAdministration, folder: Path, report: ReportLine
    ) -> None:
        """Raises `TwinbusError` if another drill of this entity runs, or was killed and not undone."""
        _refuse_second(plan, folder)
        self._plan = plan
        self._drill = drill
        self._admin = admin
        self._report = report
        self.injection = injection_for(plan.control, admin, plan.options, plan.target)
        self.subscription = f"drill-{drill}" if plan.target.is_topic else None
        self._beginning: asyncio.Task[None] | None = None
        self._has_subscription = False
        note = ChangeRecord(
            drill=drill,
            pid=getpid(),
            address=plan.primary.address,
            entity=plan.target.path,
            way=self.injection.way,
            began_at=offset_time(datetime.now(UTC), "seconds"),
            subscription=self.subscription or "",
            **self.injection.facts(),
        )
        self._record_file = ChangeRecordFile(folder, note)

    async def make_room(self) -> None:
        """A subscription for the canaries of a topic."""
        if self.subscription is not None:
            self._has_subscription = True
            await self._admin.make_subscription(self._plan.target.path, self.subscription, MARK, self._drill)

    async def begin(self) -> float:
        """Make the entity fail. Returns when it was requested."""
        ordered = monotonic()
        # Not interruptible: a fault whose id is not known yet cannot be cleared.
        self._beginning = asyncio.create_task(self._begin())
        await asyncio.shield(self._beginning)
        return ordered

    async def lift(self) -> float:
        """Put the entity back. Returns when it was requested. Raises `NotPutBack` if that fails repeatedly."""
        lifted = monotonic()
        if self._beginning is not None:
            await asyncio.gather(self._beginning, return_exceptions=True)
            lifted = await self._insist(self.injection.end, f"{self._plan.target.path} cannot be put back")
            self._beginning = None
        return lifted

    async def finish(self) -> None:
        """Put back all that is still changed, and delete the record. Raises `NotPutBack` if that fails repeatedly."""
        is_put_back = False
        try:
            await self.lift()
            if self._has_subscription:
                path, name = self._plan.target.path, str(self.subscription)
                remove = partial(self._admin.remove_subscription, path, name)
                await self._insist(remove, f"subscription {name} cannot be removed")
            is_put_back = True
        finally:
            self._record_file.close(is_put_back=is_put_back)

    async def _begin(self) -> None:
        await self.injection.begin()
        self._record_file.add(**self.injection.facts())

    async def _insist(self, act: Callable[[], Awaitable[None]], what: str) -> float:
        problem: TwinbusError | None = None
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            started = monotonic()
            try:
                await act()
                return started
            except TwinbusError as error:
                problem = error
                self._report(f"{what}, trying again: {error}")
        raise NotPutBack(f"{what}: {problem}; end it with: twinbus drill --undo")


def _refuse_second(plan: DrillPlan, folder: Path) -> None:
    for _, note, is_running in change_records_in(folder):
        if (note.address, note.entity.lower()) == (plan.primary.address, plan.target.path.lower()):
            if is_running:
                raise TwinbusError(f"a drill of {note.entity} is running already, in process {note.pid}")
            raise TwinbusError(
                f"a drill of {note.entity} was killed on {note.began_at} and may still be in force: "
                "run twinbus drill --undo first"
            )
