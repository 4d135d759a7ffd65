"""The fleet as `twinbus status` shows it, and what `pair` and `syphon` do on the board (X6, X7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import wait_until

from twinbus import PairedServiceBusClient, Retry
from twinbus.board.queue import board_path
from twinbus.board.reader import BoardReader
from twinbus.board.report import ProcessKind
from twinbus.cli.main import run
from twinbus.client.namespace import Namespace
from twinbus.ledger import LedgerReader
from twinbus.proxy.options import ProxyOptions
from twinbus.proxy.server import ProxyServer
from twinbus.testing import LocalNamespace, NamespacePair

COUNT = ["--queues", "2", "--timeout", "20s"]


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    monkeypatch.chdir(tmp_path)
    rules = ["sender:Send", "syphon:Listen"]
    with (
        LocalNamespace("contoso", queues=["orders"], rules=rules) as primary,
        LocalNamespace("backup", rules=rules) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def ask(*options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["status", *COUNT, "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return ask


def client(spaces: NamespacePair, **wishes: Any) -> PairedServiceBusClient:
    options: dict[str, Any] = {
        "failover_interval": timedelta(0),
        "attempt_timeout": timedelta(seconds=20),
        "retry": Retry(attempts=1),
        "backlog_queue_count": 2,
        "board": True,
    }
    here, there = spaces.primary.connection_string, spaces.secondary.connection_string
    return PairedServiceBusClient.from_connection_strings(here, there, **options | wishes)


def posts(bus: PairedServiceBusClient) -> int:
    board = bus.status().board
    assert board is not None
    return board.posts


def test_status_shows_who_has_failed_over_and_its_verdict_says_so(
    spaces: NamespacePair, status: Callable[..., tuple[int, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with client(spaces) as bus, bus.get_queue_sender("orders") as sender:
        wait_until(lambda: posts(bus) >= 1)
        code, said = status()
        assert (code, said["verdict"]) == (0, "healthy")
        assert [each["word"] for each in said["fleet"]["processes"]] == ["reporting"]
        bus.force_failover("orders", reason="drill", stay=True)
        sender.send_messages(ServiceBusMessage("1"))
        wait_until(lambda: status("--check", "fleet")[1]["verdict"] == "failed over")
        _, said = status("--check", "fleet")
        assert said["reasons"][0].startswith("1 of 1 processes have failed over orders for ")
        assert said["fleet"]["entities"][0]["reason"] == "drill"
        assert run(["status", *COUNT, "--check", "fleet"]) != 0
        out = capsys.readouterr().out
        assert "orders: failed over" in out
        assert "1 report, 0 silent" in out


def test_without_a_board_nothing_is_said_of_a_fleet(
    spaces: NamespacePair, status: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    with client(spaces, board=False):
        code, said = status()
        assert (code, said["verdict"], said["fleet"]) == (0, "healthy", None)


def test_with_the_secondary_down_the_fleet_is_unknown_and_not_healthy(
    spaces: NamespacePair, status: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    with client(spaces) as bus:
        wait_until(lambda: posts(bus) >= 1)
        spaces.secondary.faults.add("unreachable")
        code, said = status("--check", "fleet", "--timeout", "2s")
        assert (code, said["verdict"]) == (3, "unknown")
        assert said["fleet"]["has_board"] is None
        spaces.secondary.faults.clear()


def test_pair_makes_the_board_and_roles_know_it(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pair", "--queues", "2", "--board", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["board"] == "created"
    assert run(["pair", "--queues", "2", "--board"]) == 0
    assert f"used: {board_path('contoso')}" in capsys.readouterr().out
    keys = [
        *("--primary", spaces.primary.connection_string_for("sender")),
        *("--secondary", spaces.secondary.connection_string_for("syphon")),
    ]
    check = ["pair", "--queues", "2", "--role", "syphon", "--entity", "orders", *keys]
    assert run(check) == 0
    capsys.readouterr()
    assert run([*check, "--board"]) == 1
    out = capsys.readouterr().out
    assert f"missing    Send on {board_path('contoso')}" in out
    assert "needs      Listen and Send on the board" in out


def test_a_syphon_and_a_proxy_report_too(spaces: NamespacePair, tmp_path: Path) -> None:
    assert run(["pair", "--queues", "2", "--board"]) == 0
    assert run(["syphon", "--queues", "2", "--until-empty", "--board", "--ledger", str(tmp_path / "ledger")]) == 0
    records = list(LedgerReader(tmp_path / "ledger").records())
    assert sum(each.count for each in records if each.kind == "board_posted") >= 1

    async def kinds_seen() -> set[ProcessKind]:
        primary = Namespace.from_connection_string(spaces.primary.connection_string)
        pairing = client(spaces)._state.options
        seen: set[ProcessKind] = set()
        async with (
            ProxyServer(ProxyOptions(primary=primary, pairing=pairing, name="proxy", port=0)),
            BoardReader(pairing.secondary.dial(20.0), "contoso", attempt_s=20.0) as reader,
            asyncio.timeout(60),
        ):
            while len(seen) < 2:
                seen = {each.report.kind for each in (await reader.look()).processes}
        return seen

    assert asyncio.run(kinds_seen()) == {ProcessKind.SYPHON, ProcessKind.PROXY}
