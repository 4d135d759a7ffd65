"""`twinbus status --watch`: one look after the other, with the last good values of what cannot be found out now."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from twinbus.cli.json_form import json_text
from twinbus.cli.say import say
from twinbus.cli.status_text import Memory, as_dict, report, verdict_line
from twinbus.client.health import Check, Judgement, judge

if TYPE_CHECKING:
    from types import TracebackType

    from twinbus.client.reports import Inspection


class Watch:
    """On a terminal the screen is drawn anew with each look; in a pipe every look is printed, as JSON one a line."""

    def __init__(self, checks: frozenset[Check], *, as_json: bool, show_all: bool) -> None:
        self._checks, self._as_json, self._show_all = checks, as_json, show_all
        self._memory = Memory()
        self._live: Live | None = None
        if sys.stdout.isatty() and not as_json:
            console = Console(highlight=False)
            self._live = Live(
                Text("looking at both ..."), console=console, screen=True, auto_refresh=False, vertical_overflow="crop"
            )
        self.last: Judgement | None = None
        """The last verdict."""

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The screen is as it was before, with the last verdict on it."""
        if self._live is not None:
            self._live.stop()
            if self.last is not None:
                say(verdict_line(self.last))

    def show(self, seen: Inspection) -> None:
        self.last = judge(seen, self._checks)
        if self._as_json:
            text = json_text(as_dict(seen, self.last, self._checks, self._memory))
        else:
            at = datetime.fromtimestamp(seen.at, UTC)
            shown = report(seen, self.last, self._checks, self._memory, show_all=self._show_all)
            text = f"{shown}\n\nlooked at {at:%Y-%m-%d %H:%M:%S} UTC; Ctrl-C ends\n"
        self._memory.note(seen)
        if self._live is None:
            say(text)
            sys.stdout.flush()
        else:
            first, _, rest = text.partition("\n")  # the verdict is shown whole, tables line by line
            tables = Text(rest, no_wrap=True, overflow="ellipsis")
            self._live.update(Group(Text(first, style="bold"), tables), refresh=True)
