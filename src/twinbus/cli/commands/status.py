"""`twinbus status`: how a pair is doing, seen from outside, in one verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import interrupts
from twinbus.cli.bars import Bar
from twinbus.cli.completion import checks, one_of
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.json_form import json_text
from twinbus.cli.namespaces import (
    AsJson,
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    check_count,
    name_of,
    seconds,
)
from twinbus.cli.say import say
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.client.health import Check, Health
    from twinbus.client.namespace import Namespace
    from twinbus.client.reports import Inspection
    from twinbus.syphon.survey import Survey

LOOK_EVERY_S = 0.2
EVERY_S = (1.0, 25.0)
"""From the start of a look to that of the next, with --watch: what is shown is never older than 30 s."""
HEALTHY = "healthy: everything works, and nothing waits in the backlog"
UNSURE = "unknown: the first line says what could not be asked"
_UNITS = ("B", "KB", "MB", "GB", "TB")


def status(
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A queue or topic of the primary to ask about. Repeat for more.  [default: all]"
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            autocompletion=one_of(checks),
            help="The verdict is about this only: sending, receiving, managing, failover or backlog. Repeat for more."
            "  [default: all]",
        ),
    ] = None,
    timeout: Timeout = "5s",
    again_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look twice, with so much time between, and tell growth by the difference."),
    ] = None,
    sessions: Annotated[
        bool,
        typer.Option(
            "--sessions",
            help="Also tell, by peeking through the backlog, what lies there for which entity and session.",
        ),
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="All of them: also backlog queues that work and are empty.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often, with --watch: from one look to the next, 1s to 25s.")
    ] = "5s",
    as_json: AsJson = False,
) -> None:
    """Show in one verdict how a pair is doing, then what it is made of.

    The verdict is healthy, failing, failed over, waiting or unknown; the exit code says the same. Each is proven, or it
    is unknown, and the first line names what could not be asked. Nothing is changed and no message is taken.

    Every entity of the primary is asked whether it takes messages (by a ping where the namespace drops pings, else by
    a link), gives them out (by a peek) and can be managed. A key without Manage cannot list entities: name them with
    --entity. A key that lacks other rights can still prove a part: choose it with --check.

    Settings, sizes and room need Manage on the secondary. How many messages wait, and since when, needs Listen: without
    Manage they are counted by peeking, up to 1000 a queue, and "1,000+" says that there are more. What may not be read
    is shown as "?" (null in JSON).

    With --watch the verdict is shown anew with every look. What a look could not find out is shown as of the last look
    that could, with its age. Ctrl-C ends it with the exit code of the last verdict.

    \b
    Examples:
      twinbus status
      twinbus status --watch
      twinbus status --entity orders --check sending --check backlog
      twinbus status --again-after 10s
      twinbus status --sessions
      twinbus status --json
    """
    check_count(count)
    attempt_s = seconds("--timeout", timeout)
    wait_s = None if again_after is None else seconds("--again-after", again_after)
    every_s = _every(every)
    checks = _checks(check or [])
    here, there = both(primary, secondary, config, credential)

    def look(earlier: Inspection | None = None) -> Inspection:
        from twinbus.client.inspection import inspect

        names = tuple(entity or ())
        return inspect(
            here, there, count, primary_name=primary_name, attempt_s=attempt_s, earlier=earlier, entities=names
        )

    if watch:
        raise typer.Exit(_watch(look, checks, every_s, as_json=as_json, show_all=show_all))
    with Bar("looking at both") as bar:
        seen = look()
        if wait_s is not None:
            _wait(wait_s, bar)
            seen = look(seen)
    interrupts.check()
    found = None
    if sessions and seen.secondary.is_reachable and not seen.secondary.refuses_key:
        found = _look_through(here, there, count, primary_name, attempt_s)
    raise typer.Exit(_show(seen, checks, found, as_json=as_json, show_all=show_all))


def _show(
    seen: Inspection, checks: frozenset[Check], found: Survey | None, *, as_json: bool, show_all: bool
) -> ExitCode:
    from twinbus.cli.status_text import as_dict, report, sessions_table
    from twinbus.client.health import judge

    judgement = judge(seen, checks)
    if as_json:
        say(json_text(as_dict(seen, judgement, checks) | ({} if found is None else {"backlog": found.as_dict()})))
    else:
        tables = [] if found is None else [sessions_table(found)]
        say("\n\n".join([report(seen, judgement, checks, show_all=show_all), *tables]))
    return exit_code(judgement.health)


def exit_code(health: Health) -> ExitCode:
    from twinbus.client.health import Health

    return {
        Health.HEALTHY: ExitCode.DONE,
        Health.UNKNOWN: ExitCode.NOT_ALL,
        Health.FAILING: ExitCode.FAILING,
        Health.FAILED_OVER: ExitCode.FAILED_OVER,
        Health.WAITING: ExitCode.WAITING,
    }[health]


def _checks(words: list[str]) -> frozenset[Check]:
    from twinbus.client.health import EVERYTHING, Check

    unknown = [word for word in words if word not in set(Check)]
    if unknown:
        raise OptionsError(f"--check takes {', '.join(Check)}, got {unknown[0]!r}")
    return frozenset(map(Check, words)) or EVERYTHING


def _every(text: str) -> float:
    every_s = seconds("--every", text)
    if not EVERY_S[0] <= every_s <= EVERY_S[1]:
        raise OptionsError(f"--every must be from {EVERY_S[0]:g}s to {EVERY_S[1]:g}s, got {text}")
    return every_s


def _watch(
    look: Callable[[Inspection | None], Inspection],
    checks: frozenset[Check],
    every_s: float,
    *,
    as_json: bool,
    show_all: bool,
) -> int:
    """Until Ctrl-C; the exit code of the last verdict."""
    from twinbus.cli.status_watch import Watch

    with Watch(checks, as_json=as_json, show_all=show_all) as shown:
        try:
            seen = None
            while True:
                began = time.monotonic()
                seen = look(seen)
                interrupts.check()
                shown.show(seen)
                _pause(max(0.0, began + every_s - time.monotonic()))
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED if shown.last is None else exit_code(shown.last.health)


def _pause(length_s: float) -> None:
    time.sleep(length_s)


def _wait(length_s: float, bar: Bar) -> None:
    """Between two looks; the bar shows how long it still takes."""
    bar.what, began = "waiting for the second look", time.monotonic()
    while (left := began + length_s - time.monotonic()) > 0:
        bar.done, bar.total = max(1, round(length_s - left)), round(length_s)
        time.sleep(min(LOOK_EVERY_S, left))
    bar.what, bar.done, bar.total = "looking again", 0, None


def _look_through(here: Namespace, there: Namespace, count: int, primary_name: str | None, attempt_s: float) -> Survey:
    from twinbus.cli.ends import Ends, look_through
    from twinbus.cli.gauges import Names
    from twinbus.syphon import SyphonOptions

    names = Names(name_of(here, primary_name), there.name or there.address)
    ends = Ends(here.dial(attempt_s), there.dial(attempt_s), names, count)
    return asyncio.run(look_through(ends, SyphonOptions(attempt_s=attempt_s)))


def size(number: int | None) -> str:
    """`12.3 MB`; at most four digits."""
    if number is None:
        return "?"
    value = float(number)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
