"""What a send says when it is done: where each message is, under which id, and what is in doubt."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from twinbus.errors import SendError
from twinbus.pairing.sending.failure import Failure

NOT_ACCEPTED = "not accepted"


class NamespaceSide(Enum):
    PRIMARY = "primary"
    BACKLOG = "backlog"
    SPOOL = "spool"
    """The local disk: neither namespace took the messages."""


class SendReceipt(NamedTuple):
    """Where the messages of one call are. They are accepted in order: the first `accepted` of them are stored.

    Only where order is kept by session can it be others; `places` tells which.
    """

    entity: str
    message_ids: tuple[str, ...]
    side: NamespaceSide
    """If a call was split, the last resort that some of its messages needed; `places` tells them apart."""
    accepted: int
    backlog_queues: tuple[str, ...] = ()
    """For messages that took the detour: the backlog queue of each one that was accepted, or "spool". If a call was
    split by session: of each message, empty for one that was not accepted."""
    attempts: int = 1
    copies_in_doubt: int = 0
    """How many more copies, with the same ids, may be stored: one for each message of an attempt without an answer."""
    seconds: float = 0.0
    sequence_numbers: tuple[int, ...] = ()
    """Of scheduled messages on the primary; those in the backlog have none that could be cancelled."""

    @property
    def in_doubt(self) -> bool:
        """Whether copies may be stored that nobody acknowledged."""
        return self.copies_in_doubt > 0

    @property
    def is_complete(self) -> bool:
        return self.accepted == len(self.message_ids)

    @property
    def places(self) -> tuple[str, ...]:
        """One a message: "primary", the path of its backlog queue, "spool", or "not accepted"."""
        is_at_home = self.side is NamespaceSide.PRIMARY
        stored = (NamespaceSide.PRIMARY.value,) * self.accepted if is_at_home else self.backlog_queues
        if not is_at_home and "" in stored:
            return tuple([queue or NOT_ACCEPTED for queue in stored])
        return stored + (NOT_ACCEPTED,) * (len(self.message_ids) - len(stored))


# --- exceptions that know their receipt ---


def with_receipt(failure: Failure, receipt: SendReceipt) -> BaseException:
    """The exception to raise for a failure, carrying what is known about the messages."""
    error = failure.error
    if error is None:
        return SendError(str(failure), receipt)
    attach_receipt(error, receipt)
    doubt = f"; {receipt.copies_in_doubt} copies in doubt: they may be stored" if receipt.in_doubt else ""
    error.add_note(f"twinbus: {receipt.entity}: {receipt.attempts} attempts{doubt}")
    return error


def attach_receipt(error: BaseException, receipt: SendReceipt) -> None:
    """Have an exception know what is known about its messages."""
    if isinstance(error, SendError):
        error.receipt = receipt
    else:
        error.twinbus_receipt = receipt  # type: ignore[attr-defined]


def receipt_of(error: BaseException) -> SendReceipt | None:
    """What is known about the messages of a send that raised this: how many were accepted, what is in doubt."""
    if isinstance(error, SendError):
        return error.receipt
    receipt = getattr(error, "twinbus_receipt", None)
    return receipt if isinstance(receipt, SendReceipt) else None
