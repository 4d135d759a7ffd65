"""A spool that is stopped lets go of every folder, also of one that it was about to take over."""

from __future__ import annotations

import threading
from pathlib import Path

from twinbus.broker.store.api import StoredNamespace
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.spool.folder import SpoolDirectory, SpoolFolder
from twinbus.spool.open_spool import SpoolRoutes
from twinbus.spool.spool import Spool
from twinbus.transport.dial import Dial, key_token

NOBODY = Dial("127.0.0.1", 9, None, None, lambda audience: key_token(audience, "name", "key"))
ROUTES = SpoolRoutes(primary_name="contoso", primary=NOBODY, secondary=NOBODY)


class SlowDirectory(SpoolDirectory):
    """Looking for folders that were left behind takes until a test lets it end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "contoso")
        self.looks, self.may_end = threading.Event(), threading.Event()

    def take_left_behind(self, without: set[Path] | None = None) -> SpoolFolder | None:
        found = super().take_left_behind(without)
        self.looks.set()
        self.may_end.wait(30)
        return found


def left_behind(path: Path) -> Path:
    """A folder with a store in it, which nobody holds, after one that is taken first."""
    directory = SpoolDirectory(path, "contoso")
    directory.open()
    own, other = directory.take(), directory.take()
    other.store.touch()
    own.release()
    other.release()
    return other.path


def test_a_folder_that_was_taken_while_the_spool_stopped_is_let_go(tmp_path: Path) -> None:
    other = left_behind(tmp_path / "spool")
    directory = SlowDirectory(tmp_path / "spool")
    spool = Spool(directory, ROUTES, bytes_max=10**6)
    spool.start()
    assert directory.looks.wait(10)
    stopping = threading.Thread(target=spool.stop)
    stopping.start()
    stopping.join(0.3)
    directory.may_end.set()
    stopping.join(20)
    assert directory.holders().get(other) is None


def test_a_folder_that_was_being_opened_when_the_spool_stopped_is_let_go(tmp_path: Path) -> None:
    other = left_behind(tmp_path / "spool")
    opens, may_end = threading.Event(), threading.Event()

    class SlowStore(SqliteStore):
        def load(self) -> StoredNamespace:
            opens.set()
            may_end.wait(30)
            return super().load()

    def open_store(path: Path) -> SqliteStore:
        return (SlowStore if path.parent == other else SqliteStore)(path)

    directory = SpoolDirectory(tmp_path / "spool", "contoso")
    spool = Spool(directory, ROUTES, bytes_max=10**6, open_store=open_store)
    spool.start()
    assert opens.wait(10)
    stopping = threading.Thread(target=spool.stop)
    stopping.start()
    stopping.join(0.3)
    may_end.set()
    stopping.join(20)
    assert directory.holders().get(other) is None
