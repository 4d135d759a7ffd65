"""Properties of a message: how a rule asks for them, and the system properties that it can name after `sys.`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from twinbus.amqp.codec.types import Value
from twinbus.broker.filters.formatter import write
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.filters.syntax import NamedProperty
from twinbus.broker.filters.value_types import KINDS, ValueKind, kind_of, plain


class MissingProperty(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name


MISSING: Final = MissingProperty.MISSING
"""A user property that the message does not have; one that is there and null is None."""


class MessageView(Protocol):
    """A message as rules see it. Rules ask often: a view should read the bytes once, and only on demand."""

    def system(self, name: str, /) -> Value:
        """The system property, or None if the message does not set it.

        `name` is one of `SYSTEM_PROPERTIES`, in that spelling. Texts are str, times Timestamp, time to live timedelta,
        lock token UUID, numbers int. Raises `FilterError` if the view does not know one.
        """

    def user(self, name: str, /) -> Value:
        """The application property, or `MISSING`. Names are case-insensitive: `name` is in lower case."""


ID_LENGTH: Final = 128
"""Characters that an id may have."""


class SystemProperty(NamedTuple):
    name: str
    kind: ValueKind
    settable: bool = False
    length: int | None = None


_ALL: Final = (
    SystemProperty("ContentType", ValueKind.TEXT, settable=True),
    SystemProperty("CorrelationId", ValueKind.TEXT, settable=True),
    SystemProperty("DeadLetterSource", ValueKind.TEXT),
    SystemProperty("DeliveryCount", ValueKind.NUMBER),
    SystemProperty("EnqueuedSequenceNumber", ValueKind.NUMBER),
    SystemProperty("EnqueuedTimeUtc", ValueKind.TIME),
    SystemProperty("ExpiresAtUtc", ValueKind.TIME),
    SystemProperty("Label", ValueKind.TEXT, settable=True),
    SystemProperty("LockedUntilUtc", ValueKind.TIME),
    SystemProperty("LockToken", ValueKind.UUID),
    SystemProperty("MessageId", ValueKind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("PartitionKey", ValueKind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("ReplyTo", ValueKind.TEXT, settable=True),
    SystemProperty("ReplyToSessionId", ValueKind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("ScheduledEnqueueTimeUtc", ValueKind.TIME, settable=True),
    SystemProperty("SequenceNumber", ValueKind.NUMBER),
    SystemProperty("SessionId", ValueKind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("Size", ValueKind.NUMBER),
    SystemProperty("TimeToLive", ValueKind.DURATION, settable=True),
    SystemProperty("To", ValueKind.TEXT, settable=True),
    SystemProperty("ViaPartitionKey", ValueKind.TEXT, settable=True, length=ID_LENGTH),
)

SYSTEM_PROPERTIES: Final = {known.name: known for known in _ALL}
"""By the name that a `MessageView` is asked for."""

ALIASES: Final = {
    # What the newer client libraries call them.
    "Subject": "Label",
    "EnqueuedTime": "EnqueuedTimeUtc",
    "ExpiresAt": "ExpiresAtUtc",
    "LockedUntil": "LockedUntilUtc",
    "ScheduledEnqueueTime": "ScheduledEnqueueTimeUtc",
    "TransactionPartitionKey": "ViaPartitionKey",
}

_BY_SPELLING: Final = {name.lower(): known for name, known in SYSTEM_PROPERTIES.items()} | {
    alias.lower(): SYSTEM_PROPERTIES[name] for alias, name in ALIASES.items()
}


def system_property(spelling: str) -> SystemProperty | None:
    """The property of this name, in any case; None if there is none."""
    return _BY_SPELLING.get(spelling.lower())


ValueReader: TypeAlias = Callable[[MessageView], Value]


def lookup_of(scope: str, name: str) -> ValueReader:
    """Reads the property; `MISSING` if the message has none."""
    if scope == "user":
        lowered = name.lower()
        return lambda view: view.user(lowered)
    known = system_property(name)

    def lookup(view: MessageView) -> Value:
        if known is None:
            raise FilterError(f"there is no system property {name}")
        value = view.system(known.name)
        return MISSING if value is None else value  # system properties are never null

    return lookup


def lookup_by_value(name: ValueReader, node: NamedProperty) -> ValueReader:
    """As `lookup_of`, for a property whose name depends on the message."""

    def lookup(view: MessageView) -> Value:
        value = name(view)
        if value is None:
            return MISSING
        if kind_of(value) is not ValueKind.TEXT:
            raise FilterError(f"the name of a property must be a text, not {kind_of(value)}, in: {write(node)}")
        scope, dot, rest = value.partition(".")
        if dot and scope.lower() in ("sys", "user"):
            return lookup_of(scope.lower(), rest)(view)
        return view.user(value.lower())

    return lookup


def read_user(lowered: str) -> ValueReader:
    """As `readable(lookup_of("user", name))`, in one call: rules do this most of the time."""

    def read(view: MessageView) -> Value:
        value = view.user(lowered)
        if type(value) in KINDS:
            return value
        return None if value is MISSING else plain(value)

    return read


def readable(lookup: ValueReader) -> ValueReader:
    """The value as operators expect it: None if it is missing, and of a kind that rules know if possible."""

    def read(view: MessageView) -> Value:
        value = lookup(view)
        if value is MISSING:
            return None
        return value if type(value) in KINDS else plain(value)

    return read
