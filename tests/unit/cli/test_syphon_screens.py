"""What is shown of a syphon that runs, without one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from idle_progress import IDLE

from twinbus.cli.syphon.syphon_screens import SyphonJsonLines, SyphonLines, alert_line
from twinbus.syphon import Alert, Progress
from twinbus.syphon.peeking.depth_watch import BacklogSnapshot
from twinbus.syphon.progress import DestinationProgress


def shown(looks: list[Progress], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = SyphonJsonLines()
    for look in looks:
        lines.show(look)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_an_idle_service_writes_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    hour = [replace(IDLE, seconds=second / 4) for second in range(4 * 3_600)]
    assert 60 <= len(shown(hour, capsys)) <= 67


def test_while_messages_move_there_is_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    minute = [replace(IDLE, seconds=step / 4, moved=step) for step in range(4 * 60)]
    assert 60 <= len(shown(minute, capsys)) <= 67


def test_what_changes_after_a_quiet_time_is_reported_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = [replace(IDLE, seconds=float(second)) for second in range(10)]
    said = shown([*quiet, replace(IDLE, seconds=10.0, state="paused")], capsys)
    assert [each["state"] for each in said] == ["running", "paused"]


def test_in_a_pipe_progress_is_a_plain_line_every_ten_seconds_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    lines = SyphonLines()
    for step in range(4 * 60):
        lines.show(replace(IDLE, seconds=step / 4, moved=step, left=240 - step))
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 5)
    assert err.splitlines()[0] == "twinbus: running: 40 home, about 200 left, 0/s"


def test_in_a_pipe_an_idle_service_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = SyphonLines()
    for second in range(3_600):
        look = BacklogSnapshot(float(second // 25), 0, 0, 0, None)  # has found the same again
        lines.show(replace(IDLE, seconds=float(second), backlog=look))
    assert capsys.readouterr() == ("", "")


def test_an_alert_is_one_line_that_no_terminal_obeys() -> None:
    line = alert_line(Alert("quarantined", "orders\x1b[2J", "TwinbusMalformed:\nx-ms-path"))
    assert line == "twinbus: quarantined: orders\N{MIDDLE DOT}[2J: TwinbusMalformed: x-ms-path"


def down(second: int, **changes: Any) -> Progress:
    """An entity is down, and every few seconds all messages are received and given back."""
    orders = DestinationProgress(path="orders", state="resting", reason="unreachable: refused", waiting=0, in_flight=0)
    tried = {"received": 20 * second, "released": 20 * second, "left": 20 + second}
    return replace(IDLE, seconds=float(second), **{"destinations": (orders,), **tried, **changes})


def test_while_an_entity_is_down_lines_become_short_and_rare(capsys: pytest.CaptureFixture[str]) -> None:
    hour = [down(second) for second in range(3_600)]
    up = [replace(IDLE, seconds=3_600.0 + second, moved=20 * second) for second in range(1, 3)]
    said = shown([*hour, *up], capsys)
    events = [each["event"] for each in said]
    assert events[:5] == ["progress", "waiting", "waiting", "waiting", "waiting"]
    assert [each["elapsed_s"] for each in said[:5]] == [0, 1, 3, 7, 15]
    assert 60 < len(said) < 75
    assert events[-2:] == ["progress", "progress"], "its return is told in full, and at once"
    assert max(len(json.dumps(each)) for each in said if each["event"] == "waiting") < 120
    assert said[1] == {"event": "waiting", "elapsed_s": 1.0, "down": ["orders"], "moved": 0, "left": 21}


def test_in_a_pipe_a_down_entity_is_a_line_a_minute_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    lines = SyphonLines()
    for second in range(3_600):
        lines.show(down(second))
    assert 55 < len(capsys.readouterr().err.splitlines()) < 70


def test_another_entity_that_goes_down_is_reported_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    other = DestinationProgress(path="news", state="resting", reason="disabled: off", waiting=0, in_flight=0)
    both = (*down(0).destinations, other)
    said = shown([*[down(second) for second in range(100)], down(100, destinations=both)], capsys)
    assert said[-1]["event"] == "progress"
