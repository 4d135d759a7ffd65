"""Whether a proxy is ready: an outage of one namespace is what it is for, without a place for messages it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from twinbus.client.reporting.status import (
    BacklogQueueStatus,
    EntityState,
    EntityStatus,
    Phase,
    SecondaryStatus,
    SpoolStatus,
    Status,
)
from twinbus.proxy.readiness import readiness

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOWN = EntityStatus(entity="orders", state=EntityState.FAILED_OVER, reason="connection refused")
AWAY = SecondaryStatus(unreachable_since=NOW, unreachable_reason="no route")
LOST = BacklogQueueStatus(path="contoso/x-servicebus-transfer/0", in_rotation=False, reason="disabled")


def status(**facts: Any) -> Status:
    return Status(at=NOW, primary="contoso", secondary="backup", **facts)


def test_a_healthy_pair_is_ready_without_a_word() -> None:
    assert readiness(status()) == (True, "")


def test_an_entity_that_is_failed_over_is_told_and_ready() -> None:
    assert readiness(status(entities=(DOWN,))) == (True, "orders is failed over: connection refused")


def test_an_entity_that_fails_is_told_and_ready() -> None:
    suspect = EntityStatus(entity="orders", state=EntityState.SUSPECT, reason="timed out")
    assert readiness(status(entities=(suspect,))) == (True, "orders fails: timed out")


def test_a_secondary_that_is_away_is_told_and_ready() -> None:
    assert readiness(status(secondary_status=AWAY)) == (True, "the secondary cannot be reached: no route")


def test_without_either_namespace_it_is_not_ready() -> None:
    is_ready, reason = readiness(status(entities=(DOWN,), secondary_status=AWAY))
    assert not is_ready
    assert reason == "orders is failed over: connection refused; the secondary cannot be reached: no route"


def test_without_a_backlog_queue_it_is_not_ready() -> None:
    assert readiness(status(entities=(DOWN,), backlog_queues=(LOST,)))[0] is False
    working = BacklogQueueStatus(path="contoso/x-servicebus-transfer/1")
    assert readiness(status(entities=(DOWN,), backlog_queues=(LOST, working)))[0] is True


def test_a_spool_is_a_place() -> None:
    both = status(entities=(DOWN,), secondary_status=AWAY, spool=SpoolStatus(folder="/spool"))
    assert readiness(both).is_ready
    is_ready, reason = readiness(replace(both, spool=SpoolStatus(folder="/spool", reason="it is full")))
    assert (is_ready, "the spool /spool takes nothing: it is full" in reason) == (False, True)


def test_a_folder_that_cannot_be_used_is_told_and_ready() -> None:
    damaged = "the store /spool/1/store.sqlite is damaged"
    assert readiness(status(spool=SpoolStatus(folder="/spool/2", problems=(damaged,)))) == (True, damaged)


def test_a_pair_that_has_ended_is_not_ready() -> None:
    assert readiness(status(phase=Phase.FAULTED, fault="the key was revoked")) == (
        False,
        "the pair has ended: the key was revoked",
    )
    assert readiness(status(phase=Phase.NEW)) == (False, "not paired yet")
    assert readiness(status(phase=Phase.CLOSED)) == (False, "closed")
