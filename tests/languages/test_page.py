"""The programs of the page about other languages, with the official clients of Node, Go and Java."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import DOCS, blocks_of
from local_proxy import LocalProxy

from twinbus.testing import LocalNamespace

pytestmark = [pytest.mark.languages, pytest.mark.timeout(900)]

BLOCKS = list(blocks_of(DOCS / "how-to" / "other-languages.md"))


@pytest.fixture(params=["namespace", "proxy"])
def bus(request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of a namespace, or of a proxy before it."""
    with LocalNamespace("contoso", queues=["orders"]) as namespace, LocalNamespace("backup") as backup:
        if request.param == "namespace":
            yield namespace.connection_string
            return
        with LocalProxy(namespace.connection_string, backup.connection_string, backlog_queue_count=1) as proxy:
            yield proxy.connection_string


@pytest.mark.parametrize("tool", ["node", "go", "mvn"])
def test_the_program_sends_and_receives(tool: str, bus: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    (commands,) = [block.code for block in BLOCKS if block.language == "sh" and f"\n{tool} " in block.code]
    for block in BLOCKS:
        if "file" in block.marks:
            file = tmp_path / block.marks["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
    environment = os.environ | {"BUS": bus}
    script = ["bash", "-ec", commands]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("42"), done.stdout
