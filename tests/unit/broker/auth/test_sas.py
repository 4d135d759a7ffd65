"""Shared access signatures of every producer, and everything that is wrong with some."""

from __future__ import annotations

import hmac

import pytest
from token_makers import PRODUCERS, bare_token, js_http_token, js_token, python_token

from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import TOKEN_LENGTH_MAX, Authority
from twinbus.broker.auth.claims import Claim
from twinbus.broker.operations import Right
from twinbus.errors import Unauthorized

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
NOW_MS = 1_700_000_000_000
UNTIL_S = 1_700_003_600
HOST = "sb://127.0.0.1:5672"

ROOT = AccessRule("RootManageSharedAccessKey", frozenset({MANAGE}), "root+key/=", "root2")
READER = AccessRule("reader", frozenset({LISTEN}), "reader-key")
ODD = AccessRule("a+b%20c/ü".replace("ü", "&"), frozenset({SEND}), "odd-key")
ON_ORDERS = AccessRule("app", frozenset({SEND}), "app-key")
ALSO_READER = AccessRule("reader", frozenset({SEND}), "own-key")

AUTHORITY = Authority(
    RuleBook((ROOT, READER, ODD), lambda path: (ON_ORDERS, ALSO_READER) if path == "orders" else ()),
)


def check(token: str, audience: str = f"{HOST}/orders", now_ms: int = NOW_MS) -> Claim:
    return AUTHORITY.check_token(token, audience, now_ms)


def refusal(token: str, audience: str = f"{HOST}/orders", now_ms: int = NOW_MS) -> str:
    with pytest.raises(Unauthorized) as refused:
        check(token, audience, now_ms)
    text = str(refused.value)
    assert "\n" not in text
    assert "key/=" not in text
    return text


@pytest.mark.parametrize("make", PRODUCERS.values(), ids=PRODUCERS)
@pytest.mark.parametrize("key", ROOT.keys)
def test_every_producers_token_is_read_with_either_key(make: object, key: str) -> None:
    assert callable(make)
    claim = check(make(f"{HOST}/orders", ROOT.name, key, UNTIL_S))
    assert claim == Claim("orders", frozenset(Right), UNTIL_S * 1000)


@pytest.mark.parametrize("make", [python_token, js_token])
def test_odd_names_of_rules_survive_being_encoded_once_or_twice(make: object) -> None:
    assert callable(make)
    assert check(make(f"{HOST}/orders", ODD.name, "odd-key", UNTIL_S)).rights == {SEND}


@pytest.mark.parametrize(
    "resource",
    [
        f"{HOST}/orders", f"{HOST}/ORDERS/", f"{HOST}/", HOST, "amqps://other-name/orders", "https://127.0.0.1:5672",
        "http://x/orders", "127.0.0.1:5672", "127.0.0.1:5672/orders", "orders", "/orders",
        "https://127.0.0.1:5672/orders?api-version=2021-05",
    ],
)  # fmt: skip
def test_a_token_is_good_for_its_resource_and_all_below(resource: str) -> None:
    assert check(python_token(resource, "reader", "reader-key", UNTIL_S)).resource == "orders"
    below = f"{HOST}/orders/$management"
    assert check(python_token(resource, "reader", "reader-key", UNTIL_S), below).resource == "orders/$management"


@pytest.mark.parametrize(
    "resource", [f"{HOST}/order", f"{HOST}/orders2", f"{HOST}/orders/$management", f"{HOST}/other", "127.0.0.1", "or"]
)
def test_a_token_is_good_for_nothing_else(resource: str) -> None:
    assert "another resource" in refusal(python_token(resource, "reader", "reader-key", UNTIL_S))


def test_a_token_for_an_entity_is_not_one_for_the_namespace() -> None:
    token = python_token(f"{HOST}/orders", ROOT.name, "root2", UNTIL_S)
    for audience in (HOST, f"{HOST}/", "", "orders:1", "sb://orders"):
        assert "another resource than '/'" in refusal(token, audience)


def test_a_token_ends() -> None:
    token = python_token(f"{HOST}/orders", "reader", "reader-key", UNTIL_S)
    assert check(token, now_ms=UNTIL_S * 1000 - 1).until_ms == UNTIL_S * 1000
    assert refusal(token, now_ms=UNTIL_S * 1000) == "the token has expired"


def test_the_wrong_key_is_refused() -> None:
    for key in ("reader-kez", "root2", "x"):
        assert "does not fit" in refusal(python_token(f"{HOST}/orders", "reader", key, UNTIL_S))


@pytest.mark.parametrize("name", ["writer", "Reader", "", "RootManageSharedAccessKe", "app"])
def test_an_unknown_rule_is_refused_like_a_wrong_key(name: str) -> None:
    wrong_key = refusal(python_token(f"{HOST}/other", "reader", "x", UNTIL_S), f"{HOST}/other")
    unknown_rule = refusal(python_token(f"{HOST}/other", name or "-", "reader-key", UNTIL_S), f"{HOST}/other")
    assert unknown_rule == wrong_key


@pytest.mark.parametrize("name", ["nobody", "reader", ROOT.name, "app"])
def test_every_name_costs_as_many_signatures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    real = hmac.new

    def note(key: bytes, signed: bytes, algorithm: str) -> hmac.HMAC:
        made.append(key)
        return real(key, signed, algorithm)

    token = python_token(f"{HOST}/orders", name, "wrong", UNTIL_S)
    monkeypatch.setattr(hmac, "new", note)
    refusal(token)
    assert len(made) == 4


# --- rules of an entity ---


def test_a_rule_of_an_entity_opens_that_entity_and_what_is_below() -> None:
    token = js_token(f"{HOST}/orders", "app", "app-key", UNTIL_S)
    assert check(token) == Claim("orders", frozenset({SEND}), UNTIL_S * 1000, is_for_one_entity=True)
    assert check(token, f"{HOST}/orders/$management").resource == "orders/$management"
    assert not check(token).allows("orders/eu", SEND, NOW_MS)


def test_a_rule_of_an_entity_opens_nothing_else_even_if_its_token_says_so() -> None:
    token = js_token(HOST, "app", "app-key", UNTIL_S)
    assert check(token).resource == "orders", "whoever holds the key could have made a narrower token"
    for audience in (HOST, f"{HOST}/", f"{HOST}/other", f"{HOST}/orders2", f"{HOST}/orders/eu"):
        assert "does not fit" in refusal(token, audience)


def test_a_rule_of_an_entity_makes_and_deletes_no_entity_below_it() -> None:
    manager = AccessRule("owner", frozenset({MANAGE}), "owner-key")
    authority = Authority(RuleBook((ROOT,), lambda path: (manager,) if path == "orders" else ()))
    own, root = (
        js_http_token(f"{HOST}/orders", name, key, UNTIL_S)
        for name, key in (("owner", "owner-key"), (ROOT.name, "root2"))
    )
    authority.authorize_http(own, "orders", MANAGE, NOW_MS)
    authority.authorize_http(root, "orders/eu", MANAGE, NOW_MS)
    with pytest.raises(Unauthorized, match="does not fit"):
        authority.authorize_http(own, "orders/eu", MANAGE, NOW_MS)


def test_a_rule_that_namespace_and_entity_share_opens_what_the_namespaces_opens() -> None:
    authority = Authority(RuleBook((READER,), lambda _: (READER,)))
    token = js_token(f"{HOST}/orders", "reader", "reader-key", UNTIL_S)
    assert authority.check_token(token, f"{HOST}/orders", NOW_MS).allows("orders/eu", LISTEN, NOW_MS)


def test_equal_names_on_namespace_and_entity_are_two_rules() -> None:
    assert check(js_token(f"{HOST}/orders", "reader", "own-key", UNTIL_S)).rights == {SEND}
    assert check(js_token(f"{HOST}/orders", "reader", "reader-key", UNTIL_S)).rights == {LISTEN}
    assert refusal(js_token(f"{HOST}/other", "reader", "own-key", UNTIL_S), f"{HOST}/other")


# --- malformed ---

GOOD = js_http_token(f"{HOST}/orders", "reader", "reader-key", UNTIL_S)


def test_the_scheme_is_read_in_any_case() -> None:
    assert check("sharedaccesssignature" + GOOD[len("SharedAccessSignature") :]).rights == {LISTEN}


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "neither"),
        ("SharedAccessSignature", "neither"),
        ("SharedAccessSignature ", "lacks sr, sig, se, skn"),
        ("SharedAccessSignature &&&", "twice"),
        ("SharedAccessSignature sr=a", "lacks sig, se, skn"),
        (GOOD + "&sr=x", "twice"),
        (GOOD.replace("skn=reader", "skn="), "lacks skn"),
        (GOOD.replace(f"se={UNTIL_S}", "se=soon"), "does not fit"),
        (GOOD.replace("sig=", "sig=*"), "not base64"),
        (GOOD.replace("sig=", "sig=%ff"), "not base64"),
        (GOOD.replace("skn=reader", "skn=reäder"), "characters"),
        (GOOD + "\udc80", "characters"),
        (GOOD + "&x=" + "y" * TOKEN_LENGTH_MAX, "at most"),
        (bare_token("orders", "reader", "reader-key", -5), "not a time"),
        (bare_token("orders", "reader", "reader-key", 10**12), "not a time"),
    ],
)
def test_what_is_no_token_is_refused_with_a_reason(token: str, why: str) -> None:
    assert why in refusal(token)


def test_an_endless_audience_is_refused() -> None:
    assert "at most" in refusal(GOOD, f"{HOST}/" + "a/" * 5_000)
