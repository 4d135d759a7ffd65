"""The official Python client with keys and tokens that allow less than everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)
from azure.servicebus.management import AccessRights, ServiceBusAdministrationClient
from azure.servicebus.management import AuthorizationRule as AdministeredRule
from token_makers import python_token, secret_signer, web_token

from twinbus.broker.auth.jwt import SERVICE_AUDIENCE, JwtIssuer
from twinbus.broker.entities.settings import AuthorizationRule
from twinbus.testing import LocalNamespace

WAIT_S = 10
SECRET = "a secret that the issuer and the namespace share"


@pytest.fixture
def served() -> Iterator[LocalNamespace]:
    rules = ["sender:Send", "reader:Listen", "both:Send+Listen:both-key", "boss:Manage"]
    issuers = [JwtIssuer("https://issuer.test", "HS256", SECRET)]
    with LocalNamespace(queues=["orders", "other"], rules=rules, jwt_issuers=issuers) as running:
        own = AuthorizationRule("app", ("Send",), "app-key", "app-other-key")
        running.create_queue("private", authorization_rules=(own,))
        yield running


def connect(connection_string: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)


def send(connection_string: str, queue: str = "orders") -> None:
    with connect(connection_string) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("42"))


def send_for(sender: ServiceBusSender, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(ServiceBusConnectionError):  # under way when its link was detached: the next one gets the reason
            sender.send_messages(ServiceBusMessage("42"), timeout=5)


def receive(connection_string: str, queue: str = "orders") -> str:
    with connect(connection_string) as client, client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.complete_message(message)
        return str(message)


def as_app(served: LocalNamespace, key: str) -> str:
    """The connection string of somebody who was given the key `app` of a queue."""
    endpoint = f"Endpoint=sb://127.0.0.1:{served.port}"
    return f"{endpoint};SharedAccessKeyName=app;SharedAccessKey={key};UseDevelopmentEmulator=true"


def with_token(served: LocalNamespace, token: str) -> str:
    """The connection string of somebody who was given a token and no key."""
    return f"Endpoint=sb://127.0.0.1:{served.port};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def signature(served: LocalNamespace, path: str = "", rule: str = "both", life_s: float = 600) -> str:
    key = {"both": "both-key", "app": "app-other-key"}[rule]
    return python_token(f"sb://127.0.0.1:{served.port}/{path}", rule, key, int(time.time() + life_s))


def web(**said: object) -> str:
    claims = {"iss": "https://issuer.test", "aud": SERVICE_AUDIENCE, "exp": int(time.time()) + 600}
    return web_token({"alg": "HS256", "typ": "JWT"}, claims | said, secret_signer(SECRET))


# --- keys ---


def test_one_may_send_and_the_other_receive(served: LocalNamespace) -> None:
    send(served.connection_string_for("sender"))
    assert receive(served.connection_string_for("reader")) == "42"


@pytest.mark.parametrize("rule", ["both", "boss"])
def test_who_may_both_does_both(served: LocalNamespace, rule: str) -> None:
    send(served.connection_string_for(rule))
    assert receive(served.connection_string_for(rule)) == "42"


def test_a_key_to_send_is_none_to_receive(served: LocalNamespace) -> None:
    with pytest.raises(ServiceBusAuthorizationError, match="'orders' does not give the right 'Listen'"):
        receive(served.connection_string_for("sender"))


def test_a_key_to_receive_is_none_to_send(served: LocalNamespace) -> None:
    with pytest.raises(ServiceBusAuthorizationError, match="'orders' does not give the right 'Send'"):
        send(served.connection_string_for("reader"))


def test_requests_need_the_right_for_what_they_do(served: LocalNamespace) -> None:
    with connect(served.connection_string_for("sender")) as client, client.get_queue_sender("orders") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(number)
    with connect(served.connection_string_for("reader")) as client, client.get_queue_receiver("orders") as receiver:
        assert receiver.peek_messages() == []


def test_a_wrong_key_is_an_authentication_error(served: LocalNamespace) -> None:
    wrong = served.connection_string_for("both").replace("SharedAccessKey=", "SharedAccessKey=x")
    with pytest.raises(ServiceBusAuthenticationError):
        send(wrong)
    with pytest.raises(ServiceBusAuthenticationError):
        send(served.connection_string_for("both").replace("KeyName=both", "KeyName=nobody"))


def test_what_is_lost_by_a_missing_right_is_not_the_message(served: LocalNamespace) -> None:
    send(served.connection_string_for("sender"))
    with pytest.raises(ServiceBusAuthorizationError):
        receive(served.connection_string_for("sender"))
    assert receive(served.connection_string) == "42"


async def test_the_asyncio_client_sees_the_same(served: LocalNamespace) -> None:
    strings = {rule: served.connection_string_for(rule) for rule in ("sender", "reader")}
    async with (
        AsyncServiceBusClient.from_connection_string(strings["sender"], retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("42"))
    async with AsyncServiceBusClient.from_connection_string(strings["reader"], retry_total=0) as client:
        with pytest.raises(ServiceBusAuthorizationError):
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("42"))
    wrong = strings["sender"].replace("SharedAccessKey=", "SharedAccessKey=x")
    async with AsyncServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_sender("orders"):
                pass


# --- a queue's own rules ---


@pytest.mark.parametrize("key", ["app-key", "app-other-key"])
def test_a_queues_own_key_opens_that_queue_and_no_other(served: LocalNamespace, key: str) -> None:
    text = as_app(served, key)
    send(text, "private")
    with pytest.raises(ServiceBusAuthorizationError, match="'Listen'"):
        receive(text, "private")
    with pytest.raises(ServiceBusAuthenticationError):
        send(text, "orders")
    assert receive(served.connection_string_for("reader"), "private") == "42"


# --- administration ---


def administer(served: LocalNamespace, connection_string: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(served.ca_file), retry_total=0
    )


def test_only_manage_administers(served: LocalNamespace) -> None:
    with administer(served, served.connection_string_for("boss")) as admin:
        admin.create_queue("made")
    for rule in ("sender", "reader", "both"):
        with administer(served, served.connection_string_for(rule)) as admin:
            with pytest.raises(ClientAuthenticationError, match="does not give the right 'Manage'"):
                admin.create_queue("never")
            with pytest.raises(ClientAuthenticationError):
                admin.delete_queue("made")
    wrong = served.connection_string_for("boss").replace("SharedAccessKey=", "SharedAccessKey=x")
    with administer(served, wrong) as admin, pytest.raises(ClientAuthenticationError, match="does not fit: the name"):
        admin.get_queue("made")
    with administer(served, served.connection_string) as admin:
        assert [queue.name for queue in admin.list_queues() if queue.name in ("made", "never")] == ["made"]


def test_the_key_of_a_queue_opens_no_queue_whose_name_goes_on(served: LocalNamespace) -> None:
    served.create_queue("private/eu")
    send(as_app(served, "app-key"), "private")
    with pytest.raises(ServiceBusAuthenticationError):
        send(as_app(served, "app-key"), "private/eu")


def test_keys_that_are_changed_by_the_administration_count_at_once(served: LocalNamespace) -> None:
    with administer(served, served.connection_string_for("boss")) as admin:
        admin.create_queue("made", authorization_rules=[queue_rule("first-key")])
        send(as_app(served, "first-key"), "made")
        queue = admin.get_queue("made")
        queue.authorization_rules = [queue_rule("second-key")]
        admin.update_queue(queue)
    send(as_app(served, "second-key"), "made")
    with pytest.raises(ServiceBusAuthenticationError):
        send(as_app(served, "first-key"), "made")


def queue_rule(key: str) -> AdministeredRule:
    return AdministeredRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        created_at_utc=datetime.now(UTC),
        modified_at_utc=datetime.now(UTC),
        key_name="app",
        primary_key=key,
        secondary_key=f"{key}-2",
    )


# --- tokens ---


def test_a_token_works_without_its_key(served: LocalNamespace) -> None:
    text = with_token(served, signature(served))
    send(text)
    assert receive(text) == "42"


def test_a_token_for_one_queue_opens_no_other(served: LocalNamespace) -> None:
    text = with_token(served, signature(served, "orders"))
    send(text, "orders")
    with pytest.raises(ServiceBusAuthenticationError):
        send(text, "other")
    with pytest.raises(ServiceBusAuthenticationError):
        send(text, "orders2")


def test_an_expired_token_is_refused(served: LocalNamespace) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(with_token(served, signature(served, life_s=-1)))


def test_a_client_whose_token_ends_is_stopped_while_it_works(served: LocalNamespace) -> None:
    with (
        connect(with_token(served, signature(served, life_s=6))) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("42"))
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            send_for(sender, 60)
    assert receive(served.connection_string) == "42"


# --- web tokens ---


def test_a_web_token_of_a_configured_issuer_gives_its_roles(served: LocalNamespace) -> None:
    send(with_token(served, web(roles=["Azure Service Bus Data Sender"])))
    reader = with_token(served, web(roles=["Azure Service Bus Data Receiver"]))
    with pytest.raises(ServiceBusAuthorizationError, match="'Send'"):
        send(reader)
    assert receive(reader) == "42"
    owner = with_token(served, web(rights=["Manage"]))
    send(owner)
    assert receive(owner) == "42"


@pytest.mark.parametrize(
    "said", [{"iss": "https://other.test"}, {"aud": "https://other.test"}, {"exp": 1}, {"roles": ["Reader"]}]
)
def test_other_web_tokens_are_refused(served: LocalNamespace, said: dict[str, object]) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(with_token(served, web(**({"rights": ["Send"]} if "roles" not in said else {}), **said)))


def test_without_an_issuer_web_tokens_are_refused(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders")
    with pytest.raises(ServiceBusAuthenticationError):
        send(with_token(namespace, web(rights=["Send"])))
