"""Events: one line to grep in, a level by kind, and callbacks that never keep a sender waiting."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.reporting.event_log import AioEventLog, EventLog
from twinbus.client.reporting.events import LEVELS, VALUE_LENGTH_MAX, PairEvent, PairEventName
from twinbus.errors import OptionsError

WAIT_S = 60.0


def event(name: PairEventName = PairEventName.SUSPECT, text: str = "no answer in time", **more: Any) -> PairEvent:
    return PairEvent(name, text, **more)


class Gate:
    """A callback that stays in its call until it is let go."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    def __call__(self, _: PairEvent) -> None:
        self.entered.set()
        self.leave.wait(WAIT_S)


@pytest.fixture
def log() -> Iterator[EventLog]:
    log = EventLog()
    yield log
    log.close(WAIT_S)


def event_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "twinbus-events"]


# --- the line ---


def test_events_are_one_line_to_grep_in() -> None:
    line = str(
        event(
            PairEventName.FAILED_OVER,
            "unreachable: connection refused",
            entity="orders",
            namespace="contoso",
            details={"epoch": 1, "forced": False, "after_s": 60.0, "ids": ("a", "b")},
        )
    )
    assert line == (
        "event=failed_over entity=orders namespace=contoso epoch=1 forced=False after_s=60 ids=a,b "
        'reason="unreachable: connection refused"'
    )


def test_of_many_ids_the_first_ones_are_shown() -> None:
    line = str(event(text="lost", details={"ids": tuple(range(1_000))}))
    assert line == 'event=suspect ids="0,1,2,3,4,5,6,7,8,9 and 990 more" reason=lost'


def test_a_detail_does_not_pass_for_a_field() -> None:
    assert str(event(entity="orders", details={"entity": "x", "reason": "y", "event": "z"})) == (
        'event=suspect entity=orders reason="no answer in time"'
    )


@given(st.text(max_size=2 * VALUE_LENGTH_MAX), st.text(max_size=20))
def test_a_line_stays_one_short_line_whatever_a_server_said(text: str, entity: str) -> None:
    line = str(event(text=text, entity=entity))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert len(line) <= 10 * (VALUE_LENGTH_MAX + 50)


@pytest.mark.parametrize("name", PairEventName)
def test_every_kind_has_a_level(name: PairEventName) -> None:
    assert LEVELS[name] in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def test_a_log_record_has_the_line_and_the_fields(caplog: pytest.LogCaptureFixture, log: EventLog) -> None:
    with caplog.at_level(logging.DEBUG, logger="twinbus.pairing"):
        log.report("failed_over", "quota exceeded", entity="orders", namespace="contoso", details={"epoch": 3})
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("twinbus.pairing", "ERROR")
    assert record.getMessage() == ('event=failed_over entity=orders namespace=contoso epoch=3 reason="quota exceeded"')
    fields = {name: value for name, value in vars(record).items() if name.startswith("twinbus_")}
    assert fields == {
        "twinbus_event": "failed_over",
        "twinbus_entity": "orders",
        "twinbus_namespace": "contoso",
        "twinbus_details": {"epoch": 3},
    }


def test_a_broken_log_handler_does_not_reach_the_sender(log: EventLog) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    broken = Broken()
    logging.getLogger("twinbus.pairing").addHandler(broken)
    try:
        log.publish(event())
    finally:
        logging.getLogger("twinbus.pairing").removeHandler(broken)


def test_events_do_not_change_and_know_their_time() -> None:
    details = {"epoch": 1}
    one = event(details=details)
    details["epoch"] = 2
    assert one.details == {"epoch": 1}
    assert abs((datetime.now(UTC) - one.at).total_seconds()) < WAIT_S


# --- threads ---


def test_a_callback_runs_on_a_thread_of_its_own(log: EventLog) -> None:
    where: list[threading.Thread] = []
    log.on("suspect", lambda _: where.append(threading.current_thread()))
    log.publish(event())
    log.close(WAIT_S)
    assert where[0] is not threading.current_thread()
    assert where[0].daemon


def test_no_thread_is_started_for_events_that_nobody_wants(log: EventLog) -> None:
    log.on("recovered", print)
    log.publish(event())
    assert event_threads() == []


def test_callbacks_get_what_they_asked_for_in_order() -> None:
    log = EventLog()
    some: list[str] = []
    everything: list[str] = []
    log.on(PairEventName.RECOVERED, lambda each: some.append(each.text))
    log.on("*", lambda each: everything.append(each.text))
    for number in range(100):
        log.publish(event(PairEventName.RECOVERED if number % 2 else PairEventName.SUSPECT, str(number)))
    log.close(WAIT_S)
    assert some == [str(number) for number in range(1, 100, 2)]
    assert everything == [str(number) for number in range(100)]
    assert log.dropped == 0
    assert event_threads() == []


def test_an_exception_in_a_callback_is_logged_and_harmless(caplog: pytest.LogCaptureFixture) -> None:
    def careless(_: PairEvent) -> None:
        raise SystemExit("not here")

    log = EventLog()
    texts: list[str] = []
    log.on("*", careless)
    log.on("*", lambda each: texts.append(each.text))
    with caplog.at_level(logging.ERROR, logger="twinbus.pairing"):
        log.publish(event(text="one"))
        log.publish(event(text="two"))
        log.close(WAIT_S)
    assert texts == ["one", "two"]
    failed = [record.getMessage() for record in caplog.records if record.exc_info]
    assert len(failed) == 2
    assert failed[0].startswith("event=callback_failed callback=test_an_exception")
    assert failed[0].endswith("about=suspect")


def test_a_hanging_callback_costs_events_but_no_time(log: EventLog) -> None:
    slow = Gate()
    log = EventLog(queue_max=3)
    log.on("*", slow)
    log.publish(event())
    assert slow.entered.wait(WAIT_S)
    for _ in range(10):
        log.publish(event())
    assert log.dropped == 7
    log.close(within_s=0.01)
    assert log.dropped == 10
    (thread,) = event_threads()
    slow.leave.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_after_the_end_of_a_subscription_no_call_begins(log: EventLog) -> None:
    first, texts = Gate(), []
    log.on("*", first)
    unsubscribe = log.on("*", lambda each: texts.append(each.text))
    log.publish(event())
    assert first.entered.wait(WAIT_S)
    unsubscribe()
    unsubscribe()
    first.leave.set()
    log.close(WAIT_S)
    assert texts == []


def test_a_callback_may_close_the_event_log_and_publish() -> None:
    log = EventLog()
    closed = threading.Event()

    def close(_: PairEvent) -> None:
        log.publish(event(PairEventName.CLOSED))
        log.close(WAIT_S)
        closed.set()

    log.on("suspect", close)
    log.publish(event())
    assert closed.wait(WAIT_S)
    log.close(WAIT_S)
    assert event_threads() == []


def test_a_closed_event_log_only_logs(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    log.on("*", print)
    log.close(WAIT_S)
    with caplog.at_level(logging.INFO, logger="twinbus.pairing"):
        log.publish(event(PairEventName.CLOSED, "as asked"))
    assert log.dropped == 1
    assert [record.getMessage() for record in caplog.records] == ['event=closed reason="as asked"']
    assert event_threads() == []


def test_an_unknown_name_is_refused_with_those_there_are(log: EventLog) -> None:
    with pytest.raises(
        OptionsError, match="no event is called 'failover': there are suspect, trusted_again, failed_over"
    ):
        log.on("failover", print)
    with pytest.raises(OptionsError, match="a callback is a function of PairEvent, got 3"):
        log.on("*", 3)  # type: ignore[arg-type]


def test_a_coroutine_function_needs_a_loop(log: EventLog) -> None:
    async def callback(_: PairEvent) -> None: ...

    with pytest.raises(OptionsError, match="no event loop"):
        log.on("*", callback)


# --- asyncio ---


async def test_on_a_loop_functions_and_coroutine_functions_are_called_in_order() -> None:
    log = AioEventLog()
    texts: list[str] = []

    async def slowly(each: PairEvent) -> None:
        await asyncio.sleep(0)
        texts.append("slowly " + each.text)

    log.on("*", slowly)
    log.on("suspect", lambda each: texts.append("at once " + each.text))
    log.publish(event(text="one"))
    assert texts == []
    log.report("recovered", "two")
    await log.close(WAIT_S)
    assert texts == ["slowly one", "at once one", "slowly two"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_on_a_loop_an_exception_is_logged_and_harmless(caplog: pytest.LogCaptureFixture) -> None:
    log = AioEventLog()
    texts: list[str] = []

    async def cancelled(_: PairEvent) -> None:
        raise asyncio.CancelledError

    log.on("*", cancelled)
    log.on("*", lambda _: 1 // 0)
    log.on("*", lambda each: texts.append(each.text))
    with caplog.at_level(logging.ERROR, logger="twinbus.pairing"):
        log.publish(event(text="one"))
        await log.close(WAIT_S)
    assert texts == ["one"]
    assert len([record for record in caplog.records if record.exc_info]) == 2


async def test_on_a_loop_a_hanging_callback_is_cancelled_at_close() -> None:
    log = AioEventLog(queue_max=2)
    entered = asyncio.Event()

    async def hang(_: PairEvent) -> None:
        entered.set()
        await asyncio.Event().wait()

    log.on("*", hang)
    log.publish(event())
    await entered.wait()
    for _ in range(5):
        log.publish(event())
    assert log.dropped == 3
    await log.close(within_s=0.01)
    assert log.dropped == 5
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_on_a_loop_a_callback_may_close_the_event_log() -> None:
    log = AioEventLog()
    closed = asyncio.Event()

    async def close(_: PairEvent) -> None:
        await log.close(WAIT_S)
        closed.set()

    log.on("*", close)
    log.publish(event())
    await asyncio.wait_for(closed.wait(), WAIT_S)
