"""What the official .NET client writes to a socket, byte by byte, as its source says; nobody has run it here.

Written from Azure.Messaging.ServiceBus 7.21 (`AmqpConnectionScope.cs`) and the library below it, Microsoft.Azure.Amqp
(`SaslNegotiator.cs`, `AmqpCbsLink.cs`, `RequestResponseAmqpLink.cs`, `Encoding/`). Where it differs from other clients:

* its only SASL mechanism is MSSBCBS: if the server does not offer that, it gives up; the initial response is null;
* every field of a list is written, trailing nulls too, and an empty map takes nine bytes;
* the sending link to `$cbs` has a source without an address and no initial delivery count, and each request on it has
  the same, empty delivery tag;
* each link has a session of its own, and entity addresses begin with a slash;
* the token is for the whole namespace, without a port, whatever its audience.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
NO_TAG = b"\xa0\x00"
WINDOW, WINDOW_MAX = 5_000, 2**32 - 1


# --- values ---


def text(value: str) -> bytes:
    return _sized(0xA1, 0xB1, value.encode())


def symbol(value: str) -> bytes:
    return _sized(0xA3, 0xB3, value.encode("ascii"))


def binary(value: bytes) -> bytes:
    return _sized(0xA0, 0xB0, value)


def uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return struct.pack(">BB", 0x52, value) if value < 256 else struct.pack(">BI", 0x70, value)


def ubyte(value: int) -> bytes:
    return struct.pack(">BB", 0x50, value)


def ushort(value: int) -> bytes:
    return struct.pack(">BH", 0x60, value)


def timestamp(milliseconds: int) -> bytes:
    return struct.pack(">Bq", 0x83, milliseconds)


def mapping(entries: Mapping[bytes, bytes]) -> bytes:
    """Keys and values are encoded already."""
    if not entries:
        return struct.pack(">BII", 0xD1, 4, 0)
    return _compound(0xC1, 0xD1, [part for entry in entries.items() for part in entry])


def described(code: int, *fields: bytes) -> bytes:
    return struct.pack(">BBB", 0, 0x53, code) + (_compound(0xC0, 0xD0, list(fields)) if fields else b"\x45")


def _sized(short: int, long: int, data: bytes) -> bytes:
    head = struct.pack(">BB", short, len(data)) if len(data) < 256 else struct.pack(">BI", long, len(data))
    return head + data


def _compound(short: int, long: int, parts: list[bytes]) -> bytes:
    data = b"".join(parts)
    if len(data) < 255:
        return struct.pack(">BBB", short, len(data) + 1, len(parts)) + data
    return struct.pack(">BII", long, len(data) + 4, len(parts)) + data


def frame(channel: int, body: bytes, kind: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


# --- frames ---


def sasl_init() -> bytes:
    """`SaslAnonymousHandler` under another name: without an identity the response is null; the host name is not set."""
    return frame(0, described(0x41, symbol("MSSBCBS"), NULL, NULL), kind=1)


def open_frame(host: str) -> bytes:
    """Its idle time-out is a minute; the open frame has half of that."""
    properties = {
        symbol("product"): text("Azure.Messaging.ServiceBus"),
        symbol("version"): text("7.21.0"),
        symbol("framework"): text(".NET 8.0.11"),
        symbol("platform"): text("Debian GNU/Linux 12 (bookworm)"),
        symbol("user-agent"): text("azsdk-net-Messaging.ServiceBus/7.21.0 (.NET 8.0.11)"),
    }
    container = text(f"amqp://{host}/-1f0c2b7a")
    body = described(
        0x10, container, text(host), uint(65_536), ushort(8_191), uint(30_000),
        NULL, NULL, NULL, NULL, mapping(properties),
    )  # fmt: skip
    return frame(0, body)


def begin_frame(channel: int, incoming_window: int) -> bytes:
    numbers = uint(1), uint(incoming_window), uint(WINDOW), uint(262_143)
    return frame(channel, described(0x11, NULL, *numbers, NULL, NULL, mapping({})))


def source(address: bytes) -> bytes:
    return described(0x28, address, *[NULL] * 10)


def target(address: bytes) -> bytes:
    return described(0x29, address, *[NULL] * 6)


def attach_frame(
    channel: int,
    handle: int,
    name: str,
    receives: bool,
    addresses: tuple[bytes, bytes],
    modes: tuple[bytes, bytes],
    *,
    delivery_count: bytes = NULL,
    timeout_ms: int | None = None,
) -> bytes:
    """`addresses` are those of source and target, `modes` those of settling: sender, receiver."""
    properties = NULL if timeout_ms is None else mapping({symbol("com.microsoft:timeout"): uint(timeout_ms)})
    body = described(
        0x12, text(name), uint(handle), TRUE if receives else FALSE, *modes,
        source(addresses[0]), target(addresses[1]), NULL, NULL, delivery_count, NULL, NULL, NULL, properties,
    )  # fmt: skip
    return frame(channel, body)


def flow_frame(channel: int, handle: int, credit: int, window: int = WINDOW) -> bytes:
    """What a receiver grants right behind its attach, before that is answered."""
    session = NULL, uint(window), uint(1), uint(WINDOW)
    return frame(channel, described(0x13, *session, uint(handle), uint(0), uint(credit), NULL, FALSE, FALSE, NULL))


def transfer_frame(channel: int, handle: int, number: int, tag: bytes, payload: bytes, *, settled: bool) -> bytes:
    fields = (
        uint(handle), uint(number), tag, uint(0), TRUE if settled else NULL, FALSE, NULL, NULL, FALSE, FALSE, FALSE,
    )  # fmt: skip
    return frame(channel, described(0x14, *fields) + payload)


def accept_frame(channel: int, number: int) -> bytes:
    """A message is completed; the server has the last word."""
    return frame(channel, described(0x15, TRUE, uint(number), NULL, FALSE, described(0x24), FALSE))


# --- the conversation ---


class CbsLinks:
    """The pair of links to `$cbs`, in a session of their own, and what is asked there."""

    CHANNEL = 0

    def __init__(self) -> None:
        self.reply_to = uuid.uuid4().hex
        self._name = "duplex1:4:5"
        self._asked = 0

    def open(self) -> bytes:
        settled = ubyte(1), NULL
        asking = attach_frame(
            self.CHANNEL, 0, f"{self._name}:sender", False, (NULL, text("$cbs")), settled, timeout_ms=60_000
        )
        answers = attach_frame(
            self.CHANNEL, 1, f"{self._name}:receiver", True, (text("$cbs"), text(self.reply_to)), settled,
            timeout_ms=60_000,
        )  # fmt: skip
        return asking + answers + flow_frame(self.CHANNEL, 1, 50)

    def put_token(self, token: str, audience: str, until_ms: int) -> bytes:
        self._asked += 1
        properties = [text(f"cbs5{self._asked}"), NULL, NULL, NULL, text(self.reply_to), *[NULL] * 8]
        about = {
            text("operation"): text("put-token"),
            text("type"): text("servicebus.windows.net:sastoken"),
            text("name"): text(audience),
            text("expiration"): timestamp(until_ms),
        }
        payload = described(0x73, *properties) + b"\x00\x53\x74" + mapping(about) + b"\x00\x53\x77" + text(token)
        return transfer_frame(self.CHANNEL, 0, self._asked - 1, NO_TAG, payload, settled=True)


def sender_attach(channel: int, queue: str) -> bytes:
    name = f"amqp://127.0.0.1/-1f0c2b7a;1:{channel}:7"
    addresses = text(f"{queue}-{uuid.uuid4()}"), text(f"/{queue}")
    return attach_frame(channel, 0, name, False, addresses, (NULL, NULL), delivery_count=uint(0), timeout_ms=59_950)


def receiver_attach(channel: int, queue: str) -> bytes:
    """Peek-lock: the receiver settles second. Credit comes with the first receive."""
    name = f"amqp://127.0.0.1/-1f0c2b7a;1:{channel}:9:source(address:/{queue})"
    addresses = text(f"/{queue}"), text(f"{queue}-{uuid.uuid4()}")
    return attach_frame(channel, 0, name, True, addresses, (NULL, ubyte(1)))


def message(body: bytes, message_id: str) -> bytes:
    properties = described(0x73, text(message_id), *[NULL] * 12)
    return properties + b"\x00\x53\x75" + binary(body)
