"""Resubmits, dead-letters and purges messages.

Each message is locked, dealt with, and only then taken off its queue: whatever is interrupted, none is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from time import time
from typing import NamedTuple

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.errors import DecodeError, EnvelopeError, TwinbusError
from twinbus.messages.browsed_message import BrowsedMessage, BrowsedState
from twinbus.messages.browser import find_messages
from twinbus.messages.choice import MessageChoice, newest_of
from twinbus.messages.place import MessagePlace
from twinbus.pairing.backlog.envelope import forward_envelope
from twinbus.pairing.sending.failure import FailureKind
from twinbus.syphon.pump.dead_letter_reasons import DEAD_LETTER_PROPERTIES
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, sequence_of
from twinbus.transport.links.selective_receive import SelectiveReceive, dead_lettered
from twinbus.transport.links.single_sender import AskedOnceSender

CHANGED_MAX = 100_000
"""Messages that one call changes; the rest is left for the next one."""
NOT_RECEIVABLE = {
    BrowsedState.SCHEDULED: "it is scheduled: nobody can receive it before its time",
    BrowsedState.DEFERRED: "it is deferred: only who has its number can receive it",
}


@dataclass(slots=True)
class MessageChanges:
    """What became of the chosen messages, by sequence number."""

    done: list[int] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    """Still where they were, as far as is known, and why."""
    is_all: bool = True
    """False: there are more than one call changes."""


class CountedChoice(NamedTuple):
    """What one call would change."""

    number: int
    is_all: bool
    """False: there are more than one call changes."""
    newest: frozenset[int]
    """See `MessageChoice`."""


Act = Callable[[SelectiveReceive, TransferArrived], Awaitable[None]]
"""Deals with a locked message. Raises `ConnectionFailed`, `EnvelopeError`, `DecodeError`, `WouldBeDropped` or
`MaybeTwice` if it stays.
"""


NO_TAKER = "is a topic: what no subscription of it takes is lost there, as after every send"


class WouldBeDropped(TwinbusError):
    """The entity has seen the id of this message: it would accept it, and drop it as a duplicate."""


class MaybeTwice(TwinbusError):
    """A copy of the message may be where it was sent, and nobody knows that it has left its place."""


async def resubmit(
    connection: NamespaceConnection,
    place: MessagePlace,
    choice: MessageChoice,
    *,
    to: str | None = None,
    window_s: float | None = None,
) -> MessageChanges:
    """Send the chosen messages to `to`, by default to the queue or topic they were dead-lettered from.

    Each keeps its id and its properties, without the reason why it was dead-lettered; its time to live begins anew. A
    message is stored there before it is taken away here: if this is interrupted it may be there twice, never nowhere.

    `window_s`: how long the target of its own messages remembers their ids. One whose id it may still know stays.
    """
    sender, target = AskedOnceSender(connection, connection.attempt_s), to or place.entity

    async def act(search: SelectiveReceive, transfer: TransferArrived) -> None:
        if window_s is not None:
            _check_forgotten(transfer.payload, target, window_s, time())
        try:
            await sender.send(target, _as_new(transfer.payload))
        except ConnectionFailed as error:
            if error.failure.in_doubt:
                raise MaybeTwice(f"{error}; a copy may be in {target}") from None
            raise
        try:
            await search.complete(transfer)
        except ConnectionFailed as error:
            raise MaybeTwice(f"a copy is in {target}, but it could not be removed here: {error}") from None

    return await _change(connection, place, choice, act, at_once=False)


async def dead_letter(
    connection: NamespaceConnection, place: MessagePlace, choice: MessageChoice, *, reason: str, description: str = ""
) -> MessageChanges:
    """Put the chosen messages into the dead-letter queue, with a reason that others can read there."""
    outcome = dead_lettered(reason, description)

    async def act(search: SelectiveReceive, transfer: TransferArrived) -> None:
        await search.settle(transfer, outcome)

    return await _change(connection, place, choice, act, at_once=True)


async def purge(
    connection: NamespaceConnection, place: MessagePlace, choice: MessageChoice, counted: CountedChoice
) -> MessageChanges:
    """Remove those of the chosen messages for good that were counted: what came later was not agreed to."""

    async def act(search: SelectiveReceive, transfer: TransferArrived) -> None:
        await search.complete(transfer)

    if not counted.number:
        return MessageChanges()
    there = replace(choice, newest=counted.newest)
    changes = await _change(connection, place, there, act, at_once=True, most=counted.number)
    changes.is_all = changes.is_all or counted.is_all  # what is beyond was not asked for
    return changes


def _check_forgotten(encoded: bytes, target: str, window_s: float, now_s: float) -> None:
    stored_ms = enqueued_ms(encoded)
    left_s = window_s if stored_ms is None else window_s - (now_s - stored_ms / 1000)
    if left_s > 0:
        raise WouldBeDropped(
            f"{target} has duplicate detection, and would drop it as a duplicate of itself for another "
            f"{left_s:,.0f} s: send it to another entity, or wait"
        )


def _as_new(encoded: bytes) -> bytes:
    bare = sections.rewrite(encoded, remove_application_properties=DEAD_LETTER_PROPERTIES)
    return forward_envelope(bare)


async def _change(
    connection: NamespaceConnection,
    place: MessagePlace,
    choice: MessageChoice,
    act: Act,
    *,
    at_once: bool,
    most: int = CHANGED_MAX,
) -> MessageChanges:
    found = await find_messages(connection, place, choice, most=most, scanned_max=CHANGED_MAX, keeps_bytes=False)
    changes = MessageChanges(is_all=found.is_all)
    wanted = [each for each in found.messages if each.state not in NOT_RECEIVABLE]
    changes.kept |= {each.sequence: why for each in found.messages if (why := NOT_RECEIVABLE.get(each.state))}
    chosen = {each.sequence for each in wanted}
    if not chosen:
        return changes
    try:
        await _run(connection, place, chosen, None, act, changes, at_once=at_once)
    except ConnectionFailed as error:
        if error.failure.kind is not FailureKind.NOT_ALLOWED:
            raise
        for session, sequences in _by_session(wanted).items():  # the queue demands a session
            await _run(connection, place, sequences, session, act, changes, at_once=at_once)
    return changes


def _by_session(messages: Iterable[BrowsedMessage]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for each in messages:
        found.setdefault(each.session_id or "", set()).add(each.sequence)
    return found


async def _run(
    connection: NamespaceConnection,
    place: MessagePlace,
    chosen: set[int],
    session_id: str | None,
    act: Act,
    changes: MessageChanges,
    *,
    at_once: bool,
) -> None:
    search = SelectiveReceive(connection, place.path, connection.attempt_s)

    async def take(transfer: TransferArrived) -> bool:
        sequence = sequence_of(transfer.payload)
        try:
            await act(search, transfer)
        except (ConnectionFailed, EnvelopeError, DecodeError, WouldBeDropped, MaybeTwice) as error:
            changes.kept[sequence] = str(error)
            return False
        changes.done.append(sequence)
        return True

    changes.kept |= await search.run(chosen, take, session_id=session_id, at_once=at_once)


async def count_messages(connection: NamespaceConnection, place: MessagePlace, choice: MessageChoice) -> CountedChoice:
    """How many messages one call would change."""
    found = await find_messages(connection, place, choice, most=CHANGED_MAX, scanned_max=CHANGED_MAX, keeps_bytes=False)
    return CountedChoice(len(found.messages), found.is_all, newest_of([each.sequence for each in found.messages]))
