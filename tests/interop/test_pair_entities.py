"""Pairing, pings and the syphon with topics, sessions, partitions and duplicate detection (A8, P7 .. P9, P14).

One test for each kind is part of `make test`, on threads or on tasks in turn; `make test-entities` runs every scenario
for every kind with both clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from entity_kinds import KINDS, REPRESENTATIVES, WAIT_S, EntityKind, session_of
from paired import AIO, BOTH, SYNC, Heard, PairHarness, wait_until
from served import Served
from wire_relay import Relay

from twinbus import NamespaceSide

PING, LIKE_A_PING = "application/vnd.ms-servicebus-ping", "application/vnd.ms-servicebus-pong"
OUTAGES = ("no-send", "kill")
FLAVOURS = (SYNC, AIO)


def matrix(only: Callable[[EntityKind], bool] = lambda kind: True) -> Iterator[Any]:
    """(client, kind): a representative of each kind always, the others where they are asked for."""
    for kind in filter(only, KINDS):
        for flavour in BOTH:
            is_shown = kind in REPRESENTATIVES and FLAVOURS[REPRESENTATIVES.index(kind) % 2] == flavour
            yield pytest.param(
                flavour, kind, id=f"{kind}, {flavour}", marks=() if is_shown else (pytest.mark.entities,)
            )


@pytest.fixture
def harness(request: pytest.FixtureRequest, served_pair: tuple[Served, Served]) -> Iterator[PairHarness]:
    made = PairHarness(*served_pair, request.param)
    yield made
    made.leave()


def with_kinds(only: Callable[[EntityKind], bool] = lambda kind: True) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("harness", "kind"), list(matrix(only)), indirect=["harness"])


def begin(outage: str, harness: PairHarness, path: str) -> None:
    if outage == "kill":
        harness.primary.kill()
    else:
        harness.primary.break_(outage, path)


def pings(harness: PairHarness, path: str) -> int:
    return harness.primary.operations(path).get("ping", 0)


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message) for message in messages)


@with_kinds()
def test_an_outage_from_the_first_failure_until_everything_is_home(harness: PairHarness, kind: EntityKind) -> None:
    entity = kind.made_in(harness)
    with harness.bus(enable_syphon=True) as bus:
        heard, sender = Heard(bus), entity.sender(bus)
        assert sender.send_messages(entity.message("before")).side is NamespaceSide.PRIMARY
        fault = harness.primary.break_("no-send", entity.path)
        assert sender.send_messages(entity.message("1")).side is NamespaceSide.BACKLOG
        late = entity.sender(bus)  # made in the middle of the outage
        assert late.send_messages([entity.message("2"), entity.message("3")]).side is NamespaceSide.BACKLOG
        harness.primary.clear(fault)
        assert heard.wait_for("recovered").entity == entity.path
        wait_until(lambda: harness.in_backlog() == [])
        assert sender.send_messages(entity.message("after")).side is NamespaceSide.PRIMARY
        messages = entity.received(bus, 5)
        assert texts(messages) == ["1", "2", "3", "after", "before"]
        assert {message.session_id for message in messages} == {entity.session}
        assert all(not message.application_properties for message in messages), "aliases are gone again"
    assert pings(harness, entity.path) == 1


@pytest.mark.entities
@pytest.mark.parametrize("outage", OUTAGES)
@with_kinds()
def test_what_a_message_says_is_the_same_after_the_detour(harness: PairHarness, kind: EntityKind, outage: str) -> None:
    entity = kind.made_in(harness)
    said = {
        "message_id": "m-1",
        "subject": "paid",
        "correlation_id": "c-1",
        "content_type": "text/plain",
        "to": "ledger",
        "reply_to": "answers",
        "application_properties": {"amount": 12, "currency": "EUR"},
        "time_to_live": timedelta(hours=1),
        "partition_key": entity.session or "partition-3",
    }
    with harness.bus(enable_syphon=True) as bus:
        begin(outage, harness, entity.path)
        assert entity.sender(bus).send_messages(entity.message("x", **said)).side is NamespaceSide.BACKLOG
        (encoded,) = harness.in_backlog()
        aliases = {name for name in encoded.application_properties or {} if b"x-ms-" in name}
        assert aliases == {b"x-ms-path", b"x-ms-timetolive"} | ({b"x-ms-sessionid"} if entity.session else set())
        assert encoded.session_id is None
        harness.primary.heal()
        (message,) = entity.received(bus, 1)
    assert message.session_id == entity.session
    assert (message.message_id, message.subject, message.correlation_id) == ("m-1", "paid", "c-1")
    assert (message.content_type, message.to, message.reply_to) == ("text/plain", "ledger", "answers")
    assert message.application_properties == {b"amount": 12, b"currency": b"EUR"}
    assert message.partition_key == said["partition_key"]
    assert message.time_to_live is not None
    assert timedelta(minutes=55) < message.time_to_live <= timedelta(hours=1)


@with_kinds(lambda kind: "without duplicates" in kind.name)
def test_a_copy_of_what_arrived_is_dropped_at_home(harness: PairHarness, kind: EntityKind) -> None:
    """A send that nobody answered may have arrived: it is sent to the backlog all the same, with the same id."""
    entity = kind.made_in(harness)
    with harness.bus(enable_syphon=True) as bus:
        heard, sender = Heard(bus), entity.sender(bus)
        sender.send_messages(entity.message("once", message_id="same"))
        harness.primary.break_("no-send", entity.path)
        assert sender.send_messages(entity.message("twice", message_id="same")).side is NamespaceSide.BACKLOG
        assert sender.send_messages(entity.message("other", message_id="other")).side is NamespaceSide.BACKLOG
        harness.primary.clear()
        heard.wait_for("recovered")
        wait_until(lambda: harness.in_backlog() == [])
        assert texts(entity.received(bus, 2)) == ["once", "other"]


@with_kinds(lambda kind: kind.has_sessions)
def test_the_state_of_a_session_lives_on_the_primary_only(harness: PairHarness, kind: EntityKind) -> None:
    entity = kind.made_in(harness)
    with harness.bus() as bus:
        entity.sender(bus).send_messages(entity.message("1"))
        receiver = entity.receiver(bus)
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        session_of(receiver).set_state("half way")
        harness.primary.break_("no-send", entity.path)
        assert entity.sender(bus).send_messages(entity.message("2")).side is NamespaceSide.BACKLOG
        assert session_of(receiver).get_state() == b"half way"
        session_of(receiver).renew_lock()
        receiver.complete_message(message)
        receiver.close()
        harness.primary.clear()
        again = entity.receiver(bus)
        assert again.peek_messages(1) == [], "the other message is in the backlog, and stays there without a syphon"
        assert session_of(again).get_state() == b"half way"
        again.close()


@with_kinds(lambda kind: kind.is_topic or kind.has_sessions)
def test_receivers_show_no_pings(harness: PairHarness, kind: EntityKind) -> None:
    """An embedded namespace delivers none, so that a relay has to make some."""
    entity = kind.made_in(harness)
    with Relay(harness.primary.port) as relay:
        relay.swap = LIKE_A_PING.encode(), PING.encode()
        with harness.client_of(harness.primary.through(relay.port), harness.secondary.namespace) as bus:
            for number in range(3):
                entity.sender(bus).send_messages(entity.message("", content_type=LIKE_A_PING))
                entity.sender(bus).send_messages(entity.message(str(number)))
            receiver = entity.receiver(bus, prefetch_count=10)
            assert [str(message) for message in receiver.peek_messages(10)] == ["0", "1", "2"]
            receiver.close()
            assert texts(entity.received(bus, 3)) == ["0", "1", "2"]
    assert entity.count_in(harness) == 0, "pings are gone, too"


@pytest.mark.entities
@with_kinds(lambda kind: kind.has_sessions)
def test_sessions_that_are_home_are_given_to_whoever_takes_the_next(harness: PairHarness, kind: EntityKind) -> None:
    entity = kind.made_in(harness)
    with harness.bus(enable_syphon=True) as bus:
        harness.primary.break_("no-send", entity.path)
        for session in ("a", "b"):
            message = entity.message(session)
            message.session_id = session
            assert entity.sender(bus).send_messages(message).side is NamespaceSide.BACKLOG
        harness.primary.clear()
        wait_until(lambda: harness.in_backlog() == [])
        found = set()
        for _ in range(2):
            receiver = entity.receiver(bus, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S)
            (got,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
            receiver.complete_message(got)
            found.add((str(got), got.session_id))
            receiver.close()
    assert found == {("a", "a"), ("b", "b")}


@pytest.mark.entities
@with_kinds(lambda kind: kind.has_sessions)
def test_each_ping_of_an_entity_with_sessions_has_a_session_that_nobody_knows(
    harness: PairHarness, kind: EntityKind
) -> None:
    entity = kind.made_in(harness)
    with harness.bus(pings_to_return=3) as bus:
        heard = Heard(bus)
        entity.sender(bus)
        bus.force_failover(entity.path)
        heard.wait_for("recovered")
        assert pings(harness, entity.path) == 3
    assert entity.count_in(harness) == 0


@pytest.mark.entities
@with_kinds(lambda kind: kind.has_sessions)
def test_a_message_without_a_session_is_refused_and_no_reason_to_fail_over(
    harness: PairHarness, kind: EntityKind
) -> None:
    if kind.is_topic:
        pytest.skip("a topic takes it: only its subscription has sessions")
    entity = kind.made_in(harness)
    with harness.bus() as bus:
        message = entity.message("lost")
        message.session_id = None
        with pytest.raises(Exception, match=r"(?i)session"):
            entity.sender(bus).send_messages(message)
        assert bus.status().is_healthy
