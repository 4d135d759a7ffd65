"""The official asyncio administration client, unmodified, against a real namespace: queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.testing import LocalNamespace


def admin_client(namespace: LocalNamespace, key_suffix: str = "") -> ServiceBusAdministrationClient:
    """Over https, on the port that also speaks AMQP."""
    address = namespace.connection_string.replace(";UseDev", f"{key_suffix};UseDev")
    return ServiceBusAdministrationClient.from_connection_string(
        address, connection_verify=str(namespace.ca_file), retry_total=0
    )


@pytest.fixture
async def admin(namespace: LocalNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with admin_client(namespace) as admin:
        yield admin


async def test_a_queue_is_made_found_changed_listed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("orders", max_delivery_count=4, user_metadata="notes")
    queue = await admin.get_queue("orders")
    assert (queue.max_delivery_count, queue.user_metadata) == (4, "notes")
    await admin.update_queue(queue, lock_duration=timedelta(seconds=30))
    assert (await admin.get_queue("orders")).lock_duration == timedelta(seconds=30)
    assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 0
    assert [queue.name async for queue in admin.list_queues()] == ["orders"]
    await admin.delete_queue("orders")
    assert [queue.name async for queue in admin.list_queues()] == []


async def test_pages_follow_each_other(namespace: LocalNamespace, admin: ServiceBusAdministrationClient) -> None:
    made = [f"q{number:03}" for number in range(105)]
    for name in made:
        namespace.create_queue(name)
    assert [queue.name async for queue in admin.list_queues()] == made
    assert [queue.name async for queue in admin.list_queues_runtime_properties(max_page_size=40)] == made


async def test_the_namespace_describes_itself(admin: ServiceBusAdministrationClient) -> None:
    assert (await admin.get_namespace_properties()).messaging_sku == "Standard"


async def test_refusals_are_the_same_exceptions(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("orders")
    with pytest.raises(ResourceExistsError):
        await admin.create_queue("orders")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_queue("typo")
    with pytest.raises(ResourceNotFoundError):
        await admin.delete_queue("typo")
    with pytest.raises(HttpResponseError, match="LockDuration"):
        await admin.create_queue("new", lock_duration=timedelta(hours=1))


async def test_a_wrong_key_is_refused(namespace: LocalNamespace) -> None:
    async with admin_client(namespace, key_suffix="x") as admin:
        with pytest.raises(ClientAuthenticationError):
            await admin.get_namespace_properties()
