"""Held sends in virtual time (P5, `hold_sends`): in order, within bounds, and never without an answer."""

from __future__ import annotations

import pytest
from scripted_bus import OK, REFUSED, SILENT, Reply, ScriptedBus, fails

from twinbus.client.flows.io_requests import ToPrimary, WaitTurn
from twinbus.errors import NotSent, SendError
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

HOLD = Rules(
    failover_interval_s=60,
    ping_interval_s=1_000,
    attempts=1,
    backoff_max_s=2,
    hold_sends=True,
    hold_count_max=4,
    hold_bytes_max=1_000,
    hold_time_max_s=120,
)


def suspicious(rules: Rules = HOLD) -> ScriptedBus:
    bus = ScriptedBus(rules)
    bus.primary.always = bus.probe.always = REFUSED
    return bus


def send_in_turn(bus: ScriptedBus, names: str) -> None:
    for at, name in enumerate(names):
        bus.run_until(bus.at + at * 0.1)
        bus.send(name)


def test_held_sends_end_in_the_backlog_in_the_order_in_which_they_came() -> None:
    bus = suspicious()
    send_in_turn(bus, "abcd")
    bus.run()
    assert [name for _, name in bus.stored] == list("abcd")
    assert {call.receipt.side for call in bus.calls} == {NamespaceSide.BACKLOG}
    assert bus.at == pytest.approx(60, abs=0.01)


def test_held_sends_end_on_the_primary_in_order_if_it_comes_back_in_time() -> None:
    bus = suspicious()
    send_in_turn(bus, "abcd")
    bus.later(31, lambda: setattr(bus.primary, "always", OK))
    bus.run()
    assert bus.stored == [("primary", name) for name in "abcd"]
    assert bus.at <= 31 + HOLD.backoff_max_s
    assert [heard.name for heard in bus.events_named("trusted_again", "failed_over")] == ["trusted_again"]


def test_only_the_first_in_line_tries_the_primary_and_not_too_often() -> None:
    bus = suspicious()
    send_in_turn(bus, "abcd")
    bus.run_until(20.1)
    assert bus.times(ToPrimary) == pytest.approx([0, *range(2, 21, 2)])


def test_nobody_overtakes_those_who_wait() -> None:
    bus = suspicious()
    bus.send("a")
    bus.run_until(1)
    bus.send("b")
    bus.primary.always = OK
    bus.run_until(1.9)
    late = bus.send("c")
    assert bus.stored == []
    bus.run()
    assert bus.stored == [("primary", name) for name in "abc"]
    assert late.receipt.attempts == 1


def test_those_who_wait_go_at_once_when_somebody_elses_send_succeeds() -> None:
    bus = ScriptedBus(HOLD)
    bus.primary.says(Reply(after_s=0.7), REFUSED)
    bus.send("slow")
    bus.send("a")
    bus.run()
    assert bus.stored == [("primary", "slow"), ("primary", "a")]
    assert bus.at == pytest.approx(0.7)


def test_those_who_wait_go_at_once_when_somebody_forces_a_failover() -> None:
    bus = suspicious()
    send_in_turn(bus, "abc")
    bus.later(1.5, bus.force_failover)
    bus.run()
    assert bus.at == 1.5
    assert [name for _, name in bus.stored] == list("abc")


def test_sends_of_another_entity_do_not_wait() -> None:
    bus = suspicious()
    bus.send("a")
    call = bus.send("b", to="invoices")
    bus.run_until(0)
    assert call.receipt.side is NamespaceSide.PRIMARY


def test_a_send_for_which_there_is_no_room_is_not_held() -> None:
    bus = suspicious()
    send_in_turn(bus, "abcd")
    call = bus.send("e")
    assert isinstance(call.error, NotSent)
    assert "4 sends with 400 bytes are held already" in str(call.error)
    assert call.ended_at == bus.at


def test_large_sends_fill_the_room_before_their_number_does() -> None:
    bus = suspicious()
    bus.send("a", size_bytes=600)
    bus.run_until(0)
    assert isinstance(bus.send("b", size_bytes=401).error, NotSent)
    assert not bus.send("c", size_bytes=400).is_done


def test_room_is_given_back() -> None:
    bus = suspicious()
    send_in_turn(bus, "abcd")
    bus.run()
    assert (len(bus.orders.line), bus.orders.line.bytes) == (0, 0)
    assert bus.sent("e").receipt.side is NamespaceSide.BACKLOG
    assert (len(bus.events_named("held")), len(bus.events_named("released"))) == (4, 4)


def test_nothing_is_held_for_longer_than_the_limit() -> None:
    bus = suspicious(Rules(failover_interval_s=600, attempts=1, hold_sends=True, hold_time_max_s=30))
    send_in_turn(bus, "ab")
    bus.run()
    assert [call.ended_at for call in bus.calls] == pytest.approx([30, 30.1])
    assert all(isinstance(call.error, NotSent) for call in bus.calls)
    assert str(bus.calls[0].error).startswith("not sent: it was held for 30 s; the primary's reason: unreachable")


def test_nothing_is_held_for_longer_than_the_caller_waits() -> None:
    bus = suspicious()
    call = bus.sent("a", timeout_s=7)
    assert isinstance(call.error, NotSent)
    assert call.ended_at == 7


def test_what_has_to_be_mended_is_raised_from_the_line_too_and_the_next_one_tries() -> None:
    bus = suspicious()
    send_in_turn(bus, "ab")
    bus.primary.says(fails(FailureKind.TOO_LARGE))
    bus.primary.always = OK
    bus.run()
    assert isinstance(bus.calls[0].error, SendError)
    assert bus.stored == [("primary", "b")]


def test_closing_ends_every_held_send_as_not_sent_or_in_doubt() -> None:
    bus = suspicious()
    bus.primary.says(SILENT)
    first = bus.send("a")
    bus.run_until(5)
    second = bus.send("b")
    bus.run_until(6)
    bus.close()
    assert isinstance(first.error, NotSent)
    assert isinstance(second.error, NotSent)
    assert str(first.error).startswith("in doubt (it may be stored): the client was closed")
    assert first.error.in_doubt
    assert str(second.error).startswith("not sent: the client was closed")
    assert not second.error.in_doubt
    assert len(bus.orders.line) == 0


def test_closing_ends_the_pauses_between_attempts() -> None:
    bus = suspicious(Rules(failover_interval_s=60, attempts=3))
    call = bus.send("a")
    bus.run_until(0.1)
    bus.close()
    assert isinstance(call.error, NotSent)
    assert call.ended_at == 0.1


def test_without_the_option_nothing_is_held() -> None:
    bus = suspicious(Rules(failover_interval_s=60, attempts=1))
    assert isinstance(bus.sent("a").error, SendError)
    assert not bus.asks(WaitTurn)
