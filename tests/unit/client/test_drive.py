"""Running a flow: on threads under a lock, on tasks without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from twinbus.client.aio.flow_driver import run as run_async
from twinbus.client.flows.io_requests import Answer, Ask, Flow, Sleep, Woke
from twinbus.client.sync.flow_driver import run

AWAKE = Woke(1.0, 0.5)


class RecordedFlow:
    """A flow that pauses twice; remembers what happened, in which order, and whether the lock was held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.log: list[tuple[str, bool]] = []

    def note(self, what: str) -> None:
        self.log.append((what, self.lock.locked()))

    def flow(self) -> Flow[str]:
        for number in (1, 2):
            self.note(f"step {number}")
            answer = yield Sleep(number)
            assert answer == AWAKE
        self.note("end")
        return "done"

    def failing(self, error: Exception) -> Flow[str]:
        yield Sleep(1)
        raise error

    def recovering(self) -> Flow[str]:
        try:
            yield Sleep(1)
        except OSError as error:
            return f"heard of {error}"
        return "heard nothing"

    def perform(self, ask: Ask) -> Answer:
        self.note(f"act {ask.seconds}" if isinstance(ask, Sleep) else "?")
        return AWAKE

    def settle(self) -> None:
        self.note("settle")

    async def perform_later(self, ask: Ask) -> Answer:
        await asyncio.sleep(0)
        return self.perform(ask)


def raising(error: BaseException) -> Callable[[Ask], Answer]:
    def perform(ask: Ask) -> Answer:
        raise error

    return perform


def test_steps_run_under_the_lock_and_everything_else_outside_of_it() -> None:
    recorded = RecordedFlow()
    assert run(recorded.flow(), recorded.perform, recorded.lock, recorded.settle) == "done"
    assert recorded.log == [
        ("step 1", True),
        ("settle", False),
        ("act 1", False),
        ("step 2", True),
        ("settle", False),
        ("act 2", False),
        ("end", True),
        ("settle", False),
    ]


async def test_on_tasks_the_order_is_the_same() -> None:
    recorded, twin = RecordedFlow(), RecordedFlow()
    assert await run_async(recorded.flow(), recorded.perform_later, nullcontext(), recorded.settle) == "done"
    run(twin.flow(), twin.perform, twin.lock, twin.settle)
    assert [what for what, _ in recorded.log] == [what for what, _ in twin.log]


@pytest.mark.parametrize("error", [OSError("cable"), ValueError("message"), KeyboardInterrupt()])
def test_what_acting_raises_is_raised_inside_the_flow_and_then_to_the_caller(error: BaseException) -> None:
    recorded = RecordedFlow()
    with pytest.raises(type(error)) as raised:
        run(recorded.flow(), raising(error), recorded.lock, recorded.settle)
    assert raised.value is error
    assert recorded.log[-1] == ("settle", False)
    assert not recorded.lock.locked()


def test_a_flow_may_make_something_of_what_was_raised() -> None:
    recorded = RecordedFlow()
    assert (
        run(recorded.recovering(), raising(OSError("the cable")), recorded.lock, recorded.settle)
        == "heard of the cable"
    )


async def test_on_tasks_it_may_too() -> None:
    recorded = RecordedFlow()

    async def perform(ask: Ask) -> Answer:
        raise OSError("the cable")

    assert await run_async(recorded.recovering(), perform, nullcontext(), recorded.settle) == "heard of the cable"


def test_orders_are_carried_out_also_when_the_flow_raises() -> None:
    recorded = RecordedFlow()
    with pytest.raises(ValueError, match="no"):
        run(recorded.failing(ValueError("no")), recorded.perform, recorded.lock, recorded.settle)
    assert [what for what, _ in recorded.log].count("settle") == 2


async def test_a_task_that_is_cancelled_ends_its_flow() -> None:
    recorded, ended = RecordedFlow(), []

    def flow() -> Flow[None]:
        try:
            yield Sleep(1)
        finally:
            ended.append("tidied up")

    async def perform(ask: Ask) -> Answer:
        await asyncio.Event().wait()
        return AWAKE

    task = asyncio.create_task(run_async(flow(), perform, nullcontext(), recorded.settle))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["tidied up"]
    assert recorded.log[-1][0] == "settle"
