"""Alert rules and dashboard in `deploy` name metrics and labels that twinbus really exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml
from doc_blocks import ROOT

from twinbus.broker.ops.metrics import NAMESPACE_METRICS
from twinbus.client.reporting.metric_types import LABELS
from twinbus.client.reporting.metrics import METRICS
from twinbus.client.reporting.status import EntityState

DEPLOY = ROOT / "deploy"
TARGET_LABELS = {"instance", "job"}
"""Prometheus adds them to everything that it scrapes."""
EXPORTED = {metric.name: {*LABELS, *metric.labels, *TARGET_LABELS} for metric in METRICS} | {
    metric.name: {"namespace", *metric.labels, *TARGET_LABELS} for metric in NAMESPACE_METRICS
}


def expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((DEPLOY / "prometheus" / "twinbus-alerts.yml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads((DEPLOY / "grafana" / "twinbus.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def wrong_names(expression: str) -> set[str]:
    """Names in PromQL that twinbus does not export: of metrics, and of labels that none of its metrics has."""
    metrics = set(re.findall(r"\btwinbus_\w+", expression))
    known = set[str]().union(*[EXPORTED.get(name, set()) for name in metrics])
    inside = ",".join(re.findall(r"\bby \(([^)]*)\)", expression))
    labels = {name.strip() for name in inside.split(",") if name.strip()}
    for name, matchers in re.findall(r"\b(twinbus_\w+)\{([^}]*)\}", expression):
        labels |= {f"{label} of {name}" for label in re.findall(r"(\w+)\s*[=!]", matchers)} - {
            f"{label} of {name}" for label in EXPORTED.get(name, ())
        }
    return (metrics - EXPORTED.keys()) | (labels - known)


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_and_label_is_exported(where: str, expression: str) -> None:
    assert "twinbus_" in expression
    assert wrong_names(expression) == set(), where
    states = re.findall(r'\bstate="([^"]*)"', expression)
    assert set(states) <= {state.value for state in EntityState}


def test_a_name_that_nobody_exports_is_noticed() -> None:
    assert wrong_names("sum by (queue) (twinbus_pair_held_sends)") == {"queue"}
    assert wrong_names('twinbus_pair_ready{side="a"} + twinbus_pair_gone') == {
        "side of twinbus_pair_ready",
        "twinbus_pair_gone",
    }


def test_alerts_say_only_labels_that_their_metrics_have() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "twinbus-alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]:
        metrics = re.findall(r"\btwinbus_\w+", rule["expr"])
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert said <= set.intersection(*[EXPORTED[name] for name in metrics]), rule["alert"]
