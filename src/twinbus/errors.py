"""Every exception raised on purpose.

TwinbusError
├── OptionsError                      wrong arguments; also a ValueError
├── StoreError                        a data directory that cannot be used
│   ├── StoreInUse                    another process holds it
│   ├── StoreDamaged                  not a store, or not readable as one
│   └── StoreTooNew                   written by a newer twinbus
├── AddressInUse                      the port is taken
├── AmqpError                         has .condition
│   ├── DecodeError                   amqp:decode-error; bytes that are no AMQP value, frame or message
│   └── FramingError                  amqp:connection:framing-error
└── NamespaceError                    has .condition, sent to the peer
    ├── EntityNotFound                amqp:not-found
    ├── EntityAlreadyExists           com.microsoft:entity-already-exists
    ├── MessageTooLarge               amqp:link:message-size-exceeded
    ├── QuotaExceeded                 amqp:resource-limit-exceeded
    ├── LockLost                      com.microsoft:message-lock-lost
    ├── MessageNotFound               com.microsoft:message-not-found
    ├── ServerBusy                    com.microsoft:server-busy
    ├── NotAllowed                    amqp:not-allowed
    ├── ArgumentError                 com.microsoft:argument-error
    ├── Unauthorized                  amqp:unauthorized-access
    ├── EntityDisabled                com.microsoft:entity-disabled
    ├── InternalError                 amqp:internal-error
    │   └── StoreUnavailable          the disk refuses, nothing was accepted
    └── ConditionError                any condition, given with it
"""

from __future__ import annotations

from typing import ClassVar


class TwinbusError(Exception):
    """Anything twinbus raises on purpose; its text is one line that a person can act on."""


class OptionsError(TwinbusError, ValueError):
    """An option or argument is wrong; the text says what would be right."""


class StoreError(TwinbusError):
    """A data directory cannot be used."""


class StoreInUse(StoreError):
    """Another process holds the data directory."""


class StoreDamaged(StoreError):
    """The store is not one, or cannot be read as one."""


class StoreTooNew(StoreError):
    """The store was written by a newer twinbus."""


class AddressInUse(TwinbusError):
    """The port is taken by another process."""


class AmqpError(TwinbusError):
    """The peer broke the protocol; `condition` is what it is told."""

    condition: ClassVar[str] = "amqp:internal-error"


class DecodeError(AmqpError):
    """Bytes that are no AMQP value, frame or message."""

    condition = "amqp:decode-error"


class FramingError(AmqpError):
    """Bytes that cannot be cut into frames."""

    condition = "amqp:connection:framing-error"


class NamespaceError(TwinbusError):
    """A namespace refuses; `condition` is what the peer is told."""

    condition: str = "amqp:internal-error"


class EntityNotFound(NamespaceError):
    condition = "amqp:not-found"


class EntityAlreadyExists(NamespaceError):
    condition = "com.microsoft:entity-already-exists"


class MessageTooLarge(NamespaceError):
    condition = "amqp:link:message-size-exceeded"


class QuotaExceeded(NamespaceError):
    condition = "amqp:resource-limit-exceeded"


class LockLost(NamespaceError):
    condition = "com.microsoft:message-lock-lost"


class MessageNotFound(NamespaceError):
    condition = "com.microsoft:message-not-found"


class ServerBusy(NamespaceError):
    condition = "com.microsoft:server-busy"


class NotAllowed(NamespaceError):
    condition = "amqp:not-allowed"


class ArgumentError(NamespaceError):
    condition = "com.microsoft:argument-error"


class Unauthorized(NamespaceError):
    condition = "amqp:unauthorized-access"


class EntityDisabled(NamespaceError):
    condition = "com.microsoft:entity-disabled"


class InternalError(NamespaceError):
    condition = "amqp:internal-error"


class StoreUnavailable(InternalError):
    """The disk refuses; nothing was accepted."""


class ConditionError(NamespaceError):
    """Refused with a condition that was chosen by whoever asked for the failure."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
