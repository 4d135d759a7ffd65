"""Numbers are pulled from the status, through the real OpenTelemetry SDK and the real Prometheus parser."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sample_status import NOW, ORDERS, SECONDARY, STATUS

from twinbus.client.reporting.metric_types import LABELS, Metric
from twinbus.client.reporting.metrics import METRICS
from twinbus.client.reporting.status import AbilityStatus, BoardStatus, EntityStatus, Phase, SpoolStatus, Status
from twinbus.client.reporting.telemetry import PICTURE_S, Telemetry
from twinbus.pairing.primary_abilities import Ability

PAIR = {"client": "1", "primary": "contoso", "secondary": "backup"}
SPOOLING = replace(
    STATUS,
    spool=SpoolStatus(folder="/var/spool/shop", messages=5, size_bytes=700, sent_home=3),
    abilities=(AbilityStatus(path="orders", ability=Ability.RECEIVE, works=False, since=NOW, reason="no"),),
    board=BoardStatus(path="contoso/x-twinbus-board", instance="f00d", posts=12, posted_at=NOW),
)
EMPTY = Status(at=NOW, primary="contoso", secondary="backup", phase=Phase.NEW)


class Client:
    """Whoever has a status."""

    def __init__(self, status: Status = SPOOLING) -> None:
        self.current = status
        self.looks = 0

    def status(self) -> Status:
        self.looks += 1
        return self.current


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    return parsed(text).get((name, frozenset({**PAIR, **labels}.items())))


def text_of(status: Status) -> str:
    client = Client(status)
    return Telemetry().watch(client.status).text()


# --- Prometheus ---


def test_the_text_of_a_client_has_its_numbers() -> None:
    text = text_of(STATUS)
    assert value(text, "twinbus_pair_ready") == 1
    assert value(text, "twinbus_pair_messages_total", entity="orders", side="backlog") == 340
    assert value(text, "twinbus_pair_messages_total", entity="orders", side="primary") == 1_200
    assert value(text, "twinbus_pair_entity_state", entity="orders", state="failed over") == 1
    assert value(text, "twinbus_pair_entity_state", entity="orders", state="healthy") == 0
    since = (NOW - timedelta(seconds=4_000)).timestamp()
    assert value(text, "twinbus_pair_entity_since_timestamp_seconds", entity="orders") == since
    assert value(text, "twinbus_pair_backlog_queue_in_rotation", queue="contoso/x-servicebus-transfer/1") == 0
    assert value(text, "twinbus_pair_backlog_full_in_seconds") == 1.5 * 3600
    assert value(text, "twinbus_pair_syphon_seen") == 0
    assert value(text, "twinbus_pair_warnings") == 1


def test_what_is_unknown_is_missing_and_not_zero() -> None:
    text = text_of(EMPTY)
    assert {name for name, _ in parsed(text)} == {
        "twinbus_pair_ready",
        "twinbus_pair_warnings",
        "twinbus_pair_events_dropped_total",
        "twinbus_pair_news_dropped_total",
        "twinbus_pair_secondary_waiting_sends",
        "twinbus_pair_sent_to_backlog_messages",
        "twinbus_pair_sent_to_backlog_bytes",
    }
    calm = replace(EMPTY, secondary_status=replace(SECONDARY, capacity_hours=float("inf")))
    assert value(text_of(calm), "twinbus_pair_backlog_full_in_seconds") is None


def test_every_metric_is_announced_with_its_kind_and_help() -> None:
    families = {each.name: each for each in text_string_to_metric_families(text_of(STATUS))}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)


def test_odd_names_survive_the_text() -> None:
    odd = 'a"b\\c\nd ü'
    text = text_of(replace(EMPTY, entities=(EntityStatus(entity=odd),)))
    assert value(text, "twinbus_pair_failovers_total", entity=odd) == 0


def test_two_clients_of_one_pair_are_distinguished_in_one_scrape() -> None:
    telemetry = Telemetry()
    registry = CollectorRegistry(auto_describe=True)
    registry.register(telemetry)
    first, second = Client(), Client(EMPTY)
    stop_first = telemetry.watch(first.status).stop
    telemetry.watch(second.status)
    text = generate_latest(registry).decode()
    assert value(text, "twinbus_pair_ready") == 1
    assert value(text, "twinbus_pair_ready", client="2") == 0
    assert text.count("# TYPE twinbus_pair_ready gauge") == 1
    stop_first()
    stop_first()
    text = generate_latest(registry).decode()
    assert value(text, "twinbus_pair_ready") is None
    assert value(text, "twinbus_pair_ready", client="2") == 0


def test_registering_looks_at_no_client() -> None:
    telemetry, client = Telemetry(), Client()
    telemetry.watch(client.status)
    CollectorRegistry(auto_describe=True).register(telemetry)
    assert client.looks == 0


def test_the_text_can_still_be_read_after_the_end() -> None:
    client = Client()
    watch = Telemetry().watch(client.status)
    watch.stop()
    client.current = replace(STATUS, phase=Phase.CLOSED)
    assert value(watch.text(), "twinbus_pair_ready") == 0


def test_a_forgotten_client_is_not_kept_alive() -> None:
    telemetry = Telemetry()
    client = Client()
    watch = telemetry.watch(client.status)
    del client
    gc.collect()
    assert parsed(watch.text()) == {}
    assert all(not family.samples for family in telemetry.collect())


def test_a_client_that_cannot_say_does_not_spoil_the_scrape(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Status:
        raise RuntimeError("no status")

    telemetry, client = Telemetry(), Client()
    telemetry.watch(broken)
    telemetry.watch(client.status)
    registry = CollectorRegistry()
    registry.register(telemetry)
    assert value(generate_latest(registry).decode(), "twinbus_pair_ready", client="2") == 1
    assert "client 1 has no status" in caplog.text


# --- OpenTelemetry ---


class TelemetryHarness:
    """A telemetry before a real meter provider, and a clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.telemetry = Telemetry(clock=lambda: self.now)
        self.reader = InMemoryMetricReader()
        assert self.telemetry.instrument(MeterProvider([self.reader]))

    def read(self) -> dict[str, Any]:
        self.now += 2 * PICTURE_S
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        assert [scope.scope.name for scope in scopes] == ["twinbus"]
        return {metric.name: metric for metric in scopes[0].metrics}

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], float]:
        found = self.read()[name].data.data_points
        return {tuple(sorted(point.attributes.items())): point.value for point in found}


def attributes(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**PAIR, **labels}.items()))


def test_opentelemetry_gets_every_metric_with_its_unit() -> None:
    harness, client = TelemetryHarness(), Client()
    harness.telemetry.watch(client.status)
    found = harness.read()
    assert set(found) == {metric.dotted_name for metric in METRICS}
    for metric in METRICS:
        assert (found[metric.dotted_name].unit, found[metric.dotted_name].description) == (metric.unit, metric.help)
    assert found["twinbus.pair.backlog_oldest_age"].unit == "s"


def test_opentelemetry_counters_are_sums_that_only_grow() -> None:
    harness, client = TelemetryHarness(), Client()
    harness.telemetry.watch(client.status)
    found = harness.read()
    for metric in METRICS:
        data = found[metric.dotted_name].data
        assert isinstance(data, Sum) == (metric.kind == "counter")
        if isinstance(data, Sum):
            assert data.is_monotonic
            assert data.aggregation_temporality is AggregationTemporality.CUMULATIVE


def test_opentelemetry_and_prometheus_say_the_same() -> None:
    harness, client = TelemetryHarness(), Client()
    text = harness.telemetry.watch(client.status).text()
    for metric in METRICS:
        expected = {
            tuple(sorted(labels)): number for (name, labels), number in parsed(text).items() if name == metric.name
        }
        assert harness.points(metric.dotted_name) == expected


def test_one_collection_is_one_look_at_each_client_and_the_next_sees_what_changed() -> None:
    harness, client = TelemetryHarness(), Client()
    harness.telemetry.watch(client.status)
    harness.read()
    assert client.looks == 1
    client.current = replace(STATUS, entities=(replace(ORDERS, failovers=2),))
    assert harness.points("twinbus.pair.failovers") == {attributes(entity="orders"): 2}
    assert client.looks == 2


def test_a_client_that_ended_is_gone_from_opentelemetry() -> None:
    harness, client = TelemetryHarness(), Client()
    watch = harness.telemetry.watch(client.status)
    assert harness.read()
    watch.stop()
    assert harness.read() == {}


def test_a_provider_that_is_set_after_pairing_still_gets_the_numbers() -> None:
    program = """
        import json
        from datetime import UTC, datetime
        from twinbus.client.reporting.status import Status
        from twinbus.client.reporting.telemetry import TELEMETRY

        first = TELEMETRY.watch(lambda: Status(at=datetime.now(UTC), primary="contoso", secondary="backup"))
        second = TELEMETRY.watch(lambda: Status(at=datetime.now(UTC), primary="contoso", secondary="backup"))
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        ready = next(each for each in found if each.name == "twinbus.pair.ready")
        print(json.dumps([point.attributes["client"] for point in ready.data.data_points]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == ["1", "2"], done.stderr
    assert done.stderr == ""


def test_neither_library_is_imported_before_it_is_needed() -> None:
    program = """
        import sys
        sys.modules["opentelemetry.metrics"] = None  # as if it were not installed
        import twinbus.client.reporting.telemetry as telemetry
        assert not {"prometheus_client", "opentelemetry"} & set(sys.modules)
        assert telemetry.TELEMETRY.instrument() is False
        telemetry.TELEMETRY.watch(lambda: None)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# --- names ---


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_both_libraries(metric: Metric) -> None:
    assert re.fullmatch(r"twinbus_pair_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert re.fullmatch(r"twinbus\.pair\.[a-z_]+", metric.dotted_name)
    assert not set(metric.labels) & set(LABELS)


def test_a_name_is_used_once() -> None:
    assert len({metric.name for metric in METRICS}) == len({metric.dotted_name for metric in METRICS}) == len(METRICS)
