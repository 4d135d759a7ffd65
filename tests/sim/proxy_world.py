"""One simulated proxy: shipping links, relay and connections, between applications and a shipping namespace.

Everything is drawn from one seed: what applications do, what breaks, how long things take. Bytes travel over simulated
wires in virtual time. The same seed gives the same world.
"""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import Any

from sim.invariants import Violation, check
from sim.proxy_accounts import DELIVERIES_MAX, Accounts
from sim.proxy_application import PLAIN_QUEUES, SESSION_QUEUE, Application
from sim.proxy_collector import Collector
from sim.proxy_faults import ProxyFaults
from sim.proxy_loop import ErrorLog, SimulatedLoop
from sim.proxy_network import Network
from sim.proxy_process import SimulatedProxy
from sim.proxy_receiver import AppReceiver
from sim.proxy_servers import SimulatedNamespace
from sim.proxy_system import simulated_system
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import steps
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.limits import TrafficLimits
from twinbus.proxy.relay.relay import RelayedReceiver

BACKLOG = QueueSettings(max_delivery_count=2**31 - 1)
MESSAGE_BYTES_MAX = (5 * 1024, 256 * 1024)
"""Every message is smaller than either; some batches are larger than the first."""
COLLECTION_S, COLLECTIONS_MAX = 30.0, 20
REST_S = 300.0
"""By then everything has been answered, once nothing fails any more."""


class ProxyWorld:
    def __init__(self, seed: int) -> None:
        self._seed, self._random = seed, (random := Random(seed))
        self.seen: Counter[str] = Counter()
        self.loop = SimulatedLoop(Random(f"{seed} threads"))
        self.network = Network(self.loop, seed, self.seen)
        self.primary = SimulatedNamespace("primary", self.loop, self.network, seed, self.seen)
        self.primary.limits = TrafficLimits(message_bytes_max=random.choice(MESSAGE_BYTES_MAX))
        self.secondary = SimulatedNamespace("secondary", self.loop, self.network, seed, self.seen)
        self.proxy = SimulatedProxy(self.loop, self.network, self.primary, self.secondary, seed, self.seen)
        self.accounts = Accounts(self.loop, self.primary, self.secondary, self.proxy.spool.disk, self.seen)
        self.proxy.observer = self.accounts
        self.proxy.on_doubt = self.accounts.doubts.update
        lock_ms = random.choice((5_000, 20_000, 60_000))
        self._queues = {
            path: QueueSettings(
                lock_ms=lock_ms, max_delivery_count=DELIVERIES_MAX, requires_session=path == SESSION_QUEUE
            )
            for path in (*PLAIN_QUEUES, SESSION_QUEUE)
        }
        servers = (self.proxy, self.primary, self.secondary)
        for server in servers:
            server.note = self.accounts.note
        self.faults = ProxyFaults(self.loop, servers, self._queues, random, self.seen)
        self.applications = [
            Application(number, self.network, self.accounts, seed, self.seen)
            for number in range(random.choice((1, 2, 4)))
        ]

        self.collector = Collector(99, self.network, self.accounts, seed, self.seen)

    def run(self, steps: int) -> None:
        """Let applications work through all kinds of trouble, then let it end, and see what is left."""
        log, handler = logging.getLogger("twinbus"), ErrorLog(self.loop)
        log.addHandler(handler)
        propagates, log.propagate = log.propagate, False
        try:
            with simulated_system(self.loop, self._seed):
                self._run(steps)
        finally:
            members: list[Any] = [self.primary, self.secondary, self.proxy, *self.applications, self.collector]
            for each in members:
                each.process.kill()
            self.proxy.forget()
            self.loop.close()
            log.removeHandler(handler)
            log.propagate = propagates

    def _run(self, steps: int) -> None:
        self.primary.start()
        self.secondary.start()
        self.loop.run_for(0.001)
        for path, settings in self._queues.items():
            self.loop.call_soon(self.primary.administer, CreateQueue(path, settings))
        for path in self.proxy.queues:
            self.loop.call_soon(self.secondary.administer, CreateQueue(path, BACKLOG))
        self.loop.run_for(0.2)
        self.proxy.start()
        self.loop.run_for(0.5)
        busy_s = self._random.choice((10.0, 60.0, 200.0))
        for application in self.applications:
            application.actions_left = steps // len(self.applications)
            application.start()
        spells = self._random.choice((0, 2, 5, 10))
        self.faults.plan(spells, busy_s)
        self.loop.run_for(busy_s)
        self.loop.call_soon(self.faults.stop)
        for application in self.applications:
            application.stop()
        self.loop.run_for(REST_S)
        self._check_rest()
        for application in self.applications:
            self.loop.call_soon(application.leave)
        self.loop.run_for(REST_S)
        self._check_nobody_left()
        self.accounts.check_copies()
        if not spells:
            self.accounts.check_order()
        self._collect()

    def _collect(self) -> None:
        """Somebody who has time gets everything that is left."""
        self.collector.start()
        for _ in range(COLLECTIONS_MAX):
            self.loop.run_for(COLLECTION_S)
            left = self.collector.left()
            if not left:
                return
        raise Violation(f"a patient receiver did not get {[(row.message_id, row.state.name) for row in left][:3]}")

    # --- the end ---

    def _check_rest(self) -> None:
        """All is well, and everybody is still there: nothing waits, and both sides of the proxy agree."""
        for application in self.applications:
            application.check_rest()
        receivers = [
            link
            for application in self.applications
            for link in application.links
            if isinstance(link, AppReceiver) and application.is_open
        ]
        ours = {each.terms.link.name: each for each in self.proxy.relay._receivers.values()}
        for link in receivers:
            found, relayed = self.primary.receiver(link.name), ours.get(link.name)
            check(found is not None and relayed is not None, f"{link} is attached, and not at the primary")
            assert found is not None
            assert relayed is not None
            self._check_credit(link, relayed, found)
        self.seen["receivers at rest"] += len(receivers)
        relay = self.proxy.relay
        check(relay.receivers == len(receivers), f"the relay has {relay.receivers} receivers, not {len(receivers)}")
        for relayed in relay._receivers.values():
            check(not relayed._settling, f"{len(relayed._settling)} settlements wait for nobody's answer")

        self._check_sessions()

    def _check_credit(self, link: AppReceiver, relayed: RelayedReceiver, found: SendingLink) -> None:
        """What an application has granted and not used is what the primary may still send, as far as there is room."""
        ours = self.proxy.receiver(link.name)
        assert ours is not None
        wanted = max(0, steps(ours.delivery_count, ours._wanted_limit))
        check(link.link.credit == wanted, f"{link} has granted {link.link.credit}, the proxy knows of {wanted}")
        places = (ours.credit, relayed.link.credit if relayed.link else None, found.credit)
        check(len(set(places)) == 1, f"the credit of {link} is {places} at the proxy, in its relay and at the primary")

    def _check_sessions(self) -> None:
        """Connections to the primary have a session for each receiver, and one for requests."""
        upstream = self.proxy.upstream
        for number, connection in upstream._connections.items():
            if connection.connection is not None and connection.connection.is_open:
                mine = [each for each in self.proxy.relay._receivers.values() if each.terms.link.connection == number]
                sessions = len(connection.connection._connection.sessions)
                check(sessions <= len(mine) + 1, f"{sessions} sessions at the primary for {len(mine)} receivers")

    def _check_nobody_left(self) -> None:
        """Everybody has gone: nothing is kept for them."""
        proxy = self.proxy
        check(not proxy.amqp.connections, f"the proxy keeps {len(proxy.amqp.connections)} connections")
        check(not proxy.context.receivers, f"links keep {proxy.context.receivers} receivers")
        check(not proxy.relay.receivers, f"the relay keeps {proxy.relay.receivers} receivers")
        check(not proxy.upstream.open_connections, f"{proxy.upstream.open_connections} connections to the primary stay")
        check(not proxy.upstream._closing, f"{len(proxy.upstream._closing)} connections never end")
        check(not self.primary.context.receivers, f"the primary has {self.primary.context.receivers} receivers")
        lost = [each.message_id for each in self.accounts.messages.values() if self.accounts.is_lost(each)]
        check(not lost, f"{lost[:3]} were accepted and are gone")
        for place, disk in (("backlog", self.secondary.disk), ("spool", proxy.spool.disk)):
            left = [row.message_id for row in disk.all_rows()]
            check(not left, f"{left[:3]} are left in the {place}")
