"""The JVM behind a session: its error output, and why it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{short}
"""
THROWN = re.compile(r"(?:^|[ :])[\w.$]+\.[\w$]+(?:Exception|Error): (.+)")
COMPLAINT = re.compile(r"spark: ERROR [\w$]+: (.+)")
STOPPED = "Cannot call methods on a stopped SparkContext"
"""A consequence of a failure, not its reason."""
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError: (.+)")
MORE_MEMORY = "PYSPARK_SUBMIT_ARGS='--driver-memory 8g pyspark-shell' gives it more"

LAST_BYTES = 64 * 1024
STDERR = 2
END_WAIT_S = 5.0
"""A JVM that is ending stops answering before it has ended."""
SIGNALLED = 128
"""A JVM that a signal ends in order exits with this plus the number of the signal."""

CLASSES = ("functions", "org.apache.spark.sql.functions", "PythonUtils")
"""What PySpark calls Spark's functions by, and what makes lists for them."""

_heard: list[int] = []
"""The file that has stderr of the JVM of this process, if we started one."""


def quiet_logging(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """Java options with log settings: without them the JVM prints several lines before its log level can be set."""
    file = folder / "log4j2.properties"
    file.write_text(LOG_SETTINGS, encoding="utf-8")
    given = settings.get(JAVA_OPTIONS, "")
    return {JAVA_OPTIONS: f"-Dlog4j2.configurationFile={file.as_uri()} {given}".strip()}


@contextmanager
def capture_stderr() -> Iterator[Callable[[], str]]:
    """Keep stderr of this process during the block, and of the JVM that it starts in it for as long as that lives.

    Yields a function that returns it.
    """
    with tempfile.TemporaryFile() as said:
        _keep(os.dup(said.fileno()))
        with _stderr_into(said.fileno()):
            yield stderr_tail


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process unless it runs.

    What it prints goes where its errors go: whoever reads our standard output would wait for its end, a second after
    our own.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    with SparkContext._lock:
        if SparkContext._gateway is None:
            gateway = launch_gateway(conf, {"stdout": STDERR})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
            _remember_functions(gateway.jvm)


def end_jvm() -> None:
    """End the JVM of this process, and wait until it has ended."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait()


class _Remembered:
    """A Java class that looks up each of its members once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def _remember_functions(jvm: Any) -> None:
    """PySpark asks the JVM anew for each use of a function: of the 15,000 calls of a report, 6,000 did only that."""
    for name in CLASSES:
        setattr(jvm, name, _Remembered(getattr(jvm, name)))


def _keep(file: int) -> None:
    """Instead of the file of an earlier JVM."""
    for former in _heard:
        os.close(former)
    _heard[:] = [file]


@contextmanager
def _stderr_into(file: int) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def stderr_tail() -> str:
    """stderr of the JVM of this process, or the end of it."""
    if not _heard:
        return ""
    size = os.fstat(file := _heard[0]).st_size
    # Without seeking: the JVM shares the position in this file.
    return os.pread(file, LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace").strip()


def find_reason(text: str) -> str:
    """The first exception in stack traces and log lines; else the last error line, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    thrown = [match[1] for line in lines if (match := THROWN.search(line)) and STOPPED not in line]
    complaints = [match[1] for line in reversed(lines) if (match := COMPLAINT.match(line))]
    return (thrown or complaints or lines or ["nobody knows why"])[0]


def explain_exit() -> str | None:
    """Why the JVM of this process does not answer; None if it runs, or this process did not start it."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None  # under spark-submit it is our parent
    with suppress(subprocess.TimeoutExpired):
        return describe_exit(process.wait(END_WAIT_S), stderr_tail())
    return None


def describe_exit(exit_code: int, words: str) -> str:
    """How a JVM ended, with its last error line."""
    out_of_memory = OUT_OF_MEMORY.search(words)
    if out_of_memory is not None:
        return f"its JVM was out of memory ({out_of_memory[1]}): {MORE_MEMORY}"
    complaint = next((match[1] for line in reversed(words.splitlines()) if (match := COMPLAINT.match(line))), "")
    return ": ".join(filter(None, (_ended(exit_code), complaint)))


def _ended(exit_code: int) -> str:
    number = -exit_code if exit_code < 0 else exit_code - SIGNALLED
    with suppress(ValueError):
        return f"its JVM was ended by {signal.Signals(number).name}"
    return f"its JVM ended with code {exit_code}"
