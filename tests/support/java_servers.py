"""Storage servers in Java, from Maven Central: an S3 server that keeps its objects on the disk, and HDFS.

S3Proxy answers the S3 protocol over a folder. HDFS is Hadoop's own cluster for tests, in one process, with WebHDFS.
Both choose free ports and say which.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from object_store import BUCKET

JARS = Path(__file__).parent.parent.parent / "build" / "jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
S3PROXY = "org.gaul:s3proxy:2.6.0:jar:jar-with-dependencies"
MINICLUSTER = "org.apache.hadoop:hadoop-client-minicluster:{hadoop}"
BESIDE_MINICLUSTER = (
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.junit.platform:junit-platform-commons:1.13.4",
    "org.opentest4j:opentest4j:1.3.0",
    "commons-logging:commons-logging:1.3.0",
)
OF_SPARK = ("hadoop-client-*.jar", "slf4j-api*.jar", "log4j-*.jar", "commons-cli*.jar")
S3PROXY_SETTINGS = """\
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=test
s3proxy.credential=test-secret
s3proxy.endpoint=http://127.0.0.1:0
jclouds.provider=filesystem-nio2
jclouds.identity=test
jclouds.credential=test
jclouds.filesystem.basedir={folder}
"""
START_S = 120
HTTP_ADDRESS = re.compile(r"<name>dfs\.namenode\.http-address</name><value>([^<]+)</value>")


def jar(artifact: str) -> Path:
    """The file of a Maven artifact (group:name:version, perhaps :jar:classifier); fetched once, by Maven."""
    _group, name, version, *rest = artifact.split(":")
    file = JARS / ("-".join([name, version, *rest[1:]]) + ".jar")
    if not file.exists():
        JARS.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "--batch-mode", "--quiet", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={JARS}"]
        subprocess.run(command, cwd=JARS, check=True, stdin=subprocess.DEVNULL, timeout=600)
    return file


@contextmanager
def s3proxy(folder: Path) -> Iterator[Mapping[str, str]]:
    """The environment variables that lead to the server."""
    (folder / "objects" / BUCKET).mkdir(parents=True)  # a bucket is a folder
    settings = folder / "s3proxy.properties"
    settings.write_text(S3PROXY_SETTINGS.format(folder=folder / "objects"))
    command = ["java", "-jar", str(jar(S3PROXY)), "--properties", str(settings)]
    with _running(command, folder, lambda said: re.search(r"ServerConnector@.*\{127\.0\.0\.1:(\d+)\}", said)) as port:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            # It has no checksums beside the data.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Where WebHDFS of a cluster with one data node is: its host and port."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "hdfs.xml"
    command = ["java", "-cp", ":".join(map(str, _hdfs_jars())), "org.apache.hadoop.test.MiniDFSClusterManager"]
    command += ["-format", "-datanodes", "1", "-writeConfig", str(settings), "-D", "dfs.permissions.enabled=false"]

    def address(_said: str) -> re.Match[str] | None:
        text = settings.read_text() if settings.exists() else ""
        return HTTP_ADDRESS.search(text) if "</configuration>" in text else None

    with _running(command, folder, address) as found:
        yield found


def _hdfs_jars() -> list[Path]:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    of_spark = [file for pattern in OF_SPARK for file in jars.glob(pattern)]
    version = next(match[1] for file in of_spark if (match := re.fullmatch(r"hadoop-client-api-(.+)\.jar", file.name)))
    return [*of_spark, *map(jar, (MINICLUSTER.format(hadoop=version), *BESIDE_MINICLUSTER))]


@contextmanager
def _running(command: list[str], folder: Path, is_ready: Callable[[str], re.Match[str] | None]) -> Iterator[str]:
    log = folder / "server.log"
    with log.open("wb") as said, subprocess.Popen(command, cwd=folder, stdout=said, stderr=said) as process:
        try:
            until = time.monotonic() + START_S
            while (ready := is_ready(log.read_text(errors="replace"))) is None:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield ready[1]
        finally:
            process.kill()
