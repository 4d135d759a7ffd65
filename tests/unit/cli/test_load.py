"""What a measurement comes to: rates, and shares of how long calls took."""

from __future__ import annotations

import threading
import time

import pytest

from twinbus.cli.commands.bench import LoadWorkers, Quota, at_share, measured
from twinbus.errors import TwinbusError


def test_a_share_is_a_value_that_was_measured() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [at_share(ordered, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert at_share([7.0], 0.5) == 7.0
    assert at_share([], 0.5) == 0.0


def test_a_phase_is_counted_by_messages_and_timed_by_calls() -> None:
    phase = measured("send", 20, 4.0, [0.002, 0.001])
    assert (phase.messages, phase.per_second, phase.ms_p50, phase.ms_max) == (20, 5.0, 1.0, 2.0)
    assert measured("send", 0, 0.0, []).per_second == 0.0


def test_a_crew_does_everything_once() -> None:
    quota, crew, done = Quota(100), LoadWorkers(), []

    def work(crew: LoadWorkers) -> None:
        while count := quota.take(7):
            done.append(count)
            crew.note(time.monotonic(), count)

    crew.work([work] * 4, patience_s=10, show=lambda _: None)
    assert (sum(done), crew.messages, len(crew.calls_s)) == (100, 100, 15)


def test_the_first_failure_of_a_crew_ends_its_work() -> None:
    def fail(_: LoadWorkers) -> None:
        raise TwinbusError("refused")

    def go_on(crew: LoadWorkers) -> None:
        while not crew.is_stopping:
            time.sleep(0.01)

    with pytest.raises(TwinbusError, match="refused"):
        LoadWorkers().work([go_on, fail], patience_s=10, show=lambda _: None)


def test_a_crew_that_gets_nowhere_is_not_waited_for() -> None:
    never = threading.Event()
    with pytest.raises(TwinbusError, match="nothing has moved"):
        LoadWorkers().work([lambda _: (never.wait(30), None)[1]], patience_s=0.2, show=lambda _: None)
    never.set()
