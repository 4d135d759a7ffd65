"""The system properties that a rule can name after `sys.`: what each holds, and whether an action may set it."""

from __future__ import annotations

from typing import Final, NamedTuple

from twinbus.namespace.sql.kinds import Kind

ID_LENGTH: Final = 128
"""Characters that an id may have."""


class SystemProperty(NamedTuple):
    name: str
    kind: Kind
    settable: bool = False
    length: int | None = None


_ALL: Final = (
    SystemProperty("ContentType", Kind.TEXT, settable=True),
    SystemProperty("CorrelationId", Kind.TEXT, settable=True),
    SystemProperty("DeadLetterSource", Kind.TEXT),
    SystemProperty("DeliveryCount", Kind.NUMBER),
    SystemProperty("EnqueuedSequenceNumber", Kind.NUMBER),
    SystemProperty("EnqueuedTimeUtc", Kind.TIME),
    SystemProperty("ExpiresAtUtc", Kind.TIME),
    SystemProperty("Label", Kind.TEXT, settable=True),
    SystemProperty("LockedUntilUtc", Kind.TIME),
    SystemProperty("LockToken", Kind.UUID),
    SystemProperty("MessageId", Kind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("PartitionKey", Kind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("ReplyTo", Kind.TEXT, settable=True),
    SystemProperty("ReplyToSessionId", Kind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("ScheduledEnqueueTimeUtc", Kind.TIME, settable=True),
    SystemProperty("SequenceNumber", Kind.NUMBER),
    SystemProperty("SessionId", Kind.TEXT, settable=True, length=ID_LENGTH),
    SystemProperty("Size", Kind.NUMBER),
    SystemProperty("TimeToLive", Kind.DURATION, settable=True),
    SystemProperty("To", Kind.TEXT, settable=True),
    SystemProperty("ViaPartitionKey", Kind.TEXT, settable=True, length=ID_LENGTH),
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
    """The property of this name in any case, or None if there is none."""
    return _BY_SPELLING.get(spelling.lower())
