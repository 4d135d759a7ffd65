"""Numbers in JSON have one form, whatever they are called inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from json_rules import broken_rules

from twinbus.cli.main import run
from twinbus.cli.output import in_form, json_text
from twinbus.spark import archive

AT_MS = 1_930_831_506_789


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("at", AT_MS / 1000, {"at": "2031-03-09T14:05:06.789Z"}),
        ("at_ms", AT_MS, {"at": "2031-03-09T14:05:06.789Z"}),
        ("first_ms", AT_MS, {"first_at": "2031-03-09T14:05:06.789Z"}),
        ("first_ms", None, {"first_at": None}),
        ("last_ms", 10**18, {"last_at": None}),
        ("began_at", "2031-03-09T14:05:06+00:00", {"began_at": "2031-03-09T14:05:06Z"}),
        ("length_ms", 1_500, {"length_s": 1.5}),
        ("length_ms", None, {"length_s": None}),
        ("horizon_min", 15, {"horizon_s": 900}),
        ("capacity_hours", float("inf"), {"capacity_s": None}),
        ("seconds", 1.25, {"elapsed_s": 1.25}),
        ("size", 7, {"size_bytes": 7}),
        ("bytes", 7.0, {"size_bytes": 7}),
        ("sizes", (1, 2), {"sizes_bytes": [1, 2]}),
        ("rate", 2.5, {"messages_per_s": 2.5}),
        ("messages", 35_400.0, {"messages": 35_400}),
    ],
)
def test_a_name_says_the_unit(name: str, value: Any, expected: dict[str, Any]) -> None:
    assert in_form({name: value}) == expected
    assert json.loads(json_text([{"x": {name: value}}])) == [{"x": expected}]
    assert list(broken_rules(in_form({name: value}))) == []


def test_names_that_users_have_chosen_stay() -> None:
    said = {
        "properties": {"size": 1.5, "at": 5},
        "sessions": {"orders": {"seconds": 3}},
        "entities": {"bytes": {"n": 1}},
    }
    assert in_form(said) == said


@pytest.mark.parametrize("name", ["at", "x_ms", "seconds", "bytes", "weight", "size", "hours"])
def test_the_rules_notice_what_has_no_form(name: str) -> None:
    assert list(broken_rules({name: 1.5})) != []


def test_an_archive_is_described_in_this_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archive, "_ROOTS", ("typer",))
    assert run(["pipeline", "pack", str(tmp_path / "x.tar.gz"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["size_bytes"] > 0
    assert list(broken_rules(said)) == []
