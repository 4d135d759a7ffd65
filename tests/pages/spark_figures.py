"""What Spark takes, and others on the same machine: tables of pages, of the latest `make bench` that measured each row.

`PYTHONPATH=tests python -m pages.spark_figures docs` writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages.proxy_figures import RESULTS, page_with

SIZES = (1_000_000, 5_000_000, 20_000_000)
WAYS_HOME = ("syphon", "syphon --processes 2", "drain")
CPU_OF = ("what moves", "both namespaces")


def latest_rows() -> dict[str, dict[str, Any]]:
    """Each row as it was measured last, by name, with the time of its run as `at`."""
    runs = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["row"]: row | {"at": run["at"]} for run in runs for row in run["rows"]}


def report_table() -> str:
    """Reports beside DuckDB: cold, as a user waits, and warm."""
    rows = latest_rows()

    def line(events: str, how: str, names: list[str]) -> str:
        found = [rows[name] for name in names]
        cells = " | ".join(f"{row['value']:.1f} s" for row in found)
        return f"| {events} | {how}, {found[0]['at'][:10]} | {cells} |"

    cold = ("report from nothing", "report after 1 % more", "report with nothing new")
    lines = [
        "| events | | report from nothing | after 1 % more | nothing new | DuckDB, three questions |",
        "|---|---|---|---|---|---|",
    ]
    for size in ("100,000", "1,000,000"):
        for how in ("cold", "cold, with class archive"):
            names = [f"{size} events, {how}: {what}" for what in cold]
            if names[0] in rows:
                duck = f"{size} events, cold: three questions, DuckDB on the same Parquet"
                lines.append(line(size, how, [*names, duck]))
    for each in SIZES:
        names = [f"{each:,} events: {what}" for what in ("report from nothing", "report after 1 % more")]
        cells = line(f"{each:,}", "warm", [*names, f"{each:,} events: analysis, DuckDB on the same Parquet"])
        head, _, duck = cells.rpartition(" | ")
        lines.append(f"{head} | – | {duck}")
    return "\n".join(lines)


def scale_table() -> str:
    """How a warm report grows."""
    rows = latest_rows()
    lines = [
        "| events | from nothing | of that, reading | after 1 % more | memory of the JVM |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        whole, reading, more, memory = (
            rows[f"{size:,} events: {what}"]["value"]
            for what in (
                "report from nothing",
                "of that, reading the segments",
                "report after 1 % more",
                "memory of the JVM, at most",
            )
        )
        lines.append(f"| {size:,} | {whole:.1f} s | {reading:.1f} s | {more:.1f} s | {memory / 1000:.1f} GB |")
    return "\n".join(lines)


def ways_table() -> str:
    """Spark and the syphon, each with the same backlog on one machine."""
    rows = latest_rows()

    def per_s(name: str) -> str:
        return f"{rows[name]['twinbus_per_s']:,} messages a second"

    memory_mb, growth = (
        rows[name]["value"] for name in ("100,000 home: memory of the syphon", "1,000,000 home: memory, beside 100,000")
    )
    start_s, first_s = (rows[name]["value"] for name in ("Spark: start of the session", "Spark: first job, 1,000 home"))
    syphon = f"{memory_mb:.0f} MB; with ten times the backlog {growth:.2f} times as much"
    spark = f"after Spark has started: {start_s:.1f} s, and {first_s:.1f} s for the first job of 1,000 messages"
    lines = [
        "| measured on 2 cores | syphon | Spark job |",
        "|---|---|---|",
        f"| moves | {per_s('100,000 home')} | {per_s('100,000 home, Spark local[2,4]')} |",
        f"| begins to move | at once | {spark} |",
        f"| memory | {syphon} | a JVM, and one Python process a core |",
    ]
    return "\n".join(lines)


def processes_table() -> str:
    """One process, several, and a drain, each with the same backlog of several queues."""
    rows = latest_rows()
    names = {way: f"100,000 home, {way}" for way in WAYS_HOME}
    if not rows.keys() >= {*names.values()}:
        return "`make bench` has not measured this yet."

    lines = ["| | while it moves | from start to end | CPU a message | of the namespaces |", "|---|---|---|---|---|"]
    for way, name in names.items():
        moving, whole = (f"{rows[each]['twinbus_per_s']:,} a second" for each in (name, f"{name}, start to end"))
        mover, namespaces = (f"{rows[f'{name}: CPU of {each}']['value']:.0f} µs" for each in CPU_OF)
        lines.append(f"| `{way}` | {moving} | {whole} | {mover} | {namespaces} |")
    return "\n".join(lines)


def browse_table() -> str:
    """How many messages a task should read."""
    rows = latest_rows()
    found = {
        (messages, size): rows[f"{messages} browsed by Spark local[2,4], {size} a task"]
        for messages in ("50,000", "100,000")
        for size in ("10,000", "50,000")
    }
    lines = ["| messages in the queue | 10,000 a task | 50,000 a task |", "|---|---|---|"]
    for messages in ("50,000", "100,000"):
        few, many = (found[messages, size]["value"] for size in ("10,000", "50,000"))
        lines.append(f"| {messages} | {few:.1f} s | {many:.1f} s |")
    return "\n".join(lines)


TABLES: dict[str, tuple[Callable[[], str], ...]] = {
    "how-to/report.md": (report_table,),
    "how-to/spark-or-syphon.md": (ways_table, processes_table),
    "how-to/drain-with-spark.md": (browse_table,),
    "concepts/pipeline-at-scale.md": (scale_table,),
}
"""By the page that has them, below the documents, in their order there."""


def page_with_figures(name: str, page: str) -> str:
    return page_with(page, *[made() for made in TABLES[name]])


if __name__ == "__main__":
    for name in TABLES:
        path = Path(sys.argv[1], name)
        path.write_text(page_with_figures(name, path.read_text(encoding="utf-8")), encoding="utf-8")
