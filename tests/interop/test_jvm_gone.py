"""A JVM that ends in the middle: the prompt shows the reason in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from twinbus.spark import jvm

BEGIN = """
import os, signal
from pyspark.sql import functions as F
from twinbus.errors import TwinbusError
from twinbus.spark.failures import spark_errors
from twinbus.spark.session import QUICK_START, ensure_session

spark = ensure_session("local[1,4]", settings=QUICK_START)
process = spark.sparkContext._gateway.proc
try:
    with spark_errors():
"""
END = """
except TwinbusError as error:
    print(error)
"""
TOO_LARGE = 'spark.range(1).select(F.length(F.repeat(F.lit("x"), (F.col("id") + 2_000_000_000).cast("int")))).collect()'
"""What a task cannot have ends the whole JVM, as Spark sees it."""


def shown_for(trouble: str) -> str:
    code = f"{BEGIN}        {trouble}{END}"
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.mark.long
def test_a_jvm_without_memory_is_reported_with_the_way_to_have_more() -> None:
    assert shown_for(TOO_LARGE) == f"Spark gave up: its JVM was out of memory (Java heap space): {jvm.MORE_MEMORY}"


@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_jvm_that_was_terminated_is_reported_with_the_signal(name: str) -> None:
    trouble = f"os.kill(process.pid, signal.{name}); process.wait(); spark.range(1).collect()"
    assert shown_for(trouble) == f"Spark gave up: its JVM was ended by {name}"


@pytest.mark.long
def test_a_jvm_that_runs_is_not_gone() -> None:
    message = shown_for("spark._jvm.Runtime.nobody()")
    assert message == "Spark gave up: java.lang.Runtime.nobody does not exist in the JVM"


@pytest.mark.long
def test_more_memory_is_what_the_line_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    variable, _, rest = jvm.MORE_MEMORY.partition("=")
    monkeypatch.setenv(variable, rest.split("'")[1])
    assert shown_for("print(spark._jvm.Runtime.getRuntime().maxMemory() > 7 << 30)") == "True"


@pytest.mark.parametrize(
    ("exit_code", "words", "expected"),
    [
        (0, "", "its JVM ended with code 0"),
        (53, "spark: ERROR A: first\nspark: ERROR DiskBlockManager: no local dir\n  more", "code 53: no local dir"),
        (-9, "java.lang.IllegalStateException: long ago", "its JVM was ended by SIGKILL"),
        (143, "", "its JVM was ended by SIGTERM"),
        (52, "spark: ERROR Executor: x\njava.lang.OutOfMemoryError: Metaspace", "was out of memory (Metaspace)"),
        (255, "", "its JVM ended with code 255"),
    ],
)
def test_how_it_ended_is_reported_by_its_code_and_its_last_words(exit_code: int, words: str, expected: str) -> None:
    assert expected in jvm.describe_exit(exit_code, words)
