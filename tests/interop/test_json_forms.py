"""Numbers have one form in the `--json` of every command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from json_rules import broken_rules
from typer.main import get_command

from twinbus.cli.main import make_app, run
from twinbus.pairing.backlog.backlog_queues import backlog_path

ELSEWHERE = {
    "demo": "tests/interop/test_demo.py",
    "proxy": "tests/interop/test_proxy_command.py",
    "pipeline report": "tests/spark/test_report.py",
    "pipeline drain": "tests/spark/test_drain_identity.py",
    "pipeline watch": "tests/spark/test_selection.py",
    "pipeline pack": "tests/unit/cli/test_json_form.py",
    "pipeline quick-start": "tests/spark/test_class_archive.py",
    "console": "tests/support/console_scene.py",
    "cost actual": "tests/spark/test_report.py",
    "syphon list": "tests/interop/test_syphon_control_command.py",
    "syphon pause": "tests/interop/test_syphon_control_command.py",
    "syphon resume": "tests/interop/test_syphon_control_command.py",
    "syphon pace": "tests/interop/test_syphon_control_command.py",
}
"""Commands that take long: their documents are checked where those are made anyway."""

WALK = [
    "pair --queues 2 --board",
    "pair --role sender --entity orders --queues 2",
    "send orders hi --straight --ttl 1h",
    "send orders later --straight --schedule 1h",
    "fault add no-send --data bus --namespace contoso --entity orders --for 30m",
    "fault list --data bus --namespace contoso",
    "send orders 42 --queues 2 --ledger ledger",
    "fault clear --all --data bus --namespace contoso",
    "status --queues 2 --again-after 200ms --sessions",
    "syphon --dry-run --queues 2",
    "syphon --until-empty --queues 2 --ledger ledger --board",
    "syphon quarantine list --queues 2",
    "syphon quarantine show 0/1 --queues 2",
    "syphon quarantine redrive --all --queues 2",
    "syphon quarantine discard --all --yes --queues 2",
    "receive orders --peek --all",
    "message peek orders",
    "message dead-letter orders --all --why test",
    "message resubmit orders --all",
    "message purge orders --all --yes",
    "bench --messages 5 --connections 1",
    "backup copy --data bus",
    "ledger stats ledger",
    "ledger tail ledger",
    "ledger verify ledger",
    "ledger expect ledger",
    "ledger ship ledger --to shipped",
    "ledger prune ledger --older-than 1d --unread --yes",
    "cost forecast",
    "drill --entity orders --by-status --dry-run --queues 2",
    "drill --undo",
]
QUICK_DRILL = "drill --entity orders --failover-interval 0s --ping-interval 1s --length 1s --yes --queues 2"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """By command line, the documents it printed."""
    folder = tmp_path_factory.mktemp("walk")
    command = [sys.executable, "-m", "twinbus", "serve", "--json", "--data", "bus", "--queue", "orders"]
    command += ["--namespace", "contoso:0", "--namespace", "backup:0", "--ledger", "ledger"]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server,
    ):
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        assert server.stdout is not None
        try:
            ready = [json.loads(server.stdout.readline()) for _ in range(2)]
            for name, each in zip(("PRIMARY", "SECONDARY"), ready, strict=True):
                patch.setenv(f"TWINBUS_{name}", each["connection_string"])
            found = {line: _printed(line, ready[1]["connection_string"]) for line in (*WALK, QUICK_DRILL)}
        finally:
            server.terminate()
        yield found | {"serve": [*ready, *map(json.loads, server.stdout)]}


def _printed(line: str, secondary: str) -> list[Any]:
    if line.startswith("syphon --dry-run"):
        with ServiceBusClient.from_connection_string(secondary) as client:
            client.get_queue_sender(backlog_path("contoso", 0)).send_messages(ServiceBusMessage("for nobody"))
    stdout = TextIOWrapper(BytesIO(), write_through=True)
    with redirect_stdout(stdout):
        run([*line.split(), "--json"])
    stdout.seek(0)
    return [json.loads(each) for each in stdout]


@pytest.mark.parametrize("line", [*WALK, QUICK_DRILL, "serve"])
def test_every_number_says_its_unit(line: str, printed: dict[str, list[Any]]) -> None:
    assert printed[line] != [], "it printed something"
    assert [problem for document in printed[line] for problem in broken_rules(document)] == []


def test_every_command_with_json_is_walked() -> None:
    walked = {*WALK, QUICK_DRILL, "serve"}
    missing = [
        path
        for path in _with_json(get_command(make_app()))
        if path not in ELSEWHERE and not any(f"{line} ".startswith(f"{path} ") for line in walked)
    ]
    assert missing == []
    root = Path(__file__).parent.parent.parent
    assert [
        file for file in ELSEWHERE.values() if "broken_rules" not in (root / file).read_text(encoding="utf-8")
    ] == []


def _with_json(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if any("--json" in param.opts for param in command.params):
        yield " ".join(path)
    for name, each in getattr(command, "commands", {}).items():
        yield from _with_json(each, (*path, name))
