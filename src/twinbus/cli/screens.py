"""What a syphon does, for people at a terminal, for programs, and for nobody in particular."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from twinbus.cli.homecoming import AFTER_CANARY

if TYPE_CHECKING:
    from twinbus.cli.homecoming import Screen
    from twinbus.syphon import Alert, Progress


def screen_for(as_json: bool) -> Screen:
    """JSON lines if asked for; else a bar on a terminal, and in a pipe only what goes wrong."""
    if as_json:
        return JsonLines()
    if sys.stderr.isatty():
        return Terminal()
    return PlainLines()


class JsonLines:
    """One JSON object a line on stdout, each with an `event`."""

    every_s = 1.0
    can_ask = False

    def show(self, progress: Progress) -> None:
        self.say("progress", progress.as_dict())

    def tell(self, alert: Alert) -> None:
        self.say("alert", alert._asdict())

    def ask(self, question: str) -> None:
        raise AssertionError("programs are not asked")

    def close(self) -> None:
        pass

    def say(self, event: str, facts: dict[str, Any]) -> None:
        typer.echo(json.dumps({"event": event} | facts))


class PlainLines:
    """Troubles as lines on stderr, and nothing else until the end."""

    every_s = 1.0
    can_ask = False

    def show(self, progress: Progress) -> None:
        pass

    def tell(self, alert: Alert) -> None:
        typer.echo(alert_line(alert), err=True)

    def ask(self, question: str) -> None:
        raise AssertionError("nobody is there to be asked")

    def close(self) -> None:
        pass


class Terminal:
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
        typer.echo(question, nl=False, err=True)

    def close(self) -> None:
        self._bar.hide()


def alert_line(alert: Alert) -> str:
    text = " ".join(f"{alert.subject}: {alert.text}".split())
    return f"twinbus: {alert.name.replace('_', ' ')}: {text}"
