"""A class archive: the classes of Spark as the JVM has them after loading, so the next JVM starts sooner.

`twinbus pipeline quick-start` makes it, once for a machine, its Java and its PySpark. A JVM that it does not fit, e.g.
since Java was updated, ignores it.
"""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.own_files import check_folder

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Else a JVM that cannot use the archive says so on its standard output, where the result of a command is."""
DIGEST_LENGTH = 16


def archive_file() -> Path:
    """Where the archive for this Java and this PySpark is kept. Raises `OSError` if there is no Java."""
    java = _java().resolve(strict=True)
    facts = java.stat()
    of = (java, facts.st_size, facts.st_mtime_ns, version("pyspark"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "twinbus" / f"spark-{sha256(repr(of).encode()).hexdigest()[:DIGEST_LENGTH]}.jsa"


def options_to_use() -> str:
    """Java options with which a JVM starts from the archive; none without one, or if others may have made it."""
    try:
        file = archive_file()
        if not file.is_file() or _has_space(file):
            return ""
        check_folder(file.parent, must_be_ours=True)
    except (OSError, StoreError):
        return ""
    return f"-XX:SharedArchiveFile={file} {QUIET}"


def options_to_make(file: Path) -> str:
    """Java options with which a JVM writes the archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={file} {QUIET}"


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nowhere/java")


def _has_space(file: Path) -> bool:
    """Spark splits Java options at spaces."""
    return any(letter.isspace() for letter in str(file))
