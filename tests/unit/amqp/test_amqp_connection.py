"""Open, close, channels, silence, and peers that break the rules."""

from __future__ import annotations

import pytest
from frame_peer import FramePeer, begin, message, only, opened

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, frame
from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    LinkRole,
    Open,
    Source,
    Target,
)
from twinbus.amqp.codec.types import Described, ULong
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AttachRequested, ConnectionClosed, Opened, SessionBegun, SessionEnded
from twinbus.amqp.limits import ConnectionLimits
from twinbus.errors import OptionsError

BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
FLOW = Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1)


def server(**options: int) -> FramePeer:
    return FramePeer(Connection(role=Role.SERVER, container_id="server", **options))  # type: ignore[arg-type]


def condition_said(wire: FramePeer) -> str:
    close = wire.heard_bodies()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    assert wire.connection.closed
    return close.error.condition


def test_an_open_is_answered_with_our_limits() -> None:
    wire = server(idle_timeout_ms=120_000)
    wire.feed(AMQP_HEADER)
    assert wire.say(Open("peer")) == [Opened(Open("peer"))]
    answer = Open("server", None, 65_536, 1023, 120_000)
    assert wire.heard_bodies() == [AMQP_HEADER, answer]
    assert wire.connection.remote_open == Open("peer")


def test_header_open_begin_and_attach_may_come_in_one_piece() -> None:
    wire = server()
    attach = Attach("l", 0, LinkRole.SENDER, source=Source("s"), target=Target("q"))
    frames = [frame(1, encode_composite(body)) for body in (BEGIN, attach)]
    events = wire.feed(AMQP_HEADER + frame(0, encode_composite(Open("peer"))) + b"".join(frames))
    assert [type(event) for event in events] == [Opened, SessionBegun, AttachRequested]


def test_a_begin_is_answered_with_the_channel_of_the_peer() -> None:
    wire = opened()
    session = only(wire.say(BEGIN, 7), SessionBegun).session
    [(channel, answer)] = wire.heard()
    assert isinstance(answer, Begin)
    assert (channel, answer.remote_channel) == (session.channel, 7)
    assert answer.incoming_window == 5000


def test_a_channel_of_ours_need_not_be_the_one_of_the_peer() -> None:
    client = Connection(role=Role.CLIENT, container_id="client")
    client.open()
    first, second = client.begin(), client.begin()
    wire = FramePeer(client)
    wire.feed(AMQP_HEADER)
    wire.say(Open("server"))
    answer = Begin(remote_channel=second.channel, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
    assert only(wire.say(answer, 5), SessionBegun).session is second
    answer = Begin(remote_channel=first.channel, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
    assert only(wire.say(answer, 4), SessionBegun).session is first
    assert only(wire.say(End(), 5), SessionEnded).session is second
    assert client.sessions == [first]


def test_an_end_is_answered_and_frees_the_channel() -> None:
    wire = opened()
    session = begin(wire, 3)
    error = Error("amqp:internal-error", "gone")
    assert wire.say(End(error), 3) == [SessionEnded(session, error)]
    assert wire.heard() == [(session.channel, End())]
    assert begin(wire, 3) is not session


def test_frames_after_the_end_and_on_unknown_channels_are_let_pass() -> None:
    wire = opened()
    begin(wire, 1)
    wire.say(End(), 1)
    for body in (Detach(0, True), FLOW, End(), message(1), Attach("l", 0, LinkRole.SENDER)):
        assert wire.say(body, 1, b"payload" if body == message(1) else b"") == []
    assert not wire.connection.closed


def test_our_own_end_waits_for_the_answer() -> None:
    wire = opened()
    session = begin(wire, 1)
    session.end(Error("amqp:internal-error"))
    assert wire.heard_bodies() == [End(Error("amqp:internal-error"))]
    assert wire.say(FLOW, 1) == []
    assert wire.say(End(), 1) == [SessionEnded(session, None)]
    assert wire.heard_bodies() == []


def test_a_close_is_answered_and_is_the_last_event() -> None:
    wire = opened()
    assert wire.say(Close(Error("amqp:internal-error"))) == [ConnectionClosed(Error("amqp:internal-error"))]
    assert wire.heard_bodies() == [Close()]
    assert wire.connection.closed
    assert wire.say(Open("again")) == []


def test_our_close_is_done_when_the_peer_has_answered() -> None:
    wire = opened()
    begin(wire)
    wire.connection.close(Error("amqp:connection:forced", "shutting down"))
    assert wire.heard_bodies() == [Close(Error("amqp:connection:forced", "shutting down"))]
    assert wire.say(message(1), 0, b"late") == []
    assert not wire.connection.closed
    assert wire.say(Close()) == [ConnectionClosed(None)]
    assert wire.connection.closed
    assert wire.heard_bodies() == []


def test_our_close_does_not_wait_for_ever() -> None:
    wire = opened()
    wire.connection.close()
    assert wire.connection.next_tick_ms() == 10_000
    assert wire.connection.tick(9_999) == []
    assert wire.connection.tick(10_000) == [ConnectionClosed(None)]
    assert wire.connection.closed


def test_silence_beyond_our_idle_time_out_closes_the_connection() -> None:
    wire = opened(idle_timeout_ms=60_000)
    wire.now_ms = 1_000
    wire.feed(EMPTY_FRAME)
    assert wire.connection.next_tick_ms() == 61_001
    assert wire.connection.tick(61_000) == []
    only(wire.connection.tick(61_001), ConnectionClosed)
    assert condition_said(wire) == "amqp:resource-limit-exceeded"
    assert wire.connection.next_tick_ms() is None


def test_a_peer_that_never_says_a_word_is_given_up() -> None:
    connection = Connection(role=Role.SERVER, container_id="server", idle_timeout_ms=60_000)
    assert connection.next_tick_ms() == 0
    assert connection.tick(5) == []
    assert connection.next_tick_ms() == 60_006
    only(connection.tick(60_006), ConnectionClosed)
    assert connection.take_output() == b""


def test_empty_frames_go_out_at_half_the_time_the_peer_asked_for() -> None:
    wire = opened(peer=Open("peer", idle_time_out=60_000))
    assert wire.connection.next_tick_ms() == 30_000
    wire.connection.tick(29_999)
    assert wire.connection.take_output() == b""
    wire.connection.tick(30_000)
    assert wire.connection.take_output() == EMPTY_FRAME
    assert wire.connection.next_tick_ms() == 60_000


def test_other_frames_make_empty_frames_unnecessary() -> None:
    wire = opened(peer=Open("peer", idle_time_out=60_000))
    wire.now_ms = 20_000
    wire.say(BEGIN)
    wire.heard()
    wire.connection.tick(30_000)
    assert wire.connection.take_output() == b""
    assert wire.connection.next_tick_ms() == 50_000


def test_no_empty_frames_are_sent_to_a_peer_that_asked_for_none() -> None:
    wire = opened(idle_timeout_ms=0)
    assert wire.connection.next_tick_ms() is None
    assert wire.connection.tick(10**9) == []
    assert wire.connection.take_output() == b""


def nested_list(depth: int) -> bytes:
    body = b"\x45"
    for _ in range(depth):
        body = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + body
    return body


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (frame(0, b"", 7), "amqp:connection:framing-error"),
        (frame(0, b"\x00\x53\x41\x45", SASL_FRAME), "amqp:connection:framing-error"),
        (frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (frame(0, b"garbage"), "amqp:decode-error"),
        (frame(0, b"\x00"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x11" + nested_list(500)), "amqp:decode-error"),
        (frame(0, encode(Described(ULong(0x11), ["no", "numbers", "here"]))), "amqp:decode-error"),
        (frame(0, encode_composite(Open("peer"))), "amqp:illegal-state"),
        (frame(0, encode_composite(Close())[:3] + b"\xc0\x7f\x01\x40"), "amqp:decode-error"),
        (frame(2000, encode_composite(BEGIN)), "amqp:connection:framing-error"),
    ],
    ids=[
        "frame too small", "frame too large", "offset too small", "unknown frame type", "sasl after open",
        "unknown performative", "garbage", "one byte", "deep nesting", "wrong types", "open twice",
        "list beyond the frame", "channel above channel-max",
    ],
)  # fmt: skip
def test_a_broken_frame_is_answered_with_a_close_that_says_why(data: bytes, condition: str) -> None:
    wire = opened()
    closed = only(wire.feed(data), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == condition
    assert condition_said(wire) == condition
    assert wire.feed(data) == []


def test_a_close_for_a_mistake_before_the_open_follows_our_open() -> None:
    wire = server()
    wire.feed(AMQP_HEADER)
    wire.say(BEGIN)
    assert [type(body) for body in wire.heard_bodies()] == [bytes, Open, Close]


def test_an_open_with_frames_too_small_to_use_is_refused() -> None:
    wire = server()
    wire.feed(AMQP_HEADER)
    wire.say(Open("peer", max_frame_size=511))
    assert condition_said(wire) == "amqp:invalid-field"


def test_a_channel_cannot_be_begun_twice() -> None:
    wire = opened()
    begin(wire, 1)
    wire.say(BEGIN, 1)
    assert condition_said(wire) == "amqp:not-allowed"


def test_a_begin_that_answers_nothing_is_a_mistake() -> None:
    wire = opened()
    wire.say(Begin(remote_channel=9, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    assert condition_said(wire) == "amqp:not-allowed"


def test_what_came_before_the_mistake_still_counts() -> None:
    wire = opened()
    events = wire.feed(frame(0, encode_composite(BEGIN)) + b"\xff" * 8)
    assert [type(event) for event in events] == [SessionBegun, ConnectionClosed]


def test_too_many_links_end_the_session_that_asked_for_them() -> None:
    wire = opened(ConnectionLimits(links_max=2))
    first, second = begin(wire, 0), begin(wire, 1)
    for handle in range(2):
        wire.say(Attach(f"l{handle}", handle, LinkRole.SENDER), 0)
    ended = only(wire.say(Attach("one more", 0, LinkRole.SENDER), 1), SessionEnded)
    assert ended.session is second
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    assert not first.ended
    wire.say(End(), 0)
    third = begin(wire, 2)
    wire.say(Attach("room again", 0, LinkRole.SENDER), 2)
    assert len(third.links) == 1


def test_limits_that_make_no_sense_are_refused_together() -> None:
    with pytest.raises(OptionsError, match=r"frame_bytes_max.*; sessions_max"):
        ConnectionLimits(frame_bytes_max=100, sessions_max=0)
