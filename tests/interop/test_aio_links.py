"""Links of the asyncio SDK against real namespaces, peers that say nothing, and callers who change their minds."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from wire_relay import Relay

from twinbus.client.aio.links import SenderLink, all_closed, try_receiver
from twinbus.client.namespace import Namespace
from twinbus.client.sdk.failures import LinkFailed
from twinbus.pairing.sending.failure import FailureKind
from twinbus.testing import LocalNamespace

WAIT_S = 30
SOON_S = 0.5
SLACK_S = 20
"""More than a busy machine needs to notice that the time is over."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders", "invoices"]) as running:
        yield running


@pytest.fixture
async def namespace(local: LocalNamespace) -> AsyncIterator[Namespace]:
    yield Namespace.from_connection_string(local.connection_string)
    local.faults.clear()
    await all_closed()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections, as the kernel does, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def relay(local: LocalNamespace) -> Iterator[Relay]:
    with Relay(local.port) as running:
        yield running


async def opened(namespace: Namespace, queue: str = "orders") -> SenderLink:
    return await SenderLink.open(namespace.aio_client(), queue, deadline_s=WAIT_S)


def at(port: int, credential: Any, *, tls: bool = False) -> Namespace:
    return Namespace(f"127.0.0.1:{port}", credential, name="contoso", use_tls=tls)


async def taken_from(namespace: Namespace, queue: str = "orders") -> list[str]:
    """What is in a queue; it is empty afterwards."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with namespace.aio_client() as client, client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        found = [str(message) for message in await receiver.peek_messages(100)]
        while any(
            message.state is ServiceBusMessageState.ACTIVE
            for message in await receiver.peek_messages(100, sequence_number=1)
        ):
            await receiver.receive_messages(100, max_wait_time=0.2)
        return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def nothing_is_left(files: int) -> None:
    """No task of ours, no socket."""
    await all_closed()
    deadline = time.monotonic() + 2 * SLACK_S
    while open_files() > files or len(asyncio.all_tasks()) > 1:
        assert time.monotonic() < deadline, (open_files() - files, asyncio.all_tasks())
        await asyncio.sleep(0.02)


async def test_an_open_link_sends_schedules_and_cancels(namespace: Namespace) -> None:
    link = await opened(namespace, "invoices")
    assert link.max_batch_bytes == 262_144
    await link.send(ServiceBusMessage("1"), WAIT_S)
    await link.send([ServiceBusMessage("2"), ServiceBusMessage("3")], WAIT_S)
    when = datetime.now(UTC) + timedelta(hours=1)
    numbers = await link.schedule([ServiceBusMessage("later"), ServiceBusMessage("never")], when, WAIT_S)
    await link.cancel(numbers[1:], WAIT_S)
    with pytest.raises(LinkFailed) as failed:
        await link.cancel(numbers[1:], WAIT_S)
    assert failed.value.failure.kind is FailureKind.REJECTED
    link.discard()
    assert await taken_from(namespace, "invoices") == ["1", "2", "3", "later"]


async def test_messages_go_over_tls_on_any_port(local: LocalNamespace, namespace: Namespace) -> None:
    text = local.connection_string.replace("UseDevelopmentEmulator=true;", "")
    over_tls = Namespace.from_connection_string(text)
    link = await opened(over_tls)
    await link.send(ServiceBusMessage("x" * 200_000), WAIT_S)
    link.discard()
    async with over_tls.aio_admin_client() as admin:
        assert (await admin.get_queue("orders")).name == "orders"
    assert await taken_from(namespace) == ["x" * 200_000]


async def test_a_queue_that_can_be_listened_to_is_distinguished_from_others(namespace: Namespace) -> None:
    client = namespace.aio_client()
    await try_receiver(client, "orders", deadline_s=WAIT_S)
    with pytest.raises(LinkFailed) as failed:
        await try_receiver(client, "missing", deadline_s=WAIT_S)
    assert failed.value.failure.kind is FailureKind.NOT_FOUND


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("open_link", [SenderLink.open, try_receiver])
async def test_a_peer_that_says_nothing_is_not_waited_for(
    namespace: Namespace, silent_port: int, tls: bool, open_link: Any
) -> None:
    client = at(silent_port, namespace.credential, tls=tls).aio_client()
    files, began = open_files(), time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        await open_link(client, "orders", deadline_s=SOON_S)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.is_connection) == (FailureKind.NO_ANSWER, True)
    await nothing_is_left(files)


async def test_a_credential_that_hangs_is_not_waited_for(local: LocalNamespace, namespace: Namespace) -> None:
    class Hanging:
        async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            await asyncio.sleep(WAIT_S)
            return AccessToken("", 0)

    client = at(local.port, Hanging()).aio_client(SOON_S)
    with pytest.raises(LinkFailed) as failed:
        await SenderLink.open(client, "orders", deadline_s=WAIT_S)
    assert failed.value.failure.kind is FailureKind.NO_ANSWER
    assert "gave no token within 0.5 s" in failed.value.failure.text


async def test_a_send_that_drips_is_ended(namespace: Namespace, relay: Relay) -> None:
    link = await opened(at(relay.port, namespace.credential))
    relay.go_silent()
    relay.say(bytes.fromhex("00010000 02000000"))
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.05):
            relay.say(b"\0")

    dripping = asyncio.ensure_future(asyncio.to_thread(drip))
    began = time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        await link.send(ServiceBusMessage("42"), SOON_S)
    assert time.monotonic() - began < SOON_S + SLACK_S
    is_over.set()
    await dripping
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, True)
    assert not link.is_usable
    link.discard()
    assert await taken_from(namespace) == ["42"]


async def test_a_token_that_cannot_be_renewed_does_not_hold_up_a_send(namespace: Namespace, relay: Relay) -> None:
    link = await opened(at(relay.port, namespace.credential))
    authenticator: Any = link.sender._handler._cbs_authenticator
    authenticator._expires_on, authenticator._refresh_window = int(time.time()) + 60, 120
    relay.go_silent()
    began = time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        await link.send(ServiceBusMessage("42"), SOON_S)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, False)
    link.discard()
    assert await taken_from(namespace) == []


@pytest.mark.parametrize("fault", ["unanswered", "slow"])
async def test_a_cancelled_send_ends_at_once_and_its_link_is_used_no_more(
    local: LocalNamespace, namespace: Namespace, fault: str
) -> None:
    files = open_files()
    link = await opened(namespace)
    delay: dict[str, Any] = {"delay": timedelta(seconds=WAIT_S)} if fault == "slow" else {}
    local.faults.add(fault, entities=["orders"], **delay)
    sending = asyncio.ensure_future(link.send(ServiceBusMessage("42"), WAIT_S))
    await asyncio.sleep(0.1)  # under way
    sending.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert time.monotonic() - began < SLACK_S
    assert not link.is_usable
    link.discard()
    await nothing_is_left(files)
    local.faults.clear()
    await taken_from(namespace)


async def test_a_cancelled_opening_ends_at_once_and_leaves_nothing(namespace: Namespace, silent_port: int) -> None:
    files = open_files()
    client = at(silent_port, namespace.credential).aio_client()
    opening = asyncio.ensure_future(SenderLink.open(client, "orders", deadline_s=WAIT_S))
    await asyncio.sleep(0.1)  # under way
    opening.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert time.monotonic() - began < SLACK_S
    await nothing_is_left(files)


async def test_a_link_whose_peer_hung_up_is_known_to_be_dead(local: LocalNamespace, namespace: Namespace) -> None:
    link = await opened(namespace)
    assert link.is_alive
    local.faults.add("unreachable", how="drop")
    deadline = time.monotonic() + SLACK_S
    while link.is_alive:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    link.discard()


async def test_a_closed_link_is_not_opened_again_by_a_send(local: LocalNamespace, namespace: Namespace) -> None:
    link = await opened(namespace)
    local.faults.add("refuse", condition="amqp:internal-error", on="sends", entities=["orders"], count=1)
    with pytest.raises(LinkFailed):
        await link.send(ServiceBusMessage("42"), WAIT_S)
    with pytest.raises(LinkFailed) as failed:
        await link.send(ServiceBusMessage("43"), WAIT_S)
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.UNREACHABLE, False)
    link.discard()
    assert await taken_from(namespace) == []


@pytest.mark.parametrize("how", ["well", "refuse", "drop", "silent"])
async def test_nothing_is_left_of_a_link_that_was_discarded(
    local: LocalNamespace, namespace: Namespace, how: str
) -> None:
    files = open_files()
    links = [await opened(namespace) for _ in range(3)]
    if how != "well":
        local.faults.add("unreachable", how=how)
    for link in links:
        link.discard()
        link.discard()
    await all_closed()
    local.faults.clear()
    await nothing_is_left(files)
