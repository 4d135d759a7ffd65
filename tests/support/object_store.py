"""An S3 server for tests, and places of every kind to keep files in.

The server is moto's, in this process: quick, with conditional puts. `make test-ledger` has one that keeps its
objects on a disk, and HDFS.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

BUCKET = "twinbus"
PLACES = ("local", "memory", "s3")


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """The environment variables that lead to a server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    server.stop()


def make_bucket() -> None:
    """Make the bucket at the server that the environment leads to."""
    import s3fs

    fs = s3fs.S3FileSystem()
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)


def new_place(kind: str, tmp_path: Path) -> str:
    """Where nothing is yet."""
    name = f"{tmp_path.name}-{secrets.token_hex(4)}"
    match kind:
        case "local":
            return str(tmp_path / name)
        case "memory":
            return f"memory://{name}"
        case "s3":
            make_bucket()
            return f"s3a://{BUCKET}/{name}"
        case _:
            raise AssertionError(kind)


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[Mapping[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture
def s3(s3_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment leads to a server with a bucket, also that of programs that a test starts."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    make_bucket()
