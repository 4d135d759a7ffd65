"""What the primary's answer to a link says of a name: it is there, it is not, or nobody knows."""

from __future__ import annotations

import pytest

from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking import backlog_scan
from twinbus.syphon.peeking.backlog_scan import EntityCheck, check_entities
from twinbus.transport.dial import CbsToken, Dial
from twinbus.transport.failures import ConnectionFailed

Kind = FailureKind
DIAL = Dial("localhost", 5672, None, None, lambda audience: CbsToken("t", "servicebus.windows.net:sastoken", 4e9))


class Refusing:
    """A connection on which every link is refused in the same way."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    async def __aenter__(self) -> Refusing:
        return self

    async def __aexit__(self, *_error: object) -> None: ...

    async def probe_sender(self, path: str) -> None:
        raise ConnectionFailed(self._failure)


async def checked(monkeypatch: pytest.MonkeyPatch, failure: Failure) -> EntityCheck:
    monkeypatch.setattr(backlog_scan, "NamespaceConnection", lambda dial, attempt_s: Refusing(failure))
    return await check_entities(DIAL, DIAL, "contoso", (), ["orders"], attempt_s=1.0)


@pytest.mark.parametrize(
    "kind", [Kind.BUSY, Kind.INTERNAL, Kind.NO_ANSWER, Kind.TIMED_OUT, Kind.UNAUTHORISED, Kind.UNREACHABLE]
)
async def test_an_answer_that_says_nothing_does_not_make_a_name_known(
    monkeypatch: pytest.MonkeyPatch, kind: FailureKind
) -> None:
    failure = Failure(kind, "not now")
    assert await checked(monkeypatch, failure) == EntityCheck((), {"orders": failure})


@pytest.mark.parametrize("kind", [Kind.NOT_FOUND, Kind.DELETED])
async def test_a_name_that_is_not_found_is_unknown(monkeypatch: pytest.MonkeyPatch, kind: FailureKind) -> None:
    assert await checked(monkeypatch, Failure(kind, "no such queue")) == EntityCheck(("orders",), {})


@pytest.mark.parametrize("kind", [Kind.DISABLED, Kind.FULL])
async def test_a_name_that_shows_itself_by_its_trouble_is_known(
    monkeypatch: pytest.MonkeyPatch, kind: FailureKind
) -> None:
    assert await checked(monkeypatch, Failure(kind, "for now")) == EntityCheck((), {})
