"""How Spark reaches a folder: itself if it can, by copies if it is in this process, or not at all, with a reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.errors import OptionsError
from twinbus.spark.jobs.spark_files import (
    ON_DATABRICKS,
    CopiedFiles,
    DirectFiles,
    path_for_spark,
    spark_files,
)
from twinbus.storage import open_folder


def spark_with(*schemes: str, master: str = "local[*,4]") -> Any:
    """A session whose Hadoop has file systems for these schemes."""

    def find(scheme: str, _settings: object) -> None:
        if scheme not in schemes:
            raise RuntimeError(f"no file system for {scheme}")

    hadoop = SimpleNamespace(
        fs=SimpleNamespace(FileSystem=SimpleNamespace(getFileSystemClass=find)),
        util=SimpleNamespace(VersionInfo=SimpleNamespace(getVersion=lambda: "3.5.0")),
    )
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    jsc = SimpleNamespace(hadoopConfiguration=lambda: None)
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, _jvm=jvm, _jsc=jsc))


def test_a_folder_of_this_machine_is_read_where_it_is(tmp_path: Path) -> None:
    files = spark_files(spark_with(), open_folder(tmp_path / "[old] store"))
    assert isinstance(files, DirectFiles)
    assert files.paths(["a/x.parquet"]) == [rf"file://{tmp_path}/\[old\] store/a/x.parquet"]


def test_a_path_is_one_of_this_machine_whatever_the_default_file_system_of_hadoop_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ON_DATABRICKS, raising=False)
    assert path_for_spark(Path("store")) == f"file://{tmp_path}/store"
    assert path_for_spark(Path("//srv/store")) == "file:///srv/store", "srv is no host"
    assert path_for_spark(Path("/Volumes/main/shop/ledger")) == "/Volumes/main/shop/ledger", "Databricks knows it so"
    assert path_for_spark(Path("/dbfs/ledger")) == "file:///dbfs/ledger"
    monkeypatch.setenv(ON_DATABRICKS, "16.4")
    assert path_for_spark(Path("/dbfs/ledger")) == "dbfs:/ledger"


def test_spark_reads_a_url_itself_if_its_hadoop_can() -> None:
    files = spark_files(spark_with("s3a", master="spark://there:7077"), open_folder("s3://bucket/store"))
    assert files.paths(["x.parquet"]) == ["s3a://bucket/store/x.parquet"], "as Hadoop calls it"


def test_spark_in_this_process_reads_copies_otherwise() -> None:
    folder = open_folder("memory://store-of-copies")
    folder.put("a/x.parquet", b"12")
    files = spark_files(spark_with(), folder)
    assert isinstance(files, CopiedFiles)
    [copy] = files.paths(["a/x.parquet"])
    copied = Path(copy.removeprefix("file://"))
    assert copied.read_bytes() == b"12"
    assert spark_files(spark_with(), folder) is files, "a copy is made once"
    files.forget(["a/x.parquet"])
    assert not copied.exists()


def test_a_client_of_spark_that_fails_is_not_used() -> None:
    assert isinstance(spark_files(spark_with("webhdfs"), open_folder("webhdfs://there:9870/store")), CopiedFiles)


def test_spark_elsewhere_needs_a_connector_and_the_error_names_it() -> None:
    with pytest.raises(OptionsError, match=r"add --packages org\.apache\.hadoop:hadoop-aws:3\.5\.0"):
        spark_files(spark_with(master="yarn"), open_folder("s3a://bucket/store"))


def test_a_client_of_spark_connect_is_told_which_place_it_cannot_reach() -> None:
    client = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(OptionsError, match="Spark Connect cannot reach webhdfs://"):
        spark_files(client, open_folder("webhdfs://there:9870/store"))
