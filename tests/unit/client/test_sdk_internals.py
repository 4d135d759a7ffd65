"""The SDK that is installed: private parts that are missing are refused by name, untested versions are warned about."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import azure.servicebus
import pytest
from azure.servicebus._pyamqp._connection import Connection
from azure.servicebus._pyamqp.client import SendClient

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.client.sdk.internals import required_parts
from twinbus.errors import TwinbusError

PRIMARY, SECONDARY = (
    f"Endpoint=sb://{name}.example;SharedAccessKeyName=k;SharedAccessKey=a2V5" for name in ("contoso", "backup")
)
ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "twinbus"
ALONE = SOURCE / "client" / "sdk" / "internals"
SDK = Path(azure.servicebus.__file__).parent


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    required_parts.check_sdk.cache_clear()
    yield
    required_parts.check_sdk.cache_clear()


def make_both() -> None:
    PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)
    twinbus.aio.PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)


def test_what_is_installed_has_every_part_and_was_tested() -> None:
    make_both()
    assert required_parts.version_warning() is None


@pytest.mark.parametrize("found", ["7.16.0", "8.0.0", "7.14.3", "7.16.0b1", "9"])
def test_a_version_that_nobody_tested_is_warned_about_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(required_parts, "installed", lambda: found)
    bus = PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)
    (warning,) = [each for each in bus._state.warnings() if "azure-servicebus" in each]
    assert f"azure-servicebus {found} was not tested" in warning
    assert 'pip install "azure-servicebus>=7.15,<7.16"' in warning


@pytest.mark.parametrize("found", ["7.15.0", "7.15.9", "7.15.0.post1"])
def test_a_version_in_the_tested_range_is_not(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(required_parts, "installed", lambda: found)
    assert required_parts.version_warning() is None


def test_a_part_that_is_gone_is_refused_by_name_when_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(required_parts, "installed", lambda: "7.16.0")
    monkeypatch.delattr(SendClient, "_transfer_message")
    for make in (PairedServiceBusClient, twinbus.aio.PairedServiceBusClient):
        with pytest.raises(TwinbusError, match=r"7\.16\.0 cannot be used: it has no SendClient\._transfer_message"):
            make.from_connection_strings(PRIMARY, SECONDARY)


def test_a_part_with_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_incoming_open", lambda self, frame: None)
    with pytest.raises(TwinbusError, match=r"_incoming_open\(channel, frame\)"):
        make_both()


def test_a_module_that_is_gone_is_one_line_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['azure.servicebus._pyamqp._encode'] = None\n"
        "from twinbus.errors import TwinbusError\n"
        "try:\n    import twinbus.client.sync.client\n"
        "except TwinbusError as error: print(error)\n"
    )
    block = "import azure.servicebus, azure.servicebus.aio\n"  # what the SDK itself needs of it is there
    done = subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=True)
    assert 'pip install "azure-servicebus>=7.15,<7.16"' in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_the_package_asks_for_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert required_parts.RANGE in project["dependencies"]


def test_the_version_under_test_is_the_one_that_was_asked_for() -> None:
    wanted = os.environ.get("TWINBUS_TESTED_SDK")
    assert wanted is None or SDK.is_relative_to(wanted)


# --- one folder alone ---


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_of_the_sdk() -> set[str]:
    """Every private attribute, method, class and module that the SDK's own files use."""
    found = {file.stem for file in SDK.rglob("_*.py")}
    for file in SDK.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(name)
    return {name for name in found if private(name)} - {"_replace", "_asdict", "_fields"}  # of named tuples


def reaches_in(file: Path, of_the_sdk: set[str]) -> list[str]:
    """Where a file imports from private modules of the SDK, or uses private attributes of objects that may be its.

    Attributes of `self` are its own, unless its class is derived from one of the SDK and the name is the SDK's.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    taken = {name for node in ast.walk(tree) for name in imported_from_the_sdk(node)}
    found = [f"imports {name}" for name in taken if any(private(part) for part in name.split("."))]
    derived = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and is_derived(node, taken)]
    inside = {id(each) for node in derived for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in of_the_sdk:
            whose = ast.unparse(node.value)
            if whose not in ("self", "cls") or id(node) in inside:
                found.append(f"line {node.lineno}: {whose}.{node.attr}")
    for owner in derived:
        methods = [each for each in owner.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        found += [f"line {each.lineno}: overrides {each.name}" for each in methods if each.name in of_the_sdk]
    return found


def imported_from_the_sdk(node: ast.AST) -> list[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("azure.servicebus"):
            return [f"{module}.{each.name}" for each in names]
        case ast.Import(names=names):
            return [each.name for each in names if each.name.startswith("azure.servicebus")]
        case _:
            return []


def is_derived(node: ast.ClassDef, taken: set[str]) -> bool:
    names = {name.rpartition(".")[2] for name in taken} | {"HookedBatch", "HookedReceiver", "AioHookedReceiver"}
    return any(ast.unparse(base) in names for base in node.bases)


def test_one_folder_alone_touches_private_parts_of_the_sdk() -> None:
    of_the_sdk = private_names_of_the_sdk()
    assert {"_handler", "_raw_amqp_message", "_inner_next", "_pyamqp_transport"} <= of_the_sdk
    assert all(reaches_in(file, of_the_sdk) for file in ALONE.glob("[!_]*.py")), "the test sees nothing"
    users = [
        file
        for file in SOURCE.rglob("*.py")
        if file.parent != ALONE
        and any(word in file.read_text(encoding="utf-8") for word in ("azure.servicebus", "client.sdk", "receiver"))
    ]
    assert {str(file): found for file in users if (found := reaches_in(file, of_the_sdk))} == {}
