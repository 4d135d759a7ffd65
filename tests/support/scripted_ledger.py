"""Ledgers of a known scenario: who sent what, what became of it, and which misfortunes were planted.

Three hours. Two clients send to some entities, one of which has sessions. From 1:00 to 1:30 the primary is out: sends
go to backlog queues, and a syphon brings them home from 1:31 on. A receiver takes what is on the primary, in the order
of its arrival. Another outage begins ten minutes before the end and nothing of it has come home yet.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from twinbus.ledger import Event, Kind
from twinbus.ledger.lines import LineWriter
from twinbus.ledger.writing.segment import segment_name

BASE_MS = 1_741_500_000_000
"""A Sunday in March 2025, six in the morning."""
MINUTE = 60_000
SPAN, FIRST_OUT, FIRST_BACK, DRAIN, SECOND_OUT = (minutes * MINUTE for minutes in (180, 60, 90, 91, 170))
PRIMARY, SECONDARY = "contoso", "backup"

DIRECT = {
    "delivered": "delivered",
    "vanished": "lost",
    "delivered twice": "duplicated",
    "dead": "dead_lettered",
    "expired": "expired",
    "doubtful": "in_doubt",
    "refused": "not_sent",
    "received": "delivered",
    "received twice": "duplicated",
    "delivered and received": "delivered",
}
DETOUR = {
    "delivered": "delivered",
    "completed only": "lost",
    "left behind": "lost",
    "home twice": "duplicated",
    "dead in backlog": "dead_lettered",
    "redriven": "delivered",
    "expired in backlog": "expired",
    "discarded": "discarded",
    "released": "waiting",
}


@dataclass
class Script:
    """The records of one process, in any order; they are numbered by time."""

    process: str
    program: str
    host: str = "here"
    ahead_ms: int = 0
    """How wrong its clock is."""
    boot: str = ""
    """The same for all that run on one machine; empty: nobody knows."""
    events: list[tuple[int, int, Event]] = field(default_factory=list)

    def note(self, at_ms: int, event: Event) -> None:
        self.events.append((at_ms, len(self.events), event))

    def lines(self, *, closed: bool = True) -> list[bytes]:
        """Numbered from 1, with the first and the last record that every ledger has."""
        writer = LineWriter(process=self.process, pid=7, host=self.host, program=self.program)
        recorded = [(at, event) for at, _, event in sorted(self.events, key=lambda each: each[:2])]
        first = recorded[0][0] if recorded else BASE_MS
        last = recorded[-1][0] if recorded else BASE_MS
        opened = [(first, Event(Kind.OPENED, duration_us=100_000, boot=self.boot))]
        end = [(last, Event(Kind.CLOSED))] if closed else []
        return [
            writer.line(event, number=number, at_ns=(at + self.ahead_ms) * 1_000_000, monotonic_ns=at * 1_000_000)
            for number, (at, event) in enumerate([*opened, *recorded, *end], 1)
        ]


@dataclass
class Scenario:
    """What happened, and what has to be found."""

    scripts: dict[str, Script]
    expected: dict[tuple[str, str], str]
    planted: dict[str, list[tuple[str, str]]]

    def write(self, directory: Path, *, lines_per_segment: int = 20_000) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for script in self.scripts.values():
            write_lines(directory, script.process, script.lines(), lines_per_segment)

    def counts(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for (entity, _), verdict in self.expected.items():
            found[entity][verdict] += 1
        return {entity: dict(verdicts) for entity, verdicts in found.items()}


def write_lines(directory: Path, process: str, lines: list[bytes], lines_per_segment: int = 20_000) -> list[Path]:
    paths = []
    for index, at in enumerate(range(0, len(lines), lines_per_segment), 1):
        path = directory / segment_name(BASE_MS * 1_000_000, process, index)
        path.write_bytes(b"".join(lines[at : at + lines_per_segment]))
        paths.append(path)
    return paths


def make_scenario(
    seed: int, messages: int, *, misfortunes: int = 3, entities: int = 3, with_sessions: bool = True
) -> Scenario:
    """So many messages, evenly over time; of each misfortune so many, in each entity's direct and detoured messages."""
    return _ScenarioMaker(random.Random(seed), messages, misfortunes, entities, with_sessions).recorded()


def recorded_by_receivers(scenario: Scenario) -> Scenario:
    """The same as in Azure, where no namespace keeps a ledger: receivers record what they were done with, nobody tells
    what expired, and what vanished on the primary is, as far as anybody knows, still there.
    """
    receiver = scenario.scripts["receiver"]
    both = set(scenario.planted.get("delivered and received", ()))
    events = []
    for at, place, event in receiver.events:
        is_delivery = event.kind == Kind.DELIVERED
        if event.kind == Kind.EXPIRED or (is_delivery and (event.entity, event.message_ids[0]) in both):
            continue
        events.append((at, place, replace(event, kind=Kind.RECEIVED) if is_delivery else event))
    unseen = [name for fate in ("vanished", "expired") for name in scenario.planted.get(fate, ())]
    scripts = scenario.scripts | {"receiver": Script(receiver.process, receiver.program, receiver.host, events=events)}
    return Scenario(scripts, scenario.expected | dict.fromkeys(unseen, "stored_on_primary"), scenario.planted)


class _ScenarioMaker:
    def __init__(self, chance: random.Random, messages: int, misfortunes: int, entities: int, sessions: bool) -> None:
        self._chance = chance
        self._messages = messages
        self._misfortunes = misfortunes
        self._entities = [f"entity{number}" for number in range(entities)]
        self._sessions = sessions
        self._scripts = {
            name: Script(f"{number:016x}", name.rstrip("12"), host=name)
            for number, name in enumerate(("client1", "client2", "syphon", "receiver"), 1)
        }
        self._expected: dict[tuple[str, str], str] = {}
        self._planted: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._home: list[tuple[int, str, str, str, str, str]] = []

    def recorded(self) -> Scenario:
        sent = [self._sent(number) for number in range(self._messages)]
        fates = self._fates(sent)
        for number, (at, entity, message_id, session) in enumerate(sent):
            self._send(number, at, entity, message_id, session, fates.get(number, "delivered"))
        self._drain()
        self._outages()
        return Scenario(self._scripts, self._expected, dict(self._planted))

    def _sent(self, number: int) -> tuple[int, str, str, str]:
        entity = self._entities[number % len(self._entities)]
        session = f"session{number // len(self._entities) % 3}" if self._sessions and entity.endswith("0") else ""
        return BASE_MS + number * SPAN // self._messages, entity, f"message-{number:08}", session

    def _fates(self, sent: list[tuple[int, str, str, str]]) -> dict[int, str]:
        """Misfortunes for messages that are old enough for everybody to have heard of them."""
        early = {"direct": range(5 * MINUTE, 55 * MINUTE), "detour": range(FIRST_OUT, FIRST_OUT + 12 * MINUTE)}
        fates: dict[int, str] = {}
        for way, kinds in (("direct", DIRECT), ("detour", DETOUR)):
            numbers = [number for number, (at, *_) in enumerate(sent) if at - BASE_MS in early[way]]
            chosen = self._chance.sample(numbers, self._misfortunes * (len(kinds) - 1))
            for at, kind in enumerate(list(kinds)[1:]):
                for number in chosen[at * self._misfortunes : (at + 1) * self._misfortunes]:
                    fates[number] = kind
        return fates

    def _send(self, number: int, at: int, entity: str, message_id: str, session: str, fate: str) -> None:
        since = at - BASE_MS
        detour = FIRST_OUT <= since < FIRST_BACK or since >= SECOND_OUT
        name = (entity, message_id)
        self._planted[fate].append(name) if fate != "delivered" else None
        self._expected[name] = "waiting" if since >= SECOND_OUT else (DETOUR if detour else DIRECT)[fate]
        client = self._scripts[f"client{number // len(self._entities) % 2 + 1}"]
        if not detour:
            return self._send_directly(client, at, name, session, fate)
        queue = f"{PRIMARY}/x-servicebus-transfer/{number % 4}"
        client.note(at, _event(Kind.BACKLOGGED, name, session, SECONDARY, queue))
        if since < SECOND_OUT:
            self._home.append((number, entity, message_id, session, queue, fate))
        return None

    def _send_directly(self, client: Script, at: int, name: tuple[str, str], session: str, fate: str) -> None:
        receiver = self._scripts["receiver"]
        kind = {"doubtful": Kind.IN_DOUBT, "refused": Kind.NOT_SENT}.get(fate, Kind.ACCEPTED)
        client.note(at, _event(kind, name, session, PRIMARY))
        for what, later in _ENDS.get(fate, ()):
            receiver.note(at + later, _event(what, name, session, PRIMARY))

    def _drain(self) -> None:
        """Home in the order of entry, over twenty minutes."""
        syphon, receiver = self._scripts["syphon"], self._scripts["receiver"]
        for at_place, (_, entity, message_id, session, queue, fate) in enumerate(self._home):
            at = BASE_MS + DRAIN + at_place * 20 * MINUTE // len(self._home)
            name = (entity, message_id)

            def record(kind: Kind, later: int, *, home: bool = False, at: int = at, name: tuple[str, str] = name,
                     session: str = session, queue: str = queue) -> None:  # fmt: skip
                where = (PRIMARY, "") if home else (SECONDARY, queue)
                syphon.note(at + later, _event(kind, name, session, *where))

            if fate == "left behind":
                continue
            record(Kind.RECEIVED_FROM_BACKLOG, 0)
            for kind, later, home in _WAYS[fate]:
                record(kind, later, home=home)
            for later in _DELIVERIES.get(fate, ()):
                receiver.note(at + later, _event(Kind.DELIVERED, name, session, PRIMARY))

    def _outages(self) -> None:
        for name in ("client1", "client2"):
            for entity in self._entities:
                script = self._scripts[name]
                for begin, end in ((FIRST_OUT, FIRST_BACK), (SECOND_OUT, None)):
                    script.note(BASE_MS + begin - MINUTE, Event(Kind.SUSPECTED, entity, PRIMARY))
                    script.note(BASE_MS + begin, Event(Kind.FAILED_OVER, entity, PRIMARY))
                    for ping in range(1, 30 if end else 10):
                        at = BASE_MS + begin + ping * MINUTE
                        script.note(at, Event(Kind.PING, entity, PRIMARY, count=1, bytes=200, outcome="failed"))
                    if end:
                        script.note(BASE_MS + end, Event(Kind.RECOVERED, entity, PRIMARY))


_WAYS: dict[str, list[tuple[Kind, int, bool]]] = {
    "delivered": [(Kind.SENT_HOME, 5, True), (Kind.COMPLETED, 9, False)],
    "home twice": [(Kind.SENT_HOME, 5, True), (Kind.SENT_HOME, 7, True), (Kind.COMPLETED, 9, False)],
    "completed only": [(Kind.COMPLETED, 9, False)],
    "dead in backlog": [(Kind.DEAD_LETTERED, 5, False)],
    "redriven": [
        (Kind.DEAD_LETTERED, 5, False),
        (Kind.SENT_HOME, 61_000, True),
        (Kind.REDRIVEN, 61_005, False),
    ],
    "expired in backlog": [(Kind.EXPIRED, 5, False)],
    "discarded": [(Kind.DEAD_LETTERED, 5, False), (Kind.DISCARDED, 60_000, False)],
    "released": [(Kind.RELEASED, 50, False)],
}
_ENDS: dict[str, tuple[tuple[Kind, int], ...]] = {
    "dead": ((Kind.DEAD_LETTERED, 900),),
    "expired": ((Kind.EXPIRED, 900),),
    "delivered": ((Kind.DELIVERED, 1000),),
    "delivered twice": ((Kind.DELIVERED, 1000), (Kind.DELIVERED, 5000)),
    "received": ((Kind.RECEIVED, 1000),),
    "received twice": ((Kind.RECEIVED, 1000), (Kind.RECEIVED, 5000)),
    "delivered and received": ((Kind.DELIVERED, 1000), (Kind.RECEIVED, 1001)),
}
"""Of those that were sent straight: what the namespace says, what a receiver says, or both."""
_DELIVERIES: dict[str, tuple[int, ...]] = {"delivered": (1000,), "home twice": (1000,), "redriven": (62_000,)}


def _event(kind: Kind, name: tuple[str, str], session: str, namespace: str, queue: str = "") -> Event:
    entity, message_id = name
    return Event(
        kind,
        entity,
        namespace,
        queue,
        message_ids=(message_id,),
        sizes=(1000,),
        session_ids=(session,) if session else (),
    )


def without_numbers(lines: Iterable[bytes], missing: set[int]) -> list[bytes]:
    """The lines of a process with some of its records gone."""
    return [line for number, line in enumerate(lines, 1) if number not in missing]
