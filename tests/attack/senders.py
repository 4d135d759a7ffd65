"""What somebody tries who may send, and nothing else."""

from __future__ import annotations

import time

from catalogue import (
    BATCH_FORMAT,
    QUEUE,
    SESSIONS,
    TOPIC,
    Asker,
    again,
    attack,
    batches,
    numbers,
    one,
    opened,
    until_hung_up,
    with_key,
)

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message.sections import Header, PropertyField, encode_message

EMPTY = encode_message(value=None)
LARGEST = 256 * 1024 - 200
SLOW_SQL = "p LIKE '" + "%a" * 250 + "%b' OR q LIKE '%" + "_" * 200 + "b'"


def send_again_and_again(connection_string: str, path: str, message: bytes, until: float) -> None:
    """One message after the other on one link; on a new connection whenever the server hangs up."""
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(with_key(connection_string)))
            peer.attach_sender(0, path)
            for number in numbers(until):
                peer.send_in_frames(0, number, message)
                peer.read()


def batches_again_and_again(connection_string: str, path: str, batch: bytes, until: float) -> None:
    """One batch after the other; on a new connection whenever the server hangs up."""
    for _ in again(until):
        with until_hung_up() as stack:
            batches(stack.enter_context(with_key(connection_string)), path, batch, until)


@attack("sends batches of 52,000 empty messages, again and again", right="Send")
def batches_of_52000(connection_string: str, until: float) -> None:
    batch = b"\x00\x53\x75\xa0\x00" * 52_000
    batches_again_and_again(connection_string, QUEUE, batch, until)


@attack("sends batches of 4,500 empty messages, the most that are taken, again and again", right="Send")
def batches_of_empty_messages(connection_string: str, until: float) -> None:
    batch = encode_message(data=[EMPTY] * 4_500)
    batches_again_and_again(connection_string, QUEUE, batch, until)


@attack("sends batches of the largest size on 4 connections, as fast as it can", right="Send")
def largest_batches(connection_string: str, until: float) -> None:
    message = encode_message(data=b"x" * 1000)
    batch = encode_message(data=[message] * (LARGEST // (len(message) + 8)))
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [opened(stack.enter_context(with_key(connection_string))) for _ in range(4)]
            for peer in peers:
                peer.attach_sender(0, QUEUE)
            for number in numbers(until):
                for peer in peers:
                    peer.send_in_frames(0, number, batch, message_format=BATCH_FORMAT)
                    peer.read()


@attack("sends messages of 1 MB, which are too large, again and again", right="Send")
def messages_too_large(connection_string: str, until: float) -> None:
    message = encode_message(data=b"x" * 1_000_000)
    send_again_and_again(connection_string, QUEUE, message, until)


@attack("begins messages on 1,000 links and ends none", right="Send")
def unfinished_messages(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(with_key(connection_string)))
            for handle in range(1000):
                peer.attach_sender(handle, QUEUE)
            for number in numbers(until):
                handle = number % 1000
                peer.say(one(handle, handle, more=True), payload=b"x" * 65_000)
                peer.read()


@attack("sends batches of 4,500 messages to a topic with 100 subscriptions", right="Send", subscriptions=100)
def fan_out_to_100(connection_string: str, until: float) -> None:
    batch = encode_message(data=[EMPTY] * 4_500)
    batches_again_and_again(connection_string, TOPIC, batch, until)


@attack("sends batches of 4,500 messages to a topic with 2,000 subscriptions", right="Send", subscriptions=2_000)
def fan_out_to_2000(connection_string: str, until: float) -> None:
    fan_out_to_100(connection_string, until)


@attack(
    "sends messages of 32 KB text to a topic with 100 rules that are slow to ask (LIKE with 250 times %)",
    right="Send",
    subscriptions=100,
    sql=SLOW_SQL,
)
def slow_rules(connection_string: str, until: float) -> None:
    texts = {"p": "a" * 30_000, "q": "a" * 30_000}
    message = encode_message(application_properties=texts, data=b"")
    send_again_and_again(connection_string, TOPIC, message, until)


@attack(
    "sends messages with 8,000 properties to a topic with 100 rules in SQL",
    right="Send",
    subscriptions=100,
    sql="p7 = 'x' AND p8 = 'y'",
)
def many_properties(connection_string: str, until: float) -> None:
    message = encode_message(application_properties={f"p{number}": None for number in range(7_500)}, data=b"")
    send_again_and_again(connection_string, TOPIC, message, until)


@attack("sends batches in which every message has a new session id", right="Send")
def new_sessions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(with_key(connection_string)))
            peer.attach_sender(0, SESSIONS)
            for number in numbers(until):
                named = [
                    encode_message(properties={PropertyField.GROUP_ID: f"{number} {each} {'s' * 100}"}, value=None)
                    for each in range(1_500)
                ]
                peer.send_in_frames(0, number, encode_message(data=named), message_format=BATCH_FORMAT)
                peer.read()


@attack("sends tens of thousands of messages that all become due at one moment", right="Send")
def due_at_one_moment(connection_string: str, until: float) -> None:
    _meet_at_one_moment(connection_string, until, expire=False)


@attack("sends tens of thousands of messages that all expire at one moment", right="Send")
def expired_at_one_moment(connection_string: str, until: float) -> None:
    _meet_at_one_moment(connection_string, until, expire=True)


def _meet_at_one_moment(connection_string: str, until: float, *, expire: bool) -> None:
    """Everything that is sent in the first part of the time happens to the messages at its end."""
    left = until - time.monotonic()
    moment, stop = time.time() + 0.6 * left, time.monotonic() + 0.5 * left
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(with_key(connection_string)))
            peer.attach_sender(0, QUEUE)
            for number in numbers(until):
                rest_ms = max(1, int((moment - time.time()) * 1000))
                if expire:
                    message = encode_message(header=Header(ttl_ms=rest_ms), value=None)
                else:
                    due = {"x-opt-scheduled-enqueue-time": Timestamp(int(moment * 1000))}
                    message = encode_message(annotations=due, value=None)
                if time.monotonic() < stop:
                    batch = encode_message(data=[message] * 2_500)
                    peer.send_in_frames(0, number, batch, message_format=BATCH_FORMAT)
                    peer.await_frames(b"\x00\x53\x15", 1)
                else:
                    time.sleep(0.1)


@attack("schedules 1,000 messages in each request, and never reads an answer", right="Send")
def schedules_not_taken(connection_string: str, until: float) -> None:
    due = {"x-opt-scheduled-enqueue-time": Timestamp(int(time.time() * 1000) + 3_600_000)}
    message = encode_message(annotations=due, properties={PropertyField.MESSAGE_ID: "m"}, value=None)
    entry = {"message": message, "message-id": "m"}
    for _ in again(until):
        with until_hung_up() as stack:
            asker = Asker(stack.enter_context(with_key(connection_string)), QUEUE, window=0)
            for _ in numbers(until):
                asker.ask("schedule-message", {"messages": [entry] * 1_000})


@attack("asks with a list of a million empty lists, 1 MB each time", right="Send")
def requests_of_empty_lists(connection_string: str, until: float) -> None:
    body: dict[str, object] = {"messages": [[] for _ in range(1_000_000)]}
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(with_key(connection_string))
            asker = Asker(peer, QUEUE)
            for _ in numbers(until):
                asker.ask("schedule-message", body)
                peer.read()
