from __future__ import annotations

from dataclasses import fields

import pytest

from twinbus.broker.faults.throttle import ThrottleLimits
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.errors import OptionsError
from twinbus.limit_names import LIMIT_NAMES, parse_limits, with_limits
from twinbus.options import NamespaceOptions


def test_a_limit_of_each_group_finds_its_place() -> None:
    limits = {"connections": 7, "message_bytes_max": 2048, "busy_operations_per_second": 0.5}
    options = with_limits(NamespaceOptions(), limits)
    assert options.server_limits.connections == 7
    assert options.limits.message_bytes_max == 2048
    assert options.throttle.operations_per_second == 0.5


def test_very_large_messages_raise_what_is_kept_for_a_peer() -> None:
    usual = ServerLimits()
    assert usual.for_messages_of(16 * 1024 * 1024) is usual
    raised = usual.for_messages_of(100_000_000)
    assert (raised.held_bytes, raised.held_bytes_all) == (400_000_000, 1_600_000_000)
    own = ServerLimits(held_bytes=2**34, held_bytes_all=2**36)
    assert own.for_messages_of(100_000_000) == own


def test_no_two_limits_have_the_same_name() -> None:
    groups = (TrafficLimits, ServerLimits, ThrottleLimits)
    assert len(LIMIT_NAMES) == sum(len(fields(group)) for group in groups)


def test_an_unknown_limit_lists_those_there_are() -> None:
    with pytest.raises(OptionsError, match=r"no limit is called conections: there are .*connections"):
        with_limits(NamespaceOptions(), {"conections": 7})


@pytest.mark.parametrize(
    "text", ["connections", "connections=", "connections=many", "connections=-1", "connections=nan"]
)
def test_a_limit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="NAME=NUMBER"):
        parse_limits([text])


def test_a_limit_out_of_range_says_the_range() -> None:
    with pytest.raises(OptionsError, match="connections must be from 1 to"):
        with_limits(NamespaceOptions(), parse_limits(["connections=0"]))
    with pytest.raises(OptionsError, match="message_bytes_max must be from 1024 to"):
        with_limits(NamespaceOptions(), parse_limits(["message-bytes-max=1"]))
