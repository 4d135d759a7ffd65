"""The commands of the pages that need Spark, and Python that does: run in the session that all tests share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from doc_blocks import Block, to_run
from doc_environment import MALFORMED, Pair, commands_for_spark, served_pair

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.main import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS = commands_for_spark(to_run("sh"))
BLOCKS = [block for block in to_run("python") if "ensure_session" in block.code]
PATHS = {"./ledger", "report.html", "twinbus.tar.gz"}
"""Names on the pages that the JVM, which knows nothing of this process's folder, has to find in the test's own."""


@pytest.mark.long
def test_every_command_ends_well(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {shlex.split(line)[2] for line in COMMANDS} >= {"drain", "report", "actual"}
    monkeypatch.chdir(tmp_path)
    with served_pair(tmp_path) as pair:
        secrets = _secrets(pair, tmp_path)
        for line in sorted(COMMANDS, key=lambda line: "drain" not in line):  # first what the others report about
            words = [str(tmp_path / word) if word in PATHS else word for word in shlex.split(line)[1:]]
            words += secrets if "drain" in words else []
            ends = run(words)
            said = capsys.readouterr()
            # The backlog has messages that never come home: a drain has to say so.
            assert ends == (ExitCode.NOT_ALL if "drain" in words else ExitCode.DONE), f"{line}: {said}"
            assert "drain" not in words or f"{MALFORMED} messages are in quarantine" in said.out
    assert (tmp_path / "report.html").exists()


def _secrets(pair: Pair, folder: Path) -> list[str]:
    """Where tasks find the connection strings: their process was started before this test knew any."""
    for side, string in pair._asdict().items():
        (folder / side).write_text(string)
    return [word for side in pair._fields for word in (f"--{side}-secret", f"file:{folder / side}")]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_python_block_that_needs_spark_runs(
    block: Block, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(block.code.replace('"ledger"', repr(str(tmp_path / "ledger"))), {})
    assert capsys.readouterr().out.strip()
