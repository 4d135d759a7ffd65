"""How Spark reads and writes the files of a folder that is somewhere.

Spark on a cluster reaches URLs by file systems of Hadoop, with credentials of their own. Spark on this machine does,
too, if it has the one that a URL needs; else it works on local copies, and this process fetches and stores the files.

A path is a folder of each machine, whatever Hadoop's default file system is: Spark gets it with `file:`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from twinbus.errors import OptionsError, StoreError
from twinbus.spark.jobs.stored_rows import rows_in
from twinbus.spark.session import is_connect
from twinbus.storage import Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = 8
"""Files that are fetched or stored at a time."""
COPY_BYTES = 1 << 20
PATTERNS = re.compile(r"[\[\]{}*?\\]")
CONNECTORS = {"s3a": "hadoop-aws", "s3": "hadoop-aws", "abfss": "hadoop-azure", "abfs": "hadoop-azure"}
"""What Spark needs for a scheme, in org.apache.hadoop."""
UNUSABLE = ("webhdfs",)
"""File systems that Spark has and that fail: its WebHDFS client cannot find a class of its own (seen with 4.3)."""
WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of reads. Whatever a session is set to, a file that is gone or damaged is an error: without its rows a report
would say what is not true.
"""
AS_HADOOP_KNOWS_IT = {"s3": "s3a"}
VOLUMES, DBFS, ON_DATABRICKS = "/Volumes/", "/dbfs/", "DATABRICKS_RUNTIME_VERSION"
"""Databricks mounts its storage at these two, and Spark there has names of its own for them."""


class SparkFiles(Protocol):
    """The files of one folder, for Spark."""

    @property
    def base(self) -> str:
        """The folder, as Spark reads it; not a pattern."""
        ...

    def paths(self, names: Iterable[str]) -> list[str]:
        """What Spark reads for these files, which exist."""
        ...

    def write(self, frame: DataFrame, name: str, before: Collection[str] = ()) -> list[str]:
        """Write a frame as Parquet files below the folder `name`, which has the files `before`, and return their names;
        durable when this returns. Raises `StoreError` if they are not all there.
        """
        ...

    def forget(self, names: Iterable[str]) -> None:
        """These files are gone."""
        ...


def spark_files(spark: SparkSession, folder: Folder) -> SparkFiles:
    """Raises `OptionsError` if Spark runs elsewhere and cannot reach the folder."""
    if folder.is_local:
        return DirectFiles(folder, path_for_spark(folder.path()), may_be_elsewhere=not _is_in_this_process(spark))
    scheme, _, rest = folder.url.partition("://")
    known_as = AS_HADOOP_KNOWS_IT.get(scheme, scheme)
    if scheme not in UNUSABLE and _has_file_system(spark, known_as):
        return DirectFiles(folder, f"{known_as}://{rest}")
    if _is_in_this_process(spark):
        return _copied(folder.url)
    package = CONNECTORS.get(scheme)
    text = f"Spark has no file system for {scheme}://"
    if is_connect(spark):
        text = f"Spark Connect cannot reach {scheme}://: use Spark on this machine, or another place"
    elif package is not None:
        version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
        text += f": add --packages org.apache.hadoop:{package}:{version} to what starts it"
    raise OptionsError(text)


def path_for_spark(path: Path) -> str:
    """A folder of this machine, as Spark opens it; not a pattern."""
    whole = str(path.absolute())
    if whole.startswith(VOLUMES):
        return whole
    if whole.startswith(DBFS) and ON_DATABRICKS in os.environ:
        return f"dbfs:/{whole.removeprefix(DBFS)}"
    return f"file:///{whole.lstrip('/')}"


def elsewhere(place: str) -> StoreError:
    """Files are missing that executors have written."""
    return StoreError(
        f"what Spark wrote to {place} is not all there: its executors write to a place that this process does not see; "
        "give a folder that all these machines share, or a URL that Spark and this process both reach"
    )


def _is_in_this_process(spark: SparkSession) -> bool:
    return not is_connect(spark) and (spark.sparkContext.master or "").startswith("local")


def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    if is_connect(spark):
        return True  # only the server knows, and it has no files of this machine
    context = spark.sparkContext
    try:
        settings = context._jsc.hadoopConfiguration()
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, settings)  # type: ignore[union-attr]
    except Exception:
        return False
    return True


@lru_cache(maxsize=4)
def _copied(url: str) -> CopiedFiles:
    return CopiedFiles(open_folder(url))


class DirectFiles:
    """Spark opens the files where they are."""

    def __init__(self, folder: Folder, base: str, *, may_be_elsewhere: bool = False) -> None:
        """`may_be_elsewhere`: executors on other machines may have another folder of this name."""
        self._folder = folder
        self._may_be_elsewhere = may_be_elsewhere
        self.base = base

    def paths(self, names: Iterable[str]) -> list[str]:
        return [escape_pattern(f"{self.base}/{name}") for name in names]

    def write(self, frame: DataFrame, name: str, before: Collection[str] = ()) -> list[str]:
        target, rows_min = f"{self.base}/{name}", 0
        if self._may_be_elsewhere:
            rows_min = _write_counted(frame, target)
        else:
            frame.write.mode("append").parquet(target)
        there = {each.name for each in self._folder.files(name) if each.name.endswith(".parquet")}
        files = sorted(there.difference(before))
        # A table without rows has a file, too. Those of some executors may be here and those of others not.
        if not files or (rows_min and sum(rows_in(self._folder, files).values()) < rows_min):
            raise elsewhere(self._folder.where(name))
        self._folder.sync(files)
        return files

    def forget(self, names: Iterable[str]) -> None:
        pass


def _write_counted(frame: DataFrame, target: str) -> int:
    """How many rows were written; they are counted on their way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    written = Observation()
    frame.observe(written, F.count(F.lit(1)).alias("rows")).write.mode("append").parquet(target)
    return int(written.get["rows"])


class CopiedFiles:
    """Spark opens copies on this machine. Files never change, so a copy stays right; they go with the process."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._copies = tempfile.TemporaryDirectory(prefix="twinbus-store-")
        self._root = Path(self._copies.name)
        self.base = path_for_spark(self._root)

    def paths(self, names: Iterable[str]) -> list[str]:
        wanted = list(names)
        with ThreadPoolExecutor(AT_ONCE, "twinbus-store") as at_once:
            list(at_once.map(self._fetch, wanted))
        return [escape_pattern(f"{self.base}/{name}") for name in wanted]

    def write(self, frame: DataFrame, name: str, before: Collection[str] = ()) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="written-", dir=self._root) as written:
            frame.write.mode("append").parquet(path_for_spark(Path(written)))
            found = {f"{name}/{file.name}".lstrip("/"): file for file in Path(written).glob("*.parquet")}
            with ThreadPoolExecutor(AT_ONCE, "twinbus-store") as at_once:
                list(at_once.map(self._folder.upload, found, found.values()))
            for each, file in found.items():
                copy = self._root / each
                copy.parent.mkdir(parents=True, exist_ok=True)
                file.replace(copy)
        return list(found)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    def _fetch(self, name: str) -> None:
        copy = self._root / name
        if copy.exists():
            return
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft = copy.with_name(f".{copy.name}.{secrets.token_hex(4)}")  # two queries may need it at once
        with self._folder.open(name) as source, draft.open("xb") as file:
            shutil.copyfileobj(source, file, COPY_BYTES)
        draft.replace(copy)


def escape_pattern(path: str) -> str:
    """The path with pattern characters escaped: a folder may be called `[old] ledger`."""
    return PATTERNS.sub(r"\\\g<0>", path)
