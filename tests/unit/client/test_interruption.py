"""What a signal handler raises in the middle of a call of the SDK's is distinguished from failures of the call."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, NoReturn

import pytest
from azure.servicebus._pyamqp.error import AMQPConnectionError, ErrorCondition
from azure.servicebus.exceptions import ServiceBusError

from twinbus.client.sdk.failures import interruption

Handler = Callable[[int, Any], Any]
Handled = Callable[[Handler], None]


class OutOfTime(Exception):
    pass


def give_up(number: int, _frame: object) -> NoReturn:
    raise OutOfTime


def give_up_deep_inside(number: int, frame: object) -> NoReturn:
    give_up(number, frame)


def give_up_because(_why: str, number: int, frame: object) -> NoReturn:
    raise OutOfTime


class Deadline:
    def reached(self, number: int, frame: object) -> NoReturn:
        raise OutOfTime

    def __call__(self, number: int, frame: object) -> NoReturn:
        raise OutOfTime


HANDLERS: dict[str, Handler] = {
    "function": give_up,
    "deep": give_up_deep_inside,
    "method": Deadline().reached,
    "object": Deadline(),
    "partial": partial(give_up_because, "the job took too long"),
}


class Colour(Enum):
    RED = 1


@pytest.fixture
def handled() -> Iterator[Handled]:
    """Has a signal handled so; afterwards it is handled as before."""

    def handle(handler: Handler) -> None:
        signal.signal(signal.SIGUSR1, handler)

    before = signal.getsignal(signal.SIGUSR1)
    yield handle
    signal.signal(signal.SIGUSR1, before)


def raised_by(act: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # all of them are looked at
        act()
    return raised.value


def wrapped(error: Exception) -> ServiceBusError:
    """As the SDK does with what it does not know."""

    def wrap() -> NoReturn:
        try:
            raise error
        except Exception as inner:
            raise ServiceBusError(message=f"Handler failed: {inner}.", error=inner) from None

    found = raised_by(wrap)
    assert isinstance(found, ServiceBusError)
    return found


@pytest.mark.parametrize("kind", HANDLERS)
def test_what_a_signal_handler_raises_is_found_whatever_the_sdk_made_of_it(handled: Handled, kind: str) -> None:
    handled(HANDLERS[kind])
    error = raised_by(lambda: signal.raise_signal(signal.SIGUSR1))
    assert isinstance(error, OutOfTime)
    assert interruption(error) is error
    assert interruption(wrapped(error)) is error
    assert interruption(wrapped(wrapped(error))) is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_what_is_no_exception_but_an_order_is_one(error: BaseException) -> None:
    assert interruption(error) is error


@pytest.mark.parametrize(
    "fail",
    [
        lambda: [][0],
        lambda: Colour(2),
        lambda: None.nothing,  # type: ignore[attr-defined]
        lambda: b"x".decode("no such thing"),
        lambda: open("/no/such/file"),  # noqa: PTH123, SIM115
        lambda: give_up(0, None),
    ],
    ids=["index", "enum", "attribute", "lookup", "file", "application"],
)
def test_what_anybody_else_raises_is_a_failure(fail: Callable[[], object]) -> None:
    error = raised_by(fail)
    assert interruption(error) is None
    assert interruption(wrapped(error)) is None


def test_what_the_sdk_says_itself_is_a_failure() -> None:
    error = AMQPConnectionError(ErrorCondition.SocketError, description="the cable")
    assert interruption(error) is None
    assert interruption(wrapped(error)) is None


def test_a_failure_while_somebody_tidies_up_after_a_signal_is_a_failure(
    handled: Handled,
) -> None:
    handled(give_up)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except OutOfTime:
        error = wrapped(ConnectionResetError())
        assert interruption(error) is None


def test_a_failure_of_a_send_that_a_signal_handler_makes_is_a_failure(
    handled: Handled,
) -> None:
    found: list[BaseException | None] = []
    handled(lambda *_: found.append(interruption(wrapped(ConnectionResetError()))))
    signal.raise_signal(signal.SIGUSR1)
    assert found == [None]
