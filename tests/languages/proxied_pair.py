"""Two namespaces and a proxy, each in its own process; outages of either side, and clients that go through them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from azure.servicebus.management import EntityStatus
from served import Served

from languages.clients import LANGUAGES, Client, IdLines, read_ids
from twinbus.ledger import Kind, LedgerReader

STARTED_S = 60
OUTAGE_S = 8.0
HOME_S = 240.0
"""How long everything may take to be received once the primary is back: one client tries twice a minute."""


class Proxy:
    """`twinbus proxy` in front of two namespaces."""

    def __init__(self, primary: Served, secondary: Served, folder: Path, *options: str) -> None:
        self._command = [
            sys.executable, "-m", "twinbus", "proxy", "--json", "--listen", "127.0.0.1:0",
            "--primary", primary.connection_string, "--secondary", secondary.connection_string,
            "--data", str(folder / "proxy"), "--ledger", str(folder / "ledger"), "--spool", str(folder / "spool"),
            "--syphon", *options,
        ]  # fmt: skip
        self.ledger = folder / "ledger"
        self._log = folder / "proxy.log"
        self._process: subprocess.Popen[str] | None = None
        self.connection_string = ""
        self.rule_strings: dict[str, str] = {}

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        ready = json.loads(line)
        self.connection_string, self.rule_strings = ready["connection_string"], ready["rule_connection_strings"]

    def stop(self) -> None:
        """In good order, so that its ledger is complete."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=STARTED_S)
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def announced(self) -> Counter[str]:
        """By id: how often it may have been stored once more than its sender knows."""
        doubts: Counter[str] = Counter()
        for record in LedgerReader(self.ledger).records():
            if record.kind in (Kind.IN_DOUBT, Kind.LOCK_LOST):
                doubts.update(record.message_ids)
        return doubts


class ProxiedPair:
    """Everything that a test of an outage needs; what is left of its processes is killed at the end."""

    def __init__(self, folder: Path, queues: Iterable[str], *options: str) -> None:
        self.queues = tuple(queues)
        wanted = [word for queue in self.queues for word in ("--queue", queue)]
        self.primary = Served("contoso", folder / "primary", *wanted)
        self.secondary = Served("backup", folder / "secondary")
        self._folder = folder
        self._options = options
        self.proxy: Proxy

    def __enter__(self) -> ProxiedPair:
        self.primary.start()
        self.secondary.start()
        self.proxy = Proxy(self.primary, self.secondary, self._folder, *self._options)
        self.proxy.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "proxy"):
            self.proxy.kill()
        self.primary.__exit__(kind, error, trace)
        self.secondary.__exit__(kind, error, trace)


# --- outages ---


class Outage(NamedTuple):
    begin: Callable[[ProxiedPair], None]
    end: Callable[[ProxiedPair], None]
    options: tuple[str, ...] = ()
    """Of the proxy."""


def _killed(pair: ProxiedPair) -> None:
    pair.primary.kill()


def _restarted(pair: ProxiedPair) -> None:
    pair.primary.start()


def _unreachable(how: str) -> Callable[[ProxiedPair], None]:
    def cut(pair: ProxiedPair) -> None:
        pair.primary.break_("unreachable", how=how)

    return cut


def _reachable(pair: ProxiedPair) -> None:
    pair.primary.clear()


def _set_status(status: EntityStatus) -> Callable[[ProxiedPair], None]:
    def change(pair: ProxiedPair) -> None:
        for queue in pair.queues:
            pair.primary.change_queue(queue, status=status)

    return change


def _both_killed(pair: ProxiedPair) -> None:
    pair.primary.kill()
    pair.secondary.kill()


def _secondary_first(pair: ProxiedPair) -> None:
    pair.secondary.start()
    time.sleep(3)
    pair.primary.start()


OUTAGES = {
    "killed": Outage(_killed, _restarted),
    "refused": Outage(_unreachable("refuse"), _reachable),
    "silent": Outage(_unreachable("silent"), _reachable, ("--attempt-timeout", "2s")),
    "disabled": Outage(_set_status(EntityStatus.DISABLED), _set_status(EntityStatus.ACTIVE)),
    "both sides killed": Outage(_both_killed, _secondary_first),
}


# --- clients in an outage ---


class Count(NamedTuple):
    """What became of the messages of one client."""

    sent: IdLines
    got: IdLines
    announced: Counter[str]
    accepted_meanwhile: int
    """How many of them were accepted during the outage."""

    @property
    def missing(self) -> list[str]:
        return sorted(set(self.sent.accepted) - set(self.got.copies))

    @property
    def unannounced(self) -> dict[str, int]:
        """By id: copies beyond the first that nobody has announced."""
        extra = {each: len(copies) - 1 - self.announced[each] for each, copies in self.got.copies.items()}
        return {each: count for each, count in extra.items() if count > 0}


class SenderAndReceiver:
    """Two programs of one language, with a queue that is called like it."""

    def __init__(self, name: str, command: list[str], connection_string: str, folder: Path) -> None:
        self.queue = name
        self.sent, self.got = folder / f"{name}.sent", folder / f"{name}.got"
        language = LANGUAGES[name]
        self.sender = Client(language, command, connection_string, folder / f"{name}-sender.log")
        self.receiver = Client(language, command, connection_string, folder / f"{name}-receiver.log")

    def kill(self) -> None:
        self.sender.kill()
        self.receiver.kill()

    def start(self) -> None:
        self.receiver.must("start-receiving", entity=self.queue, file=str(self.got))
        self.sender.must("start-sending", entity=self.queue, prefix=self.queue, file=str(self.sent), pause_ms=50)

    def accepted(self) -> int:
        return len(read_ids(self.sent).accepted) if self.sent.exists() else 0

    def missing(self) -> set[str]:
        got = read_ids(self.got).copies if self.got.exists() else {}
        return set(read_ids(self.sent).accepted) - set(got)


def run_through(
    folder: Path, outage: Outage, commands: dict[str, list[str]], *options: str, outage_s: float = OUTAGE_S
) -> dict[str, Count]:
    """Let clients send before, during and after an outage, wait until everything is received, and count."""
    with ProxiedPair(folder, commands, *outage.options, *options) as pair, ExitStack() as stack:
        clients = []
        for name, command in commands.items():
            clients.append(SenderAndReceiver(name, command, pair.proxy.connection_string, folder))
            stack.callback(clients[-1].kill)
        return _run_clients(pair, outage, outage_s, clients)


def _run_clients(
    pair: ProxiedPair, outage: Outage, outage_s: float, clients: list[SenderAndReceiver]
) -> dict[str, Count]:
    for client in clients:
        client.start()
    _wait(lambda: all(client.accepted() >= 30 for client in clients), STARTED_S)
    outage.begin(pair)
    before = {client.queue: client.accepted() for client in clients}
    time.sleep(outage_s)
    before_return = {client.queue: client.accepted() for client in clients}
    outage.end(pair)
    _wait(lambda: all(client.accepted() > before_return[client.queue] + 30 for client in clients), HOME_S)
    for client in clients:
        client.sender.must("stop")
    _wait(lambda: not any(client.missing() for client in clients), HOME_S)
    for client in clients:
        client.receiver.must("stop")
    pair.proxy.stop()
    announced = pair.proxy.announced()
    meanwhile = {name: count - before[name] for name, count in before_return.items()}
    return {
        client.queue: Count(read_ids(client.sent), read_ids(client.got), announced, meanwhile[client.queue])
        for client in clients
    }


def _wait(condition: Callable[[], bool], within_s: float) -> None:
    """Returns when it is true, or after that time: what is missing then is counted."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.2)
