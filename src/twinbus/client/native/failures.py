"""Failures of links of our own engine, as a sender gets them: each with an exception of its own."""

from __future__ import annotations

from dataclasses import replace

from twinbus.errors import ConditionError, OperationTimedOut
from twinbus.pairing.sending.failure import Failure, FailureKind

RETRIED = OperationTimedOut.condition
"""The condition of failures that have none of their own: every official client sends again after it."""


def for_caller(failure: Failure, *, in_doubt: bool = False) -> Failure:
    """The failure of one send; `in_doubt`: its transfer had left. Callers change its exception: no two share one."""
    error = ConditionError(failure.condition or RETRIED, failure.text)
    return replace(failure, in_doubt=in_doubt, error=error)


def is_doubtful_answer(failure: Failure) -> bool:
    """Whether messages may be stored although the peer has answered: a time-out does not say that they are not."""
    return failure.kind is FailureKind.TIMED_OUT
