"""Names and settings of backlog queues."""

from __future__ import annotations

import inspect

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS, backlog_path, index_of, is_backlog_path


def test_a_backlog_queue_is_named_after_its_primary() -> None:
    assert backlog_path("contoso", 0) == "contoso/x-servicebus-transfer/0"


@given(st.text("abc-XYZ0123", min_size=1), st.integers(0, 10_000))
def test_the_index_is_found_in_the_path_whatever_its_case(name: str, index: int) -> None:
    assert index_of(backlog_path(name, index), name) == index
    assert index_of(backlog_path(name, index).upper(), name.lower()) == index
    assert index_of(backlog_path(name, index), f"{name}x") is None


@pytest.mark.parametrize(
    "path",
    [
        "orders",
        "",
        "contoso/x-servicebus-transfer",
        "contoso/x-servicebus-transfer/",
        "contoso/x-servicebus-transfer/01",
        "contoso/x-servicebus-transfer/-1",
        "contoso/x-servicebus-transfer/1.5",
        "contoso/x-servicebus-transfer/٣",
        "contoso/x-servicebus-transfer/0/$deadletterqueue",
        "my/contoso/x-servicebus-transfer/0",
    ],
)
def test_any_other_queue_has_no_index(path: str) -> None:
    assert index_of(path, "contoso") is None


def test_the_settings_are_those_of_the_documents_and_cannot_be_changed() -> None:
    assert BACKLOG_SETTINGS["max_size_in_megabytes"] == 5120
    assert BACKLOG_SETTINGS["max_delivery_count"] == 2**31 - 1
    assert BACKLOG_SETTINGS["lock_duration"] == "PT1M"
    with pytest.raises(TypeError):
        BACKLOG_SETTINGS["lock_duration"] = "PT5M"  # type: ignore[index]


def test_every_setting_is_a_keyword_of_the_official_administration_client() -> None:
    keywords = inspect.signature(ServiceBusAdministrationClient.create_queue).parameters
    assert set(BACKLOG_SETTINGS) <= set(keywords)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("contoso/x-servicebus-transfer/0", True),
        ("a/b/X-ServiceBus-Transfer/12", True),
        ("contoso/x-servicebus-transfer/0/$deadletterqueue", True),
        ("contoso/x-servicebus-transfer/0/more", False),
        ("contoso/x-servicebus-transfer/", False),
        ("x-servicebus-transfer/0", False),
        ("orders", False),
    ],
)
def test_backlog_queues_of_any_primary_are_known_by_their_paths(path: str, expected: bool) -> None:
    assert is_backlog_path(path) is expected
