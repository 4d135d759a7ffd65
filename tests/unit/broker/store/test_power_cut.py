"""Nothing that was reported is lost in a power cut, wherever it falls.

A cut is placed before the n-th write or sync that SQLite makes. After each, the store is opened on what the disk would
still hold, and must show exactly the first m change sets for some m that is not below the last one reported.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from power_cut import PowerCutDisk
from store_contract import MANY, WatchedStore, entity, message

from twinbus.broker.store.api import (
    Change,
    DeleteMessages,
    DropEntity,
    InsertMessages,
    MessageRow,
    MessageState,
    PutEntity,
    RangeRows,
    ReplaceMessage,
    StoredNamespace,
)
from twinbus.broker.store.memory import MemoryStore
from twinbus.broker.store.sql_connection import SqlConnection, execute
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.broker.store.writer import BatchLimits
from twinbus.errors import StoreDamaged

ENTITIES = (1, 2, 3)
SETS = 60
OPERATIONS = 700
"""About as many writes and syncs as SETS change sets take."""
SMALL = BatchLimits(sets=5, cleanup_rows=7)

Content = tuple[StoredNamespace, dict[int, tuple[MessageRow, ...]]]


class BrokenPromise(AssertionError):
    """A set that was reported is not there."""


def change_sets(chance: Random, sets: int) -> list[tuple[Change, ...]]:
    """Work of all kinds, with rows from a few bytes to several pages."""
    made: list[tuple[Change, ...]] = [
        tuple(PutEntity(entity(entity_id, path=f"q{entity_id}")) for entity_id in ENTITIES)
    ]
    stored: list[tuple[int, int]] = []
    next_sequence = 1
    for at in range(1, sets):
        rows = []
        for _ in range(chance.randrange(6)):
            payload = chance.randbytes(chance.choice((10, 1000, 20_000)))
            rows.append(
                message(
                    next_sequence,
                    entity_id=chance.choice(ENTITIES[:2] if at > sets // 2 else ENTITIES),
                    payload=payload,
                )
            )
            next_sequence += 1
        changes: list[Change] = [InsertMessages(tuple(rows))]
        if at == sets // 2:
            changes = [DropEntity(3)]
            stored = [key for key in stored if key[0] != 3]
        for entity_id, sequence in chance.sample(stored, min(len(stored), chance.randrange(4))):
            stored.remove((entity_id, sequence))
            changes.append(DeleteMessages(entity_id, (sequence,)))
        if stored:
            entity_id, sequence = chance.choice(stored)
            changes.append(ReplaceMessage(message(sequence, entity_id=entity_id, state=MessageState.DEFERRED)))
        stored += [row[:2] for row in rows] if at != sets // 2 else []
        made.append(tuple(changes))
    return made


def content(watched: WatchedStore) -> Content:
    rows = {entity_id: watched.read(RangeRows(entity_id, 0, MANY, 100 * MANY)).rows for entity_id in ENTITIES}
    return watched.loaded, rows


def expected_content(sets: list[tuple[Change, ...]]) -> Content:
    """What a store shows that holds exactly these sets."""
    watched = WatchedStore(MemoryStore())
    for changes in sets:
        watched.commit(*changes)
    watched.load()
    return content(watched)


def work_until_cut(data: Path, after: Path, sets: list[tuple[Change, ...]], chance: Random, synchronous: str) -> int:
    """Run the sets on a disk that is cut somewhere; returns the last number reported before the cut."""
    promised: list[int] = []
    with PowerCutDisk(data) as disk:
        store = SqliteStore(
            data / "store.db", connect=disk.connect, synchronous=synchronous, limits=SMALL, checkpoint_pages=40
        )
        watched = WatchedStore(store)
        torn = chance if chance.random() < 0.6 else None

        def cut() -> None:
            promised.append(max(watched.committed(), default=watched.loaded.last_number))
            disk.crash_into(after, survivors=torn)

        disk.before(disk.operations + chance.randrange(1, OPERATIONS), cut)
        for changes in sets[watched.loaded.last_number :]:
            watched.submit(*changes)
            if chance.random() < 0.3:
                watched.commit()
                sets.insert(watched.number - 1, ())
        store.close()
        if not promised:  # the work was over first
            cut()
    return promised[0]


def check_after_cut(after: Path, sets: list[tuple[Change, ...]], promised: int) -> None:
    store = SqliteStore(after / "store.db")
    watched = WatchedStore(store)
    try:
        kept = watched.loaded.last_number
        if kept < promised:
            raise BrokenPromise(f"set {promised} was reported, but only {kept} are there")
        assert content(watched) == expected_content(sets[:kept])
    finally:
        store.close()


def live_and_die(directory: Path, seed: int, synchronous: str = "full") -> None:
    """Two lives of one store, each ended by a cut: what the second life recovers must be as safe as what it adds."""
    chance = Random(seed)
    sets = change_sets(chance, SETS)
    lives = [directory / f"{seed}-{life}" for life in range(3)]
    for data, after in pairwise(lives):
        promised = work_until_cut(data, after, sets, chance, synchronous)
        check_after_cut(after, sets, promised)


@pytest.mark.parametrize("seed", range(40))
def test_every_reported_set_survives_a_power_cut_and_no_set_survives_in_part(tmp_path: Path, seed: int) -> None:
    live_and_die(tmp_path, seed)


@pytest.mark.parametrize("synchronous", ["off", "normal"])
def test_without_a_sync_per_commit_a_power_cut_breaks_the_promise_and_is_noticed(
    tmp_path: Path, synchronous: str
) -> None:
    broken = 0
    for seed in range(8):
        try:
            live_and_die(tmp_path, seed, synchronous)
        except (BrokenPromise, StoreDamaged):
            broken += 1
    assert broken > 0


def run(connection: SqlConnection, *statements: str) -> None:
    for statement in statements:
        execute(connection, statement)


def test_a_cut_keeps_what_was_synced_and_loses_the_rest(tmp_path: Path) -> None:
    with PowerCutDisk(tmp_path / "data") as disk:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "key").write_text("secret")
        connection = disk.connect(tmp_path / "data" / "x.db")
        run(connection, "pragma journal_mode = wal", "create table t (v)", "insert into t values (1)")
        run(connection, "pragma synchronous = off", "insert into t values (2)")
        disk.crash_into(tmp_path / "after")
        connection.close()
    with PowerCutDisk(tmp_path / "after") as disk:
        connection = disk.connect(tmp_path / "after" / "x.db")
        assert list(connection.execute("select v from t")) == [(1,)]
        connection.close()
    assert (tmp_path / "after" / "key").read_text() == "secret"
    assert not list((tmp_path / "after").glob("*-shm"))


def test_torn_writes_differ_from_lost_ones_and_repeat_with_their_seed(tmp_path: Path) -> None:
    with PowerCutDisk(tmp_path / "data") as disk:
        (tmp_path / "data").mkdir()
        connection = disk.connect(tmp_path / "data" / "x.db")
        run(connection, "pragma journal_mode = wal", "pragma synchronous = off")
        run(connection, "create table t (v)", "insert into t values (zeroblob(50000))")
        for name, survivors in (("lost", None), ("torn", Random(1)), ("again", Random(1)), ("other", Random(2))):
            disk.crash_into(tmp_path / name, survivors=survivors)
        connection.close()
    lost, torn, again, other = (
        (tmp_path / name / "x.db-wal").read_bytes() for name in ("lost", "torn", "again", "other")
    )
    assert lost == b""
    assert torn == again != other
