"""The administration over HTTP: verbs, paths, refusals."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus
from xml.etree.ElementTree import Element, fromstring

import pytest
from admin_harness import KEY, KEY_NAME, START_MS, FakeAdminServer, MemoryNamespace
from aiohttp import ServerDisconnectedError, web
from aiohttp.test_utils import TestClient, TestServer

from twinbus.broker.admin import app as admin_app
from twinbus.broker.admin.admin_server import AbortConnection
from twinbus.broker.admin.app import make_admin_app
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.ops.meter import Metered, Reading
from twinbus.errors import ConditionError, InternalError, NamespaceError, QuotaExceeded, ServerBusy, StoreUnavailable

ATOM = "{http://www.w3.org/2005/Atom}"
Client = TestClient[web.Request, web.Application]


def token(name: str = KEY_NAME, key: str = KEY, scope: str = "https://127.0.0.1", until_ms: int = START_MS * 2) -> str:
    resource, expiry = quote_plus(scope), str(until_ms // 1000)
    signature = base64.b64encode(hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest())
    return f"SharedAccessSignature sr={resource}&sig={quote(signature.decode(), safe='')}&se={expiry}&skn={name}"


def description(fields: str = "", name: str = "QueueDescription") -> bytes:
    schema = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    content = f'<content type="application/xml"><{name} xmlns="{schema}">{fields}</{name}></content>'
    return f'<entry xmlns="http://www.w3.org/2005/Atom">{content}</entry>'.encode()


@pytest.fixture
def namespace() -> MemoryNamespace:
    return MemoryNamespace()


@pytest.fixture
def server(namespace: MemoryNamespace) -> FakeAdminServer:
    return namespace.admin_server()


@pytest.fixture
async def client(server: FakeAdminServer) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_admin_app(server)), headers={"Authorization": token()}) as client:
        yield client


def names(namespace: MemoryNamespace) -> list[str]:
    return [queue.row.path for queue in namespace.gate.machine.registry.queues()]


async def ask(client: Client, method: str, path: str, **options: Any) -> tuple[int, Element | None]:
    """The status and the document of an answer; every document says that it is one."""
    async with client.request(method, path, **options) as answer:
        body = await answer.read()
        if body:
            assert "xml" in answer.headers["Content-Type"]
        return answer.status, fromstring(body) if body else None


async def refusal(client: Client, method: str, path: str, **options: Any) -> tuple[int, str]:
    status, error = await ask(client, method, path, **options)
    assert error is not None
    assert error.tag == "Error"
    assert error.findtext("Code") == str(status)
    text = error.findtext("Detail") or ""
    assert text.startswith(f"SubCode={status}")
    return status, text


# --- what works ---


async def test_a_queue_is_made_found_changed_and_deleted(client: Client, namespace: MemoryNamespace) -> None:
    assert (await ask(client, "PUT", "/orders", data=description()))[0] == 201
    assert (await ask(client, "GET", "/ORDERS?api-version=2099-01&enrich=false"))[0] == 200
    body = description("<MaxDeliveryCount>3</MaxDeliveryCount>")
    assert (await ask(client, "PUT", "/Orders", data=body, headers={"If-Match": "*"}))[0] == 200
    assert namespace.gate.machine.registry.find_queue("orders").settings.max_delivery_count == 3
    assert await ask(client, "DELETE", "/orders/") == (200, None)
    assert names(namespace) == []


@pytest.mark.parametrize("raw", ["/a/b.c-d_e", "/a%2Fb.c-d_e", "/A%2fB.c-d_e"])
async def test_a_name_may_have_slashes_encoded_or_not(client: Client, namespace: MemoryNamespace, raw: str) -> None:
    namespace.ask(CreateQueue("a/b.c-d_e", QueueSettings()))
    status, entry = await ask(client, "GET", raw)
    assert status == 200
    assert entry is not None
    assert entry.findtext(f"{ATOM}title") == "a/b.c-d_e"


async def test_what_an_update_leaves_out_gets_its_default_again(client: Client, namespace: MemoryNamespace) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings(user_metadata="notes")))
    await ask(client, "PUT", "/orders", data=description(), headers={"If-Match": "*"})
    assert namespace.gate.machine.registry.find_queue("orders").settings == QueueSettings()


@pytest.mark.parametrize("path", ["/$Resources/queues", "/$resources/Queues", "/%24Resources/queues"])
async def test_lists_come_in_pages(client: Client, namespace: MemoryNamespace, path: str) -> None:
    for number in range(5):
        namespace.ask(CreateQueue(f"q{number}", QueueSettings()))
    status, feed = await ask(client, "GET", path + "?$skip=2&$top=2")
    assert status == 200
    assert feed is not None
    assert [each.text for each in feed.iterfind(f"{ATOM}entry/{ATOM}title")] == ["q2", "q3"]
    assert len(feed.findall(f"{ATOM}link")) == 2


async def test_a_page_has_at_most_a_hundred(client: Client, namespace: MemoryNamespace) -> None:
    for number in range(101):
        namespace.ask(CreateQueue(f"q{number}", QueueSettings()))
    for query in ("", "?$top=5000"):
        _, feed = await ask(client, "GET", "/$Resources/queues" + query)
        assert feed is not None
        assert len(feed.findall(f"{ATOM}entry")) == 100


async def test_there_are_no_topics(client: Client) -> None:
    status, feed = await ask(client, "GET", "/$Resources/topics?$skip=0&$top=100")
    assert status == 200
    assert feed is not None
    assert feed.findall(f"{ATOM}entry") == []


async def test_the_namespace_describes_itself(client: Client) -> None:
    status, entry = await ask(client, "GET", "/$namespaceinfo?api-version=2021-05")
    assert status == 200
    assert entry is not None
    assert entry.findtext(f"{ATOM}title") == "contoso"


async def test_requests_are_counted_for_the_entity_they_are_about(client: Client, server: FakeAdminServer) -> None:
    body = description()
    await ask(client, "PUT", "/Orders", data=body)
    await ask(client, "GET", "/$namespaceinfo")
    assert server.meter.readings() == [
        Reading("", Metered.MANAGE, 1, 0, 1),
        Reading("orders", Metered.MANAGE, 1, len(body), 1),
    ]


async def test_other_routes_can_stand_beside_it(server: FakeAdminServer) -> None:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="42")

    app = make_admin_app(server)
    app.router.add_get("/metrics", metrics)
    async with TestClient(TestServer(app)) as client, client.get("/metrics") as answer:
        assert await answer.text() == "42"


# --- refusals ---


async def test_what_exists_is_not_made_again(client: Client, namespace: MemoryNamespace) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings(lock_ms=5_000)))
    assert (await refusal(client, "PUT", "/ORDERS", data=description()))[0] == 409
    assert namespace.gate.machine.registry.find_queue("orders").settings.lock_ms == 5_000


@pytest.mark.parametrize(("method", "headers"), [("GET", {}), ("DELETE", {}), ("PUT", {"If-Match": "*"})])
async def test_what_is_missing_is_not_found(client: Client, method: str, headers: dict[str, str]) -> None:
    status, text = await refusal(client, method, "/typo", headers=headers, data=description())
    assert status == 404
    assert "The messaging entity 'typo' could not be found" in text


@pytest.mark.parametrize("path", ["/$Resources/relays", "/$nothing", "/$Resources"])
async def test_addresses_of_the_service_that_it_does_not_have_are_not_found(client: Client, path: str) -> None:
    assert (await refusal(client, "GET", path))[0] == 404


@pytest.mark.parametrize(
    "path", ["/", "//", "/a//b", "/a%20b", "/a%00", "/%C3%A4", "/%FF", "/" + "x" * 261, "/q/$deadletterqueue"]
)
async def test_a_bad_name_is_refused(client: Client, namespace: MemoryNamespace, path: str) -> None:
    status, text = await refusal(client, "PUT", path, data=description())
    assert status == 400
    assert "a queue name" in text
    assert names(namespace) == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_name_is_refused(client: Client, method: str) -> None:
    assert (await refusal(client, method, "/"))[0] == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/orders/subscriptions"),
        ("GET", "/orders/Subscriptions/s1"),
        ("DELETE", "/a/b/subscriptions/s1/rules/r1"),
        ("PUT", "/orders/subscriptions/s1"),
    ],
)
async def test_what_belongs_to_a_topic_that_is_not_there_is_not_found(client: Client, method: str, path: str) -> None:
    status, text = await refusal(client, method, path, data=description(name="SubscriptionDescription"))
    assert status == 404
    assert "could not be found" in text


async def test_a_queue_has_no_subscriptions(client: Client, namespace: MemoryNamespace) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings()))
    body = description(name="SubscriptionDescription")
    assert (await refusal(client, "PUT", "/orders/subscriptions/s1", data=body))[0] == 404
    assert (await refusal(client, "PUT", "/orders/subscriptions/s1", data=description()))[0] == 400


async def test_a_bad_description_makes_nothing_and_changes_nothing(client: Client, namespace: MemoryNamespace) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings()))
    body = description("<LockDuration>PT10M</LockDuration><MaxDeliveryCount>0</MaxDeliveryCount>")
    for path, headers in (("/new", {}), ("/orders", {"If-Match": "*"})):
        status, text = await refusal(client, "PUT", path, data=body, headers=headers)
        assert status == 400
        assert "LockDuration must be from 5 s to 5 min, got 600 s" in text
        assert "MaxDeliveryCount must be from 1 to 2147483647, got 0" in text
    assert names(namespace) == ["orders"]
    assert namespace.gate.machine.registry.find_queue("orders").settings == QueueSettings()


@pytest.mark.parametrize("query", ["$skip=-1", "$top=-1", "$top=0", "$skip=x", "$skip=1.5", "$top=9999999999999999"])
async def test_numbers_that_make_no_page_are_refused(client: Client, query: str) -> None:
    status, text = await refusal(client, "GET", "/$Resources/queues?" + query)
    assert status == 400
    assert query.partition("=")[0] in text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/orders", "DELETE, GET, PUT"),
        ("PATCH", "/orders", "DELETE, GET, PUT"),
        ("DELETE", "/$namespaceinfo", "GET"),
    ],
)
async def test_other_verbs_are_refused_with_those_that_are_possible(
    client: Client, method: str, path: str, allowed: str
) -> None:
    async with client.request(method, path) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)
        assert fromstring(await answer.read()).tag == "Error"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        "Bearer nonsense",
        token(key="wrong"),
        token(name="nobody"),
        token(until_ms=START_MS - 1_000),
        token(name="listener"),
        token(scope="https://127.0.0.1/other"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/orders"), ("PUT", "/new"), ("POST", "/$namespaceinfo")])
async def test_who_has_no_right_learns_nothing_and_does_nothing(
    client: Client, namespace: MemoryNamespace, server: FakeAdminServer, header: str, method: str, path: str
) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings()))
    status, _ = await refusal(client, method, path, headers={"Authorization": header}, data=description())
    assert status == 401
    assert names(namespace) == ["orders"]
    assert server.meter.readings() == []


async def test_a_token_for_one_queue_opens_that_queue(client: Client, namespace: MemoryNamespace) -> None:
    namespace.ask(CreateQueue("orders", QueueSettings()))
    headers = {"Authorization": token(scope="https://127.0.0.1/orders?api-version=2021-05")}
    assert (await ask(client, "GET", "/orders", headers=headers))[0] == 200
    assert (await refusal(client, "GET", "/$Resources/queues", headers=headers))[0] == 401


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ServerBusy("busy"), 503),
        (InternalError("broken"), 503),
        (StoreUnavailable("disk"), 503),
        (QuotaExceeded("full"), 403),
        (ConditionError("com.microsoft:timeout", "late"), 504),
        (ConditionError("com.example:odd", "odd"), 500),
    ],
)
async def test_a_failure_made_on_purpose_is_reported(
    client: Client, server: FakeAdminServer, failure: NamespaceError, status: int
) -> None:
    server.failure = failure
    assert (await refusal(client, "GET", "/orders"))[0] == status


async def test_a_mistake_of_ours_is_reported_without_its_text(server: FakeAdminServer, client: Client) -> None:
    async def broken(command: object) -> NoReturn:
        raise RuntimeError("a mistake of ours")

    server.ask = broken  # type: ignore[method-assign]
    status, text = await refusal(client, "PUT", "/orders", data=description())
    assert status == 500
    assert "a mistake of ours" not in text


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(
    server: FakeAdminServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(command: object) -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(admin_app, "ANSWER_WAIT_S", 0.05)
    server.ask = silent  # type: ignore[method-assign]
    assert (await refusal(client, "GET", "/orders"))[0] == 504


async def test_who_is_to_be_hung_up_on_gets_no_answer(server: FakeAdminServer, client: Client) -> None:
    async def hang_up(path: str, now_ms: int) -> None:
        raise AbortConnection

    server.admit = hang_up  # type: ignore[method-assign]
    with pytest.raises(ServerDisconnectedError):
        await client.request("GET", "/orders")


async def test_a_forced_detach_is_reported_as_unavailable(server: FakeAdminServer, client: Client) -> None:
    server.failure = ConditionError("amqp:link:detach-forced", "it cannot be reached")
    status, text = await refusal(client, "GET", "/orders")
    assert (status, "it cannot be reached" in text) == (503, True)
