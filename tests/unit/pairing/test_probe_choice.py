"""How the primary is asked whether it is back: pings only where they are known to be dropped, or asked for (P7)."""

from __future__ import annotations

from typing import Literal

import pytest
from scripted_bus import OK, REFUSED, ScriptedBus

from twinbus.client.flows.io_requests import Probe
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.client.sdk.internals.connections import _offered
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.receipt import NamespaceSide

SECONDARY = Namespace.from_connection_string("Endpoint=sb://b.example;SharedAccessKeyName=k;SharedAccessKey=a2V5")


@pytest.mark.parametrize(
    ("option", "drops_pings", "expected"),
    [
        ("auto", None, "link"),
        ("auto", True, "ping"),
        ("auto", False, "link"),
        ("ping", None, "ping"),
        ("ping", False, "ping"),
        ("link", True, "link"),
    ],
)
def test_a_primary_is_pinged_if_it_is_known_to_drop_pings_or_if_that_was_asked_for(
    option: Literal["auto", "ping", "link"], drops_pings: bool | None, expected: str
) -> None:
    pair = Pair(Rules(probe=option))
    pair.drops_pings = drops_pings
    assert pair.probe == expected


def test_auto_is_what_you_get_unless_you_ask_for_something_else() -> None:
    assert SendAvailabilityPairedNamespaceOptions(SECONDARY).rules().probe == "auto"


def test_what_is_learnt_during_an_outage_counts_from_the_next_probe_on() -> None:
    bus = ScriptedBus(Rules(failover_interval_s=0, ping_interval_s=10, probe="auto"))
    bus.force_failover()
    bus.probe.always = REFUSED
    bus.run_until(12)
    bus.pair.drops_pings = True
    bus.run_until(22)
    bus.probe.always = OK
    bus.run_until(32)
    assert [asked.ask.sends_ping for asked in bus.asks(Probe) if isinstance(asked.ask, Probe)] == [False, True, True]
    assert [heard.text for heard in bus.events_named("ping_sent")] == ["by link", "by ping", "by ping"]
    assert bus.orders.side is NamespaceSide.PRIMARY


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (None, set()),
        (b"twinbus:drops-pings", {"twinbus:drops-pings"}),
        ([b"a", b"twinbus:drops-pings"], {"a", "twinbus:drops-pings"}),
        ((), set()),
    ],
)
def test_what_a_peer_offers_is_nothing_one_symbol_or_several(offered: object, expected: set[str]) -> None:
    assert _offered([None] * 7 + [offered, None, None]) == expected
    assert _offered([None] * 3) == set()
