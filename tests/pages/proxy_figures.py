"""What a proxy costs, as the latest `make bench` measured it: the table in docs/how-to/any-language.md is made of this.

`PYTHONPATH=tests python -m pages.proxy_figures docs/how-to/any-language.md` writes the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent.parent / "bench" / "results" / "bench.jsonl"
BEGIN, END = "<!-- figures: made by `make pages` of bench/results -->", "<!-- end of figures -->"
PART = "through the proxy, of direct"
"""A run of the bench that has rows with this in their names has measured the proxy."""


def latest_rows() -> dict[str, dict[str, Any]]:
    """Rows of the latest run that has measured the proxy, by name."""
    runs = [json.loads(line)["rows"] for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["row"]: row for row in [rows for rows in runs if any(PART in row["row"] for row in rows)][-1]}


def table() -> str:
    rows = latest_rows()

    def per_s(name: str) -> str:
        return f"{rows[name]['twinbus_per_s']:,}"

    def number(name: str, digits: int) -> str:
        return f"{rows[name]['value']:.{digits}f}"

    def load_line(what: str, kind: str) -> str:
        rate = f"{number(f'{kind} {PART}', 2)} of {per_s(f'{kind}, direct')} messages a second"
        proxy_us = number(f"{kind}, CPU of the proxy a message", 1)
        own_us = number(f"{kind}, CPU of the primary a message, direct", 1)
        return f"| {what} | {rate}; CPU of the proxy {proxy_us} µs a message, of the namespace itself {own_us} µs |"

    def latency(name: str) -> str:
        added, direct = f"one in flight, the proxy adds, {name}", f"one in flight, direct, {name}"
        return f"{name} {number(added, 2)} ms to {number(direct, 2)} ms"

    def memory(kind: str) -> str:
        return number(f"1,000 idle connections with a {kind} each, memory", 0)

    gaps = [row for name, row in rows.items() if name.startswith("longest gap") and "proxy" in name]
    longest = max(gaps, key=lambda row: float(row["least_median_most"][2]))
    _, how, _, attempts = str(longest["row"]).split(", ")
    bound = str(longest["must"]).removeprefix("<= ")
    lines = [
        "| | through the proxy, beside the same client without it |",
        "|---|---|",
        load_line("sending, 1,000 messages in flight", "ingest"),
        load_line("receiving, 1,000 messages ahead", "egress"),
        f"| one message in flight | adds {latency('p50')}, {latency('p99')} |",
        f"| 1,000 idle connections | {memory('sender')} MB of memory if each has a sender, {memory('receiver')} MB "
        f"with a receiver each; {number('memory before', 0)} MB before |",
        f"| the longest time without an accepted send in an outage, {longest['outages']} outages of each kind | "
        f"{longest['least_median_most'][2]:.2f} s, where the paired client may take {bound} s: {how}, {attempts} |",
    ]
    return "\n".join(lines)


def page_with(page: str, *made: str) -> str:
    """The page with these figures, in their order."""
    head, *rest = page.split(BEGIN)
    return head + "".join(
        f"{BEGIN}\n{each}\n{END}{text.partition(END)[2]}" for each, text in zip(made, rest, strict=True)
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page_with(path.read_text(encoding="utf-8"), table()), encoding="utf-8")
