"""Drains, reports and the source with Spark Connect: the driver is a server, and this process only talks to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backlog_messages import backlog_messages_for, fill
from spark_backlog import SparkBacklog, ids_in

from twinbus.cli.main import run
from twinbus.testing import NamespacePair

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
WAIT_S = 400


@pytest.fixture
def backlog(namespace_pair: NamespacePair, tmp_path: Path) -> SparkBacklog:
    return SparkBacklog(namespace_pair, tmp_path)


def on_connect(backlog: SparkBacklog, *command: str) -> str:
    """What it says on stdout. The server is started by PySpark, in a JVM of its own."""
    environment = os.environ | {
        "SPARK_REMOTE": "local[2]",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TWINBUS_PRIMARY": backlog.primary.connection_string,
        "TWINBUS_SECONDARY": backlog.secondary.connection_string,
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=backlog.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def last_of(out: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    return said


def test_a_drain_and_a_report_need_nothing_but_a_server(backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 3_000))
    ledger = str(backlog.ledger)
    words = ("-m", "twinbus", "pipeline")
    done = last_of(on_connect(backlog, *words, "drain", "--queues", "2", "--ledger", ledger, "--json"))
    assert (done["ending"], done["moved"], done["left"], done["killed_attempts"]) == ("empty", 3_000, 0, 0)
    assert ids_in(backlog.primary, "orders").total() == 3_000
    out = on_connect(backlog, *words, "report", "--ledger", ledger, "--out", "report.html", "--json")
    assert "reconciliation" in last_of(out)
    assert (backlog.folder / "report.html").exists()


SOURCE = """
from pyspark.sql import SparkSession
from twinbus.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
options = {"servicebus.credential": "env:TWINBUS_PRIMARY"}
print(type(spark).__module__, spark.read.format("servicebus").options(**options).load("orders").count())
"""


def test_the_source_reads_in_a_session_of_a_server(backlog: SparkBacklog) -> None:
    fill(backlog.primary.connection_string, "orders", backlog_messages_for("orders", 100))
    script = backlog.folder / "read.py"
    script.write_text(SOURCE)
    assert on_connect(backlog, str(script)).split() == ["pyspark.sql.connect.session", "100"]


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
