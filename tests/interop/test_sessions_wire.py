"""Sessions over AMQP, where the official clients do not go: what is said on links, and requests about sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine_client import EngineClient

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Described, Int, Long, Symbol, Timestamp, UInt, ULong
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.testing import LocalNamespace

FILTER = "com.microsoft:session-filter"
EVER = Timestamp(253_402_300_800_000)


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(key="secret") as namespace:
        namespace.create_queue("orders", requires_session=True)
        yield namespace


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[EngineClient]:
    with EngineClient(namespace.port, ROOT_KEY_NAME, "secret") as client:
        yield client


def send(client: EngineClient, *sessions: str) -> None:
    link = client.sender("orders")
    assert isinstance(link, SendingLink)
    for session in sessions:
        properties = {PropertyField.MESSAGE_ID: session, PropertyField.GROUP_ID: session}
        client.send(link, sections.encode_message(properties=properties, data=b"x"))


def session_receiver(client: EngineClient, session: Any, wait_ms: int = 1_000) -> ReceivingLink | Error:
    source = Source("orders", filter={Symbol(FILTER): session})
    properties = {Symbol("com.microsoft:timeout"): UInt(wait_ms)}
    return client.receiver_from(source, properties)


def ask(client: EngineClient, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    properties, answer = client.ask_fully("orders/$management", {"operation": f"com.microsoft:{operation}"}, body)
    return int(properties["statusCode"]), answer


def session_had(client: EngineClient, session: str) -> ReceivingLink | Error:
    """The same, as soon as the server has noticed that who had the session is gone: long before its lock ends."""
    deadline = time.monotonic() + 20
    while isinstance(link := session_receiver(client, session), Error) and time.monotonic() < deadline:
        time.sleep(0.01)
    return link


def names(client: EngineClient, since: Timestamp = EVER, skip: int = 0, top: int = 100) -> list[str]:
    body = {"last-updated-time": since, "skip": Int(skip), "top": Int(top)}
    status, answer = ask(client, "get-message-sessions", body)
    return [] if status == 204 else list(answer["sessions-ids"])


def test_an_accepted_link_gets_its_session_and_how_long_it_is_locked(client: EngineClient) -> None:
    send(client, "a")
    link = session_receiver(client, None)
    assert isinstance(link, ReceivingLink)
    assert link.source is not None
    assert (link.source.address, link.source.filter) == ("orders", {FILTER: "a"})
    assert link.properties is not None
    ticks = link.properties["com.microsoft:locked-until-utc"]
    seconds = (ticks - 621_355_968_000_000_000) / 10_000_000 - time.time()
    assert 50 < seconds <= 61


@pytest.mark.parametrize("session", [5, True, b"a", ["a"]])
def test_a_session_that_is_not_named_by_a_string_is_refused(client: EngineClient, session: Any) -> None:
    refusal = session_receiver(client, session)
    assert isinstance(refusal, Error)
    assert refusal.condition == "amqp:not-allowed"


@pytest.mark.parametrize("wanted", ["a", None])
def test_a_session_is_named_in_the_form_in_which_it_was_asked_for(client: EngineClient, wanted: str | None) -> None:
    """The Go client describes the filter, and reads no answer in another form."""
    send(client, "a")
    link = session_receiver(client, Described(ULong(0x13700000C), wanted))
    assert isinstance(link, ReceivingLink)
    assert link.source is not None
    assert link.source.filter is not None
    assert link.source.filter[Symbol(FILTER)] == Described(ULong(0x13700000C), "a")


def test_waiting_for_a_session_ends_in_time(client: EngineClient) -> None:
    refusal = session_receiver(client, None, wait_ms=200)
    assert isinstance(refusal, Error)
    assert refusal.condition == "com.microsoft:timeout"


def test_a_session_is_free_when_its_connection_is_gone(namespace: LocalNamespace, client: EngineClient) -> None:
    with EngineClient(namespace.port, ROOT_KEY_NAME, "secret") as other:
        assert isinstance(session_receiver(other, "a"), ReceivingLink)
        refusal = session_receiver(client, "a")
        assert isinstance(refusal, Error)
        assert refusal.condition == "com.microsoft:session-cannot-be-locked"
    assert isinstance(session_had(client, "a"), ReceivingLink)


def test_a_wait_ends_with_its_connection(namespace: LocalNamespace, client: EngineClient) -> None:
    with EngineClient(namespace.port, ROOT_KEY_NAME, "secret") as other:
        other.ask_for_session("orders", FILTER)
    send(client, "a")
    assert isinstance(session_had(client, "a"), ReceivingLink)


def test_sessions_are_listed_in_pages(client: EngineClient) -> None:
    assert names(client) == []
    send(client, "b", "a", "c")
    assert names(client) == ["a", "b", "c"]
    assert names(client, skip=1, top=1) == ["b"]
    before = Timestamp(int(time.time() * 1000) - 1)
    assert isinstance(session_receiver(client, "c"), ReceivingLink)
    assert ask(client, "set-session-state", {"session-id": "c", "session-state": b"x"})[0] == 200
    assert names(client, since=before) == ["c"]


def test_requests_about_a_session(client: EngineClient) -> None:
    assert isinstance(session_receiver(client, "a"), ReceivingLink)
    assert ask(client, "get-session-state", {"session-id": "a"}) == (200, {"session-state": None})
    assert ask(client, "set-session-state", {"session-id": "a", "session-state": b"x"})[0] == 200
    assert ask(client, "get-session-state", {"session-id": "a"}) == (200, {"session-state": b"x"})
    status, answer = ask(client, "renew-session-lock", {"session-id": "a"})
    assert (status, type(answer["expiration"])) == (200, Timestamp)


def test_a_request_that_names_a_link_is_about_the_session_of_that_link(client: EngineClient) -> None:
    """The Go client's receivers of sessions peek without naming their session."""
    send(client, "a", "b")
    link = session_receiver(client, "b")
    assert isinstance(link, ReceivingLink)
    body = {"from-sequence-number": Long(0), "message-count": Int(5)}
    named = {"operation": "com.microsoft:peek-message", "associated-link-name": link.name}
    _, found = client.ask_fully("orders/$management", named, body)
    assert len(found["messages"]) == 1
    _, found = client.ask_fully("orders/$management", {**named, "associated-link-name": "another"}, body)
    assert len(found["messages"]) == 2


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        ("renew-session-lock", {"session-id": "nobody"}, 410),
        ("get-session-state", {"session-id": "nobody"}, 410),
        ("set-session-state", {"session-id": "nobody", "session-state": None}, 410),
        ("set-session-state", {"session-id": "nobody", "session-state": "text"}, 400),
        ("get-session-state", {"session-id": 5}, 400),
        ("get-session-state", {}, 400),
        ("get-message-sessions", {"last-updated-time": 5, "skip": Int(0), "top": Int(1)}, 400),
        ("get-message-sessions", {"last-updated-time": EVER, "skip": Int(-1), "top": Int(1)}, 400),
    ],
)
def test_what_cannot_be_is_reported(client: EngineClient, operation: str, body: dict[str, Any], status: int) -> None:
    assert ask(client, operation, body)[0] == status


def test_a_session_that_another_connection_has_cannot_be_touched(
    namespace: LocalNamespace, client: EngineClient
) -> None:
    with EngineClient(namespace.port, ROOT_KEY_NAME, "secret") as other:
        assert isinstance(session_receiver(other, "a"), ReceivingLink)
        assert ask(other, "set-session-state", {"session-id": "a", "session-state": b"mine"})[0] == 200
        assert ask(client, "set-session-state", {"session-id": "a", "session-state": b"yours"})[0] == 410
        assert ask(client, "get-session-state", {"session-id": "a"})[0] == 410
        assert ask(client, "renew-session-lock", {"session-id": "a"})[0] == 410
        assert ask(other, "get-session-state", {"session-id": "a"}) == (200, {"session-state": b"mine"})


def test_who_has_a_session_on_another_link_by_now_may_ask_about_it(client: EngineClient) -> None:
    link = session_receiver(client, "a")
    assert isinstance(link, ReceivingLink)
    link.detach()
    assert isinstance(session_had(client, "a"), ReceivingLink)
    assert ask(client, "set-session-state", {"session-id": "a", "session-state": b"x"})[0] == 200
