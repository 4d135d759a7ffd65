"""What is special about the store on disk: its files, its refusals, its batches, its failures."""

from __future__ import annotations

import os
import sqlite3
import stat
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from failing_store import Trouble
from store_contract import EVERYTHING, MANY, OpenStore, WatchedStore, entity, insert, message, sequences_of

from twinbus.broker.store import reader, tables
from twinbus.broker.store.api import (
    STORE_FORMAT,
    DeleteMessages,
    DropEntity,
    HeadRows,
    InsertCopies,
    InsertMessages,
    NamedRows,
    PutEntity,
    RangeRows,
    ReplaceMessage,
)
from twinbus.broker.store.backup import back_up
from twinbus.broker.store.format import make_current
from twinbus.broker.store.sql_connection import SqlConnection, default_connect, execute, first_value
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.broker.store.writer import BatchLimits
from twinbus.errors import OptionsError, StoreDamaged, StoreError, StoreInUse, StoreTooNew


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def closed_store(path: Path) -> bytes:
    """Leave a store with some rows at the path; returns the bytes of its file."""
    store = SqliteStore(path)
    watched = WatchedStore(store)
    watched.commit(PutEntity(entity()), InsertMessages(tuple(message(at, payload=bytes(2000)) for at in range(1, 200))))
    store.close()
    return path.read_bytes()


def refusal(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        SqliteStore(path).load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# --- files


def test_everything_is_readable_by_its_owner_only(path: Path, opened: OpenStore) -> None:
    opened().commit(PutEntity(entity()))
    assert mode(path.parent) == 0o700
    names = {file.name for file in path.parent.iterdir()}
    assert names == {"store.db", "store.db-wal", "store.db-shm", "store.db-reserve", "store.db.lock"}
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}


def test_a_closed_store_is_one_file_beside_its_lock_and_its_reserve(path: Path) -> None:
    closed_store(path)
    assert {file.name for file in path.parent.iterdir()} == {"store.db", "store.db-reserve", "store.db.lock"}


def test_a_store_in_use_is_refused_and_goes_on_working(path: Path, opened: OpenStore) -> None:
    first = opened()
    error = refusal(path)
    assert isinstance(error, StoreInUse)
    assert str(os.getpid()) in str(error)
    first.commit(PutEntity(entity()))
    first.store.close()
    assert opened().loaded.last_number == 1


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert type(refusal(tmp_path / "file" / "store.db")) is StoreError


def test_a_disk_that_is_full_at_the_start_is_a_store_error_and_a_later_try_succeeds(path: Path) -> None:
    trouble = Trouble()
    store = SqliteStore(path, connect=trouble.connect)
    trouble.fail_at("commit")
    with pytest.raises(StoreError, match="disk is full"):
        store.load()
    with SqliteStoreFree(path):
        pass  # the refused store holds no lock
    trouble.heal()
    assert store.load().last_number == 0
    store.close()


class SqliteStoreFree:
    """Checks that a store can be opened at the path, and closes it again."""

    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path)

    def __enter__(self) -> None:
        self._store.load()

    def __exit__(self, *_: object) -> None:
        self._store.close()


def test_an_unknown_way_to_sync_is_a_wrong_option(path: Path) -> None:
    with pytest.raises(OptionsError, match="synchronous must be one of off, normal, full, extra, got some"):
        SqliteStore(path, synchronous="some")


def test_a_store_that_is_not_loaded_takes_no_work(path: Path) -> None:
    with pytest.raises(StoreError, match="not loaded"):
        SqliteStore(path).submit(1, ())


# --- format


def test_an_older_store_is_upgraded_step_by_step(path: Path) -> None:
    closed_store(path)
    connection = default_connect(path)

    def add_colour(store: SqlConnection) -> None:
        execute(store, "alter table entities add column colour text")

    def paint(store: SqlConnection) -> None:
        execute(store, "update entities set colour = 'red'")

    newest = STORE_FORMAT + 2
    make_current(connection, path, wanted=newest, upgrades={newest - 2: add_colour, newest - 1: paint})
    assert first_value(connection, "select colour from entities") == "red"
    assert first_value(connection, "pragma user_version") == newest
    with pytest.raises(StoreTooNew):
        make_current(connection, path)
    connection.close()


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(path: Path) -> None:
    closed_store(path)
    connection = default_connect(path)

    def half(store: SqlConnection) -> None:
        execute(store, "drop table entities")
        raise sqlite3.OperationalError("disk full")

    with pytest.raises(sqlite3.OperationalError):
        make_current(connection, path, wanted=STORE_FORMAT + 1, upgrades={STORE_FORMAT: half})
    connection.close()
    store = SqliteStore(path)
    assert store.load().summaries[1].active == 199
    store.close()


FORMAT_1 = """
    drop trigger messages_deleted;
    drop index messages_by_session;
    drop table bodies;
    drop table session_states;
    drop table message_ids;
    alter table messages drop column body_id;
    pragma user_version = 1;
"""


def test_a_store_of_the_first_format_is_upgraded_with_what_is_in_it(path: Path, opened: OpenStore) -> None:
    closed_store(path)
    older = sqlite3.connect(path)
    older.executescript(FORMAT_1)
    older.close()
    watched = opened()
    assert watched.load().summaries[1].active == 199
    watched.commit(PutEntity(entity(2, path="copy")))
    watched.commit(InsertCopies((message(1_000, payload=b"same"), message(1, entity_id=2, payload=b"same"))))
    assert watched.read(HeadRows(2, 0, 9, 9)).rows[0].payload == b"same"


# --- payloads that are shared


def bodies(path: Path) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(path)
    found = connection.execute("select copies, payload from bodies order by body_id").fetchall()
    connection.close()
    return found


def test_the_payload_of_copies_is_stored_once_and_goes_with_the_last_of_them(path: Path, opened: OpenStore) -> None:
    watched = opened()
    watched.commit(*(PutEntity(entity(number, path=f"s{number}")) for number in (1, 2, 3)))
    watched.commit(InsertCopies(tuple(message(1, entity_id=number, payload=b"shared") for number in (1, 2, 3))))
    assert bodies(path) == [(3, b"shared")]
    watched.commit(DeleteMessages(1, (1,)), ReplaceMessage(message(1, entity_id=2, payload=b"own")))
    assert bodies(path) == [(1, b"shared")]
    assert [watched.read(HeadRows(number, 0, 9, 9)).rows[0].payload for number in (2, 3)] == [b"own", b"shared"]
    watched.commit(DeleteMessages(3, (1,)))
    assert bodies(path) == []


def test_the_payload_of_copies_goes_with_the_entities_that_have_them(path: Path, opened: OpenStore) -> None:
    watched = opened()
    watched.commit(*(PutEntity(entity(number, path=f"s{number}")) for number in (1, 2)))
    for sequence in range(1, 30):
        watched.commit(InsertCopies(tuple(message(sequence, entity_id=number) for number in (1, 2))))
    watched.commit(DropEntity(1), DropEntity(2))
    watched.store.close()
    opened().store.close()  # what is left of dropped entities is cleaned away in quiet moments
    connection = sqlite3.connect(path)
    (rows,) = connection.execute("select count(*) from messages").fetchone()
    (copies,) = connection.execute("select coalesce(sum(copies), 0) from bodies").fetchone()
    connection.close()
    assert copies == rows


def test_a_store_that_was_cut_off_while_being_made_is_made_again(path: Path, opened: OpenStore) -> None:
    path.parent.mkdir()
    unfinished = sqlite3.connect(path)
    unfinished.execute("pragma journal_mode = wal")
    unfinished.close()
    opened().commit(PutEntity(entity()))


# --- batches


def test_sets_that_come_during_a_commit_are_committed_together(opened: OpenStore) -> None:
    trouble, reached, go_on = Trouble(), Event(), Event()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()))

    def wait_at_commit(sql: str) -> None:
        if sql == "commit":
            reached.set()
            assert go_on.wait(30)

    trouble.on_statement = wait_at_commit
    watched.submit(insert(1))
    assert reached.wait(30)
    for sequence in range(2, 50):
        watched.submit(insert(sequence))
    go_on.set()
    watched.commit(insert(50))
    assert watched.committed()[:2] == [1, 2]
    assert len(watched.committed()) <= 4  # the batch that formed, and at most the last set by itself


@pytest.mark.parametrize(
    ("limits", "per_batch"),
    [(BatchLimits(sets=10), 10), (BatchLimits(rows=20), 20), (BatchLimits(payload_bytes=500), 5)],
)
def test_a_batch_is_bounded_by_sets_rows_and_bytes(opened: OpenStore, limits: BatchLimits, per_batch: int) -> None:
    trouble, reached, go_on = Trouble(), Event(), Event()
    watched = opened(connect=trouble.connect, limits=limits)

    def wait_at_begin(sql: str) -> None:
        if sql.startswith("begin"):
            reached.set()
            assert go_on.wait(30)

    trouble.on_statement = wait_at_begin
    watched.submit(PutEntity(entity()))
    assert reached.wait(30)
    for sequence in range(1, 100):
        watched.submit(InsertMessages((message(sequence, payload=bytes(100)),)))
    go_on.set()
    watched.commit(insert(100))
    numbers = watched.committed()
    assert all(later - earlier <= per_batch for earlier, later in pairwise(numbers))
    assert numbers[1] == 1 + per_batch


def test_a_batch_of_any_size_is_stored_whole(opened: OpenStore) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()))
    for count in (1, 3, 17, 1023, 1025, 2500):
        first = watched.load().summaries[1].next_sequence
        watched.commit(insert(*range(first, first + count)))
        assert watched.load().summaries[1].active == count
        watched.commit(DeleteMessages(1, tuple(range(first, first + count))))


# --- dropped entities


def remaining_rows(path: Path) -> int:
    connection = default_connect(path)
    rows = first_value(connection, "select count(*) from messages")
    connection.close()
    return int(rows)


def test_rows_of_a_dropped_entity_are_cleaned_away_in_bounded_pieces_while_work_goes_on(
    path: Path, opened: OpenStore
) -> None:
    trouble, cleaned, pieces = Trouble(), Event(), 0
    watched = opened(connect=trouble.connect, limits=BatchLimits(cleanup_rows=100))
    watched.commit(PutEntity(entity()), PutEntity(entity(2)), insert(*range(1, 1001)))

    def count_pieces(sql: str) -> None:
        nonlocal pieces
        pieces += sql.startswith("delete from messages where rowid in (select rowid")
        if sql.startswith("delete from dropped"):
            cleaned.set()

    trouble.on_statement = count_pieces
    watched.commit(DropEntity(1))
    watched.commit(insert(1, entity_id=2))
    assert cleaned.wait(30)
    watched.commit(insert(2, entity_id=2))
    assert pieces >= 10
    watched.store.close()
    assert remaining_rows(path) == 2


def test_cleaning_up_goes_on_after_a_restart_and_does_not_touch_others(path: Path, opened: OpenStore) -> None:
    trouble, cleaned = Trouble(), Event()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()), PutEntity(entity(2)), insert(*range(1, 1001)), insert(1, entity_id=2))
    trouble.fail_at("delete from messages where rowid in (select rowid")
    watched.commit(DropEntity(1))
    watched.store.close()
    assert remaining_rows(path) == 1001

    def notice(sql: str) -> None:
        if sql.startswith("delete from dropped"):
            cleaned.set()

    trouble.on_statement = notice
    watched = opened(connect=trouble.connect)
    assert list(watched.loaded.summaries) == [2]
    assert cleaned.wait(30)
    assert sequences_of(watched.read(RangeRows(2, 0, MANY, MANY))) == [1]
    watched.store.close()
    assert remaining_rows(path) == 1


# --- reading


def test_reads_during_writes_show_whole_sets(opened: OpenStore) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()))
    for at in range(100):
        watched.submit(insert(*range(at * 7 + 1, at * 7 + 8)))
        read = watched.read(EVERYTHING)
        assert len(read.rows) == (read.as_of - 1) * 7


def test_named_rows_larger_than_a_page_come_all_the_same(opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE_PAYLOAD_BYTES", 250)
    watched = opened()
    rows = tuple(message(at, payload=bytes(100)) for at in range(1, 20))
    watched.commit(PutEntity(entity()), InsertMessages(rows))
    assert watched.read(NamedRows(1, tuple(range(30)))).rows == rows
    assert sequences_of(watched.read(EVERYTHING)) == [1, 2]


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        (reader._FOUND_HEAD, 4, "COVERING INDEX messages_by_key (entity_id=? AND sequence>?)"),
        (reader._FOUND_RANGE, 4, "COVERING INDEX messages_by_key (entity_id=? AND sequence>?)"),
        (reader._FOUND_NAMED, 4, "COVERING INDEX messages_by_key (entity_id=? AND sequence=?)"),
        (reader._FOUND_EXPIRED, 6, "INDEX messages_by_expiry (entity_id=? AND (expires_at_ms,sequence)>(?,?))"),
        (reader._FOUND_DUE, 6, "INDEX messages_by_due (entity_id=? AND (due_at_ms,sequence)>(?,?))"),
        (reader._FOUND_SESSION_HEAD, 5, "messages_by_session (entity_id=? AND session_id=? AND sequence>?)"),
        (reader._WAITING, 3, "COVERING INDEX messages_by_session (entity_id=? AND session_id>?)"),
        (reader._KNOWN_IDS[1], 3, "message_ids USING PRIMARY KEY (entity_id=? AND message_id=?)"),
        (reader._KNOWN_IDS[1024], 1026, "message_ids USING PRIMARY KEY (entity_id=? AND message_id=?)"),
        (tables._CLEAN_UP_STATES, 2, "session_states USING INTEGER PRIMARY KEY (rowid=?)"),
        (tables._CLEAN_UP_IDS, 2, "message_ids USING PRIMARY KEY (entity_id=? AND message_id=?)"),
    ],
)
def test_a_statement_looks_only_at_the_rows_it_needs(path: Path, statement: str, parameters: int, index: str) -> None:
    closed_store(path)
    connection = default_connect(path)
    plan = [row[3] for row in execute(connection, "explain query plan " + statement, (1,) * parameters)]
    connection.close()
    assert any(index in step for step in plan)
    assert not any("SCAN messages" in step or "ORDER BY" in step for step in plan)


# --- the log, and copies


def test_the_log_stays_bounded_while_rows_are_written_and_read(path: Path, opened: OpenStore) -> None:
    watched = opened(checkpoint_pages=100)
    watched.commit(PutEntity(entity()))
    largest = 0
    for at in range(100):
        watched.submit(InsertMessages(tuple(message(at * 100 + n, payload=bytes(1000)) for n in range(1, 101))))
        watched.store.request(HeadRows(1, at * 100, 100, MANY))
        largest = max(largest, path.with_name("store.db-wal").stat().st_size)
    watched.commit()
    assert path.stat().st_size > 8_000_000
    assert largest < 8_000_000


def test_a_backup_of_a_running_store_is_a_store_of_one_moment(path: Path, tmp_path: Path, opened: OpenStore) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()), insert(1, 2))
    for sequence in range(3, 200):
        watched.submit(insert(sequence))
    target = tmp_path / "copy.db"
    back_up(path, target)
    watched.commit(insert(200))
    assert mode(target) == 0o600
    copy = SqliteStore(target)
    loaded = copy.load()
    copy.close()
    assert loaded.summaries[1].active == loaded.last_number + 1
    assert {file.name for file in tmp_path.iterdir()} == {"data", "copy.db", "copy.db.lock"}


def test_a_backup_never_overwrites(path: Path, tmp_path: Path) -> None:
    closed_store(path)
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StoreError, match="already exists"):
        back_up(path, target)
    assert target.read_text() == "precious"


def test_a_backup_of_nothing_or_to_nowhere_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        back_up(path, tmp_path / "copy.db")
    closed_store(path)
    with pytest.raises(StoreError, match="cannot be written: no such file or directory"):
        back_up(path, tmp_path / "missing" / "copy.db")
    path.write_bytes(b"garbage" * 5000)
    with pytest.raises(StoreDamaged):
        back_up(path, tmp_path / "copy.db")
    assert {file.name for file in tmp_path.iterdir()} == {"data"}
