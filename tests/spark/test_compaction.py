"""Segments become Parquet: each record once, each byte read once, whatever state the files are in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_ledger import BASE_MS, Script, make_scenario, without_numbers, write_lines

from twinbus.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from twinbus.ledger import Event, Kind, Ledger, LedgerReader, verify
from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.chunk import Chunk, ChunkResult, compact
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.compaction.manifest import NumberRange, find_holes, join_ranges, overlap
from twinbus.storage import Folder
from twinbus.storage.local_folder import LocalFolder


def rows_of(compacted: CompactedLedger) -> list[dict[str, Any]]:
    tables = [pq.ParquetFile(compacted.store.path() / file).read() for file in compacted.manifest.files]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["process"], row["number"], row["position"]))


def numbers_of(compacted: CompactedLedger) -> list[tuple[str, int]]:
    return [(row["process"], row["number"]) for row in rows_of(compacted) if row["position"] == 0]


def script(process: str, messages: int, *, program: str = "shop") -> Script:
    records = Script(process, program)
    for number in range(messages):
        records.note(BASE_MS + number, Event(Kind.ACCEPTED, "orders", message_ids=(f"{process}-{number}",), sizes=(5,)))
    return records


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger"


def test_every_record_is_there_once_with_all_that_it_said(ledger: Path) -> None:
    make_scenario(5, 400, misfortunes=1).write(ledger, lines_per_segment=100)
    compacted = compact_ledger(read_in_process, ledger)
    records = sorted(LedgerReader(ledger).records(), key=lambda record: (record.process, record.number))
    found = rows_of(compacted)
    assert [(record.process, record.number) for record in records] == numbers_of(compacted)
    first = [row for row in found if row["position"] == 0]
    for name in ("at_ms", "monotonic_us", "kind", "entity", "namespace", "queue", "outcome", "count", "bytes", "host"):
        assert [row[name] for row in first] == [getattr(record, name) for record in records], name
    assert compacted.manifest.records == len(records)
    assert find_coverage(compacted).is_complete


events = st.builds(
    Event,
    kind=st.sampled_from([str(kind) for kind in Kind if kind not in (Kind.OPENED, Kind.CLOSED, Kind.GAP)]),
    entity=st.text(max_size=5),
    message_ids=st.lists(st.text(max_size=4), max_size=4).map(tuple),
    sizes=st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
    session_ids=st.lists(st.sampled_from(["", "a", "ä\n"]), max_size=4).map(tuple),
    count=st.integers(0, 5),
    bytes=st.integers(0, 1 << 50),
    reason=st.text(max_size=5),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(events, max_size=12))
def test_a_step_is_one_message_of_an_event_and_sums_are_kept(tmp_path_factory: Any, records: list[Event]) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    process = Script("00000000000000aa", "any")
    for at, event in enumerate(records):
        process.note(BASE_MS + at, event)
    write_lines(directory, process.process, process.lines())
    found = [
        row for row in rows_of(compact_ledger(read_in_process, directory)) if row["kind"] not in ("opened", "closed")
    ]
    for number, event in enumerate(records, 2):
        rows = [row for row in found if row["number"] == number]
        longest = max(map(len, (event.message_ids, event.sizes, event.session_ids, event.sequence_numbers)))
        assert [row["position"] for row in rows] == list(range(max(longest, 1)))
        assert tuple(row["message_id"] for row in rows)[: len(event.message_ids)] == event.message_ids
        assert tuple(row["size"] for row in rows)[: len(event.sizes)] == event.sizes
        assert [row["session_id"] or "" for row in rows][: len(event.session_ids)] == list(event.session_ids)
        assert (sum(row["count"] for row in rows), sum(row["bytes"] for row in rows)) == (event.count, event.bytes)


def test_days_are_folders(ledger: Path) -> None:
    records = script("00000000000000aa", 1)
    records.note(BASE_MS + 86_400_000, Event(Kind.ACCEPTED, "orders", message_ids=("later",)))
    write_lines(ledger, records.process, records.lines())
    compacted = compact_ledger(read_in_process, ledger)
    folders = {Path(file).parent.name for file in compacted.manifest.files}
    assert folders == {"date=2025-03-09", "date=2025-03-10"}


def test_days_beyond_all_calendars_share_the_nearest_that_one_has(ledger: Path) -> None:
    records = script("00000000000000aa", 1)
    for day in (0, 1, 3, 1000):
        for end_ms in (253_402_300_800_000 + day * 86_400_000, -62_135_596_800_000 - day * 86_400_000):
            records.note(end_ms, Event(Kind.ACCEPTED, "orders", message_ids=("far",)))
    write_lines(ledger, records.process, records.lines())
    compacted = compact_ledger(read_in_process, ledger)
    folders = {Path(file).parent.name for file in compacted.manifest.files}
    assert folders == {"date=0001-01-01", "date=2025-03-09", "date=9999-12-31"}
    assert len(rows_of(compacted)) == compacted.manifest.steps == 11


def test_a_second_run_reads_only_what_is_new(ledger: Path) -> None:
    asked: list[Chunk] = []

    def watched(chunks: list[Chunk], store: Folder) -> list[ChunkResult]:
        asked.extend(chunks)
        return read_in_process(chunks, store)

    with Ledger.at(ledger, "shop") as writing:
        for number in range(50):
            writing.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        assert writing.flush()
        first = compact_ledger(watched, ledger)
        assert first.running == {writing.process}
        writing.record(Event(Kind.ACCEPTED, "orders", message_ids=("one more",)))
        assert writing.flush()
        second = compact_ledger(watched, ledger)
        nothing = compact_ledger(watched, ledger)
    assert [chunk.start for chunk in asked] == [0, first.bytes_read]
    assert 0 < second.bytes_read < first.bytes_read / 10
    assert (nothing.bytes_read, nothing.segments_read) == (0, 0)
    last = compact_ledger(read_in_process, ledger)
    assert [number for _, number in numbers_of(last)] == list(range(1, 54))
    assert find_coverage(last).is_complete


def test_a_line_that_is_being_written_is_left_for_the_next_run(ledger: Path) -> None:
    lines = script("00000000000000aa", 3).lines()
    [path] = write_lines(ledger, "00000000000000aa", lines)
    half = path.stat().st_size - 10
    read = compact(Chunk(path.name, str(path), 0, half, 1, is_growing=True), LocalFolder(ledger / "store"))
    assert read.bytes == half + 10 - len(lines[-1])
    assert read.troubles == []
    ended = compact(Chunk(path.name, str(path), 0, half, 1, is_growing=False), LocalFolder(ledger / "store"))
    assert [(each.defect, each.lines) for each in ended.troubles] == [("torn", [len(lines)])]


@pytest.mark.parametrize("dies_in", ["reading", "saving"])
def test_a_run_that_dies_leaves_nothing_that_counts(
    ledger: Path, dies_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scenario(5, 300, misfortunes=1).write(ledger, lines_per_segment=50)

    def dies(*_: object) -> Any:
        raise KeyboardInterrupt

    def reads_and_dies(chunks: list[Chunk], store: Folder) -> list[ChunkResult]:
        read_in_process(chunks[: len(chunks) // 2], store)
        (store.path() / "steps" / "date=2025-03-09" / ".half.parquet.1.new").write_bytes(b"PAR1")
        return (dies_in == "reading" and dies()) or read_in_process(chunks, store)

    with monkeypatch.context() as patched:
        if dies_in == "saving":
            patched.setattr(manifests, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            compact_ledger(reads_and_dies, ledger)
    assert manifests.load(LocalFolder(ledger / "compacted")).files == []
    compacted = compact_ledger(read_in_process, ledger)
    assert numbers_of(compacted) == sorted({*numbers_of(compacted)})
    assert compacted.manifest.records == verify(ledger).records
    in_folders = [file for file in (ledger / "compacted" / "steps").rglob("*") if file.is_file()]
    assert len(in_folders) == len(compacted.manifest.files)


def change(path: Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def test_damage_is_named_with_its_line_and_the_rest_is_kept(ledger: Path) -> None:
    [path] = write_lines(ledger, "00000000000000aa", script("00000000000000aa", 9).lines())
    change(path, lambda data: data.replace(b"00aa-4", b"00ab-4"))
    compacted = compact_ledger(read_in_process, ledger)
    [trouble] = compacted.manifest.troubles
    assert (trouble.defect, trouble.lines, trouble.count) == ("corrupt", [6], 1)
    assert str(trouble) == f"{path.name}:6: corrupt: the checksum does not match"
    [unknown] = find_coverage(compacted).missing
    assert (unknown.records, unknown.since_ms, unknown.until_ms) == (1, BASE_MS + 3, BASE_MS + 5)
    assert [number for _, number in numbers_of(compacted)] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]


def test_lines_that_are_no_records_are_reported_even_with_a_good_checksum(ledger: Path) -> None:
    from zlib import crc32

    [path] = write_lines(ledger, "00000000000000aa", script("00000000000000aa", 3).lines())
    body = b'{"v":1,"process":"00000000000000aa","number":"two","at_ms":1,"kind":"accepted"'
    change(path, lambda data: data + b'%b,"crc":%d}\n' % (body, crc32(body)) + b"what?\n\xff\xfe\n")
    compacted = compact_ledger(read_in_process, ledger)
    [trouble] = compacted.manifest.troubles
    assert (trouble.defect, trouble.count) == ("corrupt", 3)
    assert compacted.manifest.records == 5


def test_a_number_of_more_than_63_bits_is_reported_and_the_rest_is_kept(ledger: Path) -> None:
    records = script("00000000000000aa", 9)
    for at, number in ((3, 1 << 63), (5, -(1 << 63) - 1), (6, (1 << 63) - 1)):
        records.note(BASE_MS + at, Event(Kind.STORED, "orders", message_ids=("odd",), sequence_numbers=(number,)))
    write_lines(ledger, records.process, records.lines())
    compacted = compact_ledger(read_in_process, ledger)
    [trouble] = compacted.manifest.troubles
    assert (trouble.defect, trouble.lines) == ("corrupt", [6, 9])
    assert [number for _, number in numbers_of(compacted)] == [1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14]
    assert [each.records for each in find_coverage(compacted).missing] == [1, 1]


def test_a_copied_segment_is_a_duplicate_and_changes_nothing(ledger: Path) -> None:
    lines = script("00000000000000aa", 30).lines()
    paths = write_lines(ledger, "00000000000000aa", lines, 10)
    whole = rows_of(compact_ledger(read_in_process, ledger))
    shutil.copy(paths[0], ledger / "copy.jsonl")
    (ledger / "half.jsonl").write_bytes(b"".join(lines[5:15]))
    again = compact_ledger(read_in_process, ledger)
    assert rows_of(again) == whole
    assert {(each.segment, each.defect, each.count) for each in again.manifest.troubles} == {
        ("copy.jsonl", "duplicate", 10),
        ("half.jsonl", "duplicate", 10),
    }
    assert find_coverage(again).is_complete
    shutil.rmtree(ledger / "compacted")
    at_once = compact_ledger(read_in_process, ledger)
    assert rows_of(at_once) == whole


def test_records_of_a_newer_schema_are_counted_as_not_understood(ledger: Path) -> None:
    from zlib import crc32

    lines = script("00000000000000aa", 5).lines()

    def newer(line: bytes) -> bytes:
        body = line.rpartition(b',"crc":')[0].replace(b'"v":1', b'"v":2').replace(b'"kind":', b'"sort":')
        return b'%b,"crc":%d}\n' % (body, crc32(body))

    write_lines(ledger, "00000000000000aa", [*lines[:3], *map(newer, lines[3:5]), *lines[5:]])
    compacted = compact_ledger(read_in_process, ledger)
    assert [(each.defect, each.count) for each in compacted.manifest.troubles] == [("newer", 2)]
    [unknown] = find_coverage(compacted).missing
    assert (unknown.records, unknown.since_ms) == (2, 0)
    assert "newer twinbus" in unknown.reason


def test_fields_and_kinds_that_are_not_known_are_no_trouble(ledger: Path) -> None:
    from zlib import crc32

    line = script("00000000000000aa", 0).lines()[0].rpartition(b',"crc":')[0]
    body = line.replace(b'"kind":"opened"', b'"kind":"yodelled","loudness":[1,{"a":2}]')
    (ledger / "any.jsonl").write_bytes(b'%b,"crc":%d}\n' % (body, crc32(body)))
    compacted = compact_ledger(read_in_process, ledger)
    assert compacted.manifest.troubles == []
    assert [row["kind"] for row in rows_of(compacted)] == ["yodelled"]


def test_a_segment_that_became_shorter_is_reported_and_what_it_said_is_kept(ledger: Path) -> None:
    [path] = write_lines(ledger, "00000000000000aa", script("00000000000000aa", 9).lines())
    compact_ledger(read_in_process, ledger)
    change(path, lambda data: data[:100])
    compacted = compact_ledger(read_in_process, ledger)
    assert [each.defect for each in compacted.manifest.troubles] == ["changed"]
    assert compacted.manifest.records == 11
    path.unlink()
    assert compact_ledger(read_in_process, ledger).manifest.troubles == []


def test_removed_segments_show_as_missing_numbers_unless_they_were_compacted(ledger: Path) -> None:
    paths = write_lines(ledger, "00000000000000aa", script("00000000000000aa", 28).lines(), 10)
    kept = compact_ledger(read_in_process, ledger, ledger / "kept")
    paths[1].unlink()
    assert find_coverage(compact_ledger(read_in_process, ledger, ledger / "kept")).is_complete
    assert kept.manifest.records == 30
    [unknown] = find_coverage(compact_ledger(read_in_process, ledger, ledger / "fresh")).missing
    assert (unknown.records, unknown.reason) == (10, "nobody knows why: were segments removed?")


def test_an_empty_ledger_is_compacted_to_nothing(ledger: Path) -> None:
    (ledger / "empty.jsonl").touch()
    compacted = compact_ledger(read_in_process, ledger)
    assert (compacted.manifest.records, compacted.manifest.files, find_coverage(compacted).records) == (0, [], 0)


def test_a_ledger_that_is_none_and_a_store_that_is_none_are_refused(tmp_path: Path, ledger: Path) -> None:
    with pytest.raises(StoreError, match="there is no ledger in"):
        compact_ledger(read_in_process, tmp_path / "nowhere")
    store = ledger / "compacted"
    with manifests.lock_store(LocalFolder(store)), pytest.raises(StoreInUse):
        compact_ledger(read_in_process, ledger)
    (store / "manifest.json").write_text("{")
    with pytest.raises(StoreDamaged, match="compact the ledger again"):
        compact_ledger(read_in_process, ledger)
    (store / "manifest.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(StoreTooNew):
        compact_ledger(read_in_process, ledger)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="choose another --store"):
        compact_ledger(read_in_process, ledger, tmp_path / "file")


def test_a_store_that_cannot_be_written_is_not_taken_for_a_damaged_ledger(ledger: Path) -> None:
    write_lines(ledger, "00000000000000aa", script("00000000000000aa", 3).lines())
    store = ledger / "store"
    store.mkdir()
    (store / "steps").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="steps cannot be read"):
        compact_ledger(read_in_process, ledger, store)
    assert not (store / "manifest.json").exists()
    (store / "steps").unlink()
    assert compact_ledger(read_in_process, ledger, store).manifest.troubles == []


def test_a_parquet_file_that_is_gone_is_not_overlooked(ledger: Path) -> None:
    write_lines(ledger, "00000000000000aa", script("00000000000000aa", 3).lines())
    compacted = compact_ledger(read_in_process, ledger)
    (compacted.store.path() / compacted.manifest.files[0]).unlink()
    with pytest.raises(StoreError, match="is gone"):
        compact_ledger(read_in_process, ledger)


@pytest.mark.parametrize("seed", range(6))
def test_coverage_is_what_verify_says(ledger: Path, seed: int) -> None:
    """Two readings of the same files by different code."""
    import random

    chance = random.Random(seed)
    for number in range(3):
        records = script(f"{number:016x}", 40)
        lines = records.lines(closed=chance.random() < 0.6)
        missing = {chance.randint(1, len(lines)) for _ in range(chance.choice((0, 0, 3)))}
        kept = without_numbers(lines, missing)
        if chance.random() < 0.3:
            kept[chance.randrange(len(kept))] = b"{}\n"
        if chance.random() < 0.3:
            kept[-1] = kept[-1][:-9]
        write_lines(ledger, records.process, kept, 15)
    compacted = compact_ledger(read_in_process, ledger)
    expected, found = verify(ledger), find_coverage(compacted)
    assert found.records == expected.records
    assert found.is_complete == all(process.is_complete for process in expected.processes)
    of_holes = [(each.process, each.records) for each in found.missing if each.process and each.records is not None]
    assert sorted(of_holes) == sorted((each.process, gap.count) for each in expected.processes for gap in each.missing)
    told_of = {(Path(each.segment).name, each.defect, each.count) for each in found.skipped}
    assert told_of == {(each.file.name, each.defect, each.count) for each in expected.problems}


numbers = st.lists(st.integers(1, 40), max_size=30)


@given(numbers, numbers)
def test_ranges_are_sets_of_numbers(one: list[int], other: list[int]) -> None:
    a, b = (join_ranges(NumberRange(number, number, number, number) for number in each) for each in (one, other))
    assert {number for each in a for number in range(each.first, each.last + 1)} == set(one)
    assert overlap(a, b) == bool(set(one) & set(other))
    missing = {number for hole in find_holes(a) for number in range(hole.first, hole.last + 1)}
    assert missing == set(range(1, max(one, default=0))) - set(one)
    assert all(each.first == each.first_ms and each.last == each.last_ms for each in a)


def test_what_a_killed_process_did_last_is_unknown(ledger: Path) -> None:
    write_lines(ledger, "00000000000000aa", script("00000000000000aa", 5).lines(closed=False))
    killed = compact_ledger(read_in_process, ledger)
    [unknown] = find_coverage(killed).missing
    assert (unknown.records, unknown.since_ms, unknown.until_ms) == (None, BASE_MS + 4, FOREVER_MS)
    assert "did not close its ledger" in unknown.reason
    running = CompactedLedger(killed.store, killed.manifest, frozenset({"00000000000000aa"}), 0, 0)
    assert find_coverage(running).is_complete


@pytest.mark.parametrize(
    ("kinds", "hides"),
    [((Kind.STORED, Kind.DELIVERED), False), ((Kind.SENT_HOME,), False), ((Kind.ACCEPTED,), True), ((), True)],
)
def test_a_namespace_or_syphon_that_was_killed_hides_no_acceptance(
    ledger: Path, kinds: tuple[Kind, ...], hides: bool
) -> None:
    records = Script("00000000000000aa", "somebody")
    for number, kind in enumerate(kinds):
        records.note(BASE_MS + number, Event(kind, "orders", message_ids=("one",), sizes=(5,)))
    write_lines(ledger, records.process, records.lines(closed=False))
    coverage = find_coverage(compact_ledger(read_in_process, ledger))
    assert not coverage.is_complete
    assert coverage.knows_all_accepted != hides


def test_a_torn_last_line_of_a_killed_process_darkens_no_more_than_its_end(ledger: Path) -> None:
    [path] = write_lines(ledger, "00000000000000aa", script("00000000000000aa", 5).lines(closed=False))
    change(path, lambda data: data[:-7])
    compacted = compact_ledger(read_in_process, ledger)
    assert [each.defect for each in compacted.manifest.troubles] == ["torn"]
    [unknown] = find_coverage(compacted).missing
    assert unknown.since_ms == BASE_MS + 3
    other = ledger / "stranger.jsonl"
    other.write_bytes(b"what?\n")
    assert find_coverage(compact_ledger(read_in_process, ledger)).missing_until_ms > BASE_MS * 1000
