"""A look at real namespaces from outside: what is there, what lies in it, and what cannot be known."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from token_makers import scoped_to

from twinbus.cli.status.status_view import report
from twinbus.client.inspection.health import Check, Health, judge
from twinbus.client.inspection.inspect_pair import inspect
from twinbus.client.inspection.reports import Inspection
from twinbus.client.namespace import Namespace
from twinbus.errors import PairingError
from twinbus.testing import LocalNamespace, NamespacePair

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
BACKLOG = {"max_size_mb": 5120, "max_delivery_count": 2_147_483_647, "dead_letter_on_expiration": True}
BACKLOG_ONLY = frozenset({Check.FAILOVER, Check.BACKLOG})
LONG_S = 10.0
"""More than whoever is well needs, also on a busy machine."""
AWAY_S = 4.0
"""How long those are waited for who are away; the others have to answer within it."""


@pytest.fixture
def spaces() -> Iterator[NamespacePair]:
    rules = ["sender:Send", "syphon:Listen"]
    with LocalNamespace("contoso", rules=rules) as primary, LocalNamespace("backup", rules=rules) as secondary:
        for path in QUEUES:
            secondary.create_queue(path, **BACKLOG)
        yield NamespacePair(primary, secondary)


def reach(namespace: LocalNamespace, rule: str | None = None) -> Namespace:
    text = namespace.connection_string if rule is None else namespace.connection_string_for(rule)
    return Namespace.from_connection_string(text)


def look(spaces: NamespacePair, rule: str | None = None, **options: Any) -> Inspection:
    return inspect(reach(spaces.primary), reach(spaces.secondary, rule), 2, attempt_s=LONG_S, admin_s=LONG_S, **options)


def send(spaces: NamespacePair, path: str, count: int) -> None:
    with reach(spaces.secondary).sync_client() as client, client.get_queue_sender(path) as sender:
        sender.send_messages([ServiceBusMessage("x" * 1000) for _ in range(count)])


def test_an_empty_pair_is_well(spaces: NamespacePair) -> None:
    seen = look(spaces)
    assert judge(seen, BACKLOG_ONLY).health is Health.HEALTHY
    assert (seen.primary.is_reachable, seen.primary.problem, seen.primary.name) == (True, None, "contoso")
    assert (seen.secondary.is_reachable, seen.secondary.problem, seen.secondary.name) == (True, None, "backup")
    assert [(queue.path, queue.exists, queue.differs) for queue in seen.queues] == [(path, True, ()) for path in QUEUES]
    assert (seen.waiting_messages, seen.dead_letters, seen.oldest_age_s, seen.unlisted) == (0, 0, None, None)
    assert seen.as_dict()["is_filling"] is False


def test_what_lies_in_the_backlog_is_seen_and_left_there(spaces: NamespacePair) -> None:
    send(spaces, QUEUES[0], 3)
    send(spaces, QUEUES[1], 1)
    for seen in (look(spaces), look(spaces)):
        assert [queue.active for queue in seen.queues] == [3, 1]
        assert (seen.size_bytes or 0) > 4_000
        assert 0 <= (seen.oldest_age_s or -1) < 60
        assert seen.syphon_seen is None, "too early to tell"


def test_a_message_that_was_in_somebodys_hand_shows_a_syphon(spaces: NamespacePair) -> None:
    send(spaces, QUEUES[0], 1)
    with reach(spaces.secondary).sync_client() as client, client.get_queue_receiver(QUEUES[0]) as receiver:
        receiver.abandon_message(receiver.receive_messages(1, max_wait_time=30)[0])
    assert look(spaces).syphon_seen is True


def test_other_settings_and_more_queues_are_reported(spaces: NamespacePair) -> None:
    with reach(spaces.secondary).admin_client() as admin:
        admin.update_queue(admin.get_queue(QUEUES[1]), max_size_in_megabytes=1024, lock_duration="PT30S")
    spaces.secondary.create_queue("contoso/x-servicebus-transfer/2")
    spaces.secondary.create_queue("other/x-servicebus-transfer/2")
    seen = look(spaces)
    assert seen.queues[1].differs == ("max_size_in_megabytes is 1024, not 5120", "lock_duration is 0:00:30, not PT1M")
    assert [queue.path for queue in seen.extra] == ["contoso/x-servicebus-transfer/2"]
    assert judge(seen, BACKLOG_ONLY).health is Health.HEALTHY, "they are accepted as they are"


def test_a_look_keeps_the_one_before_and_none_before_that(spaces: NamespacePair) -> None:
    first = look(spaces)
    second = look(spaces, earlier=first)
    third = look(spaces, earlier=second)
    assert second.earlier == first
    assert third.earlier is not None
    assert third.earlier.earlier is None, "whoever watches looks for days"


@pytest.mark.parametrize("rule", [None, "syphon"])
def test_what_lies_beyond_the_count_is_counted_and_shown(spaces: NamespacePair, rule: str | None) -> None:
    for index in (2, 57):
        spaces.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}", **BACKLOG)
    send(spaces, "contoso/x-servicebus-transfer/57", 3)
    send(spaces, QUEUES[0], 1)
    seen = look(spaces, rule)
    assert [(queue.path[-2:], queue.active) for queue in seen.extra] == [("/2", 0), ("57", 3)]
    assert (seen.waiting_messages, seen.doubt) == (4, None)
    assert judge(seen, BACKLOG_ONLY).health is Health.WAITING
    shown = report(seen, judge(seen))
    assert "waiting    4 messages" in shown
    assert "beyond --queues: a sender elsewhere has more backlog queues" in shown
    assert [queue["active"] for queue in seen.as_dict()["extra_queues"]] == [0, 3]


def test_a_key_that_may_not_look_everywhere_never_shows_that_nothing_waits(spaces: NamespacePair) -> None:
    narrow = Namespace.from_connection_string(scoped_to(spaces.secondary, QUEUES[0]))
    seen = inspect(reach(spaces.primary), narrow, 1, attempt_s=LONG_S, admin_s=LONG_S)
    assert (seen.queues[0].active, seen.waiting_messages, seen.waiting_at_least) == (0, None, 0)
    assert "unknown whether messages are in backlog queue 1 and 98 more" in (seen.doubt or "")
    assert (seen.doubt or "") in report(seen, judge(seen))
    assert "waiting    ? messages" in report(seen, judge(seen))


def test_a_missing_queue_is_reported(spaces: NamespacePair) -> None:
    with reach(spaces.secondary).admin_client() as admin:
        admin.delete_queue(QUEUES[0])
    seen = look(spaces)
    assert [queue.exists for queue in seen.queues] == [False, True]
    assert "not found" in (seen.queues[0].problem or "")


def test_a_key_to_send_knows_less(spaces: NamespacePair) -> None:
    send(spaces, QUEUES[0], 1)
    seen = look(spaces, "sender")
    assert [(queue.exists, queue.problem, queue.active) for queue in seen.queues] == [(True, None, None)] * 2
    assert (seen.oldest_age_s, seen.capacity_hours) == (None, None)
    assert "unauthorised" in (seen.unlisted or "")
    assert (seen.waiting_messages, seen.waiting_at_least, seen.unread_queues) == (None, None, 2)


def test_a_key_to_listen_counts_by_peeking_and_sees_the_oldest_message(spaces: NamespacePair) -> None:
    send(spaces, QUEUES[0], 150)
    send(spaces, QUEUES[0], 150)
    seen = look(spaces, "syphon")
    assert [(queue.active, queue.is_readable, queue.takes_messages) for queue in seen.queues] == [
        (300, True, None),
        (0, True, None),
    ]
    assert (seen.waiting_messages, seen.waiting_at_least, seen.unread_queues) == (300, 300, 0)
    assert seen.oldest_age_s is not None
    assert judge(seen, BACKLOG_ONLY).health is Health.WAITING
    assert seen.secondary.problem is None
    assert (seen.size_bytes, seen.capacity_hours) == (None, None), "that would need Manage"


def test_beyond_the_limit_a_number_is_a_lower_bound(spaces: NamespacePair) -> None:
    send(spaces, QUEUES[0], 30)
    send(spaces, QUEUES[1], 2)
    seen = look(spaces, "syphon", messages_max=20)
    assert [(queue.active, queue.at_least) for queue in seen.queues] == [(None, 20), (2, 2)]
    assert (seen.waiting_messages, seen.waiting_at_least) == (None, 22)


@pytest.mark.parametrize("how", ["refuse", "drop", "silent"])
@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_side_that_is_away_is_reported_in_time(spaces: NamespacePair, side: str, how: str) -> None:
    here, there = reach(spaces.primary), reach(spaces.secondary)
    getattr(spaces, side).faults.add("unreachable", how=how)
    began = time.monotonic()
    seen = inspect(here, there, 2, attempt_s=AWAY_S, admin_s=AWAY_S)
    assert time.monotonic() - began < 30
    assert {"primary": seen.primary.is_reachable, "secondary": seen.secondary.is_reachable} == {
        "primary": side != "primary",
        "secondary": side != "secondary",
    }
    assert judge(seen).health is Health.FAILING


def test_one_namespace_is_no_pair(spaces: NamespacePair) -> None:
    with pytest.raises(PairingError, match="the same namespace"):
        inspect(reach(spaces.primary), reach(spaces.primary))


def test_a_look_leaves_no_thread_behind(spaces: NamespacePair) -> None:
    before = set(threading.enumerate())
    look(spaces)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) - before == set()
