"""Sends of a proxy through outages of every kind: what was accepted is stored, once, where it is said to be (X1)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from outages import OUTAGES, SILENCE, attempt_for, heal
from paired import PairHarness, wait_until
from proxied import Proxied, arrival

from twinbus import Retry
from twinbus.broker.operations import Done, Refused, SenderOpened
from twinbus.proxy.readiness import Readiness, readiness


@pytest.mark.parametrize("kind", OUTAGES)
def test_the_message_that_meets_an_outage_is_saved_and_later_ones_return_to_the_primary(
    harness: PairHarness, kind: str
) -> None:
    with Proxied(harness, attempt_timeout=attempt_for(kind)) as proxied:
        assert isinstance(proxied.open(), SenderOpened)
        assert proxied.send(arrival("before")) == Done()
        OUTAGES[kind](harness)
        assert proxied.send(arrival("meets it")) == Done()
        assert proxied.send(arrival("during it")) == Done()
        assert isinstance(proxied.open(), SenderOpened)
        heal(harness)
        proxied.wait_for("recovered")
        assert proxied.send(arrival("after")) == Done()
        assert proxied.unwritten_bytes == 0
        doubts = proxied.call(proxied.sends.status).entities[0].copies_in_doubt
    assert sorted(harness.backlog_texts()) == ["during it", "meets it"]
    found = [text for text in harness.primary.texts(harness.orders) if not text.startswith("x")]
    assert found[-1] == "after"
    assert set(found) - {"before", "after"} <= ({"meets it"} if doubts else set())
    assert "before" in found or kind == "deleted"


def test_within_the_failover_interval_a_send_is_refused_with_a_condition_that_clients_retry(
    harness: PairHarness,
) -> None:
    with Proxied(harness, failover_interval=timedelta(seconds=3)) as proxied:
        assert proxied.send(arrival("before")) == Done()
        harness.primary.break_("unreachable", how="refuse")
        error = proxied.refusal(arrival("refused"))
        assert error.condition == "com.microsoft:timeout"
        proxied.wait_for("suspect")
        proxied.wait_for("failed_over")
        assert proxied.send(arrival("saved")) == Done()
    assert harness.backlog_texts() == ["saved"]


def test_what_the_primary_says_itself_is_passed_on(harness: PairHarness) -> None:
    with Proxied(harness, failover_interval=timedelta(minutes=10)) as proxied:
        assert proxied.send(arrival("before")) == Done()
        harness.primary.break_("refuse", harness.orders, condition="com.contoso:on-strike")
        assert proxied.refusal(arrival("refused")).condition == "com.contoso:on-strike"


def test_a_success_within_the_interval_ends_the_suspicion(harness: PairHarness) -> None:
    with Proxied(harness, failover_interval=timedelta(minutes=10)) as proxied:
        assert proxied.send(arrival("before")) == Done()
        harness.primary.break_("no-send", harness.orders)
        assert isinstance(proxied.send(arrival("refused")), Refused)
        harness.primary.clear()
        assert proxied.send(arrival("after")) == Done()
        proxied.wait_for("trusted_again")
    assert harness.primary.texts(harness.orders) == ["before", "after"]


def test_many_messages_in_flight_keep_their_order_through_a_lost_connection(harness: PairHarness) -> None:
    retry = Retry(attempts=20, backoff_min=timedelta(milliseconds=200), backoff_max=timedelta(milliseconds=200))
    names = [f"{number:04}" for number in range(400)]
    with Proxied(harness, failover_interval=timedelta(minutes=10), retry=retry) as proxied:
        proxied.open()
        harness.primary.break_("slow", harness.orders, delay_ms=300)
        first = proxied.begin_all([[arrival(name, name)] for name in names[:200]])
        harness.primary.break_("unreachable", how="drop")
        wait_until(lambda: any(name == "in_doubt" for name in proxied.names()))
        second = proxied.begin_all([[arrival(name, name)] for name in names[200:]])
        harness.primary.clear()
        assert {future.result(60) for future in (*first, *second)} == {Done()}
        doubts = proxied.call(proxied.sends.status).entities[0].copies_in_doubt
    found = harness.primary.texts(harness.orders)
    assert list(dict.fromkeys(found)) == names
    assert len(found) - len(names) <= doubts


def test_a_message_that_is_never_answered_does_not_hold_up_the_others(harness: PairHarness) -> None:
    with Proxied(harness, attempt_timeout=SILENCE) as proxied:
        proxied.open()
        fault_id = harness.primary.break_("unanswered", harness.orders)
        lost = proxied.begin(arrival("lost"))
        harness.primary.clear(fault_id)
        names = [f"{number}" for number in range(20)]
        for future in proxied.begin_all([[arrival(name)] for name in names]):
            assert future.result(60) == Done()
        assert not lost.done()
        assert lost.result(60) == Done()
    assert harness.primary.texts(harness.orders) == ["lost", *names]
    assert harness.backlog_texts() == ["lost"]


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_with_both_sides_down_a_send_is_refused_and_says_why_of_both(harness: PairHarness, how: str) -> None:
    with Proxied(harness, attempt_timeout=SILENCE) as proxied:
        assert proxied.send(arrival("before")) == Done()
        for namespace in (harness.primary, harness.secondary):
            if how == "killed":
                namespace.kill()
            else:
                namespace.break_("unreachable", how="silent")
        error = proxied.refusal(arrival("refused"))
        assert error.condition == "com.microsoft:timeout"
        assert "primary:" in str(error)
        assert "secondary:" in str(error)
        assert ("in doubt" in str(error)) == (how == "silent")
        harness.secondary.heal()
        wait_until(lambda: proxied.send(arrival("saved")) == Done())
    assert "saved" in harness.backlog_texts()


def test_a_secondary_that_comes_back_meanwhile_takes_the_messages(harness: PairHarness) -> None:
    with Proxied(harness) as proxied:
        assert proxied.send(arrival("before")) == Done()
        for namespace in (harness.primary, harness.secondary):
            namespace.break_("unreachable", how="refuse")
        waiting = proxied.begin_all([[arrival(f"{number}")] for number in range(20)])
        proxied.wait_for("secondary_unreachable")
        harness.secondary.heal()
        assert {future.result(60) for future in waiting} == {Done()}
    assert sorted(harness.backlog_texts(), key=int) == [f"{number}" for number in range(20)]


def test_the_primary_may_be_down_when_the_proxy_starts(harness: PairHarness) -> None:
    harness.primary.break_("unreachable", how="refuse")
    with Proxied(harness) as proxied:
        assert proxied.open() == SenderOpened(None)
        assert proxied.sends.drops_pings is None
        assert proxied.send(arrival("saved")) == Done()
        harness.primary.heal()
        proxied.wait_for("recovered")
        assert proxied.sends.drops_pings
        assert proxied.send(arrival("home")) == Done()
    assert harness.primary.texts(harness.orders) == ["home"]
    assert harness.backlog_texts() == ["saved"]


def test_a_proxy_whose_spool_is_full_is_not_ready_until_there_is_room(harness: PairHarness, tmp_path: Path) -> None:
    with Proxied(harness, attempt_timeout=SILENCE, spool=tmp_path, spool_max="100 KB") as proxied:
        assert proxied.send(arrival("before")) == Done()
        for namespace in (harness.primary, harness.secondary):
            namespace.break_("unreachable", how="refuse")
        for _ in range(3):
            assert proxied.send(arrival("x" * 30_000)) == Done()

        def ready() -> Readiness:
            return readiness(proxied.call(proxied.sends.status))

        assert "(spool_max)" in str(proxied.refusal(arrival("x" * 200_000)))
        assert ready().is_ready, "a message that could never fit says nothing of others"
        assert "(spool_max)" in str(proxied.refusal(arrival("x" * 30_000)))
        assert not ready().is_ready
        assert "takes nothing: it is full: it holds" in ready().reason
        assert proxied.send(arrival("small")) == Done()
        assert ready().is_ready
        assert "(spool_max)" in str(proxied.refusal(arrival("x" * 30_000)))
        harness.primary.heal()
        proxied.wait_for("spool_home")
        proxied.wait_for("recovered")
        assert ready().is_ready
        assert "spool" not in ready().reason


def test_with_a_spool_nothing_is_refused_while_both_are_down_and_all_of_it_comes_home(
    harness: PairHarness, tmp_path: Path
) -> None:
    with Proxied(harness, attempt_timeout=SILENCE, spool=tmp_path) as proxied:
        assert proxied.send(arrival("before")) == Done()
        for namespace in (harness.primary, harness.secondary):
            namespace.break_("unreachable", how="refuse")
        assert proxied.send(arrival("one")) == Done()
        assert proxied.send(arrival("two"), arrival("three")) == Done()
        spool = proxied.call(proxied.sends.status).spool
        assert spool is not None
        assert spool.messages == 3
        harness.primary.heal()
        proxied.wait_for("spool_home")
        proxied.wait_for("recovered")
    assert sorted(harness.primary.texts(harness.orders)) == ["before", "one", "three", "two"]
    harness.secondary.heal()
    assert harness.backlog_texts() == []
