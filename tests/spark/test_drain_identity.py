"""A drain with Entra ID: executors get the name of a credential, and ask for their own tokens."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from json_rules import broken_rules
from token_source import HEADER, SECRET, identity_endpoint, issuer, keyless

from twinbus.errors import OptionsError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.spark.access import Access
from twinbus.testing import LocalNamespace

HOST = "contoso.servicebus.windows.net"


def test_executors_ask_for_their_own_tokens(tmp_path: Path) -> None:
    backlog = backlog_path("contoso", 0)
    with (
        identity_endpoint() as machine,
        LocalNamespace("contoso", queues=["orders"], jwt_issuers=[issuer()]) as primary,
        LocalNamespace("backup", queues=[backlog], jwt_issuers=[issuer()]) as secondary,
    ):
        with ServiceBusClient.from_connection_string(secondary.connection_string) as client:
            message = ServiceBusMessage("42", application_properties={"x-ms-path": "orders"})
            client.get_queue_sender(backlog).send_messages(message)
        command = [sys.executable, "-m", "twinbus", "pipeline", "drain", "--master", "local[1]", "--json"]
        sides = ["--primary", keyless(primary), "--secondary", keyless(secondary)]
        ended = subprocess.run(
            [*command, *sides, "--credential", "managed-identity:syphon", "--count", "1"],
            cwd=tmp_path,
            env=os.environ | machine.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert ended.returncode == 0, ended.stderr
        said = [json.loads(line) for line in ended.stdout.splitlines()]
        assert said[-1]["moved"] == 1
        assert [problem for each in said for problem in broken_rules(each)] == []
        assert set(machine.asked) == {"syphon"}
        with ServiceBusClient.from_connection_string(primary.connection_string) as client:
            assert [str(each) for each in client.get_queue_receiver("orders").receive_messages(max_wait_time=30)] == [
                "42"
            ]


def test_what_travels_to_executors_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with identity_endpoint() as machine:
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        access = Access.by_identity(HOST, "managed-identity:syphon")
        namespace = access.namespace()
        token = namespace.dial().get_token("any").text
        travels = pickle.dumps(access)
        assert not [each for each in (token, HEADER, SECRET) if each.encode() in travels]
        assert pickle.loads(travels).namespace().address == f"{HOST}:5671"


@pytest.mark.parametrize(
    ("endpoint", "credential", "problem"),
    [
        (None, "cli", "identity needs the endpoint"),
        (HOST, "nobody", "a credential is one of default"),
        (f"Endpoint=sb://{HOST};SharedAccessKeyName=root;SharedAccessKey=hush", "cli", "takes the place of a key"),
    ],
)
def test_a_wrong_identity_is_refused_without_secrets(endpoint: str | None, credential: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem) as refused:
        Access(f"identity:{credential}", endpoint).namespace()
    assert "hush" not in str(refused.value)
