"""The balance of a store: the results of all reports so far, so the next one reads only what is new.

A balance has one account per message, tables made of the accounts, totals of traffic, and the names of the step files
that are merged into it. It follows from the steps: if it is missing or does not fit them, it is made again. Files are
never changed: a file of accounts with a message that has new steps is replaced by another.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from twinbus.errors import StoreDamaged, StoreError
from twinbus.ledger.reading.segment_files import segments_and_held
from twinbus.own_files import open_lock
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import find_new_chunks, store_of
from twinbus.spark.compaction.manifest import Manifest
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.jobs.stored_rows import rows_in
from twinbus.spark.session import QUICK_START
from twinbus.storage import Folder, Location, StoredFile

VERSION = 10
"""Of what is kept. Raised when an account or another table changes: then everything is made again from the steps."""
LITTLE_BYTES, QUICK_STEPS = 512 << 20, 1_800_000
"""Up to so much a JVM that never optimizes code fully takes less time: a million events took 44 CPU seconds instead of
66, of which compiling was the difference."""
KEPT_MS = 3_600_000
"""How long a file stays at a URL after it was replaced, for whoever still reads it."""
FOLDER, NAME, READERS = "balance", "balance.json", "readers"
ACCOUNTS = "accounts"
"""The accounts have a folder of their own in the store: other engines read it as a table."""


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
    """The step files that are merged into it, by the names of their parts (`Manifest.parts`)."""
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
    replaced: dict[str, int] = {}
    """Files that were replaced and not deleted yet, and when: others may be reading them."""
    made_again: str = ""
    """Why an existing balance cannot be used; empty: there was none, or this is it."""

    def files(self, table: str) -> list[str]:
        return self.tables.get(table, [])

    @property
    def all_files(self) -> set[str]:
        return {file for files in self.tables.values() for file in files}

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


def load(store: Folder, manifest: Manifest) -> Balance:
    """The balance of the store; an empty one, with the reason, if none fits the steps."""
    file = f"{FOLDER}/{NAME}"
    try:
        kept = store.read(file)
    except OSError:
        return Balance()
    try:
        version = msgspec.json.decode(kept, type=_Versioned).version
        if version != VERSION:
            return Balance(made_again=f"it was kept in form {version} and this twinbus keeps form {VERSION}")
        balance = msgspec.json.decode(kept, type=Balance)
    except msgspec.DecodeError:
        return Balance(made_again=f"{store.where(file)} is damaged")
    reason = _why_unfit(balance, store, manifest)
    return Balance(made_again=reason) if reason else balance


class _Versioned(msgspec.Struct):
    version: int = 0


def _why_unfit(balance: Balance, store: Folder, manifest: Manifest) -> str:
    """Why the balance does not fit the steps of the store; empty if it does.

    Names prove nothing: a ledger that is compacted again, because its manifest was removed, has files of the same names
    with more in them. Numbers do: the steps that are not in the balance must be in the files that are not.
    """
    folded, parts = set(balance.folded), set(manifest.parts)
    if not balance.all_files <= set(stored_files(store)):
        return "some of its files are gone"
    new = manifest.files_with(parts - folded)
    if not folded <= parts or manifest.steps - balance.steps != _rows(store, new):
        return "the ledger was compacted anew"
    if balance.homes != sorted(called := primary_names(manifest.processes.values())):
        return f"the primary's name is {' or '.join(sorted(called)) or 'unknown'} now"
    return ""


def _rows(store: Folder, files: list[str]) -> int | None:
    """How many rows files have; None if one cannot be read: that surfaces when it is read."""
    try:
        return sum(rows_in(store, files).values())
    except (OSError, pa.ArrowException):
        return None


def save(store: Folder, balance: Balance) -> None:
    """Replace the balance; durable when this returns."""
    store.put(f"{FOLDER}/{NAME}", msgspec.json.encode(balance))


def stored_files(store: Folder) -> dict[str, StoredFile]:
    """All files of the balance by their names, those that no longer count too."""
    return {each.name: each for folder in (FOLDER, ACCOUNTS) for each in store.files(folder)}


def new_run(store: Folder) -> int:
    """The number of this run: no other has written to folders with it."""
    used = (name.split("/")[1] for name in stored_files(store))
    return max((int(number) for number in used if number.isdigit()), default=0) + 1


def folder_of(run: int, table: str) -> str:
    """Where a run writes a table, below the store."""
    return f"{ACCOUNTS}/{run}" if table == "accounts" else f"{FOLDER}/{run}/{table}"


@contextmanager
def store_errors(store: Folder) -> Iterator[None]:
    """Raise failures to read or write files of the balance in this process as `StoreError`."""
    where = store.where(FOLDER)
    try:
        yield
    except ConnectionError:
        raise  # the JVM's
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None)
        if reason is None:  # of Arrow: the file exists and is not Parquet
            damage = f"{where} is damaged: {error}"
            raise StoreDamaged(f"{damage}; remove that folder, and the next report makes it again") from error
        raise StoreError(f"nothing can be kept in {where}: {reason}") from error


@contextmanager
def lock_for_reading(store: Folder) -> Iterator[None]:
    """Keep other processes from removing files of the balance. Elsewhere than on this machine nothing is locked: there,
    files stay for `KEPT_MS` after they were replaced.
    """
    if not store.is_local:
        yield
        return
    with _open_readers(store) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _open_readers(store: Folder) -> TextIO:
    folder = store.path() / FOLDER
    folder.mkdir(exist_ok=True)
    return open_lock(folder / READERS)


def remove_uncounted(store: Folder, balance: Balance, now_ms: int) -> list[str]:
    """Remove files that no longer count, and return their names; later if another process may be reading them."""
    with _without_readers(store) as are_there_none:
        if not are_there_none:
            return []
        counted = balance.all_files | {name for name, at_ms in balance.replaced.items() if at_ms + KEPT_MS > now_ms}
        gone = [name for name in stored_files(store) if name not in counted and _is_of_a_run(name)]
        store.delete(gone)
        return gone


def remove_merged(store: Folder, manifest: Manifest, now_ms: int) -> list[str]:
    """Remove step files that were merged, and return their names; later if another process may be reading them."""
    with _without_readers(store) as are_there_none:
        if not are_there_none:
            return []
        gone = [name for name, at_ms in manifest.replaced.items() if store.is_local or at_ms + KEPT_MS <= now_ms]
        store.delete(gone)
        for name in gone:
            del manifest.replaced[name]
        return gone


def _is_of_a_run(name: str) -> bool:
    """Whether it is in a folder that is called by the number of a run."""
    return name.split("/")[1].isdigit()


@contextmanager
def _without_readers(store: Folder) -> Iterator[bool]:
    """Whether no process of this machine reads files of the balance."""
    if not store.is_local:
        yield True
        return
    with _open_readers(store) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def settings_for_ledger(ledger: Location, store: Location | None, *, uses_balance: bool = True) -> dict[str, str]:
    """Session settings for what is new in a ledger and what its store has; chosen before Spark starts, because a
    JVM for little data starts sooner. Without `uses_balance` all steps are read again.

    Raises `StoreError` if there is no such ledger, or if the store cannot be used.
    """
    kept = store_of(ledger, store)
    manifest = manifests.load(kept)
    is_merged = uses_balance and set(manifest.parts) <= set(load(kept, manifest).folded)
    is_quick = unread_bytes(ledger, store) <= LITTLE_BYTES and (is_merged or manifest.steps <= QUICK_STEPS)
    return QUICK_START if is_quick else {}


def unread_bytes(ledger: Location, store: Location | None) -> int:
    """How much of a ledger its store does not have. Raises `StoreError` if one of them cannot be read."""
    manifest = manifests.load(store_of(ledger, store))
    return sum(chunk.stop - chunk.start for chunk in find_new_chunks(segments_and_held(ledger), manifest))
