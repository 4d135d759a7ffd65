"""Files and lines of settings that the pages show are read as the program, or whoever they are for, reads them."""

from __future__ import annotations

import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_blocks import DOCS, Block, all_blocks, blocks_of

from twinbus.cli.arguments.option_groups import PairArguments
from twinbus.cli.main import make_app
from twinbus.control import control_client
from twinbus.cost.prices import load_prices
from twinbus.testing import LocalNamespace

SERVICE = list(blocks_of(DOCS / "how-to" / "syphon-service.md"))


def of(language: str, first_line: str, blocks: list[Block] | None = None) -> Block:
    """The block of a language that begins so, without a comment sign before it."""
    chosen = [block for block in blocks or all_blocks() if block.language == language]
    (block,) = [block for block in chosen if block.first_line.removeprefix("# ").startswith(first_line)]
    return block


def command(words: list[str]) -> None:
    """Reads the arguments of a command as twinbus would, and runs nothing."""
    group: Any = typer.main.get_command(make_app())
    group.commands[words[0]].make_context(words[0], words[1:])


def test_the_pair_in_the_settings_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "twinbus.toml"
    file.write_text(of("toml", "twinbus.toml").code.replace("...", "c2VjcmV0"))
    primary, secondary = PairArguments(config=file).both()
    assert (primary.name, secondary.name) == ("contoso", "backup")


def test_the_prices_are_a_price_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(of("toml", "as_of").code)
    assert load_prices(file).egress_usd_per_gb == 0.05


def test_the_line_for_the_control_socket_makes_a_fault(tmp_path: Path) -> None:
    line = json.loads(of("json", '{"request": "fault.add"').code)
    with LocalNamespace("contoso", data=tmp_path, queues=["orders"]) as namespace:
        control_client.ask(tmp_path / "contoso" / "control.sock", line["request"], line["arguments"])
        assert [fault["fault"] for fault in namespace.faults.list()] == ["no-send"]


def test_the_unit_runs_a_syphon_that_finds_its_keys() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd minds upper case
    unit.read_string(of("ini", "/etc/systemd", SERVICE).code)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/bin/twinbus")
    command(words)
    folder = unit["Service"]["StateDirectory"]
    assert words[words.index("--ledger") + 1].startswith(f"/var/lib/{folder}/")
    keys = of("ini", unit["Service"]["EnvironmentFile"], SERVICE).code
    assert re.findall(r"^(\w+)=\"Endpoint=", keys, re.MULTILINE) == ["TWINBUS_PRIMARY", "TWINBUS_SECONDARY"]


def test_the_container_runs_a_syphon() -> None:
    file = of("dockerfile", "FROM", SERVICE).code
    first, words = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", file, re.MULTILINE))
    assert first == ["twinbus"]
    command(words)
