"""Order mode of the pump, one trouble at a time."""

from __future__ import annotations

from ordered_backlog import BUSY, LOCK_MS, REFUSED, OrderedYard, name_of

from twinbus.amqp.outcomes import ACCEPTED, Outcome, Rejected


def ids(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


def fill(yard: OrderedYard, count: int, *sessions: str | None, path: str = "orders") -> None:
    for number in range(count):
        yard.put(path, sessions[number % len(sessions)], f"m{number}")


def test_letters_of_a_key_come_home_in_the_order_of_their_queue() -> None:
    yard = OrderedYard(prefetch=7)
    fill(yard, 50, "a", "b", None)
    yard.run(2)
    assert yard.first_copies("orders", "a") == ids(*range(0, 50, 3))
    assert yard.first_copies("orders", None) == ids(*range(2, 50, 3))
    assert not yard.stored
    assert yard.pump.counts.moved == 50


def test_one_batch_of_a_key_is_under_way_at_a_time() -> None:
    yard = OrderedYard()
    under_way: list[list[str]] = []

    def hold(messages: list[bytes]) -> str:
        under_way.append([name_of(each)[1] for each in messages])
        return "silent"

    yard.replies["orders"] = hold
    fill(yard, 4, "a")
    yard.settle_down()
    fill(yard, 4, "a")
    yard.settle_down()
    assert under_way == [ids(0, 1, 2, 3)]


def test_keys_do_not_wait_for_each_other() -> None:
    yard = OrderedYard()
    yard.replies["orders"] = lambda _: Rejected(BUSY)
    fill(yard, 6, "a")
    fill(yard, 6, "a", path="other")
    yard.run(5)
    assert yard.first_copies("other", "a") == ids(*range(6))
    assert not yard.home.get("orders")


def test_after_a_busy_destination_everything_comes_again_in_order() -> None:
    yard = OrderedYard(prefetch=5)
    answers: list[Outcome] = [ACCEPTED, Rejected(BUSY), Rejected(BUSY)]
    yard.replies["orders"] = lambda _: answers.pop(0) if answers else ACCEPTED
    fill(yard, 40, "a", "b")
    yard.run(90)
    assert yard.first_copies("orders", "a") == ids(*range(0, 40, 2))
    assert yard.first_copies("orders", "b") == ids(*range(1, 40, 2))
    assert len(yard.home["orders"]) == 40, "nothing was sent twice"


def test_a_letter_in_doubt_goes_again_before_those_behind_it() -> None:
    yard = OrderedYard(prefetch=4)
    answers = ["silent"]
    yard.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(yard, 12, "a")
    yard.run(120)
    assert yard.first_copies("orders", "a") == ids(*range(12))
    assert not yard.stored
    assert yard.pump.counts.in_doubt == 4


def test_a_refused_letter_leaves_a_hole_and_the_others_keep_their_order() -> None:
    yard = OrderedYard()

    def refuse(messages: list[bytes]) -> Outcome:
        return Rejected(REFUSED) if any(name_of(each)[1] == "m3" for each in messages) else ACCEPTED

    yard.replies["orders"] = refuse
    fill(yard, 8, "a")
    yard.run(5)
    assert yard.first_copies("orders", "a") == ids(0, 1, 2, 4, 5, 6, 7)
    assert yard.dead == [4]
    assert sorted(came.sequence for came in yard.witness.letters) == list(range(1, 9)), "it is told of the hole too"


def test_letters_that_a_lost_link_keeps_locked_are_not_overtaken() -> None:
    yard = OrderedYard(prefetch=5)
    yard.replies["orders"] = lambda _: "lost"
    fill(yard, 10, "a")
    yard.settle_down()
    yard.lose_link()
    del yard.replies["orders"]
    yard.attach()
    yard.run(LOCK_MS / 1000 - 20)
    assert not yard.home.get("orders"), "the first five are still under the old lock"
    yard.run(60)
    assert yard.first_copies("orders", "a") == ids(*range(10))


def test_the_guard_looks_once_and_not_for_every_letter() -> None:
    yard = OrderedYard()
    yard.run(1)
    looks, yard.next_sequence = yard.looks, 5_000
    fill(yard, 1_000, "a", "b")
    yard.settle_down()
    assert yard.first_copies("orders", "a") == ids(*range(0, 1_000, 2))
    assert yard.looks == looks + 1


def test_holes_in_the_numbers_hold_nothing_up() -> None:
    yard = OrderedYard()
    for number in range(40):
        yard.next_sequence += 1 + number % 3
        yard.put("orders", "a", f"m{number}")
    yard.run(5)
    assert yard.first_copies("orders", "a") == ids(*range(40))
    assert yard.pump.counts.released == 0


def test_a_letter_that_somebody_took_away_is_not_waited_for() -> None:
    yard = OrderedYard(prefetch=3)
    answers: list[Outcome] = [Rejected(BUSY)]
    yard.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(yard, 6, "a")
    yard.run(2)
    del yard.stored[1]
    yard.run(120)
    assert yard.first_copies("orders", "a") == ids(1, 2, 3, 4, 5)


def test_lost_locks_stop_a_key_before_a_later_letter_goes() -> None:
    yard = OrderedYard(prefetch=2, rate=0.01)
    yard.are_locks_renewed = False
    fill(yard, 6, "a")
    yard.run(1_200)
    assert yard.first_copies("orders", "a") == ids(*range(6))[: len(yard.first_copies("orders", "a"))]
    assert yard.first_copies("orders", "a")


def test_a_pump_that_waits_for_its_rate_wants_a_tick_ten_times_a_second() -> None:
    yard = OrderedYard(prefetch=2, rate=0.01)
    fill(yard, 6, "a")
    yard.run(1)
    assert yard.pump.counts.received == 2, "it holds messages that may not go yet"
    assert yard.pump.next_ms(yard.now_ms) - yard.now_ms >= 100


def test_strangers_are_put_aside_and_nobody_waits_for_them() -> None:
    yard = OrderedYard()
    fill(yard, 3, "a")
    sequence = yard.put("", "a", "stranger")
    fill(yard, 3, "b")
    yard.run(5)
    assert yard.dead == [sequence]
    assert yard.first_copies("orders", "b") == ids(0, 1, 2)
    assert yard.pump.counts.released == 0


def test_a_witness_hears_of_every_letter_that_left_in_the_order_of_its_key() -> None:
    yard = OrderedYard()
    fill(yard, 9, "a", "b", None)
    yard.run(1)
    by_key = [came.sequence for came in yard.witness.letters if came.session_id == "a"]
    assert by_key == [1, 4, 7]
    assert len(yard.witness.letters) == 9


def test_an_empty_queue_is_seen_at_once_and_again_only_after_letters_came() -> None:
    yard = OrderedYard()
    yard.settle_down()
    seen = yard.witness.times_empty
    assert seen == 1
    yard.run(600)
    assert yard.looks == 1
    fill(yard, 2, "a")
    yard.run(5)
    assert yard.witness.times_empty == seen + 1


def test_a_queue_with_letters_under_a_strange_lock_is_not_called_empty() -> None:
    yard = OrderedYard()
    fill(yard, 1, "a")
    yard.stored[1].locked_until_ms = yard.now_ms + 30_000
    yard.run(20)
    assert not yard.witness.times_empty
    yard.run(60)
    assert yard.witness.times_empty


def test_a_pause_gives_everything_back_and_order_is_kept_afterwards() -> None:
    yard = OrderedYard(canary=5)
    fill(yard, 20, "a", "b")
    yard.run(3)
    assert yard.pump.counts.moved == 5
    yard.pump.resume()
    yard.run(10)
    assert yard.first_copies("orders", "a") == ids(*range(0, 20, 2))
    assert yard.first_copies("orders", "b") == ids(*range(1, 20, 2))


def test_a_letter_that_was_given_back_and_is_held_by_somebody_else_is_waited_for() -> None:
    yard = OrderedYard(busy_s=5)
    answers: list[Outcome] = [Rejected(BUSY)]
    yard.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    fill(yard, 3, "a")
    yard.run(0.7)
    assert yard.pump.counts.released == 3
    yard.lock_strangely(1)
    yard.run(30)
    assert not yard.home.get("orders")
    yard.run(60)
    assert yard.first_copies("orders", "a") == ids(0, 1, 2)


def test_a_sweep_that_never_falls_quiet_ends_when_a_destination_has_rested() -> None:
    yard = OrderedYard(busy_s=1)
    answers: list[Outcome] = [Rejected(BUSY)]
    yard.replies["orders"] = lambda _: answers.pop() if answers else ACCEPTED
    for number in range(30):  # somebody sends without a pause
        yard.put("orders", "a", f"m{number}")
        yard.run(0.1)
    assert len(yard.home["orders"]) > 20
    assert yard.first_copies("orders", "a") == ids(*range(len(yard.home["orders"])))


def test_while_somebody_waits_for_an_empty_queue_an_idle_syphon_looks_again() -> None:
    yard = OrderedYard()
    yard.run(60)
    assert yard.looks == 1
    yard.witness.is_waiting = True
    yard.run(15)
    assert yard.looks == 2
