"""`twinbus pipeline watch`: the report again and again, with numbers and alerts.

A loop over a session that stays warm, and not a query of Structured Streaming: segments grow while they are written to,
and a file source reads each file once. What a round adds to the results of all rounds before is kept in the store
anyway, where reports find it too; a stream would keep the same twice, and its checkpoint would have to agree with the
store.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from twinbus.cli.arguments.option_groups import ArgumentGroup, check_writable, option
from twinbus.cli.commands.ledger_upkeep import Store
from twinbus.cli.metrics_export import MetricsTextFile, parse_address, serve_source
from twinbus.cli.output import json_text, note, say, say_event
from twinbus.cli.pipeline.drain import SparkArguments, every_s
from twinbus.cli.pipeline.report_arguments import (
    CountArguments,
    LedgerDirectory,
    LedgerSelectionArguments,
    VerdictArguments,
)
from twinbus.cli.pipeline.watch_rounds import AlertSender, WatchMetrics, WatchStop
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError, StoreError, TwinbusError
from twinbus.own_files import write_report
from twinbus.units import clock_time, measured_duration, parse_duration, utc_time

if TYPE_CHECKING:
    from twinbus.cli.pipeline.pipeline import Asked
    from twinbus.spark.jobs.findings import Findings
    from twinbus.spark.report.alerts import AlertState

BLIND_ROUNDS = 3
"""After this many intervals without a round that succeeded, somebody has to look."""
BLIND_S_MIN = 60
NOTES_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class WatchArguments(ArgumentGroup):
    panel: ClassVar[str] = "Rounds and alerts"
    every: str = option("1m", "TIME", "How often; a round that takes longer is followed by the next at once.")
    rounds: int | None = option(None, "N", "End after this many rounds.  [default: go on]")
    stuck_after: str = option("15m", "TIME", "A backlog may be stuck if a message has waited in it this long, ...")
    quiet: str = option("10m", "TIME", "... and none of its messages has come home for this long.")
    alert_command: str | None = option(
        None, "CMD", "Run for each alert, without a shell; it gets the alert as JSON on its standard input."
    )
    metrics: str | None = option(None, "[HOST:]PORT", "Serve metrics for Prometheus there; without a host, locally.")
    metrics_file: Path | None = option(None, "FILE", "Write the same metrics to this file after every round.")

    def every_s(self) -> float:
        value = every_s(self.every)
        if self.rounds is not None and self.rounds < 1:
            raise OptionsError(f"--rounds must be at least 1, got {self.rounds}")
        return value


class _NotesOnce(ProgressBar):
    """Says each note once: most rounds have the same."""

    def __init__(self, notes_shown: set[str]) -> None:
        super().__init__("", hidden=True)
        self._shown = notes_shown

    def note(self, text: str) -> None:
        if text not in self._shown and len(self._shown) < NOTES_MAX:
            self._shown.add(text)
            note(text)


def watch(
    *,
    ledger: LedgerDirectory,
    how: WatchArguments,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")] = None,
    json_to: Annotated[
        Path | None, typer.Option("--json-to", metavar="FILE", help="Write the report as JSON to this file.")
    ] = None,
    horizon: Annotated[
        str,
        typer.Option(metavar="TIME", help="A message is lost if others that came this much later have gone on."),
    ] = "15m",
    store: Store = None,
    which: LedgerSelectionArguments,
    table: VerdictArguments,
    counted: CountArguments,
    spark: SparkArguments,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: one for each round and each alert.")
    ] = False,
) -> None:
    """Make the report again and again, serve its numbers, and alert when something is lost or a backlog is stuck.

    Spark stays up, so a round reads what is new and takes seconds. A backlog is stuck if a message has waited in it for
    --stuck-after, no client says that its primary is out, and none of its messages has come home for --quiet. There is
    an alert when it begins, when more messages are lost, when rounds have failed for three intervals, and one when each
    of these is over. A --since that is a duration counts back from each round.

    A round that fails, e.g. because the ledger is away for a moment, is tried again. SIGTERM and Ctrl-C end it after
    the round; the second of them at once. With --rounds it ends as `twinbus pipeline report` does.

    \b
    Examples:
      twinbus pipeline watch --ledger ./ledger --every 5m --out report.html
      twinbus pipeline watch --ledger ./ledger --metrics 9464 --json
      twinbus pipeline watch --ledger ./ledger --alert-command ./page-us
      twinbus pipeline watch --ledger ./ledger --since 1d --rounds 1
    """
    from twinbus.cli.pipeline.pipeline import Asked, exit_code, horizon_minutes
    from twinbus.spark.report.alerts import AlertState

    pause_s, horizon_min = how.every_s(), horizon_minutes(horizon)
    address = None if how.metrics is None else parse_address(how.metrics)
    for name, file in (("--out", out), ("--json-to", json_to), ("--metrics-file", how.metrics_file)):
        check_writable(name, file)
    which.selection(datetime.now(UTC))
    files = table.files()
    if files is not None and how.rounds != 1 and not table.overwrite:
        raise OptionsError("--verdicts needs --overwrite: every round replaces the table of the one before")
    metrics, stop = WatchMetrics(), WatchStop()
    sender = AlertSender(how.alert_command, metrics, as_json=as_json)
    state = AlertState(
        parse_duration(how.stuck_after, "--stuck-after"),
        parse_duration(how.quiet, "--quiet"),
        round(max(BLIND_ROUNDS * pause_s, BLIND_S_MIN) * 1000),
    )
    text_file = None if how.metrics_file is None else MetricsTextFile(how.metrics_file)
    notes_shown: set[str] = set()

    def look(asked: Asked) -> Findings:
        from twinbus.cli.pipeline.pipeline import findings
        from twinbus.cost.prices import load_prices

        found = findings(ledger, store, load_prices(None), spark, horizon_min, asked=asked, bar=_NotesOnce(notes_shown))
        return counted.add_runtime(found)

    last: Findings | None = None
    with stop.listening(), serve_source(address, metrics):
        done = 0
        while not stop.is_requested:
            began, began_s = datetime.now(UTC), time.monotonic()
            try:
                last = look(Asked(which.selection(began), files, counted.points()))
                _publish(last, out, json_to)
                took_s = time.monotonic() - began_s
                _after_round(last, took_s, state, metrics, sender, as_json=as_json)
            except (TwinbusError, OSError) as error:
                if stop.is_requested:  # the JVM may have had the same signal
                    break
                if done == 0 and last is None:  # a wrong path does not become right
                    raise
                _after_failure(error, state, metrics, sender, as_json=as_json)
            if text_file is not None:
                text_file.write(metrics)
            done += 1
            if done == how.rounds:
                break
            stop.wait(pause_s - (time.monotonic() - began_s))
    if stop.is_requested or last is None:
        note("interrupted" if stop.code else "stopped")
        raise typer.Exit(stop.code)
    raise typer.Exit(exit_code(last))


def _publish(found: Findings, out: Path | None, json_to: Path | None) -> None:
    from twinbus.cli.pipeline.pipeline import write_page

    if out is not None:
        write_page(out, found)
    if json_to is not None:
        try:
            write_report(json_to, json_text(found.as_dict()) + "\n")
        except OSError as error:
            raise StoreError(f"{json_to} cannot be written: {error.strerror}") from error


def _after_round(
    found: Findings,
    took_s: float,
    state: AlertState,
    metrics: WatchMetrics,
    sender: AlertSender,
    *,
    as_json: bool,
) -> None:
    from twinbus.spark.report.alerts import facts_of

    now = datetime.now(UTC)
    facts = facts_of(found, round(now.timestamp() * 1000))
    alerts = state.after_round(facts)
    metrics.after_round(facts, is_certain=found.reconciliation.is_certain, stuck=len(state.stuck), round_s=took_s)
    backlog = sum(each.messages for each in facts.away.values())
    if as_json:
        round_facts = {"at": utc_time(now), "verdict": found.reconciliation.verdict, "lost": facts.lost}
        round_facts |= {
            "unknown": facts.unknown,
            "waiting": facts.waiting,
            "backlog": backlog,
            "elapsed_s": round(took_s, 3),
        }
        say_event("round", round_facts)
    else:
        verdict = found.reconciliation.verdict
        say(f"{clock_time(now)} {verdict}; {backlog:,} in the backlog ({measured_duration(took_s)})")
    sender.send(alerts)


def _after_failure(
    error: Exception,
    state: AlertState,
    metrics: WatchMetrics,
    sender: AlertSender,
    *,
    as_json: bool,
) -> None:
    from twinbus.spark.jvm import explain_exit

    now = datetime.now(UTC)
    metrics.after_failure()
    if as_json:
        say_event("round_failed", {"at": utc_time(now), "error": str(error)})
    else:
        note(f"round failed, tried again: {error}")
    sender.send(state.after_failure(round(now.timestamp() * 1000), str(error)))
    if (why := explain_exit()) is not None:
        raise TwinbusError(f"Spark has ended: {why}") from error
