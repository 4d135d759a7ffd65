"""Questions about a backlog that are answered by peeking: what is left, what is quarantined, is order known?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinbus.errors import DecodeError, EnvelopeError, TwinbusError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import Aliases, read_aliases
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking.queue_discovery import ABSENT, SAYS_NOTHING
from twinbus.syphon.pump.placement import placement_problem
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, is_waiting
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE, PAGE, pages, peek

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

UNLISTED_MAX = QUARANTINED_MAX = 10_000
"""Messages are not counted beyond this: each 250 of them cost a peek."""

Wants = Callable[[str, int | None], bool]
"""Whether a message for an entity, enqueued at a time, is to be moved."""


async def has_wanted(connection: NamespaceConnection, path: str, wants: Wants) -> bool:
    """Whether a queue holds a message, locked or not, that is to be moved. Raises `ConnectionFailed`."""
    async for messages in pages(connection, path):
        if any(is_waiting(message) and _is_wanted(message, wants) for message in messages):
            return True
    return False


async def count_quarantined(
    connection: NamespaceConnection, primary_name: str, queues: Sequence[int], wants: Wants
) -> int:
    """How many messages are in quarantine that are wanted or malformed. Raises `ConnectionFailed`."""
    count = 0
    for index in queues:
        async for messages in pages(connection, backlog_path(primary_name, index) + DEAD_LETTER_QUEUE):
            count += sum([_is_wanted(message, wants) for message in messages])
            if count >= QUARANTINED_MAX:
                return QUARANTINED_MAX
    return count


async def count_unlisted(
    connection: NamespaceConnection, primary_name: str, queues: Iterable[int], allows: Callable[[str], bool]
) -> int:
    """How many messages wait for entities that are not listed. Raises `ConnectionFailed`."""
    count = 0
    for index in queues:
        async for messages in pages(connection, backlog_path(primary_name, index)):
            found = [_aliases_of(message) for message in messages if is_waiting(message)]
            count += sum([aliases is not None and not allows(aliases.path) for aliases in found])
            if count >= UNLISTED_MAX:
                return UNLISTED_MAX
    return count


def _is_wanted(message: bytes, wants: Wants) -> bool:
    aliases = _aliases_of(message)
    return aliases is None or wants(aliases.path, enqueued_ms(message))  # malformed: it is to be dead-lettered


def _aliases_of(message: bytes) -> Aliases | None:
    try:
        return read_aliases(message)
    except (EnvelopeError, DecodeError):
        return None


# --- order ---


async def first_order_problem(
    secondary: Dial, primary_name: str, queues: Sequence[int], over: Sequence[int], wants: Wants, *, attempt_s: float
) -> str | None:
    """Peek at the head of each of `queues`: why order cannot be promised; None if it can. Raises `ConnectionFailed`.

    `over` are those over which senders spread sessions: nothing with a known order lies in any other.
    """
    async with NamespaceConnection(secondary, attempt_s=attempt_s) as connection:
        for queue in queues:
            path = backlog_path(primary_name, queue)
            for message in await peek(connection, path, 1, PAGE):
                problem = placement_problem(message, queue, over, wants)
                if problem is not None:
                    return f"{path}: {problem}"
    return None


def order_error(problem: str, ways_out: str = "check --queues, or leave --order out") -> TwinbusError:
    return TwinbusError(f"order cannot be promised: {problem}; {ways_out}")


# --- entities that somebody named: a mistyped name must not look like one with nothing to do ---

_SAYS_NOTHING = SAYS_NOTHING | {FailureKind.UNAUTHORISED}
"""Answers of the primary that leave open whether an entity exists; any other shows that it does."""


@dataclass(frozen=True, slots=True)
class EntityCheck:
    unknown: tuple[str, ...]
    """Neither on the primary nor the destination of a backlog message."""
    unanswered: dict[str, Failure]
    """Not the destination of a backlog message, and why the primary did not answer."""


async def check_entities(
    primary: Dial,
    secondary: Dial,
    primary_name: str,
    queues: Sequence[int],
    names: Collection[str],
    *,
    attempt_s: float,
) -> EntityCheck:
    """Searches the backlog only for names that the primary does not know. Raises `ConnectionFailed`."""
    absent = await _find_absent(primary, names, attempt_s)
    if absent:
        async with NamespaceConnection(secondary, attempt_s=attempt_s) as connection:
            for index in queues:
                async for messages in pages(connection, backlog_path(primary_name, index)):
                    found = {aliases.path.casefold() for each in messages if (aliases := _aliases_of(each)) is not None}
                    absent = {name: why for name, why in absent.items() if name.casefold() not in found}
                    if not absent:
                        return EntityCheck((), {})
    unknown = tuple([name for name, why in absent.items() if why.kind in ABSENT])
    return EntityCheck(unknown, {name: why for name, why in absent.items() if name not in unknown})


async def _find_absent(primary: Dial, names: Collection[str], attempt_s: float) -> dict[str, Failure]:
    """The names that the primary does not know, or about which it does not answer."""
    answers: dict[str, Failure] = {}
    try:
        async with NamespaceConnection(primary, attempt_s=attempt_s) as connection:
            for name in sorted(names):
                try:
                    await connection.probe_sender(name)
                except ConnectionFailed as error:
                    answers[name] = error.failure
    except ConnectionFailed as error:
        return dict.fromkeys(sorted(names), error.failure)
    return {name: why for name, why in answers.items() if why.kind in ABSENT | _SAYS_NOTHING}
