"""twinbus and what it needs in one file, for executors on machines where it is not installed.

Spark copies the file to every executor and unpacks it there; PYTHONPATH does the rest. It is made of what is installed
here, so it fits machines with the same processor, system and Python version, e.g. 3.11.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from twinbus.errors import OptionsError, TwinbusError

FOLDER = "twinbus_archive"
"""Where Spark unpacks it, below the folder that an executor works in."""
SUFFIXES = (".tar.gz", ".tgz")
_ROOTS = ("twinbus", "pyarrow", "numpy", "azure-identity")
"""What is not installed is left out: azure-identity is needed with `--credential` only."""
_FROM_SPARK = {"pyspark", "py4j"}
"""Every Spark has these, in its own version."""
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_LEFT_OUT = {"__pycache__", "tests", "direct_url.json"}


class ArchiveContents(NamedTuple):
    """What an archive is made of."""

    packages: tuple[str, ...]
    """Names with versions."""
    size: int
    """In bytes."""


def settings_for(archive: Path) -> dict[str, str]:
    """Settings of a session whose executors find twinbus in the archive. Raises `OptionsError`."""
    if not archive.is_file():
        raise OptionsError(f"there is no archive {archive}: make one with twinbus pipeline pack {archive}")
    return {
        "spark.archives": f"{archive.absolute()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": FOLDER,
    }


def pack(target: Path) -> ArchiveContents:
    """Write the archive; an existing file is replaced once the new one is complete.

    Raises `OptionsError` for a name that Spark would not unpack, `TwinbusError` if it cannot be written.
    """
    if not target.name.endswith(SUFFIXES):
        raise OptionsError(f"an archive is called {' or '.join('*' + each for each in SUFFIXES)}, not {target.name}")
    found = _closure(_ROOTS)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as tar:
            for file, name in _files(found):
                tar.add(file, name, recursive=False, filter=_without_owner)
        unfinished.replace(target)
    except OSError as error:
        raise TwinbusError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return ArchiveContents(tuple([f"{each.name} {each.version}" for each in found]), target.stat().st_size)


def python_of_this() -> str:
    """The Python that an archive made here fits."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _closure(roots: Iterable[str]) -> list[Distribution]:
    """What these packages need, and what that needs: as far as it is installed here. Extras are left out."""
    found: dict[str, Distribution] = {}
    open_names = list(roots)
    while open_names:
        name = re.sub(r"[-_.]+", "-", open_names.pop()).lower()
        if name in found or name in _FROM_SPARK:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or Python, or optional: it is not needed here either
        open_names += [_required(text) for text in found[name].requires or () if "extra ==" not in text]
    return [found[name] for name in sorted(found)]


def _required(text: str) -> str:
    match = _NAME.match(text)
    return match[1] if match else text


def _files(packages: Iterable[Distribution]) -> Iterator[tuple[Path, str]]:
    """Files, and what they are called in the archive."""
    for package in packages:
        for entry in package.files or ():
            if not (entry.parts[0] == ".." or _LEFT_OUT.intersection(entry.parts) or entry.suffix == ".pth"):
                yield Path(str(package.locate_file(entry))), entry.as_posix()
    yield from _own_sources([package for package in packages if package.name == "twinbus"])


def _own_sources(installed: list[Distribution]) -> Iterator[tuple[Path, str]]:
    """Of twinbus as it lies in a working copy: such an installation lists no sources of its own."""
    listed = {entry.as_posix() for package in installed for entry in package.files or ()}
    home = Path(__file__).parent.parent
    if "twinbus/__init__.py" in listed:
        return
    for file in sorted([*home.rglob("*"), home.parent / "pyspark_twinbus.py"]):
        name = file.relative_to(home.parent)
        if file.is_file() and not _LEFT_OUT.intersection(name.parts):
            yield file, name.as_posix()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive does not say who packed it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
