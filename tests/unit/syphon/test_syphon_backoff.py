"""Pauses of syphons: many that lost the same secondary must not come back at the same moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twinbus.cli.syphon.syphon import options_of
from twinbus.client.namespace import Namespace
from twinbus.spark.access import Access
from twinbus.spark.drain.options import DrainOptions
from twinbus.syphon import Syphon, SyphonOptions

NOBODY = "Endpoint=sb://localhost:1;SharedAccessKeyName=root;SharedAccessKey=key;UseDevelopmentEmulator=true"


def drain_options() -> SyphonOptions:
    access = Access("env:NOWHERE")
    return DrainOptions(primary=access, secondary=access, primary_name="contoso").syphon()


def syphon(options: SyphonOptions) -> Syphon:
    dial = Namespace.from_connection_string(NOBODY).dial(1.0)
    return Syphon(dial, dial, "contoso", 1, options)


def pauses(options: SyphonOptions) -> list[int]:
    backoff = options.new_backoff()
    return [backoff.next_ms() for _ in range(10)]


@pytest.mark.parametrize("make", [SyphonOptions, options_of, drain_options], ids=["client", "program", "task"])
async def test_two_syphons_do_not_come_back_at_the_same_moments(make: Callable[[], SyphonOptions]) -> None:
    one, other = syphon(make()), syphon(make())
    assert pauses(one.pump.options) != pauses(other.pump.options)
    assert pauses(one.options) != pauses(one.options), "nor does one the second time"


async def test_a_pause_is_up_to_a_fifth_shorter_and_never_longer() -> None:
    options = syphon(SyphonOptions(backoff_s=(10.0, 10.0))).options
    backoff = options.new_backoff()
    found = [backoff.next_ms() for _ in range(1_000)]
    assert min(found) >= 8_000
    assert max(found) <= 10_000
    assert max(found) - min(found) > 1_000


async def test_whoever_says_where_chance_comes_from_is_obeyed() -> None:
    numbers = iter([0.0, 0.5, 1.0])
    options = syphon(SyphonOptions(backoff_s=(10.0, 10.0), chance=lambda: next(numbers))).options
    backoff = options.new_backoff()
    assert [backoff.next_ms() for _ in range(3)] == [8_000, 9_000, 10_000]


def test_a_pump_by_itself_leaves_nothing_to_chance() -> None:
    assert pauses(SyphonOptions()) == pauses(SyphonOptions())
