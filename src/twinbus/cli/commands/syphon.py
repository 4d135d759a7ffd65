"""`twinbus syphon`: bring the backlog home."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from twinbus.cli.commands.quarantine import quarantine_commands
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.namespaces import (
    Config,
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
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.cli.homecoming import Ending
    from twinbus.dial import Dial
    from twinbus.syphon import Progress, SyphonOptions
    from twinbus.syphon.presence import Presence
    from twinbus.syphon.survey import Share, Survey

ENDED_EARLY = "it ended before all was done: after --first, or by SIGTERM with --until-empty"


class Ends(NamedTuple):
    """The two ends of a syphon."""

    primary: Dial
    secondary: Dial
    name: str
    """The primary's, by which the backlog queues are called."""
    queue_count: int


def syphon(
    context: typer.Context,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is left to move.  [default: until it is stopped]")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="At most so many messages a second.  [default: all it can]")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="Batches under way to one entity at a time: 1 to 1000.")
    ] = 8,
    first: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Move so many, then pause and ask whether to go on; where nobody can be asked, end with 3.",
        ),
    ] = None,
    entity: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only messages for this one. Repeat for more.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only what the backlog took before this time, as 2025-03-09T14:05Z, or so long ago, as 10m.",
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(metavar="HOW", help="remaining: time to live went on in the backlog; restart: it begins anew."),
    ] = "remaining",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Move nothing: tell what would go where, by peeking.")
    ] = False,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Record everything that happens to a message in this ledger.")
    ] = None,
    timeout: Timeout = "15s",
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON lines on stdout: progress every second, alerts, the result.")
    ] = False,
) -> None:
    """Bring the messages of the backlog home to the entities of the primary they were sent to.

    Every message is received under lock, stored at home and only then completed; its id never changes. Whatever kills
    this process or either namespace, nothing is lost, and what is repeated has the same id. Several syphons may run at
    a time: they share the work. An entity that is down is passed over and tried again; what can never be stored goes to
    the quarantine.

    SIGTERM and Ctrl-C stop it cleanly, SIGUSR1 pauses it, the next SIGUSR1 goes on.

    \b
    Examples:
      twinbus syphon --until-empty
      twinbus syphon --dry-run
      twinbus syphon --first 100 --entity orders --until-empty
      twinbus syphon --rate 500 --before 10m --until-empty --json
      twinbus syphon quarantine list
    """
    if context.invoked_subcommand is not None:
        return
    check_count(count)
    attempt_s = seconds("--timeout", timeout)
    options = options_of(
        ttl=ttl,
        rate=rate,
        concurrency=concurrency,
        canary=first,
        entities=None if not entity else frozenset(entity),
        enqueued_before=None if before is None else moment(before, datetime.now(UTC)),
        until_empty=until_empty,
        attempt_s=attempt_s,
    )
    here, there = both(primary, secondary, config)
    ends = Ends(here.dial(attempt_s), there.dial(attempt_s), name_of(here, primary_name), count)
    logging.getLogger("twinbus.syphon").addHandler(logging.NullHandler())  # its alerts are shown here
    if dry_run:
        found = asyncio.run(_look_through(ends, options))
        typer.echo(json.dumps(found.as_dict()) if as_json else survey_text(found, datetime.now(UTC)))
        return
    raise typer.Exit(asyncio.run(_bring_home(ends, options, ledger, as_json=as_json)))


def options_of(**wishes: Any) -> SyphonOptions:
    """Raises `OptionsError` that speaks of options as they are typed."""
    from twinbus.syphon import SyphonOptions

    try:
        return SyphonOptions(**wishes)
    except OptionsError as error:
        raise OptionsError(str(error).replace("canary", "--first")) from None


def moment(text: str, now: datetime) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; or a length of time ago."""
    from twinbus.namespace.faults.durations import parse_duration

    try:
        return now - timedelta(milliseconds=parse_duration(text))
    except OptionsError:
        pass
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise OptionsError(
            f"--before takes a time, as 2025-03-09T14:05Z, or how long ago, as 10m, got {text!r}"
        ) from None
    return said if said.tzinfo is not None else said.replace(tzinfo=UTC)


# --- moving ---


async def _bring_home(ends: Ends, options: SyphonOptions, directory: Path | None, *, as_json: bool) -> int:
    """The exit code."""
    from twinbus.cli.homecoming import Homecoming
    from twinbus.cli.screens import screen_for
    from twinbus.ledger import Ledger
    from twinbus.syphon import Syphon

    found = await _present(ends, options.attempt_s)
    queues = None if found is None else usable(ends.name, found)
    screen = screen_for(as_json)
    with nullcontext() if directory is None else Ledger.at(directory, "twinbus syphon") as ledger:
        moving = Syphon(
            ends.primary,
            ends.secondary,
            ends.name,
            ends.queue_count,
            options,
            queues=queues,
            on_alert=screen.tell,
            ledger=ledger,
        )
        ending, progress = await Homecoming(moving, screen).run()
    if as_json:
        typer.echo(json.dumps({"event": "finished", "ending": ending.value} | progress.as_dict()))
    else:
        typer.echo(result_text(ending, progress))
    return exit_code(ending, options)


async def _present(ends: Ends, attempt_s: float) -> Presence | None:
    """Which queues are there; None if the secondary does not answer now: the syphon will wait for it."""
    from twinbus.syphon.linked import LineFailed
    from twinbus.syphon.presence import FOR_GOOD, presence

    try:
        return await presence(ends.secondary, ends.name, ends.queue_count, attempt_s=attempt_s)
    except LineFailed as error:
        if error.failure.kind in FOR_GOOD:
            raise TwinbusError(f"the secondary refuses: {error.failure}") from None
        typer.echo(f"twinbus: the secondary does not answer, waiting for it: {error.failure}", err=True)
        return None


def usable(name: str, found: Presence) -> Sequence[int]:
    """The queues to empty; raises `TwinbusError` if there is none."""
    if found.queues:
        if found.missing:
            index, failure = next(iter(found.missing.items()))
            more = f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""
            typer.echo(f"twinbus: backlog queue {index}{more} cannot be read: {failure}", err=True)
        return found.queues
    failure = next(iter(found.missing.values()))
    hint = "is --primary-name right, and has anybody paired them? see twinbus pair"
    raise TwinbusError(f"no backlog queue of {name} can be read: {failure} ({hint})")


def exit_code(ending: Ending, options: SyphonOptions) -> int:
    from twinbus.cli.homecoming import Ending

    if ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    ended_early = ending is Ending.CANARY or (ending is Ending.STOPPED and options.until_empty)
    return ExitCode.NOT_ALL if ended_early else ExitCode.DONE


def result_text(ending: Ending, progress: Progress) -> str:
    from twinbus.cli.commands.status import size
    from twinbus.cli.homecoming import Ending
    from twinbus.client.duration import roughly

    said = {
        Ending.EMPTY: "the backlog is empty",
        Ending.CANARY: "stopped after the first ones; the others stay in the backlog until twinbus syphon runs again",
        Ending.STOPPED: "stopped",
        Ending.INTERRUPTED: "interrupted; what is left stays in the backlog",
    }[ending]
    pace = f", {progress.moved / progress.seconds:,.0f}/s" if progress.moved and progress.seconds > 0 else ""
    moved = f"{progress.moved:,} messages ({size(progress.moved_bytes)}) are home"
    lines = [f"{moved}, in {roughly(progress.seconds)}{pace}: {said}"]
    if progress.refused or progress.expired:
        lines.append(
            f"{progress.refused:,} can never be stored and {progress.expired:,} are past their time to live: "
            "see twinbus syphon quarantine list"
        )
    if progress.repeated or progress.in_doubt:
        lines.append(f"{progress.repeated + progress.in_doubt:,} may be at home twice, with the same id")
    return "\n".join(lines)


# --- looking ---


async def _look_through(ends: Ends, options: SyphonOptions) -> Survey:
    from twinbus.syphon.survey import survey

    found = await _present(ends, options.attempt_s)
    if found is None:
        raise TwinbusError("the secondary does not answer: nothing can be told")
    return await survey(ends.secondary, ends.name, ends.queue_count, options, queues=usable(ends.name, found))


def survey_text(found: Survey, now: datetime) -> str:
    """What would go where, as a table."""
    from twinbus.cli import draw

    others = {
        "(refused: malformed)": found.malformed,
        "(expired)": found.expired,
        "(not chosen)": found.unwanted,
        "(set aside by others)": found.set_aside,
    }
    shares = dict(sorted(found.destinations.items())) | {name: each for name, each in others.items() if each.messages}
    rows = [(name, each.messages, *_size_and_ages(each, now)) for name, each in shares.items()]
    if not rows:
        return "the backlog is empty"
    return draw.table([("destination", "messages", "size", "oldest", "newest"), *rows])


def _size_and_ages(share: Share, now: datetime) -> tuple[str, str, str]:
    from twinbus.cli.commands.status import size
    from twinbus.client.duration import roughly

    now_ms = now.timestamp() * 1000
    ages = [
        "?" if at_ms is None else roughly(max(0.0, now_ms - at_ms) / 1000)
        for at_ms in (share.oldest_ms, share.newest_ms)
    ]
    return size(share.size), ages[0], ages[1]


def syphon_commands() -> typer.Typer:
    """`twinbus syphon`, and `quarantine` below it."""
    app = typer.Typer(rich_markup_mode=None, no_args_is_help=False, invoke_without_command=True)
    app.callback(epilog=exit_codes(not_all=ENDED_EARLY), invoke_without_command=True)(syphon)
    app.add_typer(quarantine_commands(), name="quarantine")
    return app
