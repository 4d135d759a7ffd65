"""Operations, bytes and money by stage: the table that a forecast and the actual cost both end in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from twinbus.cost.prices import GB, Prices
from twinbus.cost.stages import DEPARTING, NOT_FROM_PAIRING, Stage
from twinbus.units import megabytes

Rule = Literal["documents", "full"]
RULES: tuple[Rule, ...] = ("documents", "full")


@dataclass(frozen=True, slots=True)
class Use:
    """What one stage used in one month."""

    messages: float = 0
    documents: float = 0
    """Operations by the documents' rule."""
    full: float = 0
    bytes: float = 0

    def __add__(self, other: Use) -> Use:
        return Use(
            self.messages + other.messages,
            self.documents + other.documents,
            self.full + other.full,
            self.bytes + other.bytes,
        )

    def operations(self, rule: Rule) -> float:
        return self.documents if rule == "documents" else self.full


@dataclass(frozen=True, slots=True)
class BillLine:
    stage: Stage
    use: Use
    usd: Mapping[Rule, float]


@dataclass(frozen=True, slots=True)
class Bill:
    """What was, or will be, used in one month, and what that costs."""

    month: str
    lines: tuple[BillLine, ...]
    base_usd: float

    @property
    def use(self) -> Use:
        return sum((line.use for line in self.lines), Use())

    def usd(self, rule: Rule) -> float:
        """Everything, the standing charge included."""
        return self.base_usd + sum(line.usd[rule] for line in self.lines)

    def pairing_usd(self, rule: Rule) -> float:
        """What of it would not be there without pairing."""
        return sum(line.usd[rule] for line in self.lines if line.stage not in NOT_FROM_PAIRING)

    def as_dict(self) -> dict[str, Any]:
        return {
            "month": self.month,
            "stages": [_line_dict(line) for line in self.lines],
            "base_usd": round(self.base_usd, 6),
            "total_usd": {rule: round(self.usd(rule), 6) for rule in RULES},
            "pairing_usd": {rule: round(self.pairing_usd(rule), 6) for rule in RULES},
        }

    def rows(self) -> list[tuple[object, ...]]:
        """A head and a row for each stage, for people."""
        head = (
            "stage",
            "messages",
            "operations (documents)",
            "operations (full)",
            "MB",
            "USD (documents)",
            "USD (full)",
        )
        lines = [_cells(str(line.stage), round(line.use.messages), line.use, line.usd) for line in self.lines]
        return [head, *lines, _cells("total", "", self.use, {rule: self.usd(rule) for rule in RULES})]


def bill(month: str, uses: Mapping[Stage, Use], prices: Prices, *, base_usd: float | None = None) -> Bill:
    """The bill of a month. The price of operations falls with their number: each stage bears its share of the whole."""
    total = sum(uses.values(), Use())
    per_operation = {
        rule: prices.operations_usd(total.operations(rule)) / (total.operations(rule) or 1) for rule in RULES
    }

    def usd(stage: Stage, rule: Rule) -> float:
        leaving = uses[stage].bytes if stage in DEPARTING else 0
        return uses[stage].operations(rule) * per_operation[rule] + prices.egress_usd(leaving)

    lines = tuple(
        BillLine(stage, uses[stage], {rule: usd(stage, rule) for rule in RULES}) for stage in Stage if stage in uses
    )
    return Bill(month, lines, prices.standard_usd_a_month if base_usd is None else base_usd)


def bills(uses: Iterable[tuple[str, Stage, Use]], prices: Prices) -> list[Bill]:
    """A bill for each month, the first one first."""
    months: dict[str, dict[Stage, Use]] = {}
    for month, stage, use in uses:
        of_month = months.setdefault(month, {})
        of_month[stage] = of_month.get(stage, Use()) + use
    return [bill(month, months[month], prices) for month in sorted(months)]


def _line_dict(line: BillLine) -> dict[str, Any]:
    return {
        "stage": str(line.stage),
        "messages": round(line.use.messages),
        "operations": {rule: round(line.use.operations(rule)) for rule in RULES},
        "bytes": round(line.use.bytes),
        "usd": {rule: round(line.usd[rule], 6) for rule in RULES},
    }


def _cells(name: str, messages: object, use: Use, usd: Mapping[Rule, float]) -> tuple[object, ...]:
    counts = (round(use.documents), round(use.full), megabytes(use.bytes))
    return (name, messages, *counts, *(f"{usd[rule]:,.2f}" for rule in RULES))


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to be available, and its list price a month."""

    name: str
    usd: float
    remark: str


def alternatives(operations: float, replicated_bytes: float, out_hours: float, prices: Prices) -> list[Alternative]:
    """One Standard namespace without pairing, and what is sold for availability."""
    premium = prices.premium_usd_a_month
    replicated = replicated_bytes / GB * prices.replication_usd_per_gb
    return [
        Alternative(
            "one Standard namespace",
            prices.standard_usd_a_month + prices.operations_usd(operations),
            f"sends fail during {out_hours:,.1f} hours of outages",
        ),
        Alternative("one Premium namespace, 1 messaging unit", premium, "one region"),
        Alternative(
            "Premium with geo-disaster recovery, 2 x 1 unit", 2 * premium, "metadata only: messages stay behind"
        ),
        Alternative("Premium with geo-replication, 2 x 1 unit", 2 * premium + replicated, "messages are replicated"),
    ]


def beside(bill: Bill, out_hours: float, prices: Prices) -> list[Alternative]:
    """What would have been paid in the month of a bill. What was recorded is taken for the whole month."""
    used = {line.stage: line.use for line in bill.lines}
    operations = sum(use.full for stage, use in used.items() if stage in NOT_FROM_PAIRING)
    sent = sum(use.bytes for stage, use in used.items() if stage in (Stage.SEND, Stage.SEND_HOME))
    return alternatives(operations, sent, out_hours, prices)
