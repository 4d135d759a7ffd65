"""`twinbus demo`: an outage on this machine, and a count of what it cost."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.arguments.option_groups import check_writable
from twinbus.cli.output import json_text, say
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.demo.run import DemoResult

REPORT = Path("twinbus-demo.html")


def demo(
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Without Spark: the syphon brings the backlog home; no report."),
    ] = False,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy", help="With a proxy between: the application is the official client, and knows nothing of pairs."
        ),
    ] = False,
    messages: Annotated[int, typer.Option(metavar="N", help="How many messages are sent: 50 to 5000.")] = 1_200,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Where the report goes.  [default: {REPORT}]")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON on stdout; progress goes to stderr.")
    ] = False,
) -> None:
    """Kill a namespace in the middle of sending, see sends go on, and see that nothing is lost.

    Two namespaces run in two processes and an application pairs them. The primary is killed (kill -9), messages take
    the detour, it starts again with the same data, pings notice, a Spark job brings the backlog home, and everything is
    received from the primary. The result compares what the sender was promised with what the receivers got, and sets
    beside it what the ledger says: exit code 1 if anything acknowledged is missing. It takes about a minute, less than
    20 seconds with --fast, and leaves no process behind, and no file but the report.

    \b
    Examples:
      twinbus demo
      twinbus demo --fast
      twinbus demo --fast --proxy
      twinbus demo --messages 200 --report report.html --json
    """
    place = _place_of_report(fast, report)
    from twinbus.cli import demo_screen
    from twinbus.demo.run import run_demo

    # SIGTERM takes the same way out as Ctrl-C, also for a job in the background (whose SIGINT is ignored at first):
    # the processes of the demo end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    outcome = demo_screen.follow(run_demo(messages, place, with_proxy=proxy), sys.stderr if as_json else sys.stdout)
    say(result_json(outcome) if as_json else demo_screen.result_text(outcome))
    if not outcome.is_good:
        raise typer.Exit(1)


def _place_of_report(fast: bool, report: Path | None) -> Path | None:
    """Where the report goes; None: there will be none. What is wrong is said before the work, not after it."""
    if fast:
        if report is not None:
            raise OptionsError("--fast writes no report: leave out --report, or --fast")
        return None
    place = (report or REPORT).absolute()
    check_writable("--report", place)
    from twinbus.spark.session import require_spark

    require_spark("or try twinbus demo --fast")
    return place


def result_json(outcome: DemoResult) -> str:
    lost = sum(len(count.lost) for count in outcome.counts)
    entities = [asdict(count) | {"availability": count.availability} for count in outcome.counts]
    report = None if outcome.report is None else str(outcome.report)
    return json_text({"lost": lost, "entities": entities, "ledger": outcome.ledger, "report": report})
