"""What an attack is, and what all of them use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raw_peer import HungUp, RawPeer

from twinbus.amqp.codec.performatives import Transfer
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.connection_string import ConnectionString

ROOM = 65_000
"""What fits a frame."""
QUEUE, SESSIONS, TOPIC, SHORT_LOCKS = "attacked", "sessions", "topic", "short-locks"
ONE_PEER_MB, MANY_PEERS_MB = 192, 640
"""What one peer with a key may take, or unauthenticated peers together (64 MiB, and what their sockets and TLS take);
and what many peers with a key may (512 MiB, and what is worked on)."""
BATCH_FORMAT = 0x80013700
Act = Callable[[str, float], None]
"""Called with a connection string and the time when it is over (`time.monotonic`)."""


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    does: str
    """What it does, as the page says it."""
    run: Act
    right: str
    """The right that its key has; nothing: it has no key."""
    subscriptions: int
    """Of the topic that it attacks."""
    sql: str
    """What they ask of a message; nothing: they take every one."""
    prepare: Callable[[str], None] | None
    """Done before, by somebody with every right: what has to be there for the attack."""
    seconds: float
    """It needs at least so long."""
    memory_mb: int
    """What the namespace may take meanwhile."""


ATTACKS: dict[str, Attack] = {}


def attack(
    does: str,
    *,
    right: str = "",
    subscriptions: int = 0,
    sql: str = "",
    prepare: Callable[[str], None] | None = None,
    seconds: float = 0.0,
    memory_mb: int = ONE_PEER_MB,
) -> Callable[[Act], Act]:
    def take(run: Act) -> Act:
        name = run.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, does, run, right, subscriptions, sql, prepare, seconds, memory_mb)
        return run

    return take


def again(until: float) -> Iterator[None]:
    """Until the time is over, whatever the server does about it; not more often than it makes sense."""
    while time.monotonic() < until:
        yield
        time.sleep(0.005)


def numbers(until: float) -> Iterator[int]:
    """As many as there is time for."""
    number = 0
    while time.monotonic() < until:
        yield number
        number += 1


def wait(until: float, seconds: float) -> None:
    time.sleep(max(0.0, min(seconds, until - time.monotonic())))


@contextlib.contextmanager
def until_hung_up() -> Iterator[contextlib.ExitStack]:
    """For peers that are let go at the end; that the server hangs up on them is an end, too."""
    with contextlib.ExitStack() as stack, contextlib.suppress(HungUp, OSError):
        yield stack


def with_key(connection_string: str) -> RawPeer:
    said = ConnectionString.parse(connection_string)
    return RawPeer(connection_string, user=said.key_name, key=said.key)


def opened(peer: RawPeer, *, window: int = 2**31 - 1) -> RawPeer:
    """The same peer with a session."""
    peer.open()
    peer.begin(window=window)
    return peer


def request(operation: str, properties: dict[str, object], body: object, reply_to: str) -> bytes:
    return encode_message(
        properties={PropertyField.MESSAGE_ID: "m" * 100, PropertyField.REPLY_TO: reply_to},
        application_properties={"operation": operation, **properties},
        value=body,
    )


class Asker:
    """Somebody with a key who asks an entity's management, and reads the answers or does not."""

    def __init__(self, peer: RawPeer, entity: str, *, window: int = 2**31 - 1, links: int = 1) -> None:
        self._peer = opened(peer, window=window)
        self._sent = 0
        self._links = links
        address = f"{entity}/$management"
        peer.attach_sender(0, address)
        for handle in range(1, 1 + links):
            peer.attach_receiver(handle, address, window=window)

    def ask(self, operation: str, body: object) -> None:
        reply_to = f"from {1 + self._sent % self._links}"
        self.send(request(f"com.microsoft:{operation}", {}, body, reply_to))

    def send(self, asked: bytes) -> None:
        self._peer.send_in_frames(0, self._sent, asked, settled=True)
        self._sent += 1


def fill(connection_string: str, queue: str, count: int, size: int, **fields: object) -> None:
    """Put so many messages of a size into a queue, and wait until they are stored."""
    message = encode_message(data=b"x" * size, **fields)  # type: ignore[arg-type]
    per_batch = max(1, min(1000, 200_000 // (len(message) + 10)))
    with with_key(connection_string) as peer:
        opened(peer)
        peer.attach_sender(0, queue)
        peer.await_frames(b"\x00\x53\x13", 1)
        batches = [per_batch] * (count // per_batch) + ([count % per_batch] if count % per_batch else [])
        for number, messages in enumerate(batches):
            peer.send_in_frames(0, number, encode_message(data=[message] * messages), message_format=BATCH_FORMAT)
            peer.await_frames(b"\x00\x53\x15", 1)


def batches(peer: RawPeer, entity: str, batch: bytes, until: float) -> None:
    """Send one batch after the other, as many at a time as the server takes."""
    opened(peer)
    peer.attach_sender(0, entity)
    for number in numbers(until):
        peer.send_in_frames(0, number, batch, message_format=BATCH_FORMAT)
        peer.read()


def one(handle: int, number: int, **fields: object) -> Transfer:
    return Transfer(handle, number % 2**31, b"t", **fields)  # type: ignore[arg-type]
