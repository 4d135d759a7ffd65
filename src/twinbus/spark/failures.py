"""What Spark says when it gives up: pages of stack traces, of which people get the line that says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus.errors import TwinbusError
from twinbus.spark.jvm import why_gone

_LENGTH_MAX = 300
_NO_ANSWER = "its JVM does not answer any more"
_CALL = "An error occurred while calling "
"""The first line of every failure: a name that only py4j knows."""
_SHUT_DOWN = re.compile("SparkContext was shut down|stopped SparkContext")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_DAMAGED = re.compile(r"error while reading file (?:file:)?/+(\S+\.parquet)")
_OURS = re.compile(r"^twinbus\.[\w.]+: (.+)$", re.MULTILINE)
"""The last line of a traceback of ours, from a task."""


@contextmanager
def spark_gives_up_in_a_line() -> Iterator[None]:
    """Failures of Spark, of its JVM, and of what runs in its tasks, as `TwinbusError` with one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise TwinbusError(f"Spark gave up: {_why(error)}") from error


def _why(error: Exception) -> str:
    try:
        text = str(error)  # what a JVM has thrown, it is asked for
    except Exception:  # there may be nobody to ask, which has many names
        return why_gone() or _NO_ANSWER
    if isinstance(error, ConnectionError):
        return why_gone() or _NO_ANSWER
    return (why_gone() if _is_without_answer(error, text) else None) or gist(text)


def _is_without_answer(error: Exception, text: str) -> bool:
    """Whether a JVM that is ending or has ended could be the reason."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return True
    return _SHUT_DOWN.search(text) is not None


def gist(text: str) -> str:
    """The reason, as short as it can be."""
    missing = _MISSING.search(text)
    if missing is not None:
        return f"executors have no {missing[1]}: install twinbus there too, or bring it with --archive"
    damaged = _DAMAGED.search(text)
    if damaged is not None:
        return f"/{damaged[1]} cannot be read: {_way_out(f'/{damaged[1]}')}"
    ours = _OURS.search(text)
    if ours is not None:
        return ours[1][:_LENGTH_MAX]
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip() and not line.startswith(_CALL)]
    told = [line for line in lines if "Caused by" in line or "ExecutorLostFailure" in line or "failed 4 times" in line]
    return (told or lines or ["no reason was given"])[0][:_LENGTH_MAX]


def _way_out(damaged: str) -> str:
    """What a report has found follows from the steps; those may be all that is left of a ledger."""
    above, is_of_balance, _ = damaged.rpartition("/balance/")
    if is_of_balance:
        return f"remove {above}/balance, and the next report makes it again"
    return "remove the store that it is in, and the ledger is compacted again"
