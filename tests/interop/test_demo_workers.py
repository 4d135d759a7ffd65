"""The processes of the demo, on a machine that is as slow as it likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.demo import receiver
from twinbus.demo.entities import ENTITIES, SUBSCRIPTION, DemoEntity, create_all
from twinbus.demo.journal import JournalReader, JournalWriter
from twinbus.demo.sender import NumberedSender
from twinbus.testing import LocalNamespace

COUNT = 50


@pytest.fixture
def primary() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso") as running:
        create_all(running.connection_string)
        yield running


def acknowledged(journal: Path) -> int:
    return sum(entry.kind == "acknowledged" for entry in JournalReader(journal).new_entries())


def test_the_sender_has_messages_left_for_the_outage_and_for_the_time_after_it(
    primary: LocalNamespace, tmp_path: Path
) -> None:
    journal = tmp_path / "sent"
    sent_before = []

    def cues() -> Iterator[str]:
        for cue in ("gone", "back"):
            sent_before.append(acknowledged(journal))
            yield cue

    with LocalNamespace("backup") as secondary:
        sender = NumberedSender(COUNT, 0.1, JournalWriter(journal), cues())
        sender.send_paired(primary.connection_string, secondary.connection_string, tmp_path / "ledger")
    assert sent_before == [0.4 * COUNT, 0.8 * COUNT]
    assert acknowledged(journal) == COUNT


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)
def test_a_receiver_waits_for_what_somebody_else_still_has(
    entity: DemoEntity, primary: LocalNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    is_empty = receiver._is_empty
    with ServiceBusClient.from_connection_string(primary.connection_string) as client:
        put(client, entity)
        other = opened(client, entity)
        (message,) = other.receive_messages(max_wait_time=30)

        def asked_and_answered(admin: ServiceBusAdministrationClient, which: DemoEntity) -> bool:
            asked.append(is_empty(admin, which))
            if len(asked) == 1:
                other.abandon_message(message)
                other.close()
            return asked[-1]

        monkeypatch.setattr(receiver, "_is_empty", asked_and_answered)
        receiver.receive_all(primary.connection_string, entity, JournalWriter(tmp_path / "received"))
    assert (asked[0], asked[-1]) == (False, True)
    assert [entry.message_id for entry in JournalReader(tmp_path / "received").new_entries()] == ["late"]


def put(client: ServiceBusClient, entity: DemoEntity) -> None:
    is_topic = entity.kind == "topic"
    with client.get_topic_sender(entity.name) if is_topic else client.get_queue_sender(entity.name) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="late", session_id=entity.session_of(0)))


def opened(client: ServiceBusClient, entity: DemoEntity) -> ServiceBusReceiver:
    if entity.kind == "topic":
        return client.get_subscription_receiver(entity.name, SUBSCRIPTION)
    return client.get_queue_receiver(entity.name, session_id=entity.session_of(0))
