"""What the console's port answers to requests that no page of ours would send."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from console_crowd import TOKEN, Crowd, crowd, verdict


@pytest.fixture(scope="module")
def console() -> Iterator[Crowd]:
    with crowd() as served:
        served.put("verdict", verdict())
        yield served


def request(
    console: Crowd, method: str, path: str, headers: dict[str, str] | None = None, body: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", console.server.port, timeout=30)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def origin(console: Crowd) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{console.server.port}"}


def logged_in(console: Crowd) -> dict[str, str]:
    status, headers, _ = request(console, "POST", "/session", {**origin(console), "Authorization": f"Bearer {TOKEN}"})
    assert status == 204
    cookie = headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert TOKEN not in cookie
    return {"Cookie": cookie.partition(";")[0]}


@pytest.mark.parametrize("path", ["/api/stream", "/api/session", "/api/messages", "/page.js", "/nothing", "/../x"])
def test_nothing_is_told_without_a_session(console: Crowd, path: str) -> None:
    status, _, body = request(console, "GET", path)
    assert status == 401
    assert b"failed over" not in body


def test_the_page_asks_for_the_token_and_carries_every_protection(console: Crowd) -> None:
    status, headers, body = request(console, "GET", "/")
    assert (status, b"Token" in body, b"page.js" in body) == (200, True, False)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", ""])
def test_a_foreign_host_is_refused(console: Crowd, host: str) -> None:
    status, _, body = request(console, "GET", "/", {"Host": host})
    assert status in (400, 421)
    assert b"Token" not in body


def test_a_session_reads_and_changes_nothing_without_allow_changes(console: Crowd) -> None:
    cookie = logged_in(console)
    status, _, body = request(console, "GET", "/api/session", cookie)
    facts: dict[str, Any] = json.loads(body)
    assert (status, facts["allows_changes"], facts["primary"]) == (200, False, "contoso")
    change = json.dumps({"action": "fault.clear", "arguments": {"side": "primary"}})
    own = {**cookie, **origin(console), "X-Twinbus-Proof": facts["proof"]}
    assert request(console, "POST", "/api/do", own, change)[0] == 403
    assert request(console, "POST", "/api/do", {**cookie, **origin(console)}, change)[0] == 403
    assert request(console, "POST", "/api/do", {**own, "Origin": "http://evil.example"}, change)[0] == 403


def test_a_session_hears_the_state_as_events(console: Crowd) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", console.server.port, timeout=30)
    connection.request("GET", "/api/stream", headers=logged_in(console))
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    lines: list[bytes] = []
    while not any(b"failed over" in line for line in lines):
        lines.append(answer.readline())
        assert len(lines) < 20
    assert lines[0] == b"event: about\n"
    connection.close()


def test_wrong_arguments_are_said_and_a_large_request_is_refused(console: Crowd) -> None:
    with crowd(allows_changes=True) as other:
        cookie = logged_in(other)
        proof = json.loads(request(other, "GET", "/api/session", cookie)[2])["proof"]
        own = {**cookie, **origin(other), "X-Twinbus-Proof": proof}

        def do(action: str, **arguments: Any) -> tuple[int, str]:
            status, _, body = request(
                other, "POST", "/api/do", own, json.dumps({"action": action, "arguments": arguments})
            )
            return status, str(json.loads(body).get("error"))

        assert do("nothing")[0] == 400
        assert do("message.purge", side="primary", entity="orders") == (400, "say which messages, or all of them")
        assert do("message.purge", side="primary", entity="orders", all=True)[0] == 400, "without a count"
        assert do("message.purge", side="primary", entity="orders", all=True, count=1)[0] == 400, "of what was there"
        assert do("message.purge", side="primary", entity="orders/$management", all=True, count=1)[0] == 400
        assert do("message.resubmit", side="elsewhere", entity="orders", all=True, dead_letters=True)[0] == 400
        assert do("quarantine.discard", numbers=[])[0] == 400
        assert do("syphon.pace", syphon="1-1", rate="fast")[0] == 400
        assert do("fault.add", side="primary", fault="no-send")[0] == 400, "nothing of ours runs there"
        with contextlib.suppress(ConnectionError):  # it may hang up before all was sent
            assert request(other, "POST", "/api/do", own, "x" * 200_000)[0] == 413
        assert request(other, "GET", "/api/message?side=primary&entity=orders&numbers=1,x", cookie)[0] == 400
        assert request(other, "GET", "/api/messages?side=primary&entity=orders&from=x", cookie)[0] == 400
        assert do("message.dead-letter", side="primary", entity="orders", numbers=[10**30], why="w")[0] == 400
