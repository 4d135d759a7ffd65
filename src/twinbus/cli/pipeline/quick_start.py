"""`twinbus pipeline quick-start`: reports on this machine start sooner from then on."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, say
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import StoreError, TwinbusError
from twinbus.units import megabytes

MAKING_S = 300
NICENESS = 19
MAKER = f"from {__name__} import make_unasked; make_unasked()"
REPORT = """
from twinbus.cli.main import main
from twinbus.spark.jvm import end_jvm
try:
    main()
finally:
    end_jvm()
"""
"""The JVM writes the archive when it ends."""
KEPT_VARIABLES = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"),
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"),
)
"""What Python and Java need to start. The connection strings and cloud keys of the user are no business of a maker, and
nobody expects it to ship a ledger."""


def quick_start(as_json: AsJson = False) -> None:
    """Make reports on this machine start sooner.

    Writes an archive of Spark's classes, some 200 MB, to the cache folder of the user (XDG_CACHE_HOME, or ~/.cache).
    From then on the JVM of each report, watch and drain takes its classes from there. The first such command makes
    the archive, too, after its end; this one is for images, where nothing goes on then. Run it again when Java or
    PySpark was updated; an archive that does not fit is not used. Deleting it is harmless.

    \b
    Examples:
      twinbus pipeline quick-start
    """
    from twinbus.spark.class_archive import archive_file, maker_lock
    from twinbus.spark.session import require_spark

    require_spark()
    with ProgressBar("making a small report"):
        try:
            file = archive_file()
            with maker_lock(file) as lock:
                if lock is None:
                    raise TwinbusError(f"another process makes {file} at this moment")
                _make(file, lock)
            size = file.stat().st_size
        except OSError as error:
            raise StoreError(f"no class archive can be written: {error}") from error
    if as_json:
        say(json_text({"file": str(file), "bytes": size}))
    else:
        say(f"{file}: {megabytes(size, 0)} MB; the next report starts sooner")


def make_after_this_command(note: Callable[[str], None]) -> None:
    """Make a class archive, if there is none, in a process that begins when this one ends; `note` gets a line then."""
    from twinbus.spark.class_archive import archive_file, may_be_made

    if may_be_made():
        note(f"the next Spark starts sooner: after this command, an archive of its classes is made ({archive_file()})")
        atexit.unregister(_start_maker)
        atexit.register(_start_maker)


def _start_maker() -> None:
    """It has a session of its own and no output: nothing that ends with this command ends it, and nobody waits."""
    nothing = subprocess.DEVNULL
    with suppress(OSError):
        subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-c", MAKER],
            env=_environment(),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )


def make_unasked() -> None:
    """Make the class archive with what time others leave, unless it is there or another process makes it."""
    from twinbus.spark.class_archive import archive_file, count_attempt, maker_lock, may_be_made

    os.nice(NICENESS)
    with maker_lock(file := archive_file()) as lock:
        if lock is not None and may_be_made():
            count_attempt(lock)
            _make(file, lock)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path if folder)}


def _make(file: Path, lock: TextIO) -> None:
    from twinbus.spark.class_archive import (
        forget_attempts,
        has_space,
        keep_archive,
        options_to_make,
        remove_unused,
    )
    from twinbus.spark.jvm import JAVA_OPTIONS
    from twinbus.spark.session import QUICK_START

    if has_space(file):
        raise TwinbusError(f"Java can use no class archive below a folder with a space: {file}")
    remove_unused(file)
    with tempfile.TemporaryDirectory(prefix="spark-quick-start-", dir=file.parent) as folder:
        draft, ledger = Path(folder, "draft.jsa"), Path(folder, "ledger")
        _write_ledger(ledger)
        options = f"{QUICK_START[JAVA_OPTIONS]} {options_to_make(draft)}"
        environment = _environment() | {"PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{options}' pyspark-shell"}
        command = [
            sys.executable,
            "-P",
            "-c",
            REPORT,
            "pipeline",
            "report",
            "--ledger",
            str(ledger),
            "--master",
            "local[2,4]",
        ]
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                command, env=environment, cwd=folder, capture_output=True, timeout=MAKING_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise TwinbusError(f"a small report took more than {MAKING_S} s") from None
        if done.returncode != ExitCode.DONE or not draft.exists():
            errors = done.stderr.decode(errors="replace").strip().splitlines()
            raise TwinbusError(f"Java wrote no class archive: {errors[-1] if errors else 'it does not say why'}")
        keep_archive(draft, file)
    forget_attempts(lock)


def _write_ledger(folder: Path) -> None:
    """A message that took the detour, and one that did not."""
    from twinbus.ledger import Event, Kind, Ledger, LedgerOptions

    queue = "contoso/x-servicebus-transfer/0"
    with Ledger(LedgerOptions(directory=folder, program="shop")) as ledger:
        for kind, where, name in (
            (Kind.ACCEPTED, "", "a"),
            (Kind.FAILED_OVER, "", ""),
            (Kind.BACKLOGGED, queue, "b"),
            (Kind.RECOVERED, "", ""),
            (Kind.RECEIVED_FROM_BACKLOG, queue, "b"),
            (Kind.SENT_HOME, "", "b"),
            (Kind.COMPLETED, queue, "b"),
            (Kind.DELIVERED, "", "b"),
            (Kind.DELIVERED, "", "a"),
        ):
            listed = (name,) if name else ()
            sizes = (100,) if name else ()
            ledger.record(Event(kind, "orders", "contoso", where, message_ids=listed, sizes=sizes, session_ids=listed))
