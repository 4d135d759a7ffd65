"""`twinbus drill`: an outage on purpose, measured against limits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.completion import drill_faults, one_of
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.json_form import json_text
from twinbus.cli.lengths import length_s
from twinbus.cli.namespaces import (
    Choice,
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    check_count,
    choose,
    reach,
    seconds,
)
from twinbus.cli.on_signals import on_signals
from twinbus.cli.say import say
from twinbus.errors import OptionsError, TwinbusError
from twinbus.own_files import write_report
from twinbus.plain_text import on_one_line

if TYPE_CHECKING:
    from twinbus.drill.options import DrillOptions
    from twinbus.drill.plan import Plan
    from twinbus.drill.report import Outcome

REPORTS = (".json", ".md")
NOT_PUT_BACK = "something is still as the drill made it: twinbus drill --undo"


def drill(
    entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="A queue or topic of the primary: the one that is to fail.")
    ] = None,
    fault: Annotated[
        str,
        typer.Option(
            metavar="FAULT",
            autocompletion=one_of(drill_faults),
            help="no-send, unreachable or unanswered; by status only no-send.",
        ),
    ] = "no-send",
    how: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            autocompletion=one_of(lambda: ("refuse", "drop", "silent")),
            help="unreachable: refuse, drop or silent.  [default: refuse]",
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it fails: 1s to 1h.  [default: 30s more than --failover-interval]"),
    ] = None,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    by_status: Annotated[
        bool,
        typer.Option(
            "--by-status",
            help="Set the entity to SendDisabled and back.  [default: a fault where the primary has a control socket "
            "on this machine, else this]",
        ),
    ] = False,
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The control socket of the primary.  [default: found beside its certificates]"
        ),
    ] = None,
    max_failover: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit: from the first send that fails to the backlog.")
    ] = None,
    max_gap: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit: the longest time without an accepted send.")
    ] = None,
    max_recovery: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit: from the end of the fault to a send on the primary.")
    ] = None,
    max_drain: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit: from the end of the fault until all canaries are home.")
    ] = None,
    max_lost: Annotated[int, typer.Option(metavar="N", help="Limit: accepted canaries that are nowhere.")] = 0,
    failover_interval: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long failures are accepted before the backlog is used; as in the application."
        ),
    ] = "1m",
    ping_interval: Annotated[
        str, typer.Option(metavar="TIME", help="As in the application: how often the primary is pinged.")
    ] = "1m",
    attempts: Annotated[int, typer.Option(metavar="N", help="As in the application: attempts a send.")] = 3,
    timeout: Timeout = "5s",
    count: QueueCount = 10,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Use the backlog queues that exist, and create none: needs no Manage.")
    ] = False,
    primary_name: PrimaryName = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Messages a second, as canaries: 0.1 to 100.")] = 10,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long canaries live.  [default: 10m more than --length]")
    ] = None,
    before: Annotated[
        str, typer.Option("--warm-up", metavar="TIME", help="How long canaries are sent before it fails.")
    ] = "2s",
    no_syphon: Annotated[
        bool, typer.Option("--no-syphon", help="Wait for the syphon that you run, instead of running one.")
    ] = False,
    leave_canaries: Annotated[
        bool, typer.Option("--leave-canaries", help="Do not take canaries away again: they expire.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put back what drills have left behind that were killed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where a drill notes what it has changed, for --undo.  [default: ~/.local/state/twinbus/drills]",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the report goes, as NAME.json or NAME.md.  [default: nowhere]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON on stdout; progress goes to stderr.")
    ] = False,
) -> None:
    """Make an entity fail for a while, send canaries through it, and measure how the pair takes it.

    It says what will happen, asks, makes the entity fail, and puts it back whatever becomes of the drill: Ctrl-C and
    SIGTERM end it cleanly, and what a killed one has left is put back by --undo. Canaries have the application property
    twinbus-drill: let consumers pass them over. It says how many of them it leaves in the queue, and when they expire.
    The intervals are those of an application that sets none: give yours, they decide most of the numbers.

    Exit code 1 also if a limit is missed, if sends never took the detour or never came back, or if a canary is lost.

    \b
    Examples:
      twinbus drill --entity orders --dry-run
      twinbus drill --entity orders --failover-interval 0s --max-failover 3s
      twinbus drill --entity orders --by-status --yes --json --report drill.md
      twinbus drill --entity orders --fault unreachable --how silent --length 1m
      twinbus drill --undo
    """
    from twinbus.drill.notes import default_folder

    folder = notes or default_folder()
    if undo:
        _refuse_beside_undo(entity=entity, dry_run=dry_run, report=report)
        choice = choose("primary", primary, config, credential)
        raise typer.Exit(_undo(folder, choice, seconds("--timeout", timeout), as_json=as_json))
    if entity is None:
        raise OptionsError("which entity? give --entity NAME, a queue or topic of the primary")
    if by_status and control is not None:
        raise OptionsError("--by-status and --control are two ways to do it: give one of them")
    options = _options(
        entity=entity,
        fault=fault,
        how=how,
        length_s=_optional("--length", length),
        before_s=length_s("--warm-up", before),
        rate=rate,
        ttl_s=_optional("--ttl", ttl),
        failover_interval_s=length_s("--failover-interval", failover_interval),
        ping_interval_s=length_s("--ping-interval", ping_interval),
        attempts=attempts,
        timeout_s=seconds("--timeout", timeout),
        queue_count=check_count(count),
        primary_name=primary_name,
        creates=not no_create,
        by_status=by_status,
        brings_home=not no_syphon,
        leaves_canaries=leave_canaries,
        limits={
            "failover_s": _optional("--max-failover", max_failover),
            "gap_s": _optional("--max-gap", max_gap),
            "recovery_s": _optional("--max-recovery", max_recovery),
            "drain_s": _optional("--max-drain", max_drain),
            "lost": max_lost,
        },
    )
    _check_report(report)
    plan = _plan(both(primary, secondary, config, credential), options, control)
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return
    raise typer.Exit(_drill(plan, folder, report, is_sure=yes, as_json=as_json))


# --- what is asked for ---


def _options(limits: dict[str, Any], **wishes: Any) -> DrillOptions:
    from twinbus.drill.limits import Limits
    from twinbus.drill.options import DrillOptions

    return DrillOptions(limits=Limits(**limits), **wishes)


def _optional(option: str, text: str | None) -> float | None:
    return None if text is None else length_s(option, text)


def _refuse_beside_undo(**others: object) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if given:
        raise OptionsError(f"--undo puts everything back that was left behind: leave {', '.join(given)} out")


def _check_report(report: Path | None) -> None:
    """Told before anything happens, not after."""
    if report is None:
        return
    if report.suffix not in REPORTS:
        raise OptionsError(f"--report ends in {' or '.join(REPORTS)}, got {report}")
    if report.is_dir() or not os.access(report if report.exists() else report.absolute().parent, os.W_OK):
        raise OptionsError(f"--report: {report} cannot be written")


def _plan(ends: tuple[Any, Any], options: DrillOptions, control: Path | None) -> Plan:
    from twinbus.drill.plan import make_plan

    logging.getLogger("twinbus").addHandler(logging.NullHandler())  # what happens is told here
    return asyncio.run(make_plan(*ends, options, control))


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        say(json_text({"dry_run": True, "way": plan.way, "plan": list(plan.announcement)}))
    else:
        say("\n".join([*plan.announcement, "Nothing was done."]))


# --- doing it ---


def _drill(plan: Plan, folder: Path, report: Path | None, *, is_sure: bool, as_json: bool) -> int:
    """The exit code."""
    from twinbus.drill.changes import NotPutBack

    _tell("\n".join(plan.announcement))
    if not is_sure and sys.stdin.isatty() and not _is_wanted():
        _tell("Nothing was done.")
        return ExitCode.INTERRUPTED
    try:
        outcome = asyncio.run(_run(plan, folder))
    except asyncio.CancelledError:
        _tell(f"{plan.target.path} is put back; canaries were not counted and expire")
        return ExitCode.INTERRUPTED
    except NotPutBack as error:
        _tell(f"twinbus: {error}")
        return ExitCode.NOT_ALL
    say(json_text(outcome.as_dict()) if as_json else _result_text(outcome))
    if report is not None:
        _write(report, outcome)
    if not outcome.is_put_back:
        return ExitCode.NOT_ALL
    return {"pass": ExitCode.DONE, "fail": ExitCode.FAILED, "interrupted": ExitCode.INTERRUPTED}[outcome.verdict]


def _is_wanted() -> bool:
    say("Go on? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _run(plan: Plan, folder: Path) -> Outcome:
    from twinbus.drill.changes import NotPutBack
    from twinbus.drill.drill import Drill

    exercise = Drill(plan, folder, _tell)
    task = asyncio.current_task()
    assert task is not None
    signals: list[int] = []

    def interrupt(number: int) -> None:
        """Once: end it in good order. Twice: put the entity back and go. More often: that is being done."""
        signals.append(number)
        if len(signals) == 1:
            _tell("stopping: the entity is put back, canaries are counted; once more to leave without counting")
            exercise.stop()
        elif len(signals) == 2:
            task.cancel()
        else:
            _tell("the entity is being put back")

    with on_signals({number: partial(interrupt, number) for number in (signal.SIGINT, signal.SIGTERM)}):
        try:
            return await exercise.run()
        except asyncio.CancelledError:
            if not exercise.is_put_back:
                text = f"the drill of {plan.target.path} is left: end it with: twinbus drill --undo"
                raise NotPutBack(text) from None
            raise


def _result_text(outcome: Outcome) -> str:
    from twinbus.cli import draw
    from twinbus.drill.report import headline, remarks, rows

    return "\n".join([headline(outcome), "", draw.table(rows(outcome)), "", *remarks(outcome)])


def _write(report: Path, outcome: Outcome) -> None:
    from twinbus.drill.report import page

    text = json_text(outcome.as_dict(), indent=2) + "\n" if report.suffix == ".json" else page(outcome)
    try:
        write_report(report, text)
    except OSError as error:
        raise TwinbusError(f"the drill is over, but {report} cannot be written: {error.strerror}") from None


def _tell(text: str) -> None:
    """On stderr, at once, if anybody is there: putting the entity back does not end because nobody listens."""
    with suppress(OSError):
        say(text, err=True)


# --- undoing ---


def _undo(folder: Path, choice: Choice | None, attempt_s: float, *, as_json: bool) -> int:
    """The exit code."""
    from twinbus.drill.undoing import undo_all

    found = asyncio.run(undo_all(folder, None if choice is None else reach(choice), attempt_s))
    if as_json:
        say(json_text({"undone": [each._asdict() for each in found]}))
    elif not found:
        say("nothing is left of any drill")
    else:
        say("\n".join(on_one_line(f"{each.entity}: {each.text}") for each in found))
    return ExitCode.DONE if all(each.is_done for each in found) else ExitCode.NOT_ALL
