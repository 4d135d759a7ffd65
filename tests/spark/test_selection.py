"""Reports about some of the messages, the table of all verdicts, counts of the service, and the watch."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb
import pytest
from json_rules import broken_rules
from scripted_ledger import BASE_MS, FIRST_OUT, MINUTE, Scenario, make_scenario
from small_ledger import SmallLedger

from twinbus.cli.main import run
from twinbus.cli.pipeline import watch
from twinbus.ledger import Kind
from twinbus.spark.compaction.clocks import ProcessClock, ProcessClocks
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import MissingRecords, StoreCoverage
from twinbus.spark.jobs.findings import Findings
from twinbus.spark.transforms.selection import LedgerSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE, UNTIL = BASE_MS + FIRST_OUT - 5 * MINUTE, BASE_MS + FIRST_OUT + 10 * MINUTE


def first_heard_ms(scenario: Scenario) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for script in scenario.scripts.values():
        for at_ms, _, event in script.events:
            for message_id in event.message_ids:
                key = (event.entity.lower(), message_id)
                found[key] = min(at_ms, found.get(key, at_ms))
    return found


def report(spark: SparkSession, compacted: CompactedLedger, selection: LedgerSelection, **others: Any) -> Findings:
    from twinbus.cost.prices import Prices
    from twinbus.spark.jobs.analysis import ChosenMessages, analyse

    chosen = ChosenMessages(selection, **others)
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, chosen=chosen)


def test_a_window_has_the_messages_that_were_accepted_in_it_with_what_became_of_them_later(
    spark: SparkSession, compacted: CompactedLedger, scenario: Scenario
) -> None:
    """The window ends in an outage: most of what was accepted in it came home after its end."""
    times = first_heard_ms(scenario)
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for (entity, message_id), verdict in scenario.expected.items():
        if entity != "entity2" and SINCE <= times[entity, message_id] < UNTIL:
            expected[entity][verdict] += 1
    found = report(spark, compacted, LedgerSelection(SINCE, UNTIL, ("Entity0", "*1")))
    assert found.reconciliation.entities == {entity: dict(counts) for entity, counts in expected.items()}
    assert {row["entity"] for row in found.outages} == {"entity0", "entity1"}
    assert [row["out_ms"] for row in found.availability] == [UNTIL - BASE_MS - FIRST_OUT + MINUTE] * 2
    assert all(SINCE <= row["first_ms"] < UNTIL for row in found.reconciliation.named)
    assert all(SINCE - found.bucket_ms < row["bucket_ms"] < UNTIL for row in found.flow)
    assert found.as_dict()["window"] == {
        "since_at": "2025-03-09T06:55:00.000Z",
        "until_at": "2025-03-09T07:10:00.000Z",
        "entities": ["Entity0", "*1"],
    }


@pytest.mark.long
def test_a_window_around_everything_gives_the_report_of_everything(
    spark: SparkSession, compacted: CompactedLedger, findings: Findings
) -> None:
    whole, windowed = findings.as_dict(), report(spark, compacted, LedgerSelection(0, 1 << 50)).as_dict()
    for part in ("coverage", "reconciliation", "outages", "availability", "ordering", "flow", "cost"):
        assert windowed[part] == whole[part], part


def missing(since_ms: int, until_ms: int, process: str = "a") -> StoreCoverage:
    gap = MissingRecords(process, "client", 1, since_ms, until_ms, "gone")
    return StoreCoverage(1, 1, 0, 0, 0, (gap,), ())


@pytest.mark.parametrize(
    ("coverage", "is_known"),
    [
        (missing(10, 20), True),
        (missing(10, 91), False),  # its clock was set by 10 ms
        (missing(120, 130), False),
        (missing(220, 230), True),
        (missing(10, 20, "b"), False),  # nobody knows its clock
    ],
)
def test_records_that_are_missing_outside_of_the_window_hide_no_acceptance_in_it(
    coverage: StoreCoverage, is_known: bool
) -> None:
    from twinbus.spark.jobs.analysis import knows_all_accepted

    clocks = ProcessClocks((ProcessClock("a", "machine", 10),))
    assert knows_all_accepted(coverage, LedgerSelection(100, 200), clocks) == is_known
    assert not knows_all_accepted(coverage, LedgerSelection(), clocks)


def ledger_of(tmp_path: Path, seed: int = 8) -> tuple[Path, Scenario]:
    scenario = make_scenario(seed, 300, misfortunes=1)
    scenario.write(tmp_path / "ledger")
    return tmp_path / "ledger", scenario


def rows_in(table: Path) -> list[tuple[Any, ...]]:
    query = f"select entity, message_id, verdict, first_ms from '{table}/*.parquet'"
    return duckdb.connect().execute(query).fetchall()


def test_the_verdict_table_has_every_message_and_is_replaced_only_on_request(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, scenario = ledger_of(tmp_path)
    table, command = tmp_path / "verdicts", ["pipeline", "report", "--ledger", str(ledger)]
    assert run([*command, "--verdicts", str(table), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert list(broken_rules(document)) == []
    assert document["verdicts_url"] == str(table)
    rows = {(row[0], row[1]): (row[2], row[3]) for row in rows_in(table)}
    held = (
        f"select count(*) from '{table}/*.parquet' where held_ms is not null and not coalesce(why like 'held%', false)"
    )
    assert duckdb.connect().execute(held).fetchone() == (0,), "no syphon holds what came home"
    times = first_heard_ms(scenario)
    expected = {key: (verdict, times[key]) for key, verdict in scenario.expected.items()}
    assert {
        key: (rows.get(key), expected.get(key)) for key in {*rows, *expected} if rows.get(key) != expected.get(key)
    } == {}

    assert run([*command, "--verdicts", str(table)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    before = set(table.glob("*.parquet"))
    assert run([*command, "--verdicts", str(table), "--overwrite", "--entity", "ENTITY0"]) == 0  # others are lost
    after = set(table.glob("*.parquet"))
    assert not before & after
    assert {row[0] for row in rows_in(table)} == {"entity0"}
    (table / "mine.txt").write_text("keep me")
    capsys.readouterr()
    assert run([*command, "--verdicts", str(table), "--overwrite"]) == 2
    assert "mine.txt" in capsys.readouterr().err
    assert set(table.glob("*.parquet")) == after


def test_an_entity_that_nobody_has_heard_of_is_no_proof(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, _ = ledger_of(tmp_path)
    assert run(["pipeline", "report", "--ledger", str(ledger), "--entity", "ordres"]) == 3
    assert "no entity on record is called ordres" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--since", "soon"], "--since takes a time"),
        (["--since", "1h", "--until", "2h"], "--since must be before --until"),
        (["--entity", " "], "must not be empty"),
        (["--overwrite"], "no effect without --verdicts"),
        (["--verdicts", ""], "--verdicts must not be empty"),
        (["--verdicts", " ", "--overwrite"], "--verdicts must not be empty"),
        (["--counts", "nothing.json"], "nothing.json cannot be read"),
    ],
)
def test_a_wrong_selection_is_refused_before_spark_starts(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "report", "--ledger", ".", *arguments]) == 2
    assert text in capsys.readouterr().err


def export(file: Path, scenario: Scenario, entity: str, missing: int) -> None:
    """What Azure Monitor would have counted, by the minute, had it missed some."""
    counted: Counter[int] = Counter()
    for script in scenario.scripts.values():
        for at_ms, _, event in script.events:
            if event.entity == entity and event.kind in (Kind.ACCEPTED, Kind.SENT_HOME):
                counted[at_ms // MINUTE] += len(event.message_ids)
    busiest = max(counted, key=lambda minute: counted[minute])
    counted[busiest] -= missing
    minutes = range(BASE_MS // MINUTE - 5, BASE_MS // MINUTE + 200)
    data = [
        {"timeStamp": datetime.fromtimestamp(each * 60, UTC).isoformat(), "total": float(counted[each])}
        for each in minutes
    ]
    labels = [{"name": {"value": "EntityName"}, "value": entity.upper()}]
    metric = {"name": {"value": "IncomingMessages"}, "timeseries": [{"metadatavalues": labels, "data": data}]}
    file.write_text(json.dumps({"interval": "PT1M", "value": [metric]}))


@pytest.mark.parametrize(
    ("missed", "code", "outcome"), [pytest.param(0, 0, "agrees", marks=pytest.mark.long), (2, 3, "fewer")]
)
def test_fewer_incoming_messages_than_were_acknowledged_make_the_answer_unknown(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], missed: int, code: int, outcome: str
) -> None:
    scenario = make_scenario(8, 300, misfortunes=0)
    scenario.write(tmp_path / "ledger")
    command = ["pipeline", "report", "--ledger", str(tmp_path / "ledger"), "--json", "--counts"]
    export(tmp_path / "metrics.json", scenario, "entity0", missed)
    assert run([*command, str(tmp_path / "metrics.json")]) == code
    document = json.loads(capsys.readouterr().out)
    [found] = document["service_counts"]
    assert (found["entity"], found["outcome"]) == ("entity0", outcome)
    assert ("unknown" in document["reconciliation"]["verdict"]) == bool(missed)


def test_a_watch_alerts_survives_a_ledger_that_is_away_and_serves_its_numbers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, _ = ledger_of(tmp_path)
    heard, script = tmp_path / "heard.json", tmp_path / "alert.py"
    script.write_text(
        "import os, sys\n"
        f"open({str(heard)!r}, 'a').write(sys.stdin.read() + '\\n')\n"
        f"os.rename({str(ledger)!r}, {str(tmp_path / 'away')!r})\n"
    )
    numbers, page = tmp_path / "watch.prom", tmp_path / "report.html"
    code = run(
        [
            *("pipeline", "watch", "--ledger", str(ledger), "--store", str(tmp_path / "store"), "--every", "1s"),
            *("--rounds", "2", "--json", "--metrics-file", str(numbers), "--out", str(page)),
            *("--alert-command", f"{sys.executable} {script}"),
        ]
    )
    assert code == 4
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(broken_rules(events)) == []
    assert [each["event"] for each in events] == ["round", "alert", "round_failed"]
    assert events[0]["elapsed_s"] == round(events[0]["elapsed_s"], 3)
    assert (events[1]["alert"], events[1]["state"], events[1]["messages"]) == ("lost", "begun", 3)
    assert json.loads(heard.read_text())["named"][0]["verdict"] == "lost"
    text = numbers.read_text()
    for line in ("twinbus_watch_lost 3.0", 'rounds_total{result="failed"} 1.0', 'rounds_total{result="done"} 1.0'):
        assert line in text
    assert "3 lost" in page.read_text()


def test_a_watch_alerts_of_a_backlog_that_nobody_brings_home_and_needs_no_spark_job_if_nothing_is_new(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = SmallLedger(tmp_path / "ledger")
    ledger.writer("client").backlogged(1, "orders", "m1", "m2")
    jobs_after: list[int] = []

    def publish(*_: object) -> None:
        jobs_after.append(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())

    with mock.patch.object(watch, "_publish", publish):
        code = run(
            [
                *("pipeline", "watch", "--ledger", str(ledger.write()), "--every", "1s", "--rounds", "3", "--json"),
                *("--stuck-after", "1s", "--quiet", "1s"),
            ]
        )
    assert code == 0
    alerts = [each for each in map(json.loads, capsys.readouterr().out.splitlines()) if each["event"] == "alert"]
    assert [(each["alert"], each["state"], each["entity"], each["messages"]) for each in alerts] == [
        ("stuck", "begun", "orders", 2)
    ]
    assert jobs_after[0] == jobs_after[1] == jobs_after[2]
