"""`twinbus demo`: an outage on this machine, and a count of what it cost."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinbus.demo.judge import Tally

LOST_SHOWN = 10


def demo(
    messages: Annotated[int, typer.Option(metavar="N", help="How many messages are sent: 50 to 5000.")] = 1_200,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as one JSON object on stdout; the story goes to stderr.")
    ] = False,
) -> None:
    """Kill a namespace in the middle of sending, see sends go on, and see that nothing is lost.

    Two namespaces run in two processes and an application pairs them. The primary is killed (kill -9), messages take
    the detour, it starts again with the same data, a ping notices, a syphon brings the backlog home, and everything is
    received from the primary. The result compares what the sender was promised with what the receiver got: exit code 1
    if anything acknowledged is missing. It takes less than a minute and leaves no process and no file behind.

    \b
    Examples:
      twinbus demo
      twinbus demo --messages 200 --json
    """
    from twinbus.cli import draw
    from twinbus.demo.story import tell

    # SIGTERM takes the same way out as Ctrl-C, also for a job in the background (whose SIGINT is ignored at first):
    # the processes of the demo end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tallies = draw.follow(tell(messages), sys.stderr if as_json else sys.stdout)
    typer.echo(result_json(tallies) if as_json else result_text(tallies))
    if any(tally.lost for tally in tallies):
        raise typer.Exit(1)


def result_json(tallies: Sequence[Tally]) -> str:
    lost = sum(len(tally.lost) for tally in tallies)
    return json.dumps({"lost": lost, "queues": [asdict(tally) for tally in tallies]})


def result_text(tallies: Sequence[Tally]) -> str:
    from twinbus.cli import draw

    heads = ("", "sent", "failed sends", "to primary", "to backlog", "received", "duplicates", "LOST")
    rows = [
        (
            one.queue,
            one.sent,
            one.failed_sends,
            one.to_primary,
            one.to_backlog,
            one.received,
            one.duplicates,
            len(one.lost),
        )
        for one in tallies
    ]
    return f"\n{draw.table([heads, *rows])}\n\n{verdict([name for one in tallies for name in one.lost])}"


def verdict(lost: Sequence[str]) -> str:
    if not lost:
        return "Everything that was acknowledged has been received."
    more = f" and {len(lost) - LOST_SHOWN} more" if len(lost) > LOST_SHOWN else ""
    return f"LOST: {len(lost)} acknowledged messages never came: {', '.join(lost[:LOST_SHOWN])}{more}"
