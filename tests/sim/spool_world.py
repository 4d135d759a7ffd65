"""One simulated pair whose sender has a spool, and is killed again and again, until everything has come home.

What must be true at the end: whatever was accepted, wherever, is on the primary, or among dead letters with a reason;
spool and backlog are empty; nobody's time to live grew on the way; what was said to be in the spool was on its disk
then; and no send failed for want of a namespace while the spool had room.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random

from sim.home_namespace import LendingNamespace
from sim.home_senders import TTL_MS, Application
from sim.home_syphon import SimulatedSyphon
from sim.home_world import DRAIN_S, ENTITIES, LOCK_MS, NAME, TRAVEL_MS_MAX, CalmFaults
from sim.invariants import Violation, check
from sim.pair_archive import Archive, Copy
from sim.pair_loop import VirtualLoop
from sim.pair_messages import SimulatedRequest
from sim.pair_network import Road
from sim.spool_process import SpoolNamespace, SpoolProcess
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.entities.settings import QueueSettings
from twinbus.errors import BothNamespacesUnavailable
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import open_envelope
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.receipt import NOT_ACCEPTED, NamespaceSide, SendReceipt
from twinbus.syphon.options import SyphonOptions

ROOMY, SMALL = 10**9, 20_000
KILL_LEAST_S = 0.2


class SpoolApplication(Application):
    """Counts what was accepted for the whole world: the process that promised it may be dead."""

    world: SpoolWorld
    is_dead = False

    def _note(self, request: SimulatedRequest, receipt: SendReceipt) -> None:
        super()._note(request, receipt)
        self.world.accepted(self, receipt)

    def _raised(self, error: Exception) -> None:
        super()._raised(error)
        if isinstance(error, Violation):
            raise error
        if isinstance(error, BothNamespacesUnavailable):
            self.world.was_refused(error)


class SpoolWorld:
    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.rules = _draw_rules(random)
        self.bytes_max = random.choice((ROOMY, ROOMY, SMALL))
        self.primary = LendingNamespace("primary", self.loop, random)
        self.secondary = LendingNamespace("secondary", self.loop, random)
        self._paths = [backlog_path(NAME, index) for index in range(random.choice((1, 2, 3)))]
        for path in ENTITIES:
            self.primary.create(path, QueueSettings(max_size_mb=1024))
        for path in self._paths:
            self.secondary.create(path, QueueSettings(max_size_mb=1024, lock_ms=LOCK_MS, max_delivery_count=2**31 - 1))
        self._roads = (
            Road(self.primary, self.loop, random, self.seen),
            Road(self.secondary, self.loop, random, self.seen),
        )
        self.faults = CalmFaults(*self._roads, random)
        self.disks: list[Archive] = []
        """Of every folder that there ever was; one is used again by the next process."""
        self._spool = SpoolNamespace("spool", self.loop, random)
        self.disks.append(self._spool.archive)
        options = self._syphon_options()
        self.syphon = SimulatedSyphon(self._paths, options, *self._roads, None, random, self.seen)
        self._numbers = count(1)
        self.applications: list[SpoolApplication] = []
        self._accepted: dict[str, tuple[SpoolApplication, int]] = {}
        """What was accepted, and when."""
        self.process = self._start()
        self._dead: list[SpoolProcess] = []

    def _syphon_options(self) -> SyphonOptions:
        random = self._random
        return SyphonOptions(
            prefetch=random.choice((1, 3, 20, 2_000)),
            concurrency=random.choice((1, 8)),
            attempt_s=random.choice((0.5, 3.0)),
            lock_s=LOCK_MS / 1000,
            backoff_s=(random.choice((0.1, 1.0)), random.choice((2.0, 10.0))),
            busy_s=random.choice((0.5, 10.0)),
            chance=random.random,
        )

    def _start(self) -> SpoolProcess:
        return SpoolProcess(
            self._spool,
            self._roads,
            self.rules,
            name=NAME,
            entities=ENTITIES,
            queues=len(self._paths),
            bytes_max=self.bytes_max,
            options=self._spool_options(),
            loop=self.loop,
            random=self._random,
            seen=self.seen,
        )

    def _spool_options(self) -> SyphonOptions:
        """Its queues have locks of a minute, as those that ship."""
        return replace(self._syphon_options(), lock_s=60.0)

    # --- what happens ---

    def run(self, calls: int) -> None:
        """Let applications send through trouble and kills, then let all of it end, and see where everything is."""
        random = self._random
        busy_s = random.choice((5.0, 30.0, 120.0))
        self.faults.plan(random.choice((3, 6, 12)), busy_s)
        kills = sorted(random.random() * busy_s for _ in range(random.choice((0, 1, 3, 8))))
        for at in kills:
            self.loop.call_at(at, self._kill)
        self._begin(calls, busy_s)
        self.loop.run(until=busy_s)
        self.faults.stop()
        self.loop.run(until=self.loop.now + DRAIN_S)
        for application in self.applications:
            check(application.is_done or application.is_dead, "an application still waits for a send to end")
        self.loop.run(until=self.loop.now + DRAIN_S)
        self._check_rest()

    def _begin(self, calls: int, seconds: float) -> None:
        for name in range(self._random.choice((1, 2, 4))):
            application = SpoolApplication(
                len(self.applications) + name, self.process.shell, self._random.choice(ENTITIES), self._random,
                self._numbers,
            )  # fmt: skip
            application.world = self
            self.applications.append(application)
            application.begin(max(1, calls // 4), max(KILL_LEAST_S, seconds))
        self._calls, self._ends_at = calls, self.loop.now + seconds

    def _kill(self) -> None:
        self.seen["kills"] += 1
        self.seen["kills with messages in the spool"] += self.process.contents.counts().messages > 0
        for application in self.applications:
            application.is_dead = True
        self.process.kill()
        self._dead.append(self.process)
        self._spool.restart()
        self.process = self._start()
        self._begin(self._calls // 2, self._ends_at - self.loop.now)

    # --- what is promised ---

    def accepted(self, application: SpoolApplication, receipt: SendReceipt) -> None:
        if application.is_dead:
            return
        for message_id, place in zip(receipt.message_ids, receipt.places, strict=True):
            if place == NamespaceSide.SPOOL.value:
                on_disk = any(message_id in disk.copies for disk in self.disks)
                check(on_disk, f"{message_id} was said to be in the spool and is not on its disk")
            if place != NOT_ACCEPTED:
                self._accepted[message_id] = (application, self.loop.now_ms)

    def was_refused(self, error: BothNamespacesUnavailable) -> None:
        check(error.spool_reason is not None, f"a send failed though there is a spool: {error}")
        is_full = "is full" in (error.spool_reason or "")
        check(self.bytes_max == SMALL or not is_full, f"the spool has room, and refused: {error}")
        self.seen["refused by a full spool"] += is_full

    def _check_rest(self) -> None:
        for disk, where in ((self._spool.archive, "spool"), (self.secondary.archive, "backlog")):
            entities = disk.entities()
            left = [row for row in disk.all_rows() if not entities[row.entity_id].path.endswith(DEAD_LETTER_SUFFIX)]
            check(not left, f"{len(left)} messages stay in the {where} for ever, e.g. {left[:1]}")
        check(self.process.syphon.pump.is_idle, "the pump holds messages of an empty spool")
        for message_id, (application, at_ms) in self._accepted.items():
            copies = self.primary.archive.copies.get(message_id, [])
            if copies:
                self._check_copies(message_id, copies, application, at_ms)
            else:
                self._check_dead(message_id, application)
        self.seen["messages"] += len(self._accepted)
        self.seen["went through the spool"] += len(self._spool.archive.copies)

    def _check_copies(self, message_id: str, copies: list[Copy], application: SpoolApplication, at_ms: int) -> None:
        for copy in copies:
            check(copy.path == application.path, f"{message_id} came home to {copy.path}")
            if message_id in application.ttls:
                ends_ms = copy.row.expires_at_ms
                check(ends_ms is not None, f"{message_id} lost its time to live")
                late_ms = (ends_ms or 0) - at_ms - TTL_MS
                check(late_ms <= TRAVEL_MS_MAX, f"{message_id} lives {late_ms} ms longer than it was given")
            else:
                # In front of it may stand the header of a delivery.
                is_whole = copy.row.payload.endswith(application.messages[message_id])
                check(is_whole, f"{message_id} came home as another message")

    def _check_dead(self, message_id: str, application: SpoolApplication) -> None:
        found = [
            copy
            for disk in (self._spool.archive, self.secondary.archive)
            for copy in disk.copies.get(message_id, ())
            if copy.path.endswith(DEAD_LETTER_SUFFIX)
        ]
        check(bool(found), f"{message_id} was accepted and is nowhere")
        is_expired = b"TwinbusExpired" in found[-1].row.payload
        check(is_expired and message_id in application.ttls, f"{message_id} is a dead letter for no good reason")
        check(open_envelope(found[-1].row.payload).path == application.path, f"{message_id} lost its way")
        self.seen["expired on the way"] += 1


def _draw_rules(random: Random) -> Rules:
    return Rules(
        has_spool=True,
        failover_interval_s=random.choice((0.0, 0.0, 1.0)),
        ping_interval_s=random.choice((1.0, 3.0)),
        probation_s=random.choice((1.0, 5.0)),
        attempt_s=random.choice((0.1, 0.5, 2.0)),
        attempts=random.choice((1, 2)),
        backoff_min_s=0.05,
        backoff_max_s=0.2,
        hold_sends=random.random() < 0.3,
        hold_time_max_s=random.choice((2.0, 60.0)),
        probe=random.choice(("ping", "link")),
    )
