"""Two namespaces that somebody else runs, with queues of this run in them: what the tests of `azure_live` share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.management import EntityStatus
from paired import AIO, LoopThread, OnLoop

import twinbus.aio
from twinbus import Namespace, PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions

PRIMARY, SECONDARY, CONSENT = "TWINBUS_LIVE_PRIMARY", "TWINBUS_LIVE_SECONDARY", "TWINBUS_LIVE_YES"
PATIENCE_S = 120.0
"""How long the service may take until a changed status, or a message, shows."""
BACKLOG_QUEUES = 2


def need_consent(*names: str) -> None:
    """Skips a whole module unless somebody has named namespaces and agreed to the cost."""
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        pytest.skip(f"needs two namespaces: make azure-live ({', '.join(missing)} not set)", allow_module_level=True)


class LivePair:
    """Two namespaces, queues of this run in them, and clients of this pair."""

    def __init__(self) -> None:
        self.primary_string, self.secondary_string = os.environ[PRIMARY], os.environ[SECONDARY]
        self.primary = Namespace.from_connection_string(self.primary_string)
        self.secondary = Namespace.from_connection_string(self.secondary_string)
        self.prefix = f"twinbus-live-{secrets.token_hex(4)}"
        self.orders = f"{self.prefix}-orders"
        self._admins = [namespace.admin_client(attempt_s=30) for namespace in (self.primary, self.secondary)]

    def __enter__(self) -> LivePair:
        self._admins[0].create_queue(self.orders)
        return self

    def __exit__(self, *_: object) -> None:
        for admin in self._admins:
            for queue in [queue.name for queue in admin.list_queues() if queue.name.startswith(self.prefix)]:
                with suppress(ResourceNotFoundError):
                    admin.delete_queue(queue)
            admin.close()

    def create_queue(self, name: str, **settings: Any) -> None:
        """Another queue in the primary; its name has to begin like those of this run."""
        self._admins[0].create_queue(name, **settings)

    # --- clients ---

    @contextmanager
    def bus(self, flavour: str, **wishes: Any) -> Iterator[PairedServiceBusClient]:
        quick: dict[str, Any] = {
            "failover_interval": timedelta(0),
            "ping_primary_interval": timedelta(seconds=2),
            "attempt_timeout": timedelta(seconds=10),
            "backlog_queue_count": BACKLOG_QUEUES,
            "primary_name": self.prefix,
            "entities": (self.orders,),
        }
        options = SendAvailabilityPairedNamespaceOptions(self.secondary, **quick | wishes)
        if flavour != AIO:
            with PairedServiceBusClient(self.primary, options) as bus:
                yield bus
            return
        loop = LoopThread()

        async def make() -> twinbus.aio.PairedServiceBusClient:
            return twinbus.aio.PairedServiceBusClient(self.primary, options)

        with OnLoop(loop.run(make()), loop) as on_loop:
            yield cast("PairedServiceBusClient", on_loop)
        loop.close()

    # --- outages ---

    def set_status(self, status: EntityStatus) -> None:
        admin = self._admins[0]
        admin.update_queue(admin.get_queue(self.orders), status=status)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody can send to the queue; whatever happens, it is put back."""
        self.set_status(EntityStatus.SEND_DISABLED)
        try:
            yield
        finally:
            self.set_status(EntityStatus.ACTIVE)

    # --- sight ---

    def backlog(self, index: int) -> str:
        return f"{self.prefix}/x-servicebus-transfer/{index}"

    def backlog_settings(self, index: int) -> Any:
        return self._admins[1].get_queue(self.backlog(index))

    def taken(self, namespace: Namespace, *queues: str) -> list[ServiceBusReceivedMessage]:
        """What is in these queues; it is gone then."""
        found: list[ServiceBusReceivedMessage] = []
        with namespace.sync_client(attempt_s=30) as client:
            for queue in queues:
                mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
                with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
                    while got := receiver.receive_messages(100, max_wait_time=5):
                        found += got
        return found

    def taken_from_backlog(self) -> list[ServiceBusReceivedMessage]:
        return self.taken(self.secondary, *map(self.backlog, range(BACKLOG_QUEUES)))
