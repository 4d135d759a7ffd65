"""A close while sends are under way: nothing is opened after it, and nothing keeps it from closing the rest."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import Any, cast

import pytest
from azure.servicebus.aio import ServiceBusClient

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.client.flows.io_requests import Answer, Woke
from twinbus.client.flows.send_request import SendRequest
from twinbus.client.sdk.failures import LinkFailed

PRIMARY, SECONDARY = (
    f"Endpoint=sb://{name}.example;SharedAccessKeyName=k;SharedAccessKey=a2V5" for name in ("contoso", "backup")
)
NO_REQUEST = cast("SendRequest", None)
"""What is never looked at, because nothing is sent."""


def paired_on_tasks() -> twinbus.aio.PairedServiceBusClient:
    return twinbus.aio.PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY)


class Restless:
    """A link of the SDK's that makes another one while it is closed, as a send does that is under way."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self.is_closed = False

    async def close(self) -> None:
        self._client.get_queue_sender("orders")
        await asyncio.sleep(0)
        self.is_closed = True


class Stubborn:
    """A client of the SDK's that cannot be closed."""

    def __init__(self) -> None:
        self._handlers: set[Any] = set()

    async def close(self) -> None:
        raise RuntimeError("Set changed size during iteration")


async def test_a_client_of_the_sdk_is_closed_with_all_its_links_though_others_are_made_meanwhile() -> None:
    bus, client = paired_on_tasks(), ServiceBusClient.from_connection_string(PRIMARY)
    links = [Restless(client) for _ in range(3)]
    client._handlers.update(links)
    bus._transport._primary = client
    await bus.close()
    assert all(link.is_closed for link in links)


async def test_what_cannot_be_closed_does_not_keep_the_rest_open() -> None:
    bus, client = paired_on_tasks(), ServiceBusClient.from_connection_string(SECONDARY)
    link = Restless(client)
    client._handlers.add(link)
    bus._transport._primary, bus._transport._secondary = cast("ServiceBusClient", Stubborn()), client
    closed: list[str] = []
    bus._state.close_ledger = lambda: closed.append("ledger")  # type: ignore[method-assign]
    await bus.close()
    assert link.is_closed
    assert closed == ["ledger"]


async def test_a_send_on_a_task_that_got_its_turn_after_the_close_opens_nothing() -> None:
    sender = paired_on_tasks().get_queue_sender("orders")
    async with sender._lock:
        waiting = asyncio.ensure_future(sender._to_primary(NO_REQUEST, 60, is_patient=True))
        await asyncio.sleep(0)  # now it waits for its turn
        await sender.close()
    answer = await waiting
    assert isinstance(answer, Woke)
    assert answer.is_closing


def test_a_send_on_a_thread_that_got_its_turn_after_the_close_opens_nothing() -> None:
    sender = PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY).get_queue_sender("orders")
    answers: list[Answer] = []
    with sender._lock:
        waiting = threading.Thread(target=lambda: answers.append(sender._to_primary(NO_REQUEST, 60, is_patient=True)))
        waiting.start()
        waiting.join(0.05)  # now it waits for its turn; if it does not yet, it finds the sender closed
        sender.close()
    waiting.join()
    assert [(type(answer), getattr(answer, "is_closing", False)) for answer in answers] == [(Woke, True)]


async def test_no_link_is_opened_for_a_closed_sender() -> None:
    on_tasks = paired_on_tasks().get_queue_sender("orders")
    await on_tasks.close()
    with pytest.raises(LinkFailed, match="the sender was closed"):
        await on_tasks._ready_link(monotonic() + 60)
    on_threads = PairedServiceBusClient.from_connection_strings(PRIMARY, SECONDARY).get_queue_sender("orders")
    on_threads.close()
    with pytest.raises(LinkFailed, match="the sender was closed"):
        on_threads._ready_link(monotonic() + 60)
