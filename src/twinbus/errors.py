"""Every exception raised on purpose.

TwinbusError
├── OptionsError                      wrong arguments; also a ValueError
├── StoreError                        a data directory that cannot be used
│   ├── StoreInUse                    another process holds it
│   ├── StoreDamaged                  not a store, or not readable as one
│   └── StoreTooNew                   written by a newer twinbus
├── AddressInUse                      the port is taken
├── PairingError                      two namespaces could not be paired; has .problems
├── EnvelopeError                     a backlog message that cannot find its way home; has .reason
├── PairClosed                        the paired client is closed
│   └── PairFaulted                   it ended with a fault; has .reason
├── SendError                         has .receipt: what was accepted, and what is in doubt
│   ├── BothNamespacesUnavailable     no side took the messages; has .primary_reason and .secondary_reason
│   ├── NotSent                       a held send was given up
│   ├── TooLargeForDetour             also a ValueError; has .size_bytes, .limit_bytes and .overhead_bytes
│   ├── ReservedProperty              also a ValueError; has .names
│   └── ScheduledInBacklog            what lies in a backlog cannot be cancelled
├── AmqpError                         has .condition
│   ├── DecodeError                   amqp:decode-error; bytes that are no AMQP value, frame or message
│   └── FramingError                  amqp:connection:framing-error
└── NamespaceError                    has .condition, sent to the peer
    ├── EntityNotFound                amqp:not-found
    ├── EntityAlreadyExists           com.microsoft:entity-already-exists
    ├── MessageTooLarge               amqp:link:message-size-exceeded
    ├── QuotaExceeded                 amqp:resource-limit-exceeded
    ├── LockLost                      com.microsoft:message-lock-lost
    ├── SessionLockLost               com.microsoft:session-lock-lost
    ├── SessionCannotBeLocked         com.microsoft:session-cannot-be-locked
    ├── OperationTimedOut             com.microsoft:timeout
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

import copyreg
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from twinbus.pairing.receipt import SendReceipt


class TwinbusError(Exception):
    """Anything twinbus raises on purpose; its text is one line that a person can act on."""

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, text and attributes: to be built anew most of these would need more than the text.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


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


class PairingError(TwinbusError):
    """Two namespaces could not be paired; the text says which one, which queue, and what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class EnvelopeError(TwinbusError):
    """A backlog message that does not say, or not rightly, where it belongs."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PairClosed(TwinbusError):
    """The paired client is closed; nothing was sent."""


class PairFaulted(PairClosed):
    """The paired client has ended with a fault; nothing was sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the pair has faulted: {reason}")
        self.reason = reason


class SendError(TwinbusError):
    """A send did not end with everything stored; the receipt says what was accepted and what is in doubt."""

    def __init__(self, text: str, receipt: SendReceipt | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt

    @property
    def in_doubt(self) -> bool:
        """Whether messages may be stored although this was raised."""
        return self.receipt is not None and self.receipt.in_doubt


class BothNamespacesUnavailable(SendError):
    """Neither the primary nor a backlog queue took the messages."""

    def __init__(self, primary_reason: str, secondary_reason: str, receipt: SendReceipt | None = None) -> None:
        super().__init__(f"primary: {primary_reason}; secondary: {secondary_reason}", receipt)
        self.primary_reason = primary_reason
        self.secondary_reason = secondary_reason


class NotSent(SendError):
    """A send that was held is given up: not sent, or in doubt."""


class TooLargeForDetour(SendError, ValueError):
    """A message that the primary would take does not fit into a backlog queue with what the detour adds to it."""

    def __init__(self, size_bytes: int, limit_bytes: int, overhead_bytes: int) -> None:
        super().__init__(
            f"the message is too large for the backlog: {size_bytes} bytes, of which the detour adds {overhead_bytes}; "
            f"the limit is {limit_bytes}"
        )
        self.size_bytes, self.limit_bytes, self.overhead_bytes = size_bytes, limit_bytes, overhead_bytes


class ReservedProperty(SendError, ValueError):
    """A message uses application properties that the detour needs for itself."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(
            f"application properties {', '.join(names)} are reserved for messages in the backlog: rename them to send "
            "while the primary is down"
        )
        self.names = names


class ScheduledInBacklog(SendError):
    """Messages that were scheduled while the primary was down cannot be cancelled."""


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


class SessionLockLost(NamespaceError):
    condition = "com.microsoft:session-lock-lost"


class SessionCannotBeLocked(NamespaceError):
    """Somebody else has it."""

    condition = "com.microsoft:session-cannot-be-locked"


class OperationTimedOut(NamespaceError):
    condition = "com.microsoft:timeout"


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
