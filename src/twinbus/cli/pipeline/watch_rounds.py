"""The rounds of `twinbus pipeline watch`: its numbers, its alerts, and how it is stopped."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import note, say_event
from twinbus.errors import OptionsError
from twinbus.spark.report.alerts import WatchAlert

if TYPE_CHECKING:
    from twinbus.client.reporting.telemetry import Family
    from twinbus.spark.report.alerts import RoundFacts

COMMAND_S = 30


class WatchStop:
    """SIGTERM or Ctrl-C, noted: a round that has begun is finished. The second one ends the command on the spot."""

    def __init__(self) -> None:
        self.code = ExitCode.DONE
        self._requested = threading.Event()

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        return self._requested.wait(max(0.0, seconds))

    def take(self, number: int, _: object = None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
        self._requested.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Only the main thread gets signals; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class WatchMetrics:
    """The numbers of a watch, as of its last round."""

    def __init__(self) -> None:
        self._facts: RoundFacts | None = None
        self._is_certain = False
        self._stuck = 0
        self._rounds = {"done": 0, "failed": 0}
        self._round_s = 0.0
        self._commands_failed = 0

    def after_round(self, facts: RoundFacts, *, is_certain: bool, stuck: int, round_s: float) -> None:
        self._facts, self._is_certain, self._stuck, self._round_s = facts, is_certain, stuck, round_s
        self._rounds["done"] += 1

    def after_failure(self) -> None:
        self._rounds["failed"] += 1

    def command_failed(self) -> None:
        self._commands_failed += 1

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rounds = CounterMetricFamily("twinbus_watch_rounds_total", "Rounds, by result.", labels=["result"])
        for result, count in self._rounds.items():
            rounds.add_metric([result], count)
        yield rounds
        yield CounterMetricFamily(
            "twinbus_watch_alert_commands_failed_total", "Alert commands that failed.", self._commands_failed
        )
        facts = self._facts
        if facts is None:
            return
        oldest_s = 0.0 if facts.oldest_ms is None else max(0.0, (facts.at_ms - facts.oldest_ms) / 1000)
        backlog = sum(each.messages for each in facts.away.values())
        gauges = {
            "lost": ("Messages that are proven to be lost.", facts.lost),
            "unknown": ("Messages of which nobody knows what became of them.", facts.unknown),
            "certain": ("1 if the records prove how many are lost, 0 if the answer is unknown.", self._is_certain),
            "waiting": ("Messages that wait, in the backlog or in an entity of the primary.", facts.waiting),
            "backlog": (
                "Messages that wait in the backlog or in a spool.",
                backlog,
            ),
            "oldest_waiting_seconds": ("How long the first of those has waited.", oldest_s),
            "stuck_entities": ("Entities whose backlog is stuck.", self._stuck),
            "round_seconds": ("How long the last round took.", self._round_s),
            "last_success_timestamp_seconds": ("When the last round that succeeded ended.", facts.at_ms / 1000),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"twinbus_watch_{name}", text, float(value))


class AlertSender:
    """Passes alerts on: as JSON lines, or as lines on stderr; and to a command, as JSON on its standard input."""

    def __init__(self, command: str | None, metrics: WatchMetrics, *, as_json: bool) -> None:
        """Raises `OptionsError` if the command cannot be split into words."""
        self._as_json, self._metrics = as_json, metrics
        try:
            self._words = shlex.split(command) if command is not None else []
        except ValueError as error:
            raise OptionsError(f"--alert-command cannot be split into words: {error}") from None
        if command is not None and not self._words:
            raise OptionsError("--alert-command must not be empty")

    def send(self, alerts: list[WatchAlert]) -> None:
        for each in alerts:
            facts = each.as_dict()
            if self._as_json:
                say_event("alert", facts)
            else:
                note(f"{'over' if each.is_over else 'ALERT'}: {each.kind}: {each.text}")
            if self._words:
                self._call(facts)

    def _call(self, facts: dict[str, Any]) -> None:
        """Without a shell, and for a limited time: the next round must come."""
        try:
            done = subprocess.run(  # noqa: S603 - the words that the user gave
                self._words, input=json.dumps(facts).encode(), stdout=subprocess.DEVNULL, timeout=COMMAND_S, check=False
            )
            failure = f"ended with {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(getattr(error, "strerror", None) or f"took longer than {COMMAND_S} s")
        if failure:
            self._metrics.command_failed()
            note(f"--alert-command: {self._words[0]} {failure}")
