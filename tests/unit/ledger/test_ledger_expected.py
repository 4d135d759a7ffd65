"""Writers that should be there and are not: a ledger cannot know them, so its owner lists them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from twinbus.errors import OptionsError
from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.ledger.upkeep.expected import EXPECTED_FILE, ExpectedWriter, absent, expect_present, load_expected
from twinbus.ledger.upkeep.pruning import PrunedProcess
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage

HERE = socket.gethostname()


def write_ledger(directory: Path, program: str) -> None:
    with Ledger.at(directory, program) as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))


def expect(directory: Path, text: str) -> None:
    (directory / EXPECTED_FILE).write_text(text, encoding="utf-8")


def test_an_expected_writer_without_a_record_makes_the_answer_unknown_by_name(tmp_path: Path) -> None:
    write_ledger(tmp_path, "shop")
    expect(tmp_path, f'[[writer]]\nhost = "{HERE}"\nprogram = "shop"\n\n[[writer]]\nhost = "web-2"\nprogram = "shop"\n')
    found = verify(tmp_path)
    assert (found.is_complete, [str(each) for each in found.absent]) == (False, ["shop on web-2"])
    coverage = find_coverage(compact_ledger(read_in_process, tmp_path))
    assert (coverage.is_complete, coverage.knows_all_accepted) == (False, False)
    [unknown] = coverage.missing
    assert unknown.program == "shop on web-2"
    assert unknown.reason.startswith("expected.toml expects shop on web-2, and no record is from it")


def test_expected_writers_that_are_there_change_nothing(tmp_path: Path) -> None:
    write_ledger(tmp_path, "shop")
    expect(tmp_path, f'[[writer]]\nhost = "{HERE.upper()}"\n\n[[writer]]\nprogram = "sh?p"\n[[writer]]\nhost = "*"\n')
    assert verify(tmp_path).is_complete
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete


def test_a_writer_is_missed_only_in_the_time_in_which_it_was_expected(tmp_path: Path) -> None:
    seen = PrunedProcess("web-1", "shop", 1_000, 2_000)
    assert absent([ExpectedWriter("web-1", "shop", 0, 500), ExpectedWriter("web-1", "shop", 2_001)], [seen]) == [
        ExpectedWriter("web-1", "shop", 0, 500),
        ExpectedWriter("web-1", "shop", 2_001),
    ]
    assert (
        absent([ExpectedWriter("web-1", "shop", 1_500, 1_600), ExpectedWriter("web-1", "shop", 0, 1_000)], [seen]) == []
    )
    write_ledger(tmp_path, "shop")
    expect(tmp_path, '[[writer]]\nprogram = "shop"\nsince = 2020-01-01T00:00:00Z\nuntil = 2021-01-01T00:00:00Z\n')
    [unknown] = find_coverage(compact_ledger(read_in_process, tmp_path)).missing
    assert (unknown.since_ms, unknown.until_ms) == (1_577_836_800_000, 1_609_459_200_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[writer]\nhost = 1", "is not TOML: .*line 1.*; writers are listed as"),
        ('# ours\n\n[[writers]]\nhost = "a"', "expected.toml:3: 'writers' means nothing; writers are listed as"),
        ('[writer]\nhost = "a"', "writer must be a list of tables, as"),
        (
            '[[writer]]\nhost = "a"\n\n[[writer]]\nhots = "b"',
            "expected.toml:4: 'hots' means nothing, the keys are host",
        ),
        ("[[writer]]\nhost = 5", "expected.toml:1: host must be a text, got 5"),
        ("[[writer]]\n", "expected.toml:1: a writer needs a host or a program"),
        ('[[writer]]\nhost = "a"\nsince = "now"', "since must be a time as 2026-01-31T00:00:00Z, got 'now'"),
        ('[[writer]]\nhost = "a"\nsince = 2026-01-02T00:00:00Z\nuntil = 2026-01-01T00:00:00Z', "since must be before"),
    ],
)
def test_a_list_that_is_none_is_refused_with_file_line_and_what_would_be_right(
    tmp_path: Path, text: str, said: str
) -> None:
    expect(tmp_path, text)
    with pytest.raises(OptionsError, match=said):
        load_expected(tmp_path)


def test_whoever_is_there_can_be_expected_from_now_on(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    seen = [PrunedProcess("web-1", "shop", now_ms, now_ms), PrunedProcess("web-1", 'the "new" [shop]', now_ms, now_ms)]
    assert [str(each) for each in expect_present(tmp_path, seen)] == ["shop on web-1", 'the "new" [shop] on web-1']
    assert absent(load_expected(tmp_path), seen) == []
    assert absent(load_expected(tmp_path), seen[:1]) != []
    assert expect_present(tmp_path, seen) == [], "nobody is listed twice"
    more = PrunedProcess("web-2", "shop", now_ms, now_ms)
    expect(tmp_path, "# by hand\n" + (tmp_path / EXPECTED_FILE).read_text())
    assert [str(each) for each in expect_present(tmp_path, [*seen, more])] == ["shop on web-2"]
    assert (tmp_path / EXPECTED_FILE).read_text().startswith("# by hand\n")
    assert len(load_expected(tmp_path)) == 3
