"""What paired clients on threads and on tasks have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from twinbus.client.core.any_sender import AnySender
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.errors import OptionsError
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair

NAMES_TOLD_MAX = 10


def options_from(secondary: str, options: dict[str, Any]) -> SendAvailabilityPairedNamespaceOptions:
    """Options from keywords; raises `OptionsError` for an unknown one, with the names that exist."""
    known = SendAvailabilityPairedNamespaceOptions.__dataclass_fields__
    unknown = [name for name in options if name not in known or name == "secondary"]
    if unknown:
        names = ", ".join(name for name in known if name not in ("secondary", "_"))
        raise OptionsError(f"there is no option {', '.join(unknown)}: the options are {names}")
    return SendAvailabilityPairedNamespaceOptions(Namespace.from_connection_string(secondary), **options)


def checked_path(path: object) -> str:
    """The name of a queue or topic, without slashes around it: the service ignores them too."""
    if not isinstance(path, str) or not path.strip("/ "):
        raise OptionsError(f"queue or topic name must not be empty, got {path!r}")
    return path.strip("/")


def known_entity(pair: Pair, path: object) -> Entity:
    """A queue or topic that was declared or has had a sender; raises `OptionsError` with those for any other one."""
    name = checked_path(path)
    for entity in pair.entities:
        if entity.path.lower() == name.lower():
            return entity
    known = [entity.path for entity in pair.entities]
    more = f" and {len(known) - NAMES_TOLD_MAX} more" if len(known) > NAMES_TOLD_MAX else ""
    told = f"known are {', '.join(known[:NAMES_TOLD_MAX])}{more}" if known else "none is known"
    raise OptionsError(f"no queue or topic {name!r} is known here, {told}: get a sender first, or name it in entities=")


def check_sender_options(client_identifier: object, kwargs: dict[str, Any]) -> None:
    """Raise `OptionsError` for options that one sender alone cannot have."""
    if kwargs:
        names = ", ".join(kwargs)
        raise OptionsError(f"a paired sender takes client_identifier only, got {names}: give them to Namespace")
    if client_identifier is not None and not isinstance(client_identifier, str):
        raise OptionsError(f"client_identifier must be text, got {client_identifier!r}")


def sent_directly(senders: Iterable[AnySender]) -> Counter[Entity]:
    """How many messages the senders have sent directly, by entity."""
    counts: Counter[Entity] = Counter()
    for sender in senders:
        counts[sender.entity] += sender.sent_directly
    return counts
