"""Which messages are meant: by sequence number, id, session, property or dead-letter reason, or all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinbus.errors import OptionsError
from twinbus.messages.browsed_message import BrowsedMessage
from twinbus.messages.contents import properties_of

_PARTITION_SHIFT = 48
"""The bits of a sequence number above these say in which partition the message is: each counts by itself."""
CHOICES = "sequence numbers, --id, --session, --property, --reason, or --all"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChoice:
    """What was said narrows the choice together; several values of one kind widen it."""

    sequences: frozenset[int] = frozenset()
    ids: frozenset[str] = frozenset()
    session_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """Names of application properties and their values as text."""
    reason: str | None = None
    """Of dead letters."""
    newest: frozenset[int] = frozenset()
    """The highest sequence number of each partition that was there: what came later is not meant. Empty: all are."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing was named; `newest` names nothing."""
        named = self.sequences or self.ids or self.properties
        return not named and self.session_id is None and self.reason is None

    def matches(self, found: BrowsedMessage) -> bool:
        return (
            (not self.sequences or found.sequence in self.sequences)
            and (not self.ids or found.message_id in self.ids)
            and (self.session_id is None or found.session_id == self.session_id)
            and (self.reason is None or found.reason == self.reason)
            and (not self.newest or self._was_there(found.sequence))
            and (not self.properties or self._has_properties(found))
        )

    def _was_there(self, sequence: int) -> bool:
        partition = sequence >> _PARTITION_SHIFT
        return any(sequence <= last and partition == last >> _PARTITION_SHIFT for last in self.newest)

    def _has_properties(self, found: BrowsedMessage) -> bool:
        there, _ = properties_of(found.encoded)
        return all(there.get(name) == value for name, value in self.properties.items())


EVERY_MESSAGE = MessageChoice()


def newest_of(sequences: Iterable[int]) -> frozenset[int]:
    """The highest of these sequence numbers in each partition."""
    return frozenset({each >> _PARTITION_SHIFT: each for each in sorted(sequences)}.values())


def parse_property(text: str) -> tuple[str, str]:
    """`customer=42` -> name and value. Raises `OptionsError`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise OptionsError(f"a property is NAME=TEXT, e.g. customer=42; got {text!r}")
    return name, value
