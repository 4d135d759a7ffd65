"""How an HTTP connection becomes a WebSocket: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.websocket.handshake import HANDSHAKE_BYTES, Refusal, Upgrade, UpgradeHandshake, is_path

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPTED_KEY = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""Both are from RFC 6455."""


def request(target: bytes = b"/$servicebus/websocket", **headers: bytes | None) -> bytes:
    """With these headers changed; None leaves one out."""
    said: dict[str, bytes | None] = {
        "Host": b"localhost:5671",
        "Upgrade": b"websocket",
        "Connection": b"Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": b"13",
        "Sec-WebSocket-Protocol": b"AMQPWSB10",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [b"%b: %b\r\n" % (name.encode(), value) for name, value in said.items() if value is not None]
    return b"GET %b HTTP/1.1\r\n%b\r\n" % (target, b"".join(lines))


def answered(data: bytes) -> Upgrade | Refusal | None:
    return UpgradeHandshake().receive(data)


TARGETS = [b"/$servicebus/websocket", b"/$servicebus/websocket/", b"/%24ServiceBus/websocket?x=1"]


@pytest.mark.parametrize("name", [b"AMQPWSB10", b"amqp", b"AMQP", b"mqtt, amqp", b"AMQPWSB10, amqp"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_client_of_the_service_is_accepted(name: bytes, target: bytes) -> None:
    found = answered(request(target, Sec_WebSocket_Protocol=name))
    assert isinstance(found, Upgrade)
    status, *lines = found.answer.split(b"\r\n")
    said = {line.partition(b":")[0].lower(): line.partition(b": ")[2] for line in lines}
    assert status.startswith(b"HTTP/1.1 101 ")
    assert said[b"upgrade"] == b"websocket"
    assert said[b"sec-websocket-accept"] == ACCEPTED_KEY
    assert said[b"sec-websocket-protocol"] == next(each for each in name.split(b", ") if each != b"mqtt")
    assert found.rest == b""


def test_compression_is_never_agreed_on() -> None:
    found = answered(request(Sec_WebSocket_Extensions=b"permessage-deflate; client_max_window_bits"))
    assert isinstance(found, Upgrade)
    assert b"deflate" not in found.answer.lower()
    assert b"extensions" not in found.answer.lower()


@given(st.lists(st.integers(1, 80), min_size=1, max_size=40), st.binary(max_size=40))
def test_the_request_may_come_in_pieces_and_frames_right_behind_it(cuts: list[int], rest: bytes) -> None:
    handshake, data, at, turn = UpgradeHandshake(), request() + rest, 0, 0
    found: Upgrade | Refusal | None = None
    while found is None and at < len(data):
        size = cuts[turn % len(cuts)]
        found = handshake.receive(data[at : at + size])
        at, turn = at + size, turn + 1
    assert isinstance(found, Upgrade)
    assert found.rest + data[at:] == rest


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        pytest.param(request(Sec_WebSocket_Protocol=None), 400, id="no subprotocol"),
        pytest.param(request(Sec_WebSocket_Protocol=b"mqtt"), 400, id="another subprotocol"),
        pytest.param(request(b"/$servicebus/websocket/more"), 404, id="another path"),
        pytest.param(request(Sec_WebSocket_Key=None), 400, id="no key"),
        pytest.param(request(Sec_WebSocket_Version=b"8"), 426, id="an old version"),
        pytest.param(request(Upgrade=None), 400, id="no upgrade"),
        pytest.param(request(Upgrade=b"h2c"), 400, id="another upgrade"),
        pytest.param(request(Connection=b"keep-alive"), 400, id="no upgrade of the connection"),
        pytest.param(request(Host=None), 400, id="no host"),
        pytest.param(request(Host=b"\xff\xfe"), 400, id="a host that is no text"),
        pytest.param(request(Connection=b"Upgrade, \xff"), 400, id="a header that is no text"),
        pytest.param(b"GET /$servicebus/websocket\r\n\r\n", 400, id="no version of HTTP"),
        pytest.param(b"get /$servicebus/websocket HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="another method"),
    ],
)
def test_a_refusal_says_why_and_that_the_connection_ends(asked: bytes, status: int) -> None:
    found = answered(asked)
    assert isinstance(found, Refusal)
    head, _, body = found.answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    assert b"Content-Length: %d" % len(body) in head
    assert body.endswith(b".\n")


def test_an_old_version_is_told_the_right_one() -> None:
    found = answered(request(Sec_WebSocket_Version=b"8"))
    assert found is not None
    assert b"sec-websocket-version: 13" in found.answer.lower()


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_head_has_a_bounded_size(is_whole: bool) -> None:
    filler = b"x" * HANDSHAKE_BYTES
    asked = request(X_Filler=filler) if is_whole else request(X_Filler=filler)[:-4]
    found = answered(asked)
    assert isinstance(found, Refusal)
    assert found.answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("target", ["/$servicebus/websocket//", "/$servicebus", "/x/$servicebus/websocket", ""])
def test_only_one_path_is_it(target: str) -> None:
    assert not is_path(target)
