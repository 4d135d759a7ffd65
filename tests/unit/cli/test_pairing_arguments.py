"""Options of the paired client on the command line: all of them, by the same names, with the same defaults."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from typer.main import get_command

from twinbus import Namespace, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.cli.arguments.pairing_arguments import (
    DECLARED,
    HELP,
    NOT_HERE,
    PairingArguments,
    flag_of,
    in_flags,
)
from twinbus.cli.main import make_app
from twinbus.errors import OptionsError
from twinbus.units import option_duration, option_size, parse_duration, parse_size

SECONDARY = Namespace.from_connection_string(
    "Endpoint=sb://backup.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=b"
)


def options(**given: Any) -> SendAvailabilityPairedNamespaceOptions:
    return PairingArguments(**given).options(SECONDARY)


def flags() -> set[str]:
    command = get_command(make_app()).commands["proxy"]  # type: ignore[attr-defined]
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


def test_every_option_of_the_client_is_an_option_of_the_proxy() -> None:
    names = {each.name for each in fields(SendAvailabilityPairedNamespaceOptions)} - NOT_HERE - {"retry"}
    names |= {f"retry.{each.name}" for each in fields(Retry)}
    assert {each.name for each in DECLARED} == names
    expected = {"--syphon" if name == "enable_syphon" else flag_of(name) for name in names}
    assert expected <= flags()
    assert {"--syphon", "--ledger", "--retry-attempts", "--no-create-backlog"} <= flags()


def test_the_defaults_are_those_of_the_client() -> None:
    assert options() == SendAvailabilityPairedNamespaceOptions(SECONDARY)


def test_values_become_those_of_the_client() -> None:
    made = options(
        failover_interval="0s",
        enable_syphon=True,
        order="session",
        hold_bytes_max="1MB",
        entities=["orders", "/invoices/"],
        retry_attempts=1,
        retry_backoff_max="5s",
        create_backlog=False,
        failover_error_rate=0.5,
        classifier="documented",
        primary_name="contoso",
    )
    assert made == SendAvailabilityPairedNamespaceOptions(
        SECONDARY,
        failover_interval=timedelta(0),
        enable_syphon=True,
        order="session",
        hold_bytes_max=1_000_000,
        entities=("orders", "invoices"),
        retry=Retry(attempts=1, backoff_max=timedelta(seconds=5)),
        create_backlog=False,
        failover_error_rate=0.5,
        classifier="documented",
        primary_name="contoso",
    )


def test_what_is_wrong_is_said_by_the_names_of_the_command_line() -> None:
    with pytest.raises(OptionsError) as refused:
        options(failover_interval="2h", backlog_queue_count=0, order="session", probe="x")
    assert str(refused.value).startswith(
        "--failover-interval must be from 0 s to 1 h, got 2 h; --backlog-queue-count must be from 1 to 100, got 0; "
        '--probe must be "auto" or "ping" or "link", got \'x\'; --order session needs --syphon in the same client'
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"attempt_timeout": "5"}, "--attempt-timeout: a duration needs a number and a unit"),
        ({"hold_bytes_max": "much"}, "--hold-bytes-max takes a number of bytes"),
        ({"ledger": "."}, "--ledger takes a folder of its own"),
        ({"retry_backoff_min": "3s"}, "--retry-backoff-max must not be less than --retry-backoff-min"),
        ({"classifier": "mine"}, "--classifier must be"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(given: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        options(**given)


def test_words_that_are_no_names_stay() -> None:
    assert in_flags("order may be lost, entities too, in ttl") == "order may be lost, entities too, in ttl"
    assert in_flags("leave syphon_entities out, and retry") == "leave --syphon-entities out, and retry"


def test_defaults_are_written_as_they_are_read() -> None:
    for length in (timedelta(0), timedelta(milliseconds=200), timedelta(seconds=90), timedelta(days=2)):
        assert timedelta(milliseconds=parse_duration(option_duration(length))) == length
    for size in (0, 1_000, 1024, 64 * 1024**2, 1024**3):
        assert parse_size(option_size(size), "--x") == size


def test_every_line_of_help_is_about_an_option_that_is_or_comes() -> None:
    assert {*HELP} - {each.name for each in DECLARED} <= {"spool", "spool_max"}
