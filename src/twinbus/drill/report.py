"""The report of a drill: as JSON, as a table, as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from twinbus.drill.injection import Way
from twinbus.drill.measures import Finding, Limits, Measures, check_limits, passes
from twinbus.plain_text import first_few, in_markdown
from twinbus.units import clock_time, measured_duration, utc_time

LOST_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """One drill, done or interrupted."""

    drill: str
    began_at: datetime
    entity: str
    primary: str
    secondary: str
    fault: str
    way: Way
    length_s: float
    measures: Measures
    limits: Limits
    is_interrupted: bool
    is_put_back: bool
    taken_back: int
    """Canaries that the drill has taken away again."""
    expire_at: datetime
    """When the last canary has expired, wherever it is."""
    is_topic: bool = False
    """Then canaries were counted in a subscription that is gone."""
    troubles: tuple[str, ...] = ()
    """What went wrong on the way, one line each."""

    @property
    def left_at_home(self) -> int | None:
        """Canaries that the drill leaves in the queue, or less if somebody receives them; None: nobody could look."""
        if self.measures.lost is None:
            return None
        return 0 if self.is_topic else max(0, self.measures.at_home - self.taken_back)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return check_limits(self.measures, self.limits)

    @property
    def verdict(self) -> Literal["pass", "fail", "interrupted"]:
        if self.is_interrupted:
            return "interrupted"
        return "pass" if passes(self.findings) and self.is_put_back else "fail"

    def as_dict(self) -> dict[str, Any]:
        """What `json.dumps` takes."""
        return {
            "drill": self.drill,
            "verdict": self.verdict,
            "began_at": utc_time(self.began_at),
            "entity": self.entity,
            "primary": self.primary,
            "secondary": self.secondary,
            "fault": self.fault,
            "way": self.way,
            "length_s": self.length_s,
            "put_back": self.is_put_back,
            "measures": self.measures.as_dict(),
            "findings": [finding.as_dict() for finding in self.findings],
            "taken_back": self.taken_back,
            "left_at_home": self.left_at_home,
            "left_in_backlog": self.measures.waiting,
            "expire_at": utc_time(self.expire_at),
            "troubles": list(self.troubles),
        }


def rows(outcome: DrillResult) -> Sequence[tuple[str, str, str, str]]:
    """The findings as a table, heads first."""
    found = [(each.name, each.value, each.limit or "-", each.word) for each in outcome.findings]
    return [("measure", "value", "limit", ""), *found]


def remarks(outcome: DrillResult) -> Iterator[str]:
    """Everything that is not in the table."""
    measures = outcome.measures
    yield (
        f"{measures.sent} canaries: {measures.to_primary} to the primary, {measures.to_backlog} to the backlog, "
        f"{measures.raised} ended in an error ({measures.in_doubt} in doubt), {measures.duplicates} duplicates"
    )
    yield from _whereabouts(outcome)
    if measures.effect_s is not None:
        yield f"fault took effect after {measured_duration(measures.effect_s)}"
    if measures.taken:
        yield f"{measures.taken} canaries were not seen at home: somebody else receives there and has probably had them"
    if measures.lost:
        yield f"LOST: {first_few(measures.lost, LOST_SHOWN)}"
    yield from outcome.troubles


def _whereabouts(outcome: DrillResult) -> Iterator[str]:
    """Which canaries were removed, and which are left."""
    waiting, expire = outcome.measures.waiting, f"expire by {clock_time(outcome.expire_at)[-8:]} UTC"
    if outcome.taken_back:
        yield f"{outcome.taken_back} canaries were taken away again"
    match outcome.left_at_home:
        case None:
            yield f"whether canaries are left in {outcome.entity} is unknown; they {expire}"
        case _ if outcome.is_topic:
            yield f"other subscriptions of {outcome.entity} have copies of the canaries, which {expire}"
        case 0:
            yield f"no canary is left in {outcome.entity}"
        case left:
            yield f"{left} canaries are left in {outcome.entity}: they {expire}"
    if waiting:
        yield f"{waiting} canaries are left in the backlog: twinbus syphon brings them home; they {expire}"


def headline(outcome: DrillResult) -> str:
    result = {"pass": "PASSED", "fail": "FAILED", "interrupted": "INTERRUPTED"}[outcome.verdict]
    return f"{result}: {outcome.fault} of {outcome.entity} on {outcome.primary} for {outcome.length_s:g} s"


def page(outcome: DrillResult) -> str:
    """The same in Markdown."""
    table = [f"| {' | '.join(map(in_markdown, row))} |" for row in rows(outcome)]
    facts = [f"* {in_markdown(remark)}" for remark in remarks(outcome)]
    about = f"{clock_time(outcome.began_at)} UTC, drill {outcome.drill}, backlog on {outcome.secondary}."
    parts = [
        f"# {in_markdown(headline(outcome))}",
        "",
        in_markdown(about),
        "",
        table[0],
        "|---|---|---|---|",
        *table[1:],
        "",
        *facts,
    ]
    return "\n".join(parts) + "\n"
