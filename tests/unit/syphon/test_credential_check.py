"""When a credential is called useless."""

from __future__ import annotations

import pytest

from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.secondary_connection import CredentialCheck

NO_RIGHT = Failure(FailureKind.UNAUTHORISED, "Listen claim is required", "amqp:unauthorized-access")
PATHS = ("backlog/0", "backlog/1")


def refuse_all(refusals: CredentialCheck, *moments: int) -> bool:
    """Every queue refuses at each of these moments; what the last refusal came to."""
    return [refusals.failed(path, NO_RIGHT, at_ms) for at_ms in moments for path in PATHS][-1]


def test_a_credential_that_all_refuse_for_long_enough_is_useless() -> None:
    refusals = CredentialCheck(PATHS, 60_000)
    assert not refuse_all(refusals, 0, 1_000, 59_999)
    assert refuse_all(refusals, 60_000)


def test_being_refused_for_long_but_seldom_is_not_enough() -> None:
    assert not refuse_all(CredentialCheck(PATHS, 60_000), 0, 60_000)


def test_one_queue_that_lets_us_in_is_enough() -> None:
    refusals = CredentialCheck(PATHS, 0)
    assert not [refusals.failed(PATHS[0], NO_RIGHT, at_ms) for at_ms in range(10)][-1]
    refuse_all(refusals, 10, 11)
    refusals.succeeded()
    assert not refuse_all(refusals, 12, 13)
    assert refuse_all(refusals, 14)


def test_a_queue_that_is_gone_is_not_asked() -> None:
    refusals = CredentialCheck((*PATHS, "backlog/7"), 0)
    assert not refuse_all(refusals, 0, 1, 2)
    refusals.remove("backlog/7")
    assert refuse_all(refusals, 3)
    refusals.add("backlog/7")
    assert not refuse_all(refusals, 4)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(FailureKind.UNREACHABLE, "connection refused"),
        Failure(FailureKind.NO_ANSWER, "no answer"),
        Failure(FailureKind.NOT_FOUND, "no such queue"),
        Failure(FailureKind.UNAUTHORISED, "no token: TimeoutError", error=TimeoutError()),
    ],
)
def test_an_outage_is_never_a_refusal(failure: Failure) -> None:
    refusals = CredentialCheck(PATHS, 0)
    assert not any(refusals.failed(path, failure, at_ms) for at_ms in range(100) for path in PATHS)
