"""Where messages are, against what their senders were answered: receipts, errors, and the disks of both namespaces."""

from __future__ import annotations

from collections import Counter

from sim.invariants import Violation, check
from sim.pair_archive import Archive, Copy
from sim.pair_call import PRIMARY, Call
from sim.pair_network import SimulatedError
from twinbus.broker.store.api import MessageState
from twinbus.errors import (
    BothNamespacesUnavailable,
    EnvelopeError,
    NotSent,
    ReservedProperty,
    SendError,
    TooLargeForDetour,
)
from twinbus.pairing.backlog.envelope import open_envelope, reserved_names_in
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, receipt_of


class Places:
    def __init__(self, primary: Archive, secondary: Archive, seen: Counter[str], batch_bytes: int) -> None:
        self._primary, self._secondary, self._seen = primary, secondary, seen
        self._batch_bytes = batch_bytes

    # --- what callers are answered ---

    def accepted(self, call: Call, receipt: SendReceipt) -> None:
        """A call returned."""
        check(not call.must_end, f"{call} returned though its caller was to be told {call.last_failure}")
        check(receipt.is_complete, f"{call} returned though only {receipt.accepted} of its messages were accepted")
        check(receipt.message_ids == call.request.message_ids, f"{call} returned with the receipt of another")
        self._check_receipt(call, receipt)
        self._seen[f"calls: accepted by {receipt.side.value}"] += 1
        self._seen["calls: accepted, with copies in doubt"] += receipt.in_doubt

    def raised(self, call: Call, error: BaseException, *, is_closing: bool) -> None:
        """A call raised."""
        self._seen[f"calls: {type(error).__name__}"] += 1
        self._check_reason(call, error, is_closing=is_closing)
        receipt = receipt_of(error)
        if receipt is None:
            check(not call.doubts, f"{call} raised {error!r} and does not say that its messages are in doubt")
            check(not call.sure, f"{call} raised {error!r} and does not say that some were accepted")
        else:
            check(not receipt.is_complete, f"{call} raised {error!r} though everything was accepted")
            self._check_receipt(call, receipt)
            self._seen["calls: accepted in part"] += receipt.accepted > 0
            self._seen["calls: raised, in doubt"] += receipt.in_doubt
        self.check_copies(call)

    def _check_reason(self, call: Call, error: BaseException, *, is_closing: bool) -> None:
        match error:
            case SimulatedError():
                is_its = call.last_failure is not None and call.last_failure.error is error
                check(is_its, f"{call} raised {error!r} after {call.last_failure}")
            case BothNamespacesUnavailable():
                check(bool(error.primary_reason and error.secondary_reason), f"{call} does not say why: {error}")
                call.check_all_tried()
            case NotSent():
                may_end = is_closing or call.is_held_too_long or call.cannot_join
                check(may_end, f"{call} was given up for no reason: {error}")
                says_doubt = str(error).startswith("in doubt")
                check(says_doubt == bool(call.doubtful_attempts), f"{call} was told: {error}")
            case ReservedProperty():
                names = [name for message in call.request.encoded for name in reserved_names_in(message)]
                check(bool(names), f"{call} was refused: {error}")
            case TooLargeForDetour():
                longest = max(map(len, call.request.encoded))
                check(error.size_bytes > self._batch_bytes >= longest // 2, f"{call} was refused: {error}")
            case SendError():
                raise Violation(f"{call} raised {error!r} instead of what the SDK raised")
            case _:
                raise error
        check(not call.must_end or isinstance(error, SimulatedError), f"{call} raised {error!r}")

    def _check_receipt(self, call: Call, receipt: SendReceipt) -> None:
        said = dict(zip(receipt.message_ids, receipt.places[: receipt.accepted], strict=False))
        check(said == call.sure, f"{call} was told {said}, and its messages are {call.sure}")
        counted = sum(call.doubts.values())
        check(receipt.copies_in_doubt == counted, f"{call}: {counted} doubts, and {receipt.copies_in_doubt} are told")
        check(receipt.attempts == call.attempts, f"{call} made {call.attempts} attempts, {receipt.attempts} are told")
        lasted_s = call.heard_at - call.started_at
        check(abs(receipt.seconds - lasted_s) < 1e-6, f"{call} took {lasted_s} s, {receipt.seconds} are told")
        is_split = receipt.side is NamespaceSide.PRIMARY and receipt.backlog_queues
        check(not is_split, f"{call} is on the primary and has backlog queues {receipt.backlog_queues}")
        self.check_copies(call)

    # --- what the disks hold ---

    def check_copies(self, call: Call) -> None:
        """Every message is where it is said to be, and in no more places than are in doubt."""
        for message_id in call.request.message_ids:
            at_home, away = self._primary.copies.get(message_id, ()), self._secondary.copies.get(message_id, ())
            place = call.sure.get(message_id)
            if place is not None:
                found = at_home if place == PRIMARY else [copy for copy in away if copy.path == place]
                check(len(found) > 0, f"message {message_id} of {call} is not in {place}")
            count, most = len(at_home) + len(away), (place is not None) + call.doubts[message_id]
            check(count <= most, f"message {message_id} of {call} is in {count} places, it may be in {most}")

    def check_contents(self, call: Call) -> None:
        """Every copy is the message that was sent, whole, and can find its way home."""
        for message_id, message in zip(call.request.message_ids, call.request.encoded, strict=True):
            for copy in self._primary.copies.get(message_id, ()):
                is_right = copy.path == call.entity.path and copy.row.payload == message
                check(is_right, f"message {message_id} of {call} is another one on the primary")
            for copy in self._secondary.copies.get(message_id, ()):
                self._check_envelope(call, message, copy)

    def _check_envelope(self, call: Call, message: bytes, copy: Copy) -> None:
        row, name = copy.row, f"message {copy.row.message_id} of {call} in {copy.path}"
        try:
            home = open_envelope(row.payload)
        except EnvelopeError as error:
            raise Violation(f"{name} cannot go home: {error}") from error
        check(home.path == call.entity.path, f"{name} would go home to {home.path}")
        check(home.encoded == message, f"{name} would come home as another message")
        is_calm = (row.state, row.expires_at_ms, row.due_at_ms) == (MessageState.ACTIVE, None, None)
        check(is_calm and row.session_id is None, f"{name} has something that acts in the backlog")
