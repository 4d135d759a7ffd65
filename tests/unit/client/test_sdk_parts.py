"""The SDK that is installed: private parts that are missing are refused by name, untested versions are warned about."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus._pyamqp._connection import Connection
from azure.servicebus._pyamqp.client import SendClient

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.client import sdk_parts
from twinbus.errors import TwinbusError

PRIMARY, SECONDARY = (
    f"Endpoint=sb://{name}.example;SharedAccessKeyName=k;SharedAccessKey=a2V5" for name in ("contoso", "backup")
)
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    sdk_parts.check_sdk.cache_clear()
    yield
    sdk_parts.check_sdk.cache_clear()


def make_both() -> None:
    PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)
    twinbus.aio.PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)


def test_what_is_installed_has_every_part_and_was_tested() -> None:
    make_both()
    assert sdk_parts.version_warning() is None


@pytest.mark.parametrize("found", ["7.16.0", "8.0.0", "7.14.3", "7.16.0b1", "9"])
def test_a_version_that_nobody_tested_is_warned_about_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(sdk_parts, "installed", lambda: found)
    bus = PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)
    (warning,) = [each for each in bus._standing.warnings() if "azure-servicebus" in each]
    assert f"azure-servicebus {found} was not tested" in warning
    assert 'pip install "azure-servicebus>=7.15,<7.16"' in warning


@pytest.mark.parametrize("found", ["7.15.0", "7.15.9", "7.15.0.post1"])
def test_a_version_in_the_tested_range_is_not(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(sdk_parts, "installed", lambda: found)
    assert sdk_parts.version_warning() is None


def test_a_part_that_is_gone_is_refused_by_name_when_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_parts, "installed", lambda: "7.16.0")
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
        "try:\n    import twinbus.client.sync\n"
        "except TwinbusError as error: print(error)\n"
    )
    block = "import azure.servicebus, azure.servicebus.aio\n"  # what the SDK itself needs of it is there
    done = subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=True)
    assert 'pip install "azure-servicebus>=7.15,<7.16"' in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_the_package_asks_for_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sdk_parts.RANGE in project["dependencies"]
