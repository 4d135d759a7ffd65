"""What else there is to buy for availability, at list prices."""

from __future__ import annotations

from dataclasses import dataclass

from twinbus.cost.bill import Bill
from twinbus.cost.prices import GB, Prices
from twinbus.cost.stages import NOT_FROM_PAIRING, Stage


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
