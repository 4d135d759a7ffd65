"""The end of a drill: canaries are brought home, counted, and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode

from twinbus.client.aio.client import PairedServiceBusClient
from twinbus.client.sdk.failures import one_line
from twinbus.drill.canaries import MARK, CanaryFinder, canaries_in
from twinbus.drill.changes import ReportLine
from twinbus.drill.measures import CanaryAccepted, Event, LeftBehind, NotLooked, OthersReceive, Seen, SentHome
from twinbus.drill.plan import DrillPlan
from twinbus.errors import TwinbusError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event as LedgerEvent
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.syphon import Alert, Syphon, SyphonOptions
from twinbus.syphon.peeking.queue_discovery import QueueDiscovery, describe_shut
from twinbus.transport.failures import ConnectionFailed

LOOK_S = 0.3
SETTLE_S = 1.0
"""How long a canary that was accepted may take to be seen."""
PATIENCE_S = 60.0
HASTE_S = 10.0
"""How long canaries are waited for after Ctrl-C."""
SURVEY_S, TAKE_S = 20.0, 30.0
"""How long the backlog is looked through, and how long canaries are taken away."""
BATCH = 100


class CanaryCollector:
    """Brings home, finds, counts and removes the canaries of one drill. Appends to `events`."""

    def __init__(
        self,
        plan: DrillPlan,
        drill: str,
        session: str | None,
        subscription: str | None,
        events: list[Event],
        report: ReportLine,
    ) -> None:
        self._plan = plan
        self._drill = drill
        self._session = session
        self._subscription = subscription
        self._events = events
        self._report = report
        self._attempt_s = plan.options.timeout_s
        path = plan.target.path if subscription is None else f"{plan.target.path}/Subscriptions/{subscription}"
        look_session = session if plan.target.has_sessions else None
        dial = plan.primary.dial(self._attempt_s)
        self._finder = CanaryFinder(
            dial, path, drill, look_session, self._attempt_s, rereads=plan.target.is_partitioned
        )
        self._is_private = look_session is not None or subscription is not None
        self._others_receive = False
        self._queues: Sequence[int] = ()
        """The backlog queues that are there."""
        self._syphon: Syphon | None = None

    # --- before ---

    async def prepare(self) -> None:
        """Look at the entity before the first canary. Raises `TwinbusError` if it cannot be read."""
        plan = self._plan
        try:
            if not self._is_private:
                await self._finder.skip_what_is_there()
            await self._look()
        except ConnectionFailed as error:
            raise TwinbusError(
                f"canaries could not be seen in {plan.target.path}, which needs Listen: {error}"
            ) from None
        try:
            dial = plan.secondary.dial(self._attempt_s)
            found = await QueueDiscovery(dial, plan.name, plan.options.queue_count, attempt_s=self._attempt_s).search()
        except ConnectionFailed as error:
            raise TwinbusError(f"the backlog on {plan.secondary.host_label} cannot be read: {error}") from None
        unread = [why for index, why in found.refused.items() if index < plan.options.queue_count]
        if unread:  # canaries there would count as lost
            where = f"the backlog on {plan.secondary.host_label}"
            raise TwinbusError(f"canaries could not be seen in {where}, which needs Listen: {unread[0]}")
        shut = [f"backlog queue {index} {describe_shut(why)}" for index, why in found.shut.items()]
        if shut:  # canaries may go there, and would never come home
            raise TwinbusError(f"canaries could stay in the backlog on {plan.secondary.host_label}: {shut[0]}")
        self._queues = found.queues

    async def check_receivers(self) -> None:
        """Before the fault: canaries that vanish from a healthy entity are received by somebody else."""
        if self._subscription is not None or await self._is_settled(self._unseen):
            return
        self._others_receive = True
        self._events.append(OthersReceive())
        self._report(f"somebody else receives from {self._plan.target.path}: what they take does not count as lost")

    # --- after the fault ---

    async def begin(self) -> None:
        """Bring home what is in the backlog for this entity, unless somebody else is to do it."""
        if not self._plan.options.brings_home:
            return
        plan = self._plan
        options = SyphonOptions(entities=frozenset((plan.target.path,)), attempt_s=self._attempt_s)
        dials = plan.primary.dial(self._attempt_s), plan.secondary.dial(self._attempt_s)
        self._syphon = Syphon(
            *dials, plan.name, len(self._queues), options, queues=self._queues, on_alert=self._on_alert, ledger=self
        )
        await self._syphon.start()

    def record(self, event: LedgerEvent, /) -> None:
        """The ledger of the syphon: notes canaries that were sent home."""
        if event.kind == Kind.SENT_HOME:
            mine = [name for name in event.message_ids if name.startswith(f"{self._drill}-")]
            self._events += [SentHome(monotonic(), name) for name in mine]

    async def wait(self, stopped: asyncio.Event) -> None:
        """Wait until every canary is home, or time is up; then look where the others are."""
        patience_s = max(2 * (self._plan.options.limits.drain_s or 0.0), PATIENCE_S)
        started = monotonic()
        missing = await self._missing()
        while missing and monotonic() - started < (HASTE_S if stopped.is_set() else patience_s):
            await asyncio.sleep(LOOK_S)
            missing = await self._missing()
        if missing:
            await self._search()

    async def end(self) -> None:
        syphon, self._syphon = self._syphon, None
        if syphon is not None:
            await syphon.stop()

    async def take_back(self, bus: PairedServiceBusClient) -> int:
        """Remove canaries where that touches no other messages. Returns how many."""
        target = self._plan.target
        if self._plan.options.leaves_canaries or self._subscription is not None:
            return 0  # a subscription goes with all it has
        try:
            async with asyncio.timeout(TAKE_S):
                if target.has_sessions:
                    return await self._empty_session(bus)
                return 0 if self._others_receive else await self._take_from_head(bus)
        except Exception as error:  # they expire by themselves; the drill is judged without it
            self._report(f"canaries stay in {target.path} until they expire: {one_line(error)}")
            return 0

    # --- looking ---

    async def _look(self) -> None:
        found = await self._finder.look()
        self._events += [Seen(monotonic(), name, sequence) for name, sequence in found]

    async def _is_settled(self, missing: Callable[[], set[str]]) -> bool:
        deadline = monotonic() + SETTLE_S
        while True:
            wanted = missing()
            await self._look()
            if not wanted & missing():
                return True
            if monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)

    def _unseen(self) -> set[str]:
        seen = {event.canary for event in self._events if isinstance(event, Seen)}
        return {event.canary for event in self._events if isinstance(event, CanaryAccepted)} - seen

    async def _missing(self) -> set[str]:
        """Canaries that are not home yet, as far as known."""
        try:
            await self._look()
        except ConnectionFailed as error:
            self._report(f"cannot look for canaries at home: {error}")
        if not self._others_receive:
            return self._unseen()
        brought = {event.canary for event in self._events if isinstance(event, SentHome)}
        detours = {
            event.canary for event in self._events if isinstance(event, CanaryAccepted) and event.place == "backlog"
        }
        return (detours & self._unseen()) - brought

    async def _search(self) -> None:
        """Look for the missing canaries in the backlog."""
        plan = self._plan
        paths = [backlog_path(plan.name, index) for index in self._queues]
        try:
            await self._look()
            async with asyncio.timeout(SURVEY_S):
                found = await canaries_in(plan.secondary.dial(self._attempt_s), paths, self._drill, self._attempt_s)
        except (ConnectionFailed, TimeoutError) as error:
            self._report(f"canaries are missing and could not be looked for: {error}")
            self._events.append(NotLooked())
            return
        self._events += [LeftBehind(name) for name in found & self._unseen()]

    def _on_alert(self, alert: Alert) -> None:
        self._report(f"syphon: {alert.name.replace('_', ' ')}: {alert.subject}: {' '.join(alert.text.split())}")

    # --- taking away ---

    async def _empty_session(self, bus: PairedServiceBusClient) -> int:
        mode, count = ServiceBusReceiveMode.RECEIVE_AND_DELETE, 0
        wanted = sum(isinstance(event, Seen) for event in self._events)
        path = self._plan.target.path
        receiver = bus.get_queue_receiver(path, session_id=self._session, receive_mode=mode)
        async with receiver:
            while count < wanted and (got := await receiver.receive_messages(BATCH, max_wait_time=SETTLE_S)):
                count += len(got)
        return count

    async def _take_from_head(self, bus: PairedServiceBusClient) -> int:
        """Remove canaries at the head of the queue only: the others are behind messages of other senders."""
        in_front = await self._finder.at_head()
        count = 0
        async with bus.get_queue_receiver(self._plan.target.path) as receiver:
            while count < in_front:
                got = await receiver.receive_messages(min(BATCH, in_front - count), max_wait_time=SETTLE_S)
                mine = [message for message in got if self._is_mine(message)]
                for message in got:
                    await (receiver.complete_message if message in mine else receiver.abandon_message)(message)
                count += len(mine)
                if not got or len(mine) < len(got):
                    break
        return count

    def _is_mine(self, message: ServiceBusReceivedMessage) -> bool:
        mark = (message.application_properties or {}).get(MARK.encode())
        return mark in (self._drill, self._drill.encode())
