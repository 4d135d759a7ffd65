"""`twinbus pipeline drain`: bring a large backlog home as a Spark job."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from twinbus.cli.arguments.common_options import Timeout, timeout_s
from twinbus.cli.arguments.namespaces import CONFIG_FILE, needs_identity, reach
from twinbus.cli.arguments.option_groups import ArgumentGroup, BacklogArguments, LedgerArguments, PairArguments, option
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import note
from twinbus.cli.pipeline.drain_output import DrainJsonLines, DrainLines, DrainTerminated, StopSignal, raise_terminated
from twinbus.cli.pipeline.quick_start import make_after_this_command
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.syphon.syphon import SelectionArguments, SessionOrder, TtlMode
from twinbus.errors import OptionsError, TwinbusError
from twinbus.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from twinbus.spark.access import Access
    from twinbus.spark.drain.options import DrainOptions
    from twinbus.spark.drain.result import DrainProgress

EVERY_S = (1, 86_400)
LOOK_S = 0.5
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|sc)://.+")
_PLAIN_LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)\])?")


@dataclass(frozen=True, kw_only=True)
class DrainArguments(ArgumentGroup):
    panel: ClassVar[str] = "How"
    order: SessionOrder = None
    rate: float | None = option(None, "N", "Messages a second, at most, of all tasks together.")
    every: str | None = option(
        None, "TIME", "How often, e.g. 30s: go on for ever, with a drain each time.  [default: once]"
    )
    ttl_mode: TtlMode = "remaining"
    tasks: int | None = option(None, "N", "At most this many tasks.  [default: one a core]")
    patience: str = option("2m", "TIME", "How long a task goes on though nothing moves any more.")
    round_for: str = option(
        "30s", "TIME", "How long tasks go on at most, until executors, pauses and pace are looked at.", "--round"
    )
    spread: str = option("0ms", "TIME", "Tasks begin at a random moment within this time.")
    checkpoint: Path | None = option(None, "DIR", "With --every: where Spark counts its ticks.  [default: nowhere]")

    def every_s(self) -> float | None:
        if self.every is None:
            if self.checkpoint is not None:
                raise OptionsError("--checkpoint has no effect without --every: a single drain has no ticks to count")
            return None
        return every_s(self.every)


def every_s(text: str) -> float:
    """The seconds of `--every`. Raises `OptionsError`."""
    value = parse_seconds(text, "--every")
    if not EVERY_S[0] <= value <= EVERY_S[1]:
        raise OptionsError(f"--every must be from 1s to 24h, got {text}")
    return value


@dataclass(frozen=True, kw_only=True)
class SparkArguments(ArgumentGroup):
    """Where Spark is, and what its executors run."""

    panel: ClassVar[str | None] = None
    master: str | None = option(None, "URL", "A Spark master. Default: Spark inside this process, local[*,4].")
    archive: Path | None = option(
        None, "FILE", "Executors get twinbus from this file, made with twinbus pipeline pack."
    )

    def check_master(self) -> None:
        """Raises `OptionsError` for what no Spark understands: it would say so in a stack trace, after some seconds."""
        if self.master is not None and _MASTER.fullmatch(self.master) is None:
            known = "local[N], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT"
            raise OptionsError(f"--master is {known}, got {self.master!r}")

    @property
    def patient_master(self) -> str | None:
        """With four attempts a task: a plain `local[2]` would give up at the first that is killed."""
        local = None if self.master is None else _PLAIN_LOCAL.fullmatch(self.master)
        return self.master if local is None else f"local[{local['cores'] or 1},4]"

    def check(self) -> None:
        """Raises what is wrong with the options, or missing on this machine, before anything is read or written."""
        from twinbus.spark.archive import settings_for
        from twinbus.spark.session import remote_url, require_spark

        self.check_master()
        if self.archive is not None:
            self._refuse_archive_on_connect()
            settings_for(self.archive)
        require_spark(needs_java=remote_url(self.master) is None)

    def _refuse_archive_on_connect(self) -> None:
        from twinbus.spark.session import remote_url

        if remote_url(self.master) is not None:
            raise OptionsError("--archive does not work with Spark Connect: install twinbus where its executors run")

    @property
    def is_local(self) -> bool:
        """Whether Spark will be in this process, as far as that can be known before it starts."""
        from twinbus.spark.session import remote_url
        from twinbus.spark.user_settings import conf_folder, user_settings

        if "PYSPARK_GATEWAY_PORT" in os.environ or remote_url(self.master) is not None:
            return False  # spark-submit knows, or a server
        return (self.master or user_settings(conf_folder()).get("spark.master", "local")).startswith("local")

    def session(self, settings: dict[str, str], bar: ProgressBar) -> SparkSession:
        from twinbus.spark.archive import settings_for
        from twinbus.spark.session import ensure_session

        if self.archive is not None:
            self._refuse_archive_on_connect()
        of_archive = {} if self.archive is None else settings_for(self.archive)
        session = ensure_session(self.patient_master, settings=settings | of_archive, tell=bar.say)
        if self.is_local:
            make_after_this_command(bar.note)
        return session


@dataclass(frozen=True, kw_only=True)
class ExecutorArguments(SparkArguments):
    panel: ClassVar[str | None] = "Spark"
    primary_secret: str | None = option(None, "REF", "Where executors find the primary's string: env:NAME, file:PATH.")
    secondary_secret: str | None = option(None, "REF", "The same for the secondary.")


@dataclass(frozen=True, kw_only=True)
class DrainLedgerArguments(LedgerArguments):
    ledger: Path | None = option(
        None, "DIR", "The ledger in which everything is recorded; on a cluster, where all machines see it."
    )


def drain(
    how: DrainArguments,
    selection: SelectionArguments,
    namespaces: PairArguments,
    backlog: BacklogArguments,
    executors: ExecutorArguments,
    recording: DrainLedgerArguments,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Only say how many tasks would do what, and whether a syphon would do.")
    ] = False,
    timeout: Timeout = "15s",
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: progress every two seconds, and how it ended.")
    ] = False,
) -> None:
    """Bring the whole backlog home with as many processes as Spark has for it.

    As `twinbus syphon --until-empty`, for backlogs that are large: tasks are planned by the depth of the queues, and
    several share a deep one. Whatever is killed (a task, an executor, this process) loses nothing; what is repeated has
    the same id. It ends with 0 when a look at all backlog queues of the primary, those beyond --queues too, finds
    nothing to move, under lock or not, and nothing is in quarantine; with 3 if nothing moves any more, after SIGTERM,
    while messages are in quarantine, if it may not look everywhere, or if a backlog queue cannot be emptied. Messages
    for entities that --entity and --entities-file do not name stay in the backlog; the result says how many.

    --rate, --first, --before and --entity are those of `twinbus syphon`, for all tasks together: --rate 500 is 500 a
    second, however many tasks there are. On the machine of the driver `twinbus syphon pause`, `resume` and `pace` steer
    it; on a cluster that takes effect when the present tasks end, after --round at most.

    Executors look up connection strings themselves, in TWINBUS_PRIMARY and TWINBUS_SECONDARY of their own environment
    unless told otherwise: no plan, log or page of Spark has a key in it. With --credential each of them asks Entra ID
    for its own tokens, as the identity that it has where it runs.

    \b
    Examples:
      twinbus pipeline drain
      twinbus pipeline drain --order session --ledger ./ledger
      twinbus pipeline drain --every 30s --json
      twinbus pipeline drain --plan
      twinbus pipeline drain --rate 5000 --before 10m
      twinbus pipeline drain --master spark://host:7077 --primary-secret env:BUS
      twinbus pipeline drain --master spark://host:7077 --archive twinbus.tar.gz
      twinbus pipeline drain --credential managed-identity --config hosts.toml
    """
    executors.check()
    pause_s = how.every_s()
    if pause_s is not None and (selection.first is not None or only_plan):
        raise OptionsError(f"--every and {'--plan' if only_plan else '--first'} exclude each other")
    options = _options(
        namespaces,
        backlog,
        executors,
        order=how.order,
        ttl=how.ttl_mode,
        rate=how.rate,
        first=selection.first,
        entities=selection.listed(),
        enqueued_before=selection.cut_off(),
        spread_s=parse_seconds(how.spread, "--spread"),
        round_s=parse_seconds(how.round_for, "--round"),
        ledger=None if recording.ledger is None else str(recording.ledger.absolute()),
        ledger_ship_to=recording.ledger_ship_to,
        tasks=how.tasks,
        patience_s=parse_seconds(how.patience, "--patience"),
        attempt_s=timeout_s(timeout),
    )
    from twinbus.spark.session import FOR_LITTLE_DATA

    with ProgressBar("starting Spark") as bar:
        spark = executors.session(FOR_LITTLE_DATA, bar)  # no message meets the JVM
    screen = DrainJsonLines() if as_json else DrainLines()
    if only_plan:
        from twinbus.spark.drain.forecast import plan_drain

        screen.plan(plan_drain(spark, options))
        return
    try:
        code = (
            _once(spark, options, screen)
            if pause_s is None
            else _again(spark, options, pause_s, how.checkpoint, screen)
        )
    finally:
        screen.close()
    raise typer.Exit(code)


# --- namespaces ---


def _options(
    namespaces: PairArguments, backlog: BacklogArguments, executors: ExecutorArguments, **others: Any
) -> DrainOptions:
    from twinbus.spark.drain.options import DrainOptions

    given = {"primary": executors.primary_secret, "secondary": executors.secondary_secret}
    found = {side: _access(side, secret, namespaces, is_local=executors.is_local) for side, secret in given.items()}
    missing = [side for side, access in found.items() if access is None]
    if missing:
        sides = " and ".join(f"--{side} (or TWINBUS_{side.upper()}, or --{side}-secret)" for side in missing)
        raise OptionsError(f"which namespaces? give {sides}, or a {CONFIG_FILE} with [primary] and [secondary]")
    accesses = {side: access for side, access in found.items() if access is not None}
    if namespaces.credential is not None and not any(access.is_identity for access in accesses.values()):
        raise OptionsError("--credential takes the place of a key, and both sides have one: give host names instead")
    name = backlog.primary_name or backlog.name_of(accesses["primary"].namespace())
    others |= accesses
    try:
        return DrainOptions(primary_name=name, queue_count=backlog.queues, **others)
    except OptionsError as error:
        text = str(error).replace("first must", "--first must").replace("rate must", "--rate must")
        raise OptionsError(text) from None


def _access(side: str, secret: str | None, namespaces: PairArguments, *, is_local: bool) -> Access | None:
    """How executors, and the driver, find a connection string, or who they are; None: nobody said.

    Executors inside this process are its children and share its environment. With Entra ID they are told the name of
    the credential, and each asks for its own tokens.
    """
    from twinbus.spark.access import Access

    if secret is not None:
        return Access(secret)
    variable = f"TWINBUS_{side.upper()}"
    found = namespaces.choose(side)
    if found is None:
        return None
    reach(found)  # raises with the name of its origin
    if needs_identity(found):
        return Access.by_identity(found.text, found.credential)
    if not is_local and found.origin != variable:
        raise OptionsError(
            f"executors elsewhere do not see {found.origin}: set {variable} in their environment and here, or say "
            f"where they find the string with --{side}-secret env:NAME or file:PATH"
        )
    os.environ[variable] = found.text
    return Access(f"env:{variable}")


# --- running and showing ---


def _once(spark: SparkSession, options: DrainOptions, screen: DrainLines | DrainJsonLines) -> int:
    from twinbus.spark.drain.drain import drain as drain_all
    from twinbus.syphon.peeking.backlog_scan import order_error

    signal.signal(signal.SIGTERM, raise_terminated)
    try:
        done = drain_all(spark, options, on_progress=screen.show, on_first=screen.ask_for_others)
    except DrainTerminated:
        screen.close()
        note("stopped; what is left stays in the backlog")
        return ExitCode.NOT_ALL
    screen.finish(done)
    if done.order_problem:
        raise order_error(done.order_problem)
    is_all_home = done.ending in ("empty", "chosen") and not done.quarantined
    return ExitCode.DONE if is_all_home else ExitCode.NOT_ALL


def _again(
    spark: SparkSession,
    options: DrainOptions,
    every_s: float,
    checkpoint: Path | None,
    screen: DrainLines | DrainJsonLines,
) -> int:
    from twinbus.spark.drain.drain import drain_every

    stop = StopSignal()

    def show(progress: DrainProgress) -> None:
        stop.check()
        screen.show(progress)

    def trouble(error: TwinbusError) -> None:
        if not stop.is_requested:
            screen.trouble(f"tried again in {every_s:g} s: {error}")

    place: AbstractContextManager[str] = tempfile.TemporaryDirectory(prefix="twinbus-drain-")
    with nullcontext(str(checkpoint.absolute())) if checkpoint is not None else place as folder:
        query = drain_every(
            spark,
            options,
            every_s,
            folder,
            on_drained=lambda done: screen.finish(done) if done.found else None,
            on_trouble=trouble,
            on_progress=show,
        )
        try:
            _watch(query, stop)
        except TwinbusError:
            if not stop.is_requested:  # else the JVM has had the same signal, and is gone
                raise
    note("interrupted" if stop.code else "stopped; what is left stays in the backlog")
    return stop.code


def _watch(query: StreamingQuery, stop: StopSignal) -> None:
    """Returns when it is wished, and the query has ended. Raises `TwinbusError` if it ended by itself."""
    from twinbus.spark.failures import spark_errors

    with spark_errors():
        while query.isActive and not stop.wait(LOOK_S):
            pass
        error = query.exception()
        query.stop()
    if error is not None:
        raise TwinbusError(f"the stream ended: {str(error).splitlines()[0][:300]}")
