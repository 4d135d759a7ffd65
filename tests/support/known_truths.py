"""Ledgers whose truth is known: what really happened to every message, and what a report may say about it.

Each truth writes a scenario to a `SmallLedger` and names the classes of all messages, and the exit code: 0 where the
records prove that nothing is lost, 4 where they prove that something is, 3 where they prove neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from small_ledger import PRIMARY, QUEUE, SECONDARY, SmallLedger, Writer

from twinbus.ledger import Kind

HOUR = 60.0


class Truth(NamedTuple):
    """A scenario, the classes of its messages by entity, the exit code, and words that the verdict has to have."""

    scenario: Callable[[SmallLedger], None]
    classes: dict[str, dict[str, int]]
    code: int
    words: str = ""


TRUTHS: dict[str, Truth] = {}


Scenario = Callable[[SmallLedger], None]


def keep_in(truths: dict[str, Truth]) -> Callable[..., Callable[[Scenario], Scenario]]:
    """Gives what puts a scenario among these truths: `@truth(exit code, words, entity={class: messages})`."""

    def truth(code: int, words: str = "", **classes: dict[str, int]) -> Callable[[Scenario], Scenario]:
        def keep(scenario: Scenario) -> Scenario:
            named = {entity.replace("__", ":"): found for entity, found in classes.items()}
            truths[scenario.__name__] = Truth(scenario, named, code, words)
            return scenario

        return keep

    return truth


truth = keep_in(TRUTHS)


def ids(count: int, name: str = "m") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


# --- whose entity it is ---


@truth(0, orders={"delivered": 10})
def everything_is_delivered(ledger: SmallLedger) -> None:
    client, primary, secondary = ledger.writer("client"), ledger.writer(PRIMARY), ledger.writer(SECONDARY)
    client.accepted(1, "orders", *ids(10))
    primary.through(1, "orders", *ids(10))
    secondary.say(1, Kind.INVENTORY, "", namespace=SECONDARY, queue=QUEUE, count=0)


@truth(
    4,
    "1 lost",
    orders={"delivered": 9, "lost": 1},
    bills={"sent_elsewhere": 1},
    backup__orders={"sent_elsewhere": 10},
)
def the_secondarys_own_queue_delivers_the_same_id_that_the_primary_lost(ledger: SmallLedger) -> None:
    client, primary, secondary = ledger.writer("client"), ledger.writer(PRIMARY), ledger.writer(SECONDARY)
    client.accepted(1, "orders", *ids(10))
    primary.through(1, "orders", *ids(9))
    secondary.through(2, "orders", *ids(10))
    primary.through(HOUR, "bills", "other")


@truth(0, orders={"stored_on_primary": 20}, backup__orders={"sent_elsewhere": 5})
def the_secondarys_own_queue_goes_on_while_the_primary_keeps_no_ledger(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY)
    client.accepted(1, "orders", *ids(20))
    client.backlogged(1, "bills", "b")
    secondary.through(2 * HOUR, "orders", *ids(5, "theirs"))


TRUTHS["the_secondarys_own_queue_goes_on_while_the_primary_keeps_no_ledger"].classes["bills"] = {"waiting": 1}


@truth(0, orders={"delivered": 10}, backup__orders={"sent_elsewhere": 3})
def names_in_other_letters_are_the_same_namespace(ledger: SmallLedger) -> None:
    client, primary, secondary = ledger.writer("client"), ledger.writer("contoso"), ledger.writer("Backup")
    client.accepted(1, "Orders", *ids(10), namespace="Contoso")
    primary.through(1, "orders", *ids(10))
    secondary.through(2, "ORDERS", *ids(3))


@truth(3, "contoso", orders={"stored_on_primary": 10}, contoso__orders={"sent_elsewhere": 9})
def clients_call_the_primary_by_a_name_that_it_does_not_have(ledger: SmallLedger) -> None:
    """Perhaps the same namespace, which lost one; perhaps another one."""
    client, primary = ledger.writer("client"), ledger.writer("contoso")
    client.accepted(1, "orders", *ids(10), namespace="shop")
    primary.through(1, "orders", *ids(9))


@truth(0, orders={"delivered": 2, "waiting": 1})
def the_secondary_tells_of_its_backlog_queues(ledger: SmallLedger) -> None:
    client, syphon, secondary = ledger.writer("client"), ledger.writer("syphon"), ledger.writer(SECONDARY)
    primary = ledger.writer(PRIMARY)
    client.backlogged(1, "orders", "a", "b", "c")
    secondary.say(1, Kind.STORED, "", "a", "b", "c", namespace=SECONDARY, queue=QUEUE)
    syphon.brought_home(10, "orders", "a", "b")
    secondary.say(10, Kind.DELIVERED, "", "a", "b", namespace=SECONDARY, queue=QUEUE)
    primary.through(10, "orders", "a", "b")


@truth(0, orders={"waiting": 3}, backup__orders={"sent_elsewhere": 1})
def the_secondary_deletes_its_own_queue_of_that_name(ledger: SmallLedger) -> None:
    client, primary, secondary = ledger.writer("client"), ledger.writer(PRIMARY), ledger.writer(SECONDARY)
    client.accepted(1, "orders", *ids(3))
    primary.stored(1, "orders", *ids(3))
    secondary.stored(1, "orders", "theirs")
    secondary.say(5, Kind.REMOVED, "orders", namespace=SECONDARY, count=1)


@truth(
    3,
    "several primaries",
    contoso__orders={"delivered": 1, "waiting": 1},
    backup__orders={"waiting": 1},
)
def two_pairs_in_opposite_directions_share_a_ledger(ledger: SmallLedger) -> None:
    client, other, primary = ledger.writer("client"), ledger.writer("client"), ledger.writer(PRIMARY)
    secondary = ledger.writer(SECONDARY)
    client.accepted(1, "orders", "a")
    client.backlogged(2, "orders", "b")
    other.accepted(1, "orders", "a", namespace=SECONDARY)
    primary.through(1, "orders", "a")
    secondary.stored(1, "orders", "a")


@truth(3, "keep no ledger", orders={"sent_elsewhere": 3})
def nobody_who_sends_keeps_a_ledger(ledger: SmallLedger) -> None:
    ledger.writer(PRIMARY).through(1, "orders", *ids(3))


# --- held under lock ---


def _an_outage(ledger: SmallLedger) -> None:
    """Eleven messages in the backlog; ten of them, which entered an hour later, are home and delivered."""
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    client.backlogged(1, "orders", "old")
    client.backlogged(1 + HOUR, "orders", *ids(10))
    primary.through(2 * HOUR, "orders", *ids(10))


@truth(0, orders={"delivered": 10, "waiting": 1})
def a_running_syphon_holds_a_message_under_lock(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    syphon = ledger.writer("syphon", "running")
    syphon.took(2 * HOUR - 1, "orders", "old")
    syphon.brought_home(2 * HOUR, "orders", *ids(10))


@truth(3, "syphon", orders={"delivered": 10, "unknown": 1})
def a_killed_syphon_held_a_message_under_lock(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    killed, syphon = ledger.writer("syphon", "killed"), ledger.writer("syphon")
    killed.took(2 * HOUR - 1, "orders", "old")
    syphon.brought_home(2 * HOUR, "orders", *ids(10))


@truth(3, "syphon", orders={"delivered": 10, "unknown": 1})
def a_syphon_that_was_killed_long_ago_holds_the_last_message(ledger: SmallLedger) -> None:
    """Nothing has overtaken it: it may be home, or in the backlog."""
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    killed = ledger.writer("syphon", "killed")
    client.backlogged(1, "orders", *ids(10))
    client.backlogged(2, "orders", "last")
    killed.brought_home(5, "orders", *ids(10))
    primary.through(5, "orders", *ids(10))
    killed.took(6, "orders", "last")


@truth(0, orders={"delivered": 10, "waiting": 1})
def a_syphon_closed_and_said_nothing_of_what_it_held(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    syphon = ledger.writer("syphon")
    syphon.took(2 * HOUR - 1, "orders", "old")
    syphon.brought_home(2 * HOUR, "orders", *ids(10))


@truth(0, orders={"delivered": 10, "waiting": 1})
def a_killed_syphons_message_was_given_back_by_the_next(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    killed, syphon = ledger.writer("syphon", "killed"), ledger.writer("syphon")
    killed.took(HOUR, "orders", "old")
    syphon.took(2 * HOUR - 2, "orders", "old")
    syphon.took(2 * HOUR - 1, "orders", "old", kind=Kind.RELEASED)
    syphon.brought_home(2 * HOUR, "orders", *ids(10))


@truth(4, "1 lost", orders={"delivered": 10, "lost": 1})
def a_message_was_passed_over_in_the_backlog(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    ledger.writer("syphon").brought_home(2 * HOUR, "orders", *ids(10))


@truth(4, "1 lost", orders={"delivered": 10, "lost": 1})
def a_message_was_completed_in_the_backlog_and_never_sent_home(ledger: SmallLedger) -> None:
    _an_outage(ledger)
    syphon = ledger.writer("syphon")
    syphon.took(2 * HOUR - 1, "orders", "old")
    syphon.took(2 * HOUR - 1, "orders", "old", kind=Kind.COMPLETED)
    syphon.brought_home(2 * HOUR, "orders", *ids(10))


@truth(0, orders={"delivered": 1})
def a_syphon_was_killed_after_a_message_was_home(ledger: SmallLedger) -> None:
    client, primary, syphon = ledger.writer("client"), ledger.writer(PRIMARY), ledger.writer("syphon", "killed")
    client.backlogged(1, "orders", "a")
    syphon.took(5, "orders", "a")
    syphon.say(5, Kind.SENT_HOME, "orders", "a", namespace=PRIMARY)
    primary.through(5, "orders", "a")


# --- accepted, and never stored ---


@truth(4, "1 lost", orders={"delivered": 9, "lost": 1}, bills={"delivered": 1})
def the_last_message_of_a_queue_was_never_stored(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    client.accepted(1, "orders", *ids(10))
    primary.through(1, "orders", *ids(9))
    client.accepted(HOUR, "bills", "b")
    primary.through(HOUR, "bills", "b")


@truth(4, "3 lost", orders={"lost": 3})
def a_queue_stored_nothing_and_the_namespace_closed_soon(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=2.0)
    primary.say(0, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    client.accepted(1, "orders", *ids(3))


@truth(4, "1 lost", orders={"waiting": 2, "lost": 1})
def a_message_came_home_and_was_never_stored(ledger: SmallLedger) -> None:
    client, syphon = ledger.writer("client"), ledger.writer("syphon")
    primary = ledger.writer(PRIMARY, closed_at=30.0)
    primary.say(0, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    client.backlogged(1, "orders", *ids(3))
    syphon.brought_home(10, "orders", *ids(3))
    primary.stored(10, "orders", *ids(2))


@truth(3, "contoso", orders={"delivered": 9, "unknown": 1})
def the_namespace_was_killed_before_it_could_tell(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, "killed")
    client.accepted(1, "orders", *ids(9))
    primary.through(1, "orders", *ids(9))
    client.accepted(1.02, "orders", "last")


@truth(3, "acknowledged by the primary, whose records", orders={"delivered": 9, "unknown": 1})
def a_running_namespace_has_said_nothing_since(ledger: SmallLedger) -> None:
    """It may still write it down: a disk may be full, and the gap is recorded later."""
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, "running")
    client.accepted(1, "orders", *ids(9))
    primary.through(1, "orders", *ids(9))
    client.accepted(HOUR, "orders", "last")


@truth(4, "1 lost", orders={"delivered": 9, "lost": 1})
def a_running_namespace_went_on_to_tell_of_other_things(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, "running")
    client.accepted(1, "orders", *ids(10))
    primary.through(1, "orders", *ids(9))
    primary.say(2, Kind.LONG_POLL, "bills", namespace=PRIMARY, count=1)


@truth(0, orders={"delivered": 5, "stored_on_primary": 5})
def the_namespace_kept_no_ledger_yet(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    client.accepted(1, "orders", *ids(5, "early"))
    client.accepted(HOUR, "orders", *ids(5))
    primary.say(HOUR - 1, Kind.INVENTORY, "orders", namespace=PRIMARY, count=5)
    primary.through(HOUR, "orders", *ids(5))


@truth(0, orders={"delivered": 5, "stored_on_primary": 5})
def the_namespace_keeps_no_ledger_any_more(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    client.accepted(1, "orders", *ids(5))
    primary.through(1, "orders", *ids(5))
    client.accepted(HOUR, "orders", *ids(5, "late"))


@truth(0, orders={"waiting": 3})
def scheduled_messages_are_stored_and_wait(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY)
    client.accepted(1, "orders", *ids(3), sequence_numbers=(1, 2, 3))
    primary.stored(1, "orders", *ids(3), until_ms=1 << 42)


# --- the same id, more than once ---


@truth(4, "1 lost", orders={"lost": 1, "delivered": 1})
def an_id_was_accepted_twice_and_stored_once(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=2 * HOUR)
    client.accepted(1, "orders", "a")
    client.accepted(HOUR, "orders", "a")
    client.accepted(HOUR, "orders", "b")
    primary.through(1, "orders", "a")
    primary.through(HOUR, "orders", "b")


@truth(0, orders={"delivered": 1})
def an_id_was_accepted_twice_and_dropped_as_a_duplicate(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=2 * HOUR)
    client.accepted(1, "orders", "a")
    client.accepted(HOUR, "orders", "a")
    primary.through(1, "orders", "a")
    primary.say(HOUR, Kind.DUPLICATE, "orders", "a", namespace=PRIMARY)


@truth(0, orders={"duplicated": 1})
def an_id_was_accepted_and_stored_twice(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=2 * HOUR)
    client.accepted(1, "orders", "a")
    client.accepted(HOUR, "orders", "a")
    primary.through(1, "orders", "a")
    primary.through(HOUR, "orders", "a")


@truth(0, orders={"delivered": 1})
def an_id_was_accepted_first_while_the_namespace_kept_no_ledger(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=2 * HOUR)
    client.accepted(1, "orders", "a")
    client.accepted(HOUR, "orders", "a")
    primary.say(HOUR - 1, Kind.INVENTORY, "orders", namespace=PRIMARY, count=1)
    primary.through(HOUR, "orders", "a")


@truth(0, orders={"delivered": 1})
def a_message_came_home_twice_and_one_copy_is_there(ledger: SmallLedger) -> None:
    """Both are the same message: whoever took it for a loss would invent one."""
    client, primary, syphon = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=HOUR), ledger.writer("syphon")
    client.backlogged(1, "orders", "a")
    syphon.took(5, "orders", "a")
    syphon.say(5, Kind.SENT_HOME, "orders", "a", namespace=PRIMARY)
    syphon.took(6, "orders", "a", kind=Kind.LOCK_LOST)
    syphon.brought_home(7, "orders", "a")
    primary.through(7, "orders", "a")
    primary.say(0.5, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)


@truth(3, "contoso", orders={"unknown": 1, "delivered": 1})
def an_id_was_accepted_twice_and_the_namespace_was_killed_at_the_second_time(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, "killed")
    client.accepted(1, "orders", "a")
    client.accepted(HOUR, "orders", "b")
    primary.through(1, "orders", "a")
    primary.through(HOUR - 0.03, "orders", "b")
    client.accepted(HOUR, "orders", "a")


# --- some of it is dark ---


@truth(4, "at least 1 lost; whether more is unknown", orders={"delivered": 10, "lost": 1})
def a_client_was_killed_long_before_the_primary_lost_a_message(ledger: SmallLedger) -> None:
    """What that client did not record is not about the message that is lost."""
    killed, client, primary = ledger.writer("client", "killed"), ledger.writer("client"), ledger.writer(PRIMARY)
    killed.accepted(1, "orders", "old")
    primary.through(1, "orders", "old")
    client.accepted(24 * HOUR, "orders", *ids(10))
    primary.through(24 * HOUR, "orders", *ids(9))
    primary.say(25 * HOUR, Kind.LONG_POLL, "bills", namespace=PRIMARY, count=1)


# --- a client that does not name its primary ---


@truth(3, "acknowledged by the primary, whose records", orders={"delivered": 9, "unknown": 1})
def the_only_namespace_with_a_ledger_does_not_have_what_an_unnamed_one_accepted(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=HOUR)
    client.accepted(1, "orders", *ids(10), namespace="unnamed")
    primary.say(0, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    primary.through(1, "orders", *ids(9))


# --- in the backlog, as the secondary tells ---


def _in_queue(secondary: Writer, minute: float, kind: Kind, *names: str, **more: Any) -> None:
    secondary.say(minute, kind, "", *names, namespace=SECONDARY, queue=QUEUE, **more)


@truth(4, "does not have it", orders={"waiting": 9, "lost": 1})
def a_backlog_queue_acknowledged_a_message_and_never_stored_it(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY)
    client.backlogged(HOUR, "orders", *ids(10))
    _in_queue(secondary, 1, Kind.STORED, "before")
    _in_queue(secondary, HOUR, Kind.STORED, *ids(9))
    _in_queue(secondary, 2 * HOUR, Kind.STORED, "after")


@truth(3, "the secondary", orders={"waiting": 9, "unknown": 1})
def the_secondary_was_killed_before_it_told_of_a_message(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY, "killed")
    client.backlogged(HOUR, "orders", *ids(10))
    _in_queue(secondary, 1, Kind.STORED, "before")
    _in_queue(secondary, HOUR - 0.01, Kind.STORED, *ids(9))


@truth(0, orders={"waiting": 10})
def the_secondary_kept_no_ledger_when_messages_came(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY)
    client.backlogged(1, "orders", *ids(10))
    _in_queue(secondary, HOUR, Kind.INVENTORY, count=10)


@truth(3, "the secondary", orders={"waiting": 9, "unknown": 1})
def somebody_without_a_ledger_took_a_message_from_the_backlog(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY)
    client.backlogged(1, "orders", *ids(10))
    _in_queue(secondary, 1, Kind.STORED, *ids(10))
    _in_queue(secondary, 5, Kind.DELIVERED, "m3")


@truth(3, "the secondary", orders={"unknown": 3})
def a_backlog_queue_was_deleted_with_what_was_in_it(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY)
    client.backlogged(1, "orders", *ids(3))
    _in_queue(secondary, 1, Kind.STORED, *ids(3))
    _in_queue(secondary, 5, Kind.REMOVED, count=3)


@truth(3, "the secondary", orders={"unknown": 1}, bills={"unknown": 1})
def two_entities_share_an_id_and_a_backlog_queue_stored_one_of_them(ledger: SmallLedger) -> None:
    client, secondary = ledger.writer("client"), ledger.writer(SECONDARY, closed_at=2 * HOUR)
    client.backlogged(HOUR, "orders", "1")
    client.backlogged(HOUR, "bills", "1")
    _in_queue(secondary, 1, Kind.STORED, "before")
    _in_queue(secondary, HOUR, Kind.STORED, "1")


# --- many ---


@truth(4, "995 lost", orders={"delivered": 5, "lost": 995})
def nearly_everything_is_lost(ledger: SmallLedger) -> None:
    client, primary = ledger.writer("client"), ledger.writer(PRIMARY, closed_at=HOUR)
    client.accepted(1, "orders", *ids(1000))
    primary.say(0, Kind.INVENTORY, "bills", namespace=PRIMARY, count=1)
    primary.through(1, "orders", *ids(5))
