"""Whether order can be promised at all (P19): a letter has to lie in the one backlog queue of its key.

Who sends with `order="session"` puts all messages of a key into one queue. A letter in another one was sent without it,
or by somebody with another number of queues; its key then lies in several queues, and nobody knows which letter came
first. A partitioned queue numbers its letters by partition, so its numbers tell nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.envelope import read_aliases
from twinbus.pairing.order import key_of, queue_for
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.look import Wants, sequence_of

PARTITION_FROM = 1 << 48
"""From here on a sequence number has its partition in front."""


def order_problem(queue: int, queues: Sequence[int], path: str, session_id: str | None, sequence: int) -> str | None:
    """Why the order of a letter in a backlog queue is not known; None if it is.

    `queues` are those over which its sender spread sessions.
    """
    if sequence >= PARTITION_FROM:
        return "the queue is partitioned: its numbers do not tell what came first"
    belongs = queue_for(key_of(path, session_id), queues)
    if belongs == queue:
        return None
    what = "messages without a session" if session_id is None else "messages of one of its sessions"
    return (
        f"{what} for {path} lie in it that belong to queue {belongs}: they were sent without order=session, "
        f"or with another number of backlog queues than {len(queues)}"
    )


def problem_of_letter(letter: bytes, queue: int, queues: Sequence[int], wants: Wants) -> str | None:
    """The same for a letter that was peeked; one that is not to be moved is no problem."""
    try:
        aliases = read_aliases(letter)
    except (EnvelopeError, DecodeError):
        return None  # it goes to the quarantine, whatever the order
    if not wants(aliases.path, enqueued_ms(letter)):
        return None
    return order_problem(queue, queues, aliases.path, aliases.session_id, sequence_of(letter))
