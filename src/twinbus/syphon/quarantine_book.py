"""What becomes of messages in quarantine, told to a ledger: they were sent home after all, thrown away, or stayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.ledger.events import Event, NoLedger, Recorder
from twinbus.ledger.kinds import Kind
from twinbus.pairing.failure import Failure
from twinbus.syphon.chronicle import peeked_event

if TYPE_CHECKING:
    from twinbus.syphon.quarantine import Quarantined


class QuarantineBook:
    def __init__(self, ledger: Recorder | None, primary: str, secondary: str) -> None:
        self._record = (ledger or NoLedger()).record
        self._primary = primary
        self._secondary = secondary

    def peeked(self, path: str, letters: Sequence[bytes]) -> None:
        """Dead letters were looked at."""
        self._record(peeked_event(self._secondary, path, letters))

    def received(self, found: Quarantined, queue: str) -> None:
        self._record(self._there(Kind.RECEIVED_FROM_BACKLOG, found, queue))

    def sent_home(self, found: Quarantined, size: int) -> None:
        """`size`: as it goes home, which is smaller."""
        self._record(_event(Kind.SENT_HOME, found, self._primary, size=size))

    def not_sent_home(self, found: Quarantined, error: Exception, failure: Failure | None) -> None:
        """Refused once more; or nobody knows."""
        kind = Kind.IN_DOUBT if failure is not None and failure.in_doubt else Kind.ATTEMPT_FAILED
        condition = "" if failure is None else failure.condition or ""
        self._record(_event(kind, found, self._primary, reason=str(error), condition=condition))

    def gone(self, kind: Kind, found: Quarantined, queue: str) -> None:
        """The dead-letter queue has it no more: it was sent home (`redriven`), or thrown away (`discarded`)."""
        self._record(self._there(kind, found, queue, reason=found.reason or ""))

    def kept(self, found: Quarantined, queue: str, why: str) -> None:
        self._record(self._there(Kind.RELEASED, found, queue, reason=why))

    def _there(self, kind: Kind, found: Quarantined, queue: str, reason: str = "") -> Event:
        return _event(kind, found, self._secondary, queue=queue, reason=reason)


def _event(
    kind: Kind,
    found: Quarantined,
    namespace: str,
    *,
    queue: str = "",
    reason: str = "",
    condition: str = "",
    size: int | None = None,
) -> Event:
    return Event(
        kind,
        entity=found.path or "",
        namespace=namespace,
        queue=queue,
        message_ids=(found.message_id or "",),
        sizes=(found.size if size is None else size,),
        session_ids=() if found.session_id is None else (found.session_id,),
        reason=reason,
        condition=condition,
    )
