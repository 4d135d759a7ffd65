"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from twinbus.cost.bill import Bill
from twinbus.spark.compaction.coverage import FOREVER_MS, Unknown
from twinbus.spark.jobs.findings import Findings, Row
from twinbus.spark.report.plots import Bar, columns, line, moment, shares, timeline
from twinbus.spark.transforms.classes import ACCEPTED_CLASSES, OTHER_CLASSES

UNKNOWN_SHOWN = 50

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>twinbus report</title><style>{style}</style></head><body><main>
<h1>What became of the messages</h1>
<p class="verdict {mood}">{verdict}</p>
<p>{summary}</p>
{sections}
</main></body></html>
"""
STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--paper:#fff;--faint:#d9dee7;--blue:#2f6fde;--red:#c8372d;--amber:#d98a00;
--green:#2c8a4b}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ef;--paper:#151a22;--faint:#333c4a;--blue:#6aa0ff;--red:#ff7a70;
--amber:#ffbe4d;--green:#68cf8b}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:0}
main{max-width:1000px;margin:auto;padding:24px}h1{font-size:24px}h2{font-size:18px;margin-top:40px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}
th,td{padding:3px 8px;border-bottom:1px solid var(--faint);text-align:right;white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}
.verdict{font-size:20px;font-weight:600;padding:10px 14px;border-left:6px solid}
.good{border-color:var(--green)}.bad{border-color:var(--red)}.unsure{border-color:var(--amber)}
svg{width:100%;height:auto}svg text{fill:var(--ink);font-size:11px}.grid{stroke:var(--faint)}
.line{fill:none;stroke:var(--blue);stroke-width:1.5}.area{fill:var(--blue);opacity:.15}.column{fill:var(--blue)}
.suspected{fill:var(--amber)}.out{fill:var(--red)}
"""


def page(findings: Findings) -> str:
    """The whole page."""
    mood = mood_of(findings)
    sections = [_coverage(findings), _messages(findings), _named(findings), _outages(findings), _flow(findings)]
    sections += [_order(findings), _cost(findings)]
    return PAGE.format(
        style=STYLE,
        mood=mood,
        verdict=escape(_headline(findings)),
        summary=escape(summary(findings)),
        sections="\n".join(filter(None, sections)),
    )


def mood_of(findings: Findings) -> str:
    """good: nothing is lost; bad: something is; unsure: nobody can tell."""
    if findings.is_empty or findings.reconciliation.lost is None:
        return "unsure"
    return "bad" if findings.reconciliation.lost else "good"


def _headline(findings: Findings) -> str:
    return "Nothing was recorded" if findings.is_empty else findings.reconciliation.verdict.capitalize()


def summary(findings: Findings) -> str:
    """One or two sentences about what was read."""
    coverage, found = findings.coverage, findings.reconciliation
    if findings.is_empty:
        return "The ledger has no records."
    text = (
        f"{found.accepted:,} messages were accepted from {moment(coverage.first_ms)} to {moment(coverage.last_ms)} "
        f"UTC, as {coverage.records:,} records of {coverage.processes:,} processes say. A message counts as lost when "
        f"others that came {found.horizon_min} minutes later have gone on."
    )
    if found.backwards_ms > 1000:
        text += f" Clocks disagree by at least {found.backwards_ms / 1000:,.1f} s; that was added to the horizon."
    return text


def _coverage(findings: Findings) -> str:
    coverage = findings.coverage
    if coverage.is_complete and not coverage.troubles:
        return ""
    rows = [_unknown_row(each) for each in coverage.unknown[:UNKNOWN_SHOWN]]
    missing = _table(("process", "records", "from", "to", "why"), rows, text=(4,)) if rows else ""
    skipped = [(each.segment, each.defect, each.count, each.text) for each in coverage.troubles]
    left_out = _table(("segment", "what", "lines", "why"), skipped, text=(1, 3)) if skipped else ""
    return "".join(
        [
            "<h2>What is missing</h2><p>Where records are missing, nobody can say that nothing was lost.</p>" + missing
            if rows
            else "",
            f"<h2>What was skipped</h2>{left_out}" if skipped else "",
        ]
    )


def _unknown_row(unknown: Unknown) -> tuple[object, ...]:
    until = "?" if unknown.until_ms >= FOREVER_MS else moment(unknown.until_ms)
    since = moment(unknown.since_ms) if unknown.since_ms else "?"
    name = f"{unknown.program} {unknown.process}".strip()
    return (name, "?" if unknown.records is None else unknown.records, since, until, unknown.reason)


def _messages(findings: Findings) -> str:
    found = findings.reconciliation
    classes = [
        each for each in (*ACCEPTED_CLASSES, *OTHER_CLASSES) if found.count(each) or each in ("delivered", "lost")
    ]
    heads = ("entity", *(each.replace("_", " ") for each in classes))
    rows = [(entity, *(counts.get(each, 0) for each in classes)) for entity, counts in sorted(found.entities.items())]
    total = ("all", *(found.count(each) for each in classes))
    remark = f"<p>{found.overtaken:,} wait although later ones have gone on.</p>" if found.overtaken else ""
    return f"<h2>Where they are</h2>{_table(heads, [*rows, total])}{remark}"


def _named(findings: Findings) -> str:
    rows = [
        (row["entity"], row["message_id"], row["verdict"].replace("_", " "), moment(row["first_ms"]))
        for row in findings.reconciliation.named
    ]
    table = _table(("entity", "message", "what", "first heard of"), rows, text=(1, 2))
    return f"<h2>To look at</h2>{table}" if rows else ""


def _outages(findings: Findings) -> str:
    if not findings.outages:
        return "<h2>Outages</h2><p>No entity failed over.</p>"
    bars = [bar for row in findings.outages for bar in _bars(row)]
    coverage = findings.coverage
    rows = [
        (row["entity"], row["outages"], _length(row["out_ms"]), "" if row["share"] is None else f"{row['share']:.4%}")
        for row in findings.availability
    ]
    table = _table(("entity", "outages", "time out", "available"), rows)
    return f"<h2>Outages</h2>{timeline(bars, coverage.first_ms, coverage.last_ms)}{table}"


def _bars(row: Row) -> Iterable[Bar]:
    end = "still out" if row["recovered_ms"] is None else moment(row["recovered_ms"])
    title = f"{row['entity']}: {moment(row['failed_over_ms'])} to {end}, {row['failovers']} failovers"
    yield Bar(row["entity"], "suspected", row["suspected_ms"], row["failed_over_ms"], f"{title} (suspected)")
    yield Bar(row["entity"], "out", row["failed_over_ms"], row["recovered_ms"], title)


def _flow(findings: Findings) -> str:
    if not any(row["backlogged"] or row["sent_home"] or row["left"] for row in findings.flow):
        return ""
    first, last = findings.coverage.first_ms, findings.coverage.last_ms
    depth = line([(row["bucket_ms"], max(0, row["depth"])) for row in findings.flow], first, last)
    per_s = 1000 / findings.bucket_ms
    rate = columns(
        [(row["bucket_ms"], row["sent_home"] * per_s) for row in findings.flow], first, last, findings.bucket_ms
    )
    return (
        f"<h2>Messages in the backlog</h2>{depth}<h2>Drain rate, messages a second</h2>{rate}"
        f"<p>In steps of {_length(findings.bucket_ms)}.</p>"
    )


def _order(findings: Findings) -> str:
    rows = [
        (
            row["entity"],
            row["basis"] or "",
            row["arrived"] or 0,
            row["late"] or 0,
            f"{row['sessions_hurt'] or 0:,} of {row['sessions']:,}",
            _length(row["worst_ms"] or 0),
        )
        for row in findings.ordering
    ]
    heads = ("entity", "seen as", "arrived", "late", "sessions hurt", "worst")
    sessions = [(row["entity"], row["session_id"], row["messages"], row["late"]) for row in findings.sessions_hurt]
    worst = _table(("entity", "session", "messages", "late"), sessions, text=(1,)) if sessions else ""
    text = "<p>Late: came after a message that the same process sent later to the same entity or session.</p>"
    return f"<h2>Order</h2>{text}{_table(heads, rows, text=(1,))}{worst}" if rows else ""


def _cost(findings: Findings) -> str:
    parts = [_month(each) for each in findings.bills]
    return f"<h2>Cost</h2><p>At list prices of {escape(findings.prices_as_of)}.</p>{''.join(parts)}" if parts else ""


def _month(bill: Bill) -> str:
    head, *rows = bill.rows()
    bars = [
        (str(each.stage), each.use.full, f"{each.use.full:,.0f} operations") for each in bill.lines if each.use.full
    ]
    return f"<h3>{escape(bill.month)}</h3>{_table([str(cell) for cell in head], rows)}{shares(bars)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, text: tuple[int, ...] = ()) -> str:
    def cell(tag: str, at: int, value: object) -> str:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        return f"<{tag}{' class=text' if at in text else ''}>{escape(shown)}</{tag}>"

    top = "".join(cell("th", at, head) for at, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', at, value) for at, value in enumerate(row))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _length(length_ms: float) -> str:
    """As 1 h 30 min, 5 min, 12 s, 250 ms."""
    if length_ms < 1000:
        return f"{length_ms:g} ms"
    minutes, seconds = divmod(round(length_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds if not hours else 0, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)
