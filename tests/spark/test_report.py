"""One ledger, looked at in every way: outages, order, flow and cost, as numbers, as a page and by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from duck_oracle import Oracle
from json_rules import broken_rules
from scripted_ledger import (
    BASE_MS,
    FIRST_BACK,
    FIRST_OUT,
    MINUTE,
    SECOND_OUT,
    Scenario,
    Script,
    make_scenario,
    write_lines,
)

from twinbus.cli.main import run
from twinbus.ledger import Event, Kind
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.jobs.findings import Findings
from twinbus.spark.jvm import find_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_both_outages_of_every_entity_are_found(findings: Findings) -> None:
    expected = [
        {
            "entity": f"entity{number}",
            "outage": outage,
            "suspected_ms": BASE_MS + begin - MINUTE,
            "failed_over_ms": BASE_MS + begin,
            "recovered_ms": None if end is None else BASE_MS + end,
            "processes": 2,
            "failovers": 2,
        }
        for number in range(3)
        for outage, begin, end in ((1, FIRST_OUT, FIRST_BACK), (2, SECOND_OUT, None))
    ]
    assert findings.outages == expected
    assert [row["outages"] for row in findings.availability] == [2, 2, 2]
    assert all(0.75 < row["share"] < 0.78 for row in findings.availability)


def test_order_is_judged_as_duckdb_judges_it(findings: Findings, compacted: CompactedLedger) -> None:
    found = {row["entity"]: (row["arrived"], row["late"]) for row in findings.ordering}
    assert found == Oracle(compacted).late()
    assert [row["basis"] for row in findings.ordering] == ["delivered"] * 3
    assert {row["session_id"] for row in findings.sessions_hurt} == {"session0", "session1", "session2"}
    assert sum(row["late"] for row in findings.sessions_hurt) == found["entity0"][1] > 0


def test_the_flow_ends_with_what_is_left_in_the_backlog(findings: Findings, scenario: Scenario) -> None:
    left = sum(verdict == "waiting" for verdict in scenario.expected.values())
    behind = len(scenario.planted["left behind"])
    assert findings.flow[-1]["depth"] == left + behind
    assert sum(row["sent_home"] for row in findings.flow) == sum(
        event.kind == Kind.SENT_HOME for _, _, event in scenario.scripts["syphon"].events
    )


def test_operations_and_bytes_are_those_that_duckdb_counts(findings: Findings, compacted: CompactedLedger) -> None:
    charges = Oracle(compacted).charges()
    [bill] = findings.bills
    uses = {str(line.stage): line.use for line in bill.lines}
    for stage, kinds, parked in (
        ("send to backlog", ["backlogged"], True),
        ("receive from backlog", ["received_from_backlog"], True),
        ("send home to primary", ["sent_home"], False),
        ("receive from primary", ["delivered", "dead_lettered"], False),  # a dead letter was received, too
        ("pings", ["ping"], False),
    ):
        messages, operations, size = (
            sum(each) for each in zip(*(charges[kind, parked] for kind in kinds), strict=True)
        )
        found = uses[stage]
        assert (found.messages, found.full, found.bytes) == (messages, operations, size), stage
    assert uses["settle on primary"].documents == 0


def test_the_command_writes_both_and_ends_with_4_if_messages_are_lost(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_scenario(8, 300, misfortunes=1).write(tmp_path / "ledger")
    out = tmp_path / "report.html"
    code = run(["pipeline", "report", "--ledger", str(tmp_path / "ledger"), "--out", str(out), "--json"])
    said, progress = capsys.readouterr()
    assert code == 4
    assert json.loads(said)["reconciliation"]["verdict"] == "3 lost"
    assert list(broken_rules(json.loads(said))) == []
    assert "<svg" in out.read_text(encoding="utf-8")
    assert "4 segments" in progress


def test_an_empty_ledger_is_no_proof_of_anything(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "report", "--ledger", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 3
    assert "The ledger has no records." in capsys.readouterr().out
    assert "Nothing was recorded" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_six_thousand_pings_an_hour_are_counted_from_the_ledger(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """C1: 5 entities, 20 clients, one ping a minute."""
    for client in range(20):
        script = Script(f"{client:016x}", "client")
        for ping in range(60):
            for entity in range(5):
                event = Event(Kind.PING, f"e{entity}", "contoso", count=1, bytes=180, outcome="failed")
                script.note(BASE_MS + ping * MINUTE, event)
        script.note(BASE_MS, Event(Kind.QUEUE_CHECKED, namespace="backup", count=1))
        write_lines(tmp_path, script.process, script.lines(closed=client > 0))
    assert run(["cost", "actual", "--ledger", str(tmp_path), "--json"]) == 3  # one client was killed
    document = json.loads(capsys.readouterr().out)
    assert list(broken_rules(document)) == []
    stages = {stage["stage"]: stage for stage in document["months"][0]["stages"]}
    assert stages["pings"]["operations"] == {"documents": 6000, "full": 6000}
    assert stages["pings"]["size_bytes"] == 6000 * 180
    assert stages["management"]["operations"] == {"documents": 0, "full": 20}
    assert document["complete"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--ledger", "nowhere"], 1, "there is no ledger in nowhere"),
        (["--ledger", ".", "--horizon", "soon"], 2, "--horizon"),
        (["--ledger", ".", "--out", "no/such/place.html"], 2, "cannot be written"),
        (["--ledger", ".", "--prices", "no.toml"], 2, "prices cannot be read"),
        (["--ledger", ".", "--archive", "no.tgz"], 2, "there is no archive no.tgz"),
        (["--ledger", ".", "--master", "nonsense"], 2, "--master is local[N]"),
        (["--ledger", ".", "--master", "local[0]"], 2, "--master is local[N]"),
    ],
)
def test_wrong_arguments_are_one_line_before_spark_starts(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "report", *arguments]) == code
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


def test_a_spark_that_does_not_start_says_why() -> None:
    said = """WARNING: Using incubator modules
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1047)
[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."""
    assert find_reason(said) == "Master must either be yarn or start with spark"
    assert find_reason("[JAVA_GATEWAY_EXITED] no port") == "[JAVA_GATEWAY_EXITED] no port"
    said = """spark: ERROR StandaloneSchedulerBackend: Reason: All masters are unresponsive! Giving up.
An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."""
    assert find_reason(said) == "Reason: All masters are unresponsive! Giving up."


def test_a_machine_without_java_gets_advice_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(["pipeline", "report", "--ledger", str(tmp_path)]) == 1
    assert "apt-get install openjdk-17-jre-headless" in capsys.readouterr().err
