"""`twinbus cost`: what pairing will cost, and what it has cost."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.option_groups import ArgumentGroup, add_command, command_group, option
from twinbus.cli.commands.ledger_upkeep import Store
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, say, table
from twinbus.cli.pipeline.drain import SparkArguments
from twinbus.cli.pipeline.pipeline import PriceTable, compacted_ledger
from twinbus.cli.pipeline.report_arguments import LedgerDirectory
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError
from twinbus.units import megabytes, parse_seconds

if TYPE_CHECKING:
    from twinbus.cost.bill import Bill
    from twinbus.cost.forecast import Forecast, Usage
    from twinbus.cost.prices import Prices

BYTES_HELP = "Bytes of a message."
LOOK_HELP = "Time between two looks of a process at the backlog."


@dataclass(frozen=True, kw_only=True)
class UsageArguments(ArgumentGroup):
    panel: ClassVar[str] = "A month of use"
    entities: int = option(1, "N", "Queues and topics that are sent to.", "--entity-count")
    rate: float = option(10.0, "N", "Messages a second, of all entities together.")
    size: int = option(1024, "BYTES", BYTES_HELP)
    outages: float = option(1.0, "N", "Outages a month.")
    outage: str = option("1h", "TIME", "How long one lasts.")
    clients: int = option(1, "N", "Processes that send.")
    queues: int = option(10, "N", "How many backlog queues.")
    syphons: int = option(1, "N", "Processes that bring messages home.")
    ping: str = option("1m", "TIME", "Time between pings.")
    failover: str = option("1m", "TIME", "Time until an entity fails over.")
    look: str = option("1h", "TIME", LOOK_HELP)
    board: bool = option(False, None, "The board of the pair: these processes report on it.", "--board")
    board_looks: int = option(0, "N", "With --board: looks at it in a month, e.g. by twinbus status.")
    shared_findings: bool = option(
        False, None, "With --board: clients read it while an entity is suspect.", "--shared-findings"
    )

    def usage(self) -> Usage:
        """Raises `OptionsError` with everything that is wrong, by the names of the options: `ping_s` is --ping."""
        from twinbus.cost.forecast import Usage

        try:
            return Usage(
                entities=self.entities,
                rate=self.rate,
                size_bytes=self.size,
                outages=self.outages,
                outage_s=parse_seconds(self.outage, "--outage"),
                clients=self.clients,
                queues=self.queues,
                syphons=self.syphons,
                ping_s=parse_seconds(self.ping, "--ping"),
                failover_s=parse_seconds(self.failover, "--failover"),
                look_s=parse_seconds(self.look, "--look"),
                board=self.board,
                board_looks=self.board_looks,
                shared_findings=self.shared_findings,
            )
        except OptionsError as error:
            text = re.sub(r"\b([a-z_]+?)(_s|_bytes)?(?= is (?:at least|from) )", r"--\1", str(error))
            text = text.replace("--board_looks", "--board-looks")
            text = text.replace("shared_findings needs board", "--shared-findings needs --board")
            raise OptionsError(text) from None


def forecast(
    usage: UsageArguments,
    prices: PriceTable = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a month with pairing costs, how large the backlog must be, and what else there is to buy.

    Operations are counted twice: as the documents of paired namespaces do (two charges a message, four for one that
    takes the detour), and in full, as the service meters them (each started 64 KB, settling, peeking, managing). A
    month has 30 days. This needs no Spark, no ledger and no network.

    \b
    Examples:
      twinbus cost forecast
      twinbus cost forecast --entity-count 5 --clients 20 --rate 100 --outage 30m
      twinbus cost forecast --size 100000 --rate 500 --outage 6h --json
    """
    from twinbus.cost.forecast import forecast as foretell
    from twinbus.cost.prices import load_prices

    made = foretell(usage.usage(), load_prices(prices))
    say(json_text(made.as_dict()) if as_json else forecast_text(made))


def actual(
    *,
    ledger: LedgerDirectory,
    store: Store = None,
    prices: PriceTable = None,
    spark: SparkArguments,
    as_json: AsJson = False,
) -> None:
    """Tell what was used and what that costs, month by month, from the ledger. This needs Spark.

    Ends with 3 if records are missing: then it was at least that much.

    \b
    Examples:
      twinbus cost actual --ledger ./ledger
      twinbus cost actual --ledger ./ledger --prices prices.toml --json
    """
    from twinbus.cost.prices import load_prices

    table = load_prices(prices)
    with ProgressBar("starting") as bar:
        session, compacted = compacted_ledger(ledger, store, spark, bar, uses_balance=False)
        from twinbus.spark.compaction import manifest as manifests
        from twinbus.spark.compaction.coverage import find_coverage
        from twinbus.spark.failures import spark_errors
        from twinbus.spark.jobs.analysis import actual_cost
        from twinbus.spark.jobs.balance import lock_for_reading, store_errors
        from twinbus.spark.jobs.compaction import steps_in
        from twinbus.spark.jobs.findings import cost_dict
        from twinbus.spark.transforms.traffic import traffic

        # Another report may merge step files meanwhile: those that are read must stay.
        with spark_errors(), store_errors(compacted.store), lock_for_reading(compacted.store):
            compacted = replace(compacted, manifest=manifests.load(compacted.store))
            months = actual_cost(traffic(steps_in(session, compacted)), table)
    complete = find_coverage(compacted).is_complete and bool(compacted.manifest.records)
    document = cost_dict(months, table.as_of) | {"complete": complete}
    say(json_text(document) if as_json else actual_text(months, table, complete=complete))
    if not complete:
        raise typer.Exit(ExitCode.NOT_ALL)


def forecast_text(made: Forecast) -> str:
    bill, backlog = made.bill, made.capacity
    holds = "for ever" if backlog.hours is None else f"{backlog.hours:,.1f} hours"
    needed = "enough" if backlog.is_enough else f"not enough, {backlog.queues_needed:,} are needed"
    rows = [("beside", "USD a month", ""), ("twinbus on Standard", f"{bill.usd('full'):,.2f}", "sends go on")]
    rows += [(each.name, f"{each.usd:,.2f}", each.remark) for each in made.alternatives]
    return "\n\n".join(
        [
            table(bill.rows()),
            f"standing charge {bill.base_usd:,.2f} USD; of the total, pairing causes "
            f"{bill.pairing_usd('documents'):,.2f} (documents) or {bill.pairing_usd('full'):,.2f} (full) USD",
            f"backlog of one outage: {backlog.messages:,.0f} messages, {megabytes(backlog.bytes)} MB; "
            f"{backlog.queues:,} queues of 5 GB hold {holds}: {needed}",
            table(rows),
            f"list prices of {made.prices.as_of} ({made.prices.source}); --prices takes your own",
        ]
    )


def actual_text(months: list[Bill], prices: Prices, *, complete: bool) -> str:
    parts = [f"{each.month}\n{table(each.rows())}" for each in months] or ["nothing was recorded"]
    parts.append(f"list prices of {prices.as_of} ({prices.source}); the standing charge is in the total")
    if not complete:
        parts.append("records are missing: it was at least that much")
    return "\n\n".join(parts)


def cost_commands() -> typer.Typer:
    app = command_group(
        "What pairing will cost, and what it has cost.",
        "twinbus cost forecast --entity-count 5 --clients 20 --rate 100",
        "twinbus cost actual --ledger ./ledger",
    )
    add_command(app, forecast, "Tell what a month will cost.")
    add_command(app, actual, "Tell what was used, from the ledger.", not_all="done, but records are missing")
    return app
