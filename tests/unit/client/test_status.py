"""A status reads as a table and turns into JSON."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from sample_status import NOW, ORDERS, QUEUES, STATUS

from twinbus.client.reporting.status import EntityStatus, Phase, SecondaryStatus, Status

TABLE = """\
contoso -> backup: paired, 2026-05-01 12:00:00 UTC

entity    state        for        primary  backlog  held  in doubt  failovers  next ping  reason
orders    failed over  1 h 6 min  1200     340      0     0         1          in 31 s    unreachable: refused
invoices  healthy                 7        0        0     0         0

backlog queue                    state                     sent  reason
contoso/x-servicebus-transfer/0  in rotation               340
contoso/x-servicebus-transfer/1  lost, tried again in 9 s  0     quota exceeded

backlog: waiting 340, oldest 1 min 39 s, full in 1 h 30 min, syphon not seen, looked at 2 min ago
backlog: queue settings unknown
backlog: this client put 340 messages there, the first 5 min ago, the last 1 s ago; some may be home by now
syphon: running, 12 messages are home, 0/s, 1 in quarantine, orders down
order: sessions that go through the backlog 1, messages not home 3
order: orders, session 'a': about 3 to come from contoso/x-servicebus-transfer/0
warning: duplicate detection of orders is off"""


def test_a_status_reads_as_a_table() -> None:
    assert str(STATUS) == TABLE


def test_what_nobody_knows_is_said_to_be_unknown() -> None:
    looked = SecondaryStatus(checked_at=NOW, looked_at=NOW)
    text = str(Status(at=NOW, primary="contoso", secondary="backup", secondary_status=looked))
    assert "nothing was sent yet" in text
    assert "waiting unknown, oldest unknown, full in unknown, syphon unknown, looked at 0 s ago" in text
    proven = SecondaryStatus(checked_at=NOW)
    text = str(Status(at=NOW, primary="contoso", secondary="backup", secondary_status=proven))
    assert "can be used as of 0 s ago, not looked into yet" in text
    bound = SecondaryStatus(checked_at=NOW, looked_at=NOW, waiting_at_least=1_000)
    assert "waiting at least 1000," in str(Status(at=NOW, primary="a", secondary="b", secondary_status=bound))
    assert "not looked at yet" in str(Status(at=NOW, primary="contoso", secondary="backup"))


def test_a_status_turns_into_json_and_says_everything() -> None:
    plain = json.loads(json.dumps(STATUS.as_dict(), allow_nan=False))
    assert plain["at"] == "2026-05-01T12:00:00+00:00"
    assert plain["entities"][0]["state"] == "failed over"
    assert plain["backlog_queues"][1]["lost_until"] == "2026-05-01T12:00:09+00:00"
    assert plain["secondary_status"]["warnings"] == ["duplicate detection of orders is off"]
    assert set(plain) == {field.name for field in fields(Status)} | {"news_dropped"}  # the old name of events_dropped
    assert set(plain["entities"][0]) == {field.name for field in fields(EntityStatus)}


def test_a_backlog_that_does_not_grow_lasts_for_ever() -> None:
    calm = Status(
        at=NOW,
        primary="contoso",
        secondary="backup",
        secondary_status=SecondaryStatus(checked_at=NOW, looked_at=NOW, capacity_hours=float("inf")),
    )
    assert "full in never" in str(calm)
    assert calm.as_dict()["secondary_status"]["capacity_hours"] is None


def test_a_fault_is_said_with_its_reason() -> None:
    ended = Status(at=NOW, primary="contoso", secondary="backup", phase=Phase.FAULTED, fault="the key was revoked")
    assert str(ended).startswith("contoso -> backup: faulted (the key was revoked), ")


@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        (STATUS, False),
        (Status(at=NOW, primary="a", secondary="b"), True),
        (Status(at=NOW, primary="a", secondary="b", phase=Phase.CLOSED), False),
        (Status(at=NOW, primary="a", secondary="b", backlog_queues=QUEUES), False),
        (Status(at=NOW, primary="a", secondary="b", backlog_queues=QUEUES[:1]), True),
    ],
)
def test_healthy_means_nothing_is_in_question(status: Status, healthy: bool) -> None:
    assert status.is_healthy is healthy


def test_an_entity_is_found_whatever_its_case() -> None:
    assert STATUS.entity("Orders") is ORDERS
    assert STATUS.entity("parcels") is None
