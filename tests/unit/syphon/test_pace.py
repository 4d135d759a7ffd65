"""How much is sent, and what is sent at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pump_harness import START_MS, Yard, backlogged, delivered

from twinbus.errors import OptionsError
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pace import NAMED_MAX, RunState, UnlistedEntities


def test_a_cap_on_the_rate_is_kept() -> None:
    yard = Yard(rate=50.0)
    for number in range(1_000):
        yard.put("orders" if number % 2 else "invoices", f"m{number}")
    yard.run(10)
    sent = len(yard.ids_at("orders")) + len(yard.ids_at("invoices"))
    assert 480 <= sent <= 506
    assert abs(len(yard.ids_at("orders")) - len(yard.ids_at("invoices"))) < 60, "no destination waits for another"


def test_a_slow_rate_borrows_no_more_than_it_can_send_under_lock() -> None:
    yard = Yard(rate=1.0)
    for number in range(1_000):
        yard.put("orders", f"m{number}")
    yard.run(1)
    assert len(yard.queues[0].lent) <= 16


def test_a_canary_moves_exactly_so_many_and_pauses() -> None:
    yard = Yard(canary=25)
    for number in range(100):
        yard.put("orders", f"m{number}")
    yard.run(5)
    assert len(yard.ids_at("orders")) == 25
    assert yard.pump.pace.state is RunState.CANARY
    assert yard.queues[0].lent == {}
    yard.pump.resume()
    yard.run(1)
    assert len(yard.ids_at("orders")) == 100


def test_only_chosen_entities_are_moved() -> None:
    yard = Yard(entities=frozenset({"Orders"}))
    for number in range(100):
        yard.put("orders" if number % 2 else "invoices", f"m{number}")
    yard.run(2)
    assert len(yard.ids_at("orders")) == 50
    assert "invoices" not in yard.home
    assert yard.queues[0].lent == {}


def test_what_came_into_the_backlog_after_the_cut_off_stays() -> None:
    cutoff = datetime.fromtimestamp(START_MS / 1000, UTC) - timedelta(seconds=10)
    yard = Yard(enqueued_before=cutoff)
    yard.put("orders", "old", age_ms=11_000)
    yard.put("orders", "new", age_ms=9_000)
    yard.run(2)
    assert yard.ids_at("orders") == ["old"]


def test_a_pause_gives_everything_back_and_a_resume_goes_on() -> None:
    yard = Yard(rate=10.0)
    for number in range(100):
        yard.put("orders", f"m{number}")
    yard.run(1)
    yard.pump.pause()
    yard.run(60)
    moved = len(yard.ids_at("orders"))
    assert moved <= 12
    assert yard.queues[0].lent == {}
    assert yard.queues[0].credit == 0
    yard.pump.resume()
    yard.run(20)
    assert len(yard.ids_at("orders")) == 100


def test_a_stop_is_for_good() -> None:
    yard = Yard()
    yard.pump.stop()
    yard.pump.resume()
    yard.put("orders", "m1")
    yard.run(5)
    assert yard.home == {}


def test_all_wrong_options_are_told_at_once() -> None:
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


def test_each_entity_that_is_not_named_is_told_once_and_its_messages_stay() -> None:
    yard = Yard(entities=frozenset({"/Orders"}))
    for number in range(30):
        yard.put(("orders", "invoices", "Invoices")[number % 3], f"m{number}")
    yard.run(300)  # several sweeps: what stays comes again and again
    assert yard.pump.counts.released > 20
    assert [(each.name, each.subject) for each in yard.alerts] == [("not_listed", "invoices")]
    assert yard.left == 20


def test_names_that_a_stranger_makes_up_do_not_fill_memory_or_logs() -> None:
    yard = Yard(entities=frozenset({"orders"}))
    for number in range(NAMED_MAX + 50):
        yard.put(f"entity-{number}", f"m{number}")
    yard.put("orders", "mine")
    yard.run(5)
    assert yard.ids_at("orders") == ["mine"]
    assert len(yard.alerts) == NAMED_MAX


def test_where_no_entity_is_named_nothing_is_outside() -> None:
    yard = Yard()
    yard.put("orders", "m1")
    yard.run(2)
    assert (yard.pump.counts.unlisted, yard.alerts) == (0, [])
