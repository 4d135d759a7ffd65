"""Whether order can be promised: a message has to be in the one backlog queue of its key.

A sender with `order="session"` puts all messages of a key into one queue. A message in another one was sent without
it, or with another number of queues; its key then is in several queues, and it is unknown which message came first. A
partitioned queue numbers its messages by partition, so its numbers say nothing about order either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog.envelope import read_aliases
from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.transport.links.annotations import enqueued_ms, sequence_of

PARTITION_FROM = 1 << 48
"""From here on a sequence number begins with its partition."""


def order_problem(queue: int, queues: Sequence[int], path: str, session_id: str | None, sequence: int) -> str | None:
    """Why the order of a message in a backlog queue is unknown; None if it is known.

    `queues` are those over which its sender spread sessions.
    """
    if sequence >= PARTITION_FROM:
        return "the queue is partitioned: its numbers do not tell what came first"
    belongs = queue_for(key_of(path, session_id), queues)
    if belongs == queue:
        return None
    what = "messages without a session" if session_id is None else "messages of a session"
    return (
        f"it holds {what} for {path} that belong to queue {belongs}: they were sent without order=session, "
        f"or with another number of backlog queues than {len(queues)}"
    )


def placement_problem(
    message: bytes, queue: int, queues: Sequence[int], wants: Callable[[str, int | None], bool]
) -> str | None:
    """The same for a peeked message; None also for one that is not to be moved."""
    try:
        aliases = read_aliases(message)
    except (EnvelopeError, DecodeError):
        return None  # it is quarantined, whatever the order
    if not wants(aliases.path, enqueued_ms(message)):
        return None
    return order_problem(queue, queues, aliases.path, aliases.session_id, sequence_of(message))
