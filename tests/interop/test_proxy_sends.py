"""What applications send through a proxy: refused, batched, scheduled, held, in order, recorded."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from outages import SILENCE
from paired import WAIT_S, PairHarness, wait_until
from proxied import Proxied, arrival, encoded
from wire_relay import Relay

from twinbus import Retry
from twinbus.broker.links.request_messages import Request
from twinbus.broker.operations import Done, Refused, SenderOpened
from twinbus.client.namespace import Namespace
from twinbus.client.reporting.status import EntityState, Phase
from twinbus.errors import OptionsError, PairingError
from twinbus.ledger import LedgerReader, verify
from twinbus.transport.links.requests import read_response

LATER = datetime(2031, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LONG = timedelta(minutes=5)


def failed_over(proxied: Proxied, harness: PairHarness) -> None:
    """The entity is failed over, and stays so."""
    harness.primary.break_("no-send", harness.orders)
    assert proxied.send(arrival("the first")) == Done()
    proxied.wait_for("failed_over")


def alias(message: ServiceBusReceivedMessage, name: str) -> Any:
    return (message.application_properties or {})[name.encode()]


# --- as without a proxy ---


def test_bodies_and_properties_reach_the_primary_as_they_were_sent(harness: PairHarness) -> None:
    properties: dict[str, Any] = {"number": 42, "text": "ü"}
    with Proxied(harness) as proxied:
        assert proxied.send(arrival(b"\x00\xff", "m-1", session_id="s", ttl_ms=60_000, properties=properties)) == Done()
    (found,) = harness.primary.messages(harness.orders)
    assert b"".join(found.body) == b"\x00\xff"
    assert (found.message_id, found.session_id, found.time_to_live) == ("m-1", "s", timedelta(minutes=1))
    assert found.application_properties == {b"number": 42, b"text": "ü".encode()}


def test_a_thousand_messages_in_flight_are_stored_in_their_order(harness: PairHarness) -> None:
    names = [f"{number}" for number in range(1_000)]
    with Proxied(harness) as proxied:
        futures = proxied.begin_all([[arrival(name)] for name in names])
        assert {future.result(WAIT_S) for future in futures} == {Done()}
        assert proxied.unwritten_bytes == 0
        assert proxied.flushes > 0
        (entity,) = proxied.call(proxied.sends.status).entities
        assert (entity.sent_to_primary, entity.state) == (1_000, EntityState.HEALTHY)
    assert harness.primary.texts(harness.orders) == names


def test_what_waits_for_an_answer_is_counted(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        proxied.open()
        harness.primary.break_("slow", harness.orders, delay_ms=500)
        future = proxied.begin(arrival(b"x" * 10_000))
        assert 10_000 < proxied.unwritten_bytes < 20_000
        assert future.result(WAIT_S) == Done()
        assert proxied.unwritten_bytes == 0


def test_a_link_that_was_closed_while_it_was_idle_is_opened_again(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        assert proxied.send(arrival("1")) == Done()
        harness.primary.kill()
        harness.primary.start()
        wait_until(lambda: proxied.call(lambda: proxied.sends._transport.primary.count) == 0)
        assert proxied.send(arrival("2")) == Done()
        assert "failed_over" not in proxied.names()
    assert harness.primary.texts(harness.orders) == ["1", "2"]


def test_sends_to_all_entities_share_one_connection_and_a_stop_leaves_none(harness: PairHarness) -> None:
    with Relay(harness.primary.port) as relay:
        with Proxied(harness, primary=harness.primary.through(relay.port)) as proxied:
            for path in (harness.orders, harness.invoices):
                futures = proxied.begin_all([[arrival("x")] for _ in range(20)], path)
                assert {future.result(WAIT_S) for future in futures} == {Done()}
            assert proxied.schedule(encoded("later", due=LATER)).is_ok
            assert relay.connections == 1
        relay.wait_until_all_left()


def test_a_connection_on_which_nobody_answers_is_not_used_again(harness: PairHarness) -> None:
    with Proxied(harness, attempt_timeout=SILENCE, failover_interval=LONG, retry=Retry(attempts=2)) as proxied:
        assert proxied.send(arrival("before")) == Done()
        links = proxied.sends._transport.primary
        first = links._shared.current
        fault = harness.primary.break_("unreachable", how="silent")
        future = proxied.begin(arrival("in doubt"))
        proxied.wait_for("in_doubt")
        assert links._shared.current is not first
        harness.primary.clear(fault)
        assert future.result(WAIT_S) == Done()
        wait_until(lambda: first not in links._windows)
    assert set(harness.primary.texts(harness.orders)) == {"before", "in doubt"}


# --- what is refused ---


def test_a_sender_to_what_is_not_there_is_refused_as_the_primary_does(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        reply = proxied.open("no-such-queue")
        assert isinstance(reply, Refused)
        assert reply.error.condition == "amqp:not-found"
        assert proxied.refusal(arrival("x"), path="no-such-queue").condition == "amqp:not-found"
        assert isinstance(proxied.open(), SenderOpened)


def test_names_that_differ_by_case_alone_are_one_entity(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        assert proxied.send(arrival("1")) == Done()
        assert proxied.send(arrival("2"), path=harness.orders.upper()) == Done()
        assert len(proxied.call(proxied.sends.status).entities) == 1
    assert harness.primary.texts(harness.orders) == ["1", "2"]


def test_a_message_that_is_too_large_is_refused_and_the_link_stays(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        opened = proxied.open()
        assert isinstance(opened, SenderOpened)
        assert opened.message_bytes_max is not None
        error = proxied.refusal(arrival(b"x" * opened.message_bytes_max))
        assert error.condition == "amqp:link:message-size-exceeded"
        assert proxied.send(arrival("fits")) == Done()
        assert proxied.unwritten_bytes == 0
    assert "in_doubt" not in proxied.names()


def test_what_fits_the_primary_but_not_the_backlog_is_announced_and_refused_in_an_outage(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        large = arrival(b"x" * 261_000)
        assert proxied.send(large) == Done()
        assert proxied.send(arrival("x", properties={"x-ms-path": "mine"})) == Done()
        proxied.wait_for("too_large_for_detour")
        proxied.wait_for("reserved_property")
        failed_over(proxied, harness)
        error = proxied.refusal(arrival(b"x" * 262_080))
        assert error.condition == "amqp:link:message-size-exceeded"
        assert "the detour adds" in str(error)
        error = proxied.refusal(arrival("x", properties={"x-ms-path": "mine"}))
        assert error.condition == "com.microsoft:argument-error"
        assert "x-ms-path" in str(error)


def test_a_busy_primary_is_no_outage(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        proxied.open()
        harness.primary.break_("refuse", harness.orders, condition="com.microsoft:server-busy")
        error = proxied.refusal(arrival("refused"))  # one attempt is all there is
        assert error.condition == "com.microsoft:server-busy"
        harness.primary.clear()
        assert proxied.send(arrival("stored")) == Done()
        assert "failed_over" not in proxied.names()
    assert harness.primary.texts(harness.orders) == ["stored"]


def test_a_key_that_may_not_send_is_refused_as_the_primary_does(harness: PairHarness) -> None:
    reader = Namespace.from_connection_string(harness.primary.rule_strings["reader"])
    with Proxied(harness, primary=reader) as proxied:
        reply = proxied.open()
        assert isinstance(reply, Refused)
        assert reply.error.condition == "amqp:unauthorized-access"


def test_a_pair_that_cannot_work_is_refused_at_the_start(harness: PairHarness) -> None:
    proxied = Proxied(harness, primary=harness.secondary.namespace)
    with pytest.raises((PairingError, OptionsError)):
        proxied.run(proxied.sends.start())
    proxied.__exit__(None, None, None)


# --- batches ---


def test_a_batch_stays_one_transfer(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        assert proxied.send(*[arrival(f"{number}") for number in range(5)]) == Done()
        assert proxied.unwritten_bytes == 0
        (entity,) = proxied.call(proxied.sends.status).entities
        assert entity.sent_to_primary == 5
    assert harness.primary.texts(harness.orders) == ["0", "1", "2", "3", "4"]
    assert len({message.enqueued_time_utc for message in harness.primary.messages(harness.orders)}) == 1


def test_a_batch_that_is_larger_than_the_primary_takes_is_split(harness: PairHarness) -> None:
    batch = [arrival(f"{number}".encode() * 100_000) for number in range(5)]
    with Proxied(harness) as proxied:
        assert proxied.send(*batch) == Done()
        assert proxied.unwritten_bytes == 0
    assert [text[0] for text in harness.primary.texts(harness.orders)] == ["0", "1", "2", "3", "4"]


def test_a_batch_takes_the_detour_as_a_whole(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        failed_over(proxied, harness)
        assert proxied.send(*[arrival(f"{number}".encode() * 100_000) for number in range(5)]) == Done()
    assert [text[0] for text in harness.backlog_texts() if text != "the first"] == ["0", "1", "2", "3", "4"]


def test_of_a_batch_that_is_partly_stored_the_sender_learns_how_many_are(harness: PairHarness) -> None:
    with Proxied(harness, backlog_queue_count=1) as proxied:
        failed_over(proxied, harness)
        harness.secondary.change_queue(harness.backlog(0), max_size_in_megabytes=1)
        batch = [arrival(f"{number}".encode() * 250_000) for number in range(6)]
        error = proxied.refusal(*batch)
        stored = len(harness.backlog_texts(1)) - 1
        assert 0 < stored < 6
        assert f"{stored} of 6 messages are stored in the backlog" in str(error)
        assert error.condition == "amqp:not-allowed"
        assert proxied.unwritten_bytes == 0


# --- schedules ---


def test_messages_are_scheduled_by_the_primary_and_can_be_cancelled_there(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        response = proxied.schedule(encoded("1", due=LATER), encoded("2", "two", due=LATER))
        assert response.code == 200
        numbers = list(response.body["sequence-numbers"])
    found = harness.primary.messages(harness.orders)
    assert [message.sequence_number for message in found] == numbers
    assert {message.scheduled_enqueue_time_utc for message in found} == {LATER}
    assert found[0].message_id
    assert found[1].message_id == "two"


def test_in_an_outage_messages_are_scheduled_in_the_backlog_under_tokens_that_cannot_be_cancelled(
    harness: PairHarness,
) -> None:
    with Proxied(harness) as proxied:
        harness.primary.break_("unreachable", how="refuse")
        response = proxied.schedule(encoded("1", due=LATER), encoded("2", due=LATER))
        assert response.code == 200
        numbers = list(response.body["sequence-numbers"])
        assert len(set(numbers)) == 2
        assert max(numbers) < 0
        body = {"sequence-numbers": numbers}
        request = Request("cancel-1", "reply", "com.microsoft:cancel-scheduled-message", {}, body)
        refusal = proxied.sends.cancel_refusal(request)
        assert refusal is not None
        answer = read_response(refusal)
        assert (answer.is_ok, answer.condition) == (False, "amqp:not-allowed")
        assert "cannot be cancelled" in answer.text
        known = Request("cancel-2", "reply", "com.microsoft:cancel-scheduled-message", {}, {"sequence-numbers": [7]})
        assert proxied.sends.cancel_refusal(known) is None
    found = harness.in_backlog()
    assert [str(message) for message in found] == ["1", "2"]
    assert {alias(message, "x-ms-scheduledenqueuetimeutc") for message in found} == {int(LATER.timestamp() * 1000)}


def test_a_schedule_that_the_primary_refuses_is_refused_with_its_words(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        response = proxied.schedule(encoded("1", due=LATER), path="no-such-queue")
        assert (response.is_ok, response.code, response.condition) == (False, 404, "amqp:not-found")
        response = proxied.schedule(b"no message")
        assert (response.is_ok, response.condition) == (False, "amqp:decode-error")


# --- held, and in order ---


def test_sends_are_held_through_a_short_outage(harness: PairHarness) -> None:
    backoff = Retry(attempts=1, backoff_min=timedelta(milliseconds=50), backoff_max=timedelta(milliseconds=100))
    with Proxied(harness, hold_sends=True, failover_interval=LONG, hold_time_max=LONG, retry=backoff) as proxied:
        proxied.open()
        harness.primary.break_("no-send", harness.orders)
        futures = proxied.begin_all([[arrival(f"{number}")] for number in range(10)])
        wait_until(lambda: proxied.call(proxied.sends.status).entities[0].held_now == 10)
        assert not any(future.done() for future in futures)
        harness.primary.clear()
        assert {future.result(WAIT_S) for future in futures} == {Done()}
    assert harness.primary.texts(harness.orders) == [f"{number}" for number in range(10)]


def test_more_sends_than_may_be_held_are_refused(harness: PairHarness) -> None:
    with Proxied(harness, hold_sends=True, failover_interval=LONG, hold_count_max=3) as proxied:
        proxied.open()
        harness.primary.break_("no-send", harness.orders)
        futures = proxied.begin_all([[arrival(f"{number}")] for number in range(5)])
        done, _ = wait(futures[3:], WAIT_S)
        assert len(done) == 2
        assert {future.result().error.condition for future in done} == {"com.microsoft:timeout"}  # type: ignore[union-attr]
        harness.primary.clear()
        assert {future.result(WAIT_S) for future in futures[:3]} == {Done()}


def test_every_session_comes_home_in_the_order_in_which_it_was_sent(harness: PairHarness) -> None:
    with Proxied(harness, order="session", enable_syphon=True) as proxied:
        wait_until(lambda: proxied.call(lambda: proxied.sends._pair.entity(harness.orders).is_plain))

        def send(start: int) -> None:
            transfers = [[arrival(f"{number}", session_id="abc"[number % 3])] for number in range(start, start + 30)]
            assert {future.result(WAIT_S) for future in proxied.begin_all(transfers)} == {Done()}

        send(0)
        harness.primary.break_("unreachable", how="refuse")
        send(30)
        harness.primary.clear()
        send(60)
        proxied.wait_for("recovered")
        send(90)
        wait_until(lambda: len(harness.primary.texts(harness.orders)) >= 120)
    found: dict[str | None, list[int]] = defaultdict(list)
    for message in harness.primary.messages(harness.orders):
        found[message.session_id].append(int(str(message)))
    for numbers in found.values():
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    assert sum(map(len, map(set, found.values()))) == 120


# --- recorded, and the end ---


def test_every_message_is_in_the_ledger_where_it_went(harness: PairHarness, tmp_path: Path) -> None:
    with Proxied(harness, ledger=tmp_path) as proxied:
        assert proxied.send(arrival("x", "home-1")) == Done()
        assert proxied.send(arrival("x", "home-2"), arrival("x", "home-3", due=LATER)) == Done()
        harness.primary.break_("no-send", harness.orders)
        assert proxied.send(arrival("x", "away-1"), arrival("x", "away-2")) == Done()
        harness.secondary.break_("no-send")
        assert isinstance(proxied.send(arrival("x", "nowhere")), Refused)
    assert verify(tmp_path).is_complete
    ids: dict[str, list[str]] = defaultdict(list)
    for record in LedgerReader(tmp_path).records():
        ids[record.kind] += record.message_ids
    assert ids["accepted"] == ["home-1", "home-2", "home-3"]
    assert ids["backlogged"] == ["away-1", "away-2"]
    assert ids["not_sent"] == ["nowhere"]


def test_a_stop_answers_what_is_under_way_and_refuses_what_comes(harness: PairHarness) -> None:
    proxied = Proxied(harness)
    with proxied:
        proxied.open()
        harness.primary.break_("slow", harness.orders, delay_ms=700)
        futures = proxied.begin_all([[arrival(f"{number}")] for number in range(10)])
        stopping = asyncio.run_coroutine_threadsafe(proxied.sends.stop(), proxied._loop.loop)
        wait_until(lambda: proxied.sends._is_stopping)
        assert proxied.refusal(arrival("late")).condition == "com.microsoft:timeout"
        stopping.result(WAIT_S)
        assert {future.result(0) for future in futures} == {Done()}
        assert proxied.sends.status().phase is Phase.CLOSED
        assert [task for task in asyncio.all_tasks(proxied._loop.loop) if "call" not in repr(task)] == []
    assert len(harness.primary.texts(harness.orders)) == 10


def test_a_stop_ends_within_a_bound_though_nobody_answers(harness: PairHarness) -> None:
    with Proxied(harness, attempt_timeout=timedelta(seconds=2), failover_interval=LONG) as proxied:
        proxied.open()
        harness.primary.break_("unreachable", how="silent")
        future = proxied.begin(arrival("x"))
        began = time.monotonic()
        proxied.run(proxied.sends.stop())
        assert time.monotonic() - began < 10
        reply = future.result(0)
        assert isinstance(reply, Refused)
        assert "in doubt" in str(reply.error)


def test_after_a_fault_everything_is_refused_with_its_reason(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        proxied.run(proxied.sends.fault("somebody said so"))
        error = proxied.refusal(arrival("x"))
        assert error.condition == "amqp:internal-error"
        assert "somebody said so" in str(error)
        reply = proxied.open()
        assert isinstance(reply, Refused)


def test_the_numbers_of_a_pair_are_those_of_a_client(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        assert proxied.send(arrival("x")) == Done()
        lines = proxied.sends.metrics_text().splitlines()
        sent = [line for line in lines if line.startswith("twinbus_pair_messages_total") and harness.orders in line]
        assert any('side="primary"' in line and line.endswith(" 1.0") for line in sent)
