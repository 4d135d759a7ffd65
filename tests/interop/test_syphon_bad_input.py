"""What a backlog can hold that nobody should have put there, and destinations that do not want it: by command.

Either side dying in the middle is in test_chaos_syphon.py, the same failures one by one in unit/syphon/test_pump.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from backlog_messages import backlog_message, backlog_messages_for, fill
from syphon_program import QUEUES, ids_at, started, wait_for

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace, NamespacePair

SMALL = 20_000


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """The primary takes smaller messages than the secondary."""
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace(
            "contoso", queues=["orders"], rules=["reader:Listen"], limits={"message_bytes_max": SMALL}
        ) as primary,
        LocalNamespace("backup", queues=QUEUES) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def put(spaces: NamespacePair, *messages: bytes) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], messages)


def quarantine(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What is in quarantine, by message id."""
    capsys.readouterr()
    assert run(["syphon", "quarantine", "list", "--count", "2", "--json"]) == 0
    return {found["message_id"]: found for found in map(json.loads, capsys.readouterr().out.splitlines())}


NOT_FROM_US: dict[str, dict[str | bytes, Any]] = {
    "without any alias": {},
    "with other properties": {"path": "orders"},
    "with a number for a path": {"x-ms-path": 3},
    "with an empty path": {"x-ms-path": ""},
    "for a node of the service": {"x-ms-path": "orders/$management"},
    "for another host": {"x-ms-path": "amqps://elsewhere/orders"},
    "with a word for a time to live": {"x-ms-path": "orders", "x-ms-timetolive": "long"},
    "with a number for a session": {"x-ms-path": "orders", "x-ms-sessionid": 7},
    "with a word for a schedule": {"x-ms-path": "orders", "x-ms-scheduledenqueuetimeutc": "tomorrow"},
}


def test_messages_that_did_not_come_from_us_are_put_aside_with_a_reason_and_the_others_come_home(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        ServiceBusClient.from_connection_string(spaces.secondary.connection_string) as client,
        client.get_queue_sender(QUEUES[0]) as sender,
    ):
        for name, properties in NOT_FROM_US.items():
            sender.send_messages(ServiceBusMessage("?", message_id=name, application_properties=properties))
    put(spaces, *backlog_messages_for("orders", 10))
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("10 messages")
    assert f"{len(NOT_FROM_US)} can never be stored" in out
    found = quarantine(capsys)
    assert set(found) == set(NOT_FROM_US)
    assert {each["reason"] for each in found.values()} == {"TwinbusMalformed"}
    assert all("x-ms-" in each["description"] for each in found.values()), "each says which alias is to blame"
    assert sorted(ids_at(spaces.primary, "orders")) == sorted(f"orders-{number}" for number in range(10))


def test_a_message_that_is_too_large_for_its_entity_is_put_aside_and_stays_there_when_it_is_refused_again(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, backlog_message("orders", "large", b"x" * (SMALL + 1_000)), *backlog_messages_for("orders", 3))
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    found = quarantine(capsys)
    assert (set(found), found["large"]["reason"]) == ({"large"}, "TwinbusTooLarge")
    assert str(SMALL) in found["large"]["description"], "it says how much would be taken"
    assert run(["syphon", "quarantine", "redrive", "--all", "--count", "2"]) == 3
    assert set(quarantine(capsys)) == {"large"}, "what is refused again stays"
    assert len(ids_at(spaces.primary, "orders")) == 3


def test_a_destination_that_does_not_exist_is_waited_for(spaces: NamespacePair) -> None:
    put(spaces, *backlog_messages_for("parcels", 20), *backlog_messages_for("orders", 20))
    with started("--until-empty") as process:
        alert = wait_for(process, "alert", name="destination_down")
        assert (alert["subject"], "not found" in alert["text"]) == ("parcels", True)
        spaces.primary.create_queue("parcels")
        wait_for(process, "finished", ending="empty", moved=40, refused=0)
    assert process.returncode == 0
    assert len(ids_at(spaces.primary, "parcels")) == len(ids_at(spaces.primary, "orders")) == 20


def test_a_key_that_may_not_send_moves_nothing_loses_nothing_and_says_so(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, *backlog_messages_for("orders", 20))
    monkeypatch.setenv("TWINBUS_PRIMARY", spaces.primary.connection_string_for("reader"))
    with started() as process:
        alert = wait_for(process, "alert", name="destination_down")
        assert "unauthorised" in alert["text"]
        process.terminate()
        wait_for(process, "finished", moved=0, refused=0, held=0)
    assert len(ids_at(spaces.secondary, QUEUES[0])) == 20
    monkeypatch.setenv("TWINBUS_PRIMARY", spaces.primary.connection_string)
    assert run(["syphon", "--until-empty", "--count", "2"]) == 0
    assert capsys.readouterr().out.startswith("20 messages")


def test_messages_with_the_same_id_are_dropped_where_the_entity_knows_duplicates_and_nowhere_else(
    spaces: NamespacePair,
) -> None:
    spaces.primary.create_queue("once", requires_duplicate_detection=True)
    for path in ("orders", "once"):
        put(spaces, backlog_message(path, "same", b"one"), backlog_message(path, "same", b"two"))
    with started("--until-empty") as process:
        wait_for(process, "finished", ending="empty", moved=4)
    assert ids_at(spaces.primary, "orders") == ["same", "same"]
    assert ids_at(spaces.primary, "once") == ["same"]
