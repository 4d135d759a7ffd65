"""What an administrator is given: every setting of a backlog queue, in the language of his tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from twinbus.cli.main import run
from twinbus.cli.provisioning import TOOLS, emit
from twinbus.cli.provisioning.templates import ProvisioningRequest
from twinbus.errors import OptionsError
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS, backlog_path

ORDER = ProvisioningRequest("contoso", "backup", 7)
FOR_EVER = "P10675199DT2H48M5.4775807S"

SETTINGS = {
    "bicep": [
        "maxSizeInMegabytes: 5120",
        "maxDeliveryCount: 2147483647",
        f"defaultMessageTimeToLive: '{FOR_EVER}'",
        f"autoDeleteOnIdle: '{FOR_EVER}'",
        "lockDuration: 'PT1M'",
        "deadLetteringOnMessageExpiration: true",
        "enableBatchedOperations: true",
    ],
    "terraform": [
        "max_size_in_megabytes = 5120",
        "max_delivery_count = 2147483647",
        f'default_message_ttl = "{FOR_EVER}"',
        f'auto_delete_on_idle = "{FOR_EVER}"',
        'lock_duration = "PT1M"',
        "dead_lettering_on_message_expiration = true",
        "batched_operations_enabled = true",
    ],
    "cli": [
        "--max-size 5120",
        "--max-delivery-count 2147483647",
        "--default-message-time-to-live P10675199DT2H48M5S",
        "--auto-delete-on-idle P10675199DT2H48M5S",
        "--lock-duration PT1M",
        "--enable-dead-lettering-on-message-expiration true",
        "--enable-batched-operations true",
    ],
}
QUEUE_NAMES = {
    "bicep": "${primaryName}~x-servicebus-transfer~${index}",
    "terraform": "${var.primary_name}~x-servicebus-transfer~${count.index}",
    "cli": "$PRIMARY~x-servicebus-transfer~$index",
}
RESOURCES = {
    "bicep": "Microsoft.ServiceBus/namespaces/queues@",
    "terraform": 'resource "azurerm_servicebus_queue"',
    "cli": "az servicebus queue create",
}


def squeezed(text: str) -> str:
    return re.sub(r" +", " ", text)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_setting_is_there(tool: str) -> None:
    text = squeezed(emit(tool, ORDER))
    assert [line for line in SETTINGS[tool] if line not in text] == []
    assert len(SETTINGS[tool]) == len(BACKLOG_SETTINGS)
    assert RESOURCES[tool] in text


@pytest.mark.parametrize("tool", TOOLS)
def test_the_queues_are_called_as_pairing_calls_them(tool: str) -> None:
    text = emit(tool, ORDER)
    name = QUEUE_NAMES[tool]
    assert name in text
    meant = re.sub(r"\$\{?[\w.]*(primary|PRIMARY)[\w.]*\}?", "contoso", name)
    meant = re.sub(r"\$\{?[\w.]*index\}?", "3", meant)
    assert meant.replace("~", "/") == backlog_path("contoso", 3)  # a tilde is how Azure writes a slash there
    assert "contoso/x-servicebus-transfer/0 to contoso/x-servicebus-transfer/6" in text


@pytest.mark.parametrize("tool", TOOLS)
def test_the_four_roles_have_the_rights_they_need(tool: str) -> None:
    text = emit(tool, ORDER)
    for role in ("manager", "sender", "syphon", "monitor"):
        assert f"twinbus-{role}" in text
        assert re.search(rf"^(//|#) +{role} ", text, re.MULTILINE)
    assert "Data Sender" in text or "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39" in text
    assert "Data Receiver" in text or "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0" in text


@pytest.mark.parametrize("tool", TOOLS)
def test_a_secondary_without_a_name_is_asked_for(tool: str) -> None:
    text = emit(tool, ProvisioningRequest("contoso", None, 1))
    assert "backup" not in text
    assert "None" not in text
    assert "%{" not in text + emit(tool, ORDER)


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(OptionsError, match="bicep, terraform, cli"):
        emit("pulumi", ORDER)


def test_the_script_is_one_for_a_shell(tmp_path: Path) -> None:
    for secondary in ("backup", None):
        file = tmp_path / "backlog.sh"
        file.write_text(emit("cli", ProvisioningRequest("contoso", secondary, 10)))
        assert subprocess.run(["sh", "-n", str(file)], capture_output=True, check=False).returncode == 0


def test_the_script_does_what_it_says(tmp_path: Path) -> None:
    """Run with an `az` that writes down how it was called."""
    az = tmp_path / "az"
    az.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\necho /an/id\n')
    az.chmod(0o755)
    script = tmp_path / "backlog.sh"
    script.write_text(emit("cli", ProvisioningRequest("contoso", "backup", 2)))
    calls = tmp_path / "calls"
    world = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "CALLS": str(calls),
        "PRIMARY_GROUP": "here",
        "SECONDARY_GROUP": "there",
        "SYPHON_PRINCIPAL_ID": "1234",
    }
    subprocess.run(["sh", str(script)], env=world, check=True)
    said = calls.read_text().splitlines()
    created = [line for line in said if line.startswith("servicebus queue create")]
    assert [re.search(r"--name (\S+)", line)[1] for line in created] == [  # type: ignore[index]
        "contoso~x-servicebus-transfer~0",
        "contoso~x-servicebus-transfer~1",
    ]
    assert all("--resource-group there --namespace-name backup" in line for line in created)
    keys = [line.split("--namespace-name ")[1] for line in said if "authorization-rule" in line]
    assert keys == [
        "contoso --name twinbus-sender --rights Send --output none",
        "backup --name twinbus-sender --rights Send --output none",
        "contoso --name twinbus-syphon --rights Send --output none",
        "backup --name twinbus-syphon --rights Listen --output none",
        "contoso --name twinbus-monitor --rights Listen --output none",
        "backup --name twinbus-monitor --rights Listen --output none",
    ]
    roles = [re.search(r"--role (.*) --scope", line)[1] for line in said if "role assignment" in line]  # type: ignore[index]
    assert roles == ["Azure Service Bus Data Receiver"] * 2 + ["Azure Service Bus Data Sender"]


@pytest.mark.skipif(shutil.which("terraform") is None, reason="needs terraform")
def test_terraform_finds_it_well_written(tmp_path: Path) -> None:
    for number, secondary in enumerate(("backup", None)):
        (tmp_path / f"{number}.tf").write_text(emit("terraform", ProvisioningRequest("contoso", secondary, 10)))
    done = subprocess.run(["terraform", "fmt", "-check", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- from the command line ---


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("PRIMARY", "SECONDARY"):
        monkeypatch.delenv(f"TWINBUS_{side}", raising=False)


@pytest.mark.parametrize("tool", TOOLS)
def test_names_are_enough(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pair", "--emit", tool, "--primary-name", "contoso", "--secondary-name", "backup", "--count", "7"]
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (emit(tool, ORDER), "")


def test_names_are_taken_from_connection_strings_and_keys_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Endpoint=sb://{}.servicebus.windows.net;SharedAccessKeyName=root;SharedAccessKey=a-secret-key"
    monkeypatch.setenv("TWINBUS_PRIMARY", text.format("contoso"))
    assert run(["pair", "--emit", "bicep", "--secondary", text.format("backup"), "--count", "7"]) == 0
    out, _ = capsys.readouterr()
    assert out == emit("bicep", ORDER)
    assert "a-secret-key" not in out


BOARD = {
    "bicep": (
        ["param withBoard bool = true", "~x-twinbus-board", "defaultMessageTimeToLive: 'PT5M'"],
        ["enablePartitioning: false", "deadLetteringOnMessageExpiration: false", "requiresSession: false"],
        "param withBoard bool = false",
    ),
    "terraform": (
        ["default = true", "~x-twinbus-board", 'default_message_ttl = "PT5M"'],
        ["partitioning_enabled = false", "dead_lettering_on_message_expiration = false", "requires_session = false"],
        "var.with_board",
    ),
    "cli": (
        ["WITH_BOARD=${WITH_BOARD:-yes}", "~x-twinbus-board", "--default-message-time-to-live PT5M"],
        [
            "--enable-partitioning false",
            "--enable-dead-lettering-on-message-expiration false",
            "--enable-session false",
        ],
        "WITH_BOARD=${WITH_BOARD:-no}",
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_board_is_part_of_it_for_those_who_want_one(tool: str) -> None:
    with_board = squeezed(emit(tool, ProvisioningRequest("contoso", "backup", 7, has_board=True)))
    wanted, settings, otherwise = BOARD[tool]
    assert [line for line in (*wanted, *settings) if line not in with_board] == []
    assert otherwise in squeezed(emit(tool, ORDER))
    assert "contoso/x-twinbus-board" in with_board
