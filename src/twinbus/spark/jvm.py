"""The JVM behind a session: where it says what goes wrong, and why it is gone if it is."""

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
"""What follows from a failure, and is none."""
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError: (.+)")
MORE_MEMORY = "PYSPARK_SUBMIT_ARGS='--driver-memory 8g pyspark-shell' gives it more"

LAST_BYTES = 64 * 1024
END_WAIT_S = 5.0
"""A JVM that is ending has stopped answering before it has ended."""
SIGNALLED = 128
"""What a JVM that ends in order adds to the number of the signal that told it to."""

_heard: list[int] = []
"""The file that the JVM of this process writes to for as long as it lives, if we have started one."""


def quiet(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """With log settings for the JVM: without them it says several lines before anybody can tell it to be quiet."""
    file = folder / "log4j2.properties"
    file.write_text(LOG_SETTINGS, encoding="utf-8")
    given = settings.get(JAVA_OPTIONS, "")
    return {JAVA_OPTIONS: f"-Dlog4j2.configurationFile={file.as_uri()} {given}".strip()}


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """What this process, and the JVM that it starts meanwhile for as long as it lives, say on stderr is kept.

    Yields what tells of it.
    """
    with tempfile.TemporaryFile() as said:
        _keep(os.dup(said.fileno()))
        with _stderr_into(said.fileno()):
            yield last_words


def _keep(file: int) -> None:
    """In place of what an earlier JVM has said."""
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


def last_words() -> str:
    """What the JVM of this process has said on stderr, or the end of it."""
    if not _heard:
        return ""
    size = os.fstat(file := _heard[0]).st_size
    # Not by seeking: where we are in this file is where the JVM is in it.
    return os.pread(file, LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace").strip()


def reason(text: str) -> str:
    """Of stack traces and complaints, what was thrown first; else the last complaint, else what was said first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    thrown = [match[1] for line in lines if (match := THROWN.search(line)) and STOPPED not in line]
    complaints = [match[1] for line in reversed(lines) if (match := COMPLAINT.match(line))]
    return (thrown or complaints or lines or ["nobody knows why"])[0]


def why_gone() -> str | None:
    """Why the JVM of this process does not answer any more; None if it runs, or nobody here has started it."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None  # under spark-submit it is our parent
    with suppress(subprocess.TimeoutExpired):
        return told(process.wait(END_WAIT_S), last_words())
    return None


def told(exit_code: int, words: str) -> str:
    """How a JVM ended, and what it had to say about that."""
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
