"""A primary that is down for long is not a log line for every ping."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from twinbus.client.reporting.event_log import EventLog, RepeatedEvents
from twinbus.client.reporting.events import PairEvent, PairEventName

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ping_failed(
    second: int, text: str = "unreachable: connection refused by 10.0.0.1", entity: str = "orders"
) -> PairEvent:
    return PairEvent(
        PairEventName.PING_FAILED, text, START + timedelta(seconds=second), entity, "contoso", {"since_s": second}
    )


def test_the_first_is_in_full_and_then_a_number_at_growing_intervals() -> None:
    repeated = RepeatedEvents()
    shown = [(second, event) for second in range(3_600) if (event := repeated.to_log(ping_failed(second))) is not None]
    assert [second for second, _ in shown] == [0, 10, 30, 70, 150, 310, 630, 1270, 2550]
    assert shown[0][1] == ping_failed(0)
    assert (
        str(shown[2][1]) == "event=ping_failed entity=orders namespace=contoso times=31 since_s=30 reason=unreachable"
    )


def test_another_reason_another_entity_and_the_next_outage_are_in_full() -> None:
    repeated = RepeatedEvents()
    recovered = PairEvent(PairEventName.RECOVERED, "a ping succeeded", START + timedelta(seconds=3), "orders")
    events = [ping_failed(0), ping_failed(1, "disabled: off"), ping_failed(2, entity="news"), recovered, ping_failed(4)]
    for event in events:
        assert repeated.to_log(event) is event
    assert repeated.to_log(ping_failed(5)) is None


def test_callbacks_get_every_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "twinbus.pairing")
    log, heard = EventLog(), list[PairEvent]()
    log.on("ping_failed", heard.append)
    for second in range(5):
        log.publish(ping_failed(second))
    log.close(within_s=30)
    assert (len(heard), len(caplog.records)) == (5, 1)
