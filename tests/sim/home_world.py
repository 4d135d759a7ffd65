"""One simulated pair with its syphon: sends through all kinds of trouble, until everything has come home.

What must be true at the end: the backlog is empty, but for what somebody put there for an entity that the syphon may
not send to; whatever was accepted is on the primary, or among the dead letters with a reason; nobody's time to live
grew; and where order was promised, the first copies of each session are in the order in which they were sent.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count, pairwise
from random import Random

from sim.home_namespace import LendingNamespace
from sim.home_senders import TTL_MS, Application, HomeShell
from sim.home_syphon import HomeObserver, SimulatedSyphon
from sim.invariants import check
from sim.pair_archive import Copy
from sim.pair_conditions import Spell, Trouble
from sim.pair_faults import Faults
from sim.pair_loop import VirtualLoop
from sim.pair_network import Road
from sim.pair_watch import Watch
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.entities.settings import QueueSettings
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.syphon.options import SyphonOptions

NAME = "contoso"
UNLISTED = "vault"
"""An entity of the primary that the syphon may not send to, in worlds where it has a list."""
ENTITIES = ("orders", "audit")
LOCK_MS = 20_000
DRAIN_S = 400.0
"""By then everything is home, once nothing fails any more."""
TRAVEL_MS_MAX = 15_000
"""A message that is on its way does not age; the slowest ways of simulated networks take some seconds."""


class CalmFaults(Faults):
    """Trouble as for every pair, but nobody deletes queues: with them goes what is in them."""

    def _draw(self, road: Road) -> Spell:
        while (spell := super()._draw(road)).trouble is Trouble.DELETED or (
            spell.trouble is Trouble.CONDITION and spell.condition in _FOR_GOOD
        ):
            pass
        return spell


_FOR_GOOD = (
    "com.microsoft:argument-error",
    "amqp:link:message-size-exceeded",
    "amqp:not-allowed",
    "amqp:resource-deleted",
)
"""What the syphon takes as an answer for good (P17): such messages are put aside, and do not come home."""


class HomeWorld:
    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.rules = _draw_rules(random)
        self.pair = Pair(self.rules, entities=ENTITIES, name=NAME)
        self.watch = Watch(self.pair, self.loop, self.seen)
        self.primary = LendingNamespace("primary", self.loop, random)
        self.secondary = LendingNamespace("secondary", self.loop, random)
        self._paths = [backlog_path(NAME, index) for index in range(random.choice((1, 2, 3)))]
        self._planting = Random(seed + 1)
        self._has_list = not self.rules.keeps_order and self._planting.random() < 0.5
        self._planted: set[str] = set()
        for path in (*ENTITIES, UNLISTED):
            self.primary.create(path, QueueSettings(max_size_mb=1024))
        for path in self._paths:
            self.secondary.create(path, QueueSettings(max_size_mb=1024, lock_ms=LOCK_MS, max_delivery_count=2**31 - 1))
        there = Road(self.primary, self.loop, random, self.seen)
        away = Road(self.secondary, self.loop, random, self.seen)
        self.faults = CalmFaults(there, away, random)
        self.shell = HomeShell(self.pair, self.watch, there, away, self.loop, random)
        self.shell.straight = set()
        self.shell.batch_bytes = random.choice((6_000, 262_144))
        self.pair.use_queues(range(len(self._paths)), {}, 0.0)
        observer = HomeObserver(self.pair, self.shell.settle)
        self.syphon = SimulatedSyphon(self._paths, self._syphon_options(), there, away, observer, random, self.seen)
        numbers = count(1)
        self.applications = [
            Application(name, self.shell, random.choice(ENTITIES), random, numbers)
            for name in range(random.choice((1, 2, 4)))
        ]

    def _syphon_options(self) -> SyphonOptions:
        random = self._random
        return SyphonOptions(
            order="session" if self.rules.keeps_order else None,
            entities=frozenset(map(str.upper, ENTITIES)) if self._has_list else None,
            prefetch=random.choice((1, 3, 20, 2_000)),
            concurrency=random.choice((1, 8)),
            batch_bytes_max=random.choice((5_000, 1024 * 1024)),
            attempt_s=random.choice((0.5, 3.0, 15.0)),
            lock_s=LOCK_MS / 1000,
            backoff_s=(random.choice((0.1, 1.0)), random.choice((2.0, 10.0))),
            busy_s=random.choice((0.5, 10.0)),
            chance=random.random,
        )

    # --- what happens ---

    def run(self, calls: int) -> None:
        """Let applications send, then let all trouble end, and see where everything is."""
        busy_s = self._random.choice((5.0, 30.0, 120.0))
        self.faults.plan(self._random.choice((1, 3, 6, 12)), busy_s)
        for application in self.applications:
            application.begin(-(-calls // len(self.applications)), busy_s)
        for number in range(5 if self._has_list else 0):
            self.loop.call_in(self._planting.random() * busy_s, partial(self._plant, f"planted-{number}"))
        self.loop.run(until=busy_s)
        self.faults.stop()
        self.loop.run(until=self.loop.now + DRAIN_S)
        for application in self.applications:
            check(application.is_done, "an application still waits for a send to end")
        self.loop.run(until=self.loop.now + DRAIN_S)
        self._check_backlog()
        for application in self.applications:
            self._check_arrived(application)
            self._check_time_to_live(application)
            if self.rules.keeps_order:
                self._check_order(application)
        self.seen["crashes"] += self.primary.crashes + self.secondary.crashes

    def _plant(self, message_id: str) -> None:
        """Somebody who may send to a backlog queue wants the syphon to deliver elsewhere."""
        encoded = encode_message(properties={PropertyField.MESSAGE_ID: message_id}, data=b"x")
        self.secondary.plant(self._planting.choice(self._paths), address(encoded, UNLISTED))
        if self.secondary.archive.copies.get(message_id):
            self._planted.add(message_id)

    def _check_planted(self, kept: set[str]) -> None:
        home = [each for each in self._planted if self._at_home(each)]
        check(not home, f"{home} went to an entity that is not on the list")
        check(kept == self._planted, f"{self._planted - kept} were put into the backlog and are nowhere")
        check(self.syphon.pump.counts.unlisted == len(kept), "what stays is not counted right")
        self.seen["kept in the backlog"] += len(kept)

    def _check_backlog(self) -> None:
        entities = self.secondary.archive.entities()
        rows = [row for row in self.secondary.archive.all_rows() if entities[row.entity_id].path in self._paths]
        self._check_planted({row.message_id for row in rows if row.message_id is not None} & self._planted)
        left = [row for row in rows if row.message_id not in self._planted]
        check(not left, f"{len(left)} messages never come home, as {left[0].message_id if left else ''}")
        check(self.syphon.pump.is_idle or bool(self._planted), "the syphon holds messages of an empty backlog")
        if self.pair.fences is not None:
            check(not self.pair.fences.count, f"{self.pair.fences.count} fences stand though all is home")
            check(not self.pair.fences.unseen, f"queues {self.pair.fences.unseen} were never seen empty")

    def _at_home(self, message_id: str) -> list[Copy]:
        return list(self.primary.archive.copies.get(message_id, ()))

    def _dead_copies(self, message_id: str) -> list[Copy]:
        copies = self.secondary.archive.copies.get(message_id, ())
        return [copy for copy in copies if copy.path.endswith(DEAD_LETTER_SUFFIX)]

    def _check_arrived(self, application: Application) -> None:
        for message_id, _ in (each for sent in application.accepted.values() for each in sent):
            if self._at_home(message_id):
                continue
            dead = self._dead_copies(message_id)
            check(bool(dead), f"{message_id} was accepted and is nowhere")
            reason = b"TwinbusExpired" in dead[-1].row.payload
            check(reason and message_id in application.ttls, f"{message_id} is a dead letter for no good reason")
            self.seen["expired in the backlog"] += 1

    def _check_time_to_live(self, application: Application) -> None:
        for message_id in application.ttls:
            copies = self._at_home(message_id)
            if message_id in self.shell.straight:
                copies = [copy for copy in copies if copy.row.payload != application.messages[message_id]]
            for copy in copies:
                away = self.secondary.archive.copies.get(message_id)
                began_ms = max([each.row.enqueued_at_ms for each in away or [copy]])  # the youngest of its copies
                ends_ms = copy.row.expires_at_ms
                check(ends_ms is not None, f"{message_id} lost its time to live")
                late_ms = (ends_ms or 0) - began_ms - TTL_MS
                check(late_ms <= TRAVEL_MS_MAX, f"{message_id} lives {late_ms} ms longer than it was given")

    def _check_order(self, application: Application) -> None:
        for session, sent in application.accepted.items():
            places = [
                (min((copy.row.entity_id, copy.row.sequence) for copy in self._at_home(each)), each)
                for each, _ in sent
                if self._at_home(each) and not self._dead_copies(each)  # else it comes by a later, younger copy
            ]
            for (before, earlier), (after, later) in pairwise(places):
                check(before < after, f"{later} overtook {earlier} of session {session} of {application.path}")
            self.seen["messages in order"] += len(places)


def _draw_rules(random: Random) -> Rules:
    return Rules(
        keeps_order=random.random() < 0.7,
        failover_interval_s=random.choice((0.0, 0.0, 1.0)),
        ping_interval_s=random.choice((1.0, 3.0)),
        probation_s=random.choice((1.0, 5.0)),
        attempt_s=random.choice((0.1, 0.5, 2.0)),
        attempts=random.choice((1, 2)),
        backoff_min_s=0.05,
        backoff_max_s=0.2,
        hold_sends=random.random() < 0.5,
        hold_time_max_s=random.choice((2.0, 60.0)),
        probe=random.choice(("ping", "link")),
    )
