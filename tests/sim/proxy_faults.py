"""Trouble for a simulated proxy: whatever it talks to, and itself, fails for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from sim.proxy_loop import SimulatedLoop
from sim.proxy_network import Route
from sim.proxy_process import SimulatedProxy
from sim.proxy_servers import SimulatedNamespace, SimulatedServer
from twinbus.broker.core.commands import UpdateQueue
from twinbus.broker.entities.settings import QueueSettings, QueueStatus


class ProxyFaults:
    def __init__(
        self,
        loop: SimulatedLoop,
        servers: tuple[SimulatedProxy, SimulatedNamespace, SimulatedNamespace],
        queues: dict[str, QueueSettings],
        random: Random,
        seen: Counter[str],
    ) -> None:
        self._loop, self._servers, self._queues = loop, servers, queues
        self._proxy, self._primary, self._secondary = servers
        self._random, self._seen = random, seen
        self._are_over = False

    def plan(self, spells: int, until: float) -> None:
        """So many spells will come, at any time up to then."""
        for _ in range(spells):
            self._loop.call_later(self._random.random() * until, self._begin)

    def _begin(self) -> None:
        if not self._are_over:
            kinds = (self._kill, self._kill, self._silence, self._slow, self._cut, self._cut, self._disk, self._disable)
            self._random.choice((*kinds, self._lose_both))()

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        self._loop.call_later(seconds * self._random.random(), job)

    def _some_route(self) -> Route:
        return self._random.choice((self._proxy, self._primary, self._primary, self._secondary)).route

    def _tell(self, route: Route, what: str) -> None:
        self._seen[f"{route.host}: {what}"] += 1
        self._proxy.note(route.host, what)

    def _kill(self) -> None:
        self._kill_one(self._random.choice((self._proxy, self._primary, self._primary, self._secondary)))

    def _kill_one(self, server: SimulatedServer) -> None:
        if server.is_up:
            server.die(quietly=self._random.random() < 0.3)
            self._later(self._random.choice((0.2, 5.0, 40.0)), server.start)

    def _lose_both(self) -> None:
        """Neither namespace can be reached, and the proxy may be killed meanwhile."""
        for server in (self._primary, self._secondary):
            if self._random.random() < 0.5:
                self._kill_one(server)
            else:
                self._silence_one(server.route)
        if self._random.random() < 0.5:
            self._later(20.0, partial(self._kill_one, self._proxy))

    def _silence(self) -> None:
        self._silence_one(self._some_route())

    def _silence_one(self, route: Route) -> None:
        self._tell(route, "silent")
        route.fall_silent()
        self._later(self._random.choice((1.0, 20.0, 120.0)), route.speak)

    def _slow(self) -> None:
        route = self._some_route()
        self._tell(route, "slow")
        route.slow_share = self._random.choice((0.05, 0.5))
        self._later(20.0, partial(setattr, route, "slow_share", 0.0))

    def _cut(self) -> None:
        route, quietly = self._some_route(), self._random.random() < 0.3
        self._tell(route, f"cut{' quietly' if quietly else ''}")
        (route.cut_all if self._random.random() < 0.5 else route.cut_some)(quietly=quietly)

    def _disk(self) -> None:
        self._random.choice((self._proxy, self._primary, self._secondary)).fail_disk()

    def _disable(self) -> None:
        path = self._random.choice(list(self._queues))
        self._seen["disabled"] += 1
        self._proxy.note("primary", f"{path} is disabled")
        self._update(path, QueueStatus.DISABLED)
        self._later(10.0, partial(self._update, path, QueueStatus.ACTIVE))

    def _update(self, path: str, status: QueueStatus) -> None:
        self._primary.administer(UpdateQueue(path, replace(self._queues[path], status=status)))

    def stop(self) -> None:
        """From now on all is well."""
        self._are_over = True
        for server in self._servers:
            server.start()
            server.route.slow_share = 0.0
            server.route.speak()
        self._loop.call_later(3.0, self._enable_all)

    def _enable_all(self) -> None:
        for path in self._queues:
            self._update(path, QueueStatus.ACTIVE)
