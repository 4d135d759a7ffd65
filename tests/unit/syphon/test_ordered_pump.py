"""Order mode of the pump, one trouble at a time."""

from __future__ import annotations

from ordered_backlog import BUSY, LOCK_MS, REFUSED, OrderedPumpHarness, name_of

from twinbus.amqp.codec.outcomes import ACCEPTED, Outcome, Rejected


def ids(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


def fill(harness: OrderedPumpHarness, count: int, *sessions: str | None, path: str = "orders") -> None:
    for number in range(count):
        harness.put(path, sessions[number % len(sessions)], f"m{number}")


def test_messages_of_a_key_come_home_in_the_order_of_their_queue() -> None:
    harness = OrderedPumpHarness(prefetch=7)
    fill(harness, 50, "a", "b", None)
    harness.run(2)
    assert harness.first_copies("orders", "a") == ids(*range(0, 50, 3))
    assert harness.first_copies("orders", None) == ids(*range(2, 50, 3))
    assert not harness.stored
    assert harness.pump.counts.moved == 50


def test_one_batch_of_a_key_is_under_way_at_a_time() -> None:
    harness = OrderedPumpHarness()
    under_way: list[list[str]] = []

    def hold(messages: list[bytes]) -> str:
        under_way.append([name_of(each)[1] for each in messages])
        return "silent"

    harness.replies["orders"] = hold
    fill(harness, 4, "a")
    harness.settle_down()
    fill(harness, 4, "a")
    harness.settle_down()
    assert under_way == [ids(0, 1, 2, 3)]


def test_keys_do_not_wait_for_each_other() -> None:
    harness = OrderedPumpHarness()
    harness.replies["orders"] = lambda _: Rejected(BUSY)
    fill(harness, 6, "a")
    fill(harness, 6, "a", path="other")
    harness.run(5)
    assert harness.first_copies("other", "a") == ids(*range(6))
    assert not harness.home.get("orders")


def test_after_a_busy_destination_everything_comes_again_in_order() -> None:
    harness = OrderedPumpHarness(prefetch=5)
    answers: list[Outcome] = [ACCEPTED, Rejected(BUSY), Rejected(BUSY)]
    harness.replies["orders"] = lambda _: answers.pop(0) if answers else ACCEPTED
    fill(harness, 40, "a", "b")
    harness.run(90)
    assert harness.first_copies("orders", "a") == ids(*range(0, 40, 2))
    assert harness.first_copies("orders", "b") == ids(*range(1, 40, 2))
    assert len(harness.home["orders"]) == 40, "nothing was sent twice"


def test_a_message_in_doubt_goes_again_before_those_behind_it() -> None:
    harness = OrderedPumpHarness(prefetch=4)
    answers = ["silent"]
    harness.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(harness, 12, "a")
    harness.run(120)
    assert harness.first_copies("orders", "a") == ids(*range(12))
    assert not harness.stored
    assert harness.pump.counts.in_doubt == 4


def test_a_refused_message_leaves_a_hole_and_the_others_keep_their_order() -> None:
    harness = OrderedPumpHarness()

    def refuse(messages: list[bytes]) -> Outcome:
        return Rejected(REFUSED) if any(name_of(each)[1] == "m3" for each in messages) else ACCEPTED

    harness.replies["orders"] = refuse
    fill(harness, 8, "a")
    harness.run(5)
    assert harness.first_copies("orders", "a") == ids(0, 1, 2, 4, 5, 6, 7)
    assert harness.dead == [4]
    assert sorted(came.sequence for came in harness.observer.messages) == list(range(1, 9)), (
        "it is told of the hole too"
    )


def test_messages_that_a_lost_link_keeps_locked_are_not_overtaken() -> None:
    harness = OrderedPumpHarness(prefetch=5)
    harness.replies["orders"] = lambda _: "lost"
    fill(harness, 10, "a")
    harness.settle_down()
    harness.lose_link()
    del harness.replies["orders"]
    harness.attach()
    harness.run(LOCK_MS / 1000 - 20)
    assert not harness.home.get("orders"), "the first five are still under the old lock"
    harness.run(60)
    assert harness.first_copies("orders", "a") == ids(*range(10))


def test_the_guard_looks_once_and_not_for_every_message() -> None:
    harness = OrderedPumpHarness()
    harness.run(1)
    looks, harness.next_sequence = harness.looks, 5_000
    fill(harness, 1_000, "a", "b")
    harness.settle_down()
    assert harness.first_copies("orders", "a") == ids(*range(0, 1_000, 2))
    assert harness.looks == looks + 1


def test_holes_in_the_numbers_hold_nothing_up() -> None:
    harness = OrderedPumpHarness()
    for number in range(40):
        harness.next_sequence += 1 + number % 3
        harness.put("orders", "a", f"m{number}")
    harness.run(5)
    assert harness.first_copies("orders", "a") == ids(*range(40))
    assert harness.pump.counts.released == 0


def test_a_message_that_somebody_took_away_is_not_waited_for() -> None:
    harness = OrderedPumpHarness(prefetch=3)
    answers: list[Outcome] = [Rejected(BUSY)]
    harness.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(harness, 6, "a")
    harness.run(2)
    del harness.stored[1]
    harness.run(120)
    assert harness.first_copies("orders", "a") == ids(1, 2, 3, 4, 5)


def test_lost_locks_stop_a_key_before_a_later_message_goes() -> None:
    harness = OrderedPumpHarness(prefetch=2, rate=0.01)
    harness.are_locks_renewed = False
    fill(harness, 6, "a")
    harness.run(1_200)
    assert harness.first_copies("orders", "a") == ids(*range(6))[: len(harness.first_copies("orders", "a"))]
    assert harness.first_copies("orders", "a")


def test_a_pump_that_waits_for_its_rate_wants_a_tick_ten_times_a_second() -> None:
    harness = OrderedPumpHarness(prefetch=2, rate=0.01)
    fill(harness, 6, "a")
    harness.run(1)
    assert harness.pump.counts.received == 2, "it holds messages that may not go yet"
    assert harness.pump.next_ms(harness.now_ms) - harness.now_ms >= 100


def test_messages_without_an_address_are_put_aside_and_nobody_waits_for_them() -> None:
    harness = OrderedPumpHarness()
    fill(harness, 3, "a")
    sequence = harness.put("", "a", "stranger")
    fill(harness, 3, "b")
    harness.run(5)
    assert harness.dead == [sequence]
    assert harness.first_copies("orders", "b") == ids(0, 1, 2)
    assert harness.pump.counts.released == 0


def test_an_observer_is_told_of_every_message_that_left_in_the_order_of_its_key() -> None:
    harness = OrderedPumpHarness()
    fill(harness, 9, "a", "b", None)
    harness.run(1)
    by_key = [came.sequence for came in harness.observer.messages if came.session_id == "a"]
    assert by_key == [1, 4, 7]
    assert len(harness.observer.messages) == 9


def test_an_empty_queue_is_seen_at_once_and_again_only_after_messages_came() -> None:
    harness = OrderedPumpHarness()
    harness.settle_down()
    seen = harness.observer.times_empty
    assert seen == 1
    harness.run(600)
    assert harness.looks == 1
    fill(harness, 2, "a")
    harness.run(5)
    assert harness.observer.times_empty == seen + 1


def test_a_queue_with_messages_under_a_strange_lock_is_not_called_empty() -> None:
    harness = OrderedPumpHarness()
    fill(harness, 1, "a")
    harness.stored[1].locked_until_ms = harness.now_ms + 30_000
    harness.run(20)
    assert not harness.observer.times_empty
    harness.run(60)
    assert harness.observer.times_empty


def test_a_pause_gives_everything_back_and_order_is_kept_afterwards() -> None:
    harness = OrderedPumpHarness(canary=5)
    fill(harness, 20, "a", "b")
    harness.run(3)
    assert harness.pump.counts.moved == 5
    harness.pump.resume()
    harness.run(10)
    assert harness.first_copies("orders", "a") == ids(*range(0, 20, 2))
    assert harness.first_copies("orders", "b") == ids(*range(1, 20, 2))


def test_a_message_that_was_given_back_and_is_held_by_somebody_else_is_waited_for() -> None:
    harness = OrderedPumpHarness(busy_s=5)
    answers: list[Outcome] = [Rejected(BUSY)]
    harness.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(harness, 3, "a")
    harness.run(0.7)
    assert harness.pump.counts.released == 3
    harness.lock_strangely(1)
    harness.run(30)
    assert not harness.home.get("orders")
    harness.run(60)
    assert harness.first_copies("orders", "a") == ids(0, 1, 2)


def test_a_sweep_that_never_falls_quiet_ends_when_a_destination_has_rested() -> None:
    harness = OrderedPumpHarness(busy_s=1)
    answers: list[Outcome] = [Rejected(BUSY)]
    harness.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    for number in range(30):  # somebody sends without a pause
        harness.put("orders", "a", f"m{number}")
        harness.run(0.1)
    assert len(harness.home["orders"]) > 20
    assert harness.first_copies("orders", "a") == ids(*range(len(harness.home["orders"])))


def test_while_somebody_waits_for_an_empty_queue_an_idle_syphon_looks_again() -> None:
    harness = OrderedPumpHarness()
    harness.run(60)
    assert harness.looks == 1
    harness.observer.is_waiting = True
    harness.run(15)
    assert harness.looks == 2
