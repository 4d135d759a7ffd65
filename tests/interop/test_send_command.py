"""`twinbus send` with real namespaces: what arrives, what the receipt says, and what is said when nobody takes it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiveMode

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace


class Typed:
    """A standard input that is no terminal."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


@pytest.fixture
def contoso(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNamespace]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("TWINBUS_SECONDARY", raising=False)
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        monkeypatch.setenv("TWINBUS_PRIMARY", namespace.connection_string)
        yield namespace


@pytest.fixture
def backup(contoso: LocalNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNamespace]:
    """Its pair."""
    with LocalNamespace("backup") as namespace:
        monkeypatch.setenv("TWINBUS_SECONDARY", namespace.connection_string)
        yield namespace


def taken(namespace: LocalNamespace, count: int, queue: str = "orders") -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        while len(found) < count and (got := receiver.receive_messages(count - len(found), max_wait_time=30)):
            found += got
    assert len(found) == count
    return found


def bodies(found: list[ServiceBusReceivedMessage]) -> list[bytes]:
    return [b"".join(message.body) for message in found]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_everything_that_was_said_of_a_message_arrives(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["--id", "m1", "--session", "s", "--subject", "sub", "--content-type", "a/b", "--correlation-id", "c"]
    said += ["--reply-to", "r", "--to", "t", "--ttl", "1h", "--property", "region=eu=west", "--property", "weight:=2.5"]
    assert (
        run(["send", "orders", "gr\u00fc\u00df", *said, "--property", "big:=-2000000000", "--property", "on:=true"])
        == 0
    )
    assert capsys.readouterr().out.startswith("m1  primary  ")
    (message,) = taken(contoso, 1)
    assert bodies([message]) == ["gr\u00fc\u00df".encode()]
    found = (message.message_id, message.session_id, message.subject, message.content_type, message.correlation_id)
    assert found == ("m1", "s", "sub", "a/b", "c")
    assert (message.reply_to, message.to, message.time_to_live) == ("r", "t", timedelta(hours=1))
    assert message.application_properties == {
        b"region": b"eu=west",
        b"weight": 2.5,
        b"big": -2_000_000_000,
        b"on": True,
    }


def test_each_line_of_the_standard_input_is_a_message(
    contoso: LocalNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Typed(b"one\r\n\ntwo {n}\n\xff"))
    assert run(["send", "orders", "--json"]) == 0
    *receipts, result = lines(capsys)
    assert [each["place"] for each in receipts] == ["primary"] * 3
    assert (result["event"], result["ending"], result["stored"]) == ("finished", "done", 3)
    found = taken(contoso, 3)
    assert bodies(found) == [b"one", b"two {n}", b"\xff"]
    assert [each["message_id"] for each in receipts] == [message.message_id for message in found]


def test_a_file_is_one_message_or_one_a_line(contoso: LocalNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("order").write_bytes(b"a\nb\n")
    assert run(["send", "orders", "--file", "order"]) == 0
    assert run(["send", "orders", "--file", "order", "--lines"]) == 0
    monkeypatch.setattr("sys.stdin", Typed(b"x\ny"))
    assert run(["send", "orders", "--file", "-"]) == 0
    assert bodies(taken(contoso, 4)) == [b"a\nb\n", b"a", b"b", b"x\ny"]


def test_many_are_numbered_and_summed_up(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "orders", "order {n}", "--id", "m{n}", "--count", "12", "--rate", "1000"]) == 0
    assert capsys.readouterr().out.startswith("12 messages are stored")
    found = taken(contoso, 12)
    assert bodies(found) == [f"order {number}".encode() for number in range(1, 13)]
    assert [message.message_id for message in found] == [f"m{number}" for number in range(1, 13)]


def test_a_rate_is_kept(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "orders", "x", "--count", "5", "--rate", "20", "--json"]) == 0
    assert lines(capsys)[-1]["elapsed_s"] >= 4 / 20


def test_a_scheduled_message_is_not_there_before_its_time(contoso: LocalNamespace) -> None:
    assert run(["send", "orders", "late", "--schedule", "1h"]) == 0
    assert run(["send", "orders", "now", "--schedule", "2020-01-01T00:00"]) == 0
    assert bodies(taken(contoso, 1)) == [b"now"]


def test_a_topic_is_sent_to_like_a_queue(contoso: LocalNamespace) -> None:
    contoso.create_topic("news", "paris")
    assert run(["send", "news", "42"]) == 0
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_subscription_receiver("news", "paris") as receiver,
    ):
        assert bodies(receiver.receive_messages(max_wait_time=30)) == [b"42"]


def test_with_a_secondary_a_message_is_stored_though_the_primary_refuses(
    contoso: LocalNamespace, backup: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["send", "orders", "41", "--queues", "2"]) == 0
    assert "  primary  " in capsys.readouterr().out
    contoso.faults.add("no-send", entities=["orders"])
    assert run(["send", "orders", "42", "--queues", "2", "--no-create", "--json"]) == 0
    receipt, result = lines(capsys)
    assert receipt["side"] == "backlog"
    assert receipt["place"] in {f"contoso/x-servicebus-transfer/{index}" for index in (0, 1)}
    assert result["places"] == {receipt["place"]: 1}
    assert len(taken(backup, 1, receipt["place"])) == 1


def test_straight_means_that_no_detour_is_taken(
    contoso: LocalNamespace, backup: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    contoso.faults.add("no-send", entities=["orders"])
    assert run(["send", "orders", "42", "--straight"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_long_failover_interval_is_waited_for_by_others(
    contoso: LocalNamespace, backup: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    contoso.faults.add("no-send", entities=["orders"])
    assert run(["send", "orders", "42", "--queues", "1", "--failover-interval", "1h"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "message 1 was not sent: " in err


def test_the_first_that_is_not_taken_ends_it_and_the_others_are_counted(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("big").write_bytes(b"small\n" + b"x" * 300_000 + b"\nnever")
    assert run(["send", "orders", "--file", "big", "--lines"]) == 1
    out, err = capsys.readouterr()
    assert out.count("  primary  ") == 1
    assert "message 2 was not sent: too large" in err
    assert err.endswith("; 1 before it are stored\n")
    assert bodies(taken(contoso, 1)) == [b"small"]
