"""Reports: bounded in size, and without secrets."""

from __future__ import annotations

from contextlib import suppress

import pytest
from board_scene import failed_over, report
from hypothesis import given
from hypothesis import strategies as st

from twinbus.board.message import encode_post, read_post
from twinbus.board.report import (
    REPORT_BYTES_MAX,
    EntityFinding,
    ReportedState,
    decode_report,
    encode_report,
    listed,
    said,
)
from twinbus.errors import DecodeError


@given(st.integers(0, 3_000), st.integers(1, 260))
def test_however_many_entities_there_are_a_report_fits(count: int, length: int) -> None:
    findings = [EntityFinding(entity=f"{number:05}".ljust(length, "\N{SNOWMAN}")[:260]) for number in range(count)]
    entities, left_out = listed([*findings, failed_over(reason="\N{SNOWMAN}" * 200)])
    assert entities[0].state is ReportedState.FAILED_OVER  # trouble first
    assert len(entities) + sum(left_out.values()) == count + 1
    body = encode_report(report(entities=entities, left_out=left_out))
    assert len(body) <= REPORT_BYTES_MAX
    assert decode_report(body).entities == entities


@given(st.binary(max_size=2_000))
def test_whatever_lies_on_a_board_is_a_report_or_a_decode_error(body: bytes) -> None:
    with suppress(DecodeError):
        decode_report(body)


def test_a_reason_with_a_key_in_it_is_said_without() -> None:
    text = said("Endpoint=sb://x;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0 failed\nagain")
    assert "c2VjcmV0" not in text
    assert "\n" not in text


def test_a_report_survives_its_way_as_a_message() -> None:
    sent = report("a", 3, entities=(failed_over(),))
    message = encode_post(sent, encode_report(sent))
    post = read_post(message, 9, 1_000)
    assert (decode_report(post.body), post.sequence) == (sent, 9)


@pytest.mark.parametrize("message", [b"", b"\x00", b"x" * 1_000_000])
def test_a_message_that_is_none_has_no_body(message: bytes) -> None:
    assert read_post(message, 1, 1).body == b""
