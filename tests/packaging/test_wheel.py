"""Somebody with an empty virtualenv and the built wheel: it installs, the tutorial works, Spark is asked for by name.

Slow, and it needs a package index: `make test-wheel` runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from archives import Archives, build
from doc_blocks import DOCS, Block, blocks_of
from tutorial import Reader, Terminal

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(900)]

INSTALL_S = 600
TYPED = """
from twinbus import PairedServiceBusClient
reveal_type(PairedServiceBusClient.from_connection_strings("", ""))
"""


@pytest.fixture(scope="module")
def reader(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Has followed the tutorial to its end, from `python3 -m venv` on, with the wheel as what an index would give."""

    def install(block: Block, terminal: Terminal) -> None:
        python = f"{sys.executable} -m venv"  # the shell's own python3 may be older than 3.11
        code = block.code.replace("pip install twinbus", f"pip install --quiet {archives.wheel}")
        terminal.run(block._replace(code=code.replace("python3 -m venv", python)), INSTALL_S)

    with Reader(tmp_path_factory.mktemp("tutorial"), install) as somebody:
        somebody.follow()
        yield somebody


def ask(reader: Reader, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the virtualenv that the tutorial has made."""
    program = str(reader.folder / ".venv" / "bin" / command[0])
    return subprocess.run([program, *command[1:]], cwd=reader.folder, capture_output=True, text=True, timeout=300)


def test_the_tutorial_ends_with_nothing_missing(reader: Reader) -> None:
    assert "missing []" in reader.counted


def test_nothing_is_installed_for_spark(reader: Reader) -> None:
    assert ask(reader, "pip", "check").returncode == 0
    assert ask(reader, "python", "-c", "import pyspark").returncode == 1
    report = ask(reader, "twinbus", "pipeline", "report", "--ledger", "ledger")
    assert report.returncode == 1
    assert report.stderr.count("\n") == 1
    assert "pip install 'twinbus[spark]'" in report.stderr


def test_pytest_finds_the_fixtures(reader: Reader) -> None:
    page = blocks_of(DOCS / "how-to" / "pytest.md")
    block = next(block for block in page if "def test_" in block.code)
    (reader.folder / "test_shop.py").write_text(block.code)
    assert ask(reader, "pip", "install", "--quiet", "pytest").returncode == 0
    done = ask(reader, "python", "-m", "pytest", "-q", "test_shop.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_types_come_with_it(reader: Reader) -> None:
    (reader.folder / "typed.py").write_text(TYPED)
    python = reader.folder / ".venv" / "bin" / "python"
    check = [sys.executable, "-m", "mypy", "--python-executable", str(python), "typed.py"]
    said = subprocess.run(check, cwd=reader.folder, capture_output=True, text=True, timeout=300).stdout
    assert 'Revealed type is "twinbus.client.sync.client.PairedServiceBusClient"' in said


def test_the_source_archive_builds_the_same_wheel(archives: Archives, tmp_path: Path) -> None:
    with tarfile.open(archives.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build(tmp_path / "dist", source)
    assert ZipFile(again.wheel).namelist() == ZipFile(archives.wheel).namelist()
