"""Administration through the proxy: the official clients, unmodified, and a real namespace behind it."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from admin_proxy import AdminProxy
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)
from token_source import IdentityEndpoint, identity_endpoint, issuer, keyless

from twinbus import Namespace
from twinbus.broker.net.certificates import temporary_identity
from twinbus.broker.net.tls import new_context
from twinbus.client.credentials import token_source
from twinbus.proxy.administration.administration import ANSWER_BYTES_MAX, AT_ONCE
from twinbus.proxy.administration.atom_places import HIDDEN_KEY
from twinbus.testing import LocalNamespace

KEY = "a-key-that-nobody-else-knows"


def reach(namespace: LocalNamespace) -> Namespace:
    return Namespace.from_connection_string(namespace.connection_string)


def administer(proxy: AdminProxy, rule: str | None = None, **options: Any) -> ServiceBusAdministrationClient:
    text = proxy.connection_string if rule is None else proxy.connection_string_for(rule)
    return ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=proxy.ca_file, **{"retry_total": 0} | options
    )


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", key=KEY, data=tmp_path) as running:
        yield running


@pytest.fixture
def proxy(primary: LocalNamespace) -> Iterator[AdminProxy]:
    with AdminProxy(reach(primary), "sender:Send", "second:Manage+Send+Listen", connect_s=2) as running:
        yield running


@pytest.fixture
def admin(proxy: AdminProxy) -> Iterator[ServiceBusAdministrationClient]:
    with administer(proxy) as admin:
        yield admin


@pytest.fixture
def direct(primary: LocalNamespace) -> Iterator[ServiceBusAdministrationClient]:
    """The same client at the primary itself."""
    with ServiceBusAdministrationClient.from_connection_string(
        primary.connection_string, connection_verify=str(primary.ca_file), retry_total=0
    ) as admin:
        yield admin


# --- what applications do ---


def test_queues_are_made_found_changed_listed_and_deleted_at_the_primary(
    admin: ServiceBusAdministrationClient, direct: ServiceBusAdministrationClient
) -> None:
    made = admin.create_queue("orders/eu", lock_duration=timedelta(seconds=13), user_metadata="<é> & 中")
    assert vars(made) == vars(direct.get_queue("orders/eu"))
    admin.update_queue(admin.get_queue("orders/eu"), max_delivery_count=3, status=EntityStatus.SEND_DISABLED)
    assert vars(admin.get_queue("orders/eu")) == vars(direct.get_queue("orders/eu"))
    assert direct.get_queue("orders/eu").max_delivery_count == 3
    assert admin.get_queue_runtime_properties("orders/eu").total_message_count == 0
    assert [queue.name for queue in admin.list_queues()] == ["orders/eu"]
    admin.delete_queue("orders/eu")
    assert list(direct.list_queues()) == []


def test_topics_subscriptions_and_rules_are_those_of_the_primary(
    admin: ServiceBusAdministrationClient, direct: ServiceBusAdministrationClient
) -> None:
    admin.create_topic("events")
    admin.create_subscription("events", "audit")
    admin.create_rule("events", "audit", "eu", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET b = 2"))
    admin.create_rule(
        "events", "audit", "us", filter=CorrelationRuleFilter(label="sb://127.0.0.1/", properties={"n": 1})
    )
    assert [vars(topic) for topic in admin.list_topics()] == [vars(topic) for topic in direct.list_topics()]
    assert [sub.name for sub in admin.list_subscriptions("events")] == ["audit"]
    rules = [vars(rule) | {"filter": vars(rule.filter)} for rule in admin.list_rules("events", "audit")]
    assert sorted(rule["name"] for rule in rules) == ["$Default", "eu", "us"]
    assert [rule.name for rule in direct.list_rules("events", "audit")] == [rule["name"] for rule in rules]
    label = admin.get_rule("events", "audit", "us").filter
    assert isinstance(label, CorrelationRuleFilter)
    assert label.label == "sb://127.0.0.1/"


def test_pages_of_a_list_follow_each_other(admin: ServiceBusAdministrationClient, primary: LocalNamespace) -> None:
    names = [f"q{index:03}" for index in range(101)]
    for name in names:
        primary.create_queue(name)
    assert [queue.name for queue in admin.list_queues()] == names


def test_the_namespace_has_the_name_of_the_primary(admin: ServiceBusAdministrationClient) -> None:
    assert admin.get_namespace_properties().name == "contoso"


def test_forwarding_is_set_and_shown_by_the_address_of_the_proxy(
    proxy: AdminProxy,
    admin: ServiceBusAdministrationClient,
    direct: ServiceBusAdministrationClient,
    primary: LocalNamespace,
) -> None:
    admin.create_queue("last")
    made = admin.create_queue("first", forward_to="last", forward_dead_lettered_messages_to="last")
    assert made.forward_to == made.forward_dead_lettered_messages_to == f"sb://127.0.0.1:{proxy.port}/last"
    assert direct.get_queue("first").forward_to == f"sb://127.0.0.1:{primary.port}/last"
    admin.update_queue(admin.get_queue("first"), max_delivery_count=3)
    with ServiceBusClient.from_connection_string(primary.connection_string) as client:
        client.get_queue_sender("first").send_messages(ServiceBusMessage("42"))
        (message,) = client.get_queue_receiver("last").receive_messages(max_wait_time=10)
        assert str(message) == "42"
    admin.update_queue(admin.get_queue("first"), forward_to=None, forward_dead_lettered_messages_to=None)
    assert direct.get_queue("first").forward_to is None


def test_subscriptions_forward_too(admin: ServiceBusAdministrationClient, proxy: AdminProxy) -> None:
    admin.create_queue("last")
    admin.create_topic("events")
    admin.create_subscription("events", "audit", forward_to=f"sb://127.0.0.1:{proxy.port}/last")
    assert admin.get_subscription("events", "audit").forward_to == f"sb://127.0.0.1:{proxy.port}/last"


async def test_the_client_for_asyncio_works_the_same(proxy: AdminProxy) -> None:
    async with AioAdministrationClient.from_connection_string(
        proxy.connection_string, connection_verify=proxy.ca_file, retry_total=0
    ) as admin:
        await admin.create_queue("last")
        await admin.create_queue("first", forward_to="last")
        queue = await admin.get_queue("first")
        assert queue.forward_to == f"sb://127.0.0.1:{proxy.port}/last"
        await admin.update_queue(queue, max_delivery_count=3)
        assert [found.name async for found in admin.list_queues()] == ["first", "last"]
        with pytest.raises(ResourceExistsError):
            await admin.create_queue("first")
        await admin.delete_queue("first")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("first")


def test_requests_are_counted(proxy: AdminProxy, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("Orders")
    (counted,) = proxy.counted
    assert counted[0] == "orders"
    assert counted[1] > 100


# --- what the primary refuses ---


def said(client: ServiceBusAdministrationClient, what: str, *arguments: Any, **options: Any) -> tuple[int | None, str]:
    with pytest.raises(HttpResponseError) as refused:
        getattr(client, what)(*arguments, **options)
    response = refused.value.response
    return refused.value.status_code, "" if response is None else response.text()


@pytest.mark.parametrize(
    ("what", "arguments", "options"),
    [
        ("get_queue", ["none"], {}),
        ("create_queue", ["orders"], {}),
        ("create_queue", ["other"], {"lock_duration": timedelta(hours=1)}),
        ("create_queue", ["a" * 300], {}),
        ("create_queue", ["other"], {"forward_to": "none"}),
        ("delete_topic", ["none"], {}),
        ("get_rule", ["none", "audit", "$Default"], {}),
    ],
)
def test_what_the_primary_refuses_is_passed_on_as_it_was_said(
    admin: ServiceBusAdministrationClient,
    direct: ServiceBusAdministrationClient,
    primary: LocalNamespace,
    what: str,
    arguments: list[Any],
    options: dict[str, Any],
) -> None:
    primary.create_queue("orders")
    assert said(admin, what, *arguments, **options) == said(direct, what, *arguments, **options)


def test_a_fault_of_the_primary_is_passed_on(admin: ServiceBusAdministrationClient, primary: LocalNamespace) -> None:
    primary.faults.add("no-manage")
    status, text = said(admin, "get_queue", "orders")
    assert (status, "SubCode=50301" in text) == (503, True)


# --- rights ---


def test_a_key_without_manage_administers_nothing(proxy: AdminProxy, primary: LocalNamespace) -> None:
    primary.create_queue("orders")
    with administer(proxy, "sender") as admin, pytest.raises(ClientAuthenticationError, match="Manage"):
        admin.get_queue("orders")
    assert proxy.counted == []


def test_a_key_of_the_primary_is_none_of_the_proxy(proxy: AdminProxy, primary: LocalNamespace) -> None:
    text = primary.connection_string.replace(str(primary.port), str(proxy.port))
    with (
        ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=proxy.ca_file, retry_total=0
        ) as admin,
        pytest.raises(ClientAuthenticationError),
    ):
        admin.get_queue("orders")


def ask(proxy: AdminProxy, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """A request that no official client would make; without a token unless one is given."""
    context = ssl.create_default_context(cafile=proxy.ca_file)
    with closing(HTTPSConnection("127.0.0.1", proxy.port, context=context, timeout=20)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.read()


def token(proxy: AdminProxy, path: str = "") -> str:
    """For a part of the proxy's namespace."""
    mine = Namespace.from_connection_string(proxy.connection_string)
    return token_source(mine.credential, 1)(f"sb://127.0.0.1:{proxy.port}/{path}").text


ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{}</QueueDescription></content></entry>'
)


def test_rights_to_one_entity_are_none_to_another(proxy: AdminProxy, primary: LocalNamespace) -> None:
    for name in ("orders", "secret"):
        primary.create_queue(name)
    mine = token(proxy, "orders")
    assert ask(proxy, "GET", "/orders", Authorization=mine)[0] == 200
    assert ask(proxy, "GET", "/secret", Authorization=mine)[0] == 401
    for detour in ("/orders/../secret", "/orders/%2e%2e/secret", "/orders/..%5csecret", "/orders/%252e%252e/secret"):
        assert ask(proxy, "DELETE", detour, Authorization=mine)[0] in (400, 401)
    forward = ENTRY.format("<ForwardTo>secret</ForwardTo>").encode()
    assert ask(proxy, "PUT", "/orders", forward, Authorization=mine, If_Match="*")[0] == 401
    also = {"ServiceBusSupplementaryAuthorization": token(proxy, "secret")}
    assert ask(proxy, "PUT", "/orders", forward, Authorization=mine, If_Match="*", **also)[0] == 200


def test_keys_of_entities_are_hidden_and_survive_an_update(
    admin: ServiceBusAdministrationClient, direct: ServiceBusAdministrationClient
) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="app",
        primary_key="cHJpbWFyeS1rZXk=",
        secondary_key="c2Vjb25kYXJ5LWtleQ==",
    )
    admin.create_queue("orders", authorization_rules=[rule])
    queue = admin.get_queue("orders")
    assert [(each.primary_key, each.secondary_key) for each in queue.authorization_rules or ()] == [
        (HIDDEN_KEY, HIDDEN_KEY)
    ]
    admin.update_queue(queue, max_delivery_count=3)
    changed = direct.get_queue("orders")
    assert changed.max_delivery_count == 3
    assert [(each.primary_key, each.secondary_key) for each in changed.authorization_rules or ()] == [
        ("cHJpbWFyeS1rZXk=", "c2Vjb25kYXJ5LWtleQ==")
    ]
    with pytest.raises(HttpResponseError, match="the rule 'app' of this entity has no PrimaryKey yet"):
        admin.create_queue("copy", authorization_rules=queue.authorization_rules)


# --- bad input ---


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("PUT", "/orders", b"hello", 400, b"not a well-formed XML document"),
        ("PUT", "/orders", b"<!DOCTYPE a><a/>", 400, b"must not have a DOCTYPE"),
        ("PUT", "/orders", b"x" * 300_000, 413, b"at most 262144 bytes"),
        ("PUT", "/orders", b"", 400, b"SubCode=40000"),
        ("POST", "/orders/messages", b"42", 405, b"over AMQP only"),
        ("DELETE", "/orders/messages/head", None, 405, b"over AMQP only"),
        ("OPTIONS", "/orders", None, 405, b"over AMQP only"),
        ("GET", "/$nothing", None, 404, b"SubCode=40400"),
        ("PUT", "/", ENTRY.format("").encode(), 400, b"SubCode=40000"),
    ],
)
def test_nonsense_is_refused(
    proxy: AdminProxy, method: str, path: str, body: bytes | None, status: int, text: bytes
) -> None:
    found = ask(proxy, method, path, body, Authorization=token(proxy))
    assert (found[0], text in found[1]) == (status, True), found


@pytest.mark.parametrize("host", ["", "a b", 'x"y', "<x>", "user@host", "a" * 300])
def test_a_host_that_is_none_is_refused(proxy: AdminProxy, host: str) -> None:
    assert ask(proxy, "GET", "/orders", Authorization=token(proxy), Host=host)[0] == 400


# --- a primary in trouble ---


def test_a_primary_that_is_away_is_a_503_that_clients_try_again(proxy: AdminProxy, primary: LocalNamespace) -> None:
    primary.create_queue("orders")
    primary.faults.add("unreachable", how="refuse")
    with administer(proxy) as admin:
        status, text = said(admin, "get_queue", "orders")
        assert (status, "the primary namespace contoso cannot be reached: Connection refused" in text) == (503, True)
    back = threading.Timer(0.5, primary.faults.clear)
    back.start()
    with administer(proxy, retry_total=10, retry_backoff_factor=0.1) as admin:
        assert admin.get_queue("orders").name == "orders"
    back.join()


def test_a_primary_that_stays_silent_is_given_up_in_time(primary: LocalNamespace) -> None:
    with AdminProxy(reach(primary), connect_s=0.5, answer_s=2) as proxy, administer(proxy) as admin:
        primary.faults.add("unreachable", how="silent")
        status, text = said(admin, "get_queue", "orders")
        assert (status, "cannot be reached: no connection in time" in text) == (503, True)


def test_certificates_that_have_changed_are_read_again(tmp_path: Path) -> None:
    with LocalNamespace("contoso", data=tmp_path) as primary:
        access = reach(primary)
        ca = Path(access.sdk_options["connection_verify"])
        kept = ca.read_bytes()
        ca.unlink()
        with AdminProxy(access) as proxy, administer(proxy) as admin:
            status, text = said(admin, "get_queue", "orders")
            assert (status, "cannot be administered" in text) == (503, True)
            ca.write_bytes(kept)
            assert list(admin.list_queues()) == []


class FakePrimary:
    """Answers every request with the same bytes, and remembers the requests."""

    def __init__(self, folder: Path) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {"Content-Type": "application/xml"}, b"<a/>")
        self.echoes_headers = self.hangs_up = False
        self.holds = threading.Event()
        self.holds.set()
        self.is_crowded = threading.Event()
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()
        self._identity = temporary_identity(folder, frozenset({"127.0.0.1"}), datetime.now(UTC))

    @contextmanager
    def serve(self) -> Iterator[Namespace]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                with fake._lock:
                    fake.at_once += 1
                    fake.at_once_max = max(fake.at_once, fake.at_once_max)
                    if fake.at_once == AT_ONCE:
                        fake.is_crowded.set()
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.seen.append((self.command, self.path, dict(self.headers.items()), body))
                fake.holds.wait(20)
                if fake.hangs_up:
                    self.close_connection = True
                    return
                status, headers, answer = fake.answer
                if fake.echoes_headers:
                    answer = "".join([f"{name}: {value}\n" for name, value in self.headers.items()]).encode()
                with fake._lock:
                    fake.at_once -= 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.socket = new_context(self._identity).wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Namespace.from_connection_string(
                f"Endpoint=sb://127.0.0.1:{server.server_address[1]};SharedAccessKeyName=root;SharedAccessKey={KEY};"
                f"TwinbusNamespace=contoso;TwinbusCA={self._identity.ca}"
            )
        finally:
            self.holds.set()
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.fixture
def fake(tmp_path: Path) -> FakePrimary:
    return FakePrimary(tmp_path)


def test_nothing_of_an_application_that_proves_something_travels_to_the_primary(fake: FakePrimary) -> None:
    with fake.serve() as namespace, AdminProxy(namespace) as proxy:
        body = ENTRY.format("<ForwardTo>x</ForwardTo>").encode()
        given = token(proxy)
        mine = {"Authorization": given, "ServiceBusSupplementaryAuthorization": given, "x-ms-authorization": given}
        others = {"Cookie": "a=b", "X-Forwarded-For": "10.0.0.1", "If-Match": "*", "User-Agent": "ours"}
        assert ask(proxy, "PUT", "/orders?api-version=2021-05", body, **mine, **others)[0] == 200
        (request,) = fake.seen
        method, path, headers, sent = request
        assert (method, path, sent) == ("PUT", "/orders?api-version=2021-05", body)
        assert set(headers) == {
            *("Host", "Authorization", "ServiceBusSupplementaryAuthorization", "If-Match", "User-Agent"),
            *("Accept", "Accept-Encoding", "Content-Length", "Connection"),
        }
        assert given not in headers.values()
        assert "skn=root" in headers["Authorization"]
        assert "%2Fx&" in headers["ServiceBusSupplementaryAuthorization"]
        assert headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("status", [400, 401, 500])
def test_no_token_and_no_key_of_the_proxy_comes_back(
    fake: FakePrimary, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    fake.echoes_headers = True
    fake.answer = (status, {"Content-Type": "text/plain", "ETag": KEY}, b"")
    with caplog.at_level(logging.DEBUG), fake.serve() as namespace, AdminProxy(namespace) as proxy:
        found, text = ask(proxy, "GET", "/orders", Authorization=token(proxy))
    assert (found, b"sig=***" in text) == (status, True)
    signature = fake.seen[0][2]["Authorization"].partition("sig=")[2].partition("&")[0]
    for secret in (signature, KEY):
        assert secret not in text.decode() + caplog.text


def test_a_web_token_does_not_come_back_either(
    fake: FakePrimary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Tokens:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            from azure.core.credentials import AccessToken

            return AccessToken("a-web-token-of-the-proxy", 2**31)

    fake.echoes_headers = True
    fake.answer = (403, {"Content-Type": "text/plain"}, b"")
    with caplog.at_level(logging.DEBUG), fake.serve() as namespace:
        other = Namespace(namespace.address, Tokens(), **namespace.sdk_options)
        with AdminProxy(other) as proxy:
            _, text = ask(proxy, "GET", "/orders", Authorization=token(proxy))
    assert fake.seen[0][2]["Authorization"] == "Bearer a-web-token-of-the-proxy"
    assert b"Bearer ***" in text
    assert "a-web-token-of-the-proxy" not in text.decode() + caplog.text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (200, {"Content-Type": "text/html"}, b"<html>Log in to this network</html>"),
            b"as a Service Bus namespace does",
        ),
        ((200, {}, b"<a/>"), b"as a Service Bus namespace does"),
        ((200, {"Content-Type": "application/xml", "Content-Encoding": "gzip"}, b"\x1f"), b"as a Service Bus"),
        ((200, {"Content-Type": "application/xml"}, b"<a>"), b"a document that cannot be read"),
        ((200, {"Content-Type": "application/xml"}, b" " * (ANSWER_BYTES_MAX + 1)), b"is longer than"),
    ],
)
def test_an_upstream_that_is_no_service_bus_is_a_502(
    fake: FakePrimary, answer: tuple[int, dict[str, str], bytes], text: bytes
) -> None:
    fake.answer = answer
    with fake.serve() as namespace, AdminProxy(namespace) as proxy:
        status, found = ask(proxy, "GET", "/orders", Authorization=token(proxy))
        assert (status, text in found) == (502, True), found


def test_headers_that_matter_come_back_and_others_do_not(fake: FakePrimary) -> None:
    fake.answer = (
        503,
        {"Content-Type": "application/xml", "Retry-After": "7", "Set-Cookie": "a=b", "WWW-Authenticate": "Bearer x"},
        b"<Error><Code>503</Code></Error>",
    )
    with fake.serve() as namespace, AdminProxy(namespace) as proxy, administer(proxy) as admin:
        with pytest.raises(HttpResponseError) as refused:
            admin.get_queue("orders")
        headers: dict[str, str] = getattr(refused.value.response, "headers", {})
        assert (headers["Retry-After"], headers["Content-Type"]) == ("7", "application/xml")
        assert not {"Set-Cookie", "WWW-Authenticate"} & set(headers)


def test_a_primary_that_does_not_answer_is_a_504_within_the_time(fake: FakePrimary) -> None:
    fake.holds.clear()
    with fake.serve() as namespace, AdminProxy(namespace, answer_s=0.5) as proxy:
        status, text = ask(proxy, "DELETE", "/orders", Authorization=token(proxy))
        assert (status, b"has not answered within 0.5 s; check the entity" in text) == (504, True)
        fake.holds.set()


def test_a_primary_that_hangs_up_is_a_504_and_is_not_asked_twice(fake: FakePrimary) -> None:
    fake.hangs_up = True
    with fake.serve() as namespace, AdminProxy(namespace) as proxy:
        for method in ("DELETE", "PUT", "GET"):
            status, text = ask(proxy, method, "/orders", b"<a/>", Authorization=token(proxy))
            assert (status, b"was lost before it answered" in text) == (504, True), text
    assert [method for method, *_ in fake.seen] == ["DELETE", "PUT", "GET"]


def test_few_requests_are_under_way_at_once(fake: FakePrimary) -> None:
    fake.holds.clear()
    with fake.serve() as namespace, AdminProxy(namespace) as proxy:
        mine = token(proxy)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(ask(proxy, "GET", "/orders", Authorization=mine)[0]))
            for _ in range(3 * AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        fake.is_crowded.wait(20)
        fake.holds.set()
        for thread in threads:
            thread.join()
    assert found == [200] * (3 * AT_ONCE)
    assert fake.at_once_max == AT_ONCE


# --- Entra ID ---


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityEndpoint]:
    with identity_endpoint() as endpoint:
        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        yield endpoint


def test_the_proxy_itself_may_use_entra_id(machine: IdentityEndpoint) -> None:
    from azure.identity import ManagedIdentityCredential

    with LocalNamespace("contoso", jwt_issuers=[issuer()]) as primary:
        namespace = Namespace.from_connection_string(keyless(primary), credential=ManagedIdentityCredential())
        with AdminProxy(namespace) as proxy, administer(proxy) as admin:
            admin.create_queue("last")
            assert admin.create_queue("first", forward_to="last").forward_to == f"sb://127.0.0.1:{proxy.port}/last"


def test_without_a_token_for_the_primary_the_answer_is_a_503(caplog: pytest.LogCaptureFixture) -> None:
    class NoTokens:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            raise ClientAuthenticationError("SharedAccessKey=no-secret-of-ours is wrong")

    with LocalNamespace("contoso") as primary:
        namespace = Namespace.from_connection_string(keyless(primary), credential=NoTokens())
        with AdminProxy(namespace) as proxy, administer(proxy) as admin:
            status, text = said(admin, "get_queue", "orders")
    assert (status, "the proxy has no token for the primary namespace contoso; its log says why" in text) == (503, True)
    assert "no token for administration" in caplog.text
    assert "no-secret-of-ours" not in caplog.text + text
