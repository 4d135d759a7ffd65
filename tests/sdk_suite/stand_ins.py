"""A pytest plugin in place of the cloud: what the official SDK's own tests import, with our server behind it.

Those tests make resource groups, namespaces and queues through decorators ("preparers") that talk to a cloud account.
Here every test gets a namespace of its own, in memory, and the preparers make their queues and topics in that. The
modules are put where `import` looks first, so that no file of the SDK has to be changed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import inspect
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import certifi
import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus import aio as tasks
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus.aio import management as tasks_management
from azure.servicebus.aio._base_handler_async import ServiceBusSharedKeyCredential as TasksSharedKeyCredential
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient
from local_proxy import ProxiedNamespace

from twinbus.broker.auth.jwt import SERVICE_AUDIENCE, JwtIssuer
from twinbus.testing import LocalNamespace

ISSUER, SECRET = "https://issuer.test", "a secret that only this issuer and the namespaces know"
ROOT_RULE = "RootManageSharedAccessKey"
EMULATOR = "UseDevelopmentEmulator=true"
TLS_OPTIONS = ("ssl_context", "connection_verify")
TOKEN_S = 3600
THROUGH_PROXY = "TWINBUS_THROUGH_PROXY"
SLOW_S = {"test_topic_by_servicebus_client_send_large_messages_w_sleep": 1200}
"""Takes 8 minutes alone: its keep-alive thread reads the socket for up to 60 s at a time, and its sends wait."""

Test = Callable[..., Any]
Given = dict[str, Any]
_running: list[LocalNamespace] = []


# --- credentials ---


def token() -> AccessToken:
    """As an identity provider would make it: a signed web token of an owner of the namespace's data."""
    until = int(time.time()) + TOKEN_S
    said = {"iss": ISSUER, "aud": SERVICE_AUDIENCE, "exp": until, "roles": ["Azure Service Bus Data Owner"]}
    signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(said)}"
    signature = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    return AccessToken(f"{signed}.{_base64(signature)}", until)


class Credential:
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return token()


class TasksCredential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return token()

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> TasksCredential:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


def get_credential(is_async: bool = False, **options: Any) -> Any:
    """Of an identity; through a proxy of a key, because keys are all that opens one."""
    if THROUGH_PROXY in os.environ and _running:
        kind = TasksSharedKeyCredential if is_async else ServiceBusSharedKeyCredential
        return kind(ROOT_RULE, key_of(_running[-1]))
    return TasksCredential() if is_async else Credential()


def _encoded(said: Given) -> str:
    return _base64(json.dumps(said).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# --- preparers ---


class Preparer:
    """A decorator that makes something and gives it to the test by keyword."""

    parameter_name = ""

    def __init__(self, name_prefix: str = "", **settings: Any) -> None:
        self.name = f"{name_prefix}-{uuid.uuid4().hex[:8]}"
        self.parameter_name = settings.pop("parameter_name", self.parameter_name)
        self.settings = settings

    def __call__(self, test: Test) -> Test:
        @functools.wraps(test)
        def prepared(case: Any, *arguments: Any, **given: Any) -> None:
            with self.made(given) as more:
                test(case, *arguments, **{**given, **more})

        @functools.wraps(test)
        async def prepared_on_tasks(case: Any, *arguments: Any, **given: Any) -> None:
            with self.made(given) as more:
                await test(case, *arguments, **{**given, **more})

        return prepared_on_tasks if inspect.iscoroutinefunction(test) else prepared

    @contextmanager
    def made(self, given: Given) -> Iterator[Given]:
        yield self.make(given)

    def make(self, given: Given) -> Given:
        return {}


class NamespacePreparer(Preparer):
    @contextmanager
    def made(self, given: Given) -> Iterator[Given]:
        with running_namespace() as namespace:
            yield {
                "servicebus_namespace": SimpleNamespace(name=host_of(namespace)),
                "servicebus_namespace_connection_string": namespace.connection_string,
                "servicebus_namespace_key_name": ROOT_RULE,
                "servicebus_namespace_primary_key": key_of(namespace),
            }


class QueuePreparer(Preparer):
    parameter_name = "servicebus_queue"

    def make(self, given: Given) -> Given:
        with admin() as client:
            client.create_queue(self.name, **{"lock_duration": "PT30S", **self.settings})
        return {self.parameter_name: SimpleNamespace(name=self.name)}


class TopicPreparer(Preparer):
    parameter_name = "servicebus_topic"

    def make(self, given: Given) -> Given:
        with admin() as client:
            client.create_topic(self.name, **self.settings)
        return {self.parameter_name: SimpleNamespace(name=self.name)}


class SubscriptionPreparer(Preparer):
    parameter_name = "servicebus_subscription"

    def make(self, given: Given) -> Given:
        with admin() as client:
            client.create_subscription(
                given["servicebus_topic"].name, self.name, **{"lock_duration": "PT30S", **self.settings}
            )
        return {self.parameter_name: SimpleNamespace(name=self.name)}


class NamespaceRulePreparer(Preparer):
    """A key of the namespace with fewer rights; keys of a running namespace are given at its start."""

    parameter_name = "servicebus_authorization_rule"

    def make(self, given: Given) -> Given:
        rights = "+".join(right.value for right in self.settings.get("access_rights", AccessRights))
        name = {"Send": "sender", "Listen": "listener"}.get(rights, "manager")
        return {f"{self.parameter_name}_connection_string": _running[-1].connection_string_for(name)}


class QueueRulePreparer(Preparer):
    parameter_name = "servicebus_queue_authorization_rule"

    def make(self, given: Given) -> Given:
        queue = given[self.settings.get("servicebus_queue_parameter_name", "servicebus_queue")].name
        rights = [right.value for right in self.settings.get("access_rights", AccessRights)]
        key = base64.b64encode(uuid.uuid4().bytes * 2).decode()
        rule = AuthorizationRule(
            key_name=self.name, rights=rights, type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey",
            claim_value="None", primary_key=key, secondary_key=key,
        )  # fmt: skip
        with admin() as client:
            client.update_queue(client.get_queue(queue), authorization_rules=[rule])
        host = host_of(_running[-1])
        string = f"Endpoint=sb://{host}/;SharedAccessKeyName={self.name};SharedAccessKey={key};EntityPath={queue}"
        return {f"{self.parameter_name}_connection_string": f"{string};{EMULATOR}"}


class EnvironmentPreparer:
    """Gives a test of the administration client what it would find in the environment, as far as it asks for it."""

    def __init__(self, *names: str, **fakes: Any) -> None:
        pass

    def __call__(self, test: Test) -> Test:
        def prepared(case: Any) -> None:
            with running_namespace() as namespace:
                test(case, **self.found(test, namespace))

        async def prepared_on_tasks(case: Any) -> None:
            with running_namespace() as namespace:
                await test(case, **self.found(test, namespace))

        chosen: Test = prepared_on_tasks if inspect.iscoroutinefunction(test) else prepared
        chosen.__name__, chosen.__doc__ = test.__name__, test.__doc__
        return chosen

    def found(self, test: Test, namespace: LocalNamespace) -> Given:
        found = {
            "servicebus_connection_str": namespace.connection_string,
            "servicebus_fully_qualified_namespace": host_of(namespace),
            "servicebus_sas_policy": ROOT_RULE,
            "servicebus_sas_key": key_of(namespace),
        }
        wanted = inspect.signature(test).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in wanted.values())
        return {name: value for name, value in found.items() if takes_all or name in wanted}


class RecordedTestCase:
    @staticmethod
    def await_prepared_test(test: Test) -> Test:
        return test


def as_it_is(test: Test) -> Test:
    """Nothing is recorded and nothing is played back."""
    return test


class AccessRights(Enum):
    manage, send, listen = "Manage", "Send", "Listen"


# --- the namespace of a test ---


@contextmanager
def running_namespace() -> Iterator[LocalNamespace]:
    rules = ("sender:Send", "listener:Listen", "manager:Manage")
    issuer = JwtIssuer(issuer=ISSUER, algorithm="HS256", key=SECRET)
    kind = ProxiedNamespace if THROUGH_PROXY in os.environ else LocalNamespace
    with kind("suite", rules=rules, jwt_issuers=[issuer]) as namespace:
        _running.append(namespace)
        try:
            yield namespace
        finally:
            _running.remove(namespace)


def host_of(namespace: LocalNamespace) -> str:
    return f"127.0.0.1:{namespace.port}"


def key_of(namespace: LocalNamespace) -> str:
    return namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def admin() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(_running[-1].connection_string)


# --- clients that find the way ---


def _finding_the_way(kind: type[Any]) -> None:
    """Without TLS, which a client with a credential cannot be told otherwise, unless the test is about TLS.

    A client with TLS or a WebSocket drops the port of the namespace, and takes that of a custom endpoint.
    """
    original = kind.__init__

    @functools.wraps(original)
    def initialised(client: Any, *arguments: Any, **options: Any) -> None:
        is_about_tls = any(options.get(name) is not None for name in TLS_OPTIONS)
        is_web_socket = options.get("transport_type") is TransportType.AmqpOverWebsocket
        options.setdefault("use_tls", is_about_tls)
        if _running and (is_about_tls or is_web_socket) and "custom_endpoint_address" not in options:
            options["custom_endpoint_address"] = f"sb://{host_of(_running[-1])}"
            options.setdefault("transport_type", TransportType.Amqp)
        original(client, *arguments, **options)

    kind.__init__ = initialised


def trusted_file() -> str:
    """In place of the authorities of the Web: the one that has signed the certificate of the test's namespace."""
    return str(_running[-1].ca_file)


def _keeping_ports(kind: type[Any]) -> None:
    """A port in a connection string is only taken for that of an emulator."""
    original = kind.from_connection_string.__func__

    def made(cls: type[Any], /, conn_str: str, **options: Any) -> Any:
        return original(cls, f"{conn_str.rstrip(';')};{EMULATOR}" if EMULATOR not in conn_str else conn_str, **options)

    kind.from_connection_string = classmethod(made)


def _trusting(kind: type[Any]) -> None:
    original = kind.__init__

    @functools.wraps(original)
    def initialised(client: Any, *arguments: Any, **options: Any) -> None:
        if _running:
            options.setdefault("connection_verify", str(_running[-1].ca_file))
        original(client, *arguments, **options)

    kind.__init__ = initialised


# --- as modules ---

_PREPARERS: dict[str, type[Preparer]] = {
    "ServiceBusResourceGroupPreparer": Preparer,
    "ServiceBusNamespacePreparer": NamespacePreparer,
    "ServiceBusQueuePreparer": QueuePreparer,
    "ServiceBusTopicPreparer": TopicPreparer,
    "ServiceBusSubscriptionPreparer": SubscriptionPreparer,
    "ServiceBusNamespaceAuthorizationRulePreparer": NamespaceRulePreparer,
    "ServiceBusQueueAuthorizationRulePreparer": QueueRulePreparer,
}
_TOOLS: Given = {
    "AzureMgmtRecordedTestCase": object,
    "AzureRecordedTestCase": RecordedTestCase,
    "RandomNameResourceGroupPreparer": Preparer,
    "CachedResourceGroupPreparer": Preparer,
    "get_credential": get_credential,
    "recorded_by_proxy": as_it_is,
    "set_custom_default_matcher": lambda **matching: None,
}
_MODULES: dict[str, Given] = {
    "devtools_testutils": _TOOLS,
    "devtools_testutils.aio": {"recorded_by_proxy_async": as_it_is},
    "servicebus_preparer": {
        "SERVICEBUS_ENDPOINT_SUFFIX": "",
        **_PREPARERS,
        **{f"Cached{name}": preparer for name, preparer in _PREPARERS.items()},
    },
    "sb_env_loader": {"ServiceBusPreparer": EnvironmentPreparer},
    "azure.common": {"AzureHttpError": OSError, "AzureConflictHttpError": OSError},
    "azure.mgmt": {},
    "azure.mgmt.servicebus": {},
    "azure.mgmt.servicebus.models": {"AccessRights": AccessRights},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.partition("[")[0] in SLOW_S:
            item.add_marker(pytest.mark.timeout(SLOW_S[item.name.partition("[")[0]]))


def pytest_configure(config: pytest.Config) -> None:
    for name, contents in _MODULES.items():
        module = sys.modules[name] = ModuleType(name)
        module.__dict__.update(contents)
    for marker in ("liveTest", "live_test_only", "playback_test_only"):
        config.addinivalue_line("markers", f"{marker}: a mark of the SDK's tests")
    certifi.where = trusted_file
    for client in (ServiceBusClient, tasks.ServiceBusClient):
        _finding_the_way(client)
        _keeping_ports(client)
    for administration in (ServiceBusAdministrationClient, tasks_management.ServiceBusAdministrationClient):
        _trusting(administration)
