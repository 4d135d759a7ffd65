"""Reading a ledger that has been through something: every record once, and every problem by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, LedgerTail, Problem, Record, stats, verify
from twinbus.ledger.lines import CRC_MARK, LINE_BYTES_MAX, LineWriter
from twinbus.ledger.reading.reader import RecordNumbers
from twinbus.ledger.reading.verify import coverage_of


def lines(process: str, numbers: range, kind: str = Kind.ACCEPTED) -> list[bytes]:
    writer = LineWriter(process=process, pid=1, host="here", program="")
    return [
        writer.line(
            Event(kind, "orders", message_ids=(f"{process}{number}",), sizes=(10,)),
            number=number,
            at_ns=number * 1_000_000,
            monotonic_ns=number,
        )
        for number in numbers
    ]


def closing(process: str, number: int) -> bytes:
    writer = LineWriter(process=process, pid=1, host="here", program="")
    return writer.line(Event(Kind.CLOSED), number=number, at_ns=number * 1_000_000, monotonic_ns=number)


def newer(line: bytes) -> bytes:
    fields = json.loads(line) | {"v": 99}
    fields.pop("crc")
    body = json.dumps(fields).encode()[:-1]
    return b"%b%b%d}\n" % (body, CRC_MARK, crc32(body))


def read(directory: Path) -> tuple[list[Record], list[Problem]]:
    reader = LedgerReader(directory)
    return list(reader.records()), reader.problems


def summary(problems: list[Problem]) -> list[tuple[str, str, list[int], int]]:
    return [(problem.file.name, problem.defect, problem.lines, problem.count) for problem in problems]


def test_an_empty_directory_is_a_complete_ledger_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert verify(tmp_path).is_complete
    with pytest.raises(StoreError, match="nowhere"):
        verify(tmp_path / "nowhere")


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    assert read(tmp_path) == ([], [])


def test_each_problem_has_its_file_and_line_and_hides_nothing_around_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines("a", range(1, 4))) + b"garbage\n" + closing("a", 4))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines("b", range(1, 3))) + lines("b", range(3, 4))[0][:-9])
    (tmp_path / "c.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes())
    (tmp_path / "d.jsonl").write_bytes(lines("d", range(1, 2))[0] + newer(lines("d", range(2, 3))[0]))
    (tmp_path / "e.jsonl").symlink_to("nowhere")
    records, problems = read(tmp_path)
    assert [record.message_ids for record in records if record.message_ids] == [
        ("a1",), ("a2",), ("a3",), ("b1",), ("b2",), ("d1",),
    ]  # fmt: skip
    assert summary(problems) == [
        ("a.jsonl", "corrupt", [4], 1),
        ("b.jsonl", "torn", [3], 1),
        ("c.jsonl", "duplicate", [1, 2, 3, 5], 4),
        ("c.jsonl", "corrupt", [4], 1),
        ("d.jsonl", "newer", [2], 1),
        ("e.jsonl", "unreadable", [], 1),
    ]
    assert str(problems[0]).startswith(f"{tmp_path / 'a.jsonl'}:4: corrupt: ")


def test_a_record_that_is_damaged_in_one_copy_is_taken_from_the_other(tmp_path: Path) -> None:
    whole = lines("a", range(1, 6))
    (tmp_path / "1.jsonl").write_bytes(b"".join([*whole[:2], whole[2].replace(b"a3", b"a9"), *whole[3:]]))
    (tmp_path / "2.jsonl").write_bytes(b"".join(whole) + closing("a", 6))
    records, problems = read(tmp_path)
    assert sorted(record.number for record in records) == [1, 2, 3, 4, 5, 6]
    assert [problem.defect for problem in problems] == ["corrupt", "duplicate"]
    assert verify(tmp_path).processes[0].is_complete


def test_a_last_line_that_lacks_only_its_end_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines("a", range(1, 3)))[:-1])
    records, problems = read(tmp_path)
    assert ([record.number for record in records], problems) == ([1, 2], [])


def test_a_line_without_end_is_not_taken_into_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(3 * LINE_BYTES_MAX)
        file.seek(0, 2)
        file.write(b"\n" + lines("a", range(1, 2))[0])
    records, problems = read(tmp_path)
    assert [record.number for record in records] == [1]
    assert summary(problems) == [("a.jsonl", "corrupt", [1], 1)]


def test_a_removed_segment_shows_as_missing_records_that_nobody_explains(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b"".join(lines("a", range(1, 10))))
    (tmp_path / "3.jsonl").write_bytes(b"".join(lines("a", range(20, 30))) + closing("a", 30))
    (process,) = verify(tmp_path).processes
    (gap,) = process.missing
    assert (gap.first, gap.last, gap.count, gap.reason) == (10, 19, 10, "")
    assert (process.records, process.last_number, process.ending) == (20, 30, "closed")
    assert not process.is_complete


def test_a_process_that_goes_on_while_it_is_read_was_running(tmp_path: Path) -> None:
    with Ledger(LedgerOptions(directory=tmp_path, segment_bytes_max=1024, free_bytes_min=0)) as ledger:
        ledger.record(Event(Kind.PING))
        ledger.flush()
        reader = LedgerReader(tmp_path)
        for _ in range(20):
            ledger.record(Event(Kind.PING))
            ledger.flush()
    assert len(list(reader.records())) < 22
    found = coverage_of(reader)
    assert found.processes[0].ending == "running"
    assert found.is_complete


def test_records_of_a_newer_schema_are_there_but_the_ledger_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines("a", range(1, 2))[0] + newer(lines("a", range(2, 3))[0]) + closing("a", 3))
    found = verify(tmp_path)
    (process,) = found.processes
    assert (process.missing, process.not_understood, process.records) == ((), 1, 3)
    assert not found.is_complete


def test_an_event_that_could_not_be_written_down_is_named_and_the_ledger_is_not_complete(tmp_path: Path) -> None:
    writer = LineWriter(process="a", pid=1, host="here", program="")
    rejected = writer.line(Event(Kind.PING, reason="\ud800"), number=2, at_ns=2_000_000, monotonic_ns=2)
    (tmp_path / "a.jsonl").write_bytes(lines("a", range(1, 2))[0] + rejected + closing("a", 3))
    found = verify(tmp_path)
    assert not found.is_complete
    assert [(each.rejected, each.missing, each.is_complete) for each in found.processes] == [(1, (), False)]
    assert summary(list(found.problems)) == [("a.jsonl", "rejected", [2], 1)]
    assert found.problems[0].text.startswith("an event could not be written down: UnicodeEncodeError")


def test_stats_count_messages_and_bytes_by_kind_and_entity(tmp_path: Path) -> None:
    writer = LineWriter(process="a", pid=1, host="here", program="")
    events = [
        Event(Kind.ACCEPTED, "orders", message_ids=("1", "2"), sizes=(10, 20)),
        Event(Kind.ACCEPTED, "bills", message_ids=("3",), sizes=(5,)),
        Event(Kind.LONG_POLL, count=3),
        Event("teleported", "orders", bytes=7),
    ]
    (tmp_path / "a.jsonl").write_bytes(
        b"".join(writer.line(event, number=at, at_ns=at * 10**9, monotonic_ns=0) for at, event in enumerate(events, 1))
    )
    counted = stats(tmp_path)
    assert (counted.records, counted.processes, counted.segments, counted.problems) == (4, 1, 1, 0)
    assert (counted.first_ms, counted.last_ms) == (1000, 4000)
    accepted = counted.kinds["accepted"]
    assert (accepted.events, accepted.messages, accepted.bytes) == (2, 3, 35)
    assert counted.kinds["long_poll"].messages == 3
    assert counted.entities["orders"]["teleported"].bytes == 7
    assert set(counted.entities) == {"orders", "bills"}


def test_the_tail_has_the_newest_of_all_processes_by_time(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines("a", range(1, 2000))))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines("b", range(1500, 1998))))
    end = LedgerTail(tmp_path)
    assert [record.message_ids[0] for record in end.last(5)] == ["b1996", "a1997", "b1997", "a1998", "a1999"]
    assert len(LedgerTail(tmp_path).last(10_000)) == 1999 + 498
    assert end.last(0) == []


def test_the_tail_opens_segments_whose_file_systems_tell_the_time_in_steps_of_two_seconds(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines("a", range(10, 12))))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines("b", range(10, 13))))
    last_ms = LedgerTail(tmp_path).last(1)[0].at_ms
    os.utime(tmp_path / "a.jsonl", ns=(0, last_ms * 10**6))
    os.utime(tmp_path / "b.jsonl", ns=(0, (last_ms - 1_999) * 10**6))
    assert [record.message_ids[0] for record in LedgerTail(tmp_path).last(1)] == ["b12"]


def test_the_tail_goes_on_with_what_is_added_and_waits_for_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines("a", range(1, 4))))
    end = LedgerTail(tmp_path, lambda record: record.number != 5)
    assert len(end.last(10)) == 3
    assert end.added() == []
    more = b"".join(lines("a", range(4, 8)))
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(more[:-10])
    assert [record.number for record in end.added()] == [4, 6]
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(more[-10:])
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines("b", range(1, 3))))
    assert [(record.process, record.number) for record in end.added()] == [("b", 1), ("b", 2), ("a", 7)]


def test_the_tail_misses_no_line_that_was_being_written_when_it_began(tmp_path: Path) -> None:
    """And has none twice, if only its end was not there yet."""
    whole = b"".join(lines("a", range(1, 4)))
    for size in range(len(whole) + 1):
        (tmp_path / "a.jsonl").write_bytes(whole[:size])
        end = LedgerTail(tmp_path)
        found = end.last(10)
        for more in (size + 1, len(whole)):
            (tmp_path / "a.jsonl").write_bytes(whole[:more])
            found += end.added()
        assert [record.number for record in found] == [1, 2, 3], size


@pytest.mark.parametrize("count", [1, 3])
def test_the_tail_waits_for_a_long_line_and_passes_over_one_that_is_too_long(tmp_path: Path, count: int) -> None:
    writer = LineWriter(process="a", pid=1, host="here", program="")
    long = Event(Kind.PING, entity="x" * 200_000)
    line = b"".join(writer.line(long, number=at, at_ns=at, monotonic_ns=at) for at in range(1, count + 1))
    path = tmp_path / "a.jsonl"
    path.write_bytes(line[:-100_000])
    end = LedgerTail(tmp_path)
    assert len(end.last(10)) == count - 1
    path.write_bytes(line)
    assert [record.number for record in end.added()] == [count]
    (tmp_path / "b.jsonl").write_bytes(b"x" * (LINE_BYTES_MAX + 10))
    assert end.added() == []
    (tmp_path / "b.jsonl").write_bytes(b"x" * (LINE_BYTES_MAX + 10) + b"\n" + line)
    assert len(end.added()) == count


@given(st.lists(st.integers(1, 40)))
def test_numbers_behave_like_a_set(numbers: list[int]) -> None:
    ranges, model = RecordNumbers(), set[int]()
    for number in numbers:
        assert ranges.add(number) == (number not in model)
        model.add(number)
        last = max(model)
        assert (ranges.count(), ranges.last) == (len(model), last)
        assert {each for first, end in ranges.missing() for each in range(first, end + 1)} == (
            set(range(1, last + 1)) - model
        )
