"""What one send has come to so far, and what its caller gets: a receipt, or an error that has one."""

from __future__ import annotations

from typing import NoReturn, Protocol

from twinbus.errors import BothNamespacesUnavailable, NotSent
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, with_receipt
from twinbus.pairing.sending.retry import Tries


class Sendable(Protocol):
    """The messages of one call."""

    @property
    def message_ids(self) -> tuple[str, ...]: ...

    @property
    def size_bytes(self) -> int:
        """About how much memory they hold."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each; about, before they were encoded."""

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        """The same as a backlog queue gets them."""

    @property
    def session_ids(self) -> frozenset[str | None]:
        """The sessions to which they belong; None for those that belong to none."""

    @property
    def has_order(self) -> bool:
        """Whether they are sent now: what is scheduled comes when it is due, in whatever order."""


class SendRecord:
    def __init__(
        self, pair: Pair, entity: Entity, request: Sendable, *, started_at: float, timeout_s: float | None = None
    ) -> None:
        self._pair, self._entity, self._request = pair, entity, request
        self._started_at = self._at = started_at
        self._tries = Tries(pair.rules, None if timeout_s is None else started_at + timeout_s)
        self._queues: list[str] = []
        """The paths of the backlog queues that have taken messages, or "spool", one for each message."""
        self._failed_side = NamespaceSide.PRIMARY

    def _note(
        self, failure: Failure, side: NamespaceSide, messages: int | None = None, queue: int | None = None
    ) -> None:
        """An attempt failed: with all messages, or with this number of them at this backlog queue."""
        self._tries.note(failure, len(self._request.message_ids) if messages is None else messages)
        self._failed_side = side
        if failure.in_doubt:
            which = slice(None) if messages is None else self._next(messages)
            sizes = self._request.sizes if side is NamespaceSide.PRIMARY else self._request.sizes_in_backlog
            ids = self._request.message_ids
            self._pair.doubted(self._entity, failure, ids[which], side.value, messages, sizes=sizes[which], queue=queue)

    def _next(self, messages: int) -> slice:
        """Which messages were to be stored next, behind those that are."""
        return slice(len(self._queues), len(self._queues) + messages)

    def _receipt(self, side: NamespaceSide, accepted: int, numbers: tuple[int, ...] = ()) -> SendReceipt:
        tries = self._tries
        return SendReceipt(
            self._entity.path,
            self._request.message_ids,
            side,
            accepted,
            tuple(self._queues),
            tries.made,
            tries.copies_in_doubt,
            self._at - self._started_at,
            numbers,
        )

    def _unsent(self) -> SendReceipt:
        return self._receipt(self._detour_side if self._queues else self._entity.side, len(self._queues))

    @property
    def _detour_side(self) -> NamespaceSide:
        """Where messages are that took the detour."""
        return NamespaceSide.SPOOL if NamespaceSide.SPOOL.value in self._queues else NamespaceSide.BACKLOG

    def _raise(self, failure: Failure) -> NoReturn:
        """The SDK's own exception, as without pairing; it knows its receipt."""
        self._entity.tally.raised += 1
        raise with_receipt(failure, self._unsent())

    def _raise_both(self, secondary_reason: str, spool_reason: str | None = None) -> NoReturn:
        self._entity.tally.raised += 1
        primary_reason = self._entity.reason or "it is back"
        raise BothNamespacesUnavailable(primary_reason, secondary_reason, self._unsent(), spool_reason)

    def _raise_out_of_time(self) -> NoReturn:
        has_failed = self._failed_side is NamespaceSide.BACKLOG and bool(self._tries.failures)
        reason = f"; {self._tries.last}" if has_failed else ""
        self._raise_both(f"the time that the caller gave is over{reason}")

    def _raise_not_sent(self, why: str) -> NoReturn:
        self._entity.tally.raised += 1
        receipt = self._unsent()
        what = "in doubt (it may be stored)" if receipt.in_doubt else "not sent"
        whose = {NamespaceSide.PRIMARY: "primary", NamespaceSide.SPOOL: "spool"}.get(self._failed_side, "secondary")
        reason = f"; the {whose}'s reason: {self._tries.last}" if self._tries.failures else ""
        raise NotSent(f"{what}: {why}{reason}", receipt)
