"""Where the demo sends to and receives from: one entity of each kind that an application meets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinbus.client.namespace import Namespace

Kind = Literal["queue", "session queue", "topic"]
CUSTOMERS = 4
SUBSCRIPTION = "warehouse"


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    kind: Kind

    def session_of(self, number: int) -> str | None:
        """The session that the message with this number belongs to, if the entity has sessions."""
        return f"customer-{number % CUSTOMERS}" if self.kind == "session queue" else None


CAST = (Entity("orders", "queue"), Entity("invoices", "session queue"), Entity("shipments", "topic"))


def entity_called(name: str) -> Entity:
    return next(entity for entity in CAST if entity.name == name)


def create_all(connection_string: str) -> None:
    """Make the entities through the namespace's admin API, as anybody would."""
    with Namespace.from_connection_string(connection_string).admin_client() as admin:
        for entity in CAST:
            if entity.kind == "topic":
                admin.create_topic(entity.name)
                admin.create_subscription(entity.name, SUBSCRIPTION)
            else:
                admin.create_queue(entity.name, requires_session=entity.kind == "session queue")
