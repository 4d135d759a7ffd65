from __future__ import annotations

import pytest

from twinbus.broker.ops import meter as meter_module
from twinbus.broker.ops.meter import OTHERS, Meter, Metered, Reading
from twinbus.broker.ops.metrics import QueueGauge, Snapshot, as_json, as_prometheus


@pytest.mark.parametrize(("size", "steps"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (96 * 1024, 2), (256 * 1024, 4)])
def test_an_operation_is_at_least_one_step_and_one_more_for_each_begun_64_kb(size: int, steps: int) -> None:
    meter = Meter()
    meter.count(Metered.SEND, "orders", size)
    assert meter.readings() == [Reading("orders", Metered.SEND, 1, size, steps)]


def test_operations_are_kept_apart_by_entity_and_kind() -> None:
    meter = Meter()
    meter.count(Metered.SEND, "orders", 10)
    meter.count(Metered.SEND, "orders", 20)
    meter.count(Metered.PING, "orders")
    meter.count(Metered.SETTLE, "invoices", operations=3)
    assert meter.readings() == [
        Reading("invoices", Metered.SETTLE, 3, 0, 3),
        Reading("orders", Metered.PING, 1, 0, 1),
        Reading("orders", Metered.SEND, 2, 30, 2),
    ]


def test_entities_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "ENTITIES_MAX", 2)
    meter = Meter()
    for entity in ("a", "b", "c", "d", "a"):
        meter.count(Metered.SEND, entity)
    assert {(reading.entity, reading.operations) for reading in meter.readings()} == {("a", 2), ("b", 1), (OTHERS, 2)}


def snapshot(full_disk: str | None = None) -> Snapshot:
    return Snapshot(
        "contoso", [Reading('odd"name', Metered.SEND, 2, 30, 2)], [QueueGauge("orders", 1, 2, 3, 4, 5)], 6, 7, full_disk
    )


def test_prometheus_text_has_help_type_and_escaped_labels() -> None:
    lines = as_prometheus(snapshot()).splitlines()
    assert 'twinbus_operations_total{namespace="contoso",entity="odd\\"name",kind="send"} 2' in lines
    assert 'twinbus_operation_bytes_total{namespace="contoso",entity="odd\\"name",kind="send"} 30' in lines
    assert 'twinbus_queue_messages{namespace="contoso",entity="orders",state="dead_letters"} 4' in lines
    assert 'twinbus_unwritten_bytes{namespace="contoso"} 7' in lines
    for line in lines:
        name = line.split("{")[0] if not line.startswith("#") else line.split()[2]
        assert f"# TYPE {name} " in "\n".join(lines)


def test_json_says_the_same() -> None:
    shown = as_json(snapshot())
    assert shown["operations"] == [{"entity": 'odd"name', "kind": "send", "operations": 2, "bytes": 30, "steps": 2}]
    assert shown["queues"][0]["dead_letters"] == 4
    assert (shown["connections"], shown["unwritten_bytes"]) == (6, 7)
    assert shown["full_disk"] is None


def test_a_full_disk_is_a_number_to_alert_on() -> None:
    assert 'twinbus_disk_full{namespace="contoso"} 0' in as_prometheus(snapshot()).splitlines()
    assert 'twinbus_disk_full{namespace="contoso"} 1' in as_prometheus(snapshot("no space left")).splitlines()
    assert as_json(snapshot("no space left"))["full_disk"] == "no space left"
