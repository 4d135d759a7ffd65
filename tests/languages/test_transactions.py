"""Transactions by the official Java client: the only one of those tested here that has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from local_proxy import LocalProxy

from languages.clients import Client
from languages.conftest import StartClient
from twinbus.testing import LocalNamespace

pytestmark = [pytest.mark.languages, pytest.mark.timeout(900)]


@pytest.fixture
def served() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders", "bills"]) as namespace:
        yield namespace


@pytest.fixture
def java(served: LocalNamespace, start_client: StartClient) -> Client:
    return start_client("java", served.connection_string)


def stored(served: LocalNamespace, entity: str = "orders") -> list[str]:
    with ServiceBusClient.from_connection_string(served.connection_string) as client:
        return [str(message.message_id) for message in client.get_queue_receiver(entity).peek_messages(250)]


def test_what_is_sent_in_a_transaction_is_stored_with_its_commit(java: Client, served: LocalNamespace) -> None:
    java.must("begin", entity="orders", transaction="t")
    java.must("send", entity="orders", how="single", ids=["1"], transaction="t")
    java.must("send", entity="orders", how="batch", ids=["2", "3"], transaction="t")
    java.must("send", entity="orders", how="schedule", ids=["4"], transaction="t")
    assert stored(served) == []
    java.must("commit", entity="orders", transaction="t")
    assert sorted(stored(served)) == ["1", "2", "3", "4"]


def test_nothing_is_stored_of_what_is_rolled_back(java: Client, served: LocalNamespace) -> None:
    java.must("begin", entity="orders", transaction="t")
    java.must("send", entity="orders", how="single", ids=["1"], transaction="t")
    java.must("send", entity="orders", how="schedule", ids=["2"], transaction="t")
    java.must("rollback", entity="orders", transaction="t")
    java.must("send", entity="orders", how="single", ids=["3"])
    assert stored(served) == ["3"]


@pytest.mark.parametrize("how", ["complete", "abandon", "defer", "dead-letter"])
def test_a_message_is_settled_with_the_commit_in_every_way(java: Client, served: LocalNamespace, how: str) -> None:
    java.must("send", entity="orders", how="single", ids=["1"])
    assert java.must("receive", entity="orders", max=1, wait_ms=30_000).ids == ["1"]
    java.must("begin", entity="orders", transaction="t")
    java.must("settle", message="1", how=how, transaction="t")
    java.must("send", entity="orders", how="single", ids=["2"], transaction="t")
    assert stored(served) == ["1"]
    java.must("commit", entity="orders", transaction="t")
    stays = how in ("abandon", "defer")
    assert stored(served) == (["1", "2"] if stays else ["2"])
    assert stored(served, "orders/$deadletterqueue") == (["1"] if how == "dead-letter" else [])


def test_after_a_rollback_the_message_is_still_its_receivers(java: Client, served: LocalNamespace) -> None:
    java.must("send", entity="orders", how="single", ids=["1"])
    assert java.must("receive", entity="orders", max=1, wait_ms=30_000).ids == ["1"]
    java.must("begin", entity="orders", transaction="t")
    java.must("settle", message="1", how="complete", transaction="t")
    java.must("rollback", entity="orders", transaction="t")
    assert stored(served) == ["1"]
    with ServiceBusClient.from_connection_string(served.connection_string) as client:
        found = client.get_queue_receiver("orders").receive_messages(max_wait_time=1)
    assert found == [], "it is locked still"


@pytest.mark.parametrize(("end", "left"), [("rollback", (["1"], [])), ("commit", ([], ["bill"]))])
def test_entities_are_spanned_by_a_client_that_is_built_for_it(
    java: Client, served: LocalNamespace, end: str, left: tuple[list[str], list[str]]
) -> None:
    """What is received first says via which entity is sent: the other clients of the same kind may send anywhere."""
    java.must("cross-entity")
    with ServiceBusClient.from_connection_string(served.connection_string) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("1", message_id="1"))
    assert java.must("receive", entity="orders", max=1, wait_ms=30_000).ids == ["1"]
    java.must("begin", entity="bills", transaction="t")
    java.must("send", entity="bills", how="single", ids=["bill"], transaction="t")
    java.must("settle", message="1", how="complete", transaction="t")
    java.must(end, entity="bills", transaction="t")
    assert (stored(served), stored(served, "bills")) == left


def test_entities_are_not_spanned_by_any_other_client(java: Client, served: LocalNamespace) -> None:
    java.must("begin", entity="orders", transaction="t")
    java.must("send", entity="orders", how="single", ids=["1"], transaction="t")
    refused = java.ask("send", entity="bills", how="single", ids=["2"], transaction="t")
    assert "cannot span multiple top-level entities" in refused.text
    java.must("commit", entity="orders", transaction="t")
    assert (stored(served), stored(served, "bills")) == (["1"], [])


def test_a_transaction_that_has_ended_is_unknown(java: Client) -> None:
    java.must("begin", entity="orders", transaction="t")
    java.must("commit", entity="orders", transaction="t")
    refused = java.ask("send", entity="orders", how="single", ids=["1"], transaction="t")
    assert "no transaction of this connection has this id" in refused.text


def test_through_the_proxy_transactions_are_the_primarys(served: LocalNamespace, start_client: StartClient) -> None:
    with (
        LocalNamespace("secondary") as secondary,
        LocalProxy(served.connection_string, secondary.connection_string, backlog_queue_count=1) as proxy,
    ):
        java = start_client("java", proxy.connection_string)
        for end, left in (("rollback", []), ("commit", ["1", "2"])):
            java.must("begin", entity="orders", transaction=end)
            java.must("send", entity="orders", how="single", ids=["1"], transaction=end)
            java.must("send", entity="orders", how="schedule", ids=["2"], transaction=end)
            assert stored(served) == []
            java.must(end, entity="orders", transaction=end)
            assert sorted(stored(served)) == left
