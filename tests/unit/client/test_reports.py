"""What a look at a pair shows, counted together: unknown is unknown, and never nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest

from twinbus.client.inspection.reports import UNTOUCHED_S, Inspection, QueueReport, SideReport

SIDE = SideReport(name="contoso", address="contoso.example:5671", is_reachable=True)
UNKNOWN = QueueReport(path="contoso/x-servicebus-transfer/0", exists=None)
EMPTY = replace(UNKNOWN, exists=True, active=0, dead_letters=0, size_bytes=0, size_bytes_max=1_000)
FULL = replace(EMPTY, active=5, dead_letters=1, size_bytes=400, oldest_age_s=100.0)


def look(*queues: QueueReport, at: float = 1_000.0, earlier: Inspection | None = None) -> Inspection:
    return Inspection(at=at, primary=SIDE, secondary=SIDE, queues=queues, earlier=earlier)


def test_what_nobody_may_read_is_unknown() -> None:
    seen = look(UNKNOWN, UNKNOWN)
    unknown = (seen.waiting_messages, seen.dead_letters, seen.size_bytes, seen.oldest_age_s, seen.capacity_hours)
    assert unknown == (None,) * 5
    assert seen.syphon_seen is None


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    seen = look(FULL, replace(UNKNOWN, exists=True))
    assert (seen.waiting_messages, seen.dead_letters, seen.size_bytes, seen.capacity_hours) == (None,) * 4
    assert (seen.waiting_at_least, seen.unread_queues) == (5, 1)
    assert look(FULL, replace(UNKNOWN, exists=False)).waiting_messages == 5, "nothing lies in what is not there"
    assert look(FULL, replace(UNKNOWN, exists=True, is_readable=True, at_least=1_000)).waiting_at_least == 1_005


def test_queues_are_counted_together() -> None:
    seen = look(FULL, EMPTY, replace(FULL, oldest_age_s=50.0))
    assert (seen.waiting_messages, seen.dead_letters, seen.size_bytes, seen.oldest_age_s) == (10, 2, 800, 100.0)


def test_room_is_left_for_as_long_as_the_backlog_has_grown_so_far() -> None:
    assert look(FULL).capacity_hours == pytest.approx(600 / 4 / 3600)  # 400 bytes in 100 s
    assert look(EMPTY).capacity_hours == inf
    assert look(replace(FULL, oldest_age_s=5.0)).capacity_hours is None, "too young to tell"


def test_two_looks_show_more_than_one() -> None:
    before = look(replace(FULL, size_bytes=300), at=900.0)
    assert look(FULL, earlier=before).capacity_hours == pytest.approx(600 / 1 / 3600)  # 100 bytes in 100 s
    assert look(FULL, earlier=look(FULL, at=900.0)).capacity_hours == inf


def test_a_full_backlog_has_no_room_left() -> None:
    assert look(replace(FULL, size_bytes=1_200)).capacity_hours == 0.0


def test_a_syphon_shows_by_what_it_has_had_in_hand() -> None:
    untouched = replace(FULL, oldest_age_s=UNTOUCHED_S + 1)
    assert look(FULL).syphon_seen is None
    assert look(untouched).syphon_seen is False
    assert look(untouched, replace(FULL, oldest_was_delivered=True)).syphon_seen is True
    assert look(untouched, earlier=look(replace(untouched, active=6), at=1.0)).syphon_seen is True, "it shrinks"


@pytest.mark.parametrize("queue", [UNKNOWN, EMPTY, FULL])
def test_a_look_can_be_written_as_json(queue: QueueReport) -> None:
    seen = look(queue, earlier=look(EMPTY, at=1.0))
    read = json.loads(json.dumps(seen.as_dict(), allow_nan=False))
    assert read["queues"][0]["path"] == queue.path
    assert read["waiting_messages"] == seen.waiting_messages
    assert "earlier" not in read


def test_unlimited_room_is_distinguished_from_unknown_room() -> None:
    assert (look(EMPTY).as_dict()["capacity_hours"], look(EMPTY).as_dict()["is_filling"]) == (None, False)
    assert (look(UNKNOWN).as_dict()["capacity_hours"], look(UNKNOWN).as_dict()["is_filling"]) == (None, None)
