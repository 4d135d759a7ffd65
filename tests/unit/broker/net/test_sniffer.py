"""The first bytes of a connection, and the protocol they show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.broker.net.sniffer import ConnectionProtocol, protocol_of


@pytest.mark.parametrize(
    ("first", "language"),
    [
        (b"AMQP\x00\x01\x00\x00", ConnectionProtocol.AMQP),
        (b"AMQP", ConnectionProtocol.AMQP),
        (b"\x16\x03\x01\x02\x00", ConnectionProtocol.TLS),
        (b"\x16", ConnectionProtocol.TLS),
        (b"GET / HTTP/1.1\r\n", ConnectionProtocol.HTTP),
        (b"P", ConnectionProtocol.HTTP),
        (b"AMQ/1", ConnectionProtocol.HTTP),
        (b"ACL /", ConnectionProtocol.HTTP),
        (b"put", ConnectionProtocol.HTTP),
        (b"\x00\x00\x00\x08", ConnectionProtocol.UNKNOWN),
        (b"\x80\x2e\x01", ConnectionProtocol.UNKNOWN),
        (b" GET", ConnectionProtocol.UNKNOWN),
        (b"\xc3\xa9", ConnectionProtocol.UNKNOWN),
        (b"GET /$servicebus/websocket HTTP/1.1\r\n", ConnectionProtocol.WEBSOCKET),
        (b"GET /$servicebus/websocket/ HTTP/1.1\r\n", ConnectionProtocol.WEBSOCKET),
        (b"GET /%24ServiceBus/WebSocket?x=1", ConnectionProtocol.WEBSOCKET),
        (b"GET https://localhost:5671/$servicebus/websocket HTTP/1.1\r\n", ConnectionProtocol.WEBSOCKET),
        (b"GET http://localhost/%24ServiceBus/WebSocket?x=1", ConnectionProtocol.WEBSOCKET),
        (b"GET https://localhost/$servicebus/web", None),
        (b"GET https://" + b"a" * 261, None),
        (b"GET https://" + b"a" * 262, ConnectionProtocol.HTTP),
        (b"GET https://localhost HTTP/1.1\r\n", ConnectionProtocol.HTTP),
        (b"GET https://localhost/$Resources", ConnectionProtocol.HTTP),
        (b"GET ht", None),
        (b"GET /$servicebus/websockets", ConnectionProtocol.HTTP),
        (b"GET /$Resources/queues", ConnectionProtocol.HTTP),
        (b"PUT /$servicebus/websocket HTTP/1.1\r\n", ConnectionProtocol.HTTP),
        (b"GET\x00", ConnectionProtocol.HTTP),
        (b"GET /$servicebus/websocket", None),
        (b"G", None),
        (b"", None),
        (b"A", None),
        (b"AMQ", None),
    ],
)
def test_a_language_is_known_by_its_first_bytes(first: bytes, language: ConnectionProtocol | None) -> None:
    assert protocol_of(first) is language


@given(st.binary() | st.binary().map(b"AMQ".__add__) | st.binary(max_size=3).map(b"GET /$servicebus/websocket".__add__))
def test_what_was_recognised_stays_so_whatever_follows(data: bytes) -> None:
    known = [protocol_of(data[:length]) for length in range(len(data) + 1)]
    decided = [language for language in known if language is not None]
    assert len(set(decided)) <= 1
    assert known == [None] * (len(known) - len(decided)) + decided


@given(st.binary(min_size=29) | st.binary(min_size=3).map(b"GET /$servicebus/websocket".__add__))
def test_29_bytes_are_enough(data: bytes) -> None:
    assert protocol_of(data[:29]) is protocol_of(data) is not None
