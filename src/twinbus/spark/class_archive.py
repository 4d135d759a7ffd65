"""A class archive: the classes of Spark as the JVM has them after loading, so the next JVM starts sooner.

There is one for a machine, its Java and its PySpark. The JVM of the first report writes it when it ends, after the
command has ended; `twinbus pipeline quick-start` makes it and waits. A JVM that it does not fit, e.g. since Java was
updated, ignores it.

A JVM writes to a draft, with a lock on a file beside it that the kernel takes back when that JVM ends, however it ends.
So whoever gets the lock knows that nobody writes, and only then looks whether the draft is complete.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TextIO

from twinbus.errors import StoreError
from twinbus.ledger.writing.liveness import booted_ms
from twinbus.own_files import check_folder, make_own_folder, open_lock, try_lock
from twinbus.spark.user_settings import conf_folder, spark_home

NEVER_VARIABLE = "TWINBUS_NO_CLASS_ARCHIVE"
"""If it is set, no report makes an archive; one that is there is used."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Else a JVM that cannot use the archive says so on its standard output, where the result of a command is."""
DIGEST_LENGTH = 16
FREE_BYTES_MIN = 1 << 30
ATTEMPTS_MAX = 3
"""Where every JVM is killed with its command, e.g. in a container that ends with it, none gets to write its archive."""
UNUSED_S = 30 * 86_400
"""How long an archive stays that another Java or PySpark made: both may be in use."""
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
ARCHIVE_OPTIONS = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
_HEADER_LENGTH = 4


class ArchiveDraft(NamedTuple):
    """What a JVM needs that is to write the archive when it ends."""

    file: Path
    """What the archive will be."""
    options: str
    lock: TextIO
    """To be open in the JVM, and nowhere else."""


def archive_file() -> Path:
    """Where the archive for this Java and this PySpark is kept. Raises `OSError` if there is no Java."""
    java = _java().resolve(strict=True)
    facts = java.stat()
    class_path = (str(conf_folder()), str(spark_home()))
    of = (str(java), facts.st_size, facts.st_mtime_ns, version("pyspark"), class_path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "twinbus" / f"spark-{sha256(repr(of).encode()).hexdigest()[:DIGEST_LENGTH]}.jsa"


def options_to_use() -> str:
    """Java options with which a JVM starts from the archive; none without one, or if others may have made it."""
    try:
        file = archive_file()
        if has_space(file) or not (file.is_file() or _draft_of(file).is_file()):
            return ""
        check_folder(file.parent, must_be_ours=True)
        if not file.is_file() and not _keep_complete_draft(file):
            return ""
        os.utime(file)  # it is in use
    except (OSError, StoreError):
        return ""
    return f"-XX:SharedArchiveFile={file} {QUIET}"


def begin_draft() -> ArchiveDraft | None:
    """For a JVM that is to write the archive when it ends; None if it cannot, need not or must not."""
    if os.environ.get(NEVER_VARIABLE) or _has_archive_options(os.environ):
        return None
    try:
        file = archive_file()
        if has_space(file) or not _can_make_archives() or _has_files(conf_folder()):
            return None
        nearest = next(each for each in (file.parent, *file.parents) if each.exists())
        check_folder(nearest, must_be_ours=True)
        make_own_folder(file.parent)
        if shutil.disk_usage(file.parent).free < FREE_BYTES_MIN:
            return None
        lock = open_lock(_lock_of(file))
    except (OSError, StoreError):
        return None
    try:
        if try_lock(lock.fileno()) and not file.exists() and _has_attempt_left(lock):
            draft = _draft_of(file)
            draft.unlink(missing_ok=True)
            return ArchiveDraft(file, options_to_make(draft), lock)
    except OSError:
        pass
    lock.close()
    return None


def options_to_make(draft: Path) -> str:
    """Java options with which a JVM writes the archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={draft} {QUIET}"


def keep_archive(draft: Path, file: Path) -> None:
    """Put a complete draft into its place; JVMs that have another one open keep that. Raises `OSError`."""
    written = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(written)
    finally:
        os.close(written)
    draft.replace(file)
    _remove_unused(file)


def has_space(file: Path) -> bool:
    """Spark splits Java options at spaces."""
    return any(letter.isspace() for letter in str(file))


def _keep_complete_draft(file: Path) -> bool:
    """Whether a JVM has written the archive, and it is in its place now."""
    with open_lock(_lock_of(file)) as lock:
        if not try_lock(lock.fileno()):
            return False
        draft = _draft_of(file)
        if not file.is_file() and _is_complete(draft):
            keep_archive(draft, file)
    return file.is_file()


def _is_complete(draft: Path) -> bool:
    """Whether the JVM got to the end: it writes the head of the file last.

    What was written before the machine was started is not trusted: its blocks may not have reached the disk.
    """
    if draft.stat().st_mtime * 1000 < booted_ms():
        return False
    with draft.open("rb") as file:
        return any(file.read(_HEADER_LENGTH))


def _has_attempt_left(lock: TextIO) -> bool:
    """Count this attempt, as letters in the file that is locked."""
    attempts = os.fstat(lock.fileno()).st_size
    if attempts < ATTEMPTS_MAX:
        os.pwrite(lock.fileno(), b"x", attempts)
    return attempts < ATTEMPTS_MAX


def _remove_unused(file: Path) -> None:
    """Archives that no JVM was started from for long, and what belongs to them."""
    before_s = time.time() - UNUSED_S
    for each in file.parent.glob("spark-*"):
        with suppress(OSError):
            if each.stem != file.stem and each.stat().st_mtime < before_s:
                each.unlink()


def _draft_of(file: Path) -> Path:
    return file.with_suffix(".draft")


def _lock_of(file: Path) -> Path:
    return file.with_suffix(".lock")


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere/java")


def _can_make_archives() -> bool:
    """Whether this Java has the archive of its own classes that every other one is made upon."""
    return (_java().resolve().parents[1] / "lib" / "server" / "classes.jsa").is_file()


def _has_files(folder: Path) -> bool:
    """Java makes no archive if a folder of its class path has files; that of Spark's settings is one."""
    return folder.is_dir() and any(folder.iterdir())


def _has_archive_options(environment: Mapping[str, str]) -> bool:
    """Whether users have chosen an archive themselves."""
    given = " ".join(environment.get(name, "") for name in (*JAVA_VARIABLES, "PYSPARK_SUBMIT_ARGS"))
    return any(option in given for option in ARCHIVE_OPTIONS)
