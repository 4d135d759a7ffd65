"""The progress of a syphon: a bar for a terminal, JSON lines for programs, plain lines for logs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from twinbus.cli.output import say, say_event
from twinbus.cli.syphon.syphon_run import AFTER_CANARY
from twinbus.plain_text import on_one_line

if TYPE_CHECKING:
    from twinbus.syphon import Alert, Progress


class Screen:
    """Where progress is shown. This one shows nothing; subclasses override what they show."""

    every_s = 1.0
    """How often progress is shown."""
    can_ask = False

    def show(self, progress: Progress) -> None:
        pass

    def alert(self, alert: Alert) -> None:
        pass

    def ask(self, question: str) -> None:
        raise AssertionError("nobody is there to be asked")

    def close(self) -> None:
        pass


def screen_for(as_json: bool) -> Screen:
    """JSON lines if somebody asked for them; else a bar if stderr is a terminal, and plain lines if it is not."""
    return SyphonJsonLines() if as_json else TerminalScreen() if sys.stderr.isatty() else SyphonLines()


class SyphonJsonLines(Screen):
    """One JSON object a line on stdout, each with an `event`.

    Progress once a second, however often it is shown; once a minute while nothing changes, or an idle service would
    fill a disk with its log. While an entity is down and nothing comes home: short lines `waiting`, ever more rarely.
    """

    idle_s = 60.0

    def __init__(self) -> None:
        self._shown_s = float("-inf")
        self._shown: tuple[object, ...] = ()
        self._standstill = StallReporter(self.every_s)

    def show(self, progress: Progress) -> None:
        since_s, facts = progress.seconds - self._shown_s, _changing_facts(progress)
        if self._standstill.goes_on(progress):
            if self._standstill.is_due(since_s):
                self._shown_s, self._shown = progress.seconds, facts
                down = [each.path for each in progress.destinations if each.reason is not None]
                waiting = {"seconds": progress.seconds, "down": down, "moved": progress.moved, "left": progress.left}
                say_event("waiting", waiting)
        elif since_s >= 0.9 * (self.idle_s if facts == self._shown else self.every_s):
            self._shown_s, self._shown = progress.seconds, facts
            self._standstill.begin(progress)
            say_event("progress", progress.as_dict())

    def alert(self, alert: Alert) -> None:
        say_event("alert", alert._asdict())


class StallReporter:
    """A time in which an entity is down and nothing comes home; lines about it become rarer, up to one a minute."""

    longest_s = 60.0

    def __init__(self, first_s: float) -> None:
        self._first_s = self._pause_s = first_s
        self._facts: tuple[object, ...] | None = None

    def begin(self, progress: Progress) -> None:
        """All of this was shown."""
        self._facts, self._pause_s = self._of(progress), self._first_s

    def goes_on(self, progress: Progress) -> bool:
        """Whether there is nothing to add to what was shown."""
        return self._facts is not None and self._facts == self._of(progress)

    def is_due(self, since_s: float) -> bool:
        """Whether a short line is due; the next one comes later."""
        if since_s < 0.9 * self._pause_s:
            return False
        self._pause_s = min(2 * self._pause_s, self.longest_s)
        return True

    def _of(self, progress: Progress) -> tuple[object, ...] | None:
        down = tuple([(each.path, each.reason) for each in progress.destinations if each.reason is not None])
        if not down:
            return None
        return progress.state, progress.moved, progress.refused, progress.expired, progress.troubles, down


def _changing_facts(progress: Progress) -> tuple[object, ...]:
    """What changes only if something happens."""
    counts = progress.received, progress.moved, progress.refused, progress.expired, progress.released, progress.held
    return progress.state, counts, progress.destinations, progress.troubles, progress.left, progress.backlog


class SyphonLines(Screen):
    """Progress and troubles as lines on stderr, for logs and pipes: no colours, nothing drawn over."""

    progress_s = 10.0
    """A line no more often than this, and none while nothing changes."""

    def __init__(self) -> None:
        self._shown_s = float("-inf")
        self._shown: tuple[object, ...] = ()
        self._standstill = StallReporter(self.progress_s)

    def show(self, progress: Progress) -> None:
        facts = _changing_facts(replace(progress, backlog=None))  # a look into the backlog is not on the line
        if not self._shown:  # the first look is of what there is, not of what was done
            self._shown_s, self._shown = progress.seconds, facts
        since_s = progress.seconds - self._shown_s
        if self._standstill.goes_on(progress):
            if not self._standstill.is_due(since_s):
                return
        elif facts == self._shown or since_s < self.progress_s:
            return
        else:
            self._standstill.begin(progress)
        self._shown_s, self._shown = progress.seconds, facts
        left = "" if progress.left is None else f", about {progress.left:,} left"
        say(f"twinbus: {progress.state}: {progress.moved:,} home{left}, {progress.rate:,.0f}/s", err=True)

    def alert(self, alert: Alert) -> None:
        say(alert_line(alert), err=True)


class TerminalScreen(Screen):
    """A bar on stderr, troubles above it."""

    every_s = 0.25

    def __init__(self) -> None:
        from twinbus.cli.progress_bar import SyphonBar

        self.can_ask = sys.stdin.isatty()
        self._bar = SyphonBar(sys.stderr)
        self._is_asking = False

    def show(self, progress: Progress) -> None:
        self._is_asking = self._is_asking and progress.state == AFTER_CANARY
        if not self._is_asking:  # a bar would draw over what is being typed
            self._bar.show(progress)

    def alert(self, alert: Alert) -> None:
        self._bar.say(alert_line(alert))

    def ask(self, question: str) -> None:
        self._is_asking = True
        self._bar.hide()
        say(question, nl=False, err=True)

    def close(self) -> None:
        self._bar.hide()


def alert_line(alert: Alert) -> str:
    return on_one_line(f"twinbus: {alert.name.replace('_', ' ')}: {alert.subject}: {alert.text}")
