"""The same promises for every place: a folder of this machine, memory, and an S3 server."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from object_store import PLACES, new_place

from twinbus.errors import OptionsError, StoreError, StoreInUse
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.verdict_files import VerdictFiles
from twinbus.storage import Folder, lease, open_folder
from twinbus.storage.local_folder import LocalFolder
from twinbus.storage.url_folder import UrlFolder

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture(params=PLACES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return open_folder(new_place(request.param, tmp_path))


def names(folder: Folder, below: str = "") -> list[str]:
    return [file.name for file in folder.files(below)]


def test_a_folder_that_does_not_exist_has_no_files(folder: Folder) -> None:
    assert folder.files() == []
    assert not folder.exists("a")
    with pytest.raises(FileNotFoundError):
        folder.read("a")
    with pytest.raises(FileNotFoundError):
        folder.open("a")


def test_what_is_put_can_be_read_listed_and_deleted(folder: Folder) -> None:
    folder.put("b/c/d.txt", b"deep")
    folder.put("a.txt", b"one\ntwo\n")
    assert [(file.name, file.bytes) for file in folder.files()] == [("a.txt", 8), ("b/c/d.txt", 4)]
    assert all(file.modified_ms > 1_600_000_000_000 for file in folder.files())
    assert names(folder, "b") == ["b/c/d.txt"]
    assert names(folder.below("b")) == ["c/d.txt"]
    assert folder.below("b").read("c/d.txt") == b"deep"
    with folder.open("a.txt") as file:
        file.seek(4)
        assert file.readline() == b"two\n"
        file.seek(0)
        assert list(file) == [b"one\n", b"two\n"]
    folder.delete(["a.txt", "never/there"])
    assert names(folder) == ["b/c/d.txt"]


def test_one_file_is_found_as_it_is_listed_without_a_listing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("b/c", b"one")
    folder.put("b/d", b"three")
    listed = folder.files()
    for kind in (UrlFolder, LocalFolder):
        monkeypatch.setattr(kind, "files", None)
    assert [folder.file("b/c"), folder.file("b/d")] == listed
    assert [folder.file(name) for name in ("b", "b/", "c", "b/c/d")] == [None] * 4
    folder.delete(["b/c"])
    assert folder.file("b/c") is None
    folder.put("b/d", b"another")
    found = folder.file("b/d")
    assert found is not None
    assert (found.bytes, found.version != listed[1].version) == (7, True)


def test_another_content_has_another_version(folder: Folder) -> None:
    folder.put("a", b"1")
    before = folder.files()
    folder.put("a", b"2")
    after = folder.files()
    assert folder.read("a") == b"2"
    assert before[0].version != after[0].version


def test_a_name_that_begins_alike_is_in_another_folder(folder: Folder) -> None:
    folder.put("led/a", b"1")
    folder.put("ledger/a", b"2")
    assert names(folder, "led") == ["led/a"]
    assert names(folder.below("led")) == ["a"]


def test_a_file_is_uploaded_as_it_is(folder: Folder, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(300_000))
    folder.upload("x/y", source)
    assert folder.read("x/y") == source.read_bytes()


def test_of_many_that_create_a_file_one_succeeds(folder: Folder) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda each: folder.create("claim", b"%d" % each), range(8)))
    assert made.count(True) == 1
    assert folder.read("claim") == b"%d" % made.index(True)
    assert names(folder) == ["claim"]


def test_folders_that_are_not_wanted_are_left_out(folder: Folder) -> None:
    for name in ("a/x", "store/manifest", "store/deep/x", "b/store2/x"):
        folder.put(name, b"1")
    found = folder.files(skip=lambda files, folders: "manifest" in files and "deep" in folders)
    assert [file.name for file in found] == ["a/x", "b/store2/x"]


def test_a_lock_keeps_out_others_until_it_is_released(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    with folder.lock("lock") as held:
        held.check()
        with pytest.raises(StoreInUse), folder.lock("lock"):
            pass
        with folder.lock("other"):
            pass
    for _ in range(2):
        with folder.lock("lock") as held:
            held.check()


def test_a_lock_ends_with_a_process_that_was_killed(folder: Folder) -> None:
    if folder.url.startswith("memory"):
        return  # memory is of one process
    program = "import sys; from twinbus.storage import open_folder\n"
    program += "with open_folder(sys.argv[1]).lock('lock'): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, folder.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with folder.lock("lock") as held:
        held.check()


def test_a_holder_that_sleeps_too_long_notices_that_it_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder("memory://lease-of-a-sleeper")
    monkeypatch.setattr(lease, "LEASE_S", 0.2)
    with folder.lock("lock") as sleeper:
        with folder.lock("lock") as taker:
            taker.check()
            with pytest.raises(StoreInUse, match="taken over"):
                sleeper.check()
        with pytest.raises(StoreInUse):
            sleeper.check()
    with folder.lock("lock") as held:
        held.check()


def test_of_many_that_want_a_dead_holders_lease_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder("memory://lease-of-the-dead")
    monkeypatch.setattr(lease, "LEASE_S", 0.2)
    dead = b'{"holder":"a","host":"elsewhere","place":"x","pid":1}'
    folder.put("lock.lease/000000007", dead)
    got, done = [], threading.Barrier(4)

    def take() -> None:
        try:
            with folder.lock("lock") as held:
                held.check()
                got.append(held)
                done.wait(10)
        except StoreInUse:
            done.wait(10)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_a_folder_can_be_sent_to_another_process(folder: Folder) -> None:
    folder.put("a", b"1")
    assert pickle.loads(pickle.dumps(folder)).read("a") == b"1"


def test_parquet_is_written_and_read_without_spark(folder: Folder) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    fs, root = folder.arrow_filesystem()
    fs.create_dir(f"{root}/t", recursive=True)
    pq.write_table(pa.table({"a": [1, 2]}), f"{root}/t/x.parquet", filesystem=fs)
    assert names(folder) == ["t/x.parquet"]
    assert pq.read_table(f"{root}/t/x.parquet", filesystem=fs).to_pydict() == {"a": [1, 2]}


# --- of one kind ---


def test_copies_of_private_files_are_private(tmp_path: Path) -> None:
    private, usual = tmp_path / "private", tmp_path / "usual"
    private.touch(0o600)
    usual.touch(0o644)
    folder = open_folder(tmp_path / "copies")
    folder.upload("private", private)
    folder.upload("usual", usual)
    folder.put("mine", b"", private=True)
    modes = {file.name: stat.S_IMODE((folder.path() / file.name).stat().st_mode) for file in folder.files()}
    assert modes == {"private": 0o600, "usual": 0o644, "mine": 0o600}


def test_a_path_and_its_url_are_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    spaced = str(folder).replace(" ", "%20")
    for location in (str(folder), f"file://{spaced}", f"file:{spaced}", f"file://localhost{spaced}"):
        assert open_folder(location).path() == folder
    assert open_folder(folder).url == str(folder)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host/x", "ftp:// is not a place"),
        ("file://otherhost/x", "not a folder of this machine"),
        ("dbfs:/Volumes/main/shop/x", "dbfs:// is not a place .* e.g. /Volumes/main/shop/x$"),
        ("dbfs:/x", "e.g. /dbfs/x$"),
        ("s3a://", "'s3a://' does not say which bucket, container or host: write s3a://NAME/path"),
        ("s3a:/bucket/x", "does not say which bucket"),
        ("gs:///x", "does not say which bucket"),
        ("hdfs:/", "does not say which bucket"),
        ("", "an empty text is not a place"),
        ("s3a://key:secret@bucket/x", "credentials come from the environment"),
        ("abfss://c@a.dfs.core.windows.net/x?sig=secret", "credentials come from the environment"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_their_secrets(url: str, says: str) -> None:
    with pytest.raises(OptionsError, match=says) as refused:
        open_folder(url)
    assert "secret" not in str(refused.value)


def test_capital_letters_of_a_scheme_do_not_matter(tmp_path: Path) -> None:
    open_folder("memory://capitals/x").put("a", b"1")
    folder = open_folder("MEMORY://capitals/x")
    assert (folder.url, folder.read("a")) == ("memory://capitals/x", b"1")
    assert open_folder("S3A://Bucket/X").url == "s3a://Bucket/X"
    assert open_folder(f"FILE://{tmp_path}").path() == tmp_path


@pytest.mark.parametrize("url", ["hdfs:/a/b", "hdfs:///a/b", "HDFS:/a/b/"])
def test_a_url_of_hdfs_needs_no_host(url: str) -> None:
    folder = open_folder(url)
    assert folder.url == "hdfs:///a/b"
    with pytest.raises(OptionsError, match="cannot be replaced in one step"):
        folder.put("x", b"")


def test_nothing_is_replaced_where_a_crash_would_leave_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = fsspec.filesystem("memory")
    monkeypatch.setattr(UrlFolder, "_fs", lambda folder: (there, folder.url.partition("host")[2]))
    folder = open_folder("hdfs://host/replaced")
    assert folder.create("manifest.json", b"1")
    for change in (
        lambda: folder.put("manifest.json", b"2"),
        lambda: folder.lock("lock").__enter__(),
        lambda: compact_ledger(read_in_process, tmp_path, folder.url),
        lambda: VerdictFiles(folder.url).check(),
    ):
        with pytest.raises(OptionsError, match=r"cannot be replaced in one step.*webhdfs://host:port/path"):
            change()
    (tmp_path / "segment").write_bytes(b"3")
    folder.upload("copies/segment", tmp_path / "segment")
    assert [(file.name, folder.read(file.name)) for file in folder.files()] == [
        ("copies/segment", b"3"),
        ("manifest.json", b"1"),
    ]


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(OptionsError, match=r"pip install 'twinbus\[gcs\]'"):
        open_folder("gs://bucket/x").files()


def test_a_bucket_that_does_not_exist_is_an_error_with_its_url() -> None:
    folder = open_folder("s3a://no-such-bucket/x")
    with pytest.raises(StoreError, match="s3a://no-such-bucket/x cannot be listed"):
        folder.files()
    with pytest.raises(StoreError, match="s3a://no-such-bucket/x/a cannot be written"):
        folder.put("a", b"1")


def test_a_url_has_no_path() -> None:
    with pytest.raises(StoreError, match="not a folder of this machine"):
        open_folder("memory://x").path()
