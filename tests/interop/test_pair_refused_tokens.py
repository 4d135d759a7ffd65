"""As on Azure: a token for an entity that is not there is refused, before a link to it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusConnectionError
from paired import Heard, PairHarness

from twinbus import Namespace, NamespaceSide
from twinbus.amqp.codec.types import Int, Symbol
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.claims import ClaimBook
from twinbus.broker.links.cbs import put_token as take
from twinbus.broker.links.request_messages import Request, write_response
from twinbus.testing import LocalNamespace

GONE = "gone"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    """A primary that answers as the service does: with a status, and with a condition, for which the SDK drops it."""

    def put_token(request: Request, authority: Authority, claims: ClaimBook, now_ms: int) -> bytes:
        if not str(request.properties["name"]).endswith(GONE):
            return take(request, authority, claims, now_ms)
        said = {"status-code": Int(404), "status-description": "not there", "error-condition": Symbol("amqp:not-found")}
        return write_response(request, said, None)

    monkeypatch.setattr("twinbus.broker.links.request_nodes.put_token", put_token)
    with LocalNamespace("contoso") as running:
        yield Namespace.from_connection_string(running.connection_string)


def test_a_declared_entity_whose_token_is_refused_as_not_there_is_an_outage(both: PairHarness, here: Namespace) -> None:
    with both.client_of(here, both.secondary.namespace, entities=[GONE]) as bus:
        heard = Heard(bus)
        assert bus.get_queue_sender(GONE).send_messages(ServiceBusMessage("42")).side is NamespaceSide.BACKLOG
        assert "no such entity" in heard.wait_for("failed_over").text
    assert both.backlog_texts() == ["42"]


def test_one_that_nobody_has_seen_is_a_typing_error(both: PairHarness, here: Namespace) -> None:
    with both.client_of(here, both.secondary.namespace) as bus:
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusConnectionError)):
            bus.get_queue_sender(GONE).send_messages(ServiceBusMessage("42"))
        assert bus.status().is_healthy
    assert both.in_backlog() == []
