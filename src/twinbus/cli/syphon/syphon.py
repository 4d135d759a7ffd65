"""`twinbus syphon`: bring the backlog home."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer

from twinbus.cli.arguments.common_options import Timeout, timeout_s
from twinbus.cli.arguments.completion import one_of
from twinbus.cli.arguments.option_groups import (
    ArgumentGroup,
    BacklogArguments,
    EntityArguments,
    LedgerArguments,
    PairArguments,
    PanelGroup,
    SpoolFolderOption,
    check_range,
    check_writable,
    option,
    with_groups,
)
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.metrics_export import ListenAddress, LiveMetrics, MetricsFile, parse_address, serve_source
from twinbus.cli.output import json_text, note, say, say_event
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.syphon.quarantine import quarantine_commands
from twinbus.cli.syphon.syphon_board import on_board
from twinbus.cli.syphon.syphon_control import add_control_commands
from twinbus.cli.syphon.syphon_screens import screen_for
from twinbus.cli.syphon.syphon_setup import (
    SyphonEnds,
    check_names,
    ends_of,
    look_through,
    not_home,
    not_in_order,
    notes_of,
    queues_of,
    raise_if_unknown,
    unchecked_texts,
    unknown_text,
    watch_order,
)
from twinbus.errors import OptionsError
from twinbus.units import parse_past_time

if TYPE_CHECKING:
    from twinbus.cli.syphon.syphon_processes import HelperArguments
    from twinbus.cli.syphon.syphon_run import Ending
    from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
    from twinbus.syphon.peeking.backlog_scan import EntityCheck
    from twinbus.syphon.peeking.dry_run import DryRun

PROCESSES_MAX = 64
ENDED_EARLY = "not all is home, or that is unknown; the result says why"


TtlMode = Annotated[
    str,
    typer.Option(
        "--ttl-mode",
        metavar="HOW",
        autocompletion=one_of("remaining", "restart"),
        help="remaining: time to live went on in the backlog; restart: it begins anew.",
    ),
]
SessionOrder = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="HOW",
        autocompletion=one_of("session"),
        help="session: messages of a session come home in the order sent.  [default: any]",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SelectionArguments(EntityArguments):
    first: int | None = option(None, "N", "Move this many, then pause and ask; where nobody can be asked, end with 3.")
    before: str | None = option(
        None, "TIME", "Only what the backlog took before this time, e.g. 2025-03-09T14:05Z, or this long ago, e.g. 10m."
    )

    def cut_off(self) -> datetime | None:
        """The time of `--before`; None: there is none. Raises `OptionsError`."""
        return None if self.before is None else parse_past_time(self.before, datetime.now(UTC), "--before")


@dataclass(frozen=True, kw_only=True)
class PaceArguments(ArgumentGroup):
    panel: ClassVar[str] = "How"
    until_empty: bool = option(
        False, None, "End when nothing is left to move.  [default: until it is stopped]", "--until-empty"
    )
    rate: float | None = option(None, "N", "Messages a second, at most.  [default: all it can]")
    concurrency: int = option(8, "N", "Batches under way to one entity at a time: 1 to 1000.")
    processes: int = option(1, "N", "So many processes on this machine share the work: 1 to 64.")
    ttl_mode: TtlMode = "remaining"
    order: SessionOrder = None

    def __post_init__(self) -> None:
        check_range("--processes", self.processes, 1, PROCESSES_MAX)
        if self.processes > 1 and self.order is not None:
            raise OptionsError("--processes and --order exclude each other: order is kept by one process")


@dataclass(frozen=True, kw_only=True)
class RecordArguments(LedgerArguments):
    panel: ClassVar[str] = "Records and metrics"
    metrics: str | None = option(None, "[HOST:]PORT", "Serve metrics for Prometheus there; without a host, locally.")
    board: bool = option(
        False, None, "The board of the pair: say there how far it is; twinbus status shows it.", "--board"
    )
    metrics_file: Path | None = option(None, "FILE", "Write the same metrics to this file every second.")

    def address(self) -> ListenAddress | None:
        return None if self.metrics is None else parse_address(self.metrics)


def syphon(
    context: typer.Context,
    selection: SelectionArguments,
    pace: PaceArguments,
    namespaces: PairArguments,
    backlog: BacklogArguments,
    records: RecordArguments,
    spool: SpoolFolderOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go where, by peeking.")] = False,
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

    With --spool it empties the folders that senders with a spool have left behind, instead of the backlog: messages go
    home, or to the backlog if their entity is down and the secondary is up. Folders in use are left to their processes.
    It ends with 3 if such a folder has messages, and with 1 if one is damaged or of another pair.

    SIGTERM and Ctrl-C stop it cleanly, SIGUSR1 pauses it, the next SIGUSR1 goes on; so does SIGUSR2. From outside,
    `twinbus syphon list`, `pause`, `resume` and `pace` see and steer it.

    \b
    Examples:
      twinbus syphon --until-empty
      twinbus syphon --dry-run
      twinbus syphon --first 100 --entity orders --until-empty
      twinbus syphon --until-empty --processes 4
      twinbus syphon --entities-file entities.txt
      twinbus syphon --rate 500 --before 10m --until-empty --json
      twinbus syphon --order session --metrics 9464
      twinbus syphon --spool /var/spool/shop --until-empty
      twinbus syphon quarantine list
    """
    if context.invoked_subcommand is not None:
        return
    attempt_s = timeout_s(timeout)
    options = options_of(
        ttl=pace.ttl_mode,
        order=pace.order,
        rate=pace.rate,
        concurrency=pace.concurrency,
        canary=selection.first,
        entities=selection.listed(),
        enqueued_before=selection.cut_off(),
        until_empty=pace.until_empty,
        attempt_s=attempt_s,
    )
    address = records.address()
    check_writable("--metrics-file", records.metrics_file)
    ends = ends_of(*namespaces.both(), backlog, attempt_s)
    logging.getLogger("twinbus.syphon").addHandler(logging.NullHandler())  # its alerts are shown here
    if pace.processes > 1 and (spool is not None or dry_run):
        raise OptionsError(f"--processes and {'--spool' if spool is not None else '--dry-run'} exclude each other")
    if spool is not None:
        raise typer.Exit(asyncio.run(_empty_spool(spool, ends, options, records, dry_run=dry_run, as_json=as_json)))
    if dry_run:
        raise typer.Exit(_dry_run(ends, options, as_json=as_json))
    helpers = None
    if pace.processes > 1:
        from twinbus.cli.syphon.syphon_processes import HelperArguments

        together = HelperArguments(namespaces=namespaces, backlog=backlog, options=options, records=records)
        helpers = (pace.processes - 1, together)
    raise typer.Exit(asyncio.run(_bring_home(ends, options, records, address, helpers, as_json=as_json)))


def _dry_run(ends: SyphonEnds, options: SyphonOptions, *, as_json: bool) -> ExitCode:
    from twinbus.cli.syphon.syphon_run import survey_text

    with ProgressBar("looking through the backlog"):
        found = asyncio.run(_look(ends, options))
    say(json_text(found.as_dict()) if as_json else survey_text(found, datetime.now(UTC)))
    return ExitCode.DONE if found.doubt is None else ExitCode.NOT_ALL


def options_of(**values: Any) -> SyphonOptions:
    """Raises `OptionsError` that speaks of options as they are typed."""
    from twinbus.syphon import SyphonOptions

    try:
        return SyphonOptions(**values)
    except OptionsError as error:
        text = str(error).replace("canary", "--first").replace('order must be "session" or None', "--order is session")
        raise OptionsError(text) from None


# --- moving ---


async def _look(ends: SyphonEnds, options: SyphonOptions) -> DryRun:
    found = await look_through(ends, options)
    raise_if_unknown(await check_names(ends, options, found.queues), ends.names.primary)
    return found


async def _bring_home(
    ends: SyphonEnds,
    options: SyphonOptions,
    records: RecordArguments,
    address: ListenAddress | None,
    helpers: tuple[int, HelperArguments] | None,
    *,
    as_json: bool,
) -> int:
    """The exit code. `helpers`: how many, and what they are made of."""
    from twinbus.cli.syphon.syphon_run import Ending, SyphonRun, result_text
    from twinbus.syphon import Syphon

    with records.open() as ledger:
        search = ends.search(options.attempt_s)
        queues = await queues_of(ends, search)
        names = await check_names(ends, options, queues)
        if options.until_empty:
            raise_if_unknown(names, ends.names.primary)
        elif (text := unknown_text(names, ends.names.primary)) is not None:
            note(text)  # a service goes on, for the entity may come
        if options.order is not None:
            options = await watch_order(ends, options, queues)

        def make(on_alert: Callable[[Alert], None]) -> Syphon:
            named: dict[str, Any] = {"queues": queues, "discovery": search, "on_alert": on_alert, "ledger": ledger}
            if helpers is not None:
                from twinbus.cli.syphon.syphon_processes import SyphonGroup

                return SyphonGroup(*helpers, ends, **named)
            return Syphon(ends.primary, ends.secondary, ends.names.primary, ends.queue_count, options, **named)

        leftovers = SyphonLeftovers([], None, 0, [])

        async def look(ending: Ending, progress: Progress) -> None:
            nonlocal names, leftovers, options
            options, chosen = run.syphon.present_options, options.entities
            is_checked = names is not None and options.entities == chosen
            if not is_checked and ending in (Ending.EMPTY, Ending.UNSURE):
                names = await check_names(ends, options, run.syphon.queues.indexes)  # nobody could at the start
            leftovers = await _leftovers(ends, options, run.syphon, ending, names, progress)

        metrics = None if records.metrics_file is None else MetricsFile(records.metrics_file, ends.names)
        run = SyphonRun(make, screen_for(as_json), metrics)
        board = on_board(ends, run.syphon, options.attempt_s, ledger, wanted=records.board)
        with serve_source(address, LiveMetrics(run.syphon.current_progress, ends.names)):
            async with board:
                ending, progress = await run.run(look)
    are_others_there = options.entities is not None and leftovers.outside_left != 0
    if ending is Ending.EMPTY and (are_others_there or options.enqueued_before is not None):
        ending = Ending.CHOSEN
    if as_json:
        say_event("finished", {"ending": ending.value} | progress.as_dict() | leftovers._asdict())
    else:
        notes = notes_of(leftovers.quarantined, leftovers.outside_left, leftovers.extra_queues, leftovers.doubts)
        say(result_text(ending, progress, notes))
    if run.problem is not None:
        raise not_in_order(run.problem)
    raise_if_unknown(names if options.until_empty else None, ends.names.primary)
    return exit_code(ending, options, leftovers)


async def _empty_spool(
    folder: Path,
    ends: SyphonEnds,
    options: SyphonOptions,
    records: RecordArguments,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """The exit code."""
    from twinbus.cli.syphon.spool_run import SpoolEmptying, show_result
    from twinbus.cli.syphon.syphon_run import Ending

    if options.order is not None:
        raise OptionsError("--spool and --order exclude each other: a spool keeps no order")
    if dry_run:
        raise OptionsError("--spool and --dry-run exclude each other: twinbus status --spool shows what is in a spool")
    if records.board:
        raise OptionsError("--spool and --board exclude each other: a process with a spool reports it itself")
    if records.metrics is not None:
        raise OptionsError("--spool and --metrics exclude each other: --metrics-file works with both")
    metrics = None if records.metrics_file is None else MetricsFile(records.metrics_file, ends.names)
    with records.open() as ledger:
        result = await SpoolEmptying(folder, ends, options, ledger, metrics, as_json=as_json).run()
    show_result(result, as_json=as_json)
    if result.ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    is_as_wanted = result.is_all_gone or (result.ending is Ending.STOPPED and not options.until_empty)
    return ExitCode.DONE if is_as_wanted else ExitCode.NOT_ALL


class SyphonLeftovers(NamedTuple):
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


async def _leftovers(
    ends: SyphonEnds,
    options: SyphonOptions,
    syphon: Syphon,
    ending: Ending,
    names: EntityCheck | None,
    progress: Progress,
) -> SyphonLeftovers:
    from twinbus.cli.syphon.syphon_run import Ending

    if ending not in (Ending.EMPTY, Ending.UNSURE):
        return SyphonLeftovers(syphon.queues.extra, None, None, [])
    quarantined, outside, why_not = await not_home(ends, options, syphon)
    met = [each.path for each in progress.destinations]
    doubts = [*syphon.queues.doubts, why_not, *unchecked_texts(names, ends.names.primary, met)]
    return SyphonLeftovers(syphon.queues.extra, quarantined, outside, [doubt for doubt in doubts if doubt])


def exit_code(ending: Ending, options: SyphonOptions, leftovers: SyphonLeftovers) -> int:
    from twinbus.cli.syphon.syphon_run import Ending

    if ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    ended_early = ending is Ending.CANARY or (ending is Ending.STOPPED and options.until_empty)
    return ExitCode.NOT_ALL if ended_early or not leftovers.is_all_home else ExitCode.DONE


def syphon_commands() -> typer.Typer:
    """`twinbus syphon`, and below it what steers running ones, and `quarantine`."""
    app = typer.Typer(cls=PanelGroup, rich_markup_mode=None, no_args_is_help=False, invoke_without_command=True)
    app.callback(cls=PanelGroup, epilog=exit_codes(not_all=ENDED_EARLY), invoke_without_command=True)(
        with_groups(syphon)
    )
    add_control_commands(app)
    app.add_typer(quarantine_commands(), name="quarantine")
    return app
