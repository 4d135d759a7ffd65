"""No token opens what it was not made for, and whatever comes in gets an answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_makers import PRODUCERS, python_token, secret_signer, web_token

from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.claims import Claim, ClaimBook, is_within, resource_path
from twinbus.broker.auth.jwt import JwtIssuer
from twinbus.broker.operations import Right
from twinbus.errors import Unauthorized

NOW_MS = 1_700_000_000_000
SECRET = "0123456789abcdef0123456789abcdef"

segments = st.text("abAB-._~2", min_size=1, max_size=3)
paths = st.lists(segments, max_size=3).map("/".join)
names = st.text("abc+%/&?:.-_~$", min_size=1, max_size=8)
keys = st.text("abc+/=%&", min_size=1, max_size=8)
rights = st.sets(st.sampled_from(Right), min_size=1).map(frozenset)
schemes = st.sampled_from(["sb://h:1/", "amqps://h/", "https://h:1/", "h:1/"])


def segments_of(path: str) -> list[str]:
    return [part for part in path.lower().split("/") if part]


@given(paths, paths, schemes, st.integers(-5, 5), st.sampled_from(sorted(PRODUCERS)), rights, keys, keys)
def test_a_token_opens_exactly_what_it_was_made_for(
    scope: str, wanted: str, scheme: str, life_s: int, producer: str, granted: frozenset[Right], key: str, used: str
) -> None:
    make: Callable[[str, str, str, int], str] = PRODUCERS[producer]
    authority = Authority(RuleBook((AccessRule("rule", granted, key),)))
    until_s = NOW_MS // 1000 + life_s
    is_below = segments_of(wanted)[: len(segments_of(scope))] == segments_of(scope)
    try:
        claim = authority.check_token(make(scheme + scope, "rule", used, until_s), scheme + wanted, NOW_MS)
    except Unauthorized:
        assert used != key or life_s <= 0 or not is_below
    else:
        assert used == key
        assert life_s > 0
        assert is_below
        assert claim.until_ms == until_s * 1000
        for right in Right:
            is_granted = right in granted or Right.MANAGE in granted
            assert claim.allows(wanted, right, NOW_MS) == is_granted


@given(names, keys)
def test_any_name_of_a_rule_comes_through_pythons_double_encoding(name: str, key: str) -> None:
    authority = Authority(RuleBook((AccessRule(name, frozenset(Right), key),)))
    token = python_token("sb://h:1/q", name, key, 2_000_000_000)
    assert authority.check_token(token, "sb://h:1/q", NOW_MS).resource == "q"


@given(paths, paths)
def test_a_path_lies_within_exactly_what_is_above_it(path: str, resource: str) -> None:
    parts = path.lower().split("/")
    above = {"/".join(parts[:count]) for count in range(len(parts) + 1)}
    assert is_within(path.lower(), resource.lower()) == (resource.lower() in above)


@given(st.text(max_size=60))
def test_any_text_is_some_resource(text: str) -> None:
    resource = resource_path(text)
    assert resource == resource.lower().strip("/")


# --- whatever comes ---

AUTHORITY = Authority(RuleBook((AccessRule("rule", frozenset(Right), "key"),)), [JwtIssuer("me", "HS256", SECRET)])
GOOD = python_token("sb://h:1/q", "rule", "key", 2_000_000_000)
tokens = st.one_of(
    st.text(max_size=200),
    st.text(max_size=200).map("SharedAccessSignature ".__add__),
    st.lists(st.sampled_from(["sr=", "sig=", "se=", "skn=", "&", "%", "%ff", "rule", "1", "="])).map(
        lambda parts: "SharedAccessSignature " + "".join(parts)
    ),
    st.tuples(st.binary(), st.binary(), st.binary()).map(
        lambda parts: ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    ),
    st.tuples(st.integers(0, len(GOOD) - 1), st.characters()).map(lambda at: GOOD[: at[0]] + at[1] + GOOD[at[0] + 1 :]),
)


def refusal_of(attempt: Callable[[], Claim]) -> str | None:
    try:
        attempt()
    except Unauthorized as refused:
        return str(refused)
    return None


@given(tokens, st.text(max_size=30))
def test_whatever_comes_is_a_claim_or_a_refusal_in_one_line(token: str, audience: str) -> None:
    for text in (
        refusal_of(lambda: AUTHORITY.check_token(token, audience, NOW_MS)),
        refusal_of(lambda: AUTHORITY.authorize_http(token, audience, Right.SEND, NOW_MS)),
        refusal_of(lambda: AUTHORITY.authorize_http("Bearer " + token, audience, Right.SEND, NOW_MS)),
    ):
        assert text is None or (text and text.isprintable())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["me", "Send"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
claims = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("aud", "exp", "nbf", "rights", "roles"), json_values),
)


@given(claims, st.dictionaries(st.sampled_from(["alg", "crit", "kid", "typ"]), json_values))
def test_a_signed_token_may_say_anything_and_is_believed_only_if_it_fits(
    said: dict[str, object], more: dict[str, object]
) -> None:
    token = web_token({"alg": "HS256"} | more, {"iss": "me"} | said, secret_signer(SECRET))
    try:
        AUTHORITY.check_token(token, "q", NOW_MS)
    except Unauthorized:
        return
    pytest.fail(f"believed: {json.dumps(said)}")  # no audience drawn here is ours


nested = st.sampled_from(["", "a", "a/b"])


@given(
    st.lists(st.tuples(nested, rights, st.integers(1, 9), st.integers(1, 3), st.booleans()), max_size=12),
    nested,
    st.sampled_from(Right),
)
def test_a_right_that_is_lost_is_always_announced(
    puts: list[tuple[str, frozenset[Right], int, int, bool]], path: str, right: Right
) -> None:
    """Whoever looks again at every review never sees a right gone that was there at the look before."""
    held_claims, now_ms, had = ClaimBook(), 0, False
    for resource, granted, life_ms, pause_ms, is_for_one in puts:
        for _ in range(pause_ms):
            now_ms += 1
            has = held_claims.has(path, right, now_ms)
            if held_claims.review_ms is not None and held_claims.review_ms <= now_ms:
                held_claims.finish_review(now_ms)
            else:
                assert has or not had
            had = has
        held_claims.add(Claim(resource.lower(), granted, now_ms + life_ms, is_for_one), now_ms)
        had = had or held_claims.has(path, right, now_ms)
