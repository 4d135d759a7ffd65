"""Rows of the page: what was found here and what processes say, the worse of both; unknown is never nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from board_scene import failed_over, report

from twinbus.board.fleet import Fleet, FleetProcess, ProcessWord
from twinbus.board.report import EntityFinding, ReportedState
from twinbus.client.inspection.reports import AbilityReport, EntityReport, Inspection, QueueReport, SideReport
from twinbus.console import sections
from twinbus.cost.prices import Prices

WORKS, FAILS, UNKNOWN = AbilityReport(works=True), AbilityReport(works=False, why="it broke"), AbilityReport(works=None)


def asked(sending: AbilityReport = WORKS, waiting: int | None = 0) -> EntityReport:
    return EntityReport(
        entity="Orders",
        kind="queue",
        sending=sending,
        receiving=WORKS,
        managing=WORKS,
        waiting=waiting,
        waiting_at_least=waiting or 0,
    )


def seen(*entities: EntityReport, **facts: Any) -> Inspection:
    sides = [SideReport(name=name, address="127.0.0.1:1", is_reachable=True) for name in ("contoso", "backup")]
    return Inspection(at=1_000.0, primary=sides[0], secondary=sides[1], **{"queues": (), "entities": entities} | facts)


def fleet(*findings: EntityFinding) -> Fleet:
    said = report(entities=findings)
    return Fleet(processes=(FleetProcess(report=said, word=ProcessWord.REPORTING, age_s=2.0, sequence=1),))


@pytest.mark.parametrize(
    ("found", "says", "state"),
    [
        (asked(), None, "healthy"),
        (asked(FAILS), None, "failing"),
        (asked(FAILS, waiting=3), None, "failed over"),
        (asked(waiting=3), None, "waiting"),
        (asked(UNKNOWN), None, "unknown"),
        (asked(waiting=None), None, "works"),
        (asked(FAILS, waiting=None), None, "failing"),
        (asked(UNKNOWN, waiting=None), None, "unknown"),
        (asked(waiting=None), EntityFinding(entity="orders", state=ReportedState.SUSPECT, for_s=1.0), "suspect"),
        (asked(), failed_over(), "failed over"),
        (asked(), EntityFinding(entity="orders", state=ReportedState.SUSPECT, for_s=1.0), "suspect"),
        (asked(FAILS), EntityFinding(entity="orders", state=ReportedState.SUSPECT, for_s=1.0), "failing"),
        (asked(), EntityFinding(entity="orders", cannot=("receive",)), "failing"),
        (asked(), EntityFinding(entity="orders", cannot=("manage",)), "failing"),
        (None, EntityFinding(entity="orders", cannot=("receive",)), "failing"),
        (None, failed_over(), "failed over"),
        (None, EntityFinding(entity="orders"), "works"),
    ],
)
def test_an_entity_is_as_bad_as_the_worse_of_what_is_known(
    found: EntityReport | None, says: EntityFinding | None, state: str
) -> None:
    crowd = None if says is None else fleet(says)
    rows = sections.entity_rows(seen(*([] if found is None else [found])), crowd, {})
    assert [*rows] == ["orders"], "names of entities are the same in any case"
    assert rows["orders"]["state"] == state


def test_an_entity_names_the_processes_that_have_left_it_and_since_when() -> None:
    row = sections.entity_rows(seen(asked()), fleet(failed_over(for_s=60.0)), {"orders": 1_030.0}, 1_000.0)["orders"]
    assert (row["failed_over"], row["since"], row["next_ping"]) == (1, 938, 1_030.0)
    assert row["who"] == [{"process": "client 7 on host-a", "state": "failed over"}]


@pytest.mark.parametrize(
    ("here", "there", "shown"), [(1_030.0, 22.0, 1_020), (1_010.0, 22.0, 1_010), (None, 2.0, None)]
)
def test_the_next_ping_is_the_first_one_of_any_process(here: float | None, there: float, shown: float | None) -> None:
    """One that was due before the report was read is over."""
    pings = {} if here is None else {"orders": here}
    rows = sections.entity_rows(seen(asked()), fleet(failed_over(ping_in_s=there)), pings, 1_000.0)
    assert rows["orders"]["next_ping"] == shown


def test_an_entity_that_works_says_that_more_may_wait_where_nobody_looked() -> None:
    row = sections.entity_rows(seen(asked(waiting=None)), None, {})["orders"]
    assert (row["reason"], row["waiting"], row["waiting_at_least"]) == (sections.NOT_COUNTED, None, 0)
    assert sections.entity_rows(seen(asked(FAILS, waiting=None)), None, {})["orders"]["reason"] == "it broke"


def test_an_entity_names_the_processes_that_cannot_receive_from_it() -> None:
    (row,) = sections.entity_rows(seen(), fleet(EntityFinding(entity="orders", cannot=("receive",))), {}).values()
    assert row["who"] == [{"process": "client 7 on host-a", "state": "cannot receive"}]


def test_a_process_has_a_row_with_what_it_says() -> None:
    (row,) = sections.process_rows(fleet(failed_over())).values()
    assert (row["name"], row["state"], row["troubled"]) == ("client 7 on host-a", "reporting", 1)
    assert sections.fleet_facts(fleet(failed_over()))["verdict"] == "failed over"


def test_what_is_unknown_of_a_backlog_is_not_nothing() -> None:
    queue = QueueReport(path="contoso/x-servicebus-transfer/0", exists=True, is_readable=True, at_least=7)
    facts, rows = sections.backlog_facts(seen(queues=(queue,))), sections.queue_rows(seen(queues=(queue,)))
    assert (facts["waiting"], facts["waiting_at_least"], facts["room"], facts["full_in"]) == (None, 7, None, None)
    (row,) = rows.values()
    assert (row["messages"], row["at_least"], row["size"], row["room"]) == (None, 7, None, None)
    json.dumps([facts, rows], allow_nan=False)


def test_a_meter_adds_up_what_both_namespaces_have_counted() -> None:
    said = {"operations": [{"entity": "orders", "kind": "send", "operations": 3, "bytes": 30, "steps": 4}]}
    facts = sections.meter_facts({"primary": said, "secondary": said}, Prices())
    assert (facts["operations"], facts["charged"], facts["sides"]["primary"]["by_kind"]) == (6, 8, {"send": 3})
    assert sections.meter_facts({"primary": None}, Prices())["usd"] is None
