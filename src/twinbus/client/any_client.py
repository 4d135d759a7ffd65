"""What paired clients on threads and on tasks have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twinbus.client.any_sender import AnySender
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.errors import OptionsError
from twinbus.pairing.entity import Entity


def options_from(secondary: str, options: dict[str, Any]) -> SendAvailabilityPairedNamespaceOptions:
    """Options written as keywords; one that does not exist is told with those that do."""
    known = SendAvailabilityPairedNamespaceOptions.__dataclass_fields__
    unknown = [name for name in options if name not in known or name == "secondary"]
    if unknown:
        names = ", ".join(name for name in known if name not in ("secondary", "_"))
        raise OptionsError(f"there is no option {', '.join(unknown)}: the options are {names}")
    return SendAvailabilityPairedNamespaceOptions(Namespace.from_connection_string(secondary), **options)


def checked_path(path: object) -> str:
    """The name of a queue or topic."""
    if not isinstance(path, str) or not path.strip():
        raise OptionsError(f"a queue or topic has a name, got {path!r}")
    return path


def refuse_sender_options(kwargs: dict[str, Any]) -> None:
    if kwargs:
        names = ", ".join(kwargs)
        raise OptionsError(f"a paired sender takes no options of its own, got {names}: give them to Namespace")


def sent_straight(senders: Iterable[AnySender], entity: Entity) -> int:
    """How many messages senders of an entity have sent on the straight way."""
    return sum(sender.straight for sender in senders if sender.entity is entity)
