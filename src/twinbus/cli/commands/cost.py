"""`twinbus cost`: what pairing will cost, and what it has cost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.commands.drain import Archive, Master
from twinbus.cli.commands.pipeline import (
    AsJson,
    LedgerDirectory,
    PriceTable,
    Store,
    Where,
    compacted_ledger,
)
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.json_form import json_text
from twinbus.cli.lengths import length_s
from twinbus.cli.say import say
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.cost.bill import Bill
    from twinbus.cost.forecast import Forecast, Usage
    from twinbus.cost.prices import Prices

BYTES_HELP = "Bytes of a message."
LOOK_HELP = "Time between two looks of a process at the backlog."


def forecast(
    entities: Annotated[
        int, typer.Option("--entity-count", metavar="N", help="Queues and topics that are sent to.")
    ] = 1,
    rate: Annotated[float, typer.Option(metavar="N", help="Messages a second, of all entities together.")] = 10.0,
    size: Annotated[int, typer.Option(metavar="BYTES", help=BYTES_HELP)] = 1024,
    outages: Annotated[float, typer.Option(metavar="N", help="Outages a month.")] = 1.0,
    outage: Annotated[str, typer.Option(metavar="TIME", help="How long one lasts.")] = "1h",
    clients: Annotated[int, typer.Option(metavar="N", help="Processes that send.")] = 1,
    queues: Annotated[int, typer.Option(metavar="N", help="How many backlog queues.")] = 10,
    syphons: Annotated[int, typer.Option(metavar="N", help="Processes that bring messages home.")] = 1,
    ping: Annotated[str, typer.Option(metavar="TIME", help="Time between pings.")] = "1m",
    failover: Annotated[str, typer.Option(metavar="TIME", help="Time until an entity fails over.")] = "1m",
    look: Annotated[str, typer.Option(metavar="TIME", help=LOOK_HELP)] = "1h",
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

    usage = _usage(
        entities=entities,
        rate=rate,
        size_bytes=size,
        outages=outages,
        outage_s=length_s("--outage", outage),
        clients=clients,
        queues=queues,
        syphons=syphons,
        ping_s=length_s("--ping", ping),
        failover_s=length_s("--failover", failover),
        look_s=length_s("--look", look),
    )
    told = foretell(usage, load_prices(prices))
    say(json_text(told.as_dict()) if as_json else forecast_text(told))


def _usage(**said: Any) -> Usage:
    """Raises `OptionsError` with everything that is wrong, by the names that people typed: `ping_s` came of --ping."""
    from twinbus.cost.forecast import Usage

    try:
        return Usage(**said)
    except OptionsError as error:
        text = re.sub(r"\b([a-z]+?)(_s|_bytes)?(?= is (?:at least|from) )", r"--\1", str(error))
        raise OptionsError(text) from None


def actual(
    ledger: LedgerDirectory,
    store: Store = None,
    prices: PriceTable = None,
    master: Master = None,
    archive: Archive = None,
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
    with Bar("starting") as bar:
        spark, compacted = compacted_ledger(ledger, store, Where(master, archive), bar, knows_balance=False)
        from twinbus.spark.compaction.coverage import coverage_of
        from twinbus.spark.failures import spark_gives_up_in_a_line
        from twinbus.spark.jobs.analysis import actual_cost
        from twinbus.spark.jobs.compaction import steps_in
        from twinbus.spark.jobs.findings import cost_dict
        from twinbus.spark.transforms.traffic import traffic

        with spark_gives_up_in_a_line():
            months = actual_cost(traffic(steps_in(spark, compacted)), table)
    complete = coverage_of(compacted).is_complete and bool(compacted.manifest.records)
    document = cost_dict(months, table.as_of) | {"complete": complete}
    say(json_text(document) if as_json else actual_text(months, table, complete=complete))
    if not complete:
        raise typer.Exit(ExitCode.NOT_ALL)


def forecast_text(told: Forecast) -> str:
    """The forecast as text."""
    from twinbus.cli import draw

    bill, backlog = told.bill, told.capacity
    holds = "for ever" if backlog.hours is None else f"{backlog.hours:,.1f} hours"
    needed = "enough" if backlog.is_enough else f"not enough, {backlog.queues_needed:,} are needed"
    rows = [("beside", "USD a month", ""), ("twinbus on Standard", f"{bill.usd('full'):,.2f}", "sends go on")]
    rows += [(each.name, f"{each.usd:,.2f}", each.remark) for each in told.alternatives]
    return "\n\n".join(
        [
            draw.table(bill.rows()),
            f"standing charge {bill.base_usd:,.2f} USD; of the total, pairing causes "
            f"{bill.pairing_usd('documents'):,.2f} (documents) or {bill.pairing_usd('full'):,.2f} (full) USD",
            f"backlog of one outage: {backlog.messages:,.0f} messages, {backlog.bytes / 1e6:,.1f} MB; "
            f"{backlog.queues:,} queues of 5 GB hold {holds}: {needed}",
            draw.table(rows),
            f"list prices of {told.prices.as_of} ({told.prices.source}); --prices takes your own",
        ]
    )


def actual_text(months: list[Bill], prices: Prices, *, complete: bool) -> str:
    """The bills as text."""
    from twinbus.cli import draw

    parts = [f"{each.month}\n{draw.table(each.rows())}" for each in months] or ["nothing was recorded"]
    parts.append(f"list prices of {prices.as_of} ({prices.source}); the standing charge is in the total")
    if not complete:
        parts.append("records are missing: it was at least that much")
    return "\n\n".join(parts)


EXAMPLES = """\b
Examples:
  twinbus cost forecast --entity-count 5 --clients 20 --rate 100
  twinbus cost actual --ledger ./ledger"""


def cost_commands() -> typer.Typer:
    """`twinbus cost` with its verbs."""
    epilog = exit_codes()
    app = typer.Typer(
        help="What pairing will cost, and what it has cost.",
        epilog=f"{EXAMPLES}\n\n{epilog}",
        rich_markup_mode=None,
        no_args_is_help=False,
        invoke_without_command=True,
        callback=_show_help,
    )
    app.command("forecast", epilog=epilog, short_help="Tell what a month will cost.")(forecast)
    actual_epilog = exit_codes(not_all="done, but records are missing")
    app.command("actual", epilog=actual_epilog, short_help="Tell what was used, from the ledger.")(actual)
    return app


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
