"""Who runs and who is dead shows in locks, from the first moment of a segment."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import pytest

from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.ledger.reading.segment_files import lock_of, segments_in
from twinbus.ledger.writing.segment import Disk


def test_nobody_sees_a_segment_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    lock = fcntl.flock

    def looked_at_before(file: int, how: int) -> None:
        seen.append(segments_in(tmp_path))
        lock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", looked_at_before)
        file = Disk().create(tmp_path / "a.jsonl")
    assert seen == [[]]
    assert lock_of(tmp_path / "a.jsonl")
    os.close(file)
    assert lock_of(tmp_path / "a.jsonl") is False
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_reader_that_looks_as_a_segment_begins_takes_nobody_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look of a reader is a lock too."""
    opened, looks = os.open, []

    def open_and_be_looked_at(path: Path, flags: int, *mode: int) -> int:
        file = opened(path, flags, *mode)
        for segment in segments_in(tmp_path):
            looks.append(opened(segment, os.O_RDONLY))
            with suppress(BlockingIOError):
                fcntl.flock(looks[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return file

    with Ledger.at(tmp_path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", open_and_be_looked_at)
            ledger.record(Event(Kind.PING))
            assert ledger.flush()
        for look in looks:
            os.close(look)
        assert [each.ending for each in verify(tmp_path).processes] == ["running"]


def test_a_segment_that_cannot_have_its_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("what somebody has recorded")
    with pytest.raises(FileExistsError):
        Disk().create(tmp_path / "a.jsonl")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["what somebody has recorded"]
