"""How much is sent, and what is sent at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pump_harness import START_MS, PumpHarness, backlogged, delivered

from twinbus.errors import OptionsError
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.pace import NAMED_MAX, RunState, UnlistedEntities


def test_a_cap_on_the_rate_is_kept() -> None:
    harness = PumpHarness(rate=50.0)
    for number in range(1_000):
        harness.put("orders" if number % 2 else "invoices", f"m{number}")
    harness.run(10)
    sent = len(harness.ids_at("orders")) + len(harness.ids_at("invoices"))
    assert 480 <= sent <= 506
    assert abs(len(harness.ids_at("orders")) - len(harness.ids_at("invoices"))) < 60, "no destination waits for another"


def test_a_slow_rate_borrows_no_more_than_it_can_send_under_lock() -> None:
    harness = PumpHarness(rate=1.0)
    for number in range(1_000):
        harness.put("orders", f"m{number}")
    harness.run(1)
    assert len(harness.queues[0].lent) <= 16


def test_a_canary_moves_exactly_so_many_and_pauses() -> None:
    harness = PumpHarness(canary=25)
    for number in range(100):
        harness.put("orders", f"m{number}")
    harness.run(5)
    assert len(harness.ids_at("orders")) == 25
    assert harness.pump.pace.state is RunState.CANARY
    assert harness.queues[0].lent == {}
    harness.pump.resume()
    harness.run(1)
    assert len(harness.ids_at("orders")) == 100


def test_only_chosen_entities_are_moved() -> None:
    harness = PumpHarness(entities=frozenset({"Orders"}))
    for number in range(100):
        harness.put("orders" if number % 2 else "invoices", f"m{number}")
    harness.run(2)
    assert len(harness.ids_at("orders")) == 50
    assert "invoices" not in harness.home
    assert harness.queues[0].lent == {}


def test_what_came_into_the_backlog_after_the_cut_off_stays() -> None:
    cutoff = datetime.fromtimestamp(START_MS / 1000, UTC) - timedelta(seconds=10)
    harness = PumpHarness(enqueued_before=cutoff)
    harness.put("orders", "old", age_ms=11_000)
    harness.put("orders", "new", age_ms=9_000)
    harness.run(2)
    assert harness.ids_at("orders") == ["old"]


def test_a_pause_gives_everything_back_and_a_resume_goes_on() -> None:
    harness = PumpHarness(rate=10.0)
    for number in range(100):
        harness.put("orders", f"m{number}")
    harness.run(1)
    harness.pump.pause()
    harness.run(60)
    moved = len(harness.ids_at("orders"))
    assert moved <= 12
    assert harness.queues[0].lent == {}
    assert harness.queues[0].credit == 0
    harness.pump.resume()
    harness.run(20)
    assert len(harness.ids_at("orders")) == 100


def test_a_stop_is_for_good() -> None:
    harness = PumpHarness()
    harness.pump.stop()
    harness.pump.resume()
    harness.put("orders", "m1")
    harness.run(5)
    assert harness.home == {}


def test_all_wrong_options_are_reported_at_once() -> None:
    with pytest.raises(OptionsError) as caught:
        SyphonOptions(rate=-1, canary=0, backoff_s=(5, 1), enqueued_before=datetime(2026, 1, 1))
    assert all(word in str(caught.value) for word in ("rate", "canary", "backoff_s", "enqueued_before"))
    with pytest.raises(OptionsError, match="prefetch must be from 1"):
        SyphonOptions(prefetch=0)


def test_a_message_that_stays_is_counted_once_however_often_it_comes_again() -> None:
    outside = UnlistedEntities(lambda path: path == "orders")
    for _ in range(3):
        for number, path in enumerate(("orders", "invoices", "invoices", "vault")):
            outside.check(0, delivered(backlogged(path, "m"), number, START_MS, START_MS), path)
        outside.check(1, delivered(backlogged("vault", "m"), 1, START_MS, START_MS), "vault")
    assert outside.count == 4


def test_each_entity_that_is_not_named_is_reported_once_and_its_messages_stay() -> None:
    harness = PumpHarness(entities=frozenset({"/Orders"}))
    for number in range(30):
        harness.put(("orders", "invoices", "Invoices")[number % 3], f"m{number}")
    harness.run(300)  # several sweeps: what stays comes again and again
    assert harness.pump.counts.released > 20
    assert [(each.name, each.subject) for each in harness.alerts] == [("not_listed", "invoices")]
    assert harness.left == 20


def test_names_that_an_unknown_sender_makes_up_do_not_fill_memory_or_logs() -> None:
    harness = PumpHarness(entities=frozenset({"orders"}))
    for number in range(NAMED_MAX + 50):
        harness.put(f"entity-{number}", f"m{number}")
    harness.put("orders", "mine")
    harness.run(5)
    assert harness.ids_at("orders") == ["mine"]
    assert len(harness.alerts) == NAMED_MAX


def test_where_no_entity_is_named_nothing_is_outside() -> None:
    harness = PumpHarness()
    harness.put("orders", "m1")
    harness.run(2)
    assert (harness.pump.counts.unlisted, harness.alerts) == (0, [])
