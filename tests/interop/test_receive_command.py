"""`twinbus receive` with a real namespace: what is shown, what is taken, and what stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace


@pytest.fixture
def contoso(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNamespace]:
    monkeypatch.chdir(tmp_path)
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        monkeypatch.setenv("TWINBUS_PRIMARY", namespace.connection_string)
        yield namespace


def send(namespace: LocalNamespace, *messages: Any, queue: str = "orders") -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for message in messages:
            sender.send_messages(message if not isinstance(message, str) else ServiceBusMessage(message))


def received(capsys: pytest.CaptureFixture[str], *options: str, queue: str = "orders") -> list[dict[str, Any]]:
    code = run(["receive", queue, "--json", "--wait", "10s", *options])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == (0 if found else 3)
    return found


def test_one_message_is_shown_and_gone(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    send(contoso, ServiceBusMessage("one", message_id="m1", application_properties={"region": "eu"}), "two")
    assert run(["receive", "orders"]) == 0
    head, *rest = capsys.readouterr().out.splitlines()
    assert head.startswith("#1  m1  20")
    assert rest == ["  property         region = eu", "  one"]
    assert [each["body"] for each in received(capsys)] == ["two"]
    assert received(capsys, "--wait", "200ms") == []


def test_what_is_peeked_stays(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    send(contoso, *(f"order {number}" for number in range(60)))
    peeked = received(capsys, "--peek", "--all")
    assert [each["body"] for each in peeked] == [f"order {number}" for number in range(60)]
    assert len(received(capsys, "--peek", "--max", "55")) == 55
    assert received(capsys, "--max", "60") == peeked


def test_all_ends_when_nothing_comes_any_more(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    send(contoso, "one", "two")
    assert [each["body"] for each in received(capsys, "--all", "--wait", "3s")] == ["one", "two"]


def test_fewer_than_wanted_are_reported_by_the_exit_code(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    send(contoso, "one", "two")
    assert run(["receive", "orders", "--max", "3", "--wait", "3s", "--body"]) == 3
    assert capsys.readouterr() == ("one\ntwo\n", "")
    assert run(["receive", "orders", "--wait", "200ms"]) == 3
    assert capsys.readouterr() == ("", "twinbus: nothing is in orders\n")


def test_receive_and_delete_takes_them_too(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    send(contoso, "one", "two", "three")
    assert [each["body"] for each in received(capsys, "--delete", "--max", "2")] == ["one", "two"]
    assert [each["body"] for each in received(capsys)] == ["three"]


def test_bodies_of_every_kind_are_shown(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    send(
        contoso,
        ServiceBusMessage(b"\xff\x00"),
        AmqpAnnotatedMessage(value_body={"a": [1, None, True]}),
        AmqpAnnotatedMessage(sequence_body=[[1, "x"], [2.5]]),
    )
    data, value, sequence = received(capsys, "--peek", "--all")
    assert (data["body_type"], data["body_base64"]) == ("data", "/wA=")
    assert (value["body_type"], value["body"]) == ("value", {"a": [1, None, True]})
    assert (sequence["body_type"], sequence["body"]) == ("sequence", [[1, "x"], [2.5]])
    assert run(["receive", "orders", "--peek", "--all"]) == 0
    assert "\x00" not in capsys.readouterr().out


def test_bodies_alone_are_printed_byte_by_byte(
    contoso: LocalNamespace, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    send(contoso, ServiceBusMessage(b"\xff\x00"))
    assert run(["receive", "orders", "--body", "--wait", "10s"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00\n"


def test_dead_letters_are_received_with_their_reason(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    send(contoso, "bad")
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=30)
        receiver.dead_letter_message(message, reason="Spoilt", error_description="smells")
    assert run(["receive", "orders", "--dead-letters", "--peek"]) == 0
    assert "  dead letter      Spoilt: smells\n" in capsys.readouterr().out
    (found,) = received(capsys, "--dead-letters")
    assert (found["dead_letter_reason"], found["body"]) == ("Spoilt", "bad")
    assert run(["receive", "orders", "--dead-letters", "--wait", "100ms"]) == 3
    assert "nothing is in the dead letters of orders" in capsys.readouterr().err


def test_a_subscription_is_received_from(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    contoso.create_topic("news", "paris")
    send(contoso, "42", queue="news")
    assert [each["body"] for each in received(capsys, "--subscription", "paris", queue="news")] == ["42"]


def test_a_session_is_received_by_name_or_as_the_next_one(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    contoso.create_queue("carts", requires_session=True)
    send(contoso, *(ServiceBusMessage(name, session_id=name) for name in ("a", "b")), queue="carts")
    assert [each["body"] for each in received(capsys, "--session", "b", queue="carts")] == ["b"]
    assert [each["session_id"] for each in received(capsys, "--next-session", queue="carts")] == ["a"]
    assert run(["receive", "carts", "--wait", "100ms"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_message_that_could_not_be_printed_is_not_lost(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk under a redirected output."""
    send(contoso, "precious")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "twinbus", "receive", "orders"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "twinbus: the output cannot be written: No space left on device\n")
    assert [each["body"] for each in received(capsys, "--wait", "5s")] == ["precious"]


def test_what_is_deleted_is_shown_whatever_its_ids_are(
    contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ids: list[Any] = [uuid.UUID(int=5), b"\xff\xfe", 12]
    send(contoso, *(AmqpAnnotatedMessage(data_body=b"precious", properties={"message_id": each}) for each in ids))
    found = received(capsys, "--delete", "--max", "3")
    assert [each["message_id"] for each in found] == [str(uuid.UUID(int=5)), "fffe", "12"]
    assert {each["body"] for each in found} == {"precious"}


def test_following_goes_on_until_it_is_interrupted(contoso: LocalNamespace) -> None:
    command = [sys.executable, "-m", "twinbus", "receive", "orders", "--follow", "--body"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        for body in ("one", "two"):
            send(contoso, body)
            assert following.stdout.readline() == f"{body}\n"
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=20)
    assert (following.returncode, out, err) == (0, "", "")
