"""AMQP bytes in WebSocket messages: a stream, whatever the frames are; nothing is kept, nothing piles up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from twinbus.websocket.framing import MESSAGE_BYTES, WebSocketFraming

ENDLESS = 1_000_000


def client() -> Connection:
    return Connection(ConnectionType.CLIENT)


def heard_by(peer: Connection, data: bytes) -> list[Event]:
    peer.receive_data(data)
    return list(peer.events())


def bytes_in(events: list[Event]) -> bytes:
    return b"".join(bytes(event.data) for event in events if isinstance(event, BytesMessage))


FRAMES = st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 5))
def test_messages_fragments_and_pieces_of_frames_are_one_stream(
    frames: list[tuple[bytes, bool]], cuts: list[int], frames_max: int
) -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    sent = b"".join(peer.send(BytesMessage(data=data, message_finished=is_last)) for data, is_last in frames)
    heard, at, turn = b"", 0, 0
    while at < len(sent):
        size = cuts[turn % len(cuts)]
        framing.receive(sent[at : at + size])
        at, turn = at + size, turn + 1
        while True:
            taken = framing.take(frames_max)
            heard += taken.payload
            assert taken.answer == b""
            if not taken.has_more:
                break
    assert heard == b"".join(data for data, _ in frames)
    assert not framing.has_ended


@given(st.lists(st.integers(0, 3 * MESSAGE_BYTES), max_size=4))
def test_what_is_sent_arrives_in_messages_of_bounded_size(sizes: list[int]) -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    sent = [bytes((number,)) * size for number, size in enumerate(sizes)]
    events = heard_by(peer, b"".join(map(framing.wrap, sent)))
    assert bytes_in(events) == b"".join(sent)
    assert all(isinstance(event, BytesMessage) and len(event.data) <= MESSAGE_BYTES for event in events)


def test_a_huge_frame_is_passed_on_piece_by_piece() -> None:
    framing = WebSocketFraming.of_server()
    framing.receive(b"\x82\xff\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00")  # 64 GiB are announced
    framing.take(ENDLESS)
    framing.receive(b"x" * 100)
    assert framing.take(ENDLESS).payload == b"x" * 100


def test_a_step_takes_no_more_frames_than_it_may() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(b"".join(peer.send(BytesMessage(data=b"%d" % number)) for number in range(5)))
    found = [framing.take(2) for _ in range(3)]
    assert [taken.payload for taken in found] == [b"01", b"23", b"4"]
    assert [taken.has_more for taken in found] == [True, True, False]


def test_of_many_pings_the_latest_is_answered() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(b"".join(peer.send(Ping(payload=b"%d" % number)) for number in range(1000)))
    assert heard_by(peer, framing.take(ENDLESS).answer) == [Pong(payload=b"999")]


def test_a_pong_that_nobody_asked_for_changes_nothing() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(peer.send(Pong(payload=b"x")) + peer.send(BytesMessage(data=b"amqp")))
    assert framing.take(ENDLESS) == (b"amqp", b"", False)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        pytest.param(b"\x82\x05amqp!", 1002, id="not masked"),
        pytest.param(b"\xc2\x81\x00\x00\x00\x00x", 1002, id="a reserved bit"),
        pytest.param(b"\x83\x81\x00\x00\x00\x00x", 1002, id="an unknown kind"),
        pytest.param(b"\x80\x81\x00\x00\x00\x00x", 1002, id="a continuation of nothing"),
        pytest.param(b"\x09\x80\x00\x00\x00\x00", 1002, id="a ping in fragments"),
        pytest.param(b"\x89\xfe\x00\x80\x00\x00\x00\x00", 1002, id="a long ping"),
        pytest.param(b"\x82\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 1002, id="a negative length"),
        pytest.param(b"\x82\xfe\x00\x01\x00\x00\x00\x00x", 1002, id="a length written too long"),
        pytest.param(b"\x88\x81\x00\x00\x00\x00x", 1002, id="half a code"),
        pytest.param(b"\x81\x82\x00\x00\x00\x00hi", 1003, id="text"),
        pytest.param(b"\x01\x82\x00\x00\x00\x00hi", 1003, id="the beginning of a text"),
    ],
)
def test_what_a_peer_must_not_send_ends_the_connection_with_the_reason(frame: bytes, code: int) -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(peer.send(BytesMessage(data=b"before")) + frame + peer.send(BytesMessage(data=b"behind")))
    taken = framing.take(ENDLESS)
    assert taken.payload == b"before"
    (closed,) = heard_by(peer, taken.answer)
    assert isinstance(closed, CloseConnection)
    assert closed.code == code
    assert framing.has_ended
    assert not framing.is_open


def test_a_close_is_answered_and_nothing_is_said_or_heard_after_it() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(peer.send(BytesMessage(data=b"last")) + peer.send(CloseConnection(code=1001)))
    taken = framing.take(ENDLESS)
    assert taken.payload == b"last"
    assert heard_by(peer, taken.answer) == [CloseConnection(code=1001, reason="")]
    assert framing.wrap(b"too late") == b""
    assert framing.close() == b""
    framing.receive(b"\x82\x81\x00\x00\x00\x00x")
    assert framing.take(ENDLESS) == (b"", b"", False)


def test_a_close_without_a_code_is_answered_with_the_normal_one() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(b"\x88\x80\x00\x00\x00\x00")
    assert heard_by(peer, framing.take(ENDLESS).answer) == [CloseConnection(code=1000, reason="")]


def test_after_our_close_only_the_answer_is_awaited() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    said = framing.close()
    assert heard_by(peer, said) == [CloseConnection(code=1000, reason="")]
    assert framing.wrap(b"too late") == b""
    framing.receive(peer.send(CloseConnection(code=1000)))
    assert framing.take(ENDLESS) == (b"", b"", False)
    assert framing.has_ended


def test_a_ping_after_our_close_is_not_answered() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.close()
    framing.receive(peer.send(Ping(payload=b"x")))
    assert framing.take(ENDLESS).answer == b""


def test_a_text_is_refused_although_it_comes_first() -> None:
    peer, framing = client(), WebSocketFraming.of_server()
    framing.receive(peer.send(TextMessage(data="AMQP")))
    assert framing.take(ENDLESS).payload == b""
    assert framing.has_ended
