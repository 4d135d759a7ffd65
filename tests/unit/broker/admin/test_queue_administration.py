"""What the machine does with settings: create, update, describe, list, and what a status forbids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from admin_harness import MemoryNamespace
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.message import sections
from twinbus.broker.core.commands import (
    CloseReceiver,
    Command,
    CreateQueue,
    DeleteEntity,
    GetEntity,
    Grant,
    ListQueues,
    OpenReceiver,
    OpenSender,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    SendMessages,
    SettleMessages,
    UpdateQueue,
)
from twinbus.broker.core.replies import Delivery, EntitiesFound, MessagesFound, QueueDescription
from twinbus.broker.entities.settings import (
    DELIVERY_COUNT_LIMIT,
    AuthorizationRule,
    QueueSettings,
    QueueStatus,
    settings_problems,
)
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Complete, Done, ReceiveMode, ReceiverLost, Refused, SenderOpened, Settled
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import (
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    NotAllowed,
    OptionsError,
)

DEAD_LETTERS = "orders/$deadletterqueue"


def message(size: int = 4) -> Arrival:
    return read_arrival(sections.encode_message(data=b"x" * size), lambda: "id")


@pytest.fixture
def namespace() -> MemoryNamespace:
    namespace = MemoryNamespace()
    namespace.ask(CreateQueue("orders", QueueSettings()))
    return namespace


def update(namespace: MemoryNamespace, **settings: Any) -> None:
    assert isinstance(namespace.ask(UpdateQueue("Orders", QueueSettings(**settings))), Done)


def describe(namespace: MemoryNamespace, path: str = "orders") -> QueueDescription:
    found = namespace.ask(GetEntity(path))
    assert isinstance(found, QueueDescription)
    return found


def refusal(namespace: MemoryNamespace, command: Command[object]) -> Exception:
    reply = namespace.ask(command)
    assert isinstance(reply, Refused)
    return reply.error


# --- settings ---


def test_settings_written_before_there_were_more_of_them_are_read_with_defaults() -> None:
    text = (
        '{"lock_ms":5000,"max_size_mb":1,"max_delivery_count":2,"default_ttl_ms":null,"dead_letter_on_expiration":true}'
    )
    settings = QueueSettings.from_text(text, "orders")
    assert settings == QueueSettings(lock_ms=5000, max_size_mb=1, max_delivery_count=2, dead_letter_on_expiration=True)
    assert settings.status is QueueStatus.ACTIVE


RULE = AuthorizationRule("app", ("Send", "Listen"), "one", "two", 1, 2)


def test_every_setting_survives_being_written_down() -> None:
    settings = QueueSettings(
        lock_ms=5_000,
        max_size_mb=5_120,
        max_delivery_count=DELIVERY_COUNT_LIMIT,
        default_ttl_ms=1_000,
        dead_letter_on_expiration=True,
        batched_operations=False,
        status=QueueStatus.RECEIVE_DISABLED,
        user_metadata="<notes> \u00e9",
        duplicate_window_ms=20_000,
        express=True,
        max_message_kb=64,
        authorization_rules=(RULE,),
    )
    read = QueueSettings.from_text(settings.to_text(), "orders")
    assert read == settings
    assert isinstance(read.authorization_rules[0], AuthorizationRule)
    json.loads(settings.to_text())


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("lock_ms", 4_999, "5 s to 5 min"),
        ("lock_ms", 300_001, "5 s to 5 min"),
        ("max_size_mb", 0, "from 1 to 81920 MB"),
        ("max_delivery_count", 0, "from 1 to 2147483647"),
        ("max_delivery_count", 2**31, "from 1 to 2147483647"),
        ("default_ttl_ms", 999, "at least 1 s"),
        ("duplicate_window_ms", 25 * 86_400_000, "20 s to 7 days"),
        ("user_metadata", "x" * 1025, "at most 1024 characters, got 1025"),
        ("user_metadata", "\x00", "control characters"),
        ("max_message_kb", 0, "from 1 to"),
        ("forward_to", "other/$deadletterqueue", "the path of a queue or topic"),
        ("forward_dead_letters_to", "events/Subscriptions/audit", "the path of a queue or topic"),
        ("auto_delete_on_idle_ms", 299_999, "at least 5 min"),
        ("authorization_rules", (RULE,) * 13, "at most 12 rules, got 13"),
        ("authorization_rules", (RULE, RULE._replace(key_name="APP")), "different key names"),
        ("authorization_rules", (RULE._replace(key_name=""),), "key names of 1 to 256"),
        ("authorization_rules", (RULE._replace(rights=()),), "got none"),
        ("authorization_rules", (RULE._replace(rights=("Send", "Fly")),), "Send, Fly"),
        ("authorization_rules", (RULE._replace(primary_key="a b"),), "keys of 1 to 256"),
        ("authorization_rules", (RULE._replace(claim_value="\x01"),), "claims of at most 256"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object, what: str) -> None:
    (problem,) = settings_problems({field: value})
    assert problem.field == field
    assert what in problem.what
    with pytest.raises(OptionsError, match="must"):
        QueueSettings(**{field: value})  # type: ignore[arg-type]


# --- update, get, list ---


def test_an_update_is_described_and_changes_the_dead_letter_queue_too(namespace: MemoryNamespace) -> None:
    namespace.now_ms += 5
    update(namespace, lock_ms=7_000, user_metadata="new")
    queue = describe(namespace)
    assert (queue.path, queue.settings.user_metadata) == ("orders", "new")
    assert queue.updated_at_ms == queue.accessed_at_ms == queue.created_at_ms + 5
    assert namespace.gate.machine.registry.find_queue(DEAD_LETTERS).settings.lock_ms == 7_000


def test_an_update_is_there_after_a_restart() -> None:
    store = MemoryStore()
    namespace = MemoryNamespace(store)
    namespace.ask(CreateQueue("orders", QueueSettings()))
    update(namespace, status=QueueStatus.DISABLED)
    again = MemoryNamespace(store)
    assert describe(again).settings.status is QueueStatus.DISABLED
    assert isinstance(refusal(again, SendMessages("orders", (message(),))), EntityDisabled)


def test_what_is_missing_cannot_be_updated_or_described(namespace: MemoryNamespace) -> None:
    assert isinstance(refusal(namespace, UpdateQueue("typo", QueueSettings())), EntityNotFound)
    assert isinstance(refusal(namespace, GetEntity("typo")), EntityNotFound)
    assert isinstance(refusal(namespace, CreateQueue("ORDERS", QueueSettings())), EntityAlreadyExists)


@pytest.mark.parametrize("command", [GetEntity, DeleteEntity, lambda path: UpdateQueue(path, QueueSettings())])
def test_a_dead_letter_queue_is_not_administered_by_itself(namespace: MemoryNamespace, command: Any) -> None:
    assert isinstance(refusal(namespace, command(DEAD_LETTERS)), NotAllowed)


def test_counts_and_times_are_those_of_the_messages(namespace: MemoryNamespace) -> None:
    assert describe(namespace).accessed_at_ms == describe(namespace).created_at_ms
    namespace.now_ms += 10
    later = message()._replace(due_at_ms=namespace.now_ms + 1_000)
    namespace.ask(SendMessages("orders", (message(), message(), later)))
    queue = describe(namespace)
    assert (queue.active, queue.scheduled, queue.deferred, queue.dead_letters) == (2, 1, 0, 0)
    assert queue.stored_bytes == 3 * len(message().payload)
    assert queue.accessed_at_ms == queue.created_at_ms + 10


@given(st.sets(st.text("abcXYZ/-", min_size=1, max_size=5), max_size=12), st.integers(1, 5))
def test_pages_together_are_all_queues_by_name(names: set[str], top: int) -> None:
    namespace = MemoryNamespace()
    for name in names:
        namespace.ask(CreateQueue(name, QueueSettings()))
    listed: list[str] = []
    while True:
        page = namespace.ask(ListQueues(len(listed), top))
        assert isinstance(page, EntitiesFound)
        assert len(page.entities) == top or not page.has_more
        listed += [queue.path for queue in page.entities]
        if not page.has_more:
            break
    made = {queue.row.path for queue in namespace.gate.machine.registry.queues()}
    assert set(listed) == made
    assert [name.lower() for name in listed] == sorted(name.lower() for name in made)


# --- a queue's own message size ---


def test_a_queue_may_take_smaller_messages_than_its_namespace(namespace: MemoryNamespace) -> None:
    update(namespace, max_message_kb=1)
    opened = namespace.ask(OpenSender("orders"))
    assert isinstance(opened, SenderOpened)
    assert opened.message_bytes_max == 1024
    assert isinstance(refusal(namespace, SendMessages("orders", (message(), message(1_024)))), MessageTooLarge)
    assert describe(namespace).active == 0
    assert isinstance(namespace.ask(SendMessages("orders", (message(900),))), Done)


# --- status ---


def open_receiver(namespace: MemoryNamespace, number: int, path: str = "orders") -> None:
    assert isinstance(namespace.ask(OpenReceiver(number, path, ReceiveMode.PEEK_LOCK)), Done)
    namespace.gate.do(Grant(number, 10), namespace.now_ms)


@pytest.mark.parametrize("status", [QueueStatus.DISABLED, QueueStatus.SEND_DISABLED])
def test_nothing_can_be_sent_to_a_queue_that_does_not_let(namespace: MemoryNamespace, status: QueueStatus) -> None:
    update(namespace, status=status)
    for command in (SendMessages("orders", ()), SendMessages("orders", (message(),)), OpenSender("orders")):
        error = refusal(namespace, command)
        assert isinstance(error, EntityDisabled)
        assert str(status) in str(error)


@pytest.mark.parametrize("status", [QueueStatus.DISABLED, QueueStatus.RECEIVE_DISABLED])
def test_nothing_can_be_received_from_a_queue_that_does_not_let(
    namespace: MemoryNamespace, status: QueueStatus
) -> None:
    update(namespace, status=status)
    for path in ("orders", DEAD_LETTERS):
        assert isinstance(refusal(namespace, OpenReceiver(1, path, ReceiveMode.PEEK_LOCK)), EntityDisabled)
        assert isinstance(refusal(namespace, ReceiveDeferred(path, (1,), ReceiveMode.PEEK_LOCK)), EntityDisabled)


def test_receivers_are_detached_and_their_locks_can_still_be_settled(namespace: MemoryNamespace) -> None:
    open_receiver(namespace, 1)
    open_receiver(namespace, 2, DEAD_LETTERS)
    namespace.ask(SendMessages("orders", (message(), message())))
    first, second = [reply for reply in namespace.notices if isinstance(reply, Delivery)]
    namespace.notices.clear()
    update(namespace, status=QueueStatus.RECEIVE_DISABLED)
    lost = [reply for reply in namespace.notices if isinstance(reply, ReceiverLost)]
    assert [reply.receiver for reply in lost] == [1, 2]
    assert all(isinstance(reply.error, EntityDisabled) for reply in lost)
    assert first.token is not None
    assert second.token is not None
    namespace.ask(RenewMessageLocks("orders", (second.token,)))
    settled = namespace.ask(SettleMessages("orders", (first.token,), Complete()))
    assert isinstance(settled, Settled)
    assert settled.failures == {}
    assert describe(namespace).active == 1


def test_everything_else_goes_on_while_receiving_is_disabled(namespace: MemoryNamespace) -> None:
    update(namespace, status=QueueStatus.RECEIVE_DISABLED)
    assert isinstance(namespace.ask(SendMessages("orders", (message(),))), Done)
    peeked = namespace.ask(PeekMessages("orders", 1, 10))
    assert isinstance(peeked, MessagesFound)
    assert len(peeked.found) == 1


def test_a_queue_that_is_active_again_delivers_what_was_sent_meanwhile(namespace: MemoryNamespace) -> None:
    update(namespace, status=QueueStatus.RECEIVE_DISABLED)
    namespace.ask(SendMessages("orders", (message(),)))
    update(namespace)
    open_receiver(namespace, 3)
    assert [type(reply) for reply in namespace.notices] == [Delivery]
    namespace.gate.do(CloseReceiver(3), namespace.now_ms)


def test_an_update_that_keeps_receiving_open_keeps_the_receivers(namespace: MemoryNamespace) -> None:
    open_receiver(namespace, 1)
    update(namespace, status=QueueStatus.SEND_DISABLED)
    assert namespace.notices == []
    update(namespace)
    namespace.ask(SendMessages("orders", (message(),)))
    assert [type(reply) for reply in namespace.notices] == [Delivery]
