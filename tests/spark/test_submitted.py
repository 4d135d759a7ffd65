"""What people set for Spark stays as they set it: by spark-submit, spark-defaults.conf, the environment, a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from version_0_1 import copied

from twinbus.spark.session import SETTINGS, ensure_session, session_for
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
WAIT_S = 600
"""For a JVM that starts on a machine with much else to do."""
CHOSEN = {
    "spark.app.name": "mine",
    "spark.master": "local[1]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-Dtheirs=1",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.retainedJobs": "7",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "77",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": "theirs",
}
"""Everything that we would set, to something else; and what could change what a report says."""

PROGRAM = """
import json, sys
from pathlib import Path
from twinbus.cost.prices import Prices
from twinbus.spark import register
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.analysis import analyse
from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session, session_for

chosen, ledger, secret = json.loads(sys.argv[1]), *sys.argv[2:]
spark = ensure_session(settings=FOR_LITTLE_DATA)
conf = spark.sparkContext.getConf()
found = {
    "context": {name: conf.get(name) for name in chosen},
    "session": {name: spark.conf.get(name, None) for name in chosen},
    "quicker": {name: session_for(spark, 10).conf.get(name, None) for name in chosen},
    "heap": spark._jvm.Runtime.getRuntime().maxMemory(),
    "unset": spark.conf.get("spark.python.sql.dataFrameDebugging.enabled", None),
}
if ledger:
    compacted = compact_ledger(read_in_process, Path(ledger))
    findings = analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None)
    found["report"] = findings.as_dict()
if secret:
    register(spark)
    reader = spark.read.format("servicebus").option("servicebus.credential", f"file:{secret}")
    rows = reader.load("orders").where("state = 'scheduled'")
    found["due_s"] = [row[0] for row in rows.selectExpr("unix_micros(scheduled_enqueue_time_utc)").collect()]
print("found " + json.dumps(found))
"""


def ran(command: list[str], program: Path, *words: str, **environment: str) -> dict[str, Any]:
    """What the program found."""
    program.write_text(PROGRAM)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [*command, str(program), json.dumps(CHOSEN), *words],
        env=clean | {"PYSPARK_PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert lines, done.stderr[-4_000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("found "))
    return found


def check(found: dict[str, Any]) -> None:
    runtime = {name: value for name, value in CHOSEN.items() if name.startswith("spark.sql.")}
    options = "spark.driver.extraJavaOptions"  # Spark adds to them
    assert found["context"] == CHOSEN | {options: found["context"][options]}
    assert CHOSEN[options] in found["context"][options]
    assert "log4j2" not in found["context"][options]
    assert {name: found["session"][name] for name in runtime} == runtime
    assert {name: found["quicker"][name] for name in runtime} == runtime
    assert found["heap"] < 800 << 20
    assert found["unset"] == "false", "what nobody has set is as we want it"


@pytest.mark.long
@pytest.mark.timeout(WAIT_S + 10)
def test_what_spark_submit_says_stays_and_changes_no_result(spark: SparkSession, tmp_path: Path) -> None:
    own = ("spark.app.name", "spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions")
    flags = ["--master", CHOSEN["spark.master"], "--name", CHOSEN["spark.app.name"], "--driver-memory", "700m"]
    flags += ["--driver-java-options", CHOSEN["spark.driver.extraJavaOptions"]]
    confs = [word for name in CHOSEN if name not in own for word in ("--conf", f"{name}={CHOSEN[name]}")]
    with LocalNamespace("contoso", data=copied("data", tmp_path)) as contoso:
        secret = tmp_path / "secret"
        secret.write_text(contoso.connection_string)
        ledger = copied("ledger", tmp_path)
        found = ran([str(SUBMIT), *flags, *confs], tmp_path / "job.py", str(ledger), str(secret))
    check(found)
    assert found["due_s"] == [4_071_006_245_678_000]
    assert found["report"] == report_of(spark, copied("ledger", tmp_path / "again"))


def report_of(spark: SparkSession, ledger: Path) -> Any:
    from twinbus.cost.prices import Prices
    from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
    from twinbus.spark.jobs.analysis import analyse

    findings = analyse(spark, compact_ledger(read_in_process, ledger), Prices(), horizon_min=15, tell=lambda _: None)
    return json.loads(json.dumps(findings.as_dict()))


@pytest.mark.timeout(WAIT_S + 10)
def test_so_does_what_files_and_environment_say_without_spark_submit(tmp_path: Path) -> None:
    in_environment = ("spark.driver.memory", "spark.app.name", "spark.sql.shuffle.partitions")
    lines = [f"{name} {value}" for name, value in CHOSEN.items() if name not in in_environment]
    (tmp_path / "spark-defaults.conf").write_text("# ours\n" + "\n".join(lines) + "\n")
    words = {
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_DRIVER_MEMORY": CHOSEN["spark.driver.memory"],
        "PYSPARK_SUBMIT_ARGS": "--name mine --conf spark.sql.shuffle.partitions=3 pyspark-shell",
    }
    check(ran([sys.executable], tmp_path / "job.py", "", "", **words))


def test_a_session_that_is_there_is_left_as_it_is_from_any_thread(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    found: list[SparkSession] = []
    wished = dict.fromkeys(("spark.sql.shuffle.partitions", "spark.sql.ui.retainedExecutions"), "12")
    thread = threading.Thread(target=lambda: found.append(ensure_session("local[1]", settings=wished)))
    thread.start()
    thread.join()
    assert found == [spark]
    assert {name: spark.conf.get(name, None) for name in SETTINGS} == before


def test_a_quicker_session_keeps_what_was_set_in_the_one_it_is_for(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "5")
    assert session_for(own, 10).conf.get("spark.sql.shuffle.partitions") == "5"
    assert session_for(own, 10).conf.get("spark.sql.adaptive.enabled") == "false"
