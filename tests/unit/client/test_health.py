"""The verdict on a pair: certain only where it is proven, and what could not be asked is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinbus.client.inspection.health import Check, Health, entity_health, judge
from twinbus.client.inspection.reports import AbilityReport, EntityReport, Inspection, QueueReport, SideReport

YES = AbilityReport(works=True)
NO = AbilityReport(works=False, why="internal error: fault")
MAY_NOT = AbilityReport(works=None, why="the key may not listen")
HERE = SideReport(name="contoso", address="contoso:1", is_reachable=True)
THERE = SideReport(name="backup", address="backup:1", is_reachable=True)
EMPTY = QueueReport(
    path="contoso/x-servicebus-transfer/0",
    exists=True,
    takes_messages=True,
    is_readable=True,
    active=0,
    dead_letters=0,
)
FULLER = replace(EMPTY, active=3, at_least=3)
ORDERS = EntityReport(entity="orders", kind="queue", sending=YES, receiving=YES, managing=YES, waiting=0)
WELL = Inspection(at=0.0, primary=HERE, secondary=THERE, queues=(EMPTY,), entities=(ORDERS,))
AWAY: dict[str, Any] = {"is_reachable": False, "problem": "unreachable: connection refused"}
REFUSING: dict[str, Any] = {"problem": "unauthorised: the signature does not fit", "refuses_key": True}


def seen(**changes: Any) -> Inspection:
    return replace(WELL, **changes)


DOWN: dict[str, Any] = {"primary": replace(HERE, **AWAY), "entities": (replace(ORDERS, sending=NO, receiving=NO),)}
REFUSED_QUEUE = replace(EMPTY, takes_messages=False, is_readable=False, active=None, dead_letters=None, **REFUSING)
UNREAD = replace(EMPTY, is_readable=False, active=None, dead_letters=None)

CASES = {
    "all well": (WELL, Health.HEALTHY, ""),
    "the primary is down": (seen(**DOWN), Health.FAILING, "contoso does not answer"),
    "down, and messages wait": (seen(**DOWN, queues=(FULLER,)), Health.FAILED_OVER, "3 messages"),
    "the secondary is down": (seen(secondary=replace(THERE, **AWAY)), Health.FAILING, "backup does not answer"),
    "both are down": (seen(**DOWN, secondary=replace(THERE, **AWAY), queues=(UNREAD,)), Health.FAILING, "backup"),
    "one entity refuses sends": (seen(entities=(replace(ORDERS, sending=NO),)), Health.FAILING, "orders"),
    "and messages wait": (
        seen(entities=(replace(ORDERS, sending=NO),), queues=(FULLER,)),
        Health.FAILED_OVER,
        "orders",
    ),
    "one entity gives nothing": (seen(entities=(replace(ORDERS, receiving=NO),)), Health.FAILING, "receiving"),
    "receiving fails while messages wait": (
        seen(entities=(replace(ORDERS, receiving=NO),), queues=(FULLER,)),
        Health.FAILING,
        "receiving",
    ),
    "messages wait": (seen(queues=(FULLER,)), Health.WAITING, "3 messages"),
    "some were seen": (seen(queues=(replace(EMPTY, active=None, at_least=9),)), Health.WAITING, "at least 9"),
    "messages in quarantine": (seen(queues=(replace(EMPTY, dead_letters=2),)), Health.WAITING, "2 messages in quarant"),
    "a queue is missing": (
        seen(queues=(EMPTY, replace(EMPTY, exists=False, takes_messages=False, problem="not found: gone"))),
        Health.FAILING,
        "1 of 2 backlog queues",
    ),
    "a queue cannot be emptied": (seen(queues=(replace(EMPTY, shut="it forwards"),)), Health.FAILING, "it forwards"),
    "the primary refuses the key": (seen(primary=replace(HERE, **REFUSING)), Health.UNKNOWN, "contoso refuses the key"),
    "the secondary refuses the key": (
        seen(secondary=replace(THERE, **REFUSING), queues=(REFUSED_QUEUE,)),
        Health.UNKNOWN,
        "backup refuses the key",
    ),
    "nobody can list entities": (seen(entities=(), entities_unlisted="unauthorised"), Health.UNKNOWN, "--entity"),
    "a right is missing": (seen(entities=(replace(ORDERS, receiving=MAY_NOT),)), Health.UNKNOWN, "receiving of orders"),
    "nobody can look into the backlog": (seen(queues=(UNREAD,)), Health.UNKNOWN, "what waits in the backlog"),
    "there may be more queues": (seen(doubt="queue 7 refuses"), Health.UNKNOWN, "queue 7 refuses"),
    "nobody knows of dead letters": (seen(queues=(replace(EMPTY, dead_letters=None),)), Health.UNKNOWN, "quarantine"),
    "nobody may send to the backlog": (
        seen(queues=(replace(EMPTY, takes_messages=None),)),
        Health.UNKNOWN,
        "whether backlog queues take messages",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_was_proven(case: str) -> None:
    look, health, text = CASES[case]
    found = judge(look)
    assert found.health is health
    assert text in found.text
    assert bool(found.unknown) or health is not Health.UNKNOWN


def test_what_is_wrong_with_the_whole_primary_is_said_once() -> None:
    assert judge(seen(**DOWN, queues=(FULLER,))).reasons == (
        "contoso does not answer (unreachable: connection refused)",
        "3 messages in the backlog",
    )


def test_what_is_unknown_is_named_beside_what_is_proven() -> None:
    found = judge(seen(queues=(FULLER,), entities=(replace(ORDERS, receiving=MAY_NOT),)))
    assert found.health is Health.WAITING
    assert found.unknown == ("receiving of orders (the key may not listen)",)
    assert found.text == "3 messages in the backlog; not known: receiving of orders (the key may not listen)"
    dark = judge(seen(queues=(FULLER,), entities=(replace(ORDERS, sending=MAY_NOT, receiving=MAY_NOT),)))
    assert dark.text.endswith("; not known: sending of orders (the key may not listen), and 1 more")


@pytest.mark.parametrize(
    ("look", "checks"),
    [
        (seen(entities=(replace(ORDERS, receiving=MAY_NOT, managing=NO),)), {Check.SENDING, Check.BACKLOG}),
        (seen(queues=(replace(EMPTY, takes_messages=None),)), {Check.SENDING, Check.BACKLOG}),
        (seen(queues=(UNREAD,)), {Check.SENDING, Check.FAILOVER}),
        (seen(entities=(), entities_unlisted="unauthorised"), {Check.BACKLOG}),
    ],
)
def test_only_what_is_to_be_checked_counts_and_the_verdict_says_so(look: Inspection, checks: set[Check]) -> None:
    found = judge(look, frozenset(checks))
    assert found.health is Health.HEALTHY
    assert all(check.value in found.text for check in checks)
    assert judge(look).health is not Health.HEALTHY


def test_each_entity_has_a_verdict() -> None:
    for entity, health in (
        (ORDERS, Health.HEALTHY),
        (replace(ORDERS, waiting_at_least=1), Health.WAITING),
        (replace(ORDERS, waiting=None), Health.WORKS),
        (replace(ORDERS, waiting=None, waiting_at_least=1), Health.WAITING),
        (replace(ORDERS, waiting=None, receiving=MAY_NOT), Health.UNKNOWN),
        (replace(ORDERS, sending=NO), Health.FAILING),
        (replace(ORDERS, sending=NO, waiting_at_least=1), Health.FAILED_OVER),
        (replace(ORDERS, receiving=NO, waiting_at_least=1), Health.FAILING),
        (replace(ORDERS, managing=MAY_NOT), Health.UNKNOWN),
    ):
        assert entity_health(entity) is health
