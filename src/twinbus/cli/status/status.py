"""`twinbus status`: how a pair is doing, seen from outside, in one verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import signals
from twinbus.cli.arguments.completion import named_in
from twinbus.cli.arguments.namespaces import AsJson, Timeout, timeout_s
from twinbus.cli.arguments.option_groups import BacklogArguments, PairArguments, SpoolFolderOption
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, say
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.status.spool_view import SpoolView
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.cli.status.fleet_view import FleetView
    from twinbus.client.inspection.health import Check, Health
    from twinbus.client.inspection.reports import Inspection

    StatusViews = tuple[SpoolView, FleetView]

LOOK_EVERY_S = 0.2
EVERY_S = (1.0, 25.0)
"""From the start of a look to that of the next, with --watch."""
HEALTHY = "healthy: everything works, and nothing waits in the backlog"
UNSURE = "unknown: the first line says what could not be asked"


def status(
    namespaces: PairArguments,
    backlog: BacklogArguments,
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
            autocompletion=named_in("client.inspection.health", "Check"),
            help="The verdict is about this only: sending, receiving, managing, failover, backlog or fleet. Repeat for "
            "more.  [default: all]",
        ),
    ] = None,
    spool: SpoolFolderOption = None,
    timeout: Timeout = "5s",
    again_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look twice, this far apart, and derive growth from the difference."),
    ] = None,
    sessions: Annotated[
        bool,
        typer.Option(
            "--sessions",
            help="Also show, by peeking, how many messages wait for each entity and session.",
        ),
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="All of them: also backlog queues that work and are empty.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often, with --watch: from one look to the next, 1s to 25s.")
    ] = "5s",
    proxies: Annotated[
        bool, typer.Option("--proxies", help="Only the proxies of this machine: needs no namespaces, and no keys.")
    ] = False,
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

    If the pair has a board, the processes that report there follow, those in trouble first, and count for the verdict:
    what they say now, and not what one has said that has fallen silent. If the board cannot be read, the fleet is
    unknown.

    Proxies of this machine (and user) follow, as they describe themselves. With --proxies they are all there is:
    failing means that one of them has no place for messages, unknown that one does not answer.

    Spools of this pair that processes of this user have used on this machine are shown too, as far as they are
    registered: a restart of the machine, or the end of the user's last session, may forget them. Name one with --spool
    to be sure. Messages in them wait like those of the backlog. Nothing is changed in them.

    With --watch the verdict is shown anew with every look. What a look could not find out is shown as of the last look
    that could, with its age. Ctrl-C ends it with the exit code of the last verdict.

    \b
    Examples:
      twinbus status
      twinbus status --watch
      twinbus status --entity orders --check sending --check backlog
      twinbus status --again-after 10s
      twinbus status --sessions
      twinbus status --proxies
      twinbus status --spool /var/spool/shop
      twinbus status --json
    """
    if proxies:
        raise typer.Exit(_show_proxies(as_json=as_json))
    from twinbus.client.inspection.health import Check

    attempt_s = timeout_s(timeout)
    wait_s = None if again_after is None else timeout_s(again_after, "--again-after")
    every_s = _every(every)
    checks = _checks(check or [])
    here, there = namespaces.both()
    spools = SpoolView(spool, (backlog.primary_name or here.name) if spool is None else backlog.name_of(here))
    spools.look()  # now, to say what is wrong with it before the rest takes its time

    def look(earlier: Inspection | None = None) -> Inspection:
        from twinbus.client.inspection.inspect_pair import inspect

        names = tuple(entity or ())
        return inspect(
            here,
            there,
            backlog.queues,
            primary_name=backlog.primary_name,
            attempt_s=attempt_s,
            earlier=earlier,
            entities=names,
        )

    from twinbus.cli.status.fleet_view import FleetView

    fleet = FleetView(there, backlog.primary_name or here.name, attempt_s, shows_all=show_all)
    if watch:
        with fleet:
            raise typer.Exit(_watch(look, checks, every_s, (spools, fleet), as_json=as_json, show_all=show_all))
    with ProgressBar("looking at both") as bar, fleet:
        seen = look()
        if wait_s is not None:
            _wait(wait_s, bar)
            seen = look(seen)
        if Check.FLEET in checks:
            fleet.look()
    signals.raise_if_interrupted()
    from twinbus.cli.status.status_view import render
    from twinbus.cli.syphon.syphon_setup import ends_of, look_through
    from twinbus.syphon import SyphonOptions

    found = None
    if sessions and seen.secondary.is_reachable and not seen.secondary.refuses_key:
        found = asyncio.run(look_through(ends_of(here, there, backlog, attempt_s), SyphonOptions(attempt_s=attempt_s)))
    judgement, text = render(seen, checks, (spools, fleet), found=found, as_json=as_json, show_all=show_all)
    say(text)
    raise typer.Exit(exit_code(judgement.health))


def _show_proxies(*, as_json: bool) -> ExitCode:
    from twinbus.cli.status import proxy_view

    found = proxy_view.look_at_proxies()
    if as_json:
        say(json_text({"proxies": [each.as_dict() for each in found]}))
    else:
        say(proxy_view.proxies_table(found) if found else "no proxy runs on this machine")
    return proxy_view.exit_code(found)


def exit_code(health: Health) -> ExitCode:
    from twinbus.client.inspection.health import Health

    return {
        Health.HEALTHY: ExitCode.DONE,
        Health.UNKNOWN: ExitCode.NOT_ALL,
        Health.WORKS: ExitCode.NOT_ALL,
        Health.FAILING: ExitCode.FAILING,
        Health.FAILED_OVER: ExitCode.FAILED_OVER,
        Health.WAITING: ExitCode.WAITING,
    }[health]


def _checks(words: list[str]) -> frozenset[Check]:
    from twinbus.client.inspection.health import EVERYTHING, Check

    unknown = [word for word in words if word not in set(Check)]
    if unknown:
        raise OptionsError(f"--check takes {', '.join(Check)}, got {unknown[0]!r}")
    return frozenset(map(Check, words)) or EVERYTHING


def _every(text: str) -> float:
    every_s = timeout_s(text, "--every")
    if not EVERY_S[0] <= every_s <= EVERY_S[1]:
        raise OptionsError(f"--every must be from {EVERY_S[0]:g}s to {EVERY_S[1]:g}s, got {text}")
    return every_s


def _watch(
    look: Callable[[Inspection | None], Inspection],
    checks: frozenset[Check],
    every_s: float,
    views: StatusViews,
    *,
    as_json: bool,
    show_all: bool,
) -> int:
    """Until Ctrl-C; the exit code of the last verdict."""
    from twinbus.cli.status.status_view import StatusScreen
    from twinbus.client.inspection.freshness import pause_s

    with StatusScreen(checks, views, as_json=as_json, show_all=show_all) as shown:
        try:
            seen = None
            while True:
                began = time.monotonic()
                seen = look(seen)
                signals.raise_if_interrupted()
                shown.show(seen)
                _pause(pause_s(every_s, time.monotonic() - began))
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED if shown.last is None else exit_code(shown.last.health)


def _pause(length_s: float) -> None:
    time.sleep(length_s)


def _wait(length_s: float, bar: ProgressBar) -> None:
    """Between two looks; the bar shows how long it still takes."""
    bar.what, began = "waiting for the second look", time.monotonic()
    while (left := began + length_s - time.monotonic()) > 0:
        bar.done, bar.total = max(1, round(length_s - left)), round(length_s)
        time.sleep(min(LOOK_EVERY_S, left))
    bar.what, bar.done, bar.total = "looking again", 0, None
