"""A class archive: the classes of Spark as the JVM has them after loading, so the next JVM starts sooner.

There is one for a machine, its Java and its PySpark. `twinbus pipeline quick-start` makes it, and so does the first
command that starts a JVM on this machine: in a process of its own, after its end. Not in its own JVM: one that is to
write an archive takes twice as long to load classes. A JVM that the archive does not fit, e.g. since Java was updated,
ignores it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from twinbus.errors import StoreError
from twinbus.own_files import check_folder, make_own_folder, open_lock, try_lock
from twinbus.spark.jvm import JAVA_OPTIONS
from twinbus.spark.user_settings import conf_folder, spark_home, user_settings

NEVER_VARIABLE = "TWINBUS_NO_CLASS_ARCHIVE"
"""If it is set, an archive is made by `twinbus pipeline quick-start` only; one that is there is used."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Else a JVM that cannot use the archive says so on its standard output, where the result of a command is."""
DIGEST_LENGTH = 16
FREE_BYTES_MIN = 1 << 30
ATTEMPTS_MAX = 3
"""Where everything is killed with the command, e.g. in a container that ends with it, no archive gets complete."""
UNUSED_S = 30 * 86_400
"""How long an archive stays that another Java or PySpark made: both may be in use."""
DRAFT_S = 3_600
"""What is older than this in a maker's folder is of one that was killed."""
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def archive_file() -> Path:
    """Where the archive for this Java and this PySpark is kept. Raises `OSError` if there is no Java."""
    java = _java()
    facts = java.stat()
    class_path = (str(conf_folder()), str(spark_home()))
    of = (str(java), facts.st_size, facts.st_mtime_ns, version("pyspark"), class_path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "twinbus" / f"spark-{sha256(repr(of).encode()).hexdigest()[:DIGEST_LENGTH]}.jsa"


def options_to_use() -> str:
    """Java options with which a JVM starts from the archive; none without one, or if others may have made it."""
    try:
        file = archive_file()
        if not file.is_file() or has_space(file):
            return ""
        check_folder(file.parent, must_be_ours=True)
    except (OSError, StoreError, RuntimeError):  # there may be no home folder
        return ""
    with suppress(OSError):
        os.utime(file)  # it is in use
    return f"-XX:SharedArchiveFile={file} {QUIET}"


def options_to_make(draft: Path) -> str:
    """Java options with which a JVM writes the archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={draft} {QUIET}"


def may_be_made() -> bool:
    """Whether there is no archive, and one may be made without being asked for.

    Not with Java options of the user: another JVM with them could take the port of a debugger, and its archive might
    not fit.
    """
    if any(os.environ.get(name) for name in (NEVER_VARIABLE, *JAVA_VARIABLES)):
        return False
    try:
        file = archive_file()
        folder, lock = file.parent, _lock_of(file)
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        check_folder(nearest, must_be_ours=True)
        return not (
            file.exists()
            or has_space(file)
            or not os.access(nearest, os.W_OK)
            or shutil.disk_usage(nearest).free < FREE_BYTES_MIN
            or (lock.exists() and lock.stat().st_size >= ATTEMPTS_MAX)
            or JAVA_OPTIONS in user_settings(conf_folder())  # ours, which name the archive, do not count then
            or not _can_make_archives()
        )
    except (OSError, StoreError, RuntimeError):
        return False


@contextmanager
def maker_lock(file: Path) -> Iterator[TextIO | None]:
    """Makes its folder, and lets one process at a time make an archive: None if another one does. Raises `OSError`."""
    make_own_folder(file.parent)
    with open_lock(_lock_of(file)) as lock:
        yield lock if try_lock(lock.fileno()) else None


def count_attempt(lock: TextIO) -> None:
    """As a letter in the file that is locked; `may_be_made` looks at its size."""
    os.pwrite(lock.fileno(), b"x", os.fstat(lock.fileno()).st_size)


def forget_attempts(lock: TextIO) -> None:
    """One was complete: should the archive be deleted, it is made again."""
    os.ftruncate(lock.fileno(), 0)


def keep_archive(draft: Path, file: Path) -> None:
    """Put a complete draft into its place; JVMs that have another one open keep that. Raises `OSError`."""
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    draft.replace(file)


def has_space(file: Path) -> bool:
    """Spark splits Java options at spaces."""
    return any(letter.isspace() for letter in str(file))


def remove_unused(file: Path) -> None:
    """Archives that no JVM was started from for long, and what was left by makers that were killed."""
    now_s = time.time()
    for each in file.parent.glob("spark-*"):
        with suppress(OSError):
            age_s = now_s - each.stat().st_mtime
            if each.is_dir() and age_s > DRAFT_S:
                shutil.rmtree(each)
            elif each.is_file() and each.stem != file.stem and age_s > UNUSED_S:
                each.unlink()


def _lock_of(file: Path) -> Path:
    return file.with_suffix(".lock")


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere/java")
    return found.resolve(strict=True)


def _can_make_archives() -> bool:
    """Whether this Java has the archive of its own classes that every other one is made upon, and Spark has no folder
    with settings: Java makes no archive if a folder in its class path has files.
    """
    settings = conf_folder()
    has_settings = settings.is_dir() and any(settings.iterdir())
    return (_java().parents[1] / "lib" / "server" / "classes.jsa").is_file() and not has_settings
