"""The first bytes of a connection, and what they tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.namespace.sniff import Language, language_of


@pytest.mark.parametrize(
    ("first", "language"),
    [
        (b"AMQP\x00\x01\x00\x00", Language.AMQP),
        (b"AMQP", Language.AMQP),
        (b"\x16\x03\x01\x02\x00", Language.TLS),
        (b"\x16", Language.TLS),
        (b"GET / HTTP/1.1\r\n", Language.HTTP),
        (b"P", Language.HTTP),
        (b"AMQ/1", Language.HTTP),
        (b"ACL /", Language.HTTP),
        (b"put", Language.HTTP),
        (b"\x00\x00\x00\x08", Language.UNKNOWN),
        (b"\x80\x2e\x01", Language.UNKNOWN),
        (b" GET", Language.UNKNOWN),
        (b"\xc3\xa9", Language.UNKNOWN),
        (b"", None),
        (b"A", None),
        (b"AMQ", None),
    ],
)
def test_a_language_is_known_by_its_first_bytes(first: bytes, language: Language | None) -> None:
    assert language_of(first) is language


@given(st.binary() | st.binary().map(b"AMQ".__add__))
def test_what_was_recognised_stays_so_whatever_follows(data: bytes) -> None:
    known = [language_of(data[:length]) for length in range(len(data) + 1)]
    decided = [language for language in known if language is not None]
    assert len(set(decided)) <= 1
    assert known == [None] * (len(known) - len(decided)) + decided


@given(st.binary(min_size=4))
def test_four_bytes_are_enough(data: bytes) -> None:
    assert language_of(data[:4]) is language_of(data) is not None
