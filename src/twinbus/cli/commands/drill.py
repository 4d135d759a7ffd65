"""`twinbus drill`: an outage on purpose, measured against limits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from twinbus.cli.arguments.common_options import Timeout, timeout_s
from twinbus.cli.arguments.completion import named_in, one_of
from twinbus.cli.arguments.namespaces import NamespaceChoice, reach
from twinbus.cli.arguments.option_groups import ArgumentGroup, PairArguments, PreparedBacklogArguments, option
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import confirm, json_text, say, table
from twinbus.cli.signals import on_signals
from twinbus.errors import OptionsError, TwinbusError
from twinbus.own_files import write_report
from twinbus.plain_text import on_one_line
from twinbus.units import parse_seconds

if TYPE_CHECKING:
    from twinbus.drill.measures import Limits
    from twinbus.drill.options import DrillOptions
    from twinbus.drill.plan import DrillPlan
    from twinbus.drill.report import DrillResult

REPORTS = (".json", ".md")
NOT_PUT_BACK = "something is still as the drill made it: twinbus drill --undo"


@dataclass(frozen=True, kw_only=True)
class FaultArguments(ArgumentGroup):
    panel: ClassVar[str] = "Fault"
    entity: str | None = option(None, "NAME", "A queue or topic of the primary: the one that is to fail.")
    fault: str = option(
        "no-send",
        "FAULT",
        "no-send, unreachable or unanswered; by status only no-send.",
        autocompletion=named_in("drill.options", "FAULTS"),
    )
    how: str | None = option(
        None,
        "HOW",
        "unreachable: refuse, drop or silent.  [default: refuse]",
        autocompletion=one_of("refuse", "drop", "silent"),
    )
    length: str | None = option(
        None, "TIME", "How long it fails: 1s to 1h.  [default: 30s more than --failover-interval]"
    )
    by_status: bool = option(
        False,
        None,
        "Set the entity to SendDisabled and back.  [default: a fault where the primary has a control socket "
        "on this machine, else this]",
        "--by-status",
    )
    control: Path | None = option(
        None, "PATH", "The control socket of the primary.  [default: found beside its certificates]"
    )


@dataclass(frozen=True, kw_only=True)
class LimitArguments(ArgumentGroup):
    panel: ClassVar[str] = "Limits"
    max_failover: str | None = option(None, "TIME", "Limit: from the first send that fails to the backlog.")
    max_gap: str | None = option(None, "TIME", "Limit: the longest time without an accepted send.")
    max_recovery: str | None = option(None, "TIME", "Limit: from the end of the fault to a send on the primary.")
    max_drain: str | None = option(None, "TIME", "Limit: from the end of the fault until all canaries are home.")
    max_lost: int = option(0, "N", "Limit: accepted canaries that are nowhere.")

    def limits(self) -> Limits:
        from twinbus.drill.measures import Limits

        return Limits(
            failover_s=_optional_s(self.max_failover, "--max-failover"),
            gap_s=_optional_s(self.max_gap, "--max-gap"),
            recovery_s=_optional_s(self.max_recovery, "--max-recovery"),
            drain_s=_optional_s(self.max_drain, "--max-drain"),
            lost=self.max_lost,
        )


@dataclass(frozen=True, kw_only=True)
class ApplicationArguments(ArgumentGroup):
    panel: ClassVar[str] = "As in the application"
    failover_interval: str = option(
        "1m", "TIME", "How long failures are accepted before the backlog is used; as in the application."
    )
    ping_interval: str = option("1m", "TIME", "As in the application: how often the primary is pinged.")
    attempts: int = option(3, "N", "As in the application: attempts a send.")
    timeout: Timeout = "5s"


@dataclass(frozen=True, kw_only=True)
class CanaryArguments(ArgumentGroup):
    panel: ClassVar[str] = "Canaries"
    rate: float = option(10, "N", "Messages a second, as canaries: 0.1 to 100.")
    ttl: str | None = option(None, "TIME", "How long canaries live.  [default: 10m more than --length]")
    warm_up: str = option("2s", "TIME", "How long canaries precede the fault.", "--warm-up", "--before", hidden=True)
    no_syphon: bool = option(False, None, "Wait for the syphon that you run, instead of running one.", "--no-syphon")
    leave_canaries: bool = option(False, None, "Do not remove canaries at the end: they expire.", "--leave-canaries")


@dataclass(frozen=True, kw_only=True)
class DrillBacklogArguments(PreparedBacklogArguments):
    """Checked when a drill is planned: --undo ignores them."""

    def __post_init__(self) -> None: ...

    def queue_count(self) -> int:
        """Raises `OptionsError` if it is out of range."""
        super().__post_init__()
        return self.queues


def drill(
    fault: FaultArguments,
    namespaces: PairArguments,
    limits: LimitArguments,
    application: ApplicationArguments,
    backlog: DrillBacklogArguments,
    canaries: CanaryArguments,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Put back what killed drills have left changed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where a drill records what it has changed, for --undo.  [default: ~/.local/state/twinbus/drills]",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the report goes: NAME.json or NAME.md.  [default: nowhere]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON on stdout; progress goes to stderr.")
    ] = False,
) -> None:
    """Make an entity fail for a while, send canaries through it, and measure how the pair copes.

    It says what will happen, asks, makes the entity fail, and puts it back whatever becomes of the drill: Ctrl-C and
    SIGTERM end it cleanly, and what a killed one has left is put back by --undo. Canaries have the application property
    twinbus-drill: let consumers skip them. It says how many of them it leaves in the queue, and when they expire.
    The intervals are those of an application that sets none: give yours, they decide most of the numbers.

    Exit code 1 also if a limit is missed, if sends never went to the backlog or never came back, or if a canary is
    lost.

    \b
    Examples:
      twinbus drill --entity orders --dry-run
      twinbus drill --entity orders --failover-interval 0s --max-failover 3s
      twinbus drill --entity orders --by-status --yes --json --report drill.md
      twinbus drill --entity orders --fault unreachable --how silent --length 1m
      twinbus drill --undo
    """
    from twinbus.drill.plan import make_plan
    from twinbus.drill.undo import default_folder

    folder = notes or default_folder()
    if undo:
        others = {"--entity": fault.entity, "--dry-run": dry_run, "--report": report}
        if given := [name for name, value in others.items() if value]:
            raise OptionsError(f"--undo puts everything back that was left behind: leave {', '.join(given)} out")
        raise typer.Exit(_undo(folder, namespaces.choose("primary"), timeout_s(application.timeout), as_json=as_json))
    options = _options(fault, limits, application, backlog, canaries)
    _check_report(report)
    here, there = namespaces.both()
    logging.getLogger("twinbus").addHandler(logging.NullHandler())  # its events are shown here
    plan = asyncio.run(make_plan(here, there, options, fault.control))
    if dry_run:
        if as_json:
            say(json_text({"dry_run": True, "way": plan.way, "plan": list(plan.announcement)}))
        else:
            say("\n".join([*plan.announcement, "Nothing was done."]))
        return
    raise typer.Exit(_drill(plan, folder, report, is_sure=yes, as_json=as_json))


# --- options ---


def _options(
    fault: FaultArguments,
    limits: LimitArguments,
    application: ApplicationArguments,
    backlog: DrillBacklogArguments,
    canaries: CanaryArguments,
) -> DrillOptions:
    from twinbus.drill.options import DrillOptions

    if fault.entity is None:
        raise OptionsError("which entity? give --entity NAME, a queue or topic of the primary")
    if fault.by_status and fault.control is not None:
        raise OptionsError("--by-status and --control are two ways to do it: give one of them")
    return DrillOptions(
        entity=fault.entity,
        fault=fault.fault,
        how=fault.how,
        length_s=_optional_s(fault.length, "--length"),
        before_s=parse_seconds(canaries.warm_up, "--warm-up"),
        rate=canaries.rate,
        ttl_s=_optional_s(canaries.ttl, "--ttl"),
        failover_interval_s=parse_seconds(application.failover_interval, "--failover-interval"),
        ping_interval_s=parse_seconds(application.ping_interval, "--ping-interval"),
        attempts=application.attempts,
        timeout_s=timeout_s(application.timeout),
        queue_count=backlog.queue_count(),
        primary_name=backlog.primary_name,
        creates=not backlog.no_create,
        by_status=fault.by_status,
        brings_home=not canaries.no_syphon,
        leaves_canaries=canaries.leave_canaries,
        limits=limits.limits(),
    )


def _optional_s(text: str | None, option: str) -> float | None:
    return None if text is None else parse_seconds(text, option)


def _check_report(report: Path | None) -> None:
    """Told before anything happens, not after."""
    if report is None:
        return
    if report.suffix not in REPORTS:
        raise OptionsError(f"--report ends in {' or '.join(REPORTS)}, got {report}")
    if report.is_dir() or not os.access(report if report.exists() else report.absolute().parent, os.W_OK):
        raise OptionsError(f"--report: {report} cannot be written")


# --- doing it ---


def _drill(plan: DrillPlan, folder: Path, report: Path | None, *, is_sure: bool, as_json: bool) -> int:
    """The exit code."""
    from twinbus.drill.changes import NotPutBack
    from twinbus.drill.report import headline, remarks, rows

    _report_line("\n".join(plan.announcement))
    if not is_sure and sys.stdin.isatty() and not confirm("Go on?"):
        _report_line("Nothing was done.")
        return ExitCode.INTERRUPTED
    try:
        outcome = asyncio.run(_run(plan, folder))
    except asyncio.CancelledError:
        _report_line(f"{plan.target.path} is put back; canaries were not counted and expire")
        return ExitCode.INTERRUPTED
    except NotPutBack as error:
        _report_line(f"twinbus: {error}")
        return ExitCode.NOT_ALL
    lines = [headline(outcome), "", table(rows(outcome)), "", *remarks(outcome)]
    say(json_text(outcome.as_dict()) if as_json else "\n".join(lines))
    if report is not None:
        _write(report, outcome)
    if not outcome.is_put_back:
        return ExitCode.NOT_ALL
    return {"pass": ExitCode.DONE, "fail": ExitCode.FAILED, "interrupted": ExitCode.INTERRUPTED}[outcome.verdict]


async def _run(plan: DrillPlan, folder: Path) -> DrillResult:
    from twinbus.drill.changes import NotPutBack
    from twinbus.drill.drill import Drill

    exercise = Drill(plan, folder, _report_line)
    task = asyncio.current_task()
    assert task is not None
    signals: list[int] = []

    def interrupt(number: int) -> None:
        """Once: end it in good order. Twice: put the entity back and go. More often: that is being done."""
        signals.append(number)
        if len(signals) == 1:
            _report_line("stopping: the entity is put back, canaries are counted; once more to leave without counting")
            exercise.stop()
        elif len(signals) == 2:
            task.cancel()
        else:
            _report_line("the entity is being put back")

    with on_signals({number: partial(interrupt, number) for number in (signal.SIGINT, signal.SIGTERM)}):
        try:
            return await exercise.run()
        except asyncio.CancelledError:
            if not exercise.is_put_back:
                text = f"the drill of {plan.target.path} is left: end it with: twinbus drill --undo"
                raise NotPutBack(text) from None
            raise


def _write(report: Path, outcome: DrillResult) -> None:
    from twinbus.drill.report import page

    text = json_text(outcome.as_dict(), indent=2) + "\n" if report.suffix == ".json" else page(outcome)
    try:
        write_report(report, text)
    except OSError as error:
        raise TwinbusError(f"the drill is over, but {report} cannot be written: {error.strerror}") from None


def _report_line(text: str) -> None:
    """On stderr, at once, if anybody is there: putting the entity back does not end because nobody listens."""
    with suppress(OSError):
        say(text, err=True)


# --- undoing ---


def _undo(folder: Path, choice: NamespaceChoice | None, attempt_s: float, *, as_json: bool) -> int:
    """The exit code."""
    from twinbus.drill.undo import undo_all

    found = asyncio.run(undo_all(folder, None if choice is None else reach(choice), attempt_s))
    if as_json:
        say(json_text({"undone": [each._asdict() for each in found]}))
    elif not found:
        say("nothing is left of any drill")
    else:
        say("\n".join(on_one_line(f"{each.entity}: {each.text}") for each in found))
    return ExitCode.DONE if all(each.is_done for each in found) else ExitCode.NOT_ALL
