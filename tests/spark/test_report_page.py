"""The report as a page: complete, harmless, and the same in a browser without a network."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from browser import a_page

from twinbus.spark.compaction.coverage import MissingRecords
from twinbus.spark.compaction.manifest import SkippedLines
from twinbus.spark.jobs.findings import Findings
from twinbus.spark.report.page import page
from twinbus.spark.transforms.selection import LedgerSelection

HEADS = (
    "Where they are",
    "What was read",
    "To look at",
    "Outages",
    "Messages in the backlog",
    "Drain rate, messages a second",
    "Order",
    "Cost",
)
PLOTS = ("outages over time", "messages over time", "messages a second over time", "operations by stage")
WIDE, NARROW, SMALL = 1280, 390, 360
SHOWN = "[...document.querySelectorAll('svg')].filter(each => each.clientWidth)"
COVERED = f"""{SHOWN}.flatMap(svg => {{
  const texts = [...svg.querySelectorAll('text')].map(each => [each.textContent, each.getBoundingClientRect()]);
  return texts.flatMap(([text, a], at) => texts.slice(at + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
    .map(([other]) => text + ' / ' + other));
}})"""
CUT_OFF = f"""{SHOWN}.flatMap(svg => {{
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(each => {{
    const box = each.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1;
  }}).map(each => each.textContent);
}})"""
HIDDEN = """[...document.querySelectorAll('h2, h3, th, td.long')]
  .filter(each => each.tagName != 'TH' || ['entity', 'lost', 'unknown', 'messages'].includes(each.innerText))
  .filter(each => each.getBoundingClientRect().right > innerWidth).map(each => each.innerText)"""
HINTS = """[...document.querySelectorAll('.wide')].filter(each => each.scrollWidth > each.clientWidth + 1)
  .filter(each => getComputedStyle(each).backgroundImage == 'none').length"""
SMALLEST = f"Math.min(...{SHOWN}.map(svg => 12 * svg.getScreenCTM().a))"
"""How large the letters of plots are, in pixels."""


class Looked(HTMLParser):
    """What a page has and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "onload")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_has_tables_and_plots_and_fetches_nothing(findings: Findings) -> None:
    looked = Looked()
    looked.feed(page(findings))
    assert looked.fetched == []
    assert "script" not in looked.tags
    assert looked.tags.count("svg") == 2 * len(PLOTS)  # for wide screens and for phones
    assert looked.tags.count("table") >= 7
    assert [head for head in HEADS if head not in looked.text] == []
    assert json.loads(json.dumps(findings.as_dict()))["reconciliation"]["lost"] == 9


def test_both_rules_of_counting_stand_beside_the_alternatives(findings: Findings) -> None:
    looked = Looked()
    looked.feed(page(findings))
    [bill], [others] = findings.bills, findings.alternatives
    for shown in (
        f"{bill.usd('documents'):,.2f}",
        f"{bill.usd('full'):,.2f}",
        *(f"{each.usd:,.2f}" for each in others),
    ):
        assert shown in looked.text
    assert "sends fail during 0.7 hours of outages" in looked.text
    assert findings.as_dict()["cost"]["alternatives"][0][0]["name"] == "one Standard namespace"


def test_what_is_missing_and_what_was_skipped_is_on_the_page(findings: Findings) -> None:
    unknown = MissingRecords("0a", "client", 3, 1, 2, "the disk was full")
    trouble = SkippedLines("some.jsonl", "corrupt", "not what was written", 2, [7, 8])
    coverage = replace(findings.coverage, missing=(unknown,) * 60, skipped=(trouble,))
    reconciliation = replace(findings.reconciliation, coverage_is_complete=False, knows_all_accepted=False)
    looked = Looked()
    looked.feed(page(replace(findings, coverage=coverage, reconciliation=reconciliation)))
    for said in ("What is missing", "the disk was full", "And 10 more.", "some.jsonl", "not what was written"):
        assert said in looked.text
    assert "At least 9 lost; whether more is unknown: records are missing" in looked.text


def test_records_of_a_killed_namespace_are_not_missed_if_every_message_is_accounted_for(findings: Findings) -> None:
    coverage = replace(
        findings.coverage, missing=(MissingRecords("0a", "contoso", None, 1, 2, "killed", hides_accepted=False),)
    )

    def judged(**found: int) -> tuple[int | None, str]:
        reconciliation = replace(
            findings.reconciliation, coverage_is_complete=False, knows_all_accepted=True, entities={"orders": found}
        )
        return reconciliation.lost, page(replace(findings, coverage=coverage, reconciliation=reconciliation))

    lost, text = judged(delivered=5)
    assert lost == 0
    assert "Every message is accounted for without these records" in text
    assert judged(delivered=5, lost=1)[0] == 1
    assert judged(delivered=5, unknown=1)[0] is None
    assert judged(delivered=5, sent_elsewhere=1)[0] is None
    lost, text = judged()
    assert lost is None
    assert "nobody can say that nothing was lost" in text


def test_the_page_leads_with_the_verdict_the_pair_the_time_and_the_version(findings: Findings) -> None:
    text = page(replace(findings, made_ms=1_741_528_800_000))
    head = text[: text.index("<h2>")]
    places = [head.index(each) for each in ("9 lost", "contoso", "backup", "2025-03-09 14:00:00 UTC", "twinbus 0.")]
    assert places == sorted(places)


def test_the_page_says_which_messages_it_is_about_what_could_not_be_cut_and_where_the_others_are(
    findings: Findings,
) -> None:
    chosen = LedgerSelection(findings.coverage.first_ms, None, ("<orders>",))
    named = replace(findings.reconciliation, named=findings.reconciliation.named[:2])
    text = page(replace(findings, selection=chosen, verdicts_url="s3a://bucket/verdicts", reconciliation=named))
    for said in (
        "to &lt;orders&gt;",
        "flow and cost are those of all entities",
        "the standing charge is a whole month",
        "more: s3a://bucket/verdicts has the verdict of every message.",
    ):
        assert said in text


def test_the_plots_of_a_window_after_the_last_record_have_a_span(findings: Findings) -> None:
    day_ms, last_ms = 86_400_000, findings.coverage.last_ms
    for made_ms in (last_ms + 3 * day_ms, 0):
        late = replace(findings, selection=LedgerSelection(last_ms + day_ms), made_ms=made_ms)
        plot = page(late).partition("outages over time")[2].partition("</svg>")[0]
        times = re.findall(r">(\d\d:\d\d(?::\d\d)?)</text>", plot)
        assert len(times) > 2
        assert len(set(times)) == len(times) or made_ms


def test_availability_is_never_rounded_up_to_all(findings: Findings) -> None:
    rows = [{**findings.availability[0], "share": share} for share in (0.9998123, 0.99999961, 1.0)]
    text = page(replace(findings, availability=rows))
    for shown in (">99.98%<", ">99.99996%<", ">100.00%<"):
        assert shown in text


def test_names_cannot_break_out_of_the_page(findings: Findings) -> None:
    evil = "<script>alert(1)</script>"
    named = [{"verdict": "lost", "entity": evil, "message_id": evil, "first_ms": 1 << 62, "why": evil}]
    outages = [{**findings.outages[0], "entity": evil}]
    reconciliation = replace(findings.reconciliation, named=named, entities={evil: {"lost": 1}})
    looked = Looked()
    looked.feed(page(replace(findings, reconciliation=reconciliation, outages=outages)))
    assert "script" not in looked.tags


async def test_a_browser_shows_all_of_it_without_a_complaint_or_a_request(findings: Findings, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(findings), encoding="utf-8")
    async with a_page(tmp_path / "browser") as shown:
        await shown.open(file.as_uri())
        text = await shown.value("document.body.innerText")
        heads = await shown.value("[...document.querySelectorAll('h2')].map(each => each.innerText)")
        assert heads == list(HEADS)
        assert "9 lost" in text
        assert f"{findings.coverage.records:,}" in text
        backgrounds = set()
        for width, dark in ((WIDE, False), (NARROW, False), (NARROW, True), (SMALL, False)):
            await shown.look(width=width, dark=dark)
            assert await shown.value("document.documentElement.scrollWidth") <= width, "the page can be moved sideways"
            assert await shown.value(f"{SHOWN}.map(each => each.ariaLabel)") == list(PLOTS)
            assert await shown.value(COVERED) == [], f"labels cover each other at {width}"
            assert await shown.value(CUT_OFF) == [], f"labels are cut off at {width}"
            assert await shown.value(SMALLEST) >= 10, f"letters are too small at {width}"
            assert await shown.value(HIDDEN) == [], f"what matters most is off screen at {width}"
            assert await shown.value(HINTS) == 0, "a table that can be moved looks like one"
            backgrounds.add(await shown.value("getComputedStyle(document.body).backgroundColor"))
        assert len(backgrounds) == 2
        assert shown.fetched == [file.as_uri()]
        assert shown.complaints == []


async def test_a_browser_that_would_complain_is_heard(tmp_path: Path) -> None:
    """The test above could not fail otherwise."""
    file = tmp_path / "bad.html"
    file.write_text("<p>one</p><script>console.error('no'); nothing()</script><img src=gone.png>", encoding="utf-8")
    async with a_page(tmp_path / "browser") as shown:
        await shown.open(file.as_uri())
        assert len(shown.fetched) == 2
        assert len(shown.complaints) >= 2
