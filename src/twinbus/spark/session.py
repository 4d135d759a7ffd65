"""The Spark session: an existing one, or a new one inside this process when it is first needed.

Settings of users, by spark-submit, in spark-defaults.conf, in the environment or in their own session, stay as they
are: our session only fills in what is unset. No result depends on them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import TwinbusError
from twinbus.spark.class_archive import options_to_use
from twinbus.spark.jvm import JAVA_OPTIONS, capture_stderr, find_reason, quiet_logging, start_jvm
from twinbus.spark.user_settings import LOGGING, conf_folder, user_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*,4]"
"""Every core of this machine. A plain `local[*]` gives up at the first task that fails; this one tries four times."""

NO_PYSPARK = "this needs Spark: pip install 'twinbus[spark]'"
NO_JAVA = "this needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to where it is"

NO_CONNECT = "Spark Connect needs more packages: pip install 'twinbus[connect]'"
REMOTE = "sc://"
"""How the address of a Spark Connect server begins; what follows a `;` may be a token."""

ANSWER_S = 60
"""How long this process and the JVM wait for each other's first answer; Spark's 15 s are short on a busy machine."""

PARTITIONS = "spark.sql.shuffle.partitions"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    PARTITIONS: "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.log.level": "ERROR",
    # A report has more queries than the 100 pieces of code that Spark keeps: with this, the third of a session compiles
    # none, and one after 1 % more of a million events takes two thirds of the CPU time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # For the pages of a UI that is off: plans of a thousand queries would fill the memory of a drain of days.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.python.authenticate.socketTimeout": f"{ANSWER_S}s",
    # The Python line that made each column does not help users, and finding it takes longer than making the column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
MEMORY, LOG_LEVEL = "spark.driver.memory", "spark.log.level"
LOCAL_MEMORY = "2g"
JOINED = {"spark.archives": ",", "spark.executorEnv.PYTHONPATH": ":"}
"""Lists: our values are added to existing ones."""
NAME, NAMES_OF_NOBODY = "twinbus", ("pyspark-shell", "__main__.py")
"""The name of the application, and the names that Spark gives by default."""
FILLED = "spark.twinbus.filled"
"""The names of settings that were unset and that we filled in."""
QUICK_START = {
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
    "-XX:InitialRAMPercentage=10 -XX:NewRatio=1"
}
"""For a JVM that ends before full optimization would pay off.

The first option alone cuts the code cache to a fifth. Spark needs more: a JVM with a full code cache stops compiling,
and Spark treats a failed compilation as fatal and ends. So the size is explicit.

The last two give the heap its room at once, and half of it to new objects: collecting garbage while a small heap grows
took half a CPU second to one of each report. Unlike -Xms they fit any --driver-memory.
"""
NO_ADAPTIVE_PLANS = {PARTITIONS: "2", "spark.sql.adaptive.enabled": "false"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
FOR_LITTLE_DATA = QUICK_START | NO_ADAPTIVE_PLANS | INTERPRETED
"""For some megabytes: most of the time would go into compiling code that runs only for a moment."""
FEW_ROWS, LITTLE_ROWS, SOME_ROWS = 5_000, 200_000, 2_000_000
"""Up to the first, compiling code takes longer than it saves; up to the second, a shuffle does; up to the third, on one
machine, adaptive planning does.
"""


def ensure_session(
    master: str | None = None,
    *,
    settings: dict[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> SparkSession:
    """The session of this process; if there is none, a new one, after `tell` got a line about the wait.

    A new one has `settings`, and our own, where users have set nothing else; likewise the master, if `master` is None.
    Raises `TwinbusError` with one line if PySpark or Java is missing, or Spark does not start.
    """
    url = remote_url(master)
    require_spark(needs_java=url is None)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()  # or the one that another thread has made
    except PySparkRuntimeError:
        pass
    if tell is not None:
        tell("starting Spark, this takes some seconds")
    return _start(master, settings or {}) if url is None else _connect(url)


def remote_url(master: str | None) -> str | None:
    """Where a Spark Connect server is, if a session is to be there; None: Spark is to be in or below this process."""
    if master is not None:
        return master if master.startswith(REMOTE) else None
    try:
        return os.environ.get("SPARK_REMOTE") or user_settings(conf_folder()).get("spark.remote")
    except ImportError:  # without PySpark there is no folder with settings, and `require_spark` says so
        return None


def _connect(url: str) -> SparkSession:
    """A session of a server. Settings are those of the server: nothing is filled in."""
    from pyspark.sql import SparkSession

    # PySpark would say it on stderr for each plan; in this process the same warning of Spark is not shown either.
    warnings.filterwarnings("ignore", "WARN WindowExpression: No Partition Defined", UserWarning)
    try:
        return SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise TwinbusError(f"{NO_CONNECT} ({error})") from error
    except Exception as error:  # grpc raises types of its own; users need one line
        place = url.partition(";")[0]
        raise TwinbusError(f"Spark Connect at {place} does not answer: {find_reason(str(error))}") from error


def is_little(rows: int) -> bool:
    """Whether this many rows are faster in one partition than spread out."""
    return rows <= LITTLE_ROWS


def session_for(spark: SparkSession, rows: int) -> SparkSession:
    """This session, or one on the same executors that is faster with this many rows."""
    if is_connect(spark):
        return spark
    if is_little(rows):
        return _quick_session(spark, is_interpreted=rows <= FEW_ROWS)
    context = spark.sparkContext
    if rows <= SOME_ROWS and (context.master or "").startswith("local"):
        return _quick_session(spark, partitions=2 * context.defaultParallelism)
    return spark


def is_connect(spark: SparkSession) -> bool:
    """Whether the driver is elsewhere, and this session only talks to it."""
    return ".connect." in type(spark).__module__


@lru_cache(maxsize=3)
def _quick_session(spark: SparkSession, *, is_interpreted: bool = False, partitions: int = 2) -> SparkSession:
    quick = spark.newSession()
    conf = spark.sparkContext.getConf()
    filled = str(conf.get(FILLED, "")).split(",")
    wished = NO_ADAPTIVE_PLANS | {PARTITIONS: str(partitions)} | (INTERPRETED if is_interpreted else {})
    for name, value in wished.items():
        given = spark.conf.get(name, None)
        if given is not None and given != quick.conf.get(name, None):
            quick.conf.set(name, given)  # set by a user since the session started
        elif name in filled or not conf.contains(name):
            quick.conf.set(name, value)
    return quick


@contextmanager
def restore_active_session() -> Iterator[None]:
    """Make the session active again that was active before, and not the last one that made a frame."""
    from pyspark.sql import SparkSession

    before = SparkSession.active()
    try:
        yield
    finally:
        with suppress(Exception):  # if the JVM is gone, another error is raised already
            before.createDataFrame([], "nothing INT")  # this is what makes a session the active one


def require_spark(otherwise: str = "", *, needs_java: bool = True) -> None:
    """Raise `TwinbusError` if PySpark or Java is missing, with what to install, or `otherwise`."""
    more = f"; {otherwise}" if otherwise else ""
    if importlib.util.find_spec("pyspark") is None:
        raise TwinbusError(f"{NO_PYSPARK}{more}")
    if not needs_java:
        return
    home = os.environ.get("JAVA_HOME")
    if not ((Path(home) / "bin" / "java").exists() if home else shutil.which("java")):
        raise TwinbusError(f"{NO_JAVA}{more}")


def _start(master: str | None, settings: dict[str, str]) -> SparkSession:
    folder = conf_folder()
    theirs = user_settings(folder)
    # Workers would otherwise take the first python3 in the path, which may not have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", theirs.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(ANSWER_S))
    logging.getLogger("py4j").setLevel(logging.ERROR)
    wished = SETTINGS | settings
    if (folder / LOGGING).exists():
        del wished[LOG_LEVEL]
    with tempfile.TemporaryDirectory(prefix="twinbus-spark-") as logs, capture_stderr() as heard:
        try:
            if LOG_LEVEL in wished:
                wished |= quiet_logging(Path(logs), settings)
            if archived := options_to_use():
                wished[JAVA_OPTIONS] = f"{wished.get(JAVA_OPTIONS, '')} {archived}".strip()
            _start_jvm(master, wished, theirs)
            return _session(master, wished, theirs)
        except Exception as error:  # py4j raises many types; users need one line
            words = f"{heard()}\n{error}"
            raise TwinbusError(f"Spark did not start: {find_reason(words)}") from error


def _start_jvm(master: str | None, wished: dict[str, str], theirs: dict[str, str]) -> None:
    """Start a JVM unless one runs. Settings that it needs at its start come before PYSPARK_SUBMIT_ARGS, which win."""
    from pyspark import SparkConf

    at_start = {"spark.master": MASTER}
    if (master or theirs.get("spark.master", MASTER)).startswith("local"):
        at_start[MEMORY] = LOCAL_MEMORY
    at_start |= {name: wished[name] for name in (JAVA_OPTIONS, MEMORY) if name in wished}
    conf = SparkConf(loadDefaults=False)
    for name, value in at_start.items():
        if name not in theirs:
            conf.set(name, value)
    start_jvm(conf)


def _session(master: str | None, wished: dict[str, str], theirs: dict[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    there = SparkConf()  # of spark-submit, files and arguments, as the JVM has read them
    builder = SparkSession.builder
    if master is not None or not there.contains("spark.master"):
        builder = builder.master(master or MASTER)
    if there.get("spark.app.name", NAMES_OF_NOBODY[0]) in NAMES_OF_NOBODY:
        builder = builder.appName(NAME)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    is_local = (master or there.get("spark.master", MASTER) or MASTER).startswith("local") and not under_submit
    ours = wished | ({name: LOCAL_SETTINGS[name] for name in LOCAL_SETTINGS if name not in theirs} if is_local else {})
    filled = {name: value for name, value in ours.items() if name not in (JAVA_OPTIONS, MEMORY)}
    for name, value in filled.items():
        if not there.contains(name):
            builder = builder.config(name, value)
        elif name in JOINED and value not in (have := str(there.get(name))).split(JOINED[name]):
            builder = builder.config(name, JOINED[name].join((have, value)))
    return builder.config(FILLED, ",".join(name for name in filled if not there.contains(name))).getOrCreate()
