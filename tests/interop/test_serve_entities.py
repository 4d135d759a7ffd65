"""`twinbus serve --entities`: what the official emulator's file describes is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.cli.commands.serve import addresses_of, match_entities
from twinbus.cli.main import run
from twinbus.errors import OptionsError
from twinbus.testing import LocalNamespace

RULE = {"Name": "large", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "amount > 100"}}}
ALL, LARGE = {"Name": "all"}, {"Name": "large", "Rules": [RULE]}
DESCRIBED = {
    "Name": "sbemulatorns",
    "Queues": [{"Name": "queue.1", "Properties": {"MaxDeliveryCount": 3, "ForwardTo": "topic.1"}}],
    "Topics": [{"Name": "topic.1", "Subscriptions": [ALL, LARGE]}],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, DESCRIBED)


def written(folder: Path, *namespaces: dict[str, Any]) -> Path:
    path = folder / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces, "Logging": {"Type": "File"}}}), "utf-8-sig")
    return path


def send_two_and_count(connection_string: str) -> dict[str, int]:
    """How many each subscription gets of a small and a large message, sent to the queue that forwards them."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages([ServiceBusMessage("m", application_properties={"amount": n}) for n in (5, 500)])
        found = {}
        for name, wanted in (("all", 2), ("large", 1)):
            with client.get_subscription_receiver("topic.1", name, receive_mode="receiveanddelete") as receiver:
                found[name] = 0
                while got := receiver.receive_messages(3, max_wait_time=1 if found[name] >= wanted else 20):
                    found[name] += len(got)
    return found


def test_queues_topics_and_rules_of_the_file_work(config: Path) -> None:
    with LocalNamespace(entities=config) as namespace:
        assert send_two_and_count(namespace.connection_string) == {"all": 2, "large": 1}


@pytest.mark.long
def test_a_served_namespace_has_them_also_the_second_time(config: Path, tmp_path: Path) -> None:
    arguments = ["--namespace", "any:0", "--entities", str(config), "--data", str(tmp_path / "data"), "--json"]
    for _ in range(2):
        serving = subprocess.Popen(
            [sys.executable, "-m", "twinbus", "serve", *arguments], stdout=subprocess.PIPE, text=True
        )
        with serving:
            assert serving.stdout is not None
            ready = json.loads(serving.stdout.readline())
            assert send_two_and_count(ready["connection_string"]) == {"all": 2, "large": 1}
            serving.terminate()
            serving.communicate()
        assert serving.returncode == 0


def test_without_names_the_namespaces_of_the_file_get_one_port_after_the_other() -> None:
    assert addresses_of({"contoso": (), "backup": ()}) == ["contoso:5672", "backup:5673"]


def test_a_namespace_of_the_file_that_is_not_served_is_refused() -> None:
    with pytest.raises(OptionsError, match="--entities describes backup: name it with --namespace, too"):
        match_entities({"contoso": (), "backup": ()}, ["Contoso", "other"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{}]}]}}', "each queue needs Name"),
    ],
)
def test_a_file_that_is_wrong_is_refused_before_anything_starts(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Config.json"
    path.write_text(text)
    assert run(["serve", "--entities", str(path), "--data", str(tmp_path / "data")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
