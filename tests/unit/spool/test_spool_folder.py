"""The folders of a spool: one for each process, all of one pair, never two processes in one."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from twinbus.errors import StoreError, StoreInUse
from twinbus.own_files import check_folder
from twinbus.spool import folder as folders
from twinbus.spool.folder import SpoolDirectory, SpoolFolder


def opened(path: Path, primary: str = "contoso") -> SpoolDirectory:
    directory = SpoolDirectory(path / "spool", primary)
    directory.open()
    return directory


def filled(folder: SpoolFolder) -> None:
    """As if something had been stored in it."""
    folder.store.write_bytes(b"x")


def test_a_new_spool_is_for_its_owner_only_and_knows_its_pair(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    taken = directory.take()
    assert taken.path == tmp_path / "spool" / "1"
    assert taken.is_new
    for path in (directory.path, taken.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert (directory.path / "pair").read_text() == "contoso\n"
    taken.release()


def test_every_process_takes_a_folder_of_its_own(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    taken = [directory.take() for _ in range(3)]
    assert [each.path.name for each in taken] == ["1", "2", "3"]
    assert directory.holders() == {each.path: os.getpid() for each in taken}
    taken[1].release()
    assert directory.take().path.name == "2", "the first that is free"


def _take_and_die(path: Path, ready: multiprocessing.synchronize.Event) -> None:
    directory = opened(path)
    taken = directory.take()
    filled(taken)
    ready.set()
    os.kill(os.getpid(), 9)


def test_what_a_killed_process_held_is_free_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_take_and_die, args=(tmp_path, ready))
    process.start()
    process.join(30)
    directory = opened(tmp_path)
    assert directory.holders() == {tmp_path / "spool" / "1": None}
    found = directory.take_left_behind()
    assert found is not None
    assert found.path.name == "1"
    assert directory.take_left_behind() is None, "it is held now"
    found.release()


def test_a_folder_that_was_left_behind_is_taken_before_a_new_one_is_made(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    first = directory.take()
    filled(first)
    first.release()
    again = directory.take()
    assert (again.path, again.is_new) == (first.path, False)


def test_a_folder_in_which_nothing_was_stored_is_not_worth_taking_over(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.take().release()
    assert directory.take_left_behind() is None
    assert directory.holders() == {}, "and it is removed"


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    taken = directory.take()
    filled(taken)
    taken.remove()
    assert not taken.path.exists()
    assert directory.take().path.name == "1"


def test_a_spool_of_another_pair_is_refused_and_named(tmp_path: Path) -> None:
    opened(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "spool").iterdir()}
    with pytest.raises(StoreError, match=r"of another pair: its primary is contoso, not fabrikam; each pair needs"):
        opened(tmp_path, "fabrikam")
    assert {path: path.read_bytes() for path in (tmp_path / "spool").iterdir()} == before
    opened(tmp_path, "CONTOSO")  # names differ not by case alone


def test_a_spool_whose_pair_is_unknown_is_refused(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.path / "pair").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="does not name a pair"):
        opened(tmp_path)


def test_a_file_is_not_a_spool(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("x")
    with pytest.raises(StoreError, match=r"spool cannot be used: Not a directory"):
        opened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="permission denied"):
        opened(tmp_path)


def test_a_folder_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o777)
    with pytest.raises(StoreError, match="everybody can write"):
        opened(tmp_path)


def test_a_spool_that_has_to_be_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere is not a spool: give the folder"):
        SpoolDirectory(tmp_path / "nowhere", "contoso").open_existing()
    assert not (tmp_path / "nowhere").exists()


def test_somebody_who_holds_the_lock_for_ever_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PATIENCE_S", 0.05)
    directory = opened(tmp_path)
    with directory.locked(), pytest.raises(StoreInUse, match="in use"):
        directory.take()


def test_what_is_not_numbered_is_left_alone(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.path / "notes").mkdir()
    (directory.path / "7").write_text("a file")
    assert directory.take().path.name == "1"
    assert (directory.path / "notes").is_dir()
    check_folder(directory.path)
