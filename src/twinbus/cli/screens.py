"""What a syphon does, for people at a terminal, for programs, and for nobody in particular."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinbus.cli.homecoming import AFTER_CANARY
from twinbus.cli.json_form import json_text
from twinbus.cli.say import say
from twinbus.plain_text import on_one_line

if TYPE_CHECKING:
    from twinbus.cli.homecoming import Screen
    from twinbus.syphon import Alert, Progress


def screen_for(as_json: bool) -> Screens:
    """JSON lines if somebody asked for them; else a bar if stderr is a terminal, and plain lines if it is not."""
    screen: Screen = JsonLines() if as_json else Terminal() if sys.stderr.isatty() else PlainLines()
    return Screens([screen])


class Screens:
    """Several at once."""

    def __init__(self, screens: list[Screen]) -> None:
        self._screens = screens

    @property
    def every_s(self) -> float:
        return min([screen.every_s for screen in self._screens])

    @property
    def can_ask(self) -> bool:
        return any(screen.can_ask for screen in self._screens)

    def add(self, screen: Screen) -> None:
        self._screens.append(screen)

    def show(self, progress: Progress) -> None:
        for screen in self._screens:
            screen.show(progress)

    def tell(self, alert: Alert) -> None:
        for screen in self._screens:
            screen.tell(alert)

    def ask(self, question: str) -> None:
        for screen in self._screens:
            if screen.can_ask:
                screen.ask(question)

    def close(self) -> None:
        for screen in self._screens:
            screen.close()


class Quiet:
    """Shows nothing; whoever shows something says what."""

    every_s = 1.0
    can_ask = False

    def show(self, progress: Progress) -> None:
        pass

    def tell(self, alert: Alert) -> None:
        pass

    def ask(self, question: str) -> None:
        raise AssertionError("nobody is there to be asked")

    def close(self) -> None:
        pass


class JsonLines(Quiet):
    """One JSON object a line on stdout, each with an `event`.

    Progress once a second, however often it is shown; once a minute while nothing changes, or an idle service would
    fill a disk with its log. While an entity is down and nothing comes home: short lines `waiting`, ever more rarely.
    """

    idle_s = 60.0

    def __init__(self) -> None:
        self._shown_s = float("-inf")
        self._shown: tuple[object, ...] = ()
        self._standstill = Standstill(self.every_s)

    def show(self, progress: Progress) -> None:
        since_s, news = progress.seconds - self._shown_s, _news(progress)
        if self._standstill.goes_on(progress):
            if self._standstill.is_due(since_s):
                self._shown_s, self._shown = progress.seconds, news
                self.say("waiting", _waiting(progress))
        elif since_s >= 0.9 * (self.idle_s if news == self._shown else self.every_s):
            self._shown_s, self._shown = progress.seconds, news
            self._standstill.begin(progress)
            self.say("progress", progress.as_dict())

    def tell(self, alert: Alert) -> None:
        self.say("alert", alert._asdict())

    def say(self, event: str, facts: dict[str, Any]) -> None:
        say(json_text({"event": event} | facts))


class Standstill:
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


def _waiting(progress: Progress) -> dict[str, Any]:
    down = [each.path for each in progress.destinations if each.reason is not None]
    return {"seconds": progress.seconds, "down": down, "moved": progress.moved, "left": progress.left}


def _news(progress: Progress) -> tuple[object, ...]:
    """What changes only if something happens."""
    counts = progress.received, progress.moved, progress.refused, progress.expired, progress.released, progress.held
    return progress.state, counts, progress.destinations, progress.troubles, progress.left, progress.backlog


class PlainLines(Quiet):
    """Progress and troubles as lines on stderr, for logs and pipes: no colours, nothing drawn over."""

    progress_s = 10.0
    """A line no more often than this, and none while nothing changes."""

    def __init__(self) -> None:
        self._shown_s = float("-inf")
        self._shown: tuple[object, ...] = ()
        self._standstill = Standstill(self.progress_s)

    def show(self, progress: Progress) -> None:
        news = _news(replace(progress, backlog=None))  # a look into the backlog is not on the line
        if not self._shown:  # the first look is of what there is, not of what was done
            self._shown_s, self._shown = progress.seconds, news
        since_s = progress.seconds - self._shown_s
        if self._standstill.goes_on(progress):
            if not self._standstill.is_due(since_s):
                return
        elif news == self._shown or since_s < self.progress_s:
            return
        else:
            self._standstill.begin(progress)
        self._shown_s, self._shown = progress.seconds, news
        say(progress_line(progress), err=True)

    def tell(self, alert: Alert) -> None:
        say(alert_line(alert), err=True)


class Terminal(Quiet):
    """A bar on stderr, troubles above it."""

    every_s = 0.25

    def __init__(self) -> None:
        from twinbus.cli.draw import HomeBar

        self.can_ask = sys.stdin.isatty()
        self._bar = HomeBar(sys.stderr)
        self._is_asking = False

    def show(self, progress: Progress) -> None:
        self._is_asking = self._is_asking and progress.state == AFTER_CANARY
        if not self._is_asking:  # a bar would draw over what is being typed
            self._bar.show(progress)

    def tell(self, alert: Alert) -> None:
        self._bar.say(alert_line(alert))

    def ask(self, question: str) -> None:
        self._is_asking = True
        self._bar.hide()
        say(question, nl=False, err=True)

    def close(self) -> None:
        self._bar.hide()


def progress_line(progress: Progress) -> str:
    left = "" if progress.left is None else f", about {progress.left:,} left"
    return f"twinbus: {progress.state}: {progress.moved:,} home{left}, {progress.rate:,.0f}/s"


def alert_line(alert: Alert) -> str:
    return on_one_line(f"twinbus: {alert.name.replace('_', ' ')}: {alert.subject}: {alert.text}")
