"""What an application is told when its messages were not stored."""

from __future__ import annotations

import pytest

from twinbus.errors import (
    BothNamespacesUnavailable,
    ConditionError,
    DecodeError,
    EnvelopeError,
    NotSent,
    PairClosed,
    PairFaulted,
    ReservedProperty,
    ServerBusy,
    TooLargeForDetour,
)
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, attach_receipt, with_receipt
from twinbus.proxy.sending.refusals import not_stored, partly_stored

IDS = ("a", "b", "c")


def receipt(accepted: int = 0, attempts: int = 1, in_doubt: int = 0) -> SendReceipt:
    return SendReceipt("orders", IDS, NamespaceSide.BACKLOG, accepted, ("q",) * accepted, attempts, in_doubt)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (ConditionError("com.microsoft:entity-disabled", "off"), "com.microsoft:entity-disabled"),
        (ServerBusy("too much"), "com.microsoft:server-busy"),
        (BothNamespacesUnavailable("down", "down too", receipt()), "com.microsoft:timeout"),
        (NotSent("it was held for 120 s", receipt()), "com.microsoft:timeout"),
        (PairClosed("the client is closed"), "com.microsoft:timeout"),
        (PairFaulted("a drill"), "amqp:internal-error"),
        (TooLargeForDetour(10, 9, 2), "amqp:link:message-size-exceeded"),
        (ReservedProperty(("x-ms-path",)), "com.microsoft:argument-error"),
        (EnvelopeError("the session id must be a string"), "com.microsoft:argument-error"),
        (DecodeError("no message"), "amqp:decode-error"),
        (ZeroDivisionError("ours"), "amqp:internal-error"),
    ],
)
def test_each_error_has_its_condition(error: Exception, condition: str) -> None:
    told = not_stored(error)
    assert told.refused.error.condition == condition
    assert told.accepted == 0


def test_a_bug_of_ours_is_not_told_to_strangers() -> None:
    assert "ours" not in str(not_stored(ZeroDivisionError("ours")).refused.error)


def test_attempts_and_doubts_are_told() -> None:
    failure = Failure(FailureKind.NO_ANSWER, "silence", error=ConditionError("com.microsoft:timeout", "silence"))
    error = with_receipt(failure, receipt(attempts=3, in_doubt=2))
    text = str(not_stored(error).refused.error)
    assert text == "silence (3 attempts; 2 copies in doubt: they may be stored)"


def test_of_a_batch_that_is_partly_stored_the_text_says_how_much_and_clients_do_not_retry() -> None:
    error = BothNamespacesUnavailable("down", "full", receipt(accepted=2))
    told = not_stored(error)
    assert told.accepted == 2
    assert told.refused.error.condition == "amqp:not-allowed"
    assert str(told.refused.error).startswith("2 of 3 messages are stored in the backlog: ")


def test_the_same_holds_for_a_batch_that_went_to_the_primary_in_parts() -> None:
    refused = partly_stored(2, 3, ConditionError("com.microsoft:timeout", "silence"))
    assert refused.error.condition == "amqp:not-allowed"
    assert str(refused.error) == "2 of 3 messages are stored: silence"
    nothing = partly_stored(0, 3, ConditionError("com.microsoft:timeout", "silence"))
    assert nothing.error.condition == "com.microsoft:timeout"


def test_an_error_that_is_not_ours_may_have_a_receipt() -> None:
    error = ConditionError("amqp:internal-error", "trouble")
    attach_receipt(error, receipt(attempts=2))
    assert str(not_stored(error).refused.error) == "trouble (2 attempts)"
