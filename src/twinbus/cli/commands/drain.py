"""`twinbus pipeline drain`: bring a large backlog home as a Spark job."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.completion import one_of
from twinbus.cli.draining import JsonLines, Lines, Stop, Terminated, interrupted, tell
from twinbus.cli.entity_list import Entities, EntitiesFile, listed_entities
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.lengths import length_s
from twinbus.cli.namespaces import (
    CONFIG_FILE,
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    check_count,
    choose,
    name_of,
    needs_identity,
    reach,
    seconds,
)
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from twinbus.spark.access import Access
    from twinbus.spark.drain.drain import DrainProgress
    from twinbus.spark.drain.options import DrainOptions

ENDED_EARLY = "not all is home, or nobody can tell; the result says why"
EVERY_S = (1, 86_400)
LOOK_S = 0.5
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="A Spark master. Default: Spark inside this process, local[*,4].")
]
Archive = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Executors get twinbus from this file, made with twinbus pipeline pack."),
]
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
_PLAIN_LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)\])?")


def drain(
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            autocompletion=one_of(lambda: ("session",)),
            help="session: messages of a session come home in the order sent.  [default: any]",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How often, e.g. 30s: go on for ever, with a drain each time.  [default: once]"
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
    entity: Entities = None,
    entities_file: EntitiesFile = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The ledger in which everything is recorded; on a cluster, where all machines see it."
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many tasks.  [default: one a core]")
    ] = None,
    patience: Annotated[
        str, typer.Option(metavar="TIME", help="How long a task goes on though nothing moves any more.")
    ] = "2m",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --every: where Spark counts its ticks.  [default: nowhere]")
    ] = None,
    primary_secret: Annotated[
        str | None,
        typer.Option(metavar="REF", help="Where executors find the primary's string: env:NAME, file:PATH."),
    ] = None,
    secondary_secret: Annotated[str | None, typer.Option(metavar="REF", help="The same for the secondary.")] = None,
    master: Master = None,
    archive: Archive = None,
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

    Executors look up connection strings themselves, in TWINBUS_PRIMARY and TWINBUS_SECONDARY of their own environment
    unless told otherwise: no plan, log or page of Spark has a key in it. With --credential each of them asks Entra ID
    for its own tokens, as the identity that it has where it runs.

    \b
    Examples:
      twinbus pipeline drain
      twinbus pipeline drain --order session --ledger ./ledger
      twinbus pipeline drain --every 30s --json
      twinbus pipeline drain --master spark://host:7077 --primary-secret env:BUS
      twinbus pipeline drain --master spark://host:7077 --archive twinbus.tar.gz
      twinbus pipeline drain --credential managed-identity --config hosts.toml
    """
    check_master(master)
    every_s = None if every is None else _every_s(every)
    if checkpoint is not None and every_s is None:
        raise OptionsError("--checkpoint says nothing without --every: a single drain has no ticks to count")
    options = _options(
        primary=(primary, primary_secret),
        secondary=(secondary, secondary_secret),
        config=config,
        credential=credential,
        primary_name=primary_name,
        queue_count=check_count(count),
        order=order,
        ttl=ttl,
        entities=listed_entities(entity, entities_file),
        ledger=None if ledger is None else str(ledger.absolute()),
        tasks=tasks,
        patience_s=length_s("--patience", patience),
        attempt_s=seconds("--timeout", timeout),
        is_local=is_local(master),
    )
    from twinbus.spark.archive import settings_for
    from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

    settings = FOR_LITTLE_DATA | ({} if archive is None else settings_for(archive))  # no message meets the JVM
    with Bar("starting Spark") as bar:
        spark = ensure_session(patient(master), settings=settings, tell=bar.say)
    screen = JsonLines() if as_json else Lines()
    try:
        code = _once(spark, options, screen) if every_s is None else _again(spark, options, every_s, checkpoint, screen)
    finally:
        screen.close()
    raise typer.Exit(code)


def _every_s(text: str) -> float:
    value = length_s("--every", text)
    if not EVERY_S[0] <= value <= EVERY_S[1]:
        raise OptionsError(f"--every must be from 1s to 24h, got {text}")
    return value


# --- whom it is about ---


def _options(
    *,
    primary: tuple[str | None, str | None],
    secondary: tuple[str | None, str | None],
    config: Path | None,
    credential: str | None,
    primary_name: str | None,
    is_local: bool,
    **wishes: Any,
) -> DrainOptions:
    from twinbus.spark.drain.options import DrainOptions

    given = {"primary": primary, "secondary": secondary}
    found = {side: _access(side, *given[side], config, credential, is_local=is_local) for side in given}
    missing = [side for side, access in found.items() if access is None]
    if missing:
        sides = " and ".join(f"--{side} (or TWINBUS_{side.upper()}, or --{side}-secret)" for side in missing)
        raise OptionsError(f"which namespaces? give {sides}, or a {CONFIG_FILE} with [primary] and [secondary]")
    accesses = {side: access for side, access in found.items() if access is not None}
    if credential is not None and not any(access.is_identity for access in accesses.values()):
        raise OptionsError("--credential takes the place of a key, and both sides have one: give host names instead")
    name = primary_name or name_of(accesses["primary"].namespace(), None)
    wishes |= accesses
    return DrainOptions(primary_name=name, **wishes)


def _access(
    side: str,
    string: str | None,
    secret: str | None,
    config: Path | None,
    credential: str | None,
    *,
    is_local: bool,
) -> Access | None:
    """How executors, and the driver, find a connection string, or who they are; None: nobody said.

    Executors inside this process are its children and share its environment. With Entra ID they are told the name of
    the credential, and each asks for its own tokens.
    """
    from twinbus.spark.access import Access

    if secret is not None:
        return Access(secret)
    variable = f"TWINBUS_{side.upper()}"
    found = choose(side, string, config, credential)
    if found is None:
        return None
    reach(found)  # what is wrong with it is told with the name of its origin
    if needs_identity(found):
        return Access.by_identity(found.text, found.credential)
    if not is_local and found.origin != variable:
        raise OptionsError(
            f"executors elsewhere do not see {found.origin}: set {variable} in their environment and here, or say "
            f"where they find the string with --{side}-secret env:NAME or file:PATH"
        )
    os.environ[variable] = found.text
    return Access(f"env:{variable}")


def is_local(master: str | None) -> bool:
    """Whether executors are children of this process. Under spark-submit, Spark was there first."""
    return "PYSPARK_GATEWAY_PORT" not in os.environ and (master is None or master.startswith("local"))


def check_master(master: str | None) -> None:
    """Raises `OptionsError` for what no Spark understands: it would say so in a stack trace, after some seconds."""
    if master is not None and _MASTER.fullmatch(master) is None:
        raise OptionsError(f"--master is local[N], spark://HOST:PORT, yarn or k8s://URL, got {master!r}")


def patient(master: str | None) -> str | None:
    """The master, with four attempts a task: a plain `local[2]` would give up at the first that is killed."""
    found = None if master is None else _PLAIN_LOCAL.fullmatch(master)
    return master if found is None else f"local[{found['cores'] or 1},4]"


# --- running and showing ---


def _once(spark: SparkSession, options: DrainOptions, screen: Lines | JsonLines) -> int:
    from twinbus.spark.drain.drain import drain as drain_all
    from twinbus.syphon.order_check import order_refused

    signal.signal(signal.SIGTERM, interrupted)
    try:
        done = drain_all(spark, options, on_progress=screen.show)
    except Terminated:
        screen.close()
        tell("stopped; what is left stays in the backlog")
        return ExitCode.NOT_ALL
    screen.finish(done)
    if done.order_problem:
        raise order_refused(done.order_problem)
    is_all_home = done.ending in ("empty", "chosen") and not done.quarantined
    return ExitCode.DONE if is_all_home else ExitCode.NOT_ALL


def _again(
    spark: SparkSession, options: DrainOptions, every_s: float, checkpoint: Path | None, screen: Lines | JsonLines
) -> int:
    from twinbus.spark.drain.clock import drain_every

    stop = Stop()

    def show(progress: DrainProgress) -> None:
        stop.check()
        screen.show(progress)

    def trouble(error: TwinbusError) -> None:
        if not stop.is_wished:
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
            if not stop.is_wished:  # else the JVM has had the same signal, and is gone
                raise
    tell("interrupted" if stop.code else "stopped; what is left stays in the backlog")
    return stop.code


def _watch(query: StreamingQuery, stop: Stop) -> None:
    """Returns when it is wished, and the query has ended. Raises `TwinbusError` if it ended by itself."""
    from twinbus.spark.failures import spark_gives_up_in_a_line

    with spark_gives_up_in_a_line():
        while query.isActive and not stop.wait(LOOK_S):
            pass
        error = query.exception()
        query.stop()
    if error is not None:
        raise TwinbusError(f"the stream ended: {str(error).splitlines()[0][:300]}")
