"""A namespace in a process of its own, to be killed, revived, broken and asked what it has seen."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.management import ServiceBusAdministrationClient
from free_ports import free_port

from twinbus.client.namespace import Namespace
from twinbus.client.sdk.internals.connections import LinkConnection
from twinbus.control import control_client

KEY = "the-key-of-all-served-namespaces"
ISSUER_NAME, ISSUER_SECRET = "https://issuer.test", "a secret that the issuer and the namespaces share"
WAIT_S = 60.0


class Served:
    """`twinbus serve` for one namespace. Killed and started again it has the same port, key and data."""

    def __init__(self, name: str, data: Path, *options: str) -> None:
        self.name = name
        self._data = data
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._admin: ServiceBusAdministrationClient | None = None
        self.port = 0
        self.connection_string = ""
        self.rule_strings: dict[str, str] = {}

    # --- life ---

    def start(self) -> None:
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "twinbus", "serve", "--namespace", f"{self.name}:{self.port}", *self._options]
        environment = {**os.environ, "TWINBUS_KEY": KEY}
        self._process = subprocess.Popen(
            [*command, "--data", str(self._data), "--json"], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.port, self.connection_string = ready["port"], ready["connection_string"]
        self.rule_strings = ready["rule_connection_strings"]

    def stop(self) -> None:
        """In good order: every connection is closed."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=WAIT_S)
        self._process = None

    def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def heal(self) -> None:
        """Running, and with no fault in force."""
        if not self.is_running:
            self.kill()
            self.start()
        self.clear()

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._admin is not None:
            self._admin.close()
        self.kill()

    # --- faults ---

    def break_(self, fault: str, *entities: str, **parameters: Any) -> str:
        """Make something fail, of these entities or of the namespace; the id of the fault."""
        arguments = {"fault": fault, "entities": list(entities), **parameters}
        return str(self._control("fault.add", arguments)["id"])

    def clear(self, fault_id: str | None = None) -> None:
        self._control("fault.clear", {} if fault_id is None else {"id": fault_id})

    def _control(self, request: str, arguments: dict[str, Any]) -> Any:
        return control_client.ask(self._data / self.name / control_client.CONTROL_SOCKET, request, arguments)

    # --- administration ---

    @property
    def namespace(self) -> Namespace:
        return Namespace.from_connection_string(self.connection_string)

    def through(self, port: int) -> Namespace:
        """The same by way of another port of this machine: a relay's."""
        return Namespace.from_connection_string(self.connection_string.replace(f":{self.port}", f":{port}"))

    @property
    def admin(self) -> ServiceBusAdministrationClient:
        if self._admin is None:
            self._admin = self.namespace.admin_client(attempt_s=WAIT_S)
        return self._admin

    def queue_names(self, under: str = "") -> set[str]:
        return {queue.name for queue in self.admin.list_queues() if queue.name.startswith(under)}

    def change_queue(self, path: str, **settings: Any) -> None:
        self.admin.update_queue(self.admin.get_queue(path), **settings)

    # --- sight ---

    def operations(self, entity: str) -> dict[str, int]:
        """How many operations of each kind the meter has counted for an entity."""
        counted = self._metrics()["operations"]
        return {one["kind"]: one["operations"] for one in counted if one["entity"] == entity.lower()}

    def readings(self) -> list[dict[str, Any]]:
        """Everything that the meter has counted: entity, kind, operations, bytes and steps."""
        return list(self._metrics()["operations"])

    @property
    def connections(self) -> int:
        return int(self._metrics()["connections"])

    @property
    def full_disk(self) -> str | None:
        """Why its disk takes nothing new; None while it does."""
        said = self._metrics()["full_disk"]
        return None if said is None else str(said)

    def _metrics(self) -> dict[str, Any]:
        basic = base64.b64encode(f"RootManageSharedAccessKey:{KEY}".encode()).decode()
        url = f"https://127.0.0.1:{self.port}/metrics?format=json"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {basic}"})
        with urllib.request.urlopen(request, context=self._trust(), timeout=WAIT_S) as answer:
            shown: dict[str, Any] = json.loads(answer.read())
            return shown

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    @property
    def ca_file(self) -> str:
        return str(self.namespace.sdk_options["connection_verify"])

    def messages(self, queue: str) -> list[ServiceBusReceivedMessage]:
        """What lies in a queue, in order; it stays there."""
        found: list[ServiceBusReceivedMessage] = []
        with self._receiving(queue) as receiver:
            while got := receiver.peek_messages(250, sequence_number=_after(found)):
                found += got
        return found

    def texts(self, queue: str) -> list[str]:
        return [str(message) for message in self.messages(queue)]

    def take(self, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
        """So many messages, received and gone."""
        found: list[ServiceBusReceivedMessage] = []
        with self._receiving(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            while len(found) < count and (got := receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)):
                found += got
        assert len(found) == count
        return found

    @contextmanager
    def sending(self, queue: str) -> Iterator[ServiceBusSender]:
        """A sender of the SDK, without any pairing."""
        with (
            ServiceBusClient.from_connection_string(self.connection_string, retry_total=0) as client,
            client.get_queue_sender(queue) as sender,
        ):
            yield sender

    @contextmanager
    def _receiving(self, queue: str, **options: Any) -> Iterator[ServiceBusReceiver]:
        """A receiver of the SDK. It would open and close slowly: it is made to hurry, and left to close by itself."""
        client = ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)
        receiver = client.get_queue_receiver(queue, keep_alive=0, **options)
        LinkConnection(receiver)
        try:
            yield receiver
        finally:
            threading.Thread(target=receiver.close, name="test-helper-closes", daemon=True).start()


def _after(messages: Sequence[ServiceBusReceivedMessage]) -> int:
    return (messages[-1].sequence_number or 0) + 1 if messages else 0
