"""What all runs so far have found, kept beside the steps: the next run need only look at what is new.

A balance has the account of every message, once; what the accounts come to, so that a report need not look at them; the
few other rows that it is made of; and the names of the files of steps that are in it. It follows from the steps: if it
is missing, or does not fit them, it is made again. Files are never changed. A file of accounts that has a message of
which something new was read is replaced by another.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreDamaged, StoreError
from twinbus.ledger.disk import Disk
from twinbus.own_files import open_lock
from twinbus.spark.compaction.manifest import Manifest, write_whole
from twinbus.spark.compaction.primaries import homes

VERSION = 8
"""Of what is kept. Raised when an account or another table changes: then everything is made again from the steps."""
FOLDER, NAME, READERS = "balance", "balance.json", "readers"


class Traffic(msgspec.Struct, array_like=True, frozen=True):
    """A row of `transforms.traffic`."""

    bucket_ms: int
    kind: str
    in_backlog: bool
    is_settled: bool
    messages: int
    operations: int
    sized_operations: int
    bytes: int


class Balance(msgspec.Struct):
    """What is known, and of which files."""

    version: int = VERSION
    folded: list[str] = []
    """The files of steps that are in it, below the store."""
    steps: int = 0
    tables: dict[str, list[str]] = {}
    """Parquet files of each table, below the store."""
    bucket_ms: int = 1
    traffic: list[Traffic] = []
    observed: dict[str, tuple[int, int]] = {}
    """The first and the last time that a client had to do with an entity."""
    removed: dict[str, int] = {}
    """When an entity was deleted for the last time."""
    homes: list[str] = []
    """What the primary was called when entities were told apart from those of other namespaces."""
    made_again: str = ""
    """Why there is nothing to begin with although there was; empty: there was nothing, or it is here."""

    def files(self, table: str) -> list[str]:
        return self.tables.get(table, [])

    def see(self, entity: str, first_ms: int, last_ms: int) -> None:
        before = self.observed.get(entity, (first_ms, last_ms))
        self.observed[entity] = (min(before[0], first_ms), max(before[1], last_ms))

    def add(self, traffic: list[Traffic], bucket_ms: int) -> None:
        """Add up with what is there, in stretches of `bucket_ms`, which are no shorter than those so far."""
        sums: dict[tuple[int, str, bool, bool], list[int]] = {}
        for row in (*self.traffic, *traffic):
            key = (row.bucket_ms - row.bucket_ms % bucket_ms, row.kind, row.in_backlog, row.is_settled)
            total = sums.setdefault(key, [0, 0, 0, 0])
            for at, value in enumerate((row.messages, row.operations, row.sized_operations, row.bytes)):
                total[at] += value
        self.traffic = [Traffic(*key, *total) for key, total in sums.items()]
        self.bucket_ms = bucket_ms


def load(store: Path, manifest: Manifest) -> Balance:
    """What the store has; an empty balance if there is none that fits the steps, with the reason."""
    file = store / FOLDER / NAME
    try:
        kept = file.read_bytes()
    except OSError:
        return Balance()
    try:
        version = msgspec.json.decode(kept, type=_Versioned).version
        if version != VERSION:
            return Balance(made_again=f"it was kept in form {version} and this twinbus keeps form {VERSION}")
        balance = msgspec.json.decode(kept, type=Balance)
    except msgspec.DecodeError:
        return Balance(made_again=f"{file} is damaged")
    reason = _misfit(balance, store, manifest)
    return Balance(made_again=reason) if reason else balance


class _Versioned(msgspec.Struct):
    version: int = 0


def _misfit(balance: Balance, store: Path, manifest: Manifest) -> str:
    """Why it is not about some of the steps in the store; empty if it is.

    Names do not tell: a ledger that is compacted again, since somebody removed the manifest, has files of the same
    names with more in them. Numbers do: what is not in the balance has to be in the files that are not.
    """
    folded, files = set(balance.folded), set(manifest.files)
    if not all((store / file).exists() for each in balance.tables.values() for file in each):
        return "some of its files are gone"
    if not folded <= files or manifest.steps - balance.steps != _rows(store, files - folded):
        return "the ledger was compacted anew"
    if balance.homes != sorted(called := homes(manifest.processes.values())):
        return f"the primary's name is {' or '.join(sorted(called)) or 'unknown'} now"
    return ""


def _rows(store: Path, files: Iterable[str]) -> int | None:
    """How many rows files have; None if one cannot be read, which is told when it is."""
    try:
        return sum(int(pq.read_metadata(store / file).num_rows) for file in files)
    except (OSError, pa.ArrowException):
        return None


def save(store: Path, balance: Balance) -> None:
    """From now on, and after a power cut too, this is what is known."""
    write_whole(store / FOLDER / NAME, msgspec.json.encode(balance))


def fresh_folder(store: Path) -> Path:
    """Where this run writes: a folder that nobody has used."""
    folder = store / FOLDER
    folder.mkdir(exist_ok=True)
    used = [int(each.name) for each in folder.iterdir() if each.name.isdigit()]
    return folder / f"{max(used, default=0) + 1}"


def keep_names(folder: Path) -> None:
    """What was written into a folder is there after a power cut."""
    for each in (folder, *folder.iterdir()) if folder.exists() else ():
        Disk().sync_names(each)


@contextmanager
def trouble_in_a_line(store: Path) -> Iterator[None]:
    """What goes wrong with files of the balance that are read or written in this process, as `StoreError`."""
    try:
        yield
    except ConnectionError:
        raise  # the JVM's
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None)
        if reason is None:  # Arrow's: the file is there, and is none of ours
            damage = f"{store / FOLDER} is damaged: {error}"
            raise StoreDamaged(f"{damage}; remove that folder, and the next report makes it again") from error
        raise StoreError(f"nothing can be kept in {store / FOLDER}: {reason}") from error


@contextmanager
def read(store: Path) -> Iterator[None]:
    """Nobody removes files from the balance meanwhile."""
    with open_lock(store / FOLDER / READERS) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def sweep(store: Path, balance: Balance) -> None:
    """Remove files that do not count any more; another time if somebody may be reading them."""
    with open_lock(store / FOLDER / READERS) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        counted = {store / file for files in balance.tables.values() for file in files}
        for folder in (each for each in (store / FOLDER).iterdir() if each.is_dir()):
            if not any(file.is_relative_to(folder) for file in counted):
                shutil.rmtree(folder, ignore_errors=True)
            for file_ in folder.glob("*/*") if folder.exists() else ():
                if file_ not in counted:
                    file_.unlink(missing_ok=True)
