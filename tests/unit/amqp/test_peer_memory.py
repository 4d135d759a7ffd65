"""What is kept for a peer is counted, and goes when it is not kept any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.decoding import count_elements, decode
from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import Int
from twinbus.amqp.peer_memory import Account, AccountPool
from twinbus.errors import DecodeError


def test_a_pool_holds_what_its_accounts_hold() -> None:
    pool = AccountPool(100)
    one, two = Account(1000, pool), Account(1000, pool)
    one.charge(60)
    two.queue(50)
    assert (pool.held, pool.is_over) == (110, True)
    assert pool.largest() is one
    one.leave()
    assert (pool.held, pool.is_over, pool.largest()) == (50, False, two)


def test_what_is_charged_after_leaving_is_no_longer_the_pools() -> None:
    pool = AccountPool(100)
    account = Account(1000, pool)
    account.charge(10)
    account.leave()
    account.release(10)
    account.leave()
    assert pool.held == 0


def test_an_account_takes_what_it_holds_along_to_another_pool() -> None:
    unauthenticated, known = AccountPool(100), AccountPool(1000)
    account = Account(50, unauthenticated)
    account.charge(60)
    assert account.is_over
    account.move(500, known)
    assert not account.is_over
    assert (unauthenticated.held, known.held) == (0, 60)


def test_only_what_the_peer_can_take_chokes_it() -> None:
    account = Account(100)
    account.charge(90)
    assert not account.is_choked
    account.queue(51)
    assert account.is_choked
    account.queue(-51)
    assert (account.held, account.is_choked) == (90, False)


# --- how much a value is, before it is built ---

SIMPLE = st.one_of(st.none(), st.booleans(), st.integers(-100, 100), st.text(max_size=5), st.binary(max_size=5))
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=30,
)


def elements_in(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(elements_in(item) for item in value)
    if isinstance(value, dict):
        return 1 + sum(elements_in(item) for pair in value.items() for item in pair)
    return 1


@given(VALUES)
def test_elements_are_counted_as_they_would_be_built(value: object) -> None:
    data = encode(value)
    assert count_elements(data, 0, 10_000) == elements_in(decode(data)[0])


@given(st.integers(1, 300))
def test_more_elements_than_allowed_are_refused(size: int) -> None:
    data = encode([[] for _ in range(size)])
    assert count_elements(data, 0, size + 1) == size + 1
    with pytest.raises(DecodeError, match="more than"):
        count_elements(data, 0, size)


def test_items_of_arrays_count_too_also_those_without_width() -> None:
    assert count_elements(encode(Array([Int(1)] * 100)), 0, 1000) == 101
    with pytest.raises(DecodeError, match="more than"):
        count_elements(b"\xf0\x00\x00\x00\x05\x00\x00\xff\xff\x45", 0, 1000)


@given(st.binary(max_size=60))
def test_any_bytes_are_counted_or_refused(data: bytes) -> None:
    try:
        counted = count_elements(data, 0, 1000)
    except DecodeError:
        return
    assert 1 <= counted <= 1000
