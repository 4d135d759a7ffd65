"""A simulated application: our engine as a client, which uses everything that a client of the service can.

It grants and takes back credit, drains, settles, holds sessions, sends, asks, stops reading, detaches, loses its
connection, vanishes. What it is told is held against the accounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import Context
from itertools import count
from random import Random
from typing import Any

from sim.invariants import Violation, check
from sim.proxy_accounts import Accounts, Delivery, SentMessage
from sim.proxy_loop import Process, start
from sim.proxy_network import Network
from sim.proxy_receiver import AppReceiver, some_mode
from sim.proxy_requests import AppRequests
from sim.proxy_sender import AppSender
from sim.proxy_servers import KEY
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    Attached,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Drained,
    Event,
    LinkRefused,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.amqp.session import Session
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.transport.network.amqp_stream import AmqpStream

PLAIN_QUEUES, SESSION_QUEUE = ("orders", "audit"), "chats"
SESSIONS = ("red", "blue")
IDLE = "nothing was received for"
AppLink = AppReceiver | AppSender | AppRequests


class Application:
    def __init__(self, number: int, network: Network, accounts: Accounts, seed: int, seen: Counter[str]) -> None:
        self.name = f"app{number}"
        self.network, self.accounts, self.seen = network, accounts, seen
        self.loop = accounts.loop
        self.random = Random(f"{seed} {self.name}")
        self.lives, self._names, self._messages = count(1), count(1), count(1)
        self.process = self._new_process()
        self.is_busy = True
        """Whether it does anything of its own accord."""
        self.actions_left = 0
        self.lent: list[Delivery] = []
        """Received by request."""
        self._gap_s = self.random.choice((0.02, 0.1, 0.4))
        self._limits = ConnectionLimits(
            incoming_window=self.random.choice((2, 20, 5_000)), frame_bytes_max=self.random.choice((512, 65_536))
        )
        self._is_lazy = self.random.random() < 0.3
        self._actions, self._weights = self._draw_habits()
        self._begin()

    def _draw_habits(self) -> tuple[list[Callable[[], None]], list[float]]:
        usual: dict[Callable[[], None], float] = {
            self.open_receiver: 4,
            self.grant: 20,
            self.take_back: 2,
            self.drain: 3,
            self.settle: 30,
            self.detach: 1,
            self.open_sender: 3,
            self.send: 25,
            self.open_requests: 2,
            self.request: 12,
            self.pause: 1,
            self.end_session: 0.3,
            self.close: 0.3,
            self.vanish: 0.3,
        }
        return list(usual), [weight * self.random.choice((0.2, 1, 1, 2)) for weight in usual.values()]

    def _new_process(self) -> Process:
        return Process(f"{self.name} {next(self.lives)}", self.loop)

    def _begin(self) -> None:
        """Everything anew, as after a start."""
        self.engine: Connection | None = None
        self.stream: AmqpStream | None = None
        self.is_open = False
        self._is_closing = False
        self.paused_until = 0.0
        self.links: list[AppLink] = []
        self.sessions: dict[tuple[str, str], AppReceiver] = {}
        self.lent.clear()
        self._amqp_sessions: list[Session] = []

    def __repr__(self) -> str:
        return self.name

    def note(self, what: object) -> None:
        self.accounts.note(self.name, what)

    def new_name(self, kind: str) -> str:
        return f"{self.name}-{kind}{next(self._names)}"

    # --- its connection ---

    def start(self) -> None:
        start(self.process, self._connect)
        self.process.run(self._act_later)

    async def _connect(self) -> None:
        self.engine = engine = Connection(
            role=Role.CLIENT,
            container_id=self.name,
            hostname="proxy",
            sasl=ClientSasl(PLAIN, ROOT_KEY_NAME, KEY),
            limits=self._limits,
            idle_timeout_ms=self.random.choice((20_000, 120_000)),
        )
        stream = AmqpStream(engine, self.loop.now_ms, self._handle, self._lost)
        engine.open()
        try:
            await self.loop.create_connection(lambda: stream, "proxy", 5671)
        except OSError:
            self.loop.call_later(0.1 + self.random.random(), self._reconnect)
            return
        self.note("is connected")
        self.stream = stream
        self.is_open = True
        self._amqp_sessions = [engine.begin()]
        stream.flush()

    def _reconnect(self) -> None:
        if self.is_busy:
            self._begin()
            start(self.process, self._connect)

    def _lost(self, error: Exception | None) -> None:
        self.note(f"lost its connection: {error}")
        self.seen["connections lost"] += 1
        self.is_open = False
        for link in list(self.links):
            link.gone()
        self.loop.call_later(self.random.random(), self._reconnect)

    def flush(self) -> None:
        if self.stream is not None:
            self.stream.flush()

    def forget(self, link: AppLink) -> None:
        if link in self.links:
            self.links.remove(link)

    # --- what happens to it ---

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self._handle_one(event)

    def _handle_one(self, event: Event) -> None:
        link: Any = getattr(getattr(event, "link", None), "context", None)
        match event:
            case ConnectionClosed(error=error):
                is_idle = error is not None and IDLE in (error.description or "")
                check(self._is_closing or is_idle, f"the proxy closed the connection of {self.name}: {error}")
            case SessionEnded(error=error):
                check(error is None, f"the proxy ended a session of {self.name}: {error}")
            case _ if link is None:
                pass  # it crossed our detach
            case TransferArrived():
                link.arrived(event)
            case DispositionArrived():
                link.answered(event)
            case Drained():
                link.drained()
            case CreditChanged():
                link.credit(event.link)
            case Attached():
                link.attached()
            case LinkRefused(error=error):
                link.ended(error, is_refusal=True)
            case Detached(error=error):
                link.ended(error, is_refusal=False)
            case _:
                pass

    # --- what it does ---

    def _act_later(self) -> None:
        self.loop.call_later(self.random.expovariate(1 / self._gap_s), self._act)

    def _act(self) -> None:
        if self.is_busy and self.actions_left > 0:
            if self.is_open and self._amqp_sessions:
                self.actions_left -= 1
                self.random.choices(self._actions, self._weights)[0]()
                self.flush()
            self._act_later()

    def _session(self) -> Session:
        assert self.engine is not None
        if len(self._amqp_sessions) < 3 and self.random.random() < 0.3:
            self._amqp_sessions.append(self.engine.begin())
        return self.random.choice(self._amqp_sessions)

    def _some(self, kind: type[Any]) -> Any:
        """One of its links of that kind that is attached, if there is one."""
        found = [link for link in self.links if isinstance(link, kind) and link.is_attached]
        return self.random.choice(found) if found else None

    def open_receiver(self) -> None:
        if len(self.links) > 12:
            return
        random = self.random
        path = random.choice((*PLAIN_QUEUES, SESSION_QUEUE, SESSION_QUEUE, PLAIN_QUEUES[0] + DEAD_LETTER_SUFFIX))
        session_id: str | bool | None = random.choice((None, *SESSIONS)) if path == SESSION_QUEUE else False
        self.links.append(AppReceiver(self, self._session(), path, some_mode(random), session_id))

    def grant(self) -> None:
        receiver = self._some(AppReceiver)
        if receiver is not None and (receiver.drain_since is None or self.random.random() < 0.1):
            receiver.grant(self.random.choice((1, 2, 10, 100)))

    def take_back(self) -> None:
        receiver = self._some(AppReceiver)
        if receiver is not None and receiver.drain_since is None:
            receiver.grant(0)

    def drain(self) -> None:
        receiver = self._some(AppReceiver)
        if receiver is not None:
            receiver.drain()

    def settle(self) -> None:
        receiver = self._some(AppReceiver)
        if receiver is not None and (not self._is_lazy or self.random.random() < 0.2):
            receiver.settle_some()

    def detach(self) -> None:
        receiver = self._some(AppReceiver)
        if receiver is not None:
            receiver.detach()

    def open_sender(self) -> None:
        if len(self.links) <= 12:
            path = self.random.choice((*PLAIN_QUEUES, SESSION_QUEUE))
            self.links.append(AppSender(self, self._session(), path))

    def send(self) -> None:
        sender = self._some(AppSender)
        if sender is not None:
            sender.send_some()

    def new_message(self, path: str) -> SentMessage:
        session_id = self.random.choice(SESSIONS) if path == SESSION_QUEUE else None
        size = self.random.choice((5, 5, 100, 3_000))
        return self.accounts.new_message(f"{self.name}-{next(self._messages)}", path, session_id, size)

    def open_requests(self) -> None:
        if len(self.links) <= 12:
            path = self.random.choice((*PLAIN_QUEUES, SESSION_QUEUE))
            self.links.append(AppRequests(self, self._session(), path))

    def request(self) -> None:
        node = self._some(AppRequests)
        if node is not None:
            self._request(node)

    def _request(self, node: AppRequests) -> None:
        random, path = self.random, node.path
        mine = [each for each in self.links if isinstance(each, AppReceiver) and each.path == path]
        match random.choice(("peek", "renew", "deferred", "lent", "session", "schedule", "cancel")):
            case "peek":
                node.peek()
            case "renew" if path != SESSION_QUEUE:
                held = [delivery for each in mine for delivery in each.held.values()]
                if held:
                    node.renew(random.sample(held, min(len(held), random.choice((1, 1, 3)))))
            case "deferred" if path != SESSION_QUEUE:
                found = [each for each in self.accounts.deferred if each.path == path]
                if found:
                    node.receive_deferred(random.choice(found).sequence)
            case "lent":
                lent = [each for each in self.lent if each.path == path]
                if lent:
                    node.settle_lent(random.choice(lent))
            case "session" if path == SESSION_QUEUE:
                session_id = random.choice(SESSIONS)
                holder = self.sessions.get((path, session_id))
                node.use_session(session_id, list(holder.held.values()) if holder else [])
            case "schedule":
                node.schedule(self.new_message(path), self.loop.now_ms() + random.choice((1_000, 20_000)))
            case "cancel":
                found_ = [each for each in self.accounts.scheduled if each[0] == path]
                if found_:
                    chosen = random.choice(found_)
                    self.accounts.scheduled.remove(chosen)
                    node.cancel(chosen[1], chosen[2])
            case _:
                pass

    def pause(self) -> None:
        """It does not read for a while."""
        if self.stream is not None and self.paused_until <= self.loop.now:
            seconds = self.random.choice((0.5, 5.0, 30.0))
            self.paused_until = self.loop.now + seconds
            self.stream.pause_reading()
            self.loop.call_later(seconds, self.stream.resume_reading)
            self.seen["pauses"] += 1

    def end_session(self) -> None:
        if len(self._amqp_sessions) > 1:
            session = self._amqp_sessions.pop()
            self.note("ends a session")
            for link in [link for link in self.links if link in [each.context for each in session.links]]:
                link.gone()
            session.end()
            self.seen["sessions ended"] += 1

    def close(self) -> None:
        """Say goodbye, and come again."""
        if self.engine is not None:
            self.note("closes its connection")
            self._is_closing = True
            for link in list(self.links):
                link.gone()
            self.engine.close()
            self._amqp_sessions.clear()
            self.seen["connections closed"] += 1

    def vanish(self) -> None:
        """Its process is killed; another one starts a little later."""
        self.note("vanishes")
        self.seen["applications vanished"] += 1
        self.loop.call_soon(self._die, context=Context())

    def _die(self) -> None:
        if not self.process.is_alive:
            return
        self.process.kill()
        self.network.lose(self.process, quietly=self.random.random() < 0.3)
        self._begin()
        self.loop.call_later(self.random.random() * 5, self._live_again)

    def _live_again(self) -> None:
        if self.is_busy:
            self.process = self._new_process()
            self.start()

    # --- the end ---

    def stop(self) -> None:
        """Do nothing of its own accord from now on, but stay, and read."""
        self.is_busy = False

    def leave(self) -> None:
        """Go, in one way or another."""
        if not self.process.is_alive:
            return
        if self.is_open and self.random.random() < 0.5:
            self.process.run(self.close)
            self.process.run(self.flush)
        else:
            self._die()

    def check_rest(self) -> None:
        """Nothing waits for an answer any more."""
        for link in self.links if self.is_open else ():
            if not link.is_attached:
                raise Violation(f"{link} of {self.name} waits for its attach since {link.asked_at:.1f}")
            if isinstance(link, AppReceiver):
                check(not link.settling, f"{link} waits for the answer to {list(link.settling.values())[:1]}")
                check(link.drain_since is None, f"{link} waits for its drain since {link.drain_since}")
                check(self.accounts.all_arrived(link.name), f"messages for {link} did not arrive")
            else:
                check(not link.waiting, f"{link} waits for an answer to {list(link.waiting.values())[:1]}")
