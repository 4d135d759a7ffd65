"""The pages of docs/reference about pairing, and deprecated names; `make pages` writes them.

The words are the docstrings beside the fields, the numbers are those that are checked. A test fails when a page on disk
is not what this module would write.
"""

from __future__ import annotations

import ast
import inspect
import logging
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from twinbus import deprecated
from twinbus.broker.ops.metrics import NAMESPACE_METRICS
from twinbus.client import options
from twinbus.client.reporting.event_log import QUEUE_MAX
from twinbus.client.reporting.events import LEVELS, PairEvent, PairEventName
from twinbus.client.reporting.metric_types import LABELS
from twinbus.client.reporting.metrics import METRICS
from twinbus.units import exact_duration

DONE_BY = "<!-- Made from the code by `make pages`; do not edit. -->"

OPTIONS_TEXT = """
`SendAvailabilityPairedNamespaceOptions(secondary, ...)` takes the secondary by position and everything else by name;
`PairedServiceBusClient.from_connection_strings` takes the same names. `PairedNamespaceOptions` has the first two only.
Lengths of time are `timedelta`. Values are checked when the options are made, and one `OptionsError` names everything
that is wrong.
"""
EVENTS_TEXT = """
`bus.on(name, callback)` calls the callback with each `PairEvent` of that name, or of every name for `"*"`; it returns a
function that ends it. Callbacks run one after the other, in the order of events, never on the thread of a sender: on a
thread of their own, in `twinbus.aio` on the event loop, where coroutine functions are fine too. What a callback raises
is logged and harms nobody. While {queue_max:,} calls are waiting because a callback is slow, further ones are dropped
and counted (`events_dropped` in the status).

Every event is also a record of the logger `twinbus.pairing`, one line each:

    {example}

The record has the parts as attributes: `twinbus_event`, `twinbus_entity`, `twinbus_namespace`, `twinbus_details`.

A `ping_failed` is logged in full the first time. While the reason stays the same, a short line with the number of times
follows after 10 s, 20 s more, and so on, up to once an hour. Callbacks get every one.
"""
METRICS_TEXT = """
Nothing is counted for the sake of metrics: numbers come from `bus.status()` when somebody asks for them.

* `bus.metrics_text()` gives the numbers of one client in the text form of Prometheus.
* Prometheus scrapes those of all clients of a process after `REGISTRY.register(TELEMETRY)`, with `REGISTRY` from
  `prometheus_client` and `TELEMETRY` from `twinbus.client.reporting.telemetry`.
* OpenTelemetry gets them by itself, as observable instruments of the meter `twinbus`, as soon as the application sets a
  meter provider.
* `twinbus syphon --metrics PORT` and `--metrics-file FILE` have those of a syphon that runs as a program: the metrics
  below that begin with `twinbus_pair_syphon_`, but not `twinbus_pair_syphon_seen`, and those of its looks into the
  backlog; see [how to run it](../how-to/syphon.md#watch-it).

Every metric has the labels {labels}: the client's number in its process, and the names of both
namespaces. What is unknown is missing; it is never shown as zero. The numbers of a client end when it is closed.

## How old the numbers of the backlog are

* `twinbus_pair_sent_to_backlog_*`, of every client, whatever its key: as of now. It is what this client itself has put
  there; it asks nobody, and does not know what has come home since.
* `twinbus_pair_syphon_*`, of a process with a syphon: as of now.
* `twinbus_pair_backlog_*`, of a process with a syphon: at most 30 s old while anything waits, an entity of the process
  is failed over, the syphon is paused, or a queue cannot be read; else as of the look that found the backlog empty. The
  syphon peeks, so *Listen* is enough.
* `twinbus_pair_backlog_*`, of a client without a syphon: as of the last look, a minute after pairing and then once an
  hour, if its key has *Listen* or *Manage*. With *Send* alone they are missing.
* `twinbus_pair_backlog_full_in_seconds` (needs *Manage*) and `twinbus_pair_syphon_seen` (needs *Listen*), of every
  client: as of the look of the hour.

`twinbus_pair_backlog_looked_timestamp_seconds` is the time of the look. `twinbus_pair_backlog_messages` is exact or
missing: a look every 30 s counts up to 50 messages a queue, and `twinbus_pair_backlog_messages_at_least` is what it has
seen. 0 there with `twinbus_pair_backlog_queues_unread` 0 means that nothing waits; a missing number means that nobody
knows. `twinbus status` looks when it is called.
"""
ALERTS_TEXT = """
## What to be woken for

Most of these are alert rules in `deploy/prometheus/twinbus-alerts.yml`, for `rule_files` of Prometheus; a
dashboard for Grafana is in `deploy/grafana/twinbus.json`.

* `twinbus_pair_entity_state{state="failed over"} == 1`: an entity of the primary is down. Its messages are safe.
* `twinbus_pair_spool_messages > 0`: neither namespace took messages, and they are on one disk only.
  `twinbus_pair_spool_bytes / twinbus_pair_spool_max_bytes > 0.8` or `twinbus_pair_spool_usable == 0`: soon, or already,
  the next ones are refused; or folders of processes that ended cannot be read.
* `sum by (instance, client) (twinbus_pair_backlog_queue_in_rotation) == 0`: no backlog queue is left to go to.
* `twinbus_pair_backlog_oldest_age_seconds > 1800 and time() - twinbus_pair_backlog_looked_timestamp_seconds < 120`,
  from a process with a syphon: something has waited for half an hour. Without the second half a client that looks once
  an hour would fire for what came home long ago.
* `twinbus_pair_backlog_queues_unread > 0`, from a process with a syphon, or `absent(twinbus_pair_syphon_state)`: nobody
  knows what waits, or no syphon runs.
* `twinbus_pair_sent_to_backlog_messages > 0` with `absent(twinbus_pair_syphon_state)`: messages were put into the
  backlog and nobody brings them home.
* `twinbus_pair_syphon_seen == 0` or `twinbus_pair_backlog_full_in_seconds < 3600`: found by the look of the hour, so
  up to an hour late.
* `time() - twinbus_pair_secondary_checked_timestamp_seconds > 7200`: nobody knows whether the secondary would do.
"""
NAMESPACE_METRICS_TEXT = """
## Metrics of a namespace

A namespace that `twinbus serve` serves has its own numbers at `https://HOST:PORT/metrics`, for Prometheus, or with
`?format=json`. Name and key of a rule with *Manage* are the user and password (HTTP Basic). Every metric has the label
`namespace`. `twinbus_disk_full == 1` is one to be woken for: see
[durability](../concepts/durability.md#when-the-disk-fails).
"""

DEPRECATED_TEXT = f"""
These names still work and are removed in {deprecated.REMOVED_IN}. An old name or import path issues a
`DeprecationWarning` when it is used; `python -W error::DeprecationWarning` finds them. An old metric is
exported beside the new one.
"""

_OTHER_VALUES: Mapping[str, str] = {
    "secondary": "a `Namespace`",
    "classifier": 'a function, `"documented"`, `None`',
    "retry": "a `Retry`, see below",
    "share_failover": "a `ShareFailover`, see below; `None`",
    "keys": f"host: bytes or text, at least {options.SECRET_BYTES_MIN} bytes, all different",
    "host": "a name in `keys`; `None`",
    "quorum": f"{options.QUORUM_MIN} to the number of other hosts",
    "failover_error_rate": "above 0, at most 1; `None`",
    "primary_name": f"{options.NAME_RULE}; `None`",
    "syphon_entities": "names, or `None`",
    "entities": f"names of 1 to {options.ENTITY_NAME_LENGTH_MAX} characters",
    "ledger": "a folder; `None`",
    "ledger_ship_to": "a URL or path as text, with `ledger`; `None`",
    "spool": "a folder; `None`",
}


# --- options ---


def options_page() -> str:
    chosen = options.SendAvailabilityPairedNamespaceOptions
    words = {**docs_of(options.PairedNamespaceOptions), **docs_of(chosen)}
    limits = {**_words_of_times(options.TIMES), **_words_of_numbers(options.NUMBERS), **_words_of_choices()}
    retry_limits = {**_words_of_times(options.RETRY_TIMES), **_words_of_numbers(options.RETRY_NUMBERS)}
    return _page(
        "Options of a pairing",
        OPTIONS_TEXT,
        *_table(("option", "default", "allowed", ""), [_option_row(each, limits, words) for each in fields(chosen)]),
        "",
        "## Retry",
        "",
        *_paragraph(options.Retry.__doc__),
        "",
        *_table(
            ("option", "default", "allowed", ""),
            [_option_row(each, retry_limits, docs_of(options.Retry)) for each in fields(options.Retry)],
        ),
        "",
        "## ShareFailover",
        "",
        *_paragraph(options.ShareFailover.__doc__),
        "",
        *_table(
            ("option", "default", "allowed", ""),
            [_option_row(each, {}, docs_of(options.ShareFailover)) for each in fields(options.ShareFailover)],
        ),
    )


def _option_row(option: Field[Any], limits: Mapping[str, str], words: Mapping[str, str]) -> Sequence[str]:
    allowed = limits.get(option.name) or _OTHER_VALUES[option.name]
    return (f"`{option.name}`", _default(option), allowed, words[option.name])


def _default(option: Field[Any]) -> str:
    if option.default is MISSING:
        return "(required)" if option.default_factory is MISSING else f"`{type(option.default_factory()).__name__}()`"
    match option.default:
        case timedelta():
            return exact_duration(option.default)
        case str() as text:
            return f'`"{text}"`'
        case bool() | None | tuple() as plain:
            return f"`{plain!r}`"
        case number:
            return _number(number)


def _number(value: float) -> str:
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    return f"{value:,}"


def _words_of_times(ranges: Mapping[str, options.TimeRange]) -> dict[str, str]:
    return {name: f"{exact_duration(low)} to {exact_duration(high)}" for name, (low, high) in ranges.items()}


def _words_of_numbers(ranges: Mapping[str, options.NumberRange]) -> dict[str, str]:
    return {name: f"{_number(low)} to {_number(high)}" for name, (low, high) in ranges.items()}


def _words_of_choices() -> dict[str, str]:
    choices = {name: ", ".join(f"`{options.quoted(one)}`" for one in each) for name, each in options.CHOICES.items()}
    return choices | dict.fromkeys(options.FLAGS, "`True`, `False`")


# --- events ---


def events_page() -> str:
    example = PairEvent(
        PairEventName.FAILED_OVER,
        "unreachable: connection refused",
        entity="orders",
        namespace="contoso",
        details={"epoch": 1, "forced": False},
    )
    words = docs_of(PairEventName)
    level = {name: logging.getLevelName(LEVELS[name]) for name in PairEventName}
    return _page(
        "Events of a pairing",
        EVENTS_TEXT.format(queue_max=QUEUE_MAX, example=example),
        *_table(("name", "level", ""), [(f"`{name}`", level[name], words[name.name]) for name in PairEventName]),
        "",
        "## PairEvent",
        "",
        *_table(("attribute", ""), [(f"`{name}`", text) for name, text in _event_attributes()]),
    )


def _event_attributes() -> Iterable[tuple[str, str]]:
    words = {"name": "One of the names above.", "at": "When, in UTC.", **docs_of(PairEvent)}
    return [(each.name, words[each.name]) for each in fields(PairEvent)]


# --- metrics ---


def metrics_page() -> str:
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            f"`{metric.dotted_name}`" + (f" ({metric.unit})" if metric.unit else ""),
            metric.help,
        )
        for metric in METRICS
    ]
    return _page(
        "Metrics of a pairing",
        METRICS_TEXT.format(labels=", ".join(f"`{label}`" for label in LABELS)),
        *_table(("Prometheus", "kind", "more labels", "OpenTelemetry (unit)", ""), rows),
        ALERTS_TEXT,
        NAMESPACE_METRICS_TEXT,
        *_table(("Prometheus", "kind", "more labels", ""), _namespace_metrics()),
    )


def _namespace_metrics() -> list[tuple[str, ...]]:
    return [
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in NAMESPACE_METRICS
    ]


# --- deprecated names ---


def deprecated_page() -> str:
    tables = {
        "Names": {**deprecated.NAMES, **deprecated.ATTRIBUTES},
        "Import paths": deprecated.MODULES,
        "Metrics": deprecated.METRICS,
    }
    lines: list[str] = []
    for title, names in tables.items():
        if names:
            rows = [(f"`{old}`", f"`{new}`") for old, new in sorted(names.items())]
            lines += ["", f"## {title}", "", *_table(("old", "new"), rows)]
    return _page("Deprecated names", DEPRECATED_TEXT.rstrip("\n"), *lines)


# --- what all pages need ---


@cache
def docs_of(described: type) -> dict[str, str]:
    """The docstring under each attribute of a class, as one line."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(described))).body
    assert isinstance(found, ast.ClassDef)
    words = {}
    for attribute, below in zip(found.body, found.body[1:], strict=False):
        match attribute, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                words[name] = " ".join(text.split())
    return words


def _paragraph(text: str | None) -> Sequence[str]:
    return textwrap.wrap(" ".join((text or "").split()), 118)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Sequence[str]:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _page(title: str, *lines: str) -> str:
    return "\n".join((f"# {title}", "", DONE_BY, *lines)).rstrip("\n") + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": options_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "deprecated.md": deprecated_page,
}


def write(folder: Path) -> list[Path]:
    """The pages that were not as they should be; now they are."""
    stale = [folder / name for name, page in PAGES.items() if not is_fresh(folder / name, page())]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGES[path.name](), encoding="utf-8")
    return stale


def is_fresh(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    for written in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")):
        sys.stdout.write(f"{written}\n")
