"""Settings of a queue, and names."""

from __future__ import annotations

import json

import pytest

from twinbus.broker.entities.settings import QueueSettings, check_entity_path
from twinbus.errors import OptionsError, StoreDamaged


def test_settings_are_read_back_as_they_were_written() -> None:
    settings = QueueSettings(lock_ms=5_000, max_size_mb=2, max_delivery_count=1, default_ttl_ms=1_000)
    assert QueueSettings.from_text(settings.to_text(), "orders") == settings
    assert QueueSettings.from_text("{}", "orders") == QueueSettings()


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(OptionsError) as caught:
        QueueSettings(lock_ms=1, max_size_mb=0, max_delivery_count=0, default_ttl_ms=999)
    text = str(caught.value)
    assert text.count(";") == 3
    assert "5 s to 5 min" in text


def test_settings_of_a_newer_version_are_not_dropped_in_silence() -> None:
    with pytest.raises(StoreDamaged, match="shiny"):
        QueueSettings.from_text(json.dumps({"shiny": True}), "orders")


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "",
        "[]",
        "5",
        '"text"',
        "null",
        '{"lock_ms": 1}',
        '{"lock_ms": "long"}',
        '{"lock_ms": null}',
        '{"status": "Asleep"}',
        '{"authorization_rules": [1]}',
        '{"authorization_rules": [["a"]]}',
        '{"forward_to": "no entity"}',
    ],
)
def test_stored_settings_that_cannot_be_are_damage(text: str) -> None:
    with pytest.raises(StoreDamaged):
        QueueSettings.from_text(text, "orders")


@pytest.mark.parametrize("path", ["a", "orders", "Orders/2024.eu_x-y~z", ".a", "a..b/c.", "a" * 260])
def test_good_names(path: str) -> None:
    check_entity_path(path)


@pytest.mark.parametrize("path", [".", "..", "...", "../x", "a/./b", "a/.."])
def test_a_part_that_is_only_dots_is_no_name(path: str) -> None:
    with pytest.raises(OptionsError, match="only dots"):
        check_entity_path(path)


@pytest.mark.parametrize("path", ["", "a" * 261, "/a", "a/", "a//b", "a b", "ä", "a$", "orders/$deadletterqueue"])
def test_bad_names(path: str) -> None:
    with pytest.raises(OptionsError):
        check_entity_path(path)
