"""Old public names, modules and metrics work, and warn."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from sample_status import STATUS

import twinbus
from twinbus.client.reporting.metrics import METRICS
from twinbus.deprecated import ATTRIBUTES, MODULES, NAMES, REMOVED_IN, OldModule, find_renamed
from twinbus.deprecated import METRICS as OLD_METRICS

DOCUMENTED_IN_0_1 = (
    "twinbus.client.telemetry.TELEMETRY",
    "twinbus.cost.bill.bills",
    "twinbus.errors.BothNamespacesUnavailable",
    "twinbus.ledger.Event",
    "twinbus.ledger.Kind",
    "twinbus.ledger.Ledger",
    "twinbus.ledger.LedgerReader",
    "twinbus.ledger.verify",
    "twinbus.namespace.rights.jwt.JwtIssuer",
    "twinbus.spark.compaction.compaction.compact_ledger",
    "twinbus.spark.jobs.compaction.on",
    "twinbus.spark.jobs.compaction.steps_in",
    "twinbus.spark.register",
    "twinbus.spark.session.FOR_LITTLE_DATA",
    "twinbus.spark.session.ensure_session",
    "twinbus.spark.transforms.cost.uses",
    "twinbus.spark.transforms.traffic.traffic",
    "twinbus.testing.LocalNamespace",
)
"""What the documents of 0.1 import from other modules than `twinbus` and `twinbus.aio`."""

PUBLIC_IN_0_1 = (
    "Failure",
    "FailureKind",
    "Namespace",
    "News",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairedServiceBusClient",
    "PairedServiceBusReceiver",
    "PairedServiceBusSender",
    "Retry",
    "SendAvailabilityPairedNamespaceOptions",
    "SendReceipt",
    "Side",
    "Status",
    "Verdict",
    "receipt_of",
)


def object_at(dotted: str) -> Any:
    """The module, or the name in a module, that is called so."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        return getattr(import_module(home), name)


@pytest.fixture(autouse=True)
def _old_modules_are_imported_anew() -> None:
    for name in [name for name, module in sys.modules.items() if isinstance(module, OldModule)]:
        home, _, child = name.rpartition(".")
        del sys.modules[name]
        vars(sys.modules.get(home, twinbus)).pop(child, None)


@pytest.mark.parametrize("old", NAMES)
def test_an_old_name_is_the_new_one_and_warns(old: str) -> None:
    home, _, name = old.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{old} is now {NAMES[old]}; the old name is removed in {REMOVED_IN}"):
        found = getattr(import_module(home), name)
    assert found is object_at(NAMES[old])


@pytest.mark.parametrize("old", MODULES)
def test_an_old_module_has_what_the_new_one_has_and_warns(old: str) -> None:
    home, _, name = old.rpartition(".")
    new = import_module(MODULES[old])
    for statement in (f"import {old} as found", f"from {home} import {name} as found", f"found = load({old!r})"):
        if sys.modules.pop(old, None):
            delattr(sys.modules[home], name)
        names: dict[str, Any] = {"load": import_module}
        with pytest.warns(DeprecationWarning, match=f"{old} is now {MODULES[old]}") as warnings:
            exec(statement, names)
        assert len(warnings) == 1
        assert all(getattr(names["found"], each) is value for each, value in vars(new).items() if each[0] != "_")


def test_a_warning_names_the_line_that_uses_the_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="jwt is now") as warnings:
        from twinbus.namespace.rights.jwt import JwtIssuer  # type: ignore[import-not-found]  # noqa: F401
    assert [warning.filename for warning in warnings] == [__file__]


def test_what_was_never_there_is_not_found() -> None:
    with pytest.raises(AttributeError, match="module 'twinbus' has no attribute 'Nope'"):
        _ = twinbus.Nope
    with pytest.raises(ModuleNotFoundError, match=r"twinbus\.namespace\.nope"):
        import_module("twinbus.namespace.nope")
    with pytest.raises(AttributeError, match=r"'twinbus\.namespace' has no attribute 'nope'"):
        _ = import_module("twinbus.namespace").nope


def test_a_name_can_move_to_another_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "twinbus.client.telemetry.Old", "twinbus.ledger.Event")
    with pytest.warns(DeprecationWarning, match=r"twinbus.client.telemetry is now|Old is now twinbus.ledger.Event"):
        assert import_module("twinbus.client.telemetry").Old is object_at("twinbus.ledger.Event")
    with pytest.warns(DeprecationWarning, match=r"Old is now twinbus.ledger.Event"):
        assert find_renamed("twinbus.client.telemetry", "Old") is object_at("twinbus.ledger.Event")


@pytest.mark.filterwarnings("ignore:.* is now :DeprecationWarning")
@pytest.mark.parametrize("name", [*DOCUMENTED_IN_0_1, *[f"twinbus.{name}" for name in PUBLIC_IN_0_1]])
def test_what_the_documents_of_0_1_import_is_there(name: str) -> None:
    assert object_at(name) is not None


@pytest.mark.parametrize("old", ATTRIBUTES)
def test_an_old_attribute_is_the_new_one_and_warns(old: str) -> None:
    (class_name, old_name), new_name = old.rsplit(".", 2)[1:], ATTRIBUTES[old].rpartition(".")[2]
    sample = {"Status": STATUS}[class_name]
    with pytest.warns(DeprecationWarning, match=f"{old} is now {ATTRIBUTES[old]}") as warnings:
        assert getattr(sample, old_name) == getattr(sample, new_name)
    assert [warning.filename for warning in warnings] == [__file__]
    assert sample.as_dict()[old_name] == sample.as_dict()[new_name]


@pytest.mark.parametrize("old", OLD_METRICS)
def test_an_old_metric_is_exported_beside_the_new_one(old: str) -> None:
    by_name = {metric.name: metric for metric in METRICS}
    new = by_name[OLD_METRICS[old]]
    assert (by_name[old].kind, by_name[old].labels, by_name[old].read) == (new.kind, new.labels, new.read)
    assert by_name[old].help == f"Deprecated, removed in {REMOVED_IN}: use {new.name}."


def test_old_names_are_gone_in_the_version_that_is_announced() -> None:
    version, removed_in = ([int(part) for part in text.split(".")] for text in (twinbus.__version__, REMOVED_IN))
    assert version < removed_in or not (NAMES or MODULES or OLD_METRICS)


def test_importing_twinbus_imports_nothing_of_it_but_this_table() -> None:
    program = "import sys, twinbus; print(sorted(name for name in sys.modules if name.startswith('twinbus')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['twinbus', 'twinbus.deprecated']", done.stderr
