"""`twinbus bench`: measures, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace


@pytest.fixture
def contoso(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNamespace]:
    monkeypatch.chdir(tmp_path)
    with LocalNamespace("contoso", queues=["orders"], rules=["sender:Send"]) as namespace:
        monkeypatch.setenv("TWINBUS_PRIMARY", namespace.connection_string)
        yield namespace


def queues(namespace: LocalNamespace) -> dict[str, int]:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_file)
    ) as admin:
        return {each.name: each.total_message_count or 0 for each in admin.list_queues_runtime_properties()}


def test_sends_and_receives_are_measured_on_a_queue_of_its_own(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--messages", "60", "--clients", "3", "--size", "100", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(phase["what"], phase["messages"]) for phase in said["phases"]] == [("send", 60), ("receive", 60)]
    for phase in said["phases"]:
        assert phase["per_s"] == pytest.approx(60 / phase["elapsed_s"])
        assert 0 < phase["p50_s"] <= phase["p95_s"] <= phase["p99_s"] <= phase["max_s"]
    assert queues(contoso) == {"orders": 0}


def test_a_queue_that_was_made_when_the_interrupt_came_is_removed(
    contoso: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_queue = ServiceBusAdministrationClient.create_queue
    made = []

    def create_and_be_interrupted(admin: ServiceBusAdministrationClient, name: str, **settings: Any) -> None:
        made.append(create_queue(admin, name, **settings).name)
        raise KeyboardInterrupt

    monkeypatch.setattr(ServiceBusAdministrationClient, "create_queue", create_and_be_interrupted)
    assert run(["bench"]) == 130
    assert len(made) == 1
    assert queues(contoso) == {"orders": 0}


def test_batches_are_counted_by_their_messages(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--messages", "25", "--clients", "1", "--batch", "10"]) == 0
    head, send, receive = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["messages", "a"]
    assert (send.split()[:2], receive.split()[:2]) == (["send", "25"], ["receive", "25"])


def test_an_entity_that_exists_is_only_sent_to(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--messages", "5", "--entity", "orders", "--json"]) == 0
    assert [phase["what"] for phase in json.loads(capsys.readouterr().out)["phases"]] == ["send"]
    assert queues(contoso) == {"orders": 5}


def test_without_manage_an_entity_has_to_be_named(
    contoso: LocalNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINBUS_PRIMARY", contoso.connection_string_for("sender"))
    assert run(["bench", "--messages", "5"]) == 1
    assert "--entity takes one that exists" in capsys.readouterr().err
    assert run(["bench", "--messages", "5", "--entity", "orders"]) == 0


def test_a_refused_message_ends_it_and_the_queue_is_removed_all_the_same(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--messages", "5", "--size", "900000"]) == 1
    assert "a message was not taken: too large" in capsys.readouterr().err
    assert queues(contoso) == {"orders": 0}
