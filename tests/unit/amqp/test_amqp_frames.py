"""Cutting a byte stream into frames."""

from __future__ import annotations

import pytest

from twinbus.amqp.codec.frames import AMQP_HEADER, EMPTY_FRAME, HEADER, SASL_HEADER, FrameReader, frame
from twinbus.errors import FramingError


def bodies(reader: FrameReader, data: bytes) -> list[bytes]:
    reader.feed(data)
    return [buffer[start:end] for _, _, buffer, start, end in reader.frames()]


def started() -> FrameReader:
    reader = FrameReader(1024)
    bodies(reader, AMQP_HEADER)
    return reader


def test_a_header_and_frames_come_out_of_one_piece() -> None:
    assert bodies(FrameReader(1024), AMQP_HEADER + frame(3, b"one") + frame(4, b"")) == [AMQP_HEADER, b"one", b""]


def test_a_frame_that_comes_byte_by_byte_is_given_once_when_it_is_whole() -> None:
    reader = started()
    found = [body for byte in frame(1, b"whole") for body in bodies(reader, bytes([byte]))]
    assert found == [b"whole"]


def test_type_and_channel_are_reported() -> None:
    reader = started()
    reader.feed(frame(513, b"x", 1))
    assert [(kind, channel) for kind, channel, *_ in reader.frames()] == [(1, 513)]


def test_a_second_header_is_taken_where_one_is_expected() -> None:
    reader = FrameReader(1024)
    reader.feed(SASL_HEADER + AMQP_HEADER + frame(0, b"x"))
    kinds = []
    for kind, *_ in reader.frames():
        kinds.append(kind)
        reader.expects_header = len(kinds) == 1
    assert kinds == [HEADER, HEADER, 0]


def test_a_longer_data_offset_is_stepped_over() -> None:
    assert bodies(started(), b"\x00\x00\x00\x0e\x03\x00\x00\x00XXXXab") == [b"ab"]


def test_an_empty_frame_has_no_body() -> None:
    assert bodies(started(), EMPTY_FRAME) == [b""]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x00\x00\x04\x01\x02\x00\x00\x00",
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x03\x00\x00\x00",
        AMQP_HEADER,
    ],
    ids=["size below 8", "size above ours", "size huge", "offset below 2", "offset beyond the frame", "header again"],
)
def test_impossible_frames_are_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        bodies(started(), data)


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\n", b"AM\x00", b"\x16\x03\x01"])
def test_another_protocol_is_recognised_by_its_first_bytes(data: bytes) -> None:
    with pytest.raises(FramingError):
        bodies(FrameReader(1024), data)
