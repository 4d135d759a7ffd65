"""Two namespaces with exactly the keys that `twinbus pair --emit` has an administrator make, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus import Namespace
from twinbus.cli.provisioning import emit
from twinbus.cli.provisioning.templates import ProvisioningRequest
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.testing import LocalNamespace

QUEUE_COUNT = 3
SENDER, SYPHON, MONITOR, MANAGER = "twinbus-sender", "twinbus-syphon", "twinbus-monitor", "twinbus-manager"
BACKLOG = {"max_size_mb": 5120, "max_delivery_count": 2_147_483_647, "dead_letter_on_expiration": True}
_ADD_KEY = re.compile(r'^ *add_key "\$(PRIMARY|SECONDARY)_GROUP" "\$\1" (\S+) (.+)$', re.MULTILINE)


def emitted_rules(side: str) -> list[str]:
    """The keys of one side, as `twinbus serve --rule` takes them."""
    script = emit("cli", ProvisioningRequest("contoso", "backup", QUEUE_COUNT))
    found = {name: rights.split() for where, name, rights in _ADD_KEY.findall(script) if where == side.upper()}
    assert found, "the script makes keys"  # those for a pair with a board come first: the others hold
    return [f"{name}:{'+'.join(rights)}" for name, rights in found.items()]


@dataclass(frozen=True)
class Estate:
    primary: LocalNamespace
    secondary: LocalNamespace

    def strings(self, role: str) -> dict[str, str]:
        """What a role has in its environment. The manager's key is for the secondary: at home it is a sender."""
        at_home = SENDER if role == MANAGER else role
        return {
            "TWINBUS_PRIMARY": self.primary.connection_string_for(at_home),
            "TWINBUS_SECONDARY": self.secondary.connection_string_for(role),
        }

    def reach(self, role: str) -> tuple[Namespace, Namespace]:
        strings = self.strings(role)
        return (
            Namespace.from_connection_string(strings["TWINBUS_PRIMARY"]),
            Namespace.from_connection_string(strings["TWINBUS_SECONDARY"]),
        )

    def fill(self, queue: int, *messages: ServiceBusMessage) -> None:
        """Put messages into a backlog queue, as somebody who may."""
        with (
            ServiceBusClient.from_connection_string(self.secondary.connection_string) as client,
            client.get_queue_sender(backlog_path("contoso", queue)) as sender,
        ):
            sender.send_messages(list(messages))


@contextmanager
def estate(*, with_queues: bool = True) -> Iterator[Estate]:
    """`contoso` with the queue orders, and `backup` with its backlog queues unless somebody else makes them."""
    with (
        LocalNamespace("contoso", queues=["orders"], rules=emitted_rules("primary")) as primary,
        LocalNamespace("backup", rules=emitted_rules("secondary")) as secondary,
    ):
        for index in range(QUEUE_COUNT if with_queues else 0):
            secondary.create_queue(backlog_path("contoso", index), **BACKLOG)
        yield Estate(primary, secondary)
