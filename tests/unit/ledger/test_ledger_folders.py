"""Segments are found wherever they are below the folder of a ledger, by everybody who reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinbus.errors import StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerTail, stats, verify
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.spark.compaction.compaction import compact_ledger, find_new_chunks, read_in_process
from twinbus.spark.compaction.coverage import find_coverage


def write_ledger(directory: Path, *ids: str, program: str = "shop") -> None:
    with Ledger.at(directory, program) as ledger:
        for each in ids:
            ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(each,)))


def test_segments_in_folders_at_any_depth_are_read_by_all_who_read(tmp_path: Path) -> None:
    write_ledger(tmp_path, "top")
    write_ledger(tmp_path / "web-1", "one", "two")
    write_ledger(tmp_path / "web-2" / "2025" / "03", "deep")
    assert len(segments_in(tmp_path)) == 3
    assert verify(tmp_path).records == stats(tmp_path).records == 10
    assert sorted(each.message_ids[0] for each in LedgerTail(tmp_path).last(100) if each.message_ids) == [
        "deep",
        "one",
        "top",
        "two",
    ]
    compacted = compact_ledger(read_in_process, tmp_path)
    assert (compacted.manifest.records, find_coverage(compacted).is_complete) == (10, True)
    assert [name.count("/") for name in sorted(compacted.manifest.segments, key=len)] == [0, 1, 3]
    assert compact_ledger(read_in_process, tmp_path).bytes_read == 0, "nothing is read twice"


def test_folders_with_segments_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_ledger(tmp_path / folder, folder)
        next((tmp_path / folder).iterdir()).rename(tmp_path / folder / "day.jsonl")
    compacted = compact_ledger(read_in_process, tmp_path)
    assert sorted(compacted.manifest.segments) == ["a/day.jsonl", "b/day.jsonl"]
    assert (compacted.manifest.records, len(set(compacted.manifest.files))) == (6, 2)


def test_a_copy_of_a_segment_in_another_folder_adds_nothing(tmp_path: Path) -> None:
    write_ledger(tmp_path, "one")
    [segment] = segments_in(tmp_path)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / segment.name).write_bytes(segment.read_bytes())
    compacted = compact_ledger(read_in_process, tmp_path)
    assert (compacted.manifest.records, find_coverage(compacted).is_complete) == (3, True)
    assert verify(tmp_path).is_complete


def test_a_store_below_the_ledger_and_a_link_that_leads_back_are_no_part_of_it(tmp_path: Path) -> None:
    write_ledger(tmp_path / "web", "one")
    (tmp_path / "web" / "again").symlink_to(tmp_path, target_is_directory=True)
    compact_ledger(read_in_process, tmp_path, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "steps" / "odd.jsonl").write_text("not a segment")
    assert [each.parent.name for each in segments_in(tmp_path)] == ["web"]


def test_a_segment_that_moves_into_another_folder_is_not_counted_twice(tmp_path: Path) -> None:
    write_ledger(tmp_path, "one")
    compact_ledger(read_in_process, tmp_path)
    [segment] = segments_in(tmp_path)
    (tmp_path / "old").mkdir()
    segment.rename(tmp_path / "old" / segment.name)
    compacted = compact_ledger(read_in_process, tmp_path)
    assert (compacted.manifest.records, find_coverage(compacted).is_complete) == (3, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_ledger(tmp_path / "web", "one")
    (tmp_path / "web").chmod(0)
    try:
        with pytest.raises(StoreError, match=r"web cannot be read: .*; make it readable"):
            segments_in(tmp_path)
    finally:
        (tmp_path / "web").chmod(0o755)


def test_where_there_is_no_ledger_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (("nowhere", "no such folder"), ("file", "not a folder")):
        with pytest.raises(StoreError, match=f"there is no ledger in .*{name}: {why}"):
            segments_in(tmp_path / name)


def test_what_is_new_is_named_by_its_path_below_the_ledger(tmp_path: Path) -> None:
    from twinbus.ledger.reading.segment_files import segments_and_held
    from twinbus.spark.compaction.manifest import Manifest

    write_ledger(tmp_path / "web", "one")
    [chunk] = find_new_chunks(segments_and_held(tmp_path), Manifest())
    assert chunk.segment.startswith("web/")
