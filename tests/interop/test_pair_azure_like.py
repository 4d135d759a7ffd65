"""As on Azure: TLS, credentials instead of connection strings, tracing; nothing that only a twinbus server has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from fake_span import FakeSpan
from paired import AIO, Heard, PairHarness
from served import ISSUER_NAME, ISSUER_SECRET, KEY, Served
from token_makers import python_token, secret_signer, web_token

from twinbus import Namespace, NamespaceSide, receipt_of

ROOT = "RootManageSharedAccessKey"


class Tokens:
    """A token credential as those of azure-identity."""

    def __init__(self, secret: str = ISSUER_SECRET, role: str = "Azure Service Bus Data Owner") -> None:
        self.asked = 0
        self._secret = secret
        self._role = role

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net//.default",)
        self.asked += 1
        until = int(time.time()) + 3_600
        claims = {"iss": ISSUER_NAME, "aud": "https://servicebus.azure.net", "exp": until, "roles": [self._role]}
        return AccessToken(web_token({"alg": "HS256", "typ": "JWT"}, claims, secret_signer(self._secret)), until)


class AioTokens:
    """The same for tasks."""

    def __init__(self) -> None:
        self._tokens = Tokens()

    @property
    def asked(self) -> int:
        return self._tokens.asked

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return self._tokens.get_token(*scopes)

    async def close(self) -> None: ...

    async def __aenter__(self) -> AioTokens:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def reach(side: Served, credential: Any) -> Namespace:
    """With TLS, by address and credential."""
    return Namespace(f"localhost:{side.port}", credential, name=side.name, connection_verify=side.ca_file)


def live_through_an_outage(harness: PairHarness, here: Namespace, there: Namespace, **wishes: Any) -> None:
    with harness.client_of(here, there, **wishes) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(harness.orders)
        assert sender.send_messages(ServiceBusMessage("before")).side is NamespaceSide.PRIMARY
        harness.primary.kill()
        assert sender.send_messages(ServiceBusMessage("during")).side is NamespaceSide.BACKLOG
        harness.primary.start()
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
    assert harness.primary.texts(harness.orders) == ["before", "after"]
    assert harness.backlog_texts() == ["during"]


# --- credentials ---


def test_token_credentials_and_tls_on_both_sides(both: PairHarness) -> None:
    tokens = AioTokens() if both.flavour == AIO else Tokens()
    live_through_an_outage(both, reach(both.primary, tokens), reach(both.secondary, tokens))
    assert 0 < tokens.asked < 30


def test_a_sync_credential_serves_an_asyncio_client_too(harness: PairHarness) -> None:
    tokens = Tokens()
    with harness.client_of(reach(harness.primary, tokens), reach(harness.secondary, tokens), AIO) as bus:
        assert bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY
        bus.force_failover(harness.orders, stay=True)
        assert bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG


@pytest.mark.parametrize("kind", ["key", "signature"])
def test_keys_and_signatures_over_tls(both: PairHarness, kind: str) -> None:
    def credential(side: Served) -> Any:
        if kind == "key":
            return AzureNamedKeyCredential(ROOT, KEY)
        return AzureSasCredential(python_token(f"sb://localhost:{side.port}/", ROOT, KEY, int(time.time()) + 600))

    here, there = (reach(side, credential(side)) for side in (both.primary, both.secondary))
    with both.client_of(here, there) as bus:
        assert bus.backlog_queue_count == 2
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY
        bus.force_failover(both.orders, stay=True)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG


@pytest.mark.parametrize("how", ["silent", "drop"])
def test_over_tls_no_attempt_takes_longer_than_it_may_either(both: PairHarness, how: str) -> None:
    credential = AzureNamedKeyCredential(ROOT, KEY)
    here, there = reach(both.primary, credential), reach(both.secondary, credential)
    with both.client_of(here, there, attempt_timeout=timedelta(seconds=2)) as bus:
        opened, fresh = bus.get_queue_sender(both.orders), bus.get_queue_sender(both.invoices)
        opened.send_messages(ServiceBusMessage("1"))
        both.primary.break_("unreachable", how=how)
        for sender in (opened, fresh):
            began = time.monotonic()
            assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
            assert time.monotonic() - began < 2 + 2 + 10


class Hanging(Tokens):
    """Works until the test stops its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_well = threading.Event()
        self.is_well.set()

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.is_well.wait(30)
        return super().get_token(*scopes, **options)


def test_a_credential_that_hangs_is_an_outage_of_the_primary(both: PairHarness) -> None:
    tokens = Hanging()
    here, there = reach(both.primary, tokens), reach(both.secondary, AzureNamedKeyCredential(ROOT, KEY))
    try:
        with both.client_of(here, there, attempt_timeout=timedelta(seconds=3)) as bus:
            heard = Heard(bus)
            tokens.is_well.clear()
            began = time.monotonic()
            receipt = bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
            assert receipt.side is NamespaceSide.BACKLOG
            assert time.monotonic() - began < 20
            tokens.is_well.set()
            heard.wait_for("recovered")
    finally:
        tokens.is_well.set()


class Refusing(Tokens):
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise ClientAuthenticationError("no such identity")


def test_a_credential_that_is_refused_is_raised_at_once(both: PairHarness) -> None:
    here, there = reach(both.primary, Refusing()), reach(both.secondary, AzureNamedKeyCredential(ROOT, KEY))
    with both.client_of(here, there) as bus:
        with pytest.raises((ClientAuthenticationError, ServiceBusError), match="no such identity"):
            bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
        assert bus.status().is_healthy
    assert both.in_backlog() == []


def test_a_token_that_nobody_believes_is_raised_at_once(both: PairHarness) -> None:
    here, there = (
        reach(both.primary, Tokens(secret="of somebody else, and long enough")),
        reach(both.secondary, AzureNamedKeyCredential(ROOT, KEY)),
    )
    with both.client_of(here, there) as bus:
        with pytest.raises(ServiceBusError) as raised:  # which one is the SDK's choice
            bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert (receipt.attempts, receipt.in_doubt) == (1, False)
        assert bus.status().is_healthy


# --- tracing ---


@pytest.fixture
def tracing() -> Iterator[None]:
    settings.tracing_implementation.set_value(FakeSpan)  # type: ignore[arg-type]
    yield
    settings.tracing_implementation.unset_value()


def context_in(properties: Any) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in properties.items() if not key.startswith(b"x-ms-")}


@pytest.mark.usefixtures("tracing")
def test_the_trace_context_takes_the_detour_too(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("no-send", both.orders)
        sender.send_messages(ServiceBusMessage("2"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("3"))
        sender.send_messages(batch)
    (straight,) = both.primary.messages(both.orders)
    expected = {"Diagnostic-Id": "00-trace-span-01", "traceparent": "00-trace-span-01", "tracestate": "a=b"}
    assert context_in(straight.application_properties) == expected
    for message in both.in_backlog():
        assert context_in(message.application_properties) == expected


def test_a_context_that_the_application_wrote_itself_is_kept(both: PairHarness) -> None:
    written: dict[str | bytes, Any] = {"traceparent": "00-mine-01", "Diagnostic-Id": "00-mine-01"}
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        sender.send_messages(ServiceBusMessage("1", application_properties=written))
    (message,) = both.in_backlog()
    assert context_in(message.application_properties) == written
