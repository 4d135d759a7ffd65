"""Texts that others choose reach terminals, logs and pages as text: they move no cursor and forge no line."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sample_status import NOW, ORDERS, STATUS

from twinbus.cli import output, progress_bar
from twinbus.cli.commands import ledger as ledger_command
from twinbus.cli.commands.receive import Printer
from twinbus.cli.main import run
from twinbus.cli.pipeline import pipeline
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.syphon import syphon_screens
from twinbus.client.reporting.events import PairEvent, PairEventName
from twinbus.drill.measures import Limits, measure
from twinbus.drill.report import DrillResult
from twinbus.drill.report import page as drill_page
from twinbus.ledger.reading.reader import Problem
from twinbus.ledger.reading.segment_files import StoredSegment
from twinbus.ledger.reading.stats import EventCount, Stats
from twinbus.ledger.reading.verify import Coverage
from twinbus.ledger.schema import Record
from twinbus.plain_text import LINES_ALIKE_MAX, LogLines, RateLimit, in_markdown, without_keys
from twinbus.spark.report.page import table
from twinbus.spark.report.plots import PlotBar, timeline
from twinbus.storage.opening import open_folder
from twinbus.syphon.pump.effects import Alert, log_line

HOSTILE = (
    "x\x1b[31mred\x1b]0;title\x07\x9b2J\u202etxet\u2066\r\nFORGED\n\rFORGED\x85FORGED\u2028FORGED\x00\x08"
    "[bold red]markup[/][link=https://evil.example]here[/link]\ud800 " + "long " * 5_000
)
KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
LENGTH_MAX = 25_000


def record() -> Record:
    return Record(
        kind=HOSTILE, entity=HOSTILE, namespace=HOSTILE, queue=HOSTILE, message_ids=(HOSTILE,), outcome=HOSTILE,
        condition=HOSTILE, reason=HOSTILE, v=1, process=HOSTILE, number=1, at_ms=0, monotonic_us=0, pid=1, host=HOSTILE,
        program=HOSTILE,
    )  # fmt: skip


def stats_text() -> str:
    counted = Stats(records=1)
    counted.kinds[HOSTILE] = EventCount()
    counted.entities[HOSTILE] = defaultdict(EventCount, {HOSTILE: EventCount()})
    return ledger_command._stats_text(counted)


def verify_text() -> str:
    return ledger_command._coverage_text(
        Coverage(1, 1, (), (Problem(StoredSegment(open_folder("a"), "b"), "corrupt", HOSTILE),))
    )


def report_lines() -> str:
    row = {"verdict": "lost", "entity": HOSTILE, "message_id": HOSTILE, "first_ms": 0, "why": HOSTILE}
    gap = SimpleNamespace(program=HOSTILE, process=HOSTILE, reason=HOSTILE)
    found = SimpleNamespace(
        reconciliation=SimpleNamespace(named=[row], named_count=1, count=lambda *_: 1),
        coverage=SimpleNamespace(missing=[gap], clocks=[HOSTILE], unkept=None),
        outages=[{"entity": HOSTILE, "failed_over_ms": 0, "recovered_ms": None}],
    )
    return "\n".join([*pipeline._missing(cast("Any", found)), *pipeline._outages(cast("Any", found))])


def noted() -> str:
    lines = io.StringIO()
    with ProgressBar("working", lines=lines) as bar:
        bar.note(HOSTILE)
        bar.say(HOSTILE)
    return lines.getvalue()


def above_the_bar() -> str:
    lines = io.StringIO()
    progress_bar.SyphonBar(lines).say(HOSTILE)
    return lines.getvalue()


def logged() -> str:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        facts = logging.LogRecord("a", logging.ERROR, "", 1, "broke: %s", (HOSTILE,), sys.exc_info())
    return LogLines("twinbus: ").format(facts)


def drill_outcome() -> DrillResult:
    measures = replace(measure([]), lost=(HOSTILE,))
    now = datetime(2031, 3, 9, tzinfo=UTC)
    return DrillResult(
        drill="d1", began_at=now, entity=HOSTILE, primary=HOSTILE, secondary=HOSTILE, fault="no-send", way="control",
        length_s=1.0, measures=measures, limits=Limits(), is_interrupted=False, is_put_back=True, taken_back=0,
        expire_at=now, troubles=(HOSTILE,),
    )  # fmt: skip


def printed_status() -> str:
    entity = replace(ORDERS, entity=HOSTILE, reason=HOSTILE)
    secondary = replace(STATUS.secondary_status, warnings=(HOSTILE,), unreachable_since=NOW, unreachable_reason=HOSTILE)
    return str(replace(STATUS, entities=(entity,), secondary_status=secondary, fault=HOSTILE))


def logged_by_any_command() -> str:
    run(["--version"])
    assert logging.lastResort is not None
    return logging.lastResort.format(logging.LogRecord("a", logging.ERROR, "", 1, "broke: %s", (HOSTILE,), None))


SHOWN: dict[str, Callable[[], str]] = {
    "an error": lambda: output.error_line(HOSTILE),
    "a table": lambda: output.table([("entity", "n"), (HOSTILE, 1)]),
    "ledger tail": lambda: ledger_command._text_line(record()),
    "ledger stats": stats_text,
    "ledger verify": verify_text,
    "a report": report_lines,
    "a note beside a bar": noted,
    "a line above a bar": above_the_bar,
    "an alert of the syphon": lambda: syphon_screens.alert_line(Alert("queue_down", HOSTILE, HOSTILE)),
    "a field of a message": lambda: output.or_dash(HOSTILE),
    "a log": logged,
    "the page of a drill": lambda: drill_page(drill_outcome()),
    "a status that a program prints": printed_status,
    "an alert in a log": lambda: log_line(Alert("queue_down", HOSTILE, HOSTILE)),
    "a log that a command did not ask for": logged_by_any_command,
    "a plot": lambda: timeline([PlotBar(HOSTILE, "out", 0, 1, HOSTILE)], 0, 1),
    "an event in a log": lambda: str(
        PairEvent(PairEventName.SUSPECT, HOSTILE, entity=HOSTILE, details={"ids": (HOSTILE,)})
    ),
}


@pytest.mark.parametrize("place", SHOWN)
def test_a_hostile_text_is_shown_as_text(place: str) -> None:
    text = SHOWN[place]()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert not any(line.startswith("FORGED") for line in text.splitlines())
    assert len(text) < LENGTH_MAX


def test_markup_in_a_text_is_not_obeyed() -> None:
    assert "[bold red]markup[/][link=https://evil.example]" in above_the_bar()


def test_a_result_on_the_terminal_keeps_its_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("one\x1b[2J\ntwo\tthree\u202e")
    assert capsys.readouterr().out == "one\N{MIDDLE DOT}[2J\ntwo\tthree\N{MIDDLE DOT}\n"


@pytest.mark.parametrize(("is_terminal", "expected"), [(True, "a\N{MIDDLE DOT}[2J\n"), (False, "a\x1b[2J\n")])
def test_a_body_is_written_as_it_is_except_to_a_terminal(
    is_terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(lines, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", lines)
    Printer("body").show(cast("Any", SimpleNamespace(body_type=SimpleNamespace(value="data"), body=[b"a\x1b[2J"])))
    assert lines.buffer.getvalue().decode() == expected


def test_a_hostile_argument_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "orders", "x", "--primary", HOSTILE]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()


def test_a_page_shows_markup_as_text() -> None:
    page = table(("entity",), [("<script>alert(1)</script>\u202e" + "long " * 5_000,)])
    assert "<script>" not in page
    assert "\u202e" not in page
    assert len(page) < LENGTH_MAX


def test_a_text_in_markdown_is_no_markup() -> None:
    text = "a|b <img src=x> [here](https://evil.example) `c` *d* _e_ # f ~g~ \\ & i"
    shown = in_markdown(text)
    assert not set("|<>[]`*_#~&") & set(re.sub(r"\\(.)", "", shown))
    assert re.sub(r"\\(.)", r"\1", shown) == text
    assert in_markdown("order-1 of contoso, 10.5 s (no-send)!") == "order-1 of contoso, 10.5 s (no-send)!"


def test_a_cell_of_the_page_of_a_drill_stays_in_its_table() -> None:
    text = drill_page(replace(drill_outcome(), entity="a | b", troubles=("* <script>",)))
    assert "no-send of a \\| b on" in text
    assert "* \\* \\<script\\>" in text


def test_keys_and_signatures_are_hidden_in_every_form() -> None:
    for text in (
        f"Endpoint=sb://a/;SharedAccessKeyName=k;SharedAccessKey={KEY};EntityPath=b",
        f"SharedAccessKey = {KEY}",
        f"SharedAccessSignature sr=sb%3a%2f%2fa&sig={KEY[:-1]}%3d&se=1&skn=k",
        f"SharedAccessSignature=SharedAccessSignature sr=a&sig={KEY}",
        f"what is {KEY}?",
    ):
        assert KEY[:12] not in without_keys(text)
    assert without_keys("sb://a/;SharedAccessKeyName=reader") == "sb://a/;SharedAccessKeyName=reader"


def test_a_log_has_few_lines_alike_and_then_says_how_many_it_left_out() -> None:
    limit, written = RateLimit(), []
    for second in [*[0.0] * 1_000, 61.0]:
        line = logging.LogRecord("a", logging.WARNING, "", 1, "peer %s", (second,), None)
        line.created = second
        if limit.filter(line):
            written.append(line.getMessage())
    assert len(written) == LINES_ALIKE_MAX + 1
    assert written[-1] == "peer 61.0 (and 990 more like this were left out)"
