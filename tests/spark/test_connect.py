"""Drains, reports and the source with Spark Connect: the driver is a server, and this process only talks to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from backlog_messages import backlog_messages_for, fill
from connect_server import connect_server, run_without_java
from scripted_ledger import Scenario
from spark_backlog import SparkBacklog, ids_in

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.main import run
from twinbus.testing import NamespacePair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = ("-m", "twinbus", "pipeline")

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def backlog(namespace_pair: NamespacePair, tmp_path: Path) -> SparkBacklog:
    return SparkBacklog(namespace_pair, tmp_path)


def last_of(out: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    return said


def test_a_drain_and_a_report_need_nothing_but_a_server(backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 3_000))
    primary, secondary = (backlog.secret(side).credential for side in (backlog.primary, backlog.secondary))
    with connect_server(backlog.folder) as url:
        there = ("--master", url, "--ledger", str(backlog.ledger), "--json")
        drain = ("drain", "--queues", "2", "--primary-secret", primary, "--secondary-secret", secondary)
        code, out, err = run_without_java(backlog.folder, *PIPELINE, *drain, *there)
        assert code == 0, err[-3000:]
        done = last_of(out)
        assert (done["ending"], done["moved"], done["left"], done["killed_attempts"]) == ("empty", 3_000, 0, 0)
        assert ids_in(backlog.primary, "orders").total() == 3_000

        code, out, err = run_without_java(backlog.folder, *PIPELINE, "report", "--out", "report.html", *there)
        assert code == ExitCode.NOT_ALL, err[-3000:]  # no sender kept a ledger
        assert sum(each["left"] for each in last_of(out)["flow"]["buckets"]) == 3_000
        assert (backlog.folder / "report.html").exists()


REPORT_OF_EXECUTORS = """
import sys
from twinbus.cli.main import run
from twinbus.spark.jobs import compaction

compaction.LITTLE_BYTES = 0
sys.exit(run(["pipeline", "report", *sys.argv[1:], "--json"]))
"""
"""Even a small ledger is read on executors."""


def test_a_server_finds_what_spark_in_this_process_finds(
    spark: SparkSession, scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for ledger in (here, there):
        ledger.mkdir()
        scenario.write(ledger)
    expected = run(["pipeline", "report", "--ledger", str(here), "--out", str(tmp_path / "here.html"), "--json"])
    found_here = last_of(capsys.readouterr().out)
    script = tmp_path / "report.py"
    script.write_text(REPORT_OF_EXECUTORS)
    with connect_server(tmp_path) as url:
        words = (str(script), "--master", url, "--ledger", str(there), "--out", "there.html")
        code, out, err = run_without_java(tmp_path, *words)
        assert code == expected, err[-3000:]
        found_there = last_of(out)
        assert found_there.pop("made_at") >= found_here.pop("made_at")
        assert found_there == found_here
        assert "Warning" not in err

        code, out, err = run_without_java(tmp_path, *words)  # nothing is new
        assert (code, last_of(out) | found_here) == (expected, last_of(out)), err[-3000:]


SOURCE = """
import sys
from pyspark.sql import SparkSession
from twinbus.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
options = {"servicebus.credential": sys.argv[1]}
print(type(spark).__module__, spark.read.format("servicebus").options(**options).load("orders").count())
"""


def test_the_source_reads_in_a_session_of_a_server(backlog: SparkBacklog) -> None:
    fill(backlog.primary.connection_string, "orders", backlog_messages_for("orders", 100))
    script = backlog.folder / "read.py"
    script.write_text(SOURCE)
    secret = backlog.secret(backlog.primary).credential
    with connect_server(backlog.folder) as url:
        code, out, err = run_without_java(backlog.folder, str(script), secret, SPARK_REMOTE=url)
    assert (code, out.split()) == (0, ["pyspark.sql.connect.session", "100"]), err[-3000:]


def test_an_archive_is_refused_because_a_server_would_not_unpack_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in ("PRIMARY", "SECONDARY"):
        host = side.lower()
        text = f"Endpoint=sb://{host}.example/;SharedAccessKeyName=a;SharedAccessKey=b"
        monkeypatch.setenv(f"TWINBUS_{side}", text)
    monkeypatch.chdir(tmp_path)
    words = ["pipeline", "drain", "--master", "sc://spark.example", "--archive", "twinbus.tar.gz"]
    assert run(words) == 2
    assert "--archive does not work with Spark Connect" in capsys.readouterr().err
