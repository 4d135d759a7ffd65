"""The balance of a store: the results of all reports so far, so the next one reads only what is new.

A balance has one account per message, tables made of the accounts, totals of traffic, and the names of the step files
that are merged into it. It follows from the steps: if it is missing or does not fit them, it is made again. Files are
never changed: a file of accounts with a message that has new steps is replaced by another.
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
from twinbus.ledger.segment import Disk
from twinbus.ledger.segment_files import segments_and_held
from twinbus.own_files import open_lock
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import find_new_chunks, store_of
from twinbus.spark.compaction.manifest import Manifest, write_atomically
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.session import QUICK_START
from twinbus.storage import Location

VERSION = 9
"""Of what is kept. Raised when an account or another table changes: then everything is made again from the steps."""
LITTLE_BYTES, QUICK_STEPS = 512 << 20, 1_800_000
"""Up to so much a JVM that never optimizes code fully takes less time: a million events took 44 CPU seconds instead of
66, of which compiling was the difference."""
FOLDER, NAME, READERS = "balance", "balance.json", "readers"


class TrafficRow(msgspec.Struct, array_like=True, frozen=True):
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
    """What is known, and of which files. `balance.json` has these names."""

    version: int = VERSION
    folded: list[str] = []
    """The step files that are merged into it, below the store."""
    steps: int = 0
    tables: dict[str, list[str]] = {}
    """Parquet files of each table, below the store."""
    bucket_ms: int = 1
    traffic: list[TrafficRow] = []
    observed: dict[str, tuple[int, int]] = {}
    """The first and the last time that a client used an entity."""
    removed: dict[str, int] = {}
    """When an entity was deleted for the last time."""
    homes: list[str] = []
    """The primary's names when its entities were separated from those of other namespaces."""
    made_again: str = ""
    """Why an existing balance cannot be used; empty: there was none, or this is it."""

    def files(self, table: str) -> list[str]:
        return self.tables.get(table, [])

    def add_observed(self, entity: str, first_ms: int, last_ms: int) -> None:
        before = self.observed.get(entity, (first_ms, last_ms))
        self.observed[entity] = (min(before[0], first_ms), max(before[1], last_ms))

    def add_traffic(self, traffic: list[TrafficRow], bucket_ms: int) -> None:
        """Add traffic, in buckets of `bucket_ms`, which is no shorter than before."""
        sums: dict[tuple[int, str, bool, bool], list[int]] = {}
        for row in (*self.traffic, *traffic):
            key = (row.bucket_ms - row.bucket_ms % bucket_ms, row.kind, row.in_backlog, row.is_settled)
            total = sums.setdefault(key, [0, 0, 0, 0])
            for at, value in enumerate((row.messages, row.operations, row.sized_operations, row.bytes)):
                total[at] += value
        self.traffic = [TrafficRow(*key, *total) for key, total in sums.items()]
        self.bucket_ms = bucket_ms


def load(store: Path, manifest: Manifest) -> Balance:
    """The balance of the store; an empty one, with the reason, if none fits the steps."""
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
    reason = _why_unfit(balance, store, manifest)
    return Balance(made_again=reason) if reason else balance


class _Versioned(msgspec.Struct):
    version: int = 0


def _why_unfit(balance: Balance, store: Path, manifest: Manifest) -> str:
    """Why the balance does not fit the steps of the store; empty if it does.

    Names prove nothing: a ledger that is compacted again, because its manifest was removed, has files of the same names
    with more in them. Numbers do: the steps that are not in the balance must be in the files that are not.
    """
    folded, files = set(balance.folded), set(manifest.files)
    if not all((store / file).exists() for each in balance.tables.values() for file in each):
        return "some of its files are gone"
    if not folded <= files or manifest.steps - balance.steps != _rows(store, files - folded):
        return "the ledger was compacted anew"
    if balance.homes != sorted(called := primary_names(manifest.processes.values())):
        return f"the primary's name is {' or '.join(sorted(called)) or 'unknown'} now"
    return ""


def _rows(store: Path, files: Iterable[str]) -> int | None:
    """How many rows files have; None if one cannot be read: that surfaces when it is read."""
    try:
        return sum(int(pq.read_metadata(store / file).num_rows) for file in files)
    except (OSError, pa.ArrowException):
        return None


def save(store: Path, balance: Balance) -> None:
    """Replace the balance; durable when this returns."""
    write_atomically(store / FOLDER / NAME, msgspec.json.encode(balance))


def new_folder(store: Path) -> Path:
    """Where this run writes: a folder that no run has used."""
    folder = store / FOLDER
    folder.mkdir(exist_ok=True)
    used = [int(each.name) for each in folder.iterdir() if each.name.isdigit()]
    return folder / f"{max(used, default=0) + 1}"


def sync_names(folder: Path) -> None:
    """Make the names of files in a folder durable."""
    for each in (folder, *folder.iterdir()) if folder.exists() else ():
        Disk().sync_names(each)


@contextmanager
def store_errors(store: Path) -> Iterator[None]:
    """Raise failures to read or write files of the balance in this process as `StoreError`."""
    try:
        yield
    except ConnectionError:
        raise  # the JVM's
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None)
        if reason is None:  # of Arrow: the file exists and is not Parquet
            damage = f"{store / FOLDER} is damaged: {error}"
            raise StoreDamaged(f"{damage}; remove that folder, and the next report makes it again") from error
        raise StoreError(f"nothing can be kept in {store / FOLDER}: {reason}") from error


@contextmanager
def lock_for_reading(store: Path) -> Iterator[None]:
    """Keep other processes from removing files of the balance."""
    with open_lock(store / FOLDER / READERS) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def remove_uncounted(store: Path, balance: Balance) -> None:
    """Remove files that no longer count; later if another process may be reading them."""
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


def settings_for_ledger(ledger: Location, store: Location | None, *, uses_balance: bool = True) -> dict[str, str]:
    """Session settings for what is new in a ledger and what its store has; chosen before Spark starts, because a
    JVM for little data starts sooner. Without `uses_balance` all steps are read again.

    Raises `StoreError` if there is no such ledger, or if the store cannot be used.
    """
    store = store_of(ledger, store)
    manifest = manifests.load(store)
    is_merged = uses_balance and set(manifest.files) <= set(load(store, manifest).folded)
    is_quick = unread_bytes(ledger, store) <= LITTLE_BYTES and (is_merged or manifest.steps <= QUICK_STEPS)
    return QUICK_START if is_quick else {}


def unread_bytes(ledger: Location, store: Location | None) -> int:
    """How much of a ledger its store does not have. Raises `StoreError` if one of them cannot be read."""
    manifest = manifests.load(store_of(ledger, store))
    return sum(chunk.stop - chunk.start for chunk in find_new_chunks(segments_and_held(ledger), manifest))
