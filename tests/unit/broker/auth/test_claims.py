"""What a claim is about, and what a connection may do with those it has."""

from __future__ import annotations

import pytest

from twinbus.broker.auth.claims import CLAIMS_MAX, FOR_EVER_MS, Claim, ClaimBook, resource_path
from twinbus.broker.operations import Right
from twinbus.errors import QuotaExceeded, Unauthorized

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE


def claim(resource: str, *rights: Right, until_ms: int = 1_000) -> Claim:
    return Claim(resource, frozenset(rights or {SEND}), until_ms)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sb://host:5672/Orders", "orders"),
        ("amqps://host/orders/", "orders"),
        ("https://host:5672", ""),
        ("https://host:5672/", ""),
        ("http://host/a/b?api-version=2021-05&enrich=false", "a/b"),
        ("https://host:1/$resources/queues?$skip=0&$top=100", "$resources/queues"),
        ("https://host/a%2Fb#x", "a/b"),
        ("host:5672", ""),
        ("[::1]:5672/orders", "orders"),
        ("/orders", "orders"),
        ("orders", "orders"),
        ("contoso.servicebus.windows.net", "contoso.servicebus.windows.net"),
        ("", ""),
        ("://", ""),
    ],
)
def test_the_resource_in_an_address(uri: str, expected: str) -> None:
    assert resource_path(uri) == expected


@pytest.mark.parametrize("path", ["orders", "ORDERS", "/orders/", "orders/$management", "orders/$DeadLetterQueue"])
def test_a_claim_holds_for_an_entity_and_what_is_below(path: str) -> None:
    assert claim("orders").allows(path, SEND, 0)
    assert claim("").allows(path, SEND, 0)


@pytest.mark.parametrize("path", ["orders2", "order", "", "other/orders", "orders-eu/x"])
def test_a_claim_ends_where_a_name_does(path: str) -> None:
    assert not claim("orders").allows(path, SEND, 0)


def test_a_claim_for_one_entity_ends_where_another_entity_begins() -> None:
    one = Claim("orders", frozenset({SEND}), 1_000, is_for_one_entity=True)
    for path in ("orders", "Orders/$DeadLetterQueue", "orders/$management", "orders/$deadletterqueue/$management"):
        assert one.allows(path, SEND, 0)
    for path in ("orders/eu", "orders/eu/$management", ""):
        assert not one.allows(path, SEND, 0)
        assert not one.covers(path, 0)
    assert claim("orders").allows("orders/eu", SEND, 0), "a key of the namespace opens all that is below"


def test_a_claim_gives_its_rights_until_its_time() -> None:
    assert not claim("orders").allows("orders", LISTEN, 0)
    assert claim("orders", MANAGE).allows("orders", LISTEN, 0)
    assert claim("orders").allows("orders", SEND, 999)
    assert not claim("orders").allows("orders", SEND, 1_000)


# --- of a connection ---


def test_nothing_is_allowed_before_a_token_was_put() -> None:
    with pytest.raises(Unauthorized, match=r"no valid token for 'orders'.*'Listen'"):
        ClaimBook().check("orders", LISTEN, 0)
    with pytest.raises(Unauthorized, match="no valid token for 'orders'"):
        ClaimBook().check("orders", None, 0)


def test_a_missing_right_is_named_with_its_entity() -> None:
    claims = ClaimBook()
    claims.add(claim("orders"), 0)
    claims.check("orders", SEND, 0)
    claims.check("orders", None, 0)
    with pytest.raises(Unauthorized, match=r"'orders' does not give the right 'Listen'"):
        claims.check("orders", LISTEN, 0)


def test_tokens_for_several_entities_are_held_side_by_side() -> None:
    claims = ClaimBook()
    claims.add(claim("a", SEND), 0)
    claims.add(claim("b", LISTEN, until_ms=2_000), 0)
    assert claims.has("a", SEND, 0)
    assert claims.has("b", LISTEN, 0)
    assert not claims.has("b", SEND, 0)
    assert claims.review_ms == 1_000
    claims.finish_review(1_000)
    assert claims.review_ms == 2_000
    claims.finish_review(2_000)
    assert claims.review_ms is None


def test_a_token_that_is_put_again_goes_on() -> None:
    claims = ClaimBook()
    claims.add(claim("a"), 0)
    claims.add(claim("a", until_ms=9_000), 500)
    assert claims.review_ms == 1_000
    assert claims.has("a", SEND, 1_000)
    claims.finish_review(1_000)
    assert claims.review_ms == 9_000


def test_a_token_with_fewer_rights_calls_for_a_review_at_once() -> None:
    """Else a link would outlive the token that had opened it."""
    claims = ClaimBook()
    claims.add(claim("a", MANAGE), 0)
    claims.add(claim("a", LISTEN, until_ms=9_000), 500)
    assert claims.review_ms == 500
    assert not claims.has("a", SEND, 500)


def test_a_token_for_less_calls_for_a_review_at_once() -> None:
    claims = ClaimBook()
    claims.add(claim("a", SEND), 0)
    claims.add(Claim("a", frozenset({SEND}), 9_000, is_for_one_entity=True), 500)
    assert claims.review_ms == 500
    assert not claims.has("a/b", SEND, 500)


def test_a_token_with_the_same_rights_in_other_words_does_not() -> None:
    claims = ClaimBook()
    claims.add(claim("a", MANAGE), 0)
    claims.add(claim("a", *Right), 500)
    assert claims.review_ms == 1_000


def test_who_came_in_with_a_key_needs_no_token_and_loses_nothing() -> None:
    claims = ClaimBook()
    claims.set_login(Claim("", frozenset({LISTEN}), FOR_EVER_MS))
    assert claims.has("anything", LISTEN, 10**15)
    assert claims.review_ms is None
    claims.add(claim("", SEND), 0)
    claims.finish_review(1_000)
    assert claims.has("anything", LISTEN, 1_000)
    assert not claims.has("anything", SEND, 1_000)


def test_a_connection_holds_a_bounded_number_of_tokens() -> None:
    claims = ClaimBook()
    for number in range(CLAIMS_MAX):
        claims.add(claim(f"q{number}"), 0)
    with pytest.raises(QuotaExceeded, match="1000"):
        claims.add(claim("one-more"), 0)
    claims.add(claim("q7", until_ms=5_000), 0)
    claims.add(claim("one-more", until_ms=5_000), 1_000)
    assert claims.has("one-more", SEND, 1_000)
    assert claims.has("q7", SEND, 1_000)
