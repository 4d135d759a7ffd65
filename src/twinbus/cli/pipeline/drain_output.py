"""The progress and result of a Spark drain, and what signals do to it."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import can_ask, confirm, note, say, say_event, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.syphon.syphon_run import extra_text, outside_text, quarantine_text, refused_text
from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.spark.drain.forecast import DrainPlan
    from twinbus.spark.drain.result import DrainProgress, DrainResult, Ending


class DrainLines:
    """For people: progress on stderr, a bar if that is a terminal, and the result on stdout."""

    def __init__(self) -> None:
        self._bar: ProgressBar | None = None

    def show(self, progress: DrainProgress) -> None:
        pace = f"{progress.rate:,.0f}/s, {progress.tasks} tasks"
        if not sys.stderr.isatty():
            note(f"{progress.gone:,} home, about {progress.left:,} left, {pace}")
            return
        if self._bar is None:
            self._bar = ProgressBar("").__enter__()
        self._bar.what, self._bar.done, self._bar.total = pace, progress.gone, progress.gone + progress.left

    def trouble(self, text: str) -> None:
        self.close()
        note(text)

    def finish(self, done: DrainResult) -> None:
        self.close()
        for index, reason in done.missing.items():
            note(f"backlog queue {index} cannot be read: {reason}")
        say(result_text(done))

    def plan(self, found: DrainPlan) -> None:
        say(plan_text(found))

    def ask_for_others(self, moved: int) -> bool:
        """Whether to go on after the first messages: nobody can be asked where there is no terminal."""
        self.close()
        return can_ask() and confirm(f"{moved:,} messages are home. Look at them; go on with the others?")

    def close(self) -> None:
        """Take the bar away, until there is more to show."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


class DrainJsonLines:
    """For programs: one JSON object a line on stdout, each with an `event`."""

    def show(self, progress: DrainProgress) -> None:
        say_event("progress", progress.as_dict())

    def trouble(self, text: str) -> None:
        say_event("trouble", {"text": text})

    def finish(self, done: DrainResult) -> None:
        say_event("finished", done.as_dict())

    def plan(self, found: DrainPlan) -> None:
        say_event("plan", found.as_dict())

    def ask_for_others(self, _moved: int) -> bool:
        return False

    def close(self) -> None:
        pass


def result_text(done: DrainResult) -> str:
    from twinbus.units import rough_duration

    moved = done.count("moved")
    at_least = "at least " if done.recorded is None and any(report.attempt for report in done.reports) else ""
    pace = f", {moved / done.seconds:,.0f}/s" if moved and done.seconds > 0 else ""
    ending: dict[Ending, str] = {
        "empty": "the backlog is empty",
        "chosen": "nothing of what was chosen is left in the backlog",
        "unsure": f"all that can be seen of the backlog; {done.doubt}",
        "stuck": f"about {done.left:,} stay in the backlog: nothing moves any more",
        "order unknown": "stopped, because the order of the next ones is not known",
        "first": f"stopped after the first ones; about {done.left:,} stay in the backlog",
    }
    lines = [f"{at_least}{moved:,} messages are home, in {rough_duration(done.seconds)}{pace}: {ending[done.ending]}"]
    if done.count("refused") or done.count("expired"):
        lines.append(refused_text(done.count("refused"), done.count("expired")))
    if done.quarantined:
        lines.append(quarantine_text(done.quarantined))
    if done.unlisted:
        lines.append(outside_text(done.unlisted))
    if done.extra:
        lines.append(extra_text(done.extra))
    if done.count("repeated") or done.count("in_doubt"):
        lines.append(f"{done.count('repeated') + done.count('in_doubt'):,} may be at home twice, with the same id")
    if done.recorded is not None and done.recorded.killed:
        lines.append(f"{done.recorded.killed:,} attempts were killed: what they had just sent may be at home twice too")
    return "\n".join([*lines, *done.troubles])


def plan_text(found: DrainPlan) -> str:
    """What the tasks would do, and what to take instead."""
    if not found.waiting:
        return found.advice
    rows = [
        (task, ", ".join(map(str, queues)), "-" if rate is None else f"{rate:,.0f}/s")
        for task, queues, rate in found.tasks
    ]
    heads = ("task", "backlog queues", "at most")
    shown = table([heads, *rows])
    lines = [f"about {found.waiting:,} messages wait in {found.queues:,} backlog queues", shown, found.advice]
    return "\n\n".join(lines)


# --- signals ---


class DrainTerminated(BaseException):
    """SIGTERM."""


def raise_terminated(*_: object) -> None:
    raise DrainTerminated


class StopSignal:
    """SIGTERM or Ctrl-C, noted: an exception in the middle of a question to Spark would leave it without an answer."""

    def __init__(self) -> None:
        self.code = 0
        self._requested = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._request(0))
        signal.signal(signal.SIGINT, lambda *_: self._request(ExitCode.INTERRUPTED))

    def _request(self, code: int) -> None:
        self.code = code
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        return self._requested.wait(seconds)

    def check(self) -> None:
        """Raises in the middle of a drain, which ends its tasks: what they had under lock comes back."""
        if self.is_requested:
            raise TwinbusError("stopped")
