"""Every cell of the specification's table of error classes (P4), from what the SDK raises to what the client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPLinkError, ErrorCondition, MessageSendFailed
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from scripted_bus import OK, Reply, ScriptedBus

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.types import Symbol
from twinbus.client.flows.io_requests import ToBacklog
from twinbus.client.sdk.failures import describe, no_answer
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classifier_for, classify
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide
from twinbus.transport.failures import failure_of


def answered(condition: str) -> Failure:
    """The service refused this very transfer with a condition."""
    error = ServiceBusError("no", error=MessageSendFailed(condition.encode()), condition=condition.encode())
    return describe(error, sending=True, has_left=True)


def timed_out_there() -> Failure:
    timeout = OperationTimeoutError(message="late")
    timeout.__cause__ = OperationTimeoutError(
        message="late", condition=b"com.microsoft:timeout", error=MessageSendFailed(b"com.microsoft:timeout")
    )
    return describe(timeout, sending=True, has_left=True)


def detached(*, has_left: bool) -> Failure:
    condition = b"amqp:link:detach-forced"
    error = ServiceBusConnectionError(error=AMQPLinkError(condition), condition=condition)
    return describe(error, sending=True, has_left=has_left)


def lost(*, has_left: bool) -> Failure:
    error = ServiceBusConnectionError(error=AMQPConnectionError(ErrorCondition.SocketError))
    return describe(error, sending=True, has_left=has_left)


class Row(NamedTuple):
    what: str
    happens: Callable[[], Failure]
    primary: str
    ping: str
    backlog: str
    syphon: str
    documented: str
    in_doubt: bool


def row(what: str, cells: str, happens: Callable[[], Failure] | None = None, *, in_doubt: bool = False) -> Row:
    """`cells` has the columns of the table, and what `classifier="documented"` makes of the first one."""
    primary, ping, backlog, syphon, documented = cells.split()
    return Row(what, happens or (lambda: answered(what)), primary, ping, backlog, syphon, documented, in_doubt)


ROWS = [
    #                                   primary ping backlog syphon documented
    row("refused", "down down side down raise", lambda: describe(ConnectionRefusedError(), sending=False)),
    row("lost", "down down side down raise", lambda: lost(has_left=False)),
    row("lost, left", "down down side down raise", lambda: lost(has_left=True), in_doubt=True),
    row("silent", "down down side down down", lambda: no_answer("q", 5, is_connected=False)),
    row("no answer", "down down out down down", lambda: no_answer("q", 5, is_connected=True)),
    row(
        "no answer, left",
        "down down out down down",
        lambda: describe(OperationTimeoutError(message="late"), sending=True, has_left=True),
        in_doubt=True,
    ),
    row("amqp:internal-error", "down down out down raise"),
    row("com.microsoft:timeout", "down down out down down", timed_out_there, in_doubt=True),
    row("amqp:link:detach-forced", "down down out down raise", lambda: detached(has_left=False)),
    row("detached, left", "down down out down raise", lambda: detached(has_left=True), in_doubt=True),
    row("com.example:new", "down down out down raise"),
    row("com.microsoft:entity-disabled", "down down out down down"),
    row("amqp:resource-limit-exceeded", "down down out down down"),
    row("amqp:resource-deleted", "down down out down down"),
    row("amqp:not-found", "down down out down down"),
    row("com.microsoft:server-busy", "busy down busy busy busy"),
    row("amqp:unauthorized-access", "raise down out down raise"),
    row(
        "com.microsoft:auth-failed",
        "raise down out down raise",
        lambda: describe(ServiceBusAuthorizationError(message="no"), sending=False),
    ),
    row("amqp:not-allowed", "raise down out for-good raise"),
    row(
        "amqp:link:message-size-exceeded",
        "raise down raise for-good raise",
        lambda: describe(MessageSizeExceededError(message="large"), sending=True),
    ),
    row("com.microsoft:argument-error", "raise down raise for-good raise"),
    row("amqp:decode-error", "raise down raise for-good raise"),
]
CONDITIONS = [each for each in ROWS if ":" in each.what]
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)


def judged(failure: Failure, classifier: str | None = None) -> str:
    pair = Pair(Rules(), entities=["orders"], classifier=classifier_for(classifier))
    return pair.classify(pair.entity("orders"), failure).value


@every_row
def test_a_failure_of_the_primary_counts_waits_or_is_raised(row: Row) -> None:
    failure = row.happens()
    assert judged(failure) == row.primary
    assert failure.in_doubt is row.in_doubt


@every_row
def test_by_the_documented_rule_time_outs_count_and_what_is_transient_is_raised(row: Row) -> None:
    assert judged(row.happens(), "documented") == row.documented


def test_a_name_that_was_never_seen_is_a_typing_error_also_by_the_documented_rule() -> None:
    for classifier in (None, "documented"):
        pair = Pair(Rules(), classifier=classifier_for(classifier))
        assert pair.classify(pair.entity("ordrs"), answered("amqp:not-found")) is ErrorClass.RAISE


@every_row
def test_whatever_a_ping_meets_the_entity_is_still_down_and_that_is_reported(row: Row) -> None:
    assert classify(row.happens(), SendKind.PING).value == row.ping
    bus = ScriptedBus(Rules(failover_interval_s=0, ping_interval_s=10))
    bus.force_failover()
    bus.probe.always = Reply(row.happens())
    bus.run_until(30)
    assert bus.orders.side is NamespaceSide.BACKLOG
    assert len(bus.events_named("ping_failed")) >= 2


@every_row
def test_a_backlog_queue_that_fails_leaves_the_rotation_or_the_secondary_backs_off(row: Row) -> None:
    bus = ScriptedBus(Rules(failover_interval_s=0, ping_interval_s=1_000), queues=3)
    bus.force_failover()
    for queue in bus.backlog:
        queue.says(Reply(row.happens()))
    for link in bus.links:
        link.always = OK
    call = bus.send("a")
    bus.run_until(0.0)
    lost = [heard.details["queue"] for heard in bus.events_named("backlog_queue_lost")]
    match row.backlog:
        case "side":
            assert bus.events_named("secondary_unreachable")
            assert (lost, len(bus.asks(ToBacklog))) == ([], 1)
        case "out":
            assert bus.events_named("backlog_queue_lost")[0].text
            assert len(lost) == 3, "each of them failed once"
            assert not bus.events_named("secondary_unreachable")
        case "busy":
            assert (lost, len(bus.asks(ToBacklog))) == ([], 2), "one other queue at once, then ten seconds"
            assert call.error is None
        case "raise":
            assert (lost, len(bus.asks(ToBacklog))) == ([], 1)
            assert call.error is not None


@pytest.mark.parametrize("row", CONDITIONS, ids=lambda row: row.what)
def test_a_syphon_makes_the_same_of_a_condition(row: Row) -> None:
    failure = failure_of(Error(Symbol(row.what), "no"))
    expected = {"down": ErrorClass.DOWN, "busy": ErrorClass.BUSY, "for-good": ErrorClass.RAISE}[row.syphon]
    assert classify(failure, SendKind.SYPHON) is expected
