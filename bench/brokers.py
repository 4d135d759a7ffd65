"""The brokers that are measured: twinbus and RabbitMQ, each as a process of its own with its own folder."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.debian import dependencies, need, unpacked
from bench.processes import LOOPBACK, Process, Processes, free_port
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.server import NamespaceServer
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.options import NamespaceOptions

QUEUE = "bench"
QUEUE_MB_MAX = 5 * 1024
START_WAIT_S = 60
QUEUES_PER_S = 5
"""How many RabbitMQ makes while it starts, at least."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker is and how to get in."""

    name: str
    port: int
    address: str
    user: str
    password: str
    process: Process
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its own tools need to find it."""


# --- twinbus ---------------------------------------------------------------------------------------


class Twinbus:
    """A namespace that can be stopped and started again over the same data."""

    def __init__(self, folder: Path, processes: Processes, core: int | None) -> None:
        self._folder = folder
        self._processes = processes
        self._core = core
        self._key = secrets.token_hex(16)
        folder.mkdir()

    def prepare(self) -> None:
        """Make the queue, with room for more than the service's default size."""

        async def make() -> None:
            settings = QueueSettings(max_size_mb=QUEUE_MB_MAX)
            options = NamespaceOptions(
                name="bench", port=0, data=self._folder, key=self._key, queues=(QUEUE,), queue_settings=settings
            )
            async with NamespaceServer(options):
                pass

        asyncio.run(make())

    def start(self) -> tuple[Broker, float]:
        """A running `twinbus serve`, and the seconds until it answered its first connection."""
        port = free_port()
        address = ("--namespace", f"bench:{port}", "--data", str(self._folder))
        began = time.perf_counter()
        process = self._processes.start(
            (sys.executable, "-m", "twinbus", "serve", *address, "--json"),
            self._core,
            self._folder / "serve.log",
            {"TWINBUS_KEY": self._key},
        )
        process.wait_for_port(port, START_WAIT_S)
        took_s = time.perf_counter() - began
        return Broker("twinbus", port, QUEUE, ROOT_KEY_NAME, self._key, process), took_s


# --- RabbitMQ --------------------------------------------------------------------------------------


def start_rabbitmq(
    folder: Path,
    build: Path,
    processes: Processes,
    core: int | None,
    plugins: tuple[str, ...] = (),
    more: Mapping[str, list[Any]] | None = None,
) -> Broker:
    """RabbitMQ from Debian with its AMQP 1.0 plugin and one classic durable queue; nothing of it outside the folder.

    `more` are further definitions: queues, exchanges and bindings, as RabbitMQ exports them.
    """
    home = _rabbitmq_home(build)
    folder.mkdir()
    port, names_port, cluster_port = free_port(), free_port(), free_port()
    password = secrets.token_hex(16)
    queues = (more or {}).get("queues", [])
    _write_settings(folder, port, password, plugins, more or {})
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": f"{folder.name}{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(cluster_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    # Started here because the server would start it as a daemon, which would stay.
    names = ("epmd", "-address", LOOPBACK, "-port", str(names_port))
    processes.start(names, core, folder / "epmd.log", {})
    process = processes.start((str(home / "sbin" / "rabbitmq-server"),), core, folder / "server.log", environment)
    process.wait_for_port(port, START_WAIT_S + len(queues) / QUEUES_PER_S)
    return Broker("RabbitMQ", port, f"/amq/queue/{QUEUE}", "bench", password, process, environment)


def ask_rabbitmq(broker: Broker, build: Path, expression: str, wait_s: float) -> str:
    """What an Erlang expression comes to that is evaluated inside the server."""
    command = (str(_rabbitmq_home(build) / "sbin" / "rabbitmqctl"), "--quiet", "eval", expression)
    environment = {**os.environ, **broker.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=wait_s, check=False)
    if done.returncode:
        raise SystemExit(f"bench: RabbitMQ does not know: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()


def rabbitmq_version(build: Path) -> str:
    return _rabbitmq_home(build).name.rpartition("-")[2]


def _rabbitmq_home(build: Path) -> Path:
    """The server's own folder: the installed one, or one unpacked for us (installing would start a service)."""
    for root in (Path("/"), build / "rabbitmq-server"):
        for found in sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")):
            return found
    need(*dependencies("rabbitmq-server", "erlang-"))
    unpacked("rabbitmq-server", build)
    return _rabbitmq_home(build)


def _write_settings(
    folder: Path, port: int, password: str, plugins: tuple[str, ...], more: Mapping[str, list[Any]]
) -> None:
    definitions = folder / "definitions.json"
    usual = _definitions(password)
    joined = {**usual, **{name: [*usual.get(name, []), *found] for name, found in more.items()}}
    definitions.write_text(json.dumps(joined))
    settings = [f"listeners.tcp.1 = {LOOPBACK}:{port}", f"load_definitions = {definitions}", "log.console = false"]
    (folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
    (folder / "plugins").write_text(f"[{','.join(('rabbitmq_amqp1_0', *plugins))}].\n")


def _definitions(password: str) -> dict[str, list[Any]]:
    salt = os.urandom(4)
    hashed = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    user = {"name": "bench", "password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
    rights = {"user": "bench", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    queue = rabbitmq_queue(QUEUE)
    return {"vhosts": [{"name": "/"}], "users": [user], "permissions": [rights], "queues": [queue]}


def rabbitmq_queue(name: str) -> dict[str, Any]:
    """The definition of a classic durable queue."""
    arguments = {"x-queue-type": "classic"}
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}
