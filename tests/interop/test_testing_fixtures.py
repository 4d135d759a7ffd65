"""`twinbus.testing`: real namespaces for other people's tests, and nothing left of them afterwards."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient
from paired import wait_until

from twinbus.errors import AddressInUse, EntityAlreadyExists, OptionsError, TwinbusError
from twinbus.testing import LocalNamespace, NamespacePair


def send(namespace: LocalNamespace, queue: str, text: str) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(text))


def peek(namespace: LocalNamespace, queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(10)]


def test_a_namespace_is_there_by_naming_it(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders", lock_ms=5_000)
    send(namespace, "orders", "42")
    assert peek(namespace, "orders") == ["42"]
    assert f":{namespace.port};" in namespace.connection_string
    with pytest.raises(EntityAlreadyExists):
        namespace.create_queue("ORDERS")
    with pytest.raises(OptionsError):
        namespace.create_queue("other", lock_ms=1)


def test_the_administration_client_needs_the_connection_string_alone(namespace_pair: NamespacePair) -> None:
    for each in namespace_pair:
        with ServiceBusAdministrationClient.from_connection_string(each.connection_string) as admin:
            admin.create_queue("orders", lock_duration="PT30S")
            assert admin.get_queue("orders").lock_duration == timedelta(seconds=30)


async def test_so_does_the_one_for_asyncio(namespace: LocalNamespace) -> None:
    async with AsyncAdministrationClient.from_connection_string(namespace.connection_string) as admin:
        await admin.create_queue("orders")
        assert [queue.name async for queue in admin.list_queues()] == ["orders"]


def test_what_is_trusted_is_as_before_when_the_test_is_over(tmp_path: Path) -> None:
    trusted = '(os.environ.get("SSL_CERT_FILE", "") + os.environ.get("REQUESTS_CA_BUNDLE", ""))'
    file = tmp_path / "test_trust.py"
    file.write_text(
        f"import os\ndef test_with(namespace):\n    assert {trusted}.count('twinbus-trusted') == 2\n"
        f"def test_after():\n    assert 'twinbus' not in {trusted}\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "2 passed" in done.stdout, done.stdout


def test_settings_have_the_names_of_the_sdk(namespace: LocalNamespace) -> None:
    namespace.create_queue(
        "orders",
        lock_duration=timedelta(seconds=5),
        default_message_time_to_live="PT1H",
        max_delivery_count=3,
        dead_lettering_on_message_expiration=True,
        status=EntityStatus.RECEIVE_DISABLED,
        auto_delete_on_idle=timedelta.max,
    )
    namespace.create_topic("news", requires_duplicate_detection=True, max_size_in_megabytes=2048)
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as admin:
        queue, topic = admin.get_queue("orders"), admin.get_topic("news")
    assert (queue.lock_duration, queue.max_delivery_count) == (timedelta(seconds=5), 3)
    assert queue.default_message_time_to_live == timedelta(hours=1)
    assert (queue.dead_lettering_on_message_expiration, queue.status) == (True, EntityStatus.RECEIVE_DISABLED)
    assert (topic.requires_duplicate_detection, topic.max_size_in_megabytes) == (True, 2048)


def test_wrong_settings_are_all_named_with_what_would_be_right(namespace: LocalNamespace) -> None:
    with pytest.raises(OptionsError) as refused:
        namespace.create_queue("orders", lock_time=5, lock_duration="soon", max_size_mb=1, max_size_in_megabytes=1)
    text = str(refused.value)
    assert "lock_time is not a setting of a queue; valid are authorization_rules, auto_delete_on_idle" in text
    assert "lock_duration takes a duration such as PT1M30S or what the SDK takes, got 'soon'" in text
    assert "max_size_in_megabytes and max_size_mb are the same setting" in text


def test_a_pair_is_two_namespaces_that_share_nothing(namespace_pair: NamespacePair) -> None:
    primary, secondary = namespace_pair
    assert (primary.name, secondary.name) == ("contoso", "backup")
    primary.create_queue("orders")
    secondary.create_queue("orders")
    send(primary, "orders", "42")
    assert peek(primary, "orders") == ["42"]
    assert peek(secondary, "orders") == []


def test_a_restart_keeps_address_key_and_data(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders")
    send(namespace, "orders", "42")
    before = namespace.connection_string
    namespace.restart()
    assert namespace.connection_string == before
    assert peek(namespace, "orders") == ["42"]


def test_in_memory_a_restart_keeps_the_connection_string_only() -> None:
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        before = namespace.connection_string
        send(namespace, "orders", "42")
        namespace.restart()
        assert namespace.connection_string == before
        assert peek(namespace, "orders") == []


def test_a_data_directory_may_be_a_text(tmp_path: Path) -> None:
    with LocalNamespace(data=str(tmp_path / "kept"), queues=["orders"]):
        assert (tmp_path / "kept").is_dir()


def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left may go at any time, and is not to be counted
    threads = set(threading.enumerate())
    files = open_files()
    with LocalNamespace("contoso", data=tmp_path, queues=["orders"]) as namespace:
        send(namespace, "orders", "42")
        assert set(threading.enumerate()) - threads
    wait_until(lambda: set(threading.enumerate()) <= threads)
    wait_until(lambda: open_files() <= files)


def test_nothing_is_left_after_a_start_that_failed() -> None:
    threads = set(threading.enumerate())
    with LocalNamespace("contoso") as first:
        second = LocalNamespace("backup", port=first.port)
        with pytest.raises(AddressInUse):
            second.start()
        second.stop()
        with pytest.raises(TwinbusError, match="not running"):
            _ = second.connection_string
    wait_until(lambda: set(threading.enumerate()) <= threads)


def test_the_plug_in_is_cheap_to_import() -> None:
    """pytest imports it at every start, also where nobody uses it."""
    heavy = "{'sqlite3', 'azure.servicebus', 'typer', 'rich', 'twinbus.broker.server'}"
    code = f"import sys, twinbus.testing; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def open_files() -> Counter[str]:
    """How many sockets and files of each kind this process has open."""
    found: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed while we looked
            found[link.readlink().name.split(":")[0]] += 1
    return found
