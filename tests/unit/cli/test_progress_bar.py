"""Bars: drawn on a terminal once two seconds are over, never in a pipe, and gone at the end."""

from __future__ import annotations

import io
import time

import pytest

from twinbus.cli import progress_bar
from twinbus.cli.progress_bar import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until_drawn(lines: Terminal, text: str) -> str:
    for _ in range(6_000):
        if text in lines.getvalue():
            return lines.getvalue()
        time.sleep(0.01)
    raise AssertionError(f"{text!r} was not drawn: {lines.getvalue()!r}")


def test_what_is_quick_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 60.0)
    lines = Terminal()
    with ProgressBar("copying", 10, lines=lines) as bar:
        bar.done = 10
    assert lines.getvalue() == ""


def test_what_takes_its_time_is_drawn_and_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    lines = Terminal()
    with ProgressBar("copying", 2_000, lines=lines) as bar:
        bar.done = 1_500
        until_drawn(lines, "1,500 of 2,000")
        bar.note("one was skipped")
        until_drawn(lines, "twinbus: one was skipped")
        bar.say("checking")
        until_drawn(lines, "checking")
    assert lines.getvalue().endswith(("\x1b[2K", "\x1b[?25h")), "the line is erased"


def test_in_a_pipe_nothing_is_drawn_and_what_is_said_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 0.01)
    lines = io.StringIO()
    with ProgressBar("copying", 10, lines=lines) as bar:
        bar.say("checking")
        bar.note("one was skipped")
        time.sleep(0.1)
    assert lines.getvalue() == "twinbus: checking\ntwinbus: one was skipped\n"


def test_a_note_that_came_too_late_for_the_bar_is_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 60.0)
    lines = Terminal()
    with ProgressBar("copying", lines=lines) as bar:
        bar.note("one was skipped")
    assert lines.getvalue() == "twinbus: one was skipped\n"
