"""`twinbus syphon`: bring the backlog home."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.commands.quarantine import quarantine_commands
from twinbus.cli.completion import one_of
from twinbus.cli.ends import Ends, look_through, not_in_order, queues_of, watchful
from twinbus.cli.entity_list import Entities, EntitiesFile, listed_entities
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.gauges import Address, MetricsFile, Names, check_file, parse_address, served
from twinbus.cli.json_form import json_text
from twinbus.cli.leftovers import check_names, not_home, notes_of, raise_if_unknown, unknown_text, untold_texts
from twinbus.cli.namespaces import (
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
from twinbus.cli.record import LedgerFolder, record_in
from twinbus.cli.say import note, say
from twinbus.cli.screens import screen_for
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.cli.homecoming import Ending, Screen
    from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
    from twinbus.syphon.entity_check import EntityCheck
    from twinbus.syphon.survey import Survey

ENDED_EARLY = "not all is home, or nobody can tell; the result says why"


class Wishes(NamedTuple):
    """What is to be told of a run, and where."""

    as_json: bool
    ledger: Path | None
    metrics: Address | None
    metrics_file: Path | None


def syphon(
    context: typer.Context,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is left to move.  [default: until it is stopped]")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Messages a second, at most.  [default: all it can]")
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
    entity: Entities = None,
    entities_file: EntitiesFile = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only what the backlog took before this time, as 2025-03-09T14:05Z, or so long ago, as 10m.",
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            "--ttl-mode",
            metavar="HOW",
            autocompletion=one_of(lambda: ("remaining", "restart")),
            help="remaining: time to live went on in the backlog; restart: it begins anew.",
        ),
    ] = "remaining",
    order: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            autocompletion=one_of(lambda: ("session",)),
            help="session: messages of a session come home in the order sent.  [default: any]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go where, by peeking.")] = False,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    ledger: LedgerFolder = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Let Prometheus scrape numbers there; without a host, locally."),
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the same numbers into this file every second.")
    ] = None,
    timeout: Timeout = "15s",
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: progress every second, alerts, and how it ended.")
    ] = False,
    _text: Annotated[bool, typer.Option("--text", hidden=True, help="The default.")] = False,
) -> None:
    """Bring the messages of the backlog home to the entities of the primary they were sent to.

    Every message is received under lock, stored at home and only then completed; its id never changes. Whatever kills
    this process or either namespace, nothing is lost, and what is repeated has the same id. Several syphons may run at
    a time: they share the work. An entity that is down is passed over and tried again; what can never be stored goes to
    the quarantine.

    With --until-empty it ends with 0 if nothing is left to move in any backlog queue of the primary, those beyond
    --queues too, and nothing is in quarantine; with 1 if neither the primary nor a message knows an entity that was
    named. Otherwise it ends with 3: after --first or SIGTERM, while messages are in quarantine, if it may not look
    everywhere, or if a backlog queue cannot be emptied, because it demands sessions, forwards or is disabled. Messages
    for entities that --entity and --entities-file do not name stay in the backlog; the result says how many.

    SIGTERM and Ctrl-C stop it cleanly, SIGUSR1 pauses it, the next SIGUSR1 goes on; so does SIGUSR2.

    \b
    Examples:
      twinbus syphon --until-empty
      twinbus syphon --dry-run
      twinbus syphon --first 100 --entity orders --until-empty
      twinbus syphon --entities-file entities.txt
      twinbus syphon --rate 500 --before 10m --until-empty --json
      twinbus syphon --order session --metrics 9464
      twinbus syphon quarantine list
    """
    if context.invoked_subcommand is not None:
        return
    check_count(count)
    attempt_s = seconds("--timeout", timeout)
    options = options_of(
        ttl=ttl,
        order=order,
        rate=rate,
        concurrency=concurrency,
        canary=first,
        entities=listed_entities(entity, entities_file),
        enqueued_before=None if before is None else moment(before, datetime.now(UTC)),
        until_empty=until_empty,
        attempt_s=attempt_s,
    )
    wishes = Wishes(
        as_json,
        ledger,
        None if metrics is None else parse_address(metrics),
        None if metrics_file is None else check_file(metrics_file),
    )
    here, there = both(primary, secondary, config, credential)
    names = Names(name_of(here, primary_name), there.name or there.address)
    ends = Ends(here.dial(attempt_s), there.dial(attempt_s), names, count)
    logging.getLogger("twinbus.syphon").addHandler(logging.NullHandler())  # its alerts are shown here
    if dry_run:
        from twinbus.cli.homecoming_texts import survey_text

        with Bar("looking through the backlog"):
            found = asyncio.run(_look(ends, options))
        say(json_text(found.as_dict()) if as_json else survey_text(found, datetime.now(UTC)))
        raise typer.Exit(ExitCode.DONE if found.doubt is None else ExitCode.NOT_ALL)
    raise typer.Exit(asyncio.run(_bring_home(ends, options, wishes)))


def options_of(**wishes: Any) -> SyphonOptions:
    """Raises `OptionsError` that speaks of options as they are typed."""
    from twinbus.syphon import SyphonOptions

    try:
        return SyphonOptions(**wishes)
    except OptionsError as error:
        text = str(error).replace("canary", "--first").replace('order must be "session" or None', "--order is session")
        raise OptionsError(text) from None


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


async def _look(ends: Ends, options: SyphonOptions) -> Survey:
    found = await look_through(ends, options)
    raise_if_unknown(await check_names(ends, options, found.queues), ends.names.primary)
    return found


async def _bring_home(ends: Ends, options: SyphonOptions, wishes: Wishes) -> int:
    """The exit code."""
    from twinbus.cli.homecoming import Ending, Homecoming
    from twinbus.cli.homecoming_texts import result_text
    from twinbus.syphon import Syphon

    with record_in(wishes.ledger) as ledger:
        search = ends.search(options.attempt_s)
        queues = await queues_of(ends, search)
        names = await check_names(ends, options, queues)
        _tell_unknown(names, ends, options)
        if options.order is not None:
            options = await watchful(ends, options, queues)

        def make(on_alert: Callable[[Alert], None]) -> Syphon:
            return Syphon(
                ends.primary,
                ends.secondary,
                ends.names.primary,
                ends.queue_count,
                options,
                queues=queues,
                search=search,
                on_alert=on_alert,
                ledger=ledger,
            )

        aftermath = Aftermath([], None, 0, [])

        async def look(ending: Ending, progress: Progress) -> None:
            nonlocal names, aftermath
            if names is None and ending in (Ending.EMPTY, Ending.UNSURE):
                names = await check_names(ends, options, homecoming.syphon.queues.indexes)  # nobody could at the start
            aftermath = await _aftermath(ends, options, homecoming.syphon, ending, names, progress)

        homecoming = Homecoming(make, _screen(wishes, ends.names))
        with served(wishes.metrics, homecoming.look, ends.names):
            ending, progress = await homecoming.run(look)
    are_others_there = options.entities is not None and aftermath.outside_left != 0
    if ending is Ending.EMPTY and (are_others_there or options.enqueued_before is not None):
        ending = Ending.CHOSEN
    if wishes.as_json:
        said = {"event": "finished", "ending": ending.value} | progress.as_dict() | aftermath._asdict()
        say(json_text(said))
    else:
        notes = notes_of(aftermath.quarantined, aftermath.outside_left, aftermath.extra_queues, aftermath.doubts)
        say(result_text(ending, progress, notes))
    if homecoming.problem is not None:
        raise not_in_order(homecoming.problem)
    raise_if_unknown(names if options.until_empty else None, ends.names.primary)
    return exit_code(ending, options, aftermath)


class Aftermath(NamedTuple):
    """What there is to know beside how it ended."""

    extra_queues: list[int]
    """Backlog queues beyond the count that messages came from."""
    quarantined: int | None
    """Messages in quarantine that were wanted; None: nobody has looked, or could."""
    outside_left: int | None
    """Messages that stay in the backlog, because the entity that they are for was not named; None as above."""
    doubts: list[str]
    """Why nobody can say that all is home."""

    @property
    def is_all_home(self) -> bool:
        """Whether all that was to be moved is. What stays for others was not."""
        return not self.quarantined and not self.doubts


async def _aftermath(
    ends: Ends, options: SyphonOptions, syphon: Syphon, ending: Ending, names: EntityCheck | None, progress: Progress
) -> Aftermath:
    from twinbus.cli.homecoming import Ending

    if ending not in (Ending.EMPTY, Ending.UNSURE):
        return Aftermath(syphon.queues.extra, None, None, [])
    quarantined, outside, why_not = await not_home(ends, options, syphon)
    met = [each.path for each in progress.destinations]
    doubts = [*syphon.queues.doubts, why_not, *untold_texts(names, ends.names.primary, met)]
    return Aftermath(syphon.queues.extra, quarantined, outside, [doubt for doubt in doubts if doubt])


def _tell_unknown(names: EntityCheck | None, ends: Ends, options: SyphonOptions) -> None:
    """A wrong name ends what is to end by itself; a service goes on, for the entity may come."""
    text = None if names is None else unknown_text(names, ends.names.primary)
    if text is not None and options.until_empty:
        raise TwinbusError(text)
    if text is not None:
        note(text)


def _screen(wishes: Wishes, names: Names) -> Screen:
    screen = screen_for(wishes.as_json)
    if wishes.metrics_file is not None:
        screen.add(MetricsFile(wishes.metrics_file, names, note))
    return screen


def exit_code(ending: Ending, options: SyphonOptions, aftermath: Aftermath) -> int:
    from twinbus.cli.homecoming import Ending

    if ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    ended_early = ending is Ending.CANARY or (ending is Ending.STOPPED and options.until_empty)
    return ExitCode.NOT_ALL if ended_early or not aftermath.is_all_home else ExitCode.DONE


def syphon_commands() -> typer.Typer:
    """`twinbus syphon`, and `quarantine` below it."""
    app = typer.Typer(rich_markup_mode=None, no_args_is_help=False, invoke_without_command=True)
    app.callback(epilog=exit_codes(not_all=ENDED_EARLY), invoke_without_command=True)(syphon)
    app.add_typer(quarantine_commands(), name="quarantine")
    return app
