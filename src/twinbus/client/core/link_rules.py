"""What links on threads and on tasks have in common: limits, and what a failure means for a link."""

from __future__ import annotations

from time import monotonic

from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.sdk.failures import LinkFailed
from twinbus.pairing.sending.failure import Failure, FailureKind

KEEP_ALIVE_S, NO_KEEP_ALIVE = 30, 0
"""How often an idle link shows that it is there. The SDK would begin with that before the link is open, and wait a
second for it to end whenever opening fails: longer than a refusal should take to be known."""
CLOSE_S = 1.0
"""How long the SDK may take to close a link."""
LINKS_MAX = 8
"""Links to one backlog queue; further senders wait for one."""
IDLE_S = 30.0
"""A link to a backlog queue that nobody used for longer is closed."""
CLOSED = Failure(FailureKind.UNREACHABLE, "the client is closed")

KEEPS_LINK = frozenset((FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.NOT_ALLOWED, FailureKind.REJECTED))
"""After these a link is as good as before; after others it is never used again."""


class NoFreeLink(LinkFailed):
    """All links to a backlog queue were in use all the time: that says nothing about the queue."""

    def __init__(self, path: str, *, is_moving: bool) -> None:
        """`is_moving`: they stored something meanwhile."""
        self.is_moving = is_moving
        text = f"all {LINKS_MAX} links to {path} were in use"
        super().__init__(Failure(FailureKind.NO_ANSWER, text, error=OperationTimeoutError(message=text)))


def spoils_link(failure: Failure) -> bool:
    """Whether a link must not be used again after this."""
    return failure.in_doubt or failure.kind not in KEEPS_LINK


def is_silence(error: BaseException) -> bool:
    """Whether a send got no answer in time."""
    return isinstance(error, LinkFailed) and error.failure.kind is FailureKind.NO_ANSWER


def fair_end(since: float, timeout_s: float, *, is_patient: bool) -> float | None:
    """Until when a send may last that has waited for a link since then; None: too little time is left for an answer.

    A patient one has all its time once it has a link, but takes no more than twice its time in all.
    """
    now = monotonic()
    end = min(now + timeout_s, since + 2 * timeout_s) if is_patient else since + timeout_s
    return end if end - now >= timeout_s / 2 else None
