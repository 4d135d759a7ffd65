"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twinbus import __version__
from twinbus.cost.bill import Alternative, Bill
from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.plain_text import in_html
from twinbus.spark.compaction.coverage import MissingRecords
from twinbus.spark.jobs.findings import MINOR_SKEW_MS, MINUTE_MS, Findings, Row
from twinbus.spark.report.plots import PlotBar, columns, line, shares, timeline
from twinbus.spark.transforms.verdict_names import ACCEPTED_CLASSES, DELIVERED, LOST, OTHER_CLASSES, UNKNOWN
from twinbus.units import clock_time_or_ms, percent, report_duration

UNKNOWN_SHOWN = 50

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>twinbus report</title><style>{style}</style></head><body><main>
<p class="soft">What became of the messages</p>
<h1 class="verdict {mood}">{verdict}</h1>
<p class="soft">{about}</p>
<p>{summary}</p>
{sections}
</main></body></html>
"""

STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6575;--paper:#fff;--faint:#d9dee7;--stripe:#f5f7fa;--blue:#2f6fde;
--red:#c8372d;--amber:#d98a00;--green:#2c8a4b;--shade:#1c233040}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ef;--soft:#9aa5b5;--paper:#151a22;--faint:#333c4a;--stripe:#1b212b;
--blue:#6aa0ff;--red:#ff7a70;--amber:#ffbe4d;--green:#68cf8b;--shade:#e4e8ef40}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:0}
main{max-width:1000px;margin:auto;padding:24px}h1{margin:8px 0;line-height:1.25}
h2{font-size:18px;margin:40px 0 8px}h3{font-size:15px;margin:24px 0 4px}p{margin:8px 0;max-width:75ch}
.wide{overflow-x:auto;background:linear-gradient(90deg,var(--paper) 40%,transparent) 0 0/40px 100% no-repeat local,
linear-gradient(270deg,var(--paper) 40%,transparent) 100% 0/40px 100% no-repeat local,
linear-gradient(90deg,var(--shade),transparent) 0 0/16px 100% no-repeat,
linear-gradient(270deg,var(--shade),transparent) 100% 0/16px 100% no-repeat}.soft{color:var(--soft)}
table{border-collapse:collapse;min-width:min(100%,480px);font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;border-bottom:1px solid var(--faint);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}tr.total td{font-weight:600}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.long{white-space:normal;min-width:220px}
.verdict{font-size:22px;font-weight:600;padding:10px 14px;border-left:6px solid;background:var(--stripe)}
.good{border-color:var(--green)}.bad{border-color:var(--red)}.unsure{border-color:var(--amber)}
svg{width:100%;height:auto;display:block}svg.narrow{display:none}svg text{fill:var(--ink);font-size:12px}
.grid{stroke:var(--faint)}.line{fill:none;stroke:var(--blue);stroke-width:1.5}.area{fill:var(--blue);opacity:.15}
.column{fill:var(--blue)}.suspected{fill:var(--amber)}.out{fill:var(--red)}
.key{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}.key.suspected{background:var(--amber)}
.key.out{background:var(--red)}
@media(max-width:700px){svg.broad{display:none}svg.narrow{display:block;max-width:480px}}
@media print{main{max-width:none;padding:0}h2,h3{break-after:avoid}tr,svg{break-inside:avoid}.wide{overflow:visible}}
@media(max-width:600px){main{padding:16px}td:first-child{overflow-wrap:anywhere;min-width:6em}.verdict{font-size:18px}
th,td:first-child{white-space:normal}th{vertical-align:bottom}th,td{padding-right:10px}
.noted :is(table,tbody){display:block}.noted tr{display:flex;flex-wrap:wrap;column-gap:12px;padding:4px 0;
border-bottom:1px solid var(--faint)}.noted :is(th,td){border:0;padding:0;white-space:normal;overflow-wrap:anywhere}
.noted :is(th,td).long{flex-basis:100%;min-width:0}}
"""
"""For light and dark screens, wide ones and phones. A shade at a side of a table says that it goes on there; on phones
what takes several lines is below the other cells of its row."""


def page(findings: Findings) -> str:
    sections = [_messages(findings), _coverage(findings), _named(findings), _outages(findings), _flow(findings)]
    sections += [_order(findings), _counts(findings), _cost(findings)]
    headline = "Nothing was recorded" if findings.is_empty else findings.reconciliation.verdict.capitalize()
    return PAGE.format(
        style=STYLE,
        mood={True: "good", False: "bad", None: "unsure"}[findings.is_lossless],
        verdict=in_html(headline),
        about=in_html(about(findings)),
        summary=in_html(summary(findings)),
        sections="\n".join(filter(None, sections)),
    )


def about(findings: Findings) -> str:
    """The pair, the time and the version, in one line."""
    names = " and ".join(
        f"{', '.join(called)} ({side})"
        for side, called in (("primary", findings.primaries), ("secondary", findings.secondaries))
        if called
    )
    made = f"{clock_time_or_ms(findings.made_ms)} UTC" if findings.made_ms else ""
    chosen = f"only {findings.selection}" if not findings.selection.is_all else ""
    return " · ".join(filter(None, [names, chosen, made, f"twinbus {__version__}"]))


def not_cut(findings: Findings) -> str:
    """What of a report on a selection is about more than that; empty: nothing."""
    selection = findings.selection
    if selection.is_all:
        return ""
    parts = ["Missing records, clocks and the horizon are judged by everything on record"]
    if selection.has_window:
        step = report_duration(findings.bucket_ms)
        parts.append(f"flow and cost are cut to steps of {step}, and the standing charge is a whole month's")
    if selection.entities:
        parts.append("flow and cost are those of all entities: they are not kept by entity")
    return "; ".join(parts) + "."


def summary(findings: Findings) -> str:
    """Some sentences about what was read."""
    coverage, found = findings.coverage, findings.reconciliation
    if findings.is_empty:
        return "The ledger has no records."
    span = f"from {clock_time_or_ms(coverage.first_ms)} to {clock_time_or_ms(coverage.last_ms)} UTC"
    chosen = findings.selection
    text = (
        f"{found.accepted:,} messages were accepted {span}, as {coverage.records:,} records of "
        f"{coverage.processes:,} processes say."
        if chosen.is_all
        else f"This is about {found.accepted:,} {chosen}. The ledger has {coverage.records:,} records of "
        f"{coverage.processes:,} processes {span}, and all of them were searched."
    )
    text += f" A message counts as lost when others that came {found.horizon_min} min later have gone on."
    if found.backwards_ms > MINOR_SKEW_MS and not found.has_wrong_clock:
        text += f" Clocks disagree by at least {found.backwards_ms / 1000:,.1f} s; that was added to the horizon."
    return f"{text} {not_cut(findings)}".rstrip()


def _counts(findings: Findings) -> str:
    rows = [
        (each.entity or "all entities", each.metric, each.service, each.outcome, each.text) for each in findings.counts
    ]
    text = (
        "<p>Counts have no names: that they agree proves nothing about a message, and others may use an entity too. "
        "If the service counted fewer incoming messages than it acknowledged, the answer is unknown.</p>"
    )
    heads = ("entity", "metric", "service", "compared", "what it says")
    return f"<h2>What the service counted</h2>{text}{table(heads, rows, text=(1, 3, 4), long=(4,))}" if rows else ""


def _coverage(findings: Findings) -> str:
    coverage, found = findings.coverage, findings.reconciliation
    facts = [
        ("records", coverage.records),
        ("processes that wrote them", coverage.processes),
        ("of these still running", coverage.running),
        ("first record", clock_time_or_ms(coverage.first_ms)),
        ("last record", clock_time_or_ms(coverage.last_ms)),
        ("horizon", f"{found.horizon_min} min"),
        ("records are missing", "no" if coverage.is_complete else f"yes, in {len(coverage.missing):,} places"),
    ]
    head = f"<h2>What was read</h2>{table(('', ''), facts)}" if not findings.is_empty else ""
    clocks = "".join(f"<p>Put right: {in_html(line)}.</p>" for line in coverage.clocks[:UNKNOWN_SHOWN])
    unkept = f"<p>{in_html(unkept_line(findings))}.</p>" if unkept_line(findings) else ""
    return head + clocks + unkept + _missing(findings) + _skipped(findings)


def unkept_line(findings: Findings) -> str:
    """When nobody who takes messages kept a ledger, although the window has messages; empty: nothing to say."""
    if findings.coverage.unkept is None or not findings.reconciliation.accepted:
        return ""
    since, until = map(clock_time_or_ms, findings.coverage.unkept)
    return f"From {since} to {until} UTC nobody who takes messages kept a ledger"


def _missing(findings: Findings) -> str:
    unknown = findings.coverage.missing
    rows = [_unknown_row(each) for each in unknown[:UNKNOWN_SHOWN]]
    more = f"<p>And {len(unknown) - len(rows):,} more.</p>" if len(unknown) > len(rows) else ""
    meaning = (
        "Every message is accounted for without these records: those who accepted it have recorded everything."
        if findings.reconciliation.is_certain
        else "Where records are missing, nobody can say that nothing was lost."
    )
    text = f"<h2>What is missing</h2><p>{meaning}</p>"
    shown = table(("process", "records", "from", "to", "why"), rows, text=(4,), long=(4,))
    return f"{text}{shown}{more}" if rows else ""


def _skipped(findings: Findings) -> str:
    rows = [(each.segment, each.defect, each.count, each.text) for each in findings.coverage.skipped]
    shown = table(("segment", "what", "lines", "why"), rows, text=(1, 3), long=(3,))
    return f"<h2>What was skipped</h2>{shown}" if rows else ""


def _unknown_row(unknown: MissingRecords) -> tuple[object, ...]:
    until = "?" if unknown.until_ms >= FOREVER_MS else clock_time_or_ms(unknown.until_ms)
    since = clock_time_or_ms(unknown.since_ms) if unknown.since_ms else "?"
    name = f"{unknown.program} {unknown.process}".strip()
    return (name, "?" if unknown.records is None else unknown.records, since, until, unknown.reason)


def _messages(findings: Findings) -> str:
    found = findings.reconciliation
    in_order = (LOST, UNKNOWN, *ACCEPTED_CLASSES, *OTHER_CLASSES)  # on a phone the first columns are seen
    classes = [each for each in dict.fromkeys(in_order) if found.count(each) or each in (DELIVERED, LOST)]
    heads = ("entity", *(each.replace("_", " ") for each in classes))
    rows = [(entity, *(counts.get(each, 0) for each in classes)) for entity, counts in sorted(found.entities.items())]
    total = ("all", *(found.count(each) for each in classes))
    remark = f"<p>{found.overtaken:,} wait although later ones have gone on.</p>" if found.overtaken else ""
    remark += f"<p>{in_html(held(findings))}</p>" if found.held else ""
    return f"<h2>Where they are</h2>{table(heads, [*rows, total], total=True)}{remark}" if rows else ""


def _named(findings: Findings) -> str:
    rows = [
        (
            row["entity"],
            row["message_id"],
            row["verdict"].replace("_", " "),
            clock_time_or_ms(row["first_ms"]),
            row["why"] or "",
        )
        for row in findings.reconciliation.named
    ]
    shown = table(("entity", "message", "what", "first heard of", "why"), rows, text=(1, 2, 4), long=(4,))
    more = more_named(findings, len(rows))
    return f"<h2>To look at</h2>{shown}{f'<p>{in_html(more)}</p>' if more else ''}" if rows else ""


def more_named(findings: Findings, shown: int) -> str:
    """How many more messages to look at there are than were shown, and how to see all of them; empty: none."""
    found = findings.reconciliation
    more = found.not_named + len(found.named) - shown
    if findings.verdicts_url is not None:
        return f"And {more:,} more: {findings.verdicts_url} has the verdict of every message." if more else ""
    return f"And {more:,} more: --lost-to FILE writes all of them to a file." if more else ""


def held(findings: Findings) -> str:
    """How many messages a syphon holds under lock, and since when; empty: none."""
    found = findings.reconciliation
    return (
        f"{found.held:,} of those that wait are held under lock by a syphon, the first since "
        f"{clock_time_or_ms(found.held_since_ms)}."
        if found.held
        else ""
    )


def _outages(findings: Findings) -> str:
    rows = [
        (
            row["entity"],
            row["outages"],
            report_duration(row["out_ms"]),
            "" if row["share"] is None else percent(row["share"]),
        )
        for row in findings.availability
    ]
    shown = table(("entity", "outages", "time out", "available"), rows) if rows else ""
    if not findings.outages:
        return f"<h2>Outages</h2><p>No entity failed over.</p>{shown}"
    bars = [bar for row in findings.outages for bar in _bars(row)]
    key = '<span class="key suspected"></span>failing<span class="key out"></span>out'
    plot = timeline(bars, *_span_ms(findings))
    return f'<h2>Outages</h2><p class="soft">As clients saw it: {key}</p>{plot}{shown}'


def _span_ms(findings: Findings) -> tuple[int, int]:
    """The time that plots show. A window may begin after the last record, or end before the first one."""
    coverage, selection = findings.coverage, findings.selection
    first = max(coverage.first_ms, selection.begin_ms)
    last = min(coverage.last_ms, selection.end_ms)
    if last <= first:
        first, last = selection.begin_ms or first, min(max(findings.made_ms, coverage.last_ms), selection.end_ms)
    return first, max(last, first + MINUTE_MS)


def _bars(row: Row) -> Iterable[PlotBar]:
    end = "still out" if row["recovered_ms"] is None else clock_time_or_ms(row["recovered_ms"])
    title = f"{row['entity']}: {clock_time_or_ms(row['failed_over_ms'])} to {end}, {row['failovers']} failovers"
    yield PlotBar(row["entity"], "suspected", row["suspected_ms"], row["failed_over_ms"], f"{title} (suspected)")
    yield PlotBar(row["entity"], "out", row["failed_over_ms"], row["recovered_ms"], title)


def _flow(findings: Findings) -> str:
    if not any(row["backlogged"] or row["sent_home"] or row["left"] for row in findings.flow):
        return ""
    first, last = _span_ms(findings)
    depth = line([(row["bucket_ms"], max(0, row["depth"])) for row in findings.flow], first, last)
    per_s = 1000 / findings.bucket_ms
    rate = columns(
        [(row["bucket_ms"], row["sent_home"] * per_s) for row in findings.flow], first, last, findings.bucket_ms
    )
    return (
        f"<h2>Messages in the backlog</h2>{depth}<h2>Drain rate, messages a second</h2>{rate}"
        f'<p class="soft">In steps of {report_duration(findings.bucket_ms)}.</p>'
    )


def _order(findings: Findings) -> str:
    rows = [
        (
            row["entity"],
            row["basis"] or "",
            row["arrived"] or 0,
            row["late"] or 0,
            f"{row['sessions_hurt'] or 0:,} of {row['sessions']:,}",
            report_duration(row["worst_ms"] or 0),
        )
        for row in findings.ordering
    ]
    heads = ("entity", "seen as", "arrived", "late", "sessions hurt", "worst")
    sessions = [(row["entity"], row["session_id"], row["messages"], row["late"]) for row in findings.sessions_hurt]
    worst = table(("entity", "session", "messages", "late"), sessions, text=(1,)) if sessions else ""
    text = "<p>Late: came after a message that the same process sent later to the same entity or session.</p>"
    worst = f"<h3>Sessions that suffered most</h3>{worst}" if worst else ""
    return f"<h2>Order</h2>{text}{table(heads, rows, text=(1,))}{worst}" if rows else ""


def _cost(findings: Findings) -> str:
    others = findings.alternatives or [[] for _ in findings.bills]
    parts = [_month(each, beside) for each, beside in zip(findings.bills, others, strict=True)]
    text = (
        f"<p>At list prices of {in_html(findings.prices_as_of)}. Counted twice: by the rule of the documents, and in "
        "full, as the service meters it. The standing charge is in the total.</p>"
    )
    return f"<h2>Cost</h2>{text}{''.join(parts)}" if parts else ""


def _month(bill: Bill, others: list[Alternative]) -> str:
    head, *rows = bill.rows()
    bars = [(str(each.stage), each.use.full, f"{each.use.full:,.0f}") for each in bill.lines if each.use.full]
    shown = table([str(cell) for cell in head], rows, total=True)
    return f"<h3>{in_html(bill.month)}</h3>{shown}{shares(bars, 'operations')}{_beside(bill, others)}"


def _beside(bill: Bill, others: list[Alternative]) -> str:
    """The cost of the month beside the alternatives."""
    pairing = f"of it for pairing {bill.pairing_usd('documents'):,.2f} to {bill.pairing_usd('full'):,.2f}"
    rows = [("twinbus on Standard, by the documents", f"{bill.usd('documents'):,.2f}", "sends go on")]
    rows += [("twinbus on Standard, in full", f"{bill.usd('full'):,.2f}", f"sends go on; {pairing}")]
    rows += [(each.name, f"{each.usd:,.2f}", each.remark) for each in others]
    shown = table(("beside the alternatives", "USD a month", ""), rows, text=(2,), long=(2,))
    return shown if others else ""


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    text: tuple[int, ...] = (),
    long: tuple[int, ...] = (),
    total: bool = False,
) -> str:
    """Columns in `text` are not numbers, those in `long` may take several lines; with `total` the last row is one."""

    def cell(tag: str, at: int, value: object) -> str:
        shown = f"{value:,}" if isinstance(value, int) else in_html(str(value), "\n")
        kinds = " ".join(kind for kind, chosen in (("text", text), ("long", long)) if at in chosen)
        mark = f' class="{kinds}"' if kinds else ""
        return f"<{tag}{mark}>{shown}</{tag}>"

    def line(at: int, row: Sequence[Any]) -> str:
        mark = ' class="total"' if total and at == len(rows) - 1 else ""
        return f"<tr{mark}>{''.join(cell('td', place, value) for place, value in enumerate(row))}</tr>"

    top = "".join(cell("th", at, head) for at, head in enumerate(heads)) if any(heads) else ""
    body = "".join(line(at, row) for at, row in enumerate(rows))
    kind = "wide noted" if long else "wide"
    return f'<div class="{kind}"><table>{f"<tr>{top}</tr>" if top else ""}{body}</table></div>'
