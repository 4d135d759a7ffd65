"""Runs a language's program against a namespace, or through a proxy in front of a pair, and reads what it found."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from served import Served

from languages.clients import Language, go, java, javascript
from languages.proxied_pair import ProxiedPair

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RULES = ("--rule", "sender:Send", "--rule", "listener:Listen")
RUN_S = 900
BUSY, BUSY_ONCE, DROPPED = "busy", "busy-once", "dropped"
QUEUES = (BUSY, BUSY_ONCE, DROPPED)
SERVER_BUSY = "com.microsoft:server-busy"
DROPPED_MS = 500

LANGUAGES = {
    language.name.partition("-")[0]: language
    for language in (
        Language(
            "javascript-conformance", "@azure/service-bus 7.9.5", ("node", "npm"), javascript("main.js"),
            sources="javascript", programs=PROGRAMS,
        ),
        Language(
            "java-conformance", "azure-messaging-servicebus 7.17.10", ("java", "mvn"), java("Main"),
            reads_unknown_names=False, sources="java", programs=PROGRAMS,
        ),
        Language("go-conformance", "azservicebus 1.11.0", ("go",), go, sources="go", programs=PROGRAMS),
    )
}  # fmt: skip


class Finding(NamedTuple):
    check: str
    passed: bool
    evidence: str
    ms: int


class Bus(NamedTuple):
    """What a program is pointed at."""

    connection_string: str
    rules: dict[str, str]
    """Connection strings with fewer rights, by name."""
    primary: Served
    is_proxied: bool

    @property
    def ca_file(self) -> str:
        found = re.search(r"TwinbusCA=([^;]+)", self.connection_string)
        assert found is not None, "the string of a local namespace names its authority"
        return found[1]


@contextmanager
def running_bus(folder: Path, is_proxied: bool) -> Iterator[Bus]:
    """A namespace in a process of its own; proxied: two, and `twinbus proxy` in front of them."""
    if is_proxied:
        with ProxiedPair(folder, QUEUES, *RULES, "--failover-interval", "5s") as pair:
            break_queues(pair.primary)
            yield Bus(pair.proxy.connection_string, pair.proxy.rule_strings, pair.primary, is_proxied)
        return
    queues = [word for queue in QUEUES for word in ("--queue", queue)]
    with Served("contoso", folder / "namespace", *queues, *RULES) as namespace:
        break_queues(namespace)
        yield Bus(namespace.connection_string, namespace.rule_strings, namespace, is_proxied)


def break_queues(namespace: Served) -> None:
    namespace.break_("busy", BUSY)
    namespace.break_("refuse", BUSY_ONCE, condition=SERVER_BUSY, on="sends", count=1)


def run_program(
    language: Language, command: list[str], bus: Bus, log: Path, only: Iterable[str] = ()
) -> Iterator[Finding]:
    """What it found, check by check, while it runs."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(language, bus, only)
        )
        watchdog = threading.Timer(RUN_S, process.send_signal, [signal.SIGKILL])
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield from _understood(json.loads(line), bus)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()


def _understood(said: dict[str, object], bus: Bus) -> Iterator[Finding]:
    if said.get("do") == "drop":
        bus.primary.break_("unreachable", DROPPED, how="drop", length_ms=DROPPED_MS)
        return
    milliseconds = said.get("ms")
    assert isinstance(milliseconds, int)
    yield Finding(str(said["check"]), said["passed"] is True, str(said["evidence"]), milliseconds)


def environment(language: Language, bus: Bus, only: Iterable[str]) -> dict[str, str]:
    strings = {"BUS": bus.connection_string, "BUS_SENDER": bus.rules["sender"], "BUS_LISTENER": bus.rules["listener"]}
    return {
        **os.environ,
        **{name: _for(language, string) for name, string in strings.items()},
        "CA_FILE": bus.ca_file,
        "NODE_EXTRA_CA_CERTS": bus.ca_file,
        "SSL_CERT_FILE": bus.ca_file,
        "PROXIED": "1" if bus.is_proxied else "",
        "CHECKS": ",".join(only),
    }


def _for(language: Language, connection_string: str) -> str:
    return connection_string if language.reads_unknown_names else connection_string.partition(";Twinbus")[0]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
