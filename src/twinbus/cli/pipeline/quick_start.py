"""`twinbus pipeline quick-start`: reports on this machine start sooner from then on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from twinbus.cli.arguments.namespaces import AsJson
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, say
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import StoreError, TwinbusError
from twinbus.own_files import make_own_folder
from twinbus.units import megabytes

MAKING_S = 300
REPORT = """
from twinbus.cli.main import main
from twinbus.spark.jvm import end_jvm
try:
    main()
finally:
    end_jvm()
"""
"""The JVM writes the archive when it ends."""


def quick_start(as_json: AsJson = False) -> None:
    """Make reports on this machine start sooner.

    Writes an archive of Spark's classes, some 200 MB, to the cache folder of the user (XDG_CACHE_HOME, or ~/.cache).
    From then on the JVM of each report, watch and drain takes its classes from there. The first report does the same
    after it has ended; this command is for images, where nothing runs after a command. Run it again when Java or
    PySpark was updated; an archive that does not fit is not used. Deleting it is harmless.

    \b
    Examples:
      twinbus pipeline quick-start
    """
    from twinbus.spark.class_archive import archive_file
    from twinbus.spark.session import require_spark

    require_spark()
    with ProgressBar("making a small report"):
        try:
            file = archive_file()
            make_own_folder(file.parent)
            _make(file)
            size = file.stat().st_size
        except OSError as error:
            raise StoreError(f"no class archive can be written: {error}") from error
    if as_json:
        say(json_text({"file": str(file), "bytes": size}))
    else:
        say(f"{file}: {megabytes(size, 0)} MB; the next report starts sooner")


def _make(file: Path) -> None:
    from twinbus.spark.class_archive import has_space, keep_archive, options_to_make
    from twinbus.spark.jvm import JAVA_OPTIONS
    from twinbus.spark.session import QUICK_START

    if has_space(file):
        raise TwinbusError(f"Java can use no class archive below a folder with a space: {file}")
    with tempfile.TemporaryDirectory(prefix="quick-start-", dir=file.parent) as folder:
        draft, ledger = Path(folder, "draft.jsa"), Path(folder, "ledger")
        _write_ledger(ledger)
        options = f"{QUICK_START[JAVA_OPTIONS]} {options_to_make(draft)}"
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{options}' pyspark-shell"}
        command = [sys.executable, "-c", REPORT, "pipeline", "report", "--ledger", str(ledger)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=MAKING_S, check=False)  # noqa: S603 - our own command
        except subprocess.TimeoutExpired:
            raise TwinbusError(f"a small report took more than {MAKING_S} s") from None
        if done.returncode != ExitCode.DONE or not draft.exists():
            errors = done.stderr.decode(errors="replace").strip().splitlines()
            raise TwinbusError(f"Java wrote no class archive: {errors[-1] if errors else 'it does not say why'}")
        keep_archive(draft, file)


def _write_ledger(folder: Path) -> None:
    """A message that took the detour, and one that did not."""
    from twinbus.ledger import Event, Kind, Ledger

    queue = "contoso/x-servicebus-transfer/0"
    with Ledger.at(folder, "shop") as ledger:
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
