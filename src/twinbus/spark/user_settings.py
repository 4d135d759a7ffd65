"""Spark settings of users before a JVM runs: in files, environment variables and arguments.

Once a JVM runs, its `SparkConf` has all of them. But its memory and its options must be known before, and so must a
master that the user chose: a running JVM always has one.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

DEFAULTS, ENVIRONMENT_FILE, LOGGING = "spark-defaults.conf", "spark-env.sh", "log4j2.properties"
VARIABLES = {
    "SPARK_DRIVER_MEMORY": ("spark.driver.memory",),
    "MASTER": ("spark.master",),
    "SPARK_LOCAL_IP": ("spark.driver.bindAddress", "spark.driver.host"),
    "SPARK_LOCAL_HOSTNAME": ("spark.driver.bindAddress", "spark.driver.host"),
}
"""The settings that a variable stands for. A setting wins over a variable in Spark, so ours would win."""
FLAGS = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
_PROPERTY = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=(.*)$", re.MULTILINE)


def conf_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where Spark looks for its files."""
    return Path(environment["SPARK_CONF_DIR"]) if environment.get("SPARK_CONF_DIR") else spark_home() / "conf"


def spark_home() -> Path:
    """Where Spark is."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def user_settings(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings by name; of some only the name is certain. Arguments win over files, as in Spark."""
    found = dict(_in_file(_text(folder / DEFAULTS)))
    variables: dict[str, str] = dict(_ASSIGNED.findall(_text(folder / ENVIRONMENT_FILE))) | dict(environment)
    for variable, names in VARIABLES.items():
        value = variables.get(variable)
        if value:
            found.update(dict.fromkeys(names, value))
    return found | dict(_in_arguments(environment.get("PYSPARK_SUBMIT_ARGS", "")))


def _in_file(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _PROPERTY.fullmatch(line):
            yield match[1], match[2]


def _in_arguments(text: str) -> Iterator[tuple[str, str]]:
    words = [*_words(text), ""]
    for word, following in pairwise(words):
        flag, is_joined, value = word.partition("=")
        if not is_joined or flag not in (*FLAGS, "--conf", "--properties-file"):
            flag, value = word, following
        if flag in FLAGS:
            yield FLAGS[flag], value
        elif flag in ("--conf", "-c"):
            name, _, value = value.partition("=")
            yield name, value
        elif flag == "--properties-file":
            yield from _in_file(_text(Path(value)))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []  # Spark reports what is wrong


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
