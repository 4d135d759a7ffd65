"""A store on a real disk that is full: what frees room is written, what takes room waits until there is some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from small_disk import SmallDisk, small_disk
from store_contract import EVERYTHING, WatchedStore, entity, message, sequences_of

from twinbus.broker.store.api import DeleteMessages, DiskSpaceChanged, InsertMessages, PutEntity
from twinbus.broker.store.disk_space import RESERVE_BYTES_MAX, reserve_bytes_for, reserve_path
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import StoreError

DISK_MIB = 24
SMALL, LARGE = 1000, 60_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", DISK_MIB) as mounted:
        yield mounted


@pytest.fixture
def opened(disk: SmallDisk) -> Iterator[Callable[[], WatchedStore]]:
    with ExitStack() as stores:

        def open_one() -> WatchedStore:
            store = SqliteStore(disk.folder / "store.db")
            stores.callback(store.close)
            return WatchedStore(store)

        yield open_one


def stored(sequence: int, size: int = SMALL) -> InsertMessages:
    return InsertMessages((message(sequence, payload=bytes(size)),))


def hears_of_room(watched: WatchedStore) -> bool:
    """Wait for the latest word on room: whether there is some."""
    said = watched.wait_for(lambda report: isinstance(report, DiskSpaceChanged))
    assert isinstance(said, DiskSpaceChanged)
    watched.reports.clear()
    return said.full is None


def test_what_meets_a_full_disk_is_written_with_the_reserve_and_room_is_found_again(
    disk: SmallDisk, opened: Callable[[], WatchedStore]
) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()), *(stored(at) for at in range(1, 201)))
    reserve = reserve_path(disk.folder / "store.db")
    assert reserve.stat().st_blocks * 512 == reserve_bytes_for(DISK_MIB << 20)
    disk.fill()
    watched.commit(stored(201, LARGE))  # not refused, not in doubt
    assert not hears_of_room(watched)
    assert not reserve.exists()
    for at in range(1, 201):
        watched.commit(DeleteMessages(1, (at,)))
    assert sequences_of(watched.read(EVERYTHING)) == [201]
    disk.make_room()
    assert hears_of_room(watched)
    assert reserve.exists()
    watched.commit(stored(202, LARGE))


def test_a_store_opens_and_closes_on_a_full_disk(disk: SmallDisk, opened: Callable[[], WatchedStore]) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()), stored(1), stored(2))
    watched.store.close()
    disk.fill()
    watched = opened()
    assert not hears_of_room(watched)
    assert sequences_of(watched.read(EVERYTHING)) == [1, 2]
    watched.commit(DeleteMessages(1, (1,)))
    watched.store.close()
    watched = opened()
    assert not hears_of_room(watched)
    assert sequences_of(watched.read(EVERYTHING)) == [2]
    disk.make_room()
    assert hears_of_room(watched)


def test_what_was_under_way_uses_up_no_more_than_half_of_the_reserve(
    disk: SmallDisk, opened: Callable[[], WatchedStore]
) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()), stored(1))
    disk.fill()
    for at in range(2, 202):
        watched.submit(stored(at, LARGE))
    assert "full" in watched.failure().reason
    acknowledged = watched.committed()[-1]
    assert watched.load().last_number == acknowledged
    for at in range(1, acknowledged + 1):
        watched.commit(DeleteMessages(1, (at,)))
    assert sequences_of(watched.read(EVERYTHING)) == []


def test_a_disk_full_of_messages_takes_new_ones_when_they_are_received(
    disk: SmallDisk, opened: Callable[[], WatchedStore]
) -> None:
    watched = opened()
    watched.commit(PutEntity(entity()))
    last = 0
    for _ in range(3):
        first = last + 1
        while not any(isinstance(report, DiskSpaceChanged) for report in watched.reports):
            last += 1
            watched.commit(stored(last, LARGE))
        assert last - first > 100  # much of the disk was used
        watched.reports.clear()
        for at in range(first, last + 1):
            watched.commit(DeleteMessages(1, (at,)))
        assert DiskSpaceChanged(None) in watched.reports or hears_of_room(watched)
        watched.reports.clear()


def test_a_full_disk_without_a_reserve_refuses_to_open_a_new_store(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(StoreError, match=r"space|full"):
        WatchedStore(SqliteStore(disk.folder / "store.db"))


@pytest.mark.parametrize(("disk_mib", "reserve_mib"), [(8, 1), (24, 3), (64, 8), (1 << 20, 8)])
def test_the_reserve_is_small_on_a_small_disk_and_never_large(disk_mib: int, reserve_mib: int) -> None:
    assert reserve_bytes_for(disk_mib << 20) == reserve_mib << 20 <= RESERVE_BYTES_MAX
