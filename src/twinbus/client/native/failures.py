"""Failures of links of our own engine, as a sender gets them: each with an exception of its own."""

from __future__ import annotations

from dataclasses import replace

from twinbus.errors import ConditionError
from twinbus.pairing.failure import Failure, FailureKind

RETRIED = "com.microsoft:timeout"
"""The condition of a failure for which nobody gave one: every official client sends again after it."""


def for_caller(failure: Failure, *, in_doubt: bool = False) -> Failure:
    """The failure of one send; `in_doubt`: its transfer had left. Callers change its exception: no two share one."""
    error = ConditionError(failure.condition or RETRIED, failure.text)
    return replace(failure, in_doubt=in_doubt, error=error)


def is_doubtful_answer(failure: Failure) -> bool:
    """Whether messages may be stored though the peer has answered: it took too long to say no as well as to say yes."""
    return failure.kind is FailureKind.TIMED_OUT
