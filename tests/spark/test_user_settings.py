"""What is set for Spark in files, variables and arguments, as it is known before a JVM runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.spark.user_settings import conf_folder, user_settings

MEMORY = "spark.driver.memory"


def test_a_file_of_defaults_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    lines = [
        "# spark.ui.enabled true",
        "! spark.ui.port 1",
        "",
        "spark.driver.memory   5g",
        "spark.app.name=mine",
        "spark.master: spark://host:7077",
        "  spark.driver.extraJavaOptions\t-Da=1 -Db=2  ",
    ]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    assert user_settings(tmp_path, {}) == {
        MEMORY: "5g",
        "spark.app.name": "mine",
        "spark.master": "spark://host:7077",
        "spark.driver.extraJavaOptions": "-Da=1 -Db=2",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pyspark-shell", {}),
        ("--driver-memory 8g pyspark-shell", {MEMORY: "8g"}),
        ("--driver-memory=8g pyspark-shell", {MEMORY: "8g"}),
        ("--conf spark.driver.memory=8g --name mine pyspark-shell", {MEMORY: "8g", "spark.app.name": "mine"}),
        ("-c spark.driver.memory=8g pyspark-shell", {MEMORY: "8g"}),
        ("--driver-java-options '-Da=1 -Db=2' x", {"spark.driver.extraJavaOptions": "-Da=1 -Db=2"}),
        ("--master 'local[3]' --verbose x", {"spark.master": "local[3]"}),
        ("--name 'no end", {}),
        ("--name", {"spark.app.name": ""}),
    ],
)
def test_arguments_are_read_as_spark_reads_them(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    assert user_settings(tmp_path, {"PYSPARK_SUBMIT_ARGS": text}) == found


def test_variables_count_too_also_those_that_sparks_own_file_sets(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").write_text("#!/bin/sh\nexport SPARK_LOCAL_IP=10.0.0.1\n# MASTER=local\n")
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 5g\n")
    assert user_settings(tmp_path, {"SPARK_DRIVER_MEMORY": "6g", "MASTER": ""}) == {
        MEMORY: "6g",
        "spark.driver.bindAddress": "10.0.0.1",
        "spark.driver.host": "10.0.0.1",
    }


def test_a_file_of_properties_that_an_argument_names_is_read(tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text("spark.driver.memory 7g\n")
    assert user_settings(tmp_path, {"PYSPARK_SUBMIT_ARGS": f"--properties-file {other} x"}) == {MEMORY: "7g"}


def test_the_files_are_where_spark_looks_for_them(tmp_path: Path) -> None:
    assert conf_folder({"SPARK_CONF_DIR": str(tmp_path)}) == tmp_path
    assert conf_folder({}).name == "conf"
