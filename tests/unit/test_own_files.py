"""Files are for their owner only; folders that everybody can write are refused; links of others are not followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from twinbus import own_files
from twinbus.broker.data_directory import KEY_FILE, RULE_KEYS_FILE, make_namespace_directory, namespace_key, rule_keys
from twinbus.broker.net.certificates import CA_FILE, load_or_make_identity, server_names
from twinbus.broker.ops.dump import DUMPS_FOLDER, write_dump
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import StoreError
from twinbus.ledger import Event, Kind, Ledger
from twinbus.ledger.upkeep.expected import EXPECTED_FILE, expect_present
from twinbus.ledger.upkeep.pruning import PrunedProcess
from twinbus.own_files import write_report
from twinbus.spark.compaction.manifest import LOCK, lock_store
from twinbus.storage.local_folder import LocalFolder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def others_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file there is belongs to somebody else."""
    monkeypatch.setattr(own_files, "_is_trusted", lambda user: False)


@pytest.fixture(autouse=True)
def wide_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_ledger_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "ledger"
    with Ledger.at(folder, "shop") as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("one",)))
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert [mode(segment) for segment in folder.iterdir()] == [0o600]


def test_a_ledger_in_a_folder_that_everybody_can_write_is_kept_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o777)
    Ledger.at(tmp_path, "shop").close()
    assert "everybody can write the folder" in caplog.text


def test_a_data_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    home = make_namespace_directory(tmp_path / "data", "contoso")
    namespace_key(home)
    rule_keys(home, ["reader"])
    assert (mode(home), mode(home.parent)) == (0o700, 0o700)
    assert {mode(each) for each in home.iterdir()} == {0o600}


def test_a_key_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("abc\n")
    (tmp_path / KEY_FILE).chmod(0o644)
    assert namespace_key(tmp_path) == "abc"
    assert mode(tmp_path / KEY_FILE) == 0o600


@pytest.mark.parametrize("name", ["data", "data/contoso"])
def test_a_folder_that_everybody_can_write_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    make_namespace_directory(tmp_path / "data", "contoso")
    (tmp_path / name).chmod(0o777)
    with pytest.raises(StoreError, match=r"everybody can write the folder .*chmod o-w"):
        make_namespace_directory(tmp_path / "data", "contoso")


def test_a_data_folder_with_the_sticky_bit_is_taken_and_a_namespaces_own_is_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data").chmod(0o1777)
    home = make_namespace_directory(tmp_path / "data", "contoso")
    home.chmod(0o1777)
    with pytest.raises(StoreError, match="everybody can write"):
        make_namespace_directory(tmp_path / "data", "contoso")


@pytest.mark.usefixtures("others_files")
def test_a_folder_of_somebody_else_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"belongs to another user .*chown"):
        make_namespace_directory(tmp_path, "contoso")


NAMES = server_names("127.0.0.1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPENINGS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "key": (KEY_FILE, namespace_key),
    "rule keys": (RULE_KEYS_FILE, lambda home: rule_keys(home, ["reader"])),
    "store": ("store.sqlite", lambda home: SqliteStore(home / "store.sqlite").load()),
    "log of the store": ("store.sqlite-wal", lambda home: SqliteStore(home / "store.sqlite").load()),
    "lock of the store": ("store.sqlite.lock", lambda home: SqliteStore(home / "store.sqlite").load()),
    "dumps": (DUMPS_FOLDER, lambda home: write_dump(home, "asked", {}, 0)),
    "certificate": (CA_FILE, lambda home: load_or_make_identity(home, NAMES, NOW)),
    "lock of the reports": (LOCK, lambda home: lock_store(LocalFolder(home)).__enter__()),
    "report": ("report.html", lambda home: write_report(home / "report.html", "x")),
}


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.usefixtures("others_files")
def test_a_link_that_somebody_else_planted_is_not_followed(tmp_path: Path, opening: str, is_there: bool) -> None:
    name, open_it = OPENINGS[opening]
    target = tmp_path / "precious"
    if is_there and opening == "dumps":
        target.mkdir()
    elif is_there:
        target.write_text("precious\n")
    (tmp_path / name).symlink_to(target)
    with pytest.raises(StoreError, match=r"a link that another user .* remove it"):
        open_it(tmp_path)
    assert target.exists() == is_there
    assert not target.is_file() or target.read_text() == "precious\n"


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("abc\n")
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    assert namespace_key(tmp_path) == "abc"
    (tmp_path / "report.html").symlink_to(tmp_path / "page.html")
    write_report(tmp_path / "report.html", "x")
    assert (tmp_path / "page.html").read_text() == "x"


def test_a_link_in_the_place_of_a_draft_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious\n")
    for draft in ("key.new", f".{EXPECTED_FILE}.new", "made.json.new"):
        (tmp_path / draft).symlink_to(tmp_path / "precious")
    namespace_key(tmp_path)
    expect_present(tmp_path, [PrunedProcess("host", "shop", 0, 0)])
    LocalFolder(tmp_path).put("made.json", b"{}")
    assert (tmp_path / "precious").read_text() == "precious\n"
