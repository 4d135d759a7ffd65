"""Who gets into the console: by host, origin, token, cookie and proof."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.console.access import (
    PEERS_MAX,
    SESSION_S,
    WRONG_TOKENS_MAX,
    WRONG_TOKENS_S,
    AccessRefusal,
    ConsoleAccess,
    host_names,
    is_loopback,
    peer_of,
)

TOKEN = "t" * 43
HOST = "127.0.0.1:9470"
OWN = {"Host": HOST, "Origin": f"http://{HOST}"}
NOW = 1_700_000_000.0
PEER = "10.0.0.1"


@pytest.fixture
def access() -> ConsoleAccess:
    return ConsoleAccess(TOKEN, [HOST], is_tls=False)


@pytest.mark.parametrize(
    ("method", "path", "headers", "refusal"),
    [
        ("GET", "/", {"Host": HOST}, None),
        ("GET", "/", {"Host": "evil.example:9470"}, AccessRefusal.FOREIGN_HOST),
        ("GET", "/", {}, AccessRefusal.FOREIGN_HOST),
        ("GET", "/", {"Host": HOST, "Sec-Fetch-Site": "cross-site"}, None),
        ("GET", "/api/stream", {"Host": HOST, "Sec-Fetch-Site": "cross-site"}, AccessRefusal.FOREIGN_ORIGIN),
        ("GET", "/api/stream", {"Host": HOST, "Sec-Fetch-Site": "same-site"}, AccessRefusal.FOREIGN_ORIGIN),
        ("GET", "/api/stream", {"Host": HOST, "Sec-Fetch-Site": "same-origin"}, None),
        ("GET", "/api/stream", {"Host": HOST, "Origin": "http://evil.example"}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", {"Host": HOST}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", {"Host": HOST, "Origin": "null"}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", {"Host": HOST, "Origin": f"https://{HOST}"}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", {"Host": HOST, "Origin": "http://127.0.0.1:80"}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", {**OWN, "Sec-Fetch-Site": "cross-site"}, AccessRefusal.FOREIGN_ORIGIN),
        ("POST", "/api/do", OWN, None),
    ],
)
def test_a_request_has_to_name_our_host_and_to_come_from_our_page(
    access: ConsoleAccess, method: str, path: str, headers: dict[str, str], refusal: AccessRefusal | None
) -> None:
    assert access.check_source(method, path, headers) is refusal


def test_only_the_token_lets_in_and_guessing_is_slow(access: ConsoleAccess) -> None:
    assert access.check_token(f"Bearer {TOKEN}", PEER, NOW) is None
    for header in (None, "", "Bearer", f"Basic {TOKEN}", "Bearer wrong", f"Bearer {TOKEN}x"):
        assert access.check_token(header, PEER, NOW) is AccessRefusal.WRONG_TOKEN
    for _ in range(WRONG_TOKENS_MAX):
        access.check_token("Bearer wrong", PEER, NOW)
    assert access.check_token(f"Bearer {TOKEN}", PEER, NOW) is AccessRefusal.TOO_MANY_TOKENS
    assert access.check_token(f"Bearer {TOKEN}", "10.0.0.2", NOW) is None, "others are let in"
    assert access.check_token(f"Bearer {TOKEN}", PEER, NOW + WRONG_TOKENS_S + 1) is None


def test_whoever_has_many_addresses_is_one_peer_and_few_peers_are_kept(access: ConsoleAccess) -> None:
    assert peer_of("2001:db8::1") == peer_of("2001:db8::ffff:1%eth0") == "2001:db8::/64"
    assert peer_of("::ffff:10.0.0.1") != peer_of("::ffff:10.0.0.2")
    assert (peer_of("10.0.0.1"), peer_of("")) == ("10.0.0.1", "")
    for number in range(2 * PEERS_MAX):
        access.check_token("Bearer wrong", f"10.0.{number // 250}.{number % 250}", NOW)
    assert len(access._wrong) == PEERS_MAX


@pytest.mark.parametrize("header", ["Bearer \udcff\udcfe", "Bearer \ud7ff", "\udc80"])
def test_a_header_that_is_not_text_is_a_wrong_token(access: ConsoleAccess, header: str) -> None:
    """Bytes beyond UTF-8 come as lone surrogates."""
    assert access.check_token(header, PEER, NOW) is AccessRefusal.WRONG_TOKEN
    assert access.session_of(f"9999999999.{header}.{header}", NOW) is None
    session = access.session_of(access.new_cookie("nonce", NOW), NOW)
    assert session is not None
    assert access.check_proof(session, "POST", {"X-Twinbus-Proof": header}) is AccessRefusal.NO_PROOF


def test_a_cookie_proves_a_session_until_it_is_over(access: ConsoleAccess) -> None:
    cookie = access.new_cookie("nonce", NOW)
    session = access.session_of(cookie, NOW + SESSION_S - 1)
    assert session is not None
    assert access.session_of(cookie, NOW + SESSION_S + 1) is None
    assert ConsoleAccess("another token" * 4, [HOST], is_tls=False).session_of(cookie, NOW) is None
    assert ConsoleAccess(TOKEN, [HOST], is_tls=False).session_of(cookie, NOW) == session, "it outlives a restart"
    assert TOKEN not in cookie + session.proof


@given(st.text(max_size=200))
def test_no_invented_cookie_is_a_session(cookie: str) -> None:
    assert ConsoleAccess(TOKEN, [HOST], is_tls=False).session_of(cookie, NOW) is None


@given(st.integers(0, 120), st.characters(codec="ascii"))
def test_no_changed_cookie_is_a_session(place: int, letter: str) -> None:
    access = ConsoleAccess(TOKEN, [HOST], is_tls=False)
    cookie = access.new_cookie("nonce", NOW)
    place %= len(cookie)
    changed = cookie[:place] + letter + cookie[place + 1 :]
    assert changed == cookie or access.session_of(changed, NOW) is None


def test_a_change_needs_the_proof_that_only_our_page_can_read(access: ConsoleAccess) -> None:
    session = access.session_of(access.new_cookie("nonce", NOW), NOW)
    assert session is not None
    assert access.check_proof(session, "GET", OWN) is None
    assert access.check_proof(session, "POST", OWN) is AccessRefusal.NO_PROOF
    assert access.check_proof(session, "POST", {**OWN, "X-Twinbus-Proof": session.proof}) is None
    other = access.session_of(access.new_cookie("other", NOW), NOW)
    assert other is not None
    assert access.check_proof(other, "POST", {**OWN, "X-Twinbus-Proof": session.proof}) is AccessRefusal.NO_PROOF


def test_the_names_of_a_console_are_those_it_listens_on_and_those_it_was_given() -> None:
    assert host_names("127.0.0.1", 9470) == ["localhost:9470", "127.0.0.1:9470", "[::1]:9470"]
    assert host_names("10.0.0.5", 9470) == ["10.0.0.5:9470"]
    assert host_names("0.0.0.0", 9470) == [], "every address is no name"
    assert host_names("0.0.0.0", 443, ["ops.example.com"], is_tls=True) == ["ops.example.com:443", "ops.example.com"]
    assert [is_loopback(host) for host in ("localhost", "127.0.0.7", "::1", "10.0.0.5", "a.example")] == [
        *(True, True, True, False, False)
    ]
