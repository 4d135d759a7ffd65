"""The two other ways in: name and key, and HTTP headers."""

from __future__ import annotations

import hmac

import pytest
from token_makers import js_http_token, js_token, python_token, secret_signer, web_token

from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.claims import FOR_EVER_MS, Claim
from twinbus.broker.auth.jwt import SERVICE_AUDIENCE, JwtIssuer
from twinbus.broker.operations import Right
from twinbus.errors import Unauthorized

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
NOW_MS = 1_700_000_000_000
UNTIL_S = 1_700_003_600
URL = "https://localhost:5672"
SECRET = "s" * 32

ROOT = AccessRule("root", frozenset({MANAGE}), "root-key")
READER = AccessRule("reader", frozenset({LISTEN}), "reader-key", "reader-other")
OWNER = AccessRule("owner", frozenset({MANAGE}), "owner-key")
AUTHORITY = Authority(
    RuleBook((ROOT, READER), lambda path: (OWNER,) if path == "orders" else ()), [JwtIssuer("me", "HS256", SECRET)]
)


def jwt(*rights: str) -> str:
    said = {"iss": "me", "aud": SERVICE_AUDIENCE, "exp": UNTIL_S, "rights": rights}
    return web_token({"alg": "HS256"}, said, secret_signer(SECRET))


# --- name and key ---


def test_name_and_key_open_the_namespace_for_good() -> None:
    assert AUTHORITY.knows("reader", "reader-key")
    assert AUTHORITY.knows("reader", "reader-other")
    assert AUTHORITY.claim_of("reader") == Claim("", frozenset({LISTEN}), FOR_EVER_MS)


@pytest.mark.parametrize(
    ("name", "key"),
    [("reader", "root-key"), ("reader", ""), ("Reader", "reader-key"), ("", ""), ("owner", "owner-key"), ("ä", "ä")],
)
def test_others_are_not_let_in_and_rules_of_entities_are_not_for_connections(name: str, key: str) -> None:
    assert not AUTHORITY.knows(name, key)


@pytest.mark.parametrize("name", ["reader", "RootManageSharedAccessKey", "nobody", ""])
def test_every_name_costs_as_many_comparisons_of_equal_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    real = hmac.compare_digest

    def note(one: bytes, other: bytes) -> bool:
        compared.extend((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    assert not AUTHORITY.knows(name, "wrong")
    assert compared == [32] * 4


# --- HTTP ---


@pytest.mark.parametrize(
    "header",
    [
        python_token(URL, "root", "root-key", UNTIL_S),
        "Bearer " + python_token(URL, "root", "root-key", UNTIL_S),
        js_http_token(f"{URL}/Orders?api-version=2021-05&$Skip=0", "root", "root-key", UNTIL_S),
        js_token("localhost:5672", "root", "root-key", UNTIL_S),
        python_token(URL, "owner", "owner-key", UNTIL_S),
        "Bearer " + jwt("Manage"),
        "bearer   " + jwt("Manage") + " ",
    ],
)
def test_every_header_of_the_official_clients_is_read(header: str) -> None:
    claim = AUTHORITY.authorize_http(header, "/Orders", MANAGE, NOW_MS)
    assert (claim.resource, claim.rights, claim.until_ms) == ("orders", frozenset(Right), UNTIL_S * 1000)


@pytest.mark.parametrize("path", ["/$Resources/queues", "/$namespaceinfo", "/", "/metrics"])
def test_the_namespace_is_managed_with_its_own_rules_only(path: str) -> None:
    AUTHORITY.authorize_http(python_token(URL, "root", "root-key", UNTIL_S), path, MANAGE, NOW_MS)
    AUTHORITY.authorize_http(js_http_token(URL + path, "root", "root-key", UNTIL_S), path, MANAGE, NOW_MS)
    with pytest.raises(Unauthorized):
        AUTHORITY.authorize_http(python_token(URL, "owner", "owner-key", UNTIL_S), path, MANAGE, NOW_MS)


@pytest.mark.parametrize("header", [python_token(URL, "reader", "reader-key", UNTIL_S), "Bearer " + jwt("Listen")])
def test_a_good_token_without_the_right_is_refused_as_such(header: str) -> None:
    AUTHORITY.authorize_http(header, "/orders", LISTEN, NOW_MS)
    with pytest.raises(Unauthorized, match="'/orders' does not give the right 'Manage'"):
        AUTHORITY.authorize_http(header, "/orders", MANAGE, NOW_MS)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "no Authorization header"),
        ("", "no Authorization header"),
        ("Bearer", "neither"),
        ("Bearer ", "neither"),
        ("Basic cm9vdDpyb290LWtleQ==", "neither"),
        ("Bearer a.b.c", "not base64"),
        ("\udcff", "characters"),
        ("Bearer " + "x" * 10_000, "at most"),
        (js_http_token(f"{URL}/other", "root", "root-key", UNTIL_S), "another resource"),
        (python_token(URL, "root", "root-key", 1), "expired"),
        (python_token(URL, "root", "wrong", UNTIL_S), "does not fit"),
    ],
)
def test_other_headers_are_refused_with_a_reason(header: str | None, why: str) -> None:
    with pytest.raises(Unauthorized, match=why):
        AUTHORITY.authorize_http(header, "/orders", MANAGE, NOW_MS)


def test_an_endless_path_is_refused() -> None:
    with pytest.raises(Unauthorized, match="at most"):
        AUTHORITY.authorize_http("Bearer " + jwt("Manage"), "/a" * 5_000, MANAGE, NOW_MS)
