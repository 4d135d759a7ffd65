"""What a paired client knows of itself, on threads as on tasks: its namespaces, its options, how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import time
from typing import TYPE_CHECKING, assert_never

from twinbus.amqp.codec.performatives import DROPS_PINGS
from twinbus.board.report import ProcessKind
from twinbus.client.core.own_syphon import OwnSyphon, with_look
from twinbus.client.credentials import is_async
from twinbus.client.inspection.inspect_pair import inspect
from twinbus.client.inspection.reports import Inspection
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.reporting.order_status import order_status
from twinbus.client.reporting.own_backlog import OwnBacklog
from twinbus.client.reporting.status import (
    AbilityStatus,
    BacklogQueueStatus,
    EntityState,
    EntityStatus,
    Phase,
    PrimaryStatus,
    SecondaryStatus,
    Status,
)
from twinbus.client.sdk.internals.required_parts import check_sdk, version_warning
from twinbus.client.setup.administration import plan_for
from twinbus.client.setup.plan import Plan
from twinbus.client.setup.preparation import Preparation
from twinbus.errors import OptionsError, PairClosed, PairFaulted, TwinbusError
from twinbus.ledger import Ledger
from twinbus.pairing import closing
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity, name_of
from twinbus.pairing.failover import FailedOver, Healthy
from twinbus.pairing.pair import Pair
from twinbus.pairing.primary_abilities import AbilityRecord
from twinbus.pairing.secondary import Reachable
from twinbus.pairing.sending.error_class import classifier_for
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide
from twinbus.syphon.peeking.depth_watch import MESSAGES_MAX, BacklogSnapshot

if TYPE_CHECKING:
    from twinbus.client.core.own_board import OwnBoard
    from twinbus.client.core.own_spool import OwnSpool

FIRST_RECHECK_S, RECHECK_S = 60.0, 3600.0
"""When a pair is looked at again after pairing, and how often it proves itself from then on, before an outage does."""
UNFINISHED_RECHECK_S = 5.0
"""The same while the secondary was never reached: with a spool, pairing does not wait for it."""
UNNAMED = "unnamed"
NO_REASON = "no reason was given"

CLOSE_PATIENCE_S = 2.0
"""How long closing waits for what it ends."""
RECORD_PATIENCE_S = 10.0
"""The same for the record of a send that it cut off: a moment, unless the machine stands still."""


class ClientState:
    def __init__(
        self,
        primary: Namespace,
        options: SendAvailabilityPairedNamespaceOptions,
        kind: ProcessKind = ProcessKind.CLIENT,
    ) -> None:
        """`kind`: what it is called on the board."""
        if not isinstance(primary, Namespace):
            raise OptionsError(f"primary must be a Namespace, got {type(primary).__name__}")
        if not isinstance(options, SendAvailabilityPairedNamespaceOptions):
            wanted = "SendAvailabilityPairedNamespaceOptions(secondary, ...)"
            raise OptionsError(f"options must be {wanted}, got {type(options).__name__}")
        check_sdk()
        self.primary = primary
        self.options = options
        self.phase = Phase.NEW
        self.fault: str | None = None
        self.is_usable = False
        """Paired, and neither closed nor faulted. Read without a lock before every send."""
        self.preparation: Preparation | None = None
        self.pair = Pair(
            options.rules(),
            entities=options.entities,
            classifier=classifier_for(options.classifier),
            name=options.primary_name or primary.name or UNNAMED,
        )
        self.sides: closing.State = closing.BothOpen()
        self.syphon: OwnSyphon | None = None
        """The syphon of this client; None: it runs none, or has not begun."""
        self.recording: set[object] = set()
        """The thread or task of each send that was cut off while it stored something, and has not recorded that yet."""
        self.sending: list[object] = []
        """The thread or task of each send that goes by a flow."""
        self.queue_sent: dict[int, int] = {}
        self.own_backlog = OwnBacklog()
        self.inspection: Inspection | None = None
        self.recorder: ClientRecorder | None = None
        self.kind = kind
        self.board: OwnBoard | None = None
        """What it does on the board; None: nothing, or it has not begun."""
        self.spool: OwnSpool | None = None
        """The spool of this client; None: it has none, or has not begun."""
        self._ledger: Ledger | None = None

    def warnings(self) -> tuple[str, ...]:
        """What is worth a warning before anything was asked: the options, and the SDK that is installed."""
        untested = version_warning()
        return (*self.options.warnings(), *(() if untested is None else (untested,)))

    @property
    def secondary(self) -> Namespace:
        return self.options.secondary

    @property
    def plan(self) -> Plan:
        options = self.options
        return plan_for(
            self.primary,
            self.secondary,
            primary_name=options.primary_name,
            queue_count=options.backlog_queue_count,
            creates=options.create_backlog,
            listens=options.enable_syphon,
            entities=options.entities,
            attempts=options.retry.attempts,
            can_wait=options.spool is not None,
            has_board=options.board,
            reads_board=options.share_failover is not None,
        )

    def prepared(self, preparation: Preparation, at: float) -> None:
        """Backlog queues were found and tried, for the first time or again."""
        self.preparation = preparation
        self.pair.use_queues(preparation.found, preparation.lost, at)
        if self.spool is not None:
            self.spool.use_queues(preparation.found)
        if self.phase is Phase.NEW:
            self.phase, self.is_usable = Phase.PAIRED, True

    def inspect(self) -> Inspection | None:
        """Inspect the backlog from outside, which takes a while; None if a credential works with asyncio only."""
        options = self.options
        if is_async(self.primary.credential) or is_async(self.secondary.credential):
            return None
        found = inspect(
            self.primary,
            self.secondary,
            options.backlog_queue_count,
            primary_name=self.pair.name,
            attempt_s=self.pair.rules.attempt_s,
            messages_max=MESSAGES_MAX,
            earlier=self.inspection,
        )
        if self.recorder is not None:
            self.recorder.looked(found.cost)
        return found

    def recheck_events(self, before: Preparation, after: Preparation) -> Iterator[tuple[str, str]]:
        """Events to report after another check: names and texts."""
        name = "secondary_in_trouble" if before.is_complete else "pairing_warning"
        for warning in after.warnings:
            if warning not in before.warnings:
                yield name, warning
        found = self.inspection
        if found is not None and found.syphon_seen is False:
            waiting = "some" if found.waiting_messages is None else str(found.waiting_messages)
            yield "syphon_missing", f"{waiting} messages wait in the backlog and nobody brings them home"

    def open_ledger(self) -> None:
        """Open the ledger, if there is to be one; raises `OptionsError` for a bad folder."""
        folder = self.options.ledger
        if folder is not None and self._ledger is None:
            self._ledger = Ledger.at(folder, "client", self.options.ledger_ship_to)
            self.recorder = ClientRecorder(self._ledger, self.pair.name, self.secondary.name or self.secondary.address)

    def close_ledger(self) -> None:
        """Close the ledger, when nothing more can happen; takes some seconds if the disk does not answer."""
        if self._ledger is not None:
            self._ledger.close()

    def has_to_wait(self, me: object, is_any_storing: Callable[[], bool], waited_s: float) -> bool:
        """Whether closing has to wait for other threads or tasks than this one, after it has waited for `waited_s`.

        A send that may have stored something has to record that first. Until then it is storing or recording at every
        moment, so the two are checked in this order. A send that has stored nothing gets less time to end.
        """
        if waited_s < RECORD_PATIENCE_S and (is_any_storing() or any(each != me for each in tuple(self.recording))):
            return True
        return waited_s < CLOSE_PATIENCE_S and any(each != me for each in tuple(self.sending))

    def namespace_of(self, entity: Entity | None, event: ReportEvent) -> str | None:
        """The name of the namespace that an event of the core is about."""
        if event.details.get("side") == NamespaceSide.PRIMARY.value:
            return self.pair.name
        is_elsewhere = entity is None or event.details.get("side") == NamespaceSide.BACKLOG.value
        return self.secondary.name if is_elsewhere else self.pair.name

    def recheck_s(self, usual_s: float) -> float:
        """After how long to look at the pair again, if it is `usual_s` for one that is complete."""
        is_complete = self.preparation is None or self.preparation.is_complete
        return usual_s if is_complete else UNFINISHED_RECHECK_S

    def record_event(self, entity: Entity | None, event: ReportEvent) -> None:
        """Record an event of the core in the ledger, too."""
        if self.recorder is not None:
            queue = event.details.get("queue")
            self.recorder.record_event(entity, event, self.queue_path(queue) if isinstance(queue, int) else "")

    def primary_offers(self, capabilities: frozenset[str]) -> None:
        """What the primary offers when it opens a connection. One assignment, so any thread may call it."""
        self.pair.drops_pings = DROPS_PINGS in capabilities

    def probed(self, entity: Entity, probe: str, size: int, failure: Failure | None) -> None:
        """Record that the primary was asked whether it is back."""
        if self.recorder is not None:
            self.recorder.probed(entity, probe, size, failure)

    def end(self, phase: Phase, reason: str | None = None) -> bool:
        """Closed or faulted; False if it has ended already."""
        if self.phase in (Phase.CLOSED, Phase.FAULTED):
            return False
        self.phase, self.fault, self.is_usable = phase, reason, False
        if phase is Phase.FAULTED and self.recorder is not None:
            self.recorder.faulted(reason or NO_REASON)
        return True

    def count_sent(self, queue: int, encoded: Sequence[bytes]) -> None:
        """A backlog queue took messages."""
        self.queue_sent[queue] = self.queue_sent.get(queue, 0) + len(encoded)
        self.own_backlog.add([len(message) for message in encoded], time())

    @property
    def has_ended(self) -> bool:
        return self.phase in (Phase.CLOSED, Phase.FAULTED)

    def check_usable(self) -> None:
        """Raise what a call has to raise unless the pair is ready."""
        if self.is_usable:
            return
        self.check_not_ended()
        raise TwinbusError("the namespaces are not paired yet: call pair(), or use the client in a with block")

    def check_not_ended(self) -> None:
        if self.phase is Phase.FAULTED:
            raise PairFaulted(self.fault or NO_REASON)
        if self.phase is Phase.CLOSED:
            raise PairClosed("the client is closed: nothing was sent")

    # --- its two sides ---

    def side_event(self, event: closing.Event) -> tuple[closing.Effect, ...]:
        """One of the sides changed; returns what to do."""
        if self.has_ended:
            return ()
        is_syphoning = self.options.enable_syphon and self.phase is Phase.PAIRED
        self.sides, effects = closing.step(self.sides, event, is_syphoning=is_syphoning)
        return effects

    def has_side_ended(self, side: closing.SideName) -> bool:
        """Whether this side alone has ended; when both have, the pair has."""
        return isinstance(self.sides, closing.OneOpen) and self.sides.ended == side

    @property
    def is_half_open(self) -> bool:
        """Whether one side has ended and the other has not."""
        return isinstance(self.sides, closing.OneOpen)

    def check_side(self, side: closing.SideName) -> None:
        """Raise `PairClosed` if this side has ended."""
        if self.has_side_ended(side):
            why = self.side_fault(side)
            how = "is closed" if why is None else f"has ended ({why})"
            raise PairClosed(f"the {side} {how}: nothing was sent")

    def side_fault(self, side: closing.SideName) -> str | None:
        """Why a side ended, if it was by a fault, of its own or of the pair."""
        if self.fault is not None:
            return self.fault
        return self.sides.fault if isinstance(self.sides, closing.OneOpen) and self.sides.ended == side else None

    def name_of(self, side: closing.SideName) -> str | None:
        return self.pair.name if side == "primary" else self.secondary.name

    @property
    def queue_count(self) -> int:
        """How many backlog queues were really found or created."""
        return len(self.preparation.found) if self.preparation is not None else 0

    def queue_path(self, queue: int) -> str:
        return backlog_path(self.pair.name, queue)

    # --- how it is doing ---

    def status(self, at: float, sent_directly: Callable[[Entity], int], events_dropped: int) -> Status:
        """The pair now. `sent_directly`: how many messages of an entity went to the primary directly."""
        now = datetime.now(UTC)
        detection = self.preparation.duplicate_detection if self.preparation is not None else {}

        def when(moment: float | None) -> datetime | None:
            return None if moment is None else now + timedelta(seconds=moment - at)

        return Status(
            at=now,
            primary=self.pair.name,
            secondary=self.secondary.name or self.secondary.address,
            phase=self.phase,
            fault=self.fault,
            entities=tuple(
                _entity_status(entity, when, sent_directly(entity), detection.get(entity.path, "unknown"))
                for entity in self.pair.entities
            ),
            abilities=tuple([_ability_status(record, now, at) for record in self.pair.abilities.records]),
            primary_status=PrimaryStatus(
                unreachable_since=when(self.pair.abilities.lost_since),
                unreachable_reason=self.pair.abilities.lost_reason,
            ),
            backlog_queues=tuple(self._queue_status(queue, at, when) for queue in self.pair.rotation.queues),
            secondary_status=self._reach(self._secondary_status(), when),
            sent_to_backlog=self.own_backlog.status(),  # after the look, which may have seen it empty
            syphon=None if self.syphon is None else self.syphon.status(),
            spool=None if self.spool is None else self.spool.status(),
            board=None if self.board is None else self.board.status(),
            order=None if self.pair.fences is None else order_status(self.pair.fences, self.queue_path),
            events_dropped=events_dropped,
            probe=self.pair.probe,
            probe_reason=self._probe_reason(),
        )

    def _probe_reason(self) -> str:
        if self.pair.rules.probe != "auto":
            return f'probe="{self.pair.rules.probe}"'
        drops_pings = self.pair.drops_pings
        match drops_pings:
            case None:
                return "not connected to the primary yet"
            case True:
                return "the primary drops pings"
            case False:
                return "the primary may deliver pings"
            case _:
                assert_never(drops_pings)

    def _queue_status(
        self, queue: int, at: float, when: Callable[[float | None], datetime | None]
    ) -> BacklogQueueStatus:
        lost = self.pair.rotation.lost.get(queue)
        return BacklogQueueStatus(
            path=self.queue_path(queue),
            in_rotation=self.pair.rotation.is_available(queue, at),
            lost_until=None if lost is None else when(lost.back_at),
            reason="" if lost is None else str(lost.failure),
            sent=self.queue_sent.get(queue, 0),
        )

    def _reach(self, found: SecondaryStatus, when: Callable[[float | None], datetime | None]) -> SecondaryStatus:
        """The same, with what sends have found out since."""
        state, waiting = self.pair.secondary.state, len(self.pair.secondary.waiting)
        if isinstance(state, Reachable):
            return found
        return replace(
            found,
            unreachable_since=when(state.since),
            unreachable_reason=str(state.failure),
            next_trial_at=when(state.until),
            waiting_sends=waiting,
        )

    def _secondary_status(self) -> SecondaryStatus:
        found = self.preparation
        if found is None:
            return SecondaryStatus()
        if not found.is_complete:
            since = datetime.fromtimestamp(found.checked_at, UTC)
            return SecondaryStatus(unreachable_since=since, unreachable_reason=found.warnings[0])
        looked = self.inspection
        status = SecondaryStatus(
            checked_at=datetime.fromtimestamp(found.checked_at or time(), UTC),
            warnings=found.warnings,
            queue_settings=found.queue_settings,
            capacity_hours=None if looked is None else looked.capacity_hours,
            syphon_seen=None if looked is None else looked.syphon_seen,
        )
        return with_look(status, self._latest_look())

    def _latest_look(self) -> Inspection | BacklogSnapshot | None:
        """Into the backlog: the one of the hour, or of the syphon, which looks more often."""
        looks = [self.inspection, None if self.syphon is None else self.syphon.look]
        latest = max([look for look in looks if look is not None], key=lambda look: look.at, default=None)
        if latest is not None and latest.waiting_messages == 0:
            self.own_backlog.seen_empty(latest.at)
        return latest


def _ability_status(record: AbilityRecord, now: datetime, at: float) -> AbilityStatus:
    return AbilityStatus(
        path=record.path,
        ability=record.ability,
        works=record.works,
        since=now + timedelta(seconds=record.since - at),
        reason=record.reason,
        failures=record.failures,
    )


def _entity_status(
    entity: Entity, when: Callable[[float | None], datetime | None], sent_directly: int, detection: str
) -> EntityStatus:
    state, tally = entity.state, entity.tally
    return EntityStatus(
        entity=entity.path,
        state=EntityState(name_of(state)),
        since=None if isinstance(state, Healthy) else when(state.since),
        reason=entity.reason,
        epoch=entity.epoch,
        stays=isinstance(state, FailedOver) and state.stays,
        waits_for_message=entity.is_ready,
        next_ping_at=when(entity.next_ping_at),
        pings_sent=tally.pings,
        pings_failed=tally.pings_failed,
        last_ping_failure=entity.last_ping_failure,
        failovers=tally.failovers,
        flaps=entity.rate.flaps,
        sent_to_primary=tally.to_primary + sent_directly,
        sent_to_backlog=tally.to_backlog,
        sent_to_spool=tally.to_spool,
        held_now=len(entity.line),
        held_bytes=entity.line.bytes,
        copies_in_doubt=tally.in_doubt,
        duplicate_detection=detection,
    )
