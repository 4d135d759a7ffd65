"""The entities of the demo: one of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinbus.client.namespace import Namespace

Kind = Literal["queue", "session queue", "topic"]
CUSTOMERS = 4
SUBSCRIPTION = "warehouse"


@dataclass(frozen=True, slots=True)
class DemoEntity:
    name: str
    kind: Kind

    def session_of(self, number: int) -> str | None:
        """The session that the message with this number belongs to, if the entity has sessions."""
        return f"customer-{number % CUSTOMERS}" if self.kind == "session queue" else None


ENTITIES = (DemoEntity("orders", "queue"), DemoEntity("invoices", "session queue"), DemoEntity("shipments", "topic"))


def entity_called(name: str) -> DemoEntity:
    return next(entity for entity in ENTITIES if entity.name == name)


def create_all(connection_string: str) -> None:
    """Create the entities through the admin API of the namespace."""
    with Namespace.from_connection_string(connection_string).admin_client() as admin:
        for entity in ENTITIES:
            if entity.kind == "topic":
                admin.create_topic(entity.name)
                admin.create_subscription(entity.name, SUBSCRIPTION)
            else:
                admin.create_queue(entity.name, requires_session=entity.kind == "session queue")
