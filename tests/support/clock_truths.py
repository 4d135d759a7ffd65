"""Ledgers whose truth is known, of machines whose clocks are wrong: no answer is certain that a wrong clock could make.

Times are true ones. The primary, the secondary, clients and syphons run on machines of their own, unless a scenario
says that they share one.
"""

from __future__ import annotations

from typing import Any

from known_truths import HOUR, Truth, ids, keep_in
from small_ledger import PRIMARY, QUEUE, SECONDARY, SmallLedger, Writer

from twinbus.ledger import Kind

CLOCK_TRUTHS: dict[str, Truth] = {}
truth = keep_in(CLOCK_TRUTHS)
LATE = 1.5 * HOUR


def _primary(ledger: SmallLedger, **more: Any) -> Writer:
    return ledger.writer(PRIMARY, machine="primary", **more)


def _other_client(ledger: SmallLedger, primary: Writer, minute: float) -> None:
    """A client whose clock is right sends a message, which is delivered."""
    ledger.writer("client", machine="other").accepted(minute, "orders", "other")
    primary.through(minute, "orders", "other")


def _compared(client: Writer, primary: Writer, minute: float) -> None:
    """A message by which both clocks can be compared."""
    client.accepted(minute, "orders", "compared")
    primary.through(minute, "orders", "compared")


# --- the clock of a client ---


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def a_client_that_is_behind_sends_after_the_primary_ended_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=160), ledger.writer("client", machine="shop", ahead=-LATE)
    _compared(client, primary, 10)
    _other_client(ledger, primary, 150)
    client.accepted(200, "orders", "late")


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def a_client_that_is_ahead_sends_before_the_primary_began_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger), ledger.writer("client", machine="shop", ahead=LATE)
    client.accepted(10, "orders", "early")
    _compared(client, primary, 60)
    _other_client(ledger, primary, 200)


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def a_client_that_is_behind_sends_after_the_last_record_of_a_running_primary(ledger: SmallLedger) -> None:
    primary = ledger.writer(PRIMARY, "running", machine="primary")
    client = ledger.writer("client", machine="shop", ahead=-LATE)
    _compared(client, primary, 10)
    _other_client(ledger, primary, 150)
    client.accepted(200, "orders", "late")


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def a_message_is_lost_and_seems_to_be_sent_after_the_primary_ended_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=160), ledger.writer("client", machine="shop", ahead=LATE)
    _compared(client, primary, 10)
    client.accepted(100, "orders", "gone")


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def a_message_is_lost_and_seems_to_be_sent_before_the_primary_began_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=300), ledger.writer("client", machine="shop", ahead=-LATE)
    _compared(client, primary, 60)
    client.accepted(100, "orders", "gone")


@truth(4, "1 lost", orders={"delivered": 1, "lost": 1})
def a_message_is_lost_so_far_from_both_ends_that_no_clock_matters(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=600), ledger.writer("client", machine="shop", ahead=-LATE)
    _compared(client, primary, 10)
    client.accepted(300, "orders", "gone")


@truth(0, orders={"delivered": 1, "stored_on_primary": 1})
def a_client_that_is_behind_sends_long_after_the_primary_ended_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=20), ledger.writer("client", machine="shop", ahead=-LATE)
    _compared(client, primary, 10)
    client.accepted(1000, "orders", "late")


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def the_clock_of_a_client_is_set_back_before_it_sends_the_last_message(ledger: SmallLedger) -> None:
    primary = _primary(ledger, closed_at=160)
    client = ledger.writer("client", machine="shop", set_at={180: -LATE})
    _compared(client, primary, 10)
    _other_client(ledger, primary, 150)
    client.accepted(200, "orders", "late")


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def the_clock_of_a_client_is_put_right_after_it_sent_the_first_message(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger), ledger.writer("client", machine="shop", ahead=LATE, set_at={50: 0})
    client.accepted(10, "orders", "early")
    _compared(client, primary, 60)
    _other_client(ledger, primary, 200)


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def a_client_that_nothing_is_known_of_is_behind_and_sends_after_the_primary_ended_its_ledger(
    ledger: SmallLedger,
) -> None:
    primary = _primary(ledger, closed_at=160)
    _other_client(ledger, primary, 10)
    ledger.writer("client", machine="shop", ahead=-LATE).accepted(200, "orders", "late")


@truth(4, "1 lost", orders={"delivered": 1, "lost": 1})
def a_client_of_which_nothing_was_stored_runs_on_the_machine_of_the_primary(ledger: SmallLedger) -> None:
    primary = _primary(ledger, closed_at=160)
    _other_client(ledger, primary, 10)
    ledger.writer("client", machine="primary").accepted(100, "orders", "gone")


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def an_id_is_accepted_by_two_clients_one_of_which_is_behind(ledger: SmallLedger) -> None:
    """The second was sent while the primary kept no ledger."""
    primary, client = _primary(ledger, closed_at=160), ledger.writer("client", machine="shop")
    _compared(client, primary, 10)
    client.accepted(20, "orders", "a")
    primary.through(20, "orders", "a")
    ledger.writer("client", machine="behind", ahead=-LATE).accepted(200, "orders", "a")


@truth(0, orders={"waiting": 1})
def a_client_that_is_behind_sends_to_a_queue_that_was_deleted_and_made_anew(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger), ledger.writer("client", machine="shop", ahead=-LATE)
    primary.say(50, Kind.REMOVED, "orders", namespace=PRIMARY, count=0)
    client.accepted(100, "orders", "new")
    primary.stored(100, "orders", "new")


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def a_message_is_lost_that_a_clock_which_nothing_compares_moves_days_away(ledger: SmallLedger) -> None:
    primary = _primary(ledger, closed_at=160)
    _other_client(ledger, primary, 10)
    ledger.writer("client", machine="shop", ahead=72 * HOUR).accepted(100, "orders", "gone")


@truth(0, orders={"delivered": 1, "stored_on_primary": 1})
def a_process_that_sends_too_early_is_compared_by_another_of_the_same_machine(ledger: SmallLedger) -> None:
    ledger.writer("client", machine="shop").accepted(10, "orders", "early")
    primary = _primary(ledger)
    _compared(ledger.writer("client", machine="shop"), primary, 100)


# --- the clock of the primary ---


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def the_primary_is_ahead_and_a_message_is_sent_after_it_ended_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, closed_at=160, ahead=LATE), ledger.writer("client", machine="shop")
    _compared(client, primary, 10)
    _other_client(ledger, primary, 150)
    client.accepted(200, "orders", "late")


@truth(3, "clock", orders={"delivered": 2, "unknown": 1})
def the_primary_is_behind_and_a_message_is_sent_before_it_began_its_ledger(ledger: SmallLedger) -> None:
    primary, client = _primary(ledger, ahead=-LATE), ledger.writer("client", machine="shop")
    client.accepted(10, "orders", "early")
    _compared(client, primary, 60)
    _other_client(ledger, primary, 200)


@truth(3, "clock", orders={"delivered": 1, "unknown": 1})
def the_clock_of_the_primary_is_put_right_before_anybody_compares_it(ledger: SmallLedger) -> None:
    primary = _primary(ledger, closed_at=80, ahead=LATE, set_at={60: 0})
    primary.say(0, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    primary.say(59, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    client = ledger.writer("client", machine="shop")
    _compared(client, primary, 70)
    client.accepted(120, "orders", "late")


# --- in the backlog ---


@truth(3, "clock", orders={"stored_on_primary": 10, "unknown": 1})
def a_message_of_a_client_that_is_behind_waits_while_others_come_home(ledger: SmallLedger) -> None:
    ledger.writer("client", machine="other").backlogged(90, "orders", *ids(10))
    ledger.writer("client", machine="shop", ahead=-LATE).backlogged(100, "orders", "last")
    ledger.writer("syphon", machine="syphon").brought_home(110, "orders", *ids(10))


@truth(3, "clock", orders={"stored_on_primary": 10, "unknown": 1})
def a_message_waits_while_those_of_a_client_that_is_ahead_come_home(ledger: SmallLedger) -> None:
    ledger.writer("client", machine="other", ahead=LATE).backlogged(40, "orders", *ids(10))
    ledger.writer("client", machine="shop").backlogged(50, "orders", "last")
    ledger.writer("syphon", machine="syphon").brought_home(150, "orders", *ids(10))


@truth(3, "clock", orders={"stored_on_primary": 2, "unknown": 1})
def the_clock_of_a_client_is_put_right_between_messages_that_come_home_and_one_that_waits(ledger: SmallLedger) -> None:
    client = ledger.writer("client", machine="shop", ahead=LATE, set_at={45: 0})
    client.backlogged(40, "orders", *ids(2))
    client.backlogged(50, "orders", "last")
    ledger.writer("syphon", machine="syphon").brought_home(150, "orders", *ids(2))


@truth(4, "1 lost", orders={"stored_on_primary": 2, "lost": 1})
def a_client_that_is_behind_had_a_message_passed_over_by_its_own_later_ones(ledger: SmallLedger) -> None:
    client = ledger.writer("client", machine="shop", ahead=-LATE)
    client.backlogged(40, "orders", "old")
    client.backlogged(100, "orders", *ids(2))
    ledger.writer("syphon", machine="syphon").brought_home(150, "orders", *ids(2))


@truth(4, "1 lost", orders={"stored_on_primary": 2, "lost": 1})
def a_message_is_passed_over_by_those_of_another_process_of_the_same_machine(ledger: SmallLedger) -> None:
    ledger.writer("client", machine="shop").backlogged(40, "orders", "old")
    ledger.writer("client", machine="shop").backlogged(100, "orders", *ids(2))
    ledger.writer("syphon", machine="syphon").brought_home(150, "orders", *ids(2))


@truth(3, "the secondary", orders={"unknown": 1})
def a_client_that_is_behind_sends_to_the_backlog_after_the_secondary_ended_its_ledger(ledger: SmallLedger) -> None:
    secondary = ledger.writer(SECONDARY, machine="secondary", closed_at=160)
    secondary.say(0, Kind.STORED, "", "before", namespace=SECONDARY, queue=QUEUE)
    ledger.writer("client", machine="shop", ahead=-LATE).backlogged(200, "orders", "late")


# --- what is missing ---


def _came_home_unrecorded(ledger: SmallLedger, *, client: float = 0.0, others: float = 0.0) -> None:
    """`old` came home; nothing is left of the records of that. Then others come home. Clocks are ahead by so much."""
    ledger.writer("client", machine="other", ahead=others).backlogged(90, "bills", *ids(2, "b"))
    shop = ledger.writer("client", machine="shop", ahead=client)
    shop.backlogged(100, "orders", "old")
    shop.backlogged(125, "orders", *ids(2))
    first = ledger.writer("syphon", machine="syphon", ahead=others, missing="old")
    first.brought_home(105, "bills", "b0")
    first.brought_home(110, "orders", "old")
    first.brought_home(150, "bills", "b1")
    ledger.writer("syphon", machine="another").brought_home(230, "orders", *ids(2))


@truth(3, "records are missing", bills={"stored_on_primary": 2}, orders={"stored_on_primary": 2, "unknown": 1})
def the_records_of_a_message_are_missing_whose_sender_is_ahead(ledger: SmallLedger) -> None:
    _came_home_unrecorded(ledger, client=LATE)


@truth(3, "records are missing", bills={"stored_on_primary": 2}, orders={"stored_on_primary": 2, "unknown": 1})
def the_records_of_a_message_are_missing_that_a_syphon_which_is_behind_had_written(ledger: SmallLedger) -> None:
    _came_home_unrecorded(ledger, others=-LATE)


@truth(4, "at least 1 lost", orders={"stored_on_primary": 4, "lost": 1})
def a_message_is_lost_after_the_time_of_the_missing_records_of_its_own_machine(ledger: SmallLedger) -> None:
    shop = ledger.writer("client", machine="shop", ahead=LATE, missing="unheard")
    for minute, name in ((10, "before"), (15, "unheard"), (20, "after")):
        shop.accepted(minute, "orders", name)
    shop.backlogged(40, "orders", "old")
    shop.backlogged(100, "orders", *ids(2))
    ledger.writer("syphon", machine="syphon").brought_home(250, "orders", *ids(2))
