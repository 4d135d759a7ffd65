"""One drill, from the first canary to the last: it carries out the plan and collects events."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from twinbus.client.aio.client import PairedServiceBusClient
from twinbus.client.reporting.events import PairEvent
from twinbus.drill.canaries import CanarySender, CanaryTemplate
from twinbus.drill.canary_collector import CanaryCollector
from twinbus.drill.changes import DrillChanges, NotPutBack, ReportLine
from twinbus.drill.entity_admin import EntityAdministration
from twinbus.drill.measures import CanaryAccepted, CanaryRaised, Event, FaultLifted, FaultOrdered, measure
from twinbus.drill.plan import DrillPlan
from twinbus.drill.report import DrillResult
from twinbus.errors import TwinbusError
from twinbus.units import exact_duration

REPORTED_EVENTS = ("suspect", "failed_over", "recovered", "backlog_queue_lost", "secondary_in_trouble")
COUNT_EVERY_S = 5.0
LOOK_S = 0.05
FIRST_RESULT_S = 30.0
"""How long to wait for the result of the first canary."""


class Drill:
    """`run` it once, in an event loop; `stop` ends it early and in good order, from a callback of the loop."""

    def __init__(self, plan: DrillPlan, notes: Path, report: ReportLine) -> None:
        """`notes` is the folder of change records; `report` is called with lines for people."""
        self.name = uuid.uuid4().hex[:8]
        self._plan = plan
        self._options = plan.options
        self._notes = notes
        self._began_at, self._began = datetime.now(UTC), monotonic()
        self._say = report
        self._events: list[Event] = []
        self._troubles: list[str] = []
        self._stopped = asyncio.Event()
        self._lifted: float | None = None
        self._has_returned = False
        self.is_put_back = True
        """False: something is still as the drill made it."""

    def stop(self) -> None:
        """End the fault at once; canaries are counted as far as that is quick."""
        self._stopped.set()

    async def run(self) -> DrillResult:
        """Run the drill. Raises `TwinbusError` if it could not be done; cancelled or not, the entity is put back."""
        plan = self._plan
        bus = PairedServiceBusClient(plan.primary, plan.pairing)
        async with EntityAdministration(plan.primary, self._options.timeout_s) as admin, bus:
            for name in REPORTED_EVENTS:
                bus.on(name, self._on_event)
            changes = DrillChanges(plan, self.name, admin, self._notes, self._report)
            try:
                taken_back = await self._run_steps(bus, changes)
            finally:
                await self._finish(changes)
        return self._outcome(changes, taken_back)

    # --- steps ---

    async def _run_steps(self, bus: PairedServiceBusClient, changes: DrillChanges) -> int:
        """How many canaries were taken back."""
        target = self._plan.target
        await changes.make_room()
        session = f"drill-{self.name}" if target.has_sessions or target.is_topic else None
        home = CanaryCollector(self._plan, self.name, session, changes.subscription, self._events, self._report)
        await home.prepare()
        sender = bus.get_topic_sender(target.path) if target.is_topic else bus.get_queue_sender(target.path)
        template = CanaryTemplate(self.name, self._options.canary_ttl_s, session)
        flight = CanarySender(sender, template, self._options.rate, self._note)
        flying = asyncio.create_task(flight.run())
        try:
            await self._outage(changes, home)
            await self._until(lambda: self._has_returned, self._recovery_patience_s)
            flight.stop()
            await asyncio.wait({flying})  # awaiting the task itself would pass a cancellation on to it
            await home.wait(self._stopped)
        finally:
            flying.cancel()
            await changes.lift()
            await home.end()
        if flight.last_error:
            self._troubles.append(f"the last error of a send: {flight.last_error}")
        return await home.take_back(bus)

    async def _outage(self, changes: DrillChanges, home: CanaryCollector) -> None:
        """Healthy, failing, healthy again."""
        self._report(f"sending canaries to {self._plan.target.path}")
        await self._until(lambda: False, self._options.before_s)
        await self._until(self._has_first_result, FIRST_RESULT_S)
        if self._stopped.is_set():
            return
        self._check_calm()
        await home.check_receivers()
        self._report(f"{changes.injection.text}: now, for {exact_duration(self._options.outage_s)}")
        self._note(FaultOrdered(await changes.begin()))
        await self._until(lambda: False, self._options.outage_s)
        self._lifted = await changes.lift()
        self._note(FaultLifted(self._lifted))
        self._report(f"{self._plan.target.path} is put back")
        await home.begin()

    def _has_first_result(self) -> bool:
        """Whether the result of any canary is known."""
        return any(isinstance(event, CanaryAccepted | CanaryRaised) for event in self._events)

    def _check_calm(self) -> None:
        """A drill that starts during an outage would measure that outage."""
        if not any(isinstance(event, CanaryAccepted) and event.place == "primary" for event in self._events):
            raise TwinbusError(
                f"{self._plan.target.path} takes no canaries before the drill has begun: no fault was made"
            )

    async def _until(self, is_so: Callable[[], bool], patience_s: float) -> None:
        """Wait, and report counts, until the condition holds, time is up, or the drill is stopped."""
        deadline = monotonic() + patience_s
        count_at = monotonic() + COUNT_EVERY_S
        while not is_so() and not self._stopped.is_set() and (left_s := deadline - monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))
            if monotonic() >= count_at:
                count_at += COUNT_EVERY_S
                self._report(self._count())

    def _note(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, CanaryAccepted) and event.place == "primary" and self._lifted is not None:
            self._has_returned = self._has_returned or event.ended >= self._lifted

    @property
    def _recovery_patience_s(self) -> float:
        options = self._options
        return max(2 * (options.limits.recovery_s or 0.0), 3 * options.ping_interval_s + 30.0)

    async def _finish(self, changes: DrillChanges) -> None:
        finishing = asyncio.create_task(changes.finish())
        try:
            await _finish_uncancelled(finishing)
        except NotPutBack as error:
            self.is_put_back = False
            self._troubles.append(str(error))
            self._report(str(error))

    # --- reporting ---

    def _on_event(self, event: PairEvent) -> None:
        self._report(f"{event.name.value.replace('_', ' ')}: {' '.join(event.text.split())}")

    def _report(self, text: str) -> None:
        self._say(f"{monotonic() - self._began:6.1f} s  {text}")

    def _count(self) -> str:
        accepted = [event for event in self._events if isinstance(event, CanaryAccepted)]
        raised = sum(isinstance(event, CanaryRaised) for event in self._events)
        backlog = sum(event.place == "backlog" for event in accepted)
        return f"{len(accepted) - backlog} canaries on the primary, {backlog} in the backlog, {raised} errors"

    def _outcome(self, changes: DrillChanges, taken_back: int) -> DrillResult:
        plan = self._plan
        return DrillResult(
            drill=self.name,
            began_at=self._began_at,
            entity=plan.target.path,
            primary=plan.name,
            secondary=plan.secondary.host_label,
            fault=self._options.fault,
            way=changes.injection.way,
            length_s=self._options.outage_s,
            measures=measure(self._events),
            limits=self._options.limits,
            is_interrupted=self._stopped.is_set(),
            is_put_back=self.is_put_back,
            taken_back=taken_back,
            expire_at=datetime.now(UTC) + timedelta(seconds=self._options.canary_ttl_s),
            is_topic=plan.target.is_topic,
            troubles=tuple(self._troubles),
        )


async def _finish_uncancelled(task: asyncio.Task[None]) -> None:
    """Wait for the end of it, also if whoever waits is cancelled meanwhile."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
