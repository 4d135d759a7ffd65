"""A Spark Connect server in a JVM of its own, and programs that have nothing but its address."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_cluster import HOST, SPARK_HOME, until

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.connect.grpc.binding.address": HOST,
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
}
_STARTED = re.compile(rf"Spark Connect server started at: {re.escape(HOST)}:(\d+)")
WAIT_S = 400


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Its URL, for `--master`. It starts where Spark's `start-connect-server.sh` would start it."""
    said = folder / "connect-server.log"
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    environment = os.environ | {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]", *settings]
    with said.open("wb") as log:
        server = subprocess.Popen([*command, "spark-internal"], stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        until(lambda: server.poll() is not None or _port(said) is not None, "the server is ready")
        assert server.poll() is None, said.read_text()[-3000:]
        yield f"sc://{HOST}:{_port(said)}"
    finally:
        server.terminate()
        server.wait()


def _port(said: Path) -> str | None:
    found = _STARTED.search(said.read_text(errors="replace"))
    return None if found is None else found[1]


def run_without_java(folder: Path, *command: str, **environment: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a Python command in a folder, on a machine that has no Java."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"JAVA_HOME": str(folder / "no-java")} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    return done.returncode, done.stdout, done.stderr
