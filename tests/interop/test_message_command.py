"""`twinbus message`: single messages of a real namespace, looked at, resubmitted, dead-lettered and removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.cli import output
from twinbus.cli.commands import message as message_command
from twinbus.cli.main import run
from twinbus.testing import LocalNamespace
from twinbus.transport.failures import ConnectionFailed, no_answer
from twinbus.transport.links.selective_receive import SelectiveReceive


@pytest.fixture
def bus(namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch) -> LocalNamespace:
    """With a queue that holds five orders, the last of them in a session's words of another customer."""
    monkeypatch.setenv("TWINBUS_PRIMARY", namespace.connection_string)
    namespace.create_queue("orders")
    put(namespace, "orders", [order(number) for number in range(1, 6)])
    return namespace


def order(number: int, **facts: Any) -> ServiceBusMessage:
    return ServiceBusMessage(
        f"order {number}",
        message_id=f"m{number}",
        application_properties={"customer": number % 2, "name": "<script>alert(1)</script>"},
        **facts,
    )


def put(namespace: LocalNamespace, entity: str, messages: Sequence[ServiceBusMessage]) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        sender.send_messages(list(messages))


def ids_in(namespace: LocalNamespace, entity: str, sub_queue: ServiceBusSubQueue | None = None) -> list[str | None]:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(entity, sub_queue=sub_queue) as receiver,
    ):
        return [message.message_id for message in receiver.peek_messages(100)]


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def message(*arguments: str) -> int:
    return run(["message", *arguments])


@pytest.mark.parametrize(
    ("which", "found"),
    [
        ([], ["m1", "m2", "m3", "m4", "m5"]),
        (["2", "4"], ["m2", "m4"]),
        (["--id", "m3", "--id", "m4"], ["m3", "m4"]),
        (["--property", "customer=1"], ["m1", "m3", "m5"]),
        (["--property", "customer=1", "--id", "m3"], ["m3"]),
        (["--session", "s1"], []),
        (["--max", "2"], ["m1", "m2"]),
        (["--from", "4"], ["m4", "m5"]),
    ],
)
def test_messages_are_found_by_number_id_session_and_property(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str], which: list[str], found: list[str]
) -> None:
    assert message("peek", "orders", "--json", *which) == 0
    assert [each["message_id"] for each in said(capsys)] == found
    assert ids_in(bus, "orders") == ["m1", "m2", "m3", "m4", "m5"], "peeking takes nothing"


def test_one_message_is_shown_whole(bus: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert message("peek", "orders", "3", "--json") == 0
    (shown,) = said(capsys)
    assert (shown["body"], shown["body_is_whole"], shown["state"]) == ("order 3", True, "active")
    assert shown["properties"] == {"customer": "1", "name": "<script>alert(1)</script>"}
    assert message("peek", "orders", "3", "--full") == 0
    assert "order 3" in capsys.readouterr().out


def test_a_dead_lettered_message_says_why_and_can_be_resubmitted(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message("dead-letter", "orders", "--id", "m2", "--why", "Poison", "--description", "it explodes") == 0
    assert ids_in(bus, "orders") == ["m1", "m3", "m4", "m5"]
    capsys.readouterr()
    assert message("peek", "orders", "--dead-letters", "--reason", "Poison", "--json") == 0
    (dead,) = said(capsys)
    assert (dead["message_id"], dead["dead_letter_description"]) == ("m2", "it explodes")
    assert message("resubmit", "orders", "--reason", "Other") == 0
    assert "0 resubmitted" in capsys.readouterr().out
    assert message("resubmit", "orders", "--reason", "Poison", "--json") == 0
    assert said(capsys) == [{"done": [dead["sequence_number"]], "kept": {}, "is_all": True}]
    assert ids_in(bus, "orders") == ["m1", "m3", "m4", "m5", "m2"]
    assert ids_in(bus, "orders", ServiceBusSubQueue.DEAD_LETTER) == []
    assert message("peek", "orders", "--id", "m2", "--json") == 0
    (again,) = said(capsys)
    assert (again["dead_letter_reason"], again["delivery_count"]) == (None, 0)
    assert set(again["properties"]) == {"customer", "name"}


def test_a_message_that_its_new_queue_refuses_stays_where_it_was(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message("dead-letter", "orders", "--all", "--why", "Poison") == 0
    bus.faults.add("no-send", entities=["orders"])
    capsys.readouterr()
    assert message("resubmit", "orders", "--all", "--json") == 3
    (result,) = said(capsys)
    assert (result["done"], len(result["kept"])) == ([], 5)
    bus.faults.clear()
    assert len(ids_in(bus, "orders", ServiceBusSubQueue.DEAD_LETTER)) == 5


def test_a_purge_removes_what_was_counted_and_asks_first(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert message("purge", "orders", "--all") == 2, "nobody can be asked"
    monkeypatch.setattr(message_command, "can_ask", lambda: True)
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(output, "confirm", refuse)
    assert message("purge", "orders", "--property", "customer=1") == 3
    assert asked == ["Remove 3 messages from orders for good?"]
    assert len(ids_in(bus, "orders")) == 5
    monkeypatch.setattr(output, "confirm", lambda _question: True)
    assert message("purge", "orders", "--property", "customer=1") == 0
    assert ids_in(bus, "orders") == ["m2", "m4"]
    assert message("purge", "orders", "--all", "--yes") == 0
    assert ids_in(bus, "orders") == []


def test_a_purge_spares_what_came_after_the_question_even_if_what_was_counted_is_gone(
    bus: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_command, "can_ask", lambda: True)

    def think(_question: str) -> bool:
        with (
            ServiceBusClient.from_connection_string(bus.connection_string) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            for received in receiver.receive_messages(3, max_wait_time=10):
                receiver.complete_message(received)
        put(bus, "orders", [order(number) for number in range(6, 10)])
        return True

    monkeypatch.setattr(output, "confirm", think)
    assert message("purge", "orders", "--all") == 0
    assert ids_in(bus, "orders") == ["m6", "m7", "m8", "m9"]


@pytest.mark.parametrize("command", [["resubmit"], ["purge", "--yes"], ["dead-letter", "--why", "Poison"]])
def test_nothing_is_changed_because_something_was_left_out(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert message(*command, "orders") == 2
    assert message(*command, "orders", "1", "--all") == 2
    assert "all" in capsys.readouterr().err
    assert len(ids_in(bus, "orders")) == 5


def test_a_scheduled_message_cannot_be_taken_and_the_result_says_so(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    from datetime import UTC, datetime, timedelta

    put(bus, "orders", [order(6, scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))])
    assert message("purge", "orders", "--id", "m6", "--yes", "--json") == 3
    (result,) = said(capsys)
    assert [*result["kept"].values()] == ["it is scheduled: nobody can receive it before its time"]


def test_messages_of_a_queue_with_sessions_are_found_and_changed(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.create_queue("talks", requires_session=True)
    put(bus, "talks", [order(number, session_id=f"s{number % 3}") for number in range(1, 10)])
    assert message("peek", "talks", "--json") == 0
    assert [each["message_id"] for each in said(capsys)] == [f"m{number}" for number in range(1, 10)]
    assert message("peek", "talks", "--session", "s2", "--json") == 0
    assert [each["message_id"] for each in said(capsys)] == ["m2", "m5", "m8"]
    assert message("dead-letter", "talks", "--property", "customer=0", "--why", "Poison", "--json") == 0
    assert len(said(capsys)[0]["done"]) == 4
    assert message("resubmit", "talks", "--session", "s2") == 0
    capsys.readouterr()
    assert message("purge", "talks", "--all", "--yes", "--json") == 0
    assert len(said(capsys)[0]["done"]) == 7


def test_a_node_of_the_service_is_no_place_of_messages(bus: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert message("peek", "orders/$management") == 2
    assert message("peek", "nowhere") == 1


def test_a_message_that_its_queue_would_take_for_a_duplicate_stays_a_dead_letter(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.create_queue("once", requires_duplicate_detection=True)
    put(bus, "once", [order(1)])
    assert message("dead-letter", "once", "--all", "--why", "Poison") == 0
    capsys.readouterr()
    assert message("resubmit", "once", "--all", "--json") == 3
    (result,) = said(capsys)
    assert "duplicate" in result["kept"]["1"]
    assert ids_in(bus, "once", ServiceBusSubQueue.DEAD_LETTER) == ["m1"]
    assert message("resubmit", "once", "--all", "--into", "orders") == 0
    assert ids_in(bus, "orders")[-1] == "m1"


def test_without_the_right_to_read_settings_dead_letters_are_sent_again_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalNamespace(queues=["orders"], rules=["app:Send+Listen"]) as namespace:
        monkeypatch.setenv("TWINBUS_PRIMARY", namespace.connection_string_for("app"))
        put(namespace, "orders", [order(1)])
        assert message("dead-letter", "orders", "--all", "--why", "Poison") == 0
        assert message("resubmit", "orders", "--all") == 0
        assert ids_in(namespace, "orders") == ["m1"]


def test_a_topic_that_would_lose_dead_letters_does_not_get_them(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServiceBusAdministrationClient.from_connection_string(bus.connection_string) as admin:
        admin.create_topic("news")
        assert message("dead-letter", "orders", "2", "3", "--why", "Poison") == 0
        assert message("resubmit", "orders", "--all", "--into", "news") == 1
        assert "news is a topic without subscriptions: it would lose every message" in capsys.readouterr().err
        assert ids_in(bus, "orders", ServiceBusSubQueue.DEAD_LETTER) == ["m2", "m3"]
        admin.create_subscription("news", "all")
    assert message("resubmit", "orders", "--id", "m2", "--into", "news") == 0
    assert "news is a topic: what no subscription of it takes is lost there" in capsys.readouterr().err
    assert message("peek", "news", "--subscription", "all", "--id", "m2", "--json") == 0
    assert message("resubmit", "orders", "--all") == 0
    assert "is a topic" not in capsys.readouterr().err


def test_a_message_that_was_sent_and_could_not_be_removed_is_said_to_have_a_copy(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def complete(_self: SelectiveReceive, _transfer: object) -> None:
        raise ConnectionFailed(no_answer("the queue did not answer in time", in_doubt=True))

    monkeypatch.setattr(SelectiveReceive, "complete", complete)
    assert message("dead-letter", "orders", "2", "--why", "Poison") == 0
    assert message("resubmit", "orders", "--all") == 3
    assert "stays: a copy is in orders, but it could not be removed here: " in capsys.readouterr().err
    assert ids_in(bus, "orders")[-1] == "m2"


def test_while_settings_cannot_be_read_nothing_is_risked(
    bus: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message("dead-letter", "orders", "2", "--why", "Poison") == 0
    bus.faults.add("no-manage", entities=["orders"])
    assert message("resubmit", "orders", "--all") == 1
    assert "it cannot be read whether orders would drop messages as duplicates" in capsys.readouterr().err
    bus.faults.clear()
    assert ids_in(bus, "orders", ServiceBusSubQueue.DEAD_LETTER) == ["m2"]
