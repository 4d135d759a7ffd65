"""What the service counted, as Azure Monitor exports it, beside what is on record."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from twinbus.errors import OptionsError
from twinbus.spark.report.service_counts import (
    COMPLETED,
    INCOMING,
    CountedMessages,
    EntityCounts,
    compare,
    compare_runtime,
    read_points,
    spans,
)
from twinbus.spark.transforms.selection import LedgerSelection

START = 1_741_500_000_000
MINUTE = 60_000
FROM, TO = "2025-03-09T06:00:00Z", "2025-03-09T06:01:00Z"


def metric(name: str, entity: str | None, *totals: float | None) -> dict[str, object]:
    labels = [] if entity is None else [{"name": {"value": "entityname"}, "value": entity}]
    data = [
        {"timeStamp": f"2025-03-09T06:{minute:02}:00Z"} | ({} if total is None else {"total": total})
        for minute, total in enumerate(totals)
    ]
    return {"name": {"value": name}, "unit": "Count", "timeseries": [{"metadatavalues": labels, "data": data}]}


def written(file: Path, *metrics: dict[str, object]) -> Path:
    file.write_text(json.dumps({"timespan": f"{FROM}/{TO}", "interval": "PT1M", "value": list(metrics)}))
    return file


def test_the_answer_of_the_metrics_api_is_read_by_entity_and_grain(tmp_path: Path) -> None:
    file = written(tmp_path / "a.json", metric(INCOMING, "Orders", 3.0, 4.0), metric("ActiveMessages", "orders", 9.0))
    points = read_points([file, file])
    assert [(each.entity, each.since_ms, each.total) for each in points] == [
        ("orders", START, 3),
        ("orders", START + MINUTE, 4),
    ]


@pytest.mark.parametrize("on_lines", [False, True])
def test_records_of_a_diagnostic_setting_are_about_the_whole_namespace(tmp_path: Path, on_lines: bool) -> None:
    records = [
        {"time": at, "metricName": "IncomingMessages", "timeGrain": "PT1M", "total": 2, "count": 1, "resourceId": "/X"}
        for at in (FROM, TO)
    ]
    file = tmp_path / "PT1H.json"
    file.write_text("\n".join(map(json.dumps, records)) if on_lines else json.dumps({"records": records}))
    assert [(each.entity, each.total) for each in read_points([file])] == [("", 2), ("", 2)]


def test_rows_of_a_table_are_read_from_csv(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(f"TimeGenerated,MetricName,EntityName,Total,TimeGrain\n{FROM},CompleteMessage,orders,5,PT1H\n")
    [point] = read_points([file])
    assert (point.metric, point.entity, point.grain_ms, point.total) == (COMPLETED, "orders", 60 * MINUTE, 5)


def test_the_csv_that_the_portal_exports_is_read(tmp_path: Path) -> None:
    file = tmp_path / "query_data.csv"
    file.write_text(
        '"TimeGenerated [UTC]",MetricName,Total,EntityName\n'
        '"3/9/2025, 6:00:00.000 AM",IncomingMessages,5,orders\n'
        '"12/31/2025, 12:30:00.250 PM",IncomingMessages,6,orders\n'
    )
    assert [(each.since_ms, each.total) for each in read_points([file])] == [(START, 5), (1_767_184_200_250, 6)]


@pytest.mark.parametrize(
    ("head", "row", "said"),
    [
        ("TimeGenerated,Total", "{at},inf", "Total must be a number from 0 on, got 'inf'"),
        ("TimeGenerated,Total", "{at},nan", "Total must be a number from 0 on, got 'nan'"),
        ("TimeGenerated,Total", "{at},-1", "Total must be a number from 0 on, got '-1'"),
        ("TimeGenerated,Total", "{at},many", "Total must be a number from 0 on, got 'many'"),
        ("TimeGenerated,Total,TimeGrain", "{at},1,PT0S", "TimeGrain must be a duration such as PT1M, got 'PT0S'"),
        ("TimeGenerated,Total,TimeGrain", "{at},1,-PT1M", "TimeGrain must be a duration such as PT1M, got '-PT1M'"),
        ("TimeGenerated,Total,TimeGrain", "{at},1,hour", "TimeGrain must be a duration such as PT1M, got 'hour'"),
        ("TimeGenerated,Total", "soon,1", "its time must be in UTC, such as 2025-03-09T06:00:00Z or"),
        ("TimeGenerated [Local Time],Total", "{at},1", "there is no column TimeGenerated in UTC"),
        ("When,Total", "{at},1", "there is no column TimeGenerated in UTC"),
        ("TimeGenerated,Count", "{at},1", "there is no column Total"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_line(tmp_path: Path, head: str, row: str, said: str) -> None:
    file = tmp_path / "metrics.csv"
    good = row.format(at=FROM).replace("inf", "1")
    file.write_text(f"{head},MetricName\n{good},ActiveMessages\n{row.format(at=FROM)},IncomingMessages\n")
    with pytest.raises(OptionsError, match=re.escape(f"--counts {file}:3: {said}")):
        read_points([file])
    fields = dict(zip(head.split(","), row.format(at=FROM).split(","), strict=True))
    record = fields | {"metricName": "IncomingMessages"}
    file.write_text(json.dumps(record | {"metricName": "Other"}) + "\n" + json.dumps(record))
    with pytest.raises(OptionsError, match=re.escape(f"--counts {file}:2: {said}")):
        read_points([file])


def test_a_wrong_value_in_the_answer_of_the_metrics_api_is_refused(tmp_path: Path) -> None:
    for total in (-1.0, float("inf")):
        file = written(tmp_path / "a.json", metric(INCOMING, "orders", 1.0, total))
        with pytest.raises(OptionsError, match=re.escape(f"--counts {file}: Total must be a number from 0 on, got")):
            read_points([file])


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"value": [{"name": 1}]}', "a,b\n1,2\n", "[1]"])
def test_other_files_are_refused_with_what_would_be_right(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(OptionsError, match="az monitor metrics list"):
        read_points([file])


def test_grains_without_a_break_are_one_span_and_a_missing_one_divides_them(tmp_path: Path) -> None:
    points = read_points([written(tmp_path / "a.json", metric(INCOMING, "orders", 1.0, 2.0, None, 4.0))])
    found = {(span.since_ms - START, span.until_ms - START): total for span, total in spans(points).items()}
    assert found == {(0, 2 * MINUTE): 3, (3 * MINUTE, 4 * MINUTE): 4}
    window = LedgerSelection(START + MINUTE, START + 3 * MINUTE, ("orders",))
    assert list(spans(points, window).values()) == [2]
    assert spans(points, LedgerSelection(entities=("other",))) == {}


@pytest.mark.parametrize(
    ("total", "ours", "outcome", "is_doubt"),
    [
        (10, (10, 10), "agrees", False),
        (10, (8, 12), "agrees", False),
        (7, (8, 12), "fewer", True),
        (13, (8, 12), "more", False),
    ],
)
def test_only_fewer_incoming_than_acknowledged_raise_a_doubt(
    tmp_path: Path, total: float, ours: tuple[int, int], outcome: str, is_doubt: bool
) -> None:
    for name in (INCOMING, COMPLETED):
        points = read_points([written(tmp_path / "a.json", metric(name, "orders", total, 0.0, 0.0))])
        [span] = spans(points)
        [found] = compare(spans(points), {span: CountedMessages(*ours)})
        assert found.outcome == outcome
        assert bool(found.doubt) == (is_doubt and name == INCOMING)


def test_a_time_that_is_shorter_than_its_slack_is_not_compared(tmp_path: Path) -> None:
    points = read_points([written(tmp_path / "a.json", metric(INCOMING, "orders", 1.0))])
    [span] = spans(points)
    [found] = compare(spans(points), {span: CountedMessages(9, 9)})
    assert (found.outcome, found.doubt) == ("not comparable", "")


def test_runtime_properties_inform_and_decide_nothing() -> None:
    [found] = compare_runtime([EntityCounts("orders", 3, 1, 0, 0)], {"orders": 7})
    assert (found.outcome, found.doubt) == ("not comparable", "")
    assert "3 active" in found.text
    assert "of 7 on record" in found.text
