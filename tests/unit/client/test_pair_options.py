"""Options of a pairing: defaults of the documents, ranges, and every problem in one message."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.namespace import Namespace
from twinbus.client.options import (
    NUMBERS,
    TIMES,
    PairedNamespaceOptions,
    Retry,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.errors import OptionsError
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import ErrorClass
from twinbus.units import exact_duration

SECONDARY = Namespace.from_connection_string(
    "Endpoint=sb://backup.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0LXNlY3JldA=="
)
TICK = timedelta(microseconds=1)


def options(**given: Any) -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(SECONDARY, **given)


def problem_with(**given: Any) -> str:
    with pytest.raises(OptionsError) as refused:
        options(**given)
    return str(refused.value)


def test_the_secondary_is_enough() -> None:
    chosen = options()
    assert chosen.failover_interval == chosen.ping_primary_interval == timedelta(minutes=1)
    assert chosen.backlog_queue_count == 10
    assert chosen.enable_syphon is False


def test_the_rules_of_the_defaults_are_the_cores_defaults() -> None:
    assert options().rules() == Rules()


def test_every_number_reaches_the_rules_in_seconds() -> None:
    chosen = options(
        failover_interval=timedelta(seconds=14),
        ping_primary_interval=timedelta(seconds=2),
        pings_to_return=3,
        probation=timedelta(seconds=4),
        attempt_timeout=timedelta(milliseconds=500),
        retry=Retry(attempts=6, backoff_min=timedelta(seconds=7), backoff_max=timedelta(seconds=8)),
        hold_sends=True,
        hold_count_max=9,
        hold_bytes_max=1_024,
        hold_time_max=timedelta(seconds=11),
        failover_error_rate=0.5,
        failover_error_window=timedelta(seconds=12),
        failover_error_sends_min=13,
        probe="link",
    )
    assert chosen.rules() == Rules(
        failover_interval_s=14.0,
        ping_interval_s=2.0,
        pings_to_return=3,
        probation_s=4.0,
        attempt_s=0.5,
        attempts=6,
        backoff_min_s=7.0,
        backoff_max_s=8.0,
        hold_sends=True,
        hold_count_max=9,
        hold_bytes_max=1_024,
        hold_time_max_s=11.0,
        error_rate=0.5,
        error_window_s=12.0,
        error_sends_min=13,
        probe="link",
    )


@pytest.mark.parametrize("name", TIMES)
def test_a_length_of_time_is_taken_to_its_bounds_and_no_further(name: str) -> None:
    low, high = TIMES[name]
    for fine in (low, high):
        assert getattr(options(**{name: fine}), name) == fine
    for wrong in (low - timedelta(milliseconds=1), high + timedelta(milliseconds=1)):
        text = f"{name} must be from {exact_duration(low)} to {exact_duration(high)}, got {exact_duration(wrong)}"
        assert problem_with(**{name: wrong}) == text
    assert name in problem_with(**{name: high + TICK})


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_taken_to_its_bounds_and_no_further(name: str) -> None:
    low, high = NUMBERS[name]
    for fine in (low, high):
        assert getattr(options(**{name: fine}), name) == fine
    for wrong in (low - 1, high + 1):
        assert problem_with(**{name: wrong}) == f"{name} must be from {low} to {high}, got {wrong}"
    assert problem_with(**{name: True}) == f"{name} must be a whole number, got True"
    assert problem_with(**{name: 2.0}) == f"{name} must be a whole number, got 2.0"


def test_all_problems_are_in_one_message() -> None:
    text = problem_with(ping_primary_interval=timedelta(0), backlog_queue_count=0)
    assert text == (
        "ping_primary_interval must be from 1 s to 30 min, got 0 s; backlog_queue_count must be from 1 to 100, got 0"
    )


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"failover_interval": 5}, "failover_interval must be a timedelta, got 5: write timedelta(seconds=5)"),
        ({"probation": 0.5}, "probation must be a timedelta, got 0.5: write timedelta(seconds=0.5)"),
        ({"attempt_timeout": None}, "attempt_timeout must be a timedelta, got None"),
        ({"ttl": "reset"}, 'ttl must be "remaining" or "restart", got \'reset\''),
        ({"probe": None}, 'probe must be "auto" or "ping" or "link", got None'),
        ({"order": "strict"}, "order must be None or \"session\", got 'strict'"),
        (
            {"order": "session"},
            'order="session" needs enable_syphon=True in the same client: '
            "only who brings messages home knows when later ones may go to the primary again",
        ),
        ({"hold_sends": "yes"}, "hold_sends must be True or False, got 'yes'"),
        ({"enable_syphon": 1}, "enable_syphon must be True or False, got 1"),
        ({"failover_error_rate": 0}, "failover_error_rate must be above 0 and at most 1, or None, got 0"),
        ({"failover_error_rate": 1.01}, "failover_error_rate must be above 0 and at most 1, or None, got 1.01"),
        (
            {"failover_error_rate": float("nan")},
            "failover_error_rate must be above 0 and at most 1, or None, got nan",
        ),
        ({"retry": 3}, "retry must be a Retry, as Retry(attempts=3), got 3"),
        ({"ledger": 3}, "ledger must be a folder or None, got 3"),
        ({"spool": 3}, "spool must be a folder or None, got 3"),
        ({"spool": ""}, "spool must be a folder or None, got ''"),
        (
            {"spool_max": "much"},
            "spool_max takes a number of bytes, or one with KB, MB, GB, KiB, MiB or GiB, e.g. 2GB; got 'much'",
        ),
        (
            {"order": "session", "enable_syphon": True, "spool": "spool"},
            'order="session" and spool exclude each other: what is in the spool of another process, or was left behind '
            "by one that was killed, could be overtaken; leave one of them out",
        ),
        ({"classifier": "own"}, "classifier must be \"documented\" or a function of a Failure, got 'own'"),
        (
            {"primary_name": "my bus"},
            "primary_name has 2 to 50 letters, digits and hyphens, a letter first and no hyphen last, got 'my bus'",
        ),
        ({"entities": "orders"}, 'entities must be several names, as ("orders", "invoices"), got \'orders\''),
        (
            {"syphon_entities": "orders"},
            'syphon_entities must be several names, as ("orders", "invoices"), got \'orders\'',
        ),
        (
            {"syphon_entities": []},
            "syphon_entities must name an entity, or be None for all; a process without a syphon leaves it out",
        ),
        (
            {"syphon_entities": ["orders"], "order": "session", "enable_syphon": True},
            'order="session" and syphon_entities exclude each other: a session returns to the primary only when its '
            "backlog queue was seen empty, and a message for another entity would stay there and keep it from that; "
            "leave syphon_entities out, and let the syphon's key send to those entities only",
        ),
        ({"entities": 3}, 'entities must be several names, as ("orders", "invoices"), got 3'),
        ({"entities": ["orders", " "]}, "entities must be names of 1 to 260 characters, got [' ']"),
    ],
)
def test_a_problem_says_what_would_be_right(wrong: dict[str, Any], text: str) -> None:
    assert problem_with(**wrong) == text


def test_a_size_may_be_written_as_text_and_a_spool_reaches_the_rules() -> None:
    assert options(spool_max="2GB").spool_max == 2_000_000_000
    assert options(spool_max=100_000).spool_max == 100_000
    assert options(spool="/var/spool/shop").rules().has_spool
    assert not options().rules().has_spool


def test_a_connection_string_is_no_secondary_and_is_not_repeated() -> None:
    with pytest.raises(OptionsError, match="must be a Namespace, got text") as refused:
        SendAvailabilityPairedNamespaceOptions(cast("Namespace", "Endpoint=sb://x/;SharedAccessKey=hush"))
    assert "hush" not in str(refused.value)
    with pytest.raises(OptionsError, match="got NoneType"):
        PairedNamespaceOptions(cast("Namespace", None))


def test_the_base_checks_what_it_has() -> None:
    assert PairedNamespaceOptions(SECONDARY, failover_interval=timedelta(0)).failover_interval == timedelta(0)
    with pytest.raises(OptionsError, match="failover_interval must be from 0 s to 1 h, got -1 s"):
        PairedNamespaceOptions(SECONDARY, failover_interval=timedelta(seconds=-1))


def test_only_the_secondary_is_given_by_position() -> None:
    with pytest.raises(TypeError):
        SendAvailabilityPairedNamespaceOptions(SECONDARY, timedelta(0))  # type: ignore[call-arg]


def test_options_do_not_change_once_made() -> None:
    names = ["orders"]
    chosen = options(entities=names)
    names.append("invoices")
    assert chosen.entities == ("orders",)
    with pytest.raises(FrozenInstanceError):
        chosen.hold_sends = True  # type: ignore[misc]


def test_a_classifier_is_a_function_or_the_documents_rule() -> None:
    assert options(classifier=lambda failure: ErrorClass.RAISE).classifier is not None
    assert options(classifier="documented").classifier == "documented"


def test_retries_have_bounds_and_an_order() -> None:
    with pytest.raises(OptionsError) as refused:
        Retry(attempts=0, backoff_min=timedelta(minutes=2))
    assert str(refused.value) == (
        "backoff_min must be from 0 s to 1 min, got 2 min; attempts must be from 1 to 20, got 0"
    )
    with pytest.raises(OptionsError, match=r"backoff_max must not be less than backoff_min \(3 s\), got 2 s"):
        Retry(backoff_min=timedelta(seconds=3))


def test_holding_for_less_than_a_failover_takes_is_warned_about() -> None:
    assert options().warnings() == ()
    (warning,) = options(hold_sends=True, failover_interval=timedelta(minutes=3)).warnings()
    assert warning.startswith("sends are held for at most 2 min and failover takes 3 min")


def test_every_option_with_a_range_exists() -> None:
    names = {each.name for each in fields(SendAvailabilityPairedNamespaceOptions)}
    assert set(TIMES) | set(NUMBERS) <= names


@given(st.timedeltas(timedelta(days=-9), timedelta(days=9)))
def test_words_for_a_length_add_up_to_it(length: timedelta) -> None:
    units = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
    words = exact_duration(length).lstrip("-").split(" ")
    total = sum(int(count) * units[unit] for count, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(total - abs(length) / timedelta(milliseconds=1)) <= 0.5
