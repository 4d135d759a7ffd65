"""A link whose opening takes too long: one that nobody answered, whoever notices first that its time is over.

On a machine that stalls, the watchdog may look before the thread that waits does, and take the connection away. Here
it always does: its clock runs ahead, and the thread that waits has another one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.sdk.internals.connections import LinkConnection
from twinbus.client.sdk.watchdog import GRACE_S, Watchdog
from twinbus.client.sync import links
from twinbus.client.sync.links import _open_within
from twinbus.pairing.sending.failure import Failure, FailureKind

WAIT_S = 60


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Sdk:
    """As much of a sender of the SDK's as an opening needs: a connection, and what happens while it opens."""

    def __init__(self, happens: Callable[[], None], *, has_answered: bool = False) -> None:
        self._happens = happens
        self._handler: Any = None
        self.is_closed = threading.Event()
        self.near, self.far = socket.socketpair()
        self._connection = SimpleNamespace(
            _transport=SimpleNamespace(sock=self.near), _remote_max_frame_size=65_536 if has_answered else None
        )

    def _create_handler(self, _auth: object) -> None:
        self._handler = SimpleNamespace(_connection=self._connection, client_ready=bool, close=self.near.close)

    def __enter__(self) -> None:
        self._create_handler(None)
        self._happens()

    def close(self) -> None:
        self.is_closed.set()

    def is_cut(self) -> bool:
        self.far.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return self.far.recv(1) == b""
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of openings and of the watchdog. Nobody waits by it."""
    made = Clock()
    monkeypatch.setattr(links, "monotonic", made)
    return made


@pytest.fixture
def watchdog(clock: Clock) -> Iterator[Watchdog]:
    dog = Watchdog(clock)
    yield dog
    dog.stop()


@pytest.fixture
def sdk_of() -> Iterator[Callable[..., Sdk]]:
    with contextlib.ExitStack() as open_sockets:

        def make(happens: Callable[[], None], **options: Any) -> Sdk:
            made = Sdk(happens, **options)
            for sock in (made.near, made.far):
                open_sockets.callback(sock.close)
            return made

        yield make


def opened(sdk: Sdk, watchdog: Watchdog) -> LinkConnection:
    return _open_within(sdk, "orders", WAIT_S, watchdog)


def failure_of(sdk: Sdk, watchdog: Watchdog) -> Failure:
    with pytest.raises(LinkFailed) as failed:
        opened(sdk, watchdog)
    return failed.value.failure


@pytest.mark.parametrize("has_answered", [False, True])
def test_what_the_watchdog_ends_is_not_taken_for_a_lost_connection(
    clock: Clock, watchdog: Watchdog, sdk_of: Callable[..., Sdk], has_answered: bool
) -> None:
    def hang_until_cut() -> None:
        clock.now += WAIT_S + 2 * GRACE_S
        watchdog.look()
        sdk._connection._remote_max_frame_size = None  # the SDK forgets whom it knew
        raise ConnectionError("Server unexpectedly closed connection")

    sdk = sdk_of(hang_until_cut, has_answered=has_answered)
    failure = failure_of(sdk, watchdog)
    assert (failure.kind, failure.is_connection) == (FailureKind.NO_ANSWER, not has_answered)
    assert failure.text.startswith("orders did not answer" if has_answered else "nobody answered")
    assert sdk.is_closed.wait(WAIT_S)


def test_a_link_that_opens_though_its_connection_was_taken_away_is_closed(
    clock: Clock, watchdog: Watchdog, sdk_of: Callable[..., Sdk]
) -> None:
    def open_all_the_same() -> None:
        clock.now += WAIT_S + 2 * GRACE_S
        watchdog.look()

    sdk = sdk_of(open_all_the_same)
    assert failure_of(sdk, watchdog).kind is FailureKind.NO_ANSWER
    assert sdk.is_closed.wait(WAIT_S)


def test_a_link_that_opened_in_time_is_not_cut_by_a_watchdog_that_looked_just_before(
    clock: Clock, watchdog: Watchdog, sdk_of: Callable[..., Sdk]
) -> None:
    seen: list[Any] = []
    sdk = sdk_of(lambda: seen.extend(watchdog._taken()))
    opened(sdk, watchdog)
    clock.now += WAIT_S + 2 * GRACE_S
    (opening,) = seen
    opening.cut()
    assert not sdk.is_cut()
    assert opening.busy_until is None


def test_what_is_lost_because_everything_is_being_closed_was_not_waited_for_too_long(
    watchdog: Watchdog, sdk_of: Callable[..., Sdk]
) -> None:
    def lose() -> None:
        threading.Thread(target=watchdog.stop, daemon=True).start()
        sdk.far.settimeout(WAIT_S)
        assert sdk.far.recv(1) == b"", "cut"
        raise ConnectionError("Server unexpectedly closed connection")

    sdk = sdk_of(lose)
    assert failure_of(sdk, watchdog).kind is FailureKind.UNREACHABLE
