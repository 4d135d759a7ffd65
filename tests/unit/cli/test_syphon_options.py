"""What `twinbus syphon` makes of its arguments, without any namespace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from twinbus.cli.main import run
from twinbus.cli.syphon.quarantine import parse_number
from twinbus.cli.syphon.syphon import SyphonLeftovers, exit_code
from twinbus.cli.syphon.syphon_run import Ending
from twinbus.errors import OptionsError
from twinbus.syphon import SyphonOptions
from twinbus.units import parse_past_time

NOW = datetime(2025, 3, 9, 14, 5, tzinfo=UTC)
ALL_HOME = SyphonLeftovers([], 0, 0, [])
WRONG = [
    ("syphon --first 0", "--first must be 1 or more"),
    ("syphon --rate -1", "rate must be above 0"),
    ("syphon --concurrency 0", "concurrency must be from 1"),
    ("syphon --ttl forever", '"remaining" or "restart"'),
    ("syphon --before yesterday", "2025-03-09T14:05Z"),
    ("syphon --order entity", "--order is session"),
    ("syphon --metrics nowhere", "--metrics takes a port, e.g. 9464"),
    ("syphon --metrics 0", "--metrics takes a port, e.g. 9464"),
    ("syphon --metrics 65536", "--metrics takes a port, e.g. 9464"),
    (
        "syphon --metrics-file missing/numbers.prom",
        "--metrics-file missing/numbers.prom cannot be written: give a file",
    ),
    ("syphon --metrics-file .", "--metrics-file . cannot be written: give a file in a directory that exists"),
    ("syphon --count 101", "from 1 to 100"),
    ("syphon --timeout 1h", "from 100ms to 2m"),
    ("syphon --until-emtpy", "did you mean --until-empty?"),
    ("syphon quarantin", "did you mean quarantine?"),
    ("syphon", "--primary (or TWINBUS_PRIMARY)"),
    ("syphon quarantine discard", "say which"),
    ("syphon quarantine discard 0/1 --all", "say which"),
    ("syphon quarantine redrive 17", "a number, e.g. 0/17"),
    ("syphon quarantine show", "NUMBER"),
    ("syphon quarantine list --primary-name contoso", "--secondary (or TWINBUS_SECONDARY)"),
]


@pytest.mark.parametrize(("arguments", "right"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_arguments_are_one_line_and_end_with_2(
    arguments: str,
    right: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("PRIMARY", "SECONDARY"):
        monkeypatch.delenv(f"TWINBUS_{side}", raising=False)
    assert run(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert right in err


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2025-03-09T14:00Z", NOW - timedelta(minutes=5)),
        ("2025-03-09T14:00", NOW - timedelta(minutes=5)),
        ("2025-03-09T15:00+01:00", datetime(2025, 3, 9, 15, tzinfo=timezone(timedelta(hours=1)))),
        ("10m", NOW - timedelta(minutes=10)),
        ("2h", NOW - timedelta(hours=2)),
    ],
)
def test_a_time_is_a_moment_or_how_long_ago(text: str, meant: datetime) -> None:
    assert parse_past_time(text, NOW, "--before") == meant


@pytest.mark.parametrize("text", ["", "/", "1/", "/1", "a/1", "1/2/3", "-1/2", "1/" + "9" * 20, "٥/1"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="0/17"):
        parse_number(text)


def test_a_number_is_queue_and_sequence() -> None:
    assert parse_number("3/17") == (3, 17)


@pytest.mark.parametrize(
    ("ending", "until_empty", "code"),
    [
        (Ending.EMPTY, True, 0),
        (Ending.CHOSEN, True, 0),
        (Ending.STOPPED, False, 0),
        (Ending.STOPPED, True, 3),
        (Ending.CANARY, False, 3),
        (Ending.CANARY, True, 3),
        (Ending.INTERRUPTED, True, 130),
        (Ending.INTERRUPTED, False, 130),
    ],
)
def test_0_is_only_said_when_what_was_asked_for_is_done(ending: Ending, until_empty: bool, code: int) -> None:
    assert exit_code(ending, SyphonOptions(until_empty=until_empty), ALL_HOME) == code


@pytest.mark.parametrize(
    "leftovers",
    [SyphonLeftovers([], 1, 0, []), SyphonLeftovers([], 1, 1, []), SyphonLeftovers([], None, None, ["nobody knows"])],
)
def test_0_is_not_said_while_messages_are_in_quarantine_or_nobody_knows(leftovers: SyphonLeftovers) -> None:
    for ending in (Ending.EMPTY, Ending.CHOSEN, Ending.UNSURE):
        assert exit_code(ending, SyphonOptions(until_empty=True), leftovers) == 3


def test_0_is_said_although_messages_stay_for_entities_that_were_not_named() -> None:
    assert exit_code(Ending.CHOSEN, SyphonOptions(until_empty=True), SyphonLeftovers([], 0, 1, [])) == 0
