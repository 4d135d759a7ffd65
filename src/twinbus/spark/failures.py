"""Failures of Spark: users get one line with the reason instead of pages of stack traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinbus.errors import TwinbusError
from twinbus.spark.jvm import explain_exit

_LENGTH_MAX = 300
_NO_ANSWER = "its JVM does not answer any more"
_CALL = "An error occurred while calling "
"""The first line of every failure: a name that only py4j knows."""
_SHUT_DOWN = re.compile("SparkContext was shut down|stopped SparkContext")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_DAMAGED = re.compile(r"error while reading file (?:file:)?(?:/+(?=/))?(\S+\.parquet)")
_MISSING_FILE = "FAILED_READ_FILE.FILE_NOT_EXIST"
_OURS = re.compile(r"^twinbus\.[\w.]+: (.+)$", re.MULTILINE)
"""The last line of a traceback of ours, from a task."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise failures of Spark, of its JVM and of its tasks as `TwinbusError` with one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise TwinbusError(f"Spark gave up: {_why(error)}") from error


def _why(error: Exception) -> str:
    try:
        text = str(error)  # py4j asks the JVM for it
    except Exception:  # the JVM may be gone, which has many types
        return explain_exit() or _NO_ANSWER
    if isinstance(error, ConnectionError):
        return explain_exit() or _NO_ANSWER
    return (explain_exit() if _is_without_answer(error, text) else None) or summarize(text)


def _is_without_answer(error: Exception, text: str) -> bool:
    """Whether the reason may be that the JVM is ending or has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return True
    return _SHUT_DOWN.search(text) is not None


def summarize(text: str) -> str:
    """The reason in one line."""
    missing = _MISSING.search(text)
    if missing is not None:
        return f"executors have no {missing[1]}: install twinbus there too, or bring it with --archive"
    damaged = _DAMAGED.search(text)
    if damaged is not None and _MISSING_FILE in text and Path(damaged[1]).exists():
        return f"executors do not see {damaged[1]}: give a folder that all machines share, or a URL"
    if damaged is not None:
        return f"{damaged[1]} cannot be read: {_way_out(damaged[1])}"
    ours = _OURS.search(text)
    if ours is not None:
        return ours[1][:_LENGTH_MAX]
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip() and not line.startswith(_CALL)]
    told = [line for line in lines if "Caused by" in line or "ExecutorLostFailure" in line or "failed 4 times" in line]
    return (told or lines or ["no reason was given"])[0][:_LENGTH_MAX]


def _way_out(damaged: str) -> str:
    """A balance follows from the steps; steps may be all that is left of a ledger."""
    for folder in ("balance", "accounts"):
        above, is_in_it, _ = damaged.rpartition(f"/{folder}/")
        if is_in_it:
            return f"remove {above}/{folder}, and the next report makes it again"
    return "remove the store that it is in, and the ledger is compacted again"
