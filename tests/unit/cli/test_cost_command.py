"""`twinbus cost forecast`: without Spark, without a ledger."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from twinbus.cli.main import run


def test_a_forecast_shows_the_bill_the_backlog_and_the_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "forecast", "--entities", "5", "--clients", "20", "--outage", "61m"]) == 0
    said = capsys.readouterr().out
    for part in ("pings", "6,000", "idle long polls", "28,800", "10 queues", "geo-replication", "list prices of"):
        assert part in said


def test_a_forecast_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "forecast", "--outages", "0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["backlog"]["is_enough"] is True
    assert said["bill"]["pairing_usd"]["documents"] < 0.1
    assert said["bill"]["stages"][0]["stage"] == "send to primary"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--entities", "0"], "--entities is at least 1"),
        (["--outage", "long"], "--outage"),
        (["--ping", "1h", "--size", "0"], "--size is at least 1, got 0; --ping is from 1 to 1800"),
    ],
)
def test_wrong_arguments_end_with_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "forecast", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_a_forecast_loads_no_spark() -> None:
    code = "import sys; from twinbus.cli.main import run; run(['cost', 'forecast']); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"
