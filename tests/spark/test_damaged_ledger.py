"""A ledger with every damage at once: what was skipped is listed with its reason, and the exit code is no 0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from scripted_ledger import BASE_MS, MINUTE, Script, write_lines

from twinbus.cli.main import run
from twinbus.ledger import Event, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEYOND_ALL_CALENDARS_MS = 1 << 53


def lines_of(process: str, messages: int, *, at_ms: int = BASE_MS, step_ms: int = MINUTE) -> list[bytes]:
    script = Script(process, "shop")
    for number in range(messages):
        event = Event(Kind.ACCEPTED, "orders", message_ids=(f"{process}-{number}",), sizes=(5,))
        script.note(at_ms + number * step_ms, event)
    return script.lines()


def newer(line: bytes) -> bytes:
    body = line.rpartition(b',"crc":')[0].replace(b'"v":1', b'"v":2')
    return b'%b,"crc":%d}\n' % (body, crc32(body))


def damage(ledger: Path) -> dict[str, str]:
    """Write segments with a damage each; the damage of each by the name of its segment."""
    [corrupt] = write_lines(ledger, "0a", lines_of("0a", 5))
    corrupt.write_bytes(corrupt.read_bytes().replace(b"0a-2", b"0a-X"))
    [torn] = write_lines(ledger, "0b", lines_of("0b", 5))
    torn.write_bytes(torn.read_bytes()[:-40])
    lines = lines_of("0c", 5)
    [mixed] = write_lines(ledger, "0c", [*lines[:2], *map(newer, lines[2:4]), *lines[4:]])
    [good] = write_lines(ledger, "0d", lines_of("0d", 5))
    shutil.copy(good, ledger / "copy.jsonl")
    write_lines(ledger, "0e", lines_of("0e", 2, at_ms=BEYOND_ALL_CALENDARS_MS, step_ms=1))
    write_lines(ledger, "0f", [])
    (ledger / "nothing.jsonl").write_bytes(b"")
    return {corrupt.name: "corrupt", torn.name: "torn", mixed.name: "newer", "copy.jsonl": "duplicate"}


def test_every_damage_is_listed_and_the_answer_is_unknown(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, page = tmp_path / "ledger", tmp_path / "report.html"
    ledger.mkdir()
    damages = damage(ledger)
    assert run(["pipeline", "report", "--ledger", str(ledger), "--out", str(page), "--json"]) == 3
    said, progress = capsys.readouterr()
    found = json.loads(said)
    assert {each["segment"]: each["defect"] for each in found["coverage"]["skipped"]} == damages
    for segment, defect in damages.items():
        assert any(line.startswith(f"twinbus: skipped: {segment}") and defect in line for line in progress.splitlines())
        assert segment in page.read_text(encoding="utf-8")
    assert found["coverage"]["complete"] is False
    assert found["reconciliation"]["lost"] is None
    assert found["reconciliation"]["verdict"].startswith("unknown")
    read = 4 + 5 + 3 + 5 + 2  # by segment; the record that was torn only says that its process ended
    assert found["reconciliation"]["accepted"] == read
