"""Administration through the proxy, against a namespace that somebody else runs; see `test_live_pairing.py`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

import pytest
from admin_proxy import AdminProxy
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from twinbus import Namespace
from twinbus.proxy.administration.atom_places import HIDDEN_KEY
from twinbus.transport.connection import NamespaceConnection

PRIMARY, CONSENT = "TWINBUS_LIVE_PRIMARY", "TWINBUS_LIVE_YES"
MISSING = [name for name in (PRIMARY, CONSENT) if not os.environ.get(name)]
if MISSING:
    pytest.skip(f"needs two namespaces: make azure-live ({', '.join(MISSING)} not set)", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def primary() -> Namespace:
    return Namespace.from_connection_string(os.environ[PRIMARY])


@pytest.fixture
def prefix(primary: Namespace) -> Iterator[str]:
    """Of the names of queues, which are deleted at the end."""
    prefix = f"twinbus-live-{secrets.token_hex(4)}"
    yield prefix
    with primary.admin_client(attempt_s=30) as admin:
        for name in [queue.name for queue in admin.list_queues() if queue.name.startswith(prefix)]:
            with suppress(ResourceNotFoundError):
                admin.delete_queue(name)


@pytest.fixture
def proxy(primary: Namespace) -> Iterator[AdminProxy]:
    with AdminProxy(primary) as running:
        yield running


@pytest.fixture
def admin(proxy: AdminProxy) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        proxy.connection_string, connection_verify=proxy.ca_file, retry_total=0
    ) as admin:
        yield admin


def test_queues_are_administered_through_the_proxy(
    admin: ServiceBusAdministrationClient, proxy: AdminProxy, prefix: str
) -> None:
    admin.create_queue(f"{prefix}-last")
    made = admin.create_queue(f"{prefix}-first", forward_to=f"{prefix}-last")
    assert str(made.forward_to).split("://")[1] == f"127.0.0.1:{proxy.port}/{prefix}-last"
    admin.update_queue(admin.get_queue(f"{prefix}-first"), max_delivery_count=3)
    found = {queue.name: queue for queue in admin.list_queues() if queue.name.startswith(prefix)}
    assert {name: queue.max_delivery_count for name, queue in found.items()} == {
        f"{prefix}-first": 3,
        f"{prefix}-last": 10,
    }
    with pytest.raises(ResourceExistsError):
        admin.create_queue(f"{prefix}-first")
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(f"{prefix}-none")
    with pytest.raises(HttpResponseError):
        admin.create_queue(f"{prefix}-other", forward_to=f"{prefix}-none")


def test_keys_of_a_queue_are_hidden_and_survive_an_update(
    admin: ServiceBusAdministrationClient, primary: Namespace, prefix: str
) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="app",
        primary_key="a2V5LW9mLWEtdGVzdC10aGF0LWlzLTMyLWJ5dGVzLTE=",
        secondary_key="a2V5LW9mLWEtdGVzdC10aGF0LWlzLTMyLWJ5dGVzLTI=",
    )
    admin.create_queue(f"{prefix}-orders", authorization_rules=[rule])
    queue = admin.get_queue(f"{prefix}-orders")
    assert {each.primary_key for each in queue.authorization_rules or ()} == {HIDDEN_KEY}
    admin.update_queue(queue, max_delivery_count=3)
    with primary.admin_client(attempt_s=30) as direct:
        keys = {each.primary_key for each in direct.get_queue(f"{prefix}-orders").authorization_rules or ()}
    assert keys == {rule.primary_key}


async def test_a_key_of_the_namespace_logs_in_without_an_entity(primary: Namespace) -> None:
    async with NamespaceConnection(primary.dial(30), attempt_s=30) as connection:
        await connection.log_in()
