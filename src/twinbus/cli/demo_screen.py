"""The output of the demo: a live table in a terminal, plain lines in a pipe."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from typing import Any, TextIO, TypeVar, assert_never

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from twinbus.cli.output import table
from twinbus.demo.journal import MessageCounts, total_counts
from twinbus.demo.progress import DemoOutput, OutputLine, ProgressSnapshot
from twinbus.demo.run import DemoResult
from twinbus.plain_text import first_few
from twinbus.units import percent

Result = TypeVar("Result")
LOST_SHOWN = 10


def follow(run: Generator[DemoOutput, None, Result], lines: TextIO) -> Result:
    """Show a run while it goes on, and return its result; lines are written to `lines`."""
    console = Console(file=lines, highlight=False)
    live = Live(console=console, transient=True, refresh_per_second=10) if console.is_terminal else None
    with closing(run), live or nullcontext():  # its processes end also when showing it is interrupted
        try:
            while True:
                output = next(run)
                match output:
                    case OutputLine(text) if live is not None:
                        live.console.print(text, markup=False, no_wrap=True, overflow="ellipsis")
                    case OutputLine(text):
                        lines.write(text + "\n")
                        lines.flush()
                    case ProgressSnapshot() as snapshot:
                        if live is not None:
                            live.update(_table(snapshot))
                    case _:
                        assert_never(output)
        except StopIteration as end:
            result: Result = end.value
            return result


def _table(snapshot: ProgressSnapshot) -> Table:
    table = Table(
        title=Text(snapshot.doing),
        title_style="italic",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,  # 78 columns: a terminal has 80
    )
    for head in ("entity", "kind", "state"):
        table.add_column(head)
    for head in ("to primary", "to backlog", "pings", "received"):
        table.add_column(head, justify="right")
    for each in snapshot.entities:
        # A Text, not markup: lines that are told meanwhile are printed without markup, and the table with them.
        state = Text("failed over", "bold red") if each.is_failed_over else Text("healthy", "green")
        numbers = (each.to_primary, each.to_backlog, each.pings, each.received)
        table.add_row(Text(each.entity), Text(each.kind), state, *(f"{number:,}" for number in numbers))
    return table


# --- what it came to ---


def result_text(outcome: DemoResult) -> str:
    lost = [name for count in outcome.counts for name in count.lost]
    parts = ["\nWhat the processes wrote down:", _tally_table(outcome.counts), verdict(lost)]
    if outcome.ledger is not None:
        parts += ["", "What the ledger says, read with Spark:", *_ledger_lines(outcome.ledger)]
    if outcome.report is not None:
        parts += ["", f"The whole report: {outcome.report}"]
    return "\n".join(parts)


def _tally_table(counts: Sequence[MessageCounts]) -> str:
    """An entity a column: so it fits a terminal."""
    every = [*counts, total_counts(counts)]
    return table(
        [
            ("", *(one.entity for one in every)),
            ("sent", *(one.sent for one in every)),
            ("  to the primary", *(one.to_primary for one in every)),
            ("  to the backlog", *(one.to_backlog for one in every)),
            ("received", *(one.received for one in every)),
            ("LOST", *(len(one.lost) for one in every)),
            ("duplicates", *(one.duplicates for one in every)),
            ("out of order", *(one.out_of_order for one in every)),
            ("sends that failed", *(one.failed_sends for one in every)),
            ("availability", *(percent(one.availability) for one in every)),
            ("slowest send", *(f"{one.slowest_send_s:.2f} s" for one in every)),
        ]
    )


def verdict(lost: Sequence[str]) -> str:
    if not lost:
        return "Everything that was acknowledged has been received."
    return f"LOST: {len(lost)} acknowledged messages never came: {first_few(lost, LOST_SHOWN)}"


def _ledger_lines(ledger: dict[str, Any]) -> list[str]:
    reconciliation, cost = ledger["reconciliation"], ledger["cost"]
    classes = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in reconciliation["classes"].items() if count
    )
    out_of_order = sum(row["late"] or 0 for row in ledger["ordering"])
    operations, usd = cost["operations"], cost["usd_above_base"]
    return [
        f"  {reconciliation['verdict']}: {reconciliation['accepted']:,} accepted, {classes}",
        *(
            f"  {row['entity']}: the primary was out for {row['out_ms'] / 1000:.1f} s, "
            f"{percent(row['share'])} available"
            for row in ledger["availability"]
            if row["share"] is not None
        ),
        f"  order: {out_of_order:,} messages came after a later one",
        f"  cost: {operations['documents']:,.0f} operations by the documents' rule, {operations['full']:,.0f} in full,",
        f"        {_extra(usd['full'])} above the progress charge, at list prices of {cost['prices_as_of']}",
    ]


def _extra(usd: float) -> str:
    """Tiny amounts with all their places."""
    return f"${usd:.6f}" if usd >= 0.000_001 else "nothing"
