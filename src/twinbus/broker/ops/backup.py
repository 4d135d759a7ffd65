"""A copy of namespaces that can be served: the stores as of one moment each, and the keys that belong to them.

The copy is a data directory like any other, so to restore it is to serve it, or to put it where the lost one was.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinbus.broker.data_directory import CREATED_FILE, KEY_FILE, RULE_KEYS_FILE, STORE_FILE
from twinbus.broker.net.certificates import CA_FILE, CA_KEY_FILE
from twinbus.broker.store.backup import back_up
from twinbus.broker.store.locked_file import sync_path
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import OptionsError, StoreError
from twinbus.own_files import write_whole

COPIED_FILES = (KEY_FILE, RULE_KEYS_FILE, CREATED_FILE, CA_FILE, CA_KEY_FILE)
"""What makes it the same namespace to its clients. The server's certificate is made anew where it is served."""
_KINDS_SHOWN = ("queue", "topic", "subscription")


@dataclass(frozen=True, slots=True)
class Copied:
    """One namespace, as it is in the copy."""

    namespace: str
    entities: int
    messages: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def namespaces_in(data: Path) -> list[str]:
    """The names of the namespaces of a data directory, running or not; raises `StoreError` if there is none."""
    names = sorted(each.parent.name for each in data.glob(f"*/{STORE_FILE}"))
    if not names:
        raise StoreError(f"there is no namespace in {data}: is it the --data of twinbus serve?")
    return names


def bytes_of(data: Path, names: Sequence[str]) -> int:
    """About how large a copy of these will be."""
    return sum(each.stat().st_size for name in names for each in (data / name).glob(f"{STORE_FILE}*"))


class SafeCopy:
    """Copies namespaces of `data` to the new directory `target`, which gets its name when everything is in it."""

    def __init__(self, data: Path, names: Sequence[str], target: Path) -> None:
        """Raises `OptionsError` if the target is there, or `StoreError` if a namespace is not."""
        if target.exists() or target.is_symlink():
            raise OptionsError(f"{target} exists already: a backup is a new directory")
        unknown = [name for name in names if not (data / name.lower() / STORE_FILE).is_file()]
        if unknown:
            known = ", ".join(namespaces_in(data)[:10])
            raise StoreError(f"there is no namespace {', '.join(unknown)} in {data}: it has {known}")
        self._data, self._names, self._target = data, [name.lower() for name in names], target
        self._draft: Path | None = None

    def make(self) -> list[Copied]:
        """Raises `StoreError`, and leaves nothing behind, if it cannot be done."""
        try:
            self._draft = draft = Path(tempfile.mkdtemp(".partial", f".{self._target.name}-", self._target.parent))
            copied = [self._copy(name, draft / name) for name in self._names]
            sync_path(draft)
            draft.rename(self._target)
            sync_path(self._target.parent)
        except OSError as error:
            raise StoreError(f"the backup {self._target} cannot be written: {error.strerror or error}") from None
        finally:
            self.clean_up()
        return copied

    def bytes_so_far(self) -> int:
        """How much of it is written; can be read from another thread."""
        draft = self._draft
        if draft is None:
            return 0
        try:
            return sum(each.stat().st_size for each in draft.rglob("*") if each.is_file())
        except OSError:  # it got its name meanwhile
            return 0

    def clean_up(self) -> None:
        """Remove what is not finished."""
        if self._draft is not None:
            shutil.rmtree(self._draft, ignore_errors=True)

    def _copy(self, name: str, home: Path) -> Copied:
        home.mkdir(mode=0o700)
        store = home / STORE_FILE
        try:
            back_up(self._data / name / STORE_FILE, store)
        except StoreError as error:  # which speaks of the store, also where the copy has no room
            raise StoreError(f"the backup {self._target} cannot be made: {error}") from None
        for file in COPIED_FILES:
            if (self._data / name / file).is_file():
                write_whole(home / file, (self._data / name / file).read_bytes())
        found = _count_contents(store)
        sync_path(home)
        return Copied(name, *found, store.stat().st_size)


def _count_contents(path: Path) -> tuple[int, int]:
    """Open the copy as a server would; how many entities and messages it has."""
    store = SqliteStore(path)
    try:
        stored = store.load()
    finally:
        store.close()
    for left in path.parent.glob(f"{STORE_FILE}?*"):  # its lock, and an empty log
        left.unlink()
    messages = sum(each.active + each.deferred + each.scheduled for each in stored.summaries.values())
    return sum(row.kind in _KINDS_SHOWN for row in stored.entities), messages
