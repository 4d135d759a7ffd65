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
│   ├── BothNamespacesUnavailable     no side took the messages; has .primary_reason, .secondary_reason, .spool_reason
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
    ├── UnknownTransaction            amqp:transaction:unknown-id
    ├── TransactionRolledBack         amqp:transaction:rollback
    ├── InternalError                 amqp:internal-error
    │   └── StoreUnavailable          the disk refuses, nothing was accepted
    └── ConditionError                any condition, given with it
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from twinbus.pairing.sending.receipt import SendReceipt


class TwinbusError(Exception):
    """Anything twinbus raises on purpose; its text is one line that a person can act on.

    What to do: catch it where any failure of twinbus is dealt with alike.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, text and attributes: to be built anew most of these would need more than the text.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class OptionsError(TwinbusError, ValueError):
    """An option or argument is wrong; the text says what would be right, and of several mistakes all.

    What to do: correct the call; the same call fails again.
    """

    @staticmethod
    def raise_for(problems: Iterable[str]) -> None:
        """Raise one error that names all problems; nothing if there are none."""
        if text := "; ".join(problems):
            raise OptionsError(text)


class StoreError(TwinbusError):
    """A data directory cannot be used: it is missing, not writable, or its disk fails.

    What to do: see to what the text names; nothing in it was changed.
    """


class StoreInUse(StoreError):
    """Another process holds the data directory.

    What to do: stop that process, whose number is told, or choose another directory.
    """


class StoreDamaged(StoreError):
    """The store is not one, or cannot be read as one. It is left as it is.

    What to do: restore a backup (`twinbus backup`), or move it away and begin with an empty one.
    """


class StoreTooNew(StoreError):
    """The store was written by a newer twinbus. It is left as it is.

    What to do: use that version, or a newer one.
    """


class AddressInUse(TwinbusError):
    """The port is taken by another process.

    What to do: choose another port, or 0 for any that is free.
    """


class PairingError(TwinbusError):
    """Two namespaces could not be paired; the text says which one, which queue, and what to do.

    What to do: what the text says; `twinbus pair` tries it without an application.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class EnvelopeError(TwinbusError):
    """A backlog message that does not say, or not rightly, where it belongs.

    What to do: the syphon puts it into quarantine: look at it with `twinbus syphon quarantine show`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PairClosed(TwinbusError):
    """The paired client is closed; nothing was sent.

    What to do: make a new client; do not use one after its `with` block.
    """


class PairFaulted(PairClosed):
    """The paired client has ended with a fault; nothing was sent.

    What to do: read the reason, and make a new client once it is dealt with.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the pair has faulted: {reason}")
        self.reason = reason


class SendError(TwinbusError):
    """A send did not end with everything stored; the receipt says what was accepted and what is in doubt.

    What to do: send again what was not accepted, with the same ids: what was in doubt may be stored twice.
    """

    def __init__(self, text: str, receipt: SendReceipt | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt

    @property
    def in_doubt(self) -> bool:
        """Whether messages may be stored although this was raised."""
        return self.receipt is not None and self.receipt.in_doubt


class BothNamespacesUnavailable(SendError):
    """Neither the primary nor a backlog queue took the messages, nor the spool, if there is one.

    What to do: keep the messages and try again later; the error has all reasons. With a spool (`spool=`) they are kept
    on the local disk meanwhile, until that is full.
    """

    def __init__(
        self,
        primary_reason: str,
        secondary_reason: str,
        receipt: SendReceipt | None = None,
        spool_reason: str | None = None,
    ) -> None:
        """`spool_reason`: why the spool took nothing; None: there is none."""
        spool = "" if spool_reason is None else f"; spool: {spool_reason}"
        super().__init__(f"primary: {primary_reason}; secondary: {secondary_reason}{spool}", receipt)
        self.primary_reason = primary_reason
        self.secondary_reason = secondary_reason
        self.spool_reason = spool_reason


class NotSent(SendError):
    """A send that was held is given up: not sent, or in doubt.

    What to do: send again, with the same ids.
    """


class TooLargeForDetour(SendError, ValueError):
    """A message that the primary would take does not fit into a backlog queue with what the detour adds to it.

    What to do: send smaller messages, or put large bodies elsewhere and send where they are.
    """

    def __init__(self, size_bytes: int, limit_bytes: int, overhead_bytes: int) -> None:
        super().__init__(
            f"the message is too large for the backlog: {size_bytes} bytes, of which the detour adds {overhead_bytes}; "
            f"the limit is {limit_bytes}"
        )
        self.size_bytes, self.limit_bytes, self.overhead_bytes = size_bytes, limit_bytes, overhead_bytes


class ReservedProperty(SendError, ValueError):
    """A message uses application properties that the detour needs for itself.

    What to do: rename the properties that are named.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(
            f"application properties {', '.join(names)} are reserved for messages in the backlog: rename them to send "
            "while the primary is down"
        )
        self.names = names


class ScheduledInBacklog(SendError):
    """Messages that were scheduled while the primary was down cannot be cancelled.

    What to do: let them come home, and cancel or drop them there.
    """


class AmqpError(TwinbusError):
    """The peer broke the protocol; `condition` is what it is told.

    What to do: see to the client: another implementation, or another version, may help.
    """

    condition: ClassVar[str] = "amqp:internal-error"


class DecodeError(AmqpError):
    """Bytes that are no AMQP value, frame or message.

    What to do: see to whoever made these bytes.
    """

    condition = "amqp:decode-error"


class FramingError(AmqpError):
    """Bytes that cannot be cut into frames.

    What to do: see whether the peer speaks AMQP at all, and whether TLS is meant.
    """

    condition = "amqp:connection:framing-error"


class NamespaceError(TwinbusError):
    """A namespace refuses; `condition` is what the peer is told.

    What to do: what the text says.
    """

    condition: str = "amqp:internal-error"


class EntityNotFound(NamespaceError):
    """There is no such queue, topic, subscription or rule.

    What to do: create it, or correct its name; case does not matter.
    """

    condition = "amqp:not-found"


class EntityAlreadyExists(NamespaceError):
    """There is one of this name already; queues and topics share their names.

    What to do: take the one that is there, update it, or choose another name.
    """

    condition = "com.microsoft:entity-already-exists"


class MessageTooLarge(NamespaceError):
    """A message, or its header, is larger than the entity takes.

    What to do: send smaller messages, or raise the entity's limit where that is allowed.
    """

    condition = "amqp:link:message-size-exceeded"


class QuotaExceeded(NamespaceError):
    """The entity or the namespace's disk is full, or there are as many entities, connections or links as may be.

    What to do: receive or delete something, make room on the disk, or raise the limit.
    """

    condition = "amqp:resource-limit-exceeded"


class LockLost(NamespaceError):
    """The lock of a message is over: it took too long, or the namespace was started again.

    What to do: nothing: the message is delivered again. Work shorter, renew locks, or make locks longer.
    """

    condition = "com.microsoft:message-lock-lost"


class SessionLockLost(NamespaceError):
    """The lock of a session is over.

    What to do: accept the session again; its messages and its state are there.
    """

    condition = "com.microsoft:session-lock-lost"


class SessionCannotBeLocked(NamespaceError):
    """Somebody else has the session.

    What to do: wait until it is closed or its lock ends, or take the next free one.
    """

    condition = "com.microsoft:session-cannot-be-locked"


class OperationTimedOut(NamespaceError):
    """There was nothing to give in the time that was asked for, as no free session.

    What to do: ask again, or wait longer.
    """

    condition = "com.microsoft:timeout"


class MessageNotFound(NamespaceError):
    """There is no message with this sequence number, or not in the state that was expected.

    What to do: nothing, if somebody else has dealt with it; peek to see what is there.
    """

    condition = "com.microsoft:message-not-found"


class ServerBusy(NamespaceError):
    """The namespace has more to do than it may take on.

    What to do: wait some seconds and try again; official clients do so by themselves.
    """

    condition = "com.microsoft:server-busy"


class NotAllowed(NamespaceError):
    """The request makes no sense for this entity, as a plain receiver on a queue with sessions.

    What to do: use the entity as its settings say.
    """

    condition = "amqp:not-allowed"


class ArgumentError(NamespaceError):
    """A value in the request is missing or wrong.

    What to do: correct what the text names.
    """

    condition = "com.microsoft:argument-error"


class Unauthorized(NamespaceError):
    """The key or token is wrong or over, or has no right to do this.

    What to do: use a key with Send, Listen or Manage, whichever is named.
    """

    condition = "amqp:unauthorized-access"


class EntityDisabled(NamespaceError):
    """The entity is disabled, as a whole or for this direction.

    What to do: set its status to Active.
    """

    condition = "com.microsoft:entity-disabled"


class UnknownTransaction(NamespaceError):
    """There is no such transaction, or it has ended: by a commit, a rollback, its time-out or the loss of a link.

    What to do: nothing of it has happened unless it was committed; begin a new one.
    """

    condition = "amqp:transaction:unknown-id"


class TransactionRolledBack(NamespaceError):
    """A transaction could not be committed; nothing of it has happened, and the locks of its messages stay.

    What to do: see to what the text names, and do all of it again in a new transaction.
    """

    condition = "amqp:transaction:rollback"


class InternalError(NamespaceError):
    """The namespace is in trouble of its own, by itself or by a fault that was asked for.

    What to do: try again; look at its log, and at `twinbus fault list`.
    """

    condition = "amqp:internal-error"


class StoreUnavailable(InternalError):
    """The disk refuses; nothing was accepted.

    What to do: make room on the disk, or repair it: the namespace goes on by itself.
    """


class ConditionError(NamespaceError):
    """Refused with a condition that was chosen by whoever asked for the failure.

    What to do: end the fault: `twinbus fault clear`.
    """

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
