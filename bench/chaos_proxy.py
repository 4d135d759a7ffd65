"""Kill the proxy under load, again and again, and what it stands between; then count.

Applications send and receive through it, many messages at a time, and come back after each kill. Everything that was
accepted has to be received. A message may be received more than once, but only as often as a sender or a receiver did
not know what had become of it when something was killed. What was on its way home at a kill, from a backlog queue or
from the spool, may be moved once more. `make chaos-proxy RUNS=50 SEED=1`.

Without a spool, the proxy alone is killed, and sometimes an application. With a spool, namespaces are killed too, one
or both, and stay away for a while: some of the proxies die while messages are in the spool, or on their way home.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench.backlog import found_in, make_backlog
from bench.chaos import Account, arguments, count_and_exit, show_progress
from bench.chaos_clients import Receiver, Sender
from bench.namespaces import ServedNamespace, ServedProxy, served_pair
from bench.processes import Processes
from twinbus.spool.folder import SpoolDirectory
from twinbus.spool.survey import survey
from twinbus.syphon import SyphonOptions

ENTITIES = ("orders", "invoices")
BACKLOG_QUEUES = 2
VICTIMS = ("proxy", "primary", "secondary", "application")
LOCK = timedelta(seconds=5)
"""As short as it may be: what somebody had who was killed comes back after that."""
HELD = SyphonOptions().prefetch
"""Messages of one backlog queue, or of the spool, that the proxy holds at a time while it brings them home."""
SPELLS = ((), ("primary",), ("secondary",), ("primary", "secondary"), ("primary", "secondary"))
"""Who is away while the proxy is killed."""
APPLICATION = 0.2
"""How often an application is killed too."""
PROGRESS_S = 10.0
"""How long to wait for messages to be accepted before the next thing happens anyway."""
QUIET_S = 45.0
"""Longer than locks last, and than any pause before another attempt."""


@dataclass(slots=True)
class ProxyAccount(Account):
    """Promised is what the proxy has accepted."""

    has_spool: bool = False
    with_spooled: int = 0
    """Kills of the proxy with messages in the spool."""
    sender_doubts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a sender did not know whether a message was stored."""
    receiver_doubts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a receiver did not know whether a message was completed."""
    moving: int = 0
    """Messages that may have been on their way home at the kills: what is moved and not settled yet is moved again."""
    forgotten: set[tuple[str, str]] = field(default_factory=set)
    """May have arrived: their sender was killed before it had an answer."""

    @property
    def unexpected(self) -> list[tuple[str, str]]:
        return sorted(set(self.home) - self.promised - self.forgotten)

    @property
    def moved_twice(self) -> int:
        """Repeats that applications have no part in."""
        doubts = self.sender_doubts + self.receiver_doubts
        return sum(max(0, times - 1 - doubts[message]) for message, times in self.home.items())

    @property
    def is_fine(self) -> bool:
        return self.is_whole and self.moved_twice <= self.moving

    def columns(self) -> list[tuple[str, object]]:
        return [
            ("spool", "with" if self.has_spool else "without"),
            *[(victim, self.kills[victim]) for victim in VICTIMS],
            ("spooled", self.with_spooled),
            ("accepted", len(self.promised)),
            ("received", len(self.promised & set(self.home))),
            ("repeats", self.repeats),
            ("doubts: sender", self.sender_doubts.total()),
            ("receiver", self.receiver_doubts.total()),
            ("moved twice", self.moved_twice),
            ("at most", self.moving),
            ("damaged", len(self.damaged)),
            ("left", self.left),
            ("LOST", len(self.lost)),
        ]


class Chaos:
    def __init__(
        self,
        primary: ServedNamespace,
        secondary: ServedNamespace,
        proxy: ServedProxy,
        spool: SpoolDirectory | None,
        seed: int,
    ) -> None:
        self._namespaces = {"primary": primary, "secondary": secondary}
        self._proxy = proxy
        self._spool = spool
        self._chance = random.Random(seed)
        self._paths = make_backlog(secondary, primary.name, BACKLOG_QUEUES, lock_duration=LOCK)
        self.account = account = ProxyAccount(has_spool=spool is not None)

        def note_stored(queue: str, message_id: str) -> None:
            account.promised.add((queue, message_id))

        def note_in(doubts: Counter[tuple[str, str]]) -> Callable[[str, str], None]:
            return lambda queue, message_id: doubts.update([(queue, message_id)])

        self._senders = [Sender(proxy, queue, note_stored, note_in(account.sender_doubts)) for queue in ENTITIES]
        self._receivers = [
            Receiver(proxy, queue, account.note_arrival, note_in(account.receiver_doubts)) for queue in ENTITIES
        ]

    async def run(self, runs: int, messages: int) -> None:
        await asyncio.to_thread(self._proxy.start)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.run()) for client in (*self._senders, *self._receivers)]
            for number in range(runs):
                await self._round(number, messages)
                show_progress(number + 1, runs)
            await self._bring_home()
            for task in tasks:
                task.cancel()
        await asyncio.to_thread(self._proxy.stop)
        self.account.forgotten |= {(sender.queue, each) for sender in self._senders for each in sender.forgotten}
        self.account.left = await self._count_left()

    # --- one kill of the proxy ---

    async def _round(self, number: int, messages: int) -> None:
        """New messages, and somewhere in between the proxy is killed, maybe while namespaces are away."""
        away = self._chance.choice(SPELLS) if self._spool is not None else ()
        self._give(f"{number}-before", messages // 2)
        await self._accepted(messages, 0.3)
        for name in away:
            await self._kill(name, self._namespaces[name].kill)
        self._give(f"{number}-after", messages // 2)
        await self._accepted(messages, 0.4)
        if self._chance.random() < APPLICATION:
            self.account.kills["application"] += 1
            await self._chance.choice(self._senders).end_and_begin_anew()
            self._chance.choice(self._receivers).cut()
        await self._kill("proxy", self._proxy.kill)
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        returns: list[tuple[str, Callable[[], object]]] = [(name, self._namespaces[name].start) for name in away]
        self._chance.shuffle(returns)
        returns.insert(self._chance.randrange(len(returns) + 1), ("proxy", self._proxy.start))
        for name, start in returns:
            await asyncio.to_thread(start)
            if name != "proxy" or len(returns) > 1:
                await asyncio.sleep(self._chance.uniform(0, 0.5))
        await self._wait(lambda: not any(sender.waiting for sender in self._senders), PROGRESS_S)

    def _give(self, name: str, messages: int) -> None:
        for sender in self._senders:
            sender.give([f"{name}-{count}" for count in range(messages // len(ENTITIES))])

    async def _accepted(self, messages: int, share_max: float) -> None:
        """Until some part of this many messages was accepted, at most the share, or all there are."""
        enough = len(self.account.promised) + round(messages * self._chance.uniform(0, share_max))
        await self._wait(lambda: len(self.account.promised) >= enough or self._all_sent, PROGRESS_S)
        await asyncio.sleep(self._chance.uniform(0, 0.02))

    @property
    def _all_sent(self) -> bool:
        return all(sender.is_done for sender in self._senders)

    async def _kill(self, victim: str, kill: Callable[[], object]) -> None:
        """What is not answered then is in doubt: the proxy may store it a second time, elsewhere."""
        account = self.account
        account.kills[victim] += 1
        accepted = len(account.promised)
        moving = await self._count_moving() if victim == "secondary" else 0  # while it can be asked
        before = [set(sender.under_way) for sender in self._senders]
        await asyncio.to_thread(kill)
        if victim == "secondary":
            account.moving += moving + len(account.promised) - accepted
        else:
            account.moving += await self._count_moving()
        if victim != "proxy":  # else senders notice, and say so themselves
            for sender, ids in zip(self._senders, before, strict=True):
                account.sender_doubts.update((sender.queue, each) for each in ids | sender.under_way)
        elif self._count_spooled():
            account.with_spooled += 1

    async def _count_moving(self) -> int:
        """How many messages the proxy may be bringing home right now, at most."""
        counts = [self._count_spooled()]
        if self._namespaces["secondary"].is_running:
            counts += [await self._count_in("secondary", path) for path in self._paths]
        return sum(min(count, HELD) for count in counts)

    async def _count_in(self, namespace: str, queue: str) -> int:
        return (await found_in(self._namespaces[namespace], queue)).total()

    def _count_spooled(self) -> int:
        if self._spool is None:
            return 0
        return sum(report.messages + report.quarantined for report in survey(self._spool))

    # --- the end ---

    async def _bring_home(self) -> None:
        """In peace, until everything is received and nothing is on its way, or nothing arrives any more."""
        account, arrived, until = self.account, 0, time.monotonic() + QUIET_S
        while not self._all_sent or account.lost or await self._count_left():
            if account.home.total() > arrived:
                arrived, until = account.home.total(), time.monotonic() + QUIET_S
            elif time.monotonic() > until:
                return
            await asyncio.sleep(0.2)

    async def _count_left(self) -> int:
        queues = [("primary", queue) for queue in ENTITIES] + [("secondary", path) for path in self._paths]
        places = [(name, path) for name, queue in queues for path in (queue, f"{queue}/$DeadLetterQueue")]
        return self._count_spooled() + sum([await self._count_in(name, path) for name, path in places])

    async def _wait(self, is_true: Callable[[], bool], within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not is_true():
                    await asyncio.sleep(0.01)


def run(runs: int, messages: int, with_spool: bool, seed: int, folder: Path) -> ProxyAccount:
    """Kill the proxy `runs` times, and count."""
    properties = {"LockDuration": f"PT{LOCK.seconds}S", "MaxDeliveryCount": 2_147_483_647}
    with (
        served_pair(folder, None, ENTITIES, properties=properties) as (primary, secondary),
        Processes() as processes,
    ):
        spool = SpoolDirectory(folder / "spool", primary.name) if with_spool else None
        pairing = ("--failover-interval", "0s", "--ping-primary-interval", "1s", "--retry-attempts", "1", "--syphon")
        queues = ("--backlog-queue-count", str(BACKLOG_QUEUES), "--attempt-timeout", "10s")
        options = (*pairing, *queues, *(("--spool", str(folder / "spool")) if with_spool else ()))

        async def work() -> ProxyAccount:
            chaos = Chaos(
                primary, secondary, ServedProxy(primary, secondary, folder, processes, None, *options), spool, seed
            )
            await chaos.run(runs, messages)
            return chaos.account

        return asyncio.run(work())


def variants(runs: int, messages: int, only: str | None) -> Sequence[Callable[[int, Path], ProxyAccount]]:
    return [
        partial(run, runs, messages, with_spool)
        for name, with_spool in (("without", False), ("with", True))
        if only in (None, name)
    ]


def main() -> None:
    parser = arguments("Kill the proxy and what is around it, and count what arrives.", messages=4_000)
    parser.add_argument("--spool", choices=("with", "without"), help="one of the two variants; else both")
    chosen = parser.parse_args()
    count_and_exit(chosen.seed, variants(chosen.runs, chosen.messages, chosen.spool))


if __name__ == "__main__":
    main()
