"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.cost.alternatives import Alternative
from twinbus.cost.bill import Bill
from twinbus.ledger.endings import FOREVER_MS
from twinbus.percent import percent
from twinbus.plain_text import in_html
from twinbus.spark.compaction.coverage import Unknown
from twinbus.spark.jobs.findings import Findings, Row
from twinbus.spark.jobs.skew import HEEDED_MS, is_wrong
from twinbus.spark.report.plots import Bar, columns, line, moment, shares, timeline
from twinbus.spark.report.style import STYLE
from twinbus.spark.report.table import length, table
from twinbus.spark.transforms.classes import ACCEPTED_CLASSES, OTHER_CLASSES

UNKNOWN_SHOWN = 50

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>twinbus report</title><style>{style}</style></head><body><main>
<h1>What became of the messages</h1>
<p class="verdict {mood}">{verdict}</p>
<p>{summary}</p>
{sections}
</main></body></html>
"""


def page(findings: Findings) -> str:
    """The whole page."""
    mood = mood_of(findings)
    sections = [_messages(findings), _coverage(findings), _named(findings), _outages(findings), _flow(findings)]
    sections += [_order(findings), _cost(findings)]
    return PAGE.format(
        style=STYLE,
        mood=mood,
        verdict=in_html(_headline(findings)),
        summary=in_html(summary(findings)),
        sections="\n".join(filter(None, sections)),
    )


def mood_of(findings: Findings) -> str:
    """good: nothing is lost; bad: something is; unsure: nobody can tell."""
    if findings.reconciliation.lost_at_least:
        return "bad"
    return "unsure" if findings.is_empty or findings.reconciliation.lost is None else "good"


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
        f"others that came {found.horizon_min} min later have gone on."
    )
    if found.backwards_ms > HEEDED_MS and not is_wrong(found.backwards_ms):
        text += f" Clocks disagree by at least {found.backwards_ms / 1000:,.1f} s; that was added to the horizon."
    return text


def _coverage(findings: Findings) -> str:
    coverage, found = findings.coverage, findings.reconciliation
    facts = [
        ("records", coverage.records),
        ("processes that wrote them", coverage.processes),
        ("of these still running", coverage.running),
        ("first record", moment(coverage.first_ms)),
        ("last record", moment(coverage.last_ms)),
        ("horizon", f"{found.horizon_min} min"),
        ("records are missing", "no" if coverage.is_complete else f"yes, in {len(coverage.unknown):,} places"),
    ]
    head = f"<h2>What was read</h2>{table(('', ''), facts)}" if not findings.is_empty else ""
    clocks = "".join(f"<p>Put right: {in_html(line)}.</p>" for line in coverage.clocks[:UNKNOWN_SHOWN])
    return head + clocks + _missing(findings) + _skipped(findings)


def _missing(findings: Findings) -> str:
    unknown = findings.coverage.unknown
    rows = [_unknown_row(each) for each in unknown[:UNKNOWN_SHOWN]]
    more = f"<p>And {len(unknown) - len(rows):,} more.</p>" if len(unknown) > len(rows) else ""
    text = f"<h2>What is missing</h2><p>{_meaning(findings)}</p>"
    shown = table(("process", "records", "from", "to", "why"), rows, text=(4,), long=(4,))
    return f"{text}{shown}{more}" if rows else ""


def _meaning(findings: Findings) -> str:
    if findings.reconciliation.is_certain:
        return "Every message is accounted for without these records: those who accepted it have told everything."
    return "Where records are missing, nobody can say that nothing was lost."


def _skipped(findings: Findings) -> str:
    rows = [(each.segment, each.defect, each.count, each.text) for each in findings.coverage.troubles]
    shown = table(("segment", "what", "lines", "why"), rows, text=(1, 3), long=(3,))
    return f"<h2>What was skipped</h2>{shown}" if rows else ""


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
    remark += f"<p>{in_html(held(findings))}</p>" if found.held else ""
    return f"<h2>Where they are</h2>{table(heads, [*rows, total], total=True)}{remark}" if rows else ""


def _named(findings: Findings) -> str:
    rows = [
        (row["entity"], row["message_id"], row["verdict"].replace("_", " "), moment(row["first_ms"]), row["why"] or "")
        for row in findings.reconciliation.named
    ]
    shown = table(("entity", "message", "what", "first heard of", "why"), rows, text=(1, 2, 4), long=(4,))
    more = more_named(findings, len(rows))
    return f"<h2>To look at</h2>{shown}{f'<p>{in_html(more)}</p>' if more else ''}" if rows else ""


def more_named(findings: Findings, shown: int) -> str:
    """How many more messages to look at there are than were shown, and how to see all of them; empty: none."""
    found = findings.reconciliation
    more = found.not_named + len(found.named) - shown
    return f"And {more:,} more: --lost-to FILE writes all of them to a file." if more else ""


def held(findings: Findings) -> str:
    """How many messages a syphon holds under lock, and since when; empty: none."""
    found = findings.reconciliation
    return (
        f"{found.held:,} of those that wait are held under lock by a syphon, the first since "
        f"{moment(found.held_since_ms)}."
        if found.held
        else ""
    )


def _outages(findings: Findings) -> str:
    rows = [
        (row["entity"], row["outages"], length(row["out_ms"]), "" if row["share"] is None else percent(row["share"]))
        for row in findings.availability
    ]
    shown = table(("entity", "outages", "time out", "available"), rows) if rows else ""
    if not findings.outages:
        return f"<h2>Outages</h2><p>No entity failed over.</p>{shown}"
    bars = [bar for row in findings.outages for bar in _bars(row)]
    coverage = findings.coverage
    key = '<span class="key suspected"></span>failing<span class="key out"></span>out'
    plot = timeline(bars, coverage.first_ms, coverage.last_ms)
    return f'<h2>Outages</h2><p class="soft">As clients saw it: {key}</p>{plot}{shown}'


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
        f'<p class="soft">In steps of {length(findings.bucket_ms)}.</p>'
    )


def _order(findings: Findings) -> str:
    rows = [
        (
            row["entity"],
            row["basis"] or "",
            row["arrived"] or 0,
            row["late"] or 0,
            f"{row['sessions_hurt'] or 0:,} of {row['sessions']:,}",
            length(row["worst_ms"] or 0),
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
    bars = [
        (str(each.stage), each.use.full, f"{each.use.full:,.0f} operations") for each in bill.lines if each.use.full
    ]
    shown = table([str(cell) for cell in head], rows, total=True)
    return f"<h3>{in_html(bill.month)}</h3>{shown}{shares(bars)}{_beside(bill, others)}"


def _beside(bill: Bill, others: list[Alternative]) -> str:
    """What the month cost, and what else there was to buy."""
    pairing = f"of it for pairing {bill.pairing_usd('documents'):,.2f} to {bill.pairing_usd('full'):,.2f}"
    rows = [("twinbus on Standard, by the documents", f"{bill.usd('documents'):,.2f}", "sends go on")]
    rows += [("twinbus on Standard, in full", f"{bill.usd('full'):,.2f}", f"sends go on; {pairing}")]
    rows += [(each.name, f"{each.usd:,.2f}", each.remark) for each in others]
    shown = table(("beside the alternatives", "USD a month", ""), rows, text=(2,), long=(2,))
    return shown if others else ""
