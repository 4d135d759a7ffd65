"""What somebody tries who may receive, and nothing else."""

from __future__ import annotations

import time
import uuid

from catalogue import (
    MANY_PEERS_MB,
    QUEUE,
    SESSIONS,
    SHORT_LOCKS,
    Asker,
    again,
    attack,
    fill,
    numbers,
    opened,
    until_hung_up,
    wait,
)
from catalogue import with_key as keyed

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.outcomes import Modified, Released
from twinbus.amqp.codec.performatives import Detach, Disposition, LinkRole
from twinbus.amqp.codec.types import Int, Long, Symbol, Timestamp
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.links.attach import SESSION_FILTER

UUIDS = 0x98


def many_small(connection_string: str) -> None:
    fill(connection_string, QUEUE, 20_000, 10)


def many_large(connection_string: str) -> None:
    """150 MB."""
    fill(connection_string, QUEUE, 750, 200_000)


def some(connection_string: str) -> None:
    fill(connection_string, QUEUE, 300, 1_000)


def short_locked(connection_string: str) -> None:
    fill(connection_string, SHORT_LOCKS, 20_000, 10)


# --- answers ---


@attack("peeks messages and takes none of the answers: session window 0", right="Listen", prepare=many_large)
def peek_answers_not_taken(connection_string: str, until: float) -> None:
    body = {"from-sequence-number": Long(1), "message-count": Int(250)}
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(keyed(connection_string))
            asker = Asker(peer, QUEUE, window=0)
            for _ in numbers(until):
                asker.ask("peek-message", body)
                peer.read()


@attack(
    "the same over 200 answer links on each of 20 connections",
    right="Listen",
    prepare=many_large,
    memory_mb=MANY_PEERS_MB,
)
def peek_over_many_links(connection_string: str, until: float) -> None:
    body = {"from-sequence-number": Long(1), "message-count": Int(250)}
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [stack.enter_context(keyed(connection_string)) for _ in range(20)]
            askers = [Asker(peer, QUEUE, window=0, links=200) for peer in peers]
            for _ in numbers(until):
                for asker in askers:
                    asker.ask("peek-message", body)


@attack("peeks as fast as it can, and reads the answers", right="Listen", prepare=some)
def peeks_in_a_loop(connection_string: str, until: float) -> None:
    body = {"from-sequence-number": Long(1), "message-count": Int(250)}
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(keyed(connection_string))
            asker = Asker(peer, QUEUE)
            for _ in numbers(until):
                asker.ask("peek-message", body)
                peer.read()


@attack("asks for 1,000 deferred messages that are not there, as fast as it can", right="Listen")
def deferred_in_a_loop(connection_string: str, until: float) -> None:
    body = {"sequence-numbers": Array([Long(2**62 + number) for number in range(1_000)], 0x81)}
    _ask_in_a_loop(connection_string, until, QUEUE, "receive-by-sequence-number", body)


@attack("renews 1,000 locks that it does not have, as fast as it can", right="Listen")
def renewals_in_a_loop(connection_string: str, until: float) -> None:
    body = {"lock-tokens": Array([uuid.uuid4() for _ in range(1_000)], UUIDS)}
    _ask_in_a_loop(connection_string, until, QUEUE, "renew-lock", body)


@attack("asks with arguments that are 60 KB of maps in maps, 30 deep, as fast as it can", right="Listen")
def nested_arguments(connection_string: str, until: float) -> None:
    nested: object = ["x" * 60] * 900
    for _ in range(25):
        nested = {"x": nested}
    _ask_in_a_loop(connection_string, until, QUEUE, "update-disposition", {"properties-to-modify": nested})


def _ask_in_a_loop(connection_string: str, until: float, entity: str, operation: str, body: object) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(keyed(connection_string))
            asker = Asker(peer, entity)
            for _ in numbers(until):
                asker.ask(operation, body)
                peer.read()


# --- receivers ---


@attack("has 500 receivers with credit for a million each, and reads nothing", right="Listen", prepare=many_large)
def deaf_receivers(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(5):
                peer = opened(stack.enter_context(keyed(connection_string)))
                for handle in range(100):
                    peer.attach_receiver(handle, QUEUE)
            wait(until, 2.0)


@attack(
    "receives 150 MB of messages under locks on 10 connections and settles none",
    right="Listen",
    prepare=many_large,
    memory_mb=MANY_PEERS_MB,
)
def locks_everything(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [opened(stack.enter_context(keyed(connection_string))) for _ in range(10)]
            for peer in peers:
                for handle in range(20):
                    peer.attach_receiver(handle, QUEUE)
            for _ in numbers(until):
                for peer in peers:
                    peer.read()
                time.sleep(0.01)


@attack("attaches receivers and detaches them, with credit, as fast as it can", right="Listen", prepare=some)
def receivers_in_a_loop(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(keyed(connection_string)))
            for number in numbers(until):
                peer.attach_receiver(0, QUEUE, name=f"{number}", credit=1)
                peer.say(Detach(0, closed=True))
                peer.read()


@attack("drains a receiver of an empty queue, as fast as it can", right="Listen")
def drains_in_a_loop(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(keyed(connection_string)))
            peer.attach_receiver(0, QUEUE, credit=1)
            for number in numbers(until):
                peer.flow(0, credit=1 + number % 2, drain=True)
                peer.read()


# --- settlements ---


@attack(
    "receives 20,000 messages and says of all 2^31 numbers that they are released, again and again",
    right="Listen",
    prepare=many_small,
)
def wide_dispositions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(keyed(connection_string)))
            peer.attach_receiver(0, QUEUE, credit=20_000)
            began = time.monotonic()
            while time.monotonic() < min(until, began + 2):
                peer.read()
                time.sleep(0.01)
            outcomes = (Modified(delivery_failed=False), Released())
            for number in numbers(until):
                peer.say(
                    Disposition(LinkRole.RECEIVER, 0, 2**31 - 1, settled=number % 2 > 0, state=outcomes[number % 2])
                )
                peer.read()
                time.sleep(0.001)


@attack("abandons messages with 30 KB of other properties each time, again and again", right="Listen", prepare=some)
def growing_messages(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(keyed(connection_string)))
            peer.attach_receiver(0, QUEUE)
            for number in numbers(until):
                notes = {Symbol(f"{number}"): "x" * 30_000}
                state = Modified(delivery_failed=False, message_annotations=notes)
                peer.say(Disposition(LinkRole.RECEIVER, 0, 2**31 - 1, settled=True, state=state))
                peer.read()


@attack("dead-letters with reasons of 60 KB, of thousands of locks that it does not have", right="Listen")
def long_reasons(connection_string: str, until: float) -> None:
    body = {
        "disposition-status": "suspended",
        "lock-tokens": Array([uuid.uuid4() for _ in range(1_000)], UUIDS),
        "deadletter-reason": "r" * 20_000,
        "deadletter-description": "d" * 20_000,
    }
    _ask_in_a_loop(connection_string, until, QUEUE, "update-disposition", body)


@attack("lets the locks of 20,000 messages end at one moment", right="Listen", prepare=short_locked, seconds=8)
def locks_end_at_one_moment(connection_string: str, until: float) -> None:
    with until_hung_up() as stack:
        peer = opened(stack.enter_context(keyed(connection_string)))
        peer.attach_receiver(0, SHORT_LOCKS, credit=20_000)
        for _ in numbers(until):
            peer.read()
            time.sleep(0.01)


# --- sessions ---


@attack("takes one new session after the other and gives each a state of 250 KB", right="Listen")
def session_states(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(keyed(connection_string))
            asker = Asker(peer, SESSIONS)
            for number in numbers(until):
                session, handle = f"{number} {until}", 2 + number % 1_000
                if number >= 1_000:
                    peer.say(Detach(handle, closed=True))
                peer.attach_receiver(
                    handle, SESSIONS, name=session, credit=0, filters={Symbol(SESSION_FILTER): session}
                )
                asker.ask("set-session-state", {"session-id": session, "session-state": b"s" * 250_000})
                peer.read()


@attack("waits for sessions on 1,000 links, and names ids of 128 characters", right="Listen")
def waits_for_sessions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(keyed(connection_string)))
            for number in numbers(until):
                handle = number % 1_000
                if number >= 1_000:
                    peer.say(Detach(handle, closed=True))
                session = None if number % 2 else f"{number:0128}"
                peer.attach_receiver(
                    handle, SESSIONS, name=f"{number}", credit=1, filters={Symbol(SESSION_FILTER): session}
                )
                peer.read()


def thousands_of_sessions(connection_string: str) -> None:
    for number in range(40):
        fill(connection_string, SESSIONS, 50, 10, properties={PropertyField.GROUP_ID: f"session {number}"})


@attack("lists sessions from the 2^31st on, as fast as it can", right="Listen", prepare=thousands_of_sessions)
def lists_sessions(connection_string: str, until: float) -> None:
    since = Timestamp(253_402_300_800_000)
    body = {"last-updated-time": since, "skip": Int(2**31 - 1), "top": Int(2**31 - 1)}
    _ask_in_a_loop(connection_string, until, SESSIONS, "get-message-sessions", body)
