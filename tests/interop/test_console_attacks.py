"""What the console's port does with requests of an attacker: at its head, in great numbers, and from slow readers."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from console_crowd import TOKEN, Crowd, crowd, entity, verdict
from paired import wait_until

from twinbus.console import access, app
from twinbus.console.access import WRONG_TOKENS_MAX
from twinbus.console.actions import ConsoleActions
from twinbus.console.server import LIMITS

WAIT_S = 60.0
SLOW_READERS, CHANGES, ROWS = 20, 30, 300


@pytest.fixture
def console() -> Iterator[Crowd]:
    with crowd() as served:
        served.put("verdict", verdict())
        yield served


def ask(
    console: Crowd, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", console.server.port, timeout=WAIT_S)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return said


def own(console: Crowd, **more: str) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{console.server.port}", **more}


def cookie_of(console: Crowd) -> str:
    status, headers, _ = ask(console, "POST", "/session", own(console, Authorization=f"Bearer {TOKEN}"))
    assert status == 204
    return headers["set-cookie"].partition(";")[0]


def connect(console: Crowd, sent: bytes, *, receive_bytes: int | None = None) -> socket.socket:
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(WAIT_S)
    connection.connect(("127.0.0.1", console.server.port))
    connection.sendall(sent)
    return connection


def head(console: Crowd, first: str, *lines: bytes) -> bytes:
    host = f"127.0.0.1:{console.server.port}"
    said = [first.encode(), f"Host: {host}".encode(), f"Origin: http://{host}".encode(), *lines]
    return b"\r\n".join([*said, b"", b""])


def status_of(connection: socket.socket) -> int:
    with connection, connection.makefile("rb") as said:
        return int(said.readline().split()[1])


def test_a_head_that_is_not_text_is_refused_and_no_mistake_of_ours(
    console: Crowd, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"twinbus-console-{console.server.port}".encode()
    login = head(console, "POST /session HTTP/1.1", b"Authorization: Bearer \xff\xfe", b"Content-Length: 0")
    assert status_of(connect(console, login)) == 401
    forged = head(console, "GET /api/session HTTP/1.1", b"Cookie: " + name + b"=9999999999.\xff.\xff")
    assert status_of(connect(console, forged)) == 401
    proof = head(
        console,
        "POST /api/do HTTP/1.1",
        b"Cookie: " + cookie_of(console).encode(),
        b"X-Twinbus-Proof: \xff",
        b"Content-Length: 2",
    )
    assert status_of(connect(console, proof + b"{}")) == 403
    assert status_of(connect(console, b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n")) == 421
    assert status_of(connect(console, head(console, "GET / HTTP/1.1", b"Host: evil.example"))) == 400
    assert [record for record in caplog.records if record.exc_info] == []


def test_the_token_is_in_no_log_and_in_no_answer(console: Crowd, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        cookie = cookie_of(console)
        wrong = ask(console, "POST", "/session", own(console, Authorization=f"Bearer {TOKEN}x"))
        in_address = ask(console, "GET", f"/?token={TOKEN}", {})
        session = ask(console, "GET", "/api/session", {"Cookie": cookie})
    assert (wrong[0], in_address[0], session[0]) == (401, 200, 200)
    assert b"page.js" not in in_address[2], "in an address it opens nothing"
    assert TOKEN not in caplog.text + cookie + str((wrong, in_address, session))


def test_whoever_guesses_tokens_has_to_wait_and_pages_that_are_open_do_not(console: Crowd) -> None:
    cookie = cookie_of(console)
    for _ in range(WRONG_TOKENS_MAX):
        assert ask(console, "POST", "/session", own(console, Authorization="Bearer guessed"))[0] == 401
    assert ask(console, "POST", "/session", own(console, Authorization=f"Bearer {TOKEN}"))[0] == 429
    assert ask(console, "GET", "/api/session", {"Cookie": cookie})[0] == 200


@pytest.mark.parametrize("action", ConsoleActions(cast("Any", None), list).names)
def test_no_action_is_carried_out_without_allow_changes(console: Crowd, action: str) -> None:
    cookie = cookie_of(console)
    proof = json.loads(ask(console, "GET", "/api/session", {"Cookie": cookie})[2])["proof"]
    headers = own(console, Cookie=cookie, **{"X-Twinbus-Proof": proof})
    arguments = {"side": "primary", "entity": "orders", "all": True, "count": 1}
    status, _, body = ask(console, "POST", "/api/do", headers, json.dumps({"action": action, "arguments": arguments}))
    assert (status, b"--allow-changes" in body) == (403, True)


def test_sequence_numbers_of_any_size_are_exact(console: Crowd) -> None:
    """They are texts: JavaScript would round those of partitioned entities, and change another message."""
    cookie = cookie_of(console)

    def look(numbers: str) -> int:
        return ask(console, "GET", f"/api/message?side=primary&entity=q&numbers={numbers}", {"Cookie": cookie})[0]

    assert look(str(2**63 - 1)) == 502, "nothing runs there; the number is one"
    assert [look(numbers) for numbers in (str(2**63), "9" * 400, "-1", "1.5", "1,x")] == [400] * 5


def test_many_connections_before_the_token_keep_no_open_page_out(console: Crowd) -> None:
    cookie = cookie_of(console)
    with contextlib.ExitStack() as held:
        for _ in range(LIMITS.unauthenticated_connections * 3):
            with contextlib.suppress(ConnectionError):
                held.enter_context(connect(console, b"GET / HTTP/1.1\r\nX-Unfinished: " + b"x" * 4_000))
        began = time.monotonic()
        assert ask(console, "GET", "/api/session", {"Cookie": cookie})[0] == 200
        assert cookie_of(console), "and whoever has the token gets in"
        assert time.monotonic() - began < WAIT_S


def test_a_slow_reader_gets_the_latest_and_not_everything_that_was(console: Crowd) -> None:
    """So what is kept for it does not grow with what happens."""
    cookie = cookie_of(console)
    stream = head(console, "GET /api/stream HTTP/1.1", b"Cookie: " + cookie.encode())
    rows = {f"q-{number}": entity(f"q-{number}", reason="r" * 400) for number in range(ROWS)}
    console.put("entities", rows)
    with contextlib.ExitStack() as held:
        readers = [held.enter_context(connect(console, stream, receive_bytes=4_096)) for _ in range(SLOW_READERS)]
        for reader in readers:
            assert reader.recv(5) == b"HTTP/"
        for number in range(CHANGES):
            console.put("entities", {key: {**row, "waiting": number} for key, row in rows.items()})
            time.sleep(0.05)
        console.put("verdict", verdict(reason="the last thing"))
        whole_bytes = len(json.dumps(rows))
        got = b""
        while b"the last thing" not in got:
            got += readers[0].recv(65_536)
            assert len(got) < CHANGES // 2 * whole_bytes
        quick = held.enter_context(connect(console, stream))
        assert quick.recv(5) == b"HTTP/", "others are served meanwhile"


def test_a_page_that_reads_nothing_is_hung_up_on_and_what_it_was_told_is_forgotten(
    console: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STALLED_S", 0.5)
    stream = head(console, "GET /api/stream HTTP/1.1", b"Cookie: " + cookie_of(console).encode())
    console.put("entities", {f"q-{number}": entity(f"q-{number}", reason="r" * 400) for number in range(10 * ROWS)})
    with connect(console, stream, receive_bytes=4_096) as reader:
        wait_until(lambda: console.streams)
        wait_until(lambda: console.streams == 0)
        with contextlib.suppress(ConnectionError):
            while reader.recv(65_536):
                pass


def test_pages_that_read_nothing_share_a_bound(console: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "UNREAD_BYTES_MAX", 20_000_000)
    monkeypatch.setattr(app, "STALLED_S", 600.0)
    stream = head(console, "GET /api/stream HTTP/1.1", b"Cookie: " + cookie_of(console).encode())
    console.put("entities", {f"q-{number}": entity(f"q-{number}", reason="r" * 400) for number in range(10 * ROWS)})
    with contextlib.ExitStack() as held:
        for _ in range(SLOW_READERS):
            reader = held.enter_context(connect(console, stream, receive_bytes=4_096))
            with contextlib.suppress(ConnectionError):
                reader.recv(5)  # it has begun, and may have been hung up on
        wait_until(lambda: 0 < console.streams < SLOW_READERS / 2)


def test_a_stream_ends_with_its_session(console: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SESSION_S", 2)
    stream = head(console, "GET /api/stream HTTP/1.1", b"Cookie: " + cookie_of(console).encode())
    with connect(console, stream) as reader, reader.makefile("rb") as said:
        assert said.readline().startswith(b"HTTP/1.1 200")
        while said.readline() not in (b"0\r\n", b""):
            pass
