"""How Spark reads and writes the files of a folder that is somewhere.

Spark on a cluster reaches URLs by file systems of Hadoop, with credentials of their own. Spark on this machine does,
too, if it has the one that a URL needs; else it works on local copies, and this process fetches and stores the files.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from twinbus.errors import OptionsError
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


class SparkFiles(Protocol):
    """The files of one folder, for Spark."""

    @property
    def base(self) -> str:
        """The folder, as Spark reads it; not a pattern."""
        ...

    def paths(self, names: Iterable[str]) -> list[str]:
        """What Spark reads for these files, which exist."""
        ...

    def write(self, frame: DataFrame, name: str) -> list[str]:
        """Write a frame as Parquet files below the folder `name`, and return their names; durable when this returns."""
        ...

    def forget(self, names: Iterable[str]) -> None:
        """These files are gone."""
        ...


def spark_files(spark: SparkSession, folder: Folder) -> SparkFiles:
    """Raises `OptionsError` if Spark runs elsewhere and cannot reach the folder."""
    if folder.is_local:
        return DirectFiles(folder, folder.url)
    scheme, _, rest = folder.url.partition("://")
    known_as = AS_HADOOP_KNOWS_IT.get(scheme, scheme)
    if scheme not in UNUSABLE and _has_file_system(spark, known_as):
        return DirectFiles(folder, f"{known_as}://{rest}")
    if (spark.sparkContext.master or "").startswith("local"):
        return _copied(folder.url)
    package = CONNECTORS.get(scheme)
    text = f"Spark has no file system for {scheme}://"
    if package is not None:
        version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
        text += f": add --packages org.apache.hadoop:{package}:{version} to what starts it"
    raise OptionsError(text)


def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    try:
        context = spark.sparkContext
    except Exception:
        return True  # Spark Connect: only the server knows, and it has no files of this machine
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

    def __init__(self, folder: Folder, base: str) -> None:
        self._folder = folder
        self.base = base

    def paths(self, names: Iterable[str]) -> list[str]:
        return [escape_pattern(f"{self.base}/{name}") for name in names]

    def write(self, frame: DataFrame, name: str) -> list[str]:
        frame.write.mode("append").parquet(f"{self.base}/{name}")
        files = [each.name for each in self._folder.files(name) if each.name.endswith(".parquet")]
        self._folder.sync(files)
        return files

    def forget(self, names: Iterable[str]) -> None:
        pass


class CopiedFiles:
    """Spark opens copies on this machine. Files never change, so a copy stays right; they go with the process."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._copies = tempfile.TemporaryDirectory(prefix="twinbus-store-")
        self.base = self._copies.name

    def paths(self, names: Iterable[str]) -> list[str]:
        wanted = list(names)
        with ThreadPoolExecutor(AT_ONCE, "twinbus-store") as at_once:
            list(at_once.map(self._fetch, wanted))
        return [escape_pattern(f"{self.base}/{name}") for name in wanted]

    def write(self, frame: DataFrame, name: str) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="written-", dir=self.base) as written:
            frame.write.mode("append").parquet(written)
            found = {f"{name}/{file.name}".lstrip("/"): file for file in Path(written).glob("*.parquet")}
            with ThreadPoolExecutor(AT_ONCE, "twinbus-store") as at_once:
                list(at_once.map(self._folder.upload, found, found.values()))
            for each, file in found.items():
                copy = Path(self.base, each)
                copy.parent.mkdir(parents=True, exist_ok=True)
                file.replace(copy)
        return list(found)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            Path(self.base, name).unlink(missing_ok=True)

    def _fetch(self, name: str) -> None:
        copy = Path(self.base, name)
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
