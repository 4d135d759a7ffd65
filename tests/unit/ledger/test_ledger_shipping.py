"""Segments are shipped whole, once, and never deleted before their copies are known to be right."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from object_store import new_place

from twinbus.cli.main import run as run_command
from twinbus.errors import OptionsError, StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions
from twinbus.ledger.reading.reader import LedgerReader
from twinbus.ledger.reading.segment_files import find_segments, segments_in
from twinbus.ledger.reading.stats import stats
from twinbus.ledger.reading.tail import LedgerTail
from twinbus.ledger.reading.verify import verify
from twinbus.ledger.upkeep.expected import expect_present
from twinbus.ledger.upkeep.shipping import SHIPPED_FILE, Shipper
from twinbus.storage import open_folder
from twinbus.storage.url_folder import UrlFolder

pytestmark = pytest.mark.usefixtures("s3")

PLACES = ("local", "memory", "s3")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_place(request.param, tmp_path)


def write(directory: Path, events: int = 20, program: str = "shop", *, segment_bytes: int = 1024) -> None:
    with Ledger(LedgerOptions(directory=directory, program=program, segment_bytes_max=segment_bytes)) as ledger:
        for number in range(events):
            ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{program}-{number}",)))
            if number % 5 == 4:
                ledger.flush()


def answer(ledger: Path | str) -> tuple[Any, ...]:
    found = verify(ledger)
    return (
        found.is_complete,
        found.records,
        [(each.process, each.records, each.missing, each.ending) for each in found.processes],
        sorted({each.defect for each in found.problems} - {"duplicate"}),
        [str(each) for each in found.absent],
    )


def run(*arguments: str) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(said):
        code = run_command(["ledger", *arguments])
    return code, said.getvalue()


@pytest.mark.parametrize("compress", [None, "gzip", "zstd"])
def test_a_ledger_that_was_shipped_gives_the_answer_of_the_ledger(tmp_path: Path, place: str, compress: Any) -> None:
    ledger = tmp_path / "ledger"
    write(ledger)
    write(ledger / "below", program="syphon")
    count = len(find_segments(ledger))
    done = Shipper(ledger, place, compress=compress).run()
    assert (len(done.shipped), done.failed, done.waiting) == (count, {}, [])
    assert answer(place) == answer(ledger)
    assert (stats(place).records, stats(place).kinds) == (stats(ledger).records, stats(ledger).kinds)
    last = LedgerTail(place).last(7)
    assert [each.number for each in last] == [each.number for each in LedgerTail(ledger).last(7)]
    assert {name.count("/") for name in done.shipped} == {1}, "a folder for each host"
    again = Shipper(ledger, place).run()
    assert (again.shipped, again.known) == ([], count)
    (ledger / SHIPPED_FILE).unlink()
    assert Shipper(ledger, place, compress="gzip").run().known == count, "in whatever form they are"


def test_a_segment_that_is_written_to_waits(tmp_path: Path) -> None:
    with Ledger(LedgerOptions(directory=tmp_path / "ledger", segment_bytes_max=1024)) as ledger:
        for _ in range(20):
            ledger.record(Event(Kind.PING))
            ledger.flush()
        done = Shipper(tmp_path / "ledger", "memory://waits").run()
        assert len(done.waiting) == 1
        assert not verify("memory://waits").is_complete, "it has not closed its ledger"
    assert len(Shipper(tmp_path / "ledger", "memory://waits").run().shipped) == 1
    assert verify("memory://waits").is_complete


def test_nothing_is_deleted_while_a_copy_is_not_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = tmp_path / "ledger"
    write(ledger)
    before, upload = segments_in(ledger), UrlFolder.upload

    def damage(self: UrlFolder, name: str, source: Path) -> None:
        upload(self, name, source)
        if name.endswith("000002.jsonl"):
            self.put(name, source.read_bytes()[:-2] + b"X\n")

    monkeypatch.setattr(UrlFolder, "upload", damage)
    done = Shipper(ledger, "memory://damaged").run(delete=True)
    assert [name[-12:] for name in done.failed] == ["000002.jsonl"]
    assert [path.name[-12:] for path in segments_in(ledger)] == ["000002.jsonl"]
    assert len(done.deleted) == len(before) - 1
    monkeypatch.undo()
    assert "says something else" in next(iter(Shipper(ledger, "memory://damaged").run(delete=True).failed.values()))
    assert len(segments_in(ledger)) == 1


def test_what_was_deleted_after_shipping_is_missing_here_by_name_and_there_it_is_not(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    write(ledger)
    Shipper(ledger, "memory://moved").run(delete=True, now_ms=time.time_ns() // 1_000_000)
    [process] = verify(ledger).processes
    assert "shipped to memory://moved" in process.missing[0].reason
    assert verify("memory://moved").is_complete


def test_an_older_copy_is_completed_and_another_content_is_left_alone(tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    write(ledger, segment_bytes=1 << 20)
    [name] = Shipper(ledger, place).run().shipped
    there = open_folder(place)
    whole = there.read(name)
    there.put(name, whole[:-30])
    assert Shipper(ledger, place).run().shipped == [name]
    assert there.read(name) == whole
    there.put(name, whole + b"more\n")
    assert len(Shipper(ledger, place).run().failed) == 1
    assert there.read(name) == whole + b"more\n"


def test_a_compressed_segment_that_is_cut_off_makes_the_ledger_incomplete(tmp_path: Path) -> None:
    write(tmp_path, segment_bytes=1 << 20)
    [segment] = segments_in(tmp_path)
    packed = gzip.compress(segment.read_bytes())
    segment.unlink()
    (tmp_path / f"{segment.name}.gz").write_bytes(packed[:-20])
    found = verify(tmp_path)
    assert (found.is_complete, found.records, [each.defect for each in found.problems]) == (False, 0, ["unreadable"])


def test_an_expected_writer_that_was_not_shipped_makes_the_answer_unknown_by_name(tmp_path: Path, place: str) -> None:
    write(tmp_path / "a", program="shop")
    write(tmp_path / "b", program="syphon")
    Shipper(tmp_path / "a", place).run()
    Shipper(tmp_path / "b", place).run()
    reader = LedgerReader(place)
    list(reader.records())
    assert len(expect_present(place, reader.processes.values())) == 2
    assert verify(place).is_complete
    there = open_folder(place)
    theirs = {segment.name for segment in find_segments(tmp_path / "b")}
    there.delete([file.name for file in there.files() if Path(file.name).name in theirs])
    found = verify(place)
    assert not found.is_complete
    assert [each.program for each in found.absent] == ["syphon"]


def test_segments_at_a_url_are_pruned_and_noted(tmp_path: Path, place: str) -> None:
    write(tmp_path / "ledger")
    Shipper(tmp_path / "ledger", place).run()
    code, text = run("prune", place, "--keep", "0", "--yes")
    assert (code, "stays: no report has read it" in text) == (3, True)
    code, text = run("prune", place, "--keep", "0", "--yes", "--unread")
    assert (code, find_segments(place)) == (0, [])
    assert "no report had read them" in verify(place).processes[0].missing[0].reason


def test_what_was_pruned_there_is_not_brought_back(tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    write(ledger)
    write(ledger, program="syphon")
    torn = find_segments(ledger)[-2].path
    torn.write_bytes(torn.read_bytes()[:-4])
    torn.rename(torn.with_name("copied.jsonl"))
    count = len(find_segments(ledger))
    assert len(Shipper(ledger, place).run().shipped) == count
    assert run("prune", place, "--keep", "0", "--yes", "--unread")[0] == 0
    write(ledger, program="new")
    new = len(find_segments(ledger)) - count
    code, text = run("ship", str(ledger), "--to", place, "--json")
    said = json.loads(text)
    assert (code, len(said["shipped"]), len(said["pruned"]), said["failed"]) == (0, new, count, [])
    assert f"{new} were there already, {count} were pruned there" in run("ship", str(ledger), "--to", place)[1]
    assert len(find_segments(place)) == new
    assert Shipper(ledger, place).run(delete=True).deleted, "what has copies"
    assert len(find_segments(ledger)) == count, "what was pruned there may be all there is"


def test_a_segment_with_dropped_numbers_is_not_brought_back_either(tmp_path: Path) -> None:
    ledger, place = tmp_path / "ledger", str(tmp_path / "place")
    write(ledger, segment_bytes=1 << 20)
    [segment] = find_segments(ledger)
    lines = segment.path.read_bytes().splitlines(keepends=True)
    segment.path.write_bytes(b"".join(lines[:5] + lines[9:]))
    Shipper(ledger, place).run()
    assert run("prune", place, "--keep", "0", "--yes", "--unread")[0] == 0
    again = Shipper(ledger, place).run()
    assert (again.shipped, again.pruned) == ([], [segment.name])


def test_a_copy_that_is_not_there_after_it_was_sent_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, segment_bytes=1 << 20)
    with mock.patch.object(UrlFolder, "upload"):
        [why] = Shipper(tmp_path, "memory://forgets").run().failed.values()
    assert "is not what was sent" in why


def test_a_place_is_not_listed_while_nothing_is_finished(tmp_path: Path) -> None:
    with Ledger(LedgerOptions(directory=tmp_path)) as ledger, mock.patch.object(UrlFolder, "files") as listed:
        ledger.record(Event(Kind.PING))
        ledger.flush()
        assert len(Shipper(tmp_path, "memory://idle").run().waiting) == 1
        assert listed.call_count == 0


def test_a_place_is_listed_once_for_each_host_however_much_is_shipped(tmp_path: Path) -> None:
    write(tmp_path, events=100)
    count = len(find_segments(tmp_path))
    with mock.patch.object(UrlFolder, "files", autospec=True, side_effect=UrlFolder.files) as listed:
        assert len(Shipper(tmp_path, "memory://once").run().shipped) == count > 5
    assert listed.call_count == 1


def test_a_host_that_cannot_be_listed_keeps_nothing_of_the_others(tmp_path: Path) -> None:
    for host in ("one", "two"):
        with mock.patch("socket.gethostname", return_value=host):
            write(tmp_path, segment_bytes=1 << 20)
    files, asked = UrlFolder.files, list[str]()

    def files_of_one(self: UrlFolder, below: str = "", **options: Any) -> Any:
        asked.append(below)
        if len(asked) == 2:
            raise StoreError("out of reach")
        return files(self, below, **options)

    with mock.patch.object(UrlFolder, "files", files_of_one):
        done = Shipper(tmp_path, "memory://hosts").run()
    assert [name.partition("/")[0] for name in done.shipped] == asked[:1]
    assert (sorted(asked), list(done.failed.values())) == (["one", "two"], ["out of reach"])
    with mock.patch.object(UrlFolder, "files", side_effect=StoreError("out of reach")), pytest.raises(StoreError):
        Shipper(tmp_path, "memory://hosts").run()
    assert len(Shipper(tmp_path, "memory://hosts").run().shipped) == 1


def test_a_segment_of_which_only_the_beginning_was_pruned_there_is_shipped(tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    write(ledger, segment_bytes=1 << 20)
    [segment] = find_segments(ledger)
    whole = segment.path.read_bytes()
    segment.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))
    Shipper(ledger, place).run()
    assert run("prune", place, "--keep", "0", "--yes", "--unread")[0] == 0
    segment.path.write_bytes(whole)
    assert len(Shipper(ledger, place).run().shipped) == 1


def test_the_command_ships_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "ledger")
    url = new_place("s3", tmp_path)
    code, text = run("ship", str(tmp_path / "ledger"), "--to", url, "--compress", "gzip", "--json")
    said = json.loads(text)
    assert (code, said["failed"], said["waiting"]) == (0, [], [])
    assert all(name.endswith(".jsonl.gz") for name in said["shipped"])
    code, text = run("ship", str(tmp_path / "ledger"), "--to", url, "--once")
    assert (code, f"{len(said['shipped'])} were there already" in text) == (0, True)
    assert run("verify", url)[0] == 0
    assert run("stats", f"{url}-nothing")[0] == 1
    assert run("ship", str(tmp_path / "ledger"), "--to", "s3a://no-such-bucket/x")[0] == 1
    with pytest.raises(OptionsError, match="into itself"):
        Shipper(tmp_path / "ledger", tmp_path / "ledger" / "copies")


# --- random ledgers ---

DAMAGES = ("none", "cut", "gone", "twice", "flipped", "packed", "packed twice")


@given(
    st.lists(st.tuples(st.integers(1, 25), st.sampled_from(DAMAGES)), min_size=1, max_size=3),
    st.sampled_from([None, "gzip", "zstd"]),
    st.integers(0, 5),
    st.sampled_from(("memory", "s3")),
)
@settings(max_examples=25)
def test_whatever_happened_to_a_ledger_its_copy_gives_no_better_answer(
    tmp_path_factory: pytest.TempPathFactory,
    writers: list[tuple[int, str]],
    compress: Any,
    interruption: int,
    kind: str,
) -> None:
    ledger = tmp_path_factory.mktemp("ledger")
    for number, (events, damage) in enumerate(writers):
        write(ledger / f"{number}", events, f"writer{number}")
        spoil(ledger / f"{number}", damage)
    place = new_place(kind, ledger)
    shipper = Shipper(ledger, place, compress=compress)
    total = len(find_segments(ledger))
    with mock.patch.object(UrlFolder, "upload", interrupted_after(interruption)):
        failed = shipper.run().failed
    if failed and len(failed) < total:
        early, whole = answer(place), answer(ledger)
        assert early[1] <= whole[1]
        assert not early[0] or early[2] == [each for each in whole[2] if each[0] in {one[0] for one in early[2]}]
    shipper.run()
    here, there = answer(ledger), answer(place)
    assert unordered(there) == unordered(here) or any(each[1] == "gone" for each in writers)
    assert there[:2] == here[:2] or not there[0]


def unordered(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Endings aside: where there are no locks it is unknown whether a process still runs."""
    return (*found[:2], sorted(each[:3] for each in found[2]), *found[3:])


def interrupted_after(count: int) -> Any:
    left, upload = iter(range(count)), UrlFolder.upload

    def interrupted(self: UrlFolder, name: str, source: Path) -> None:
        if next(left, None) is None:
            raise StoreError("the network is gone")
        upload(self, name, source)

    return interrupted


def spoil(folder: Path, damage: str) -> None:
    *_, segment = paths = segments_in(folder)
    data = segment.read_bytes()
    match damage:
        case "none":
            pass
        case "cut":
            segment.write_bytes(data[:-7])
        case "gone":
            paths[0].unlink()
        case "twice":
            (folder / "again").mkdir()
            shutil.copy(segment, folder / "again" / "copy.jsonl")
        case "flipped":
            segment.write_bytes(data.replace(b"orders", b"others", 1))
        case "packed" | "packed twice":
            (folder / f"{segment.name}.gz").write_bytes(gzip.compress(data))
            if damage == "packed":
                segment.unlink()
        case _:
            raise AssertionError(damage)


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    yield
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
