"""Commands with Entra ID: azure-identity itself asks a token source for tokens, and namespaces check them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from token_source import OWNER, IdentityEndpoint, identity_endpoint, issuer, keyless, write_az

from twinbus.cli.main import run
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.testing import LocalNamespace, NamespacePair

SENDER, RECEIVER = "Azure Service Bus Data Sender", "Azure Service Bus Data Receiver"
IDENTITY = ["--credential", "managed-identity"]
QUICK = ["--timeout", "10s"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityEndpoint]:
    """A machine with a managed identity; `sender` is the client id of one that may send only."""
    with identity_endpoint(sender=[SENDER]) as endpoint:
        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        yield endpoint


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces that believe the issuer; the environment names them, without keys."""
    monkeypatch.chdir(tmp_path)
    issuers = [issuer()]
    with (
        LocalNamespace("contoso", queues=["orders"], jwt_issuers=issuers) as primary,
        LocalNamespace("backup", jwt_issuers=issuers) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", keyless(primary))
        monkeypatch.setenv("TWINBUS_SECONDARY", keyless(secondary))
        yield NamespacePair(primary, secondary)


def put_in_backlog(pair: NamespacePair, body: str) -> None:
    with (
        ServiceBusClient.from_connection_string(pair.secondary.connection_string) as client,
        client.get_queue_sender(backlog_path("contoso", 0)) as sender,
    ):
        sender.send_messages(ServiceBusMessage(body, application_properties={"x-ms-path": "orders"}))


def test_a_managed_identity_is_enough_for_every_command(
    machine: IdentityEndpoint, pair: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pair", *IDENTITY, "--count", "2", *QUICK]) == 0, capsys.readouterr().err
    assert "2 of 2 queues can be used" in capsys.readouterr().out
    put_in_backlog(pair, "from the backlog")
    assert run(["status", *IDENTITY, "--count", "2", "--json", *QUICK]) in (0, 12), capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["waiting_messages"] == 1
    assert run(["syphon", "quarantine", "list", *IDENTITY, "--count", "2", *QUICK]) == 0, capsys.readouterr().err
    assert run(["syphon", *IDENTITY, "--until-empty", "--count", "2", *QUICK]) == 0, capsys.readouterr().err
    assert run(["send", "orders", "straight", "--straight", *IDENTITY, *QUICK]) == 0, capsys.readouterr().err
    assert run(["send", "orders", "paired", "--queues", "2", *IDENTITY, *QUICK]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(["receive", "orders", "--max", "3", "--body", *IDENTITY, *QUICK]) == 0, capsys.readouterr().err
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "from the backlog", "paired", "straight"]
    assert run(["bench", "--messages", "5", "--clients", "1", *IDENTITY, *QUICK]) == 0, capsys.readouterr().err
    drill = ["drill", "--entity", "orders", "--by-status", "--dry-run", "--count", "2"]
    assert run([*drill, *IDENTITY, *QUICK]) == 0, capsys.readouterr().err
    assert set(machine.asked) == {""}


def test_host_names_are_enough_and_a_client_id_chooses_the_identity(
    machine: IdentityEndpoint,
    pair: NamespacePair,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "trusted.pem").write_text("".join(Path(str(each.ca_file)).read_text() for each in pair))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    primary = ["--primary", f"localhost:{pair.primary.port}", "--credential", "managed-identity:sender", *QUICK]
    assert run(["send", "orders", "42", "--straight", *primary]) == 0, capsys.readouterr().err
    assert run(["receive", "orders", *primary]) == 1
    assert "does not give the right 'Listen'" in capsys.readouterr().err
    assert set(machine.asked) == {"sender"}


def test_whoever_did_az_login_is_asked_for_one_token_only(
    pair: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`az` takes a second to start: a command with a dozen links does not start it a dozen times."""
    calls = write_az(tmp_path, OWNER)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TWINBUS_CREDENTIAL", "cli")
    assert run(["pair", "--count", "3", "--syphon", *QUICK]) == 0, capsys.readouterr().err
    resources = [line for line in calls.read_text().splitlines() if "get-access-token" in line]
    assert len(resources) == 1
    assert "https://servicebus.azure.net" in resources[0]


def test_a_credential_that_gives_no_token_is_one_line(
    pair: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["send", "orders", "42", "--straight", "--credential", "cli", *QUICK]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Azure CLI not found on path" in err


def test_without_azure_identity_the_error_says_what_to_install(tmp_path: Path) -> None:
    """A process of its own, in which the package cannot be found."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['azure.identity'] = None\n")
    command = [sys.executable, "-m", "twinbus", "receive", "orders", "--credential", "default"]
    ended = subprocess.run(
        [*command, "--primary", "contoso.servicebus.windows.net"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    text = "twinbus: --primary: the credential default needs azure-identity: pip install 'twinbus[azure]'\n"
    assert ended.stderr == text
