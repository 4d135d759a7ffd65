"""What clients on threads and on tasks have in common."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinbus.client.core.any_client import checked_path, known_entity, sent_directly
from twinbus.client.core.any_sender import AnySender
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.errors import OptionsError
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules


def sender(entity: Entity, sent_directly: int) -> AnySender:
    return cast("AnySender", SimpleNamespace(entity=entity, sent_directly=sent_directly))


def test_what_went_straight_is_counted_by_entity_in_one_pass() -> None:
    orders, invoices, idle = (Entity(path, Rules(), count()) for path in ("orders", "invoices", "idle"))
    counts = sent_directly(sender(entity, sent) for entity, sent in ((orders, 3), (invoices, 1), (orders, 4)))
    assert [counts[entity] for entity in (orders, invoices, idle)] == [7, 1, 0]


@pytest.mark.parametrize("written", ["eu/orders", "/eu/orders", "eu/orders/", "//eu/orders//"])
def test_slashes_around_a_name_do_not_count(written: str) -> None:
    assert checked_path(written) == "eu/orders"


@pytest.mark.parametrize("wrong", ["", " ", "/", "//", " / ", None, 7])
def test_without_a_name_there_is_no_entity(wrong: Any) -> None:
    with pytest.raises(OptionsError, match="must not be empty"):
        checked_path(wrong)


def test_declared_names_have_no_slashes_around_them_either() -> None:
    secondary: Any = SimpleNamespace(address="backup:5671")
    options = SendAvailabilityPairedNamespaceOptions(secondary, entities=["/eu/orders/", "invoices"])
    assert options.entities == ("eu/orders", "invoices")
    with pytest.raises(OptionsError, match="entities must be names"):
        SendAvailabilityPairedNamespaceOptions(secondary, entities=["/"])


def test_an_entity_that_is_known_is_found_however_it_is_written() -> None:
    pair = Pair(Rules(), entities=["orders"])
    assert known_entity(pair, "/Orders/") is pair.entity("orders")


def test_of_many_entities_only_some_are_reported() -> None:
    pair = Pair(Rules(), entities=[f"queue-{number}" for number in range(12)])
    with pytest.raises(OptionsError, match=r"known are queue-0, .*, queue-9 and 2 more: get a sender") as raised:
        known_entity(pair, "queue-12")
    assert "queue-10" not in str(raised.value)
    assert len(pair.entities) == 12, "asking for it does not make it known"
