"""Diagnostic dumps: what is in them, what never is, and how many there are."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from twinbus.amqp.connection import Connection, Role
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.entities.settings import AuthorizationRule, QueueSettings
from twinbus.broker.ops.dump import DUMPS_KEPT, HIDDEN, connection_facts, queue_facts, without_secrets, write_dump
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import TwinbusError

NOW = 1_750_000_000_123


def test_a_dump_is_a_private_file_named_after_its_time_and_reason(tmp_path: Path) -> None:
    path = write_dump(tmp_path, "restart", {"version": "0.1.0", "unwritten_bytes": 7}, NOW)
    assert path == tmp_path / "dumps" / "20250615T150640.123Z-restart.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "reason": "restart",
        "time": "2025-06-15T15:06:40.123+00:00",
        "version": "0.1.0",
        "unwritten_bytes": 7,
    }


def test_two_dumps_of_one_moment_are_two_files(tmp_path: Path) -> None:
    assert write_dump(tmp_path, "asked", {}, NOW) != write_dump(tmp_path, "asked", {}, NOW)


def test_a_reason_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    path = write_dump(tmp_path, "../../Oh no/" + "x" * 500, {}, NOW)
    assert path.parent == tmp_path / "dumps"
    assert len(path.name) < 80


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    written = [write_dump(tmp_path, "asked", {}, NOW + number) for number in range(DUMPS_KEPT + 5)]
    assert sorted((tmp_path / "dumps").iterdir()) == written[5:]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dumps").write_text("in the way")
    with pytest.raises(TwinbusError, match="the dump cannot be written"):
        write_dump(tmp_path, "asked", {}, NOW)


@dataclass(frozen=True)
class Rule:
    name: str
    primary_key: str


def test_secrets_are_hidden_by_name_and_wherever_they_turn_up(tmp_path: Path) -> None:
    facts = {
        "key": "k1",
        "keys": ["k1"],
        "SharedAccessKey": "k1",
        "rules": [Rule("root", "k1")],
        "lock_token": b"\x01",
        "tokens": 12,
        "key_name": "root",
        "note": "the key is hunter2, really",
        "nested": {"password": {"deep": "k1"}},
    }
    text = write_dump(tmp_path, "asked", facts, NOW, secrets=["hunter2", ""]).read_text()
    assert "hunter2" not in text
    assert '"k1"' not in text
    shown = json.loads(text)
    assert (shown["tokens"], shown["key_name"], shown["key"]) == (12, "root", HIDDEN)
    assert shown["rules"] == [{"name": "root", "primary_key": HIDDEN}]


def test_the_keys_of_a_queue_are_hidden_and_its_rules_are_reported_by_name(tmp_path: Path) -> None:
    rule = AuthorizationRule("app", ("Send",), "first-key", "second-key")
    machine = NamespaceMachine(MemoryStore().load(), new_token=lambda: b"t" * 16)
    machine.apply(CreateQueue("orders", QueueSettings(authorization_rules=(rule,))), NOW)
    facts = {"queues": [queue_facts(queue) for queue in machine.registry.queues()]}
    text = write_dump(tmp_path, "restart", facts, NOW).read_text()
    assert "first-key" not in text
    assert "second-key" not in text
    (rule,) = json.loads(text)["queues"][0]["settings"]["authorization_rules"]
    assert rule["key_name"] == "app"
    assert rule["rights"] == ["Send"]
    assert (rule["primary_key"], rule["secondary_key"]) == (HIDDEN, HIDDEN)


def test_anything_can_be_dumped() -> None:
    assert without_secrets({1: {2}, "path": Path("x"), "long": "y" * 5_000})["1"] == [2]
    assert len(without_secrets("y" * 5_000)) < 1_100
    json.dumps(without_secrets({"bytes": b"x", "class": Rule, "set": frozenset({1})}))


def test_a_queue_is_reported_with_its_counts_and_its_dead_letters() -> None:
    machine = NamespaceMachine(MemoryStore().load(), new_token=lambda: b"t" * 16)
    machine.apply(CreateQueue("Orders", QueueSettings()), NOW)
    (queue,) = machine.registry.queues()
    facts = queue_facts(queue)
    assert (facts["path"], facts["active"], facts["scheduled"], facts["receivers"]) == ("Orders", 0, 0, 0)
    assert facts["settings"]["max_delivery_count"] == 10
    assert facts["dead_letter"]["path"] == "Orders/$deadletterqueue"


def test_a_connection_is_dumped_with_its_links() -> None:
    client = Connection(role=Role.CLIENT, container_id="me", hostname="localhost")
    server = Connection(role=Role.SERVER, container_id="twinbus")
    client.open()
    session = client.begin()
    session.attach_sender("sending", target="orders")
    session.attach_receiver("receiving", source="invoices")
    for _ in range(5):
        server.receive(client.take_output(), NOW)
        client.receive(server.take_output(), NOW)
    assert connection_facts(server) == {
        "peer": "me",
        "authenticated_as": "anonymous",
        "sessions": 1,
        "links": [
            {"name": "sending", "peer": "sends", "address": "orders", "attached": False},
            {"name": "receiving", "peer": "receives", "address": "invoices", "attached": False},
        ],
    }
