"""Simulated fleets that share findings: shipping posters and sharers of several hosts, and whoever lies to them.

Everything is drawn from one seed. The primary fails for some hosts and not for others; the secondary is in trouble now
and then; clocks start anywhere and go wrong. A stranger with Send posts unsigned reports, ones with a wrong signature,
and copies of what he has read, soon or late. The key of one host is lost: whoever has it posts whatever he likes in its
name. Whenever a process acts on others it is held against the truth. In the end the primary fails for all hosts, and
everybody learns it from those whose interval is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from board_scene import failed_over, report

from sim.board_world import ATTEMPT_S, BOARD, PRIMARY, SETTLED_S, BoardWorld, Member
from sim.clock import START_MS
from sim.invariants import check
from sim.proxy_loop import Process, start
from sim.runner import Outcome
from twinbus.board import quorum
from twinbus.board.board_peek import look
from twinbus.board.message import encode_post
from twinbus.board.poster import BoardPoster
from twinbus.board.queue import LIFE_S, board_path
from twinbus.board.quorum import FRESH_S, REPLAY_S, SharedFindings, sign
from twinbus.board.reader import run_look
from twinbus.board.report import EntityFinding, ProcessReport, ReportedState, encode_report
from twinbus.board.sharer import BoardSharer
from twinbus.broker.core.commands import CreateQueue
from twinbus.pairing.events import Event, OthersFailedOver, PingSucceeded, SendFailed, SendSucceeded, TimeCame
from twinbus.pairing.failover import FailedOver, Healthy, State, Suspect, step
from twinbus.pairing.rules import Rules
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.single_sender import SingleSender

ENTITY = "orders"
PATH = board_path(PRIMARY)
SHORT_S, LONG_S = 20.0, 3_600.0
LATE_S = FRESH_S + REPLAY_S + ATTEMPT_S
"""A copy counts as long as its original could have been posted then; a report may be under way for a while."""
LEARNT_S = SHORT_S + 60.0
"""The pause between changes, two looks, and a busy secondary."""


@dataclass
class SharingMember(Member):
    """A process whose one entity fails and fails over as the shipping rules say."""

    host: str = ""
    interval_s: float = SHORT_S
    started_at: float = 0.0
    """What its clock showed when the simulation began."""
    drift: float = 0.0
    state: State = field(default_factory=Healthy)
    posts: int = 0

    def clock(self, now: float) -> float:
        return self.started_at + now * (1 + self.drift)

    def report(self) -> ProcessReport:
        match self.state:
            case FailedOver():
                found: tuple[EntityFinding, ...] = (failed_over(ENTITY),)
            case Suspect():
                found = (EntityFinding(entity=ENTITY, state=ReportedState.SUSPECT, for_s=1.0),)
            case _:
                found = ()
        return report(self.instance, host=self.host, entities=found)

    def posted(self, path: str, size: int) -> None:
        self.posts += 1

    def peeked(self, path: str, messages: object) -> None: ...

    def cleared(self, path: str) -> None: ...


class ShareWorld(BoardWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        hosts = "abcdef"[: self._random.choice((4, 6))]
        self._keys = {host: f"the secret of {host}, long enough".encode() for host in hosts}
        self._quorum = self._random.choice((2, 2, 3)) if len(hosts) > 4 else 2
        self._liar = hosts[-1]
        """The host whose key is lost."""
        self._down: set[str] = set()
        """Hosts for which the primary fails."""
        self._over_at: dict[str, float] = {}
        """When a process of a host was last failed over."""
        self._read: list[tuple[bytes, str]] = []
        """What the stranger has read."""

    def _run(self, busy_s: float) -> None:
        self.secondary.start()
        self.loop.run_for(0.001)
        self.loop.call_soon(self.secondary.administer, CreateQueue(PATH, BOARD))
        self.loop.run_for(0.2)
        for host in self._keys:
            self.loop.call_soon(partial(self._join, host))
        for job, mean_s in (
            (self._fail, 60.0),
            (self._kill, 150.0),
            (self._join, 150.0),
            (self._break, self._random.choice((200.0, 1e9))),
            (self._deceive, self._random.choice((3.0, 15.0))),
        ):
            self._now_and_then(job, mean_s)
        self.loop.run_for(busy_s)
        self._is_over = True
        self.secondary.start()
        self.loop.call_soon(self.secondary.route.speak)
        self._down.clear()
        self.loop.run_for(LIFE_S + SETTLED_S)
        self._end_in_an_outage()

    def _end_in_an_outage(self) -> None:
        """Some hosts fail over by themselves; all others learn it, however much is posted with the lost key."""
        sure = sorted(self._keys)[: self._quorum]
        for host in self._keys:
            self.loop.call_soon(partial(self._join, host))
        self.loop.run_for(SETTLED_S)
        for each in self._sharing:
            each.interval_s = SHORT_S if each.host in sure else LONG_S
        self._down = set(self._keys)
        for number in range(int(LEARNT_S / 2)):
            self.loop.call_later(2.0 * number, self._crowd)
        self.loop.run_for(LEARNT_S)
        for each in self._sharing:
            check(isinstance(each.state, FailedOver), f"{each.instance} has not learnt what a quorum knows")

    @property
    def _sharing(self) -> list[SharingMember]:
        return [each for each in self._alive if isinstance(each, SharingMember)]

    # --- processes ---

    def _join(self, host: str = "") -> None:
        name = f"p{next(self._names)}"
        member = SharingMember(
            name,
            Process(name, self.loop),
            self.loop.now,
            host=host or self._random.choice(sorted(self._keys)),
            interval_s=self._random.choice((SHORT_S, LONG_S)),
            started_at=self._random.uniform(0.0, 1e6),
            drift=self._random.choice((-2e-4, 0.0, 2e-4)),
        )
        self.members.append(member)
        self._note(f"begins: {name} on {member.host}")
        start(member.process, partial(self._live, member, self._random.choice((-7_200.0, 0.0, 7_200.0))))

    async def _live(self, member: SharingMember, skew_s: float) -> None:
        def clock() -> float:
            return member.clock(self.loop.now)

        findings = SharedFindings(PATH, self._keys, member.host, self._quorum)
        member.poster = BoardPoster(
            self._dial,
            PRIMARY,
            member.instance,
            member.report,
            attempt_s=ATTEMPT_S,
            counts=member,
            findings=findings,
            clock=clock,
            wall_clock=lambda: START_MS / 1000 + self.loop.now + skew_s,
            chance=self._random.random,
        )
        sharer = BoardSharer(
            self._dial,
            PATH,
            findings,
            has_posted=lambda: member.posts > 0,
            is_suspect=lambda: isinstance(member.state, Suspect),
            on_confirmed=lambda found: self._confirmed(member, {each: tuple(hosts) for each, hosts in found.items()}),
            attempt_s=ATTEMPT_S,
            clock=clock,
        )
        await asyncio.gather(member.poster.run(), sharer.run(), self._send(member))

    async def _send(self, member: SharingMember) -> None:
        """An application that sends every second, and pings."""
        while True:
            at, epoch = member.clock(self.loop.now), member.state.epoch
            events: list[Event] = [SendFailed(at, epoch, "down"), TimeCame(at, epoch)]
            if member.host not in self._down:
                events = [SendSucceeded(at, epoch), PingSucceeded(at, epoch)]
            for event in events:
                self._feed(member, event)
            await asyncio.sleep(1.0)

    def _feed(self, member: SharingMember, event: Event) -> None:
        before = member.state
        member.state, _ = step(before, event, Rules(failover_interval_s=member.interval_s))
        if FailedOver in (type(before), type(member.state)):
            self._over_at[member.host] = self.loop.now
        if member.state != before and member.poster is not None:
            self._note(f"{type(member.state).__name__}: {member.instance} on {member.host}")
            member.poster.wake()

    def _confirmed(self, member: SharingMember, found: dict[str, tuple[str, ...]]) -> None:
        """A process acts on what others say: that has to be so, or have been so until lately."""
        now = self.loop.now
        self._note(f"confirmed: for {member.instance} on {member.host} {found}")
        try:
            for entity, hosts in found.items():
                check(entity == ENTITY, f"nobody has failed {entity} over")
                check(len(set(hosts)) >= self._quorum, f"{hosts} are not a quorum")
                check(member.host not in hosts, f"{member.host} acts on what it says itself")
                for host in hosts:
                    late_s = now - self._over_at.get(host, float("-inf"))
                    check(host == self._liar or late_s <= LATE_S, f"{host} has not been failed over for {late_s:.0f} s")
        except Exception as problem:
            self._problem = self._problem or f"{now:.3f} {member.instance}: {problem}"
        self.seen["moved by others"] += isinstance(member.state, Suspect)
        event = OthersFailedOver(member.clock(now), member.state.epoch, next(iter(found.values())))
        self._feed(member, event)

    # --- the primary ---

    def _fail(self) -> None:
        some = {host for host in self._keys if self._random.random() < self._random.choice((0.2, 0.6))}
        self._down |= some
        self._note(f"primary: fails for {sorted(some)}")
        self.loop.call_later(self._random.choice((10.0, 60.0, 200.0)), lambda: self._down.difference_update(some))

    # --- those who lie ---

    def _deceive(self) -> None:
        what = self._random.choice(("unsigned", "wrong key", "wrong name", "copy", "copy", "read", "lost key", "crowd"))
        self._note(f"lie: {what}")
        host = self._random.choice(sorted(self._keys))
        match what:
            case "unsigned":
                self._tell([(self._false_report(host), "")])
            case "wrong key":
                body = self._false_report(host)
                self._tell([(body, sign(b"the key of a stranger", PATH, body))])
            case "wrong name":  # signed with the lost key, in the name of another host
                body = self._false_report(host)
                self._tell([(body, sign(self._keys[self._liar], PATH, body))])
            case "copy" if self._read:
                self._tell([self._random.choice(self._read)])
            case "read":
                self._look()
            case "lost key":
                body = self._false_report(self._liar)
                self._tell([(body, sign(self._keys[self._liar], PATH, body))])
            case "crowd":
                self._crowd()

    def _false_report(self, host: str, instance: str = "") -> bytes:
        there_ms = self.loop.now_ms() + self._random.choice((0, 0, -3_600_000, 3_600_000))
        name, number = instance or f"lie{next(self._names)}", self._random.choice((1, 10**9))
        return encode_report(report(name, number, host=host, there_ms=there_ms, entities=(failed_over(ENTITY),)))

    def _crowd(self) -> None:
        """More instances of one host than are remembered of all."""
        names = [f"crowd{number}" for number in range(quorum.INSTANCES_MAX + 5)]
        bodies = [self._false_report(self._liar, f"{name}-{self.loop.now:.0f}") for name in names]
        self._tell([(body, sign(self._keys[self._liar], PATH, body)) for body in bodies])

    def _tell(self, posts: list[tuple[bytes, str]]) -> None:
        async def act(connection: NamespaceConnection) -> None:
            sender = SingleSender(connection, ATTEMPT_S)
            for body, signature in posts:
                await sender.send(PATH, encode_post(report("stranger"), body, signature))

        self._as_stranger(act)

    def _look(self) -> None:
        async def act(connection: NamespaceConnection) -> None:
            found = await run_look(connection, PATH, look())
            self._read += [(each.body, each.signature) for each in found.posts if each.signature]

        self._as_stranger(act)

    def _as_stranger(self, act: Callable[[NamespaceConnection], Awaitable[None]]) -> None:
        process = Process(f"stranger {next(self._names)}", self.loop)
        self._observers.append(process)

        async def connect() -> None:
            try:
                async with NamespaceConnection(self._dial, attempt_s=ATTEMPT_S, clock=self.loop.now_ms) as connection:
                    await act(connection)
            except ConnectionFailed:
                pass

        start(process, connect)


def run_share_seed(seed: int) -> Outcome:
    world = ShareWorld(seed)
    problem = None
    try:
        world.run()
    except Exception as found:
        problem = f"seed {seed}: {found}"
    return Outcome(seed, 0, "", problem, tuple(world.trace), world.seen)


def first_share_problem(seeds: Iterable[int]) -> Outcome | None:
    """The first simulation of these with a problem."""
    return next((outcome for seed in seeds if (outcome := run_share_seed(seed)).problem), None)
