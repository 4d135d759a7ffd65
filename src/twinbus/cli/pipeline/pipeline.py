"""`twinbus pipeline`: work on Spark. The report over a ledger; `drain` has a file of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.option_groups import add_command, check_writable, command_group
from twinbus.cli.commands.ledger_upkeep import Store
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, say, table
from twinbus.cli.pipeline.drain import SparkArguments, drain
from twinbus.cli.pipeline.quick_start import quick_start
from twinbus.cli.pipeline.report_arguments import (
    CountArguments,
    LedgerDirectory,
    LedgerSelectionArguments,
    VerdictArguments,
)
from twinbus.cli.pipeline.watch import watch
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.syphon.syphon import ENDED_EARLY
from twinbus.errors import OptionsError, StoreError
from twinbus.own_files import write_report
from twinbus.plain_text import on_one_line
from twinbus.units import clock_time_or_ms, megabytes, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.cost.prices import Prices
    from twinbus.spark.compaction.compaction import CompactedLedger
    from twinbus.spark.jobs.findings import Findings
    from twinbus.spark.jobs.verdict_files import VerdictFiles
    from twinbus.spark.report.service_counts import ServicePoint
    from twinbus.spark.transforms.selection import LedgerSelection

HORIZON_MIN_MAX = 60 * 24 * 365
NAMED_SHOWN = 20
"""Messages to look at, in text."""

PriceTable = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A price table in TOML. Default: list prices, whose date is shown.")
]


def report(
    *,
    ledger: LedgerDirectory,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")] = None,
    horizon: Annotated[
        str,
        typer.Option(metavar="TIME", help="A message is lost if others that came this much later have gone on."),
    ] = "15m",
    lost_to: Annotated[
        Path | None,
        typer.Option(
            "--lost-to",
            metavar="FILE",
            help="Write every message that is lost, unknown, duplicated or in doubt, one JSON object a line.",
        ),
    ] = None,
    store: Store = None,
    prices: PriceTable = None,
    which: LedgerSelectionArguments,
    table: VerdictArguments,
    counted: CountArguments,
    spark: SparkArguments,
    as_json: AsJson = False,
) -> None:
    """Say what became of every message, when entities were out, whether order was kept, and what it cost.

    What is new in the ledger is compacted to Parquet first; what was read before is not read again. Exit code 0 means
    that the records prove that nothing is lost, 4 that messages are lost: exactly that many, or at least.
    Where they prove neither, since records are missing, damaged or of a newer schema, the verdict is "unknown" and the
    exit code 3.

    With --since, --until and --entity the report and its exit code are about messages that were accepted in that time
    to those entities. What became of them is looked up in everything on record, also after --until. If no process kept
    a ledger in that time, or an expected writer did not, the verdict is "unknown".

    \b
    Examples:
      twinbus pipeline report --ledger ./ledger
      twinbus pipeline report --ledger ./ledger --out report.html
      twinbus pipeline report --ledger s3a://bucket/ledger --store ./compacted
      twinbus pipeline report --ledger ./ledger --horizon 1h --json
      twinbus pipeline report --ledger ./ledger --lost-to lost.jsonl
      twinbus pipeline report --ledger ./ledger --since 1d --entity 'orders*'
      twinbus pipeline report --ledger ./ledger --verdicts ./verdicts --overwrite
      twinbus pipeline report --ledger ./ledger --counts metrics.json
    """
    from twinbus.cost.prices import load_prices

    horizon_min = horizon_minutes(horizon)
    check_writable("--out", out)
    check_writable("--lost-to", lost_to)
    asked = Asked(which.selection(datetime.now(UTC)), table.files(), counted.points())
    with _names_written_to(lost_to) as name:
        found = findings(ledger, store, load_prices(prices), spark, horizon_min, name, asked=asked)
    found = counted.add_runtime(found)
    if out is not None:
        write_page(out, found)
    say(json_text(found.as_dict()) if as_json else report_text(found))
    raise typer.Exit(exit_code(found))


@contextmanager
def _names_written_to(file: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """What takes a message to look at, and writes it as a line; the file is there when the block ends well."""
    if file is None:
        yield None
        return
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # a link must not be written through
        with fresh.open("x", encoding="utf-8") as lines:
            yield lambda row: print(json.dumps(row), file=lines)
        fresh.replace(file)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)


class Asked(NamedTuple):
    """What a report is about, and what else it does."""

    selection: LedgerSelection
    table: VerdictFiles | None = None
    points: list[ServicePoint] = []  # noqa: RUF012

    @property
    def is_plain(self) -> bool:
        """Whether this is the report of everything and nothing else: only that one's findings are kept."""
        return self.selection.is_all and self.table is None and not self.points


def findings(
    ledger: str,
    store: str | None,
    prices: Prices,
    arguments: SparkArguments,
    horizon_min: int,
    name: Callable[[dict[str, Any]], None] | None = None,
    *,
    asked: Asked,
    bar: ProgressBar | None = None,
) -> Findings:
    with bar or ProgressBar("starting") as shown:
        arguments.check()
        known = _known_findings(ledger, store, prices, horizon_min, shown) if asked.is_plain else None
        if known is not None and (name is None or not known.reconciliation.not_named):
            if name is not None:
                for each in known.reconciliation.named:
                    name(each)
            return known
        spark, compacted = compacted_ledger(ledger, store, arguments, shown)
        from twinbus.spark.failures import spark_errors
        from twinbus.spark.jobs.analysis import ChosenMessages, analyse
        from twinbus.spark.jobs.service_counts import compare_counts

        chosen = ChosenMessages(
            asked.selection,
            None if asked.table is None else asked.table.write,
            (lambda accounts: compare_counts(accounts, asked.points, asked.selection)) if asked.points else None,
        )
        with spark_errors():
            found = analyse(
                spark,
                compacted,
                prices,
                horizon_min=horizon_min,
                tell=shown.say,
                note=shown.note,
                name=name,
                chosen=chosen,
            )
    return replace(found, verdicts_url=None if asked.table is None else asked.table.url)


def _known_findings(
    ledger: str, store: str | None, prices: Prices, horizon_min: int, bar: ProgressBar
) -> Findings | None:
    """What the last report found, if this one would find the same; Spark need not start for it."""
    from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
    from twinbus.spark.jobs import kept_findings
    from twinbus.spark.jobs.balance import unread_bytes

    if unread_bytes(ledger, store):
        return None
    compacted = compact_ledger(read_in_process, ledger, store)
    known = kept_findings.load(compacted, prices, horizon_min=horizon_min)
    if known is not None:
        _show_compaction(ledger, compacted, bar)
    return known


def compacted_ledger(
    ledger: str, store: str | None, arguments: SparkArguments, bar: ProgressBar, *, uses_balance: bool = True
) -> tuple[SparkSession, CompactedLedger]:
    """A session, and the store of a ledger with everything in it that the ledger has."""
    from twinbus.spark.compaction.compaction import compact_ledger
    from twinbus.spark.compaction.reading_processes import read_in_processes
    from twinbus.spark.jobs.balance import settings_for_ledger

    arguments.check()
    # That there is no ledger is said at once, not after Spark has started.
    settings = settings_for_ledger(ledger, store, uses_balance=uses_balance)
    settings = settings if arguments.master is None else {}
    if arguments.is_local:
        with ThreadPoolExecutor(1) as beside:  # the ledger is read while Spark starts
            reading = beside.submit(compact_ledger, read_in_processes, ledger, store)
            spark = arguments.session(settings, bar)
            bar.say("reading what is new in the ledger")
            compacted = reading.result()
    else:
        spark = arguments.session(settings, bar)
        from twinbus.spark.failures import spark_errors
        from twinbus.spark.jobs.compaction import on

        bar.say("reading what is new in the ledger")
        with spark_errors():
            compacted = compact_ledger(on(spark), ledger, store)
    _show_compaction(ledger, compacted, bar)
    return spark, compacted


def _show_compaction(ledger: str, compacted: CompactedLedger, bar: ProgressBar) -> None:
    from twinbus.ledger.reading.segment_files import crowded, find_segments

    bar.say(f"{compacted.bytes_read:,} new bytes in {compacted.segments_read:,} segments")
    for line in crowded(find_segments(ledger)):
        bar.note(line)
    for trouble in compacted.manifest.troubles:
        bar.note(f"skipped: {trouble}")


def horizon_minutes(text: str) -> int:
    """`--horizon` in whole minutes, rounded up. Raises `OptionsError` if it is no time, or too long."""
    value = -(-parse_seconds(text, "--horizon") // 60)
    if not 0 <= value <= HORIZON_MIN_MAX:
        raise OptionsError(f"--horizon is at most a year, got {text}")
    return int(value)


def exit_code(found: Findings) -> ExitCode:
    return {True: ExitCode.DONE, False: ExitCode.LOST, None: ExitCode.NOT_ALL}[found.is_lossless]


def write_page(out: Path, found: Findings) -> None:
    from twinbus.spark.report.page import page

    try:
        write_report(out, page(found))
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error.strerror}") from error


def report_text(found: Findings) -> str:
    from twinbus.spark.report.page import held, summary
    from twinbus.spark.transforms.verdict_names import ACCEPTED_CLASSES

    reconciled = found.reconciliation
    shown = [each for each in ACCEPTED_CLASSES if reconciled.count(each) or each == "lost"]
    rows: list[tuple[Any, ...]] = [("entity", *(each.replace("_", " ") for each in shown))]
    rows += [(entity, *(counts.get(each, 0) for each in shown)) for entity, counts in reconciled.entities.items()]
    lines = [summary(found), table(rows) if len(rows) > 1 else "", held(found)]
    lines += [_named(found), _missing(found), _outages(found), _counts(found)]
    lines += [table(bill.rows()) for bill in found.bills]
    return "\n\n".join([*filter(None, lines), f"verdict: {reconciled.verdict}"])


def _named(found: Findings) -> str:
    """The first messages to look at, and how to see the others."""
    from twinbus.spark.report.page import more_named

    rows = found.reconciliation.named[:NAMED_SHOWN]
    lines = [
        f"{row['verdict'].replace('_', ' ')}: {row['entity']} {row['message_id']} (first heard of "
        f"{clock_time_or_ms(row['first_ms'])}){': ' if row['why'] else ''}{row['why'] or ''}"
        for row in rows
    ]
    return "\n".join(filter(None, [*map(on_one_line, lines), more_named(found, len(rows))])) if rows else ""


def _missing(found: Findings) -> str:
    from twinbus.spark.report.page import unkept_line

    unknown = found.coverage.missing
    lines = [f"missing: {each.program} {each.process}: {each.reason}" for each in unknown[:10]]
    more = [f"and {len(unknown) - 10:,} more"] if len(unknown) > 10 else []
    clocks = [f"put right: {line}" for line in found.coverage.clocks[:10]]
    return "\n".join(map(on_one_line, filter(None, [*lines, *more, *clocks, unkept_line(found)])))


def _outages(found: Findings) -> str:
    lines = [
        f"out: {row['entity']} from {clock_time_or_ms(row['failed_over_ms'])} to "
        f"{'now, still out' if row['recovered_ms'] is None else clock_time_or_ms(row['recovered_ms'])}"
        for row in found.outages[:20]
    ]
    return "\n".join(map(on_one_line, lines))


def _counts(found: Findings) -> str:
    return "\n".join(on_one_line(f"counted: {each.text}") for each in found.counts[:20])


def pipeline_commands() -> typer.Typer:
    app = command_group(
        "Work on Spark: bring a backlog home, say what became of the messages.",
        "twinbus pipeline report --ledger ./ledger --out report.html",
        "twinbus pipeline watch --ledger ./ledger --every 1m --metrics 9464",
        "twinbus pipeline drain --ledger ./ledger",
        "twinbus pipeline quick-start",
        "twinbus pipeline pack twinbus.tar.gz",
    )
    unknown = "done, but records are missing: nobody can say that nothing is lost"
    lost = "done, and messages are lost"
    add_command(app, report, "Say what became of every message.", not_all=unknown, lost=lost)
    add_command(app, watch, "Make the report again and again, and alert.", not_all=unknown, lost=lost)
    add_command(app, drain, "Bring a large backlog home.", not_all=ENDED_EARLY)
    add_command(app, quick_start, "Make reports on this machine start sooner.")
    add_command(app, pack, "Put twinbus into one file for executors elsewhere.")
    return app


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, e.g. twinbus.tar.gz.")],
    as_json: AsJson = False,
) -> None:
    """Write twinbus and everything it needs into one file that Spark brings to its executors.

    It is made of what is installed here. So it fits executors with the same system and the same minor version of
    Python, whatever is installed there; PYSPARK_PYTHON says which Python they use.

    \b
    Examples:
      twinbus pipeline pack twinbus.tar.gz
      twinbus pipeline drain --master spark://host:7077 --archive twinbus.tar.gz
    """
    from twinbus.spark.archive import pack as pack_into
    from twinbus.spark.archive import python_of_this

    with ProgressBar("packing"):
        packed = pack_into(file)
    if as_json:
        facts = {"file": str(file), "bytes": packed.size, "python": python_of_this(), "packages": packed.packages}
        say(json_text(facts))
    else:
        amount = f"{len(packed.packages)} packages, {megabytes(packed.size, 0)} MB"
        say(f"{file}: {amount}, for Python {python_of_this()} on systems like this one")
