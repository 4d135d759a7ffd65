"""Any events, any crash, any refusal of the disk: what was flushed is read back, and nothing is invented."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_disks import RefusingDisk

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, Record, verify
from twinbus.ledger.schema import EVENT_FIELDS
from twinbus.ledger.writing.record_writer import OWN_KINDS

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
EVENTS = st.builds(
    Event,
    kind=st.one_of(st.sampled_from(Kind), TEXTS).filter(lambda kind: kind not in OWN_KINDS),
    entity=TEXTS,
    namespace=TEXTS,
    queue=TEXTS,
    message_ids=st.lists(TEXTS, max_size=3).map(tuple),
    sizes=st.lists(NUMBERS, max_size=3).map(tuple),
    session_ids=st.lists(TEXTS, max_size=3).map(tuple),
    sequence_numbers=st.lists(NUMBERS, max_size=3).map(tuple),
    count=NUMBERS,
    outcome=TEXTS,
    condition=TEXTS,
    reason=TEXTS,
    until_ms=NUMBERS,
)
PLACES = st.integers(0, 2**20)
"""A byte of a file whose length is not the same every time, as checksums are not."""


@contextmanager
def a_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def content(event: Event) -> list[object]:
    return [getattr(event, name) for name in EVENT_FIELDS]


def own_records(records: list[Record]) -> list[Record]:
    return [record for record in records if record.kind not in OWN_KINDS]


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=20), st.integers(1024, 4000))
def test_any_events_are_read_back_as_they_were_recorded(events: list[Event], segment_bytes_max: int) -> None:
    with a_directory() as directory:
        options = LedgerOptions(directory=directory, segment_bytes_max=segment_bytes_max, free_bytes_min=0)
        with Ledger(options) as ledger:
            for event in events:
                ledger.record(event)
        reader = LedgerReader(directory)
        records = list(reader.records())
        assert reader.problems == []
        assert [content(record) for record in own_records(records)] == [content(event) for event in events]


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=8), PLACES)
def test_a_crash_at_any_byte_leaves_the_lines_before_it_and_nothing_else(events: list[Event], place: int) -> None:
    with a_directory() as directory:
        with Ledger(LedgerOptions(directory=directory, free_bytes_min=0)) as ledger:
            for event in events:
                ledger.record(event)
        (segment,) = directory.iterdir()
        whole = segment.read_bytes()
        before = list(LedgerReader(directory).records())
        cut = place % len(whole)
        segment.write_bytes(whole[:cut])
        reader = LedgerReader(directory)
        left = list(reader.records())
        flushed = whole[:cut].count(b"\n")
        is_whole_but_for_its_end = whole[cut : cut + 1] == b"\n"
        assert left == before[: flushed + is_whole_but_for_its_end]
        torn = cut > 0 and not whole[:cut].endswith(b"\n") and not is_whole_but_for_its_end
        assert [problem.defect for problem in reader.problems] == ["torn"] * torn


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.dictionaries(PLACES, st.integers(1, 255), min_size=1, max_size=4))
def test_damage_to_any_byte_never_invents_a_record(events: list[Event], damage: dict[int, int]) -> None:
    with a_directory() as directory:
        with Ledger(LedgerOptions(directory=directory, free_bytes_min=0)) as ledger:
            for event in events:
                ledger.record(event)
        (segment,) = directory.iterdir()
        before = {record.number: record for record in LedgerReader(directory).records()}
        damaged = bytearray(segment.read_bytes())
        for place, bits in damage.items():
            damaged[place % len(damaged)] ^= bits
        segment.write_bytes(damaged)
        assert all(before[record.number] == record for record in LedgerReader(directory).records())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(1, 200)),
        st.tuples(st.just("room"), st.one_of(st.none(), st.integers(0, 3000))),
        st.tuples(st.just("cuts back"), st.integers(0, 1)),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(STEPS)
def test_however_the_disk_refuses_every_event_is_there_once_or_in_a_gap(steps: list[tuple[str, int | None]]) -> None:
    with a_directory() as directory:
        disk, recorded = RefusingDisk(), 0
        options = LedgerOptions(directory=directory, memory_bytes_max=65536, segment_bytes_max=4096, free_bytes_min=0)
        with Ledger(options, disk=disk) as ledger:
            for step, value in steps:
                if step == "record":
                    for _ in range(value or 0):
                        ledger.record(Event(Kind.ACCEPTED, message_ids=(f"{recorded}",)))
                        recorded += 1
                elif step == "room":
                    disk.room = value
                elif step == "cuts back":
                    disk.cuts_back = bool(value)
                else:
                    ledger.flush()
            disk.room = None
        records = list(LedgerReader(directory).records())
        ids = [int(record.message_ids[0]) for record in own_records(records)]
        missing = sum(record.missing_last - record.missing_first + 1 for record in records if record.kind == Kind.GAP)
        assert ids == sorted(set(ids))
        assert len(ids) + missing == recorded
        assert ledger.health().lost == missing
        assert {problem.defect for problem in verify(directory).problems} <= {"torn", "duplicate"}
        if recorded:
            (process,) = verify(directory).processes
            assert process.missing_count == missing
            assert process.ending == "closed"
