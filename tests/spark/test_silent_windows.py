"""A window in which writers are silent: the answer is *nothing lost* only if it is proven that they were idle."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from scripted_ledger import BASE_MS, MINUTE
from small_ledger import SmallLedger, small_ledger

from twinbus.cli.main import run
from twinbus.cli.pipeline.pipeline import exit_code, report_text
from twinbus.cost.prices import Prices
from twinbus.ledger import Kind
from twinbus.ledger.reading.process_end import LastRecord, ProcessEnd, ProcessProbe
from twinbus.ledger.reading.segment_files import STORE_FOLDER, segments_and_held
from twinbus.ledger.upkeep.expected import EXPECTED_FILE
from twinbus.ledger.upkeep.pruning import Pruned, PrunedProcess, save_pruned
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.report.page import page
from twinbus.spark.transforms.selection import LedgerSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.jobs.findings import Findings

pytestmark = pytest.mark.usefixtures("spark")


def at(minute: float) -> int:
    return BASE_MS + round(minute * MINUTE)


def report(spark: SparkSession, ledger: Path, since: float | None, until: float | None) -> Findings:
    """Of a window, in minutes."""
    from twinbus.spark.jobs.analysis import ChosenMessages, analyse

    compacted = compact_ledger(read_in_process, ledger)
    window = LedgerSelection(None if since is None else at(since), None if until is None else at(until))
    chosen = ChosenMessages(window)
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, chosen=chosen)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallLedger]:
    """Two shops that sent until minute 60 and closed, and two that go on until minute 200, and a namespace."""
    with small_ledger(tmp_path) as small:
        namespace = small.writer("contoso", closed_at=300)
        for number in range(1, 5):
            shop = small.writer(f"shop-{number}")
            for minute in (10, 60) if number < 3 else (10, 60, 150, 200):
                shop.accepted(minute, "orders", f"{number}-{minute}")
                namespace.through(minute + 0.1, "orders", f"{number}-{minute}")
        yield small


@contextmanager
def kept_end(ledger: Path, until_ms: int) -> Iterator[None]:
    """Processes that were killed had ended by then, as one may know who reads the ledger at once."""

    def end_of(_self: ProcessProbe, last: LastRecord) -> ProcessEnd:
        return ProcessEnd(False, until_ms, "it was killed")

    with mock.patch.object(ProcessProbe, "end_of", end_of):
        yield


def expect(ledger: Path, *programs: str) -> None:
    (ledger / EXPECTED_FILE).write_text("".join(f'[[writer]]\nprogram = "{each}"\n' for each in programs))


def test_an_expected_writer_that_is_silent_in_the_window_is_named_and_the_answer_is_unknown(
    spark: SparkSession, small: SmallLedger
) -> None:
    ledger = small.write()
    expect(ledger, "shop-1", "shop-3", "contoso")
    found = report(spark, ledger, 100, 250)
    assert (exit_code(found), found.reconciliation.accepted) == (3, 4)
    [silent] = found.coverage.missing
    assert (silent.program, silent.since_ms, silent.until_ms) == ("shop-1 on *", at(100), at(250))
    assert "expects shop-1 on *, and no record of this time is from it; its last one is from 2025-03-09" in report_text(
        found
    )
    assert exit_code(report(spark, ledger, 5, 250)) == 0, "it was there in that time"
    assert exit_code(report(spark, ledger, None, None)) == 0, "without a window, any record is enough"


def test_an_absent_client_hides_nothing_that_the_ledger_of_the_primary_proves_to_be_lost(
    small: SmallLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    small.writer("cronjob").accepted(0, "orders", "early")
    small.writer("shop-5").accepted(250, "orders", "never stored")
    ledger = small.write()
    expect(ledger, "shop-5", "cronjob", "contoso")
    arguments = ["pipeline", "report", "--ledger", str(ledger), "--since", "2025-03-09T07:40Z", "--json"]
    assert run(arguments) == 4
    found = json.loads(capsys.readouterr().out)["reconciliation"]
    assert found["verdict"].startswith("at least 1 lost; whether more is unknown: records are missing")
    assert [each["message_id"] for each in found["named"] if each["verdict"] == "lost"] == ["never stored"]


@pytest.mark.long
def test_a_quiet_window_is_certain_whatever_a_client_hid_that_was_killed_before_it(
    spark: SparkSession, small: SmallLedger
) -> None:
    small.writer("shop-0", "killed").accepted(5, "orders", "early")
    ledger = small.write()
    with kept_end(ledger, at(6)):
        found = report(spark, ledger, 210, 290)
        assert (found.coverage.is_complete, found.reconciliation.accepted, exit_code(found)) == (False, 0, 0)
        assert exit_code(report(spark, ledger, 1, 7)) == 3, "it was killed in this window"
        assert exit_code(report(spark, ledger, 210, 350)) == 3, "nobody kept a ledger at its end"


@pytest.mark.long
def test_a_time_that_nobody_kept_is_shown_although_the_messages_of_the_window_are_accounted_for(
    spark: SparkSession, small: SmallLedger
) -> None:
    ledger = small.write()
    found = report(spark, ledger, 100, 350)
    assert (exit_code(found), found.as_dict()["coverage"]["unkept"]) == (0, (at(300), at(350)))
    text = "From 2025-03-09 11:00:00 to 2025-03-09 11:50:00 UTC nobody who takes messages kept a ledger"
    assert text in report_text(found)
    assert f"<p>{text}.</p>" in page(found)
    assert report(spark, ledger, 100, 290).coverage.unkept is None


@pytest.mark.long
def test_an_idle_syphon_does_not_prove_that_a_night_was_silent(spark: SparkSession, small: SmallLedger) -> None:
    syphon = small.writer("syphon", closed_at=500)
    syphon.say(250, Kind.LONG_POLL, "", namespace="backup", count=1)
    syphon.say(250, Kind.QUEUE_CHECKED, "", namespace="backup", count=1)
    found = report(spark, small.write(), 310, 490)
    assert exit_code(found) == 3
    assert "nobody who takes messages kept a ledger" in found.reconciliation.verdict


@pytest.mark.long
@pytest.mark.parametrize("kind", [Kind.RECEIVED, Kind.DEAD_LETTERED])
def test_who_only_receives_does_not_prove_that_a_night_was_silent(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    with small_ledger(tmp_path) as small:
        shop, worker = small.writer("shop"), small.writer("worker", closed_at=300)
        worker.say(0.5, Kind.PAIRED, "", namespace="contoso", count=1)
        for minute in (1, 20):
            shop.accepted(minute, "orders", f"{minute}")
            worker.say(minute + 1, kind, "orders", f"{minute}", namespace="contoso", outcome="completed")
        found = report(spark, small.write(), 100, 290)
        assert exit_code(found) == 3
        assert found.coverage.unkept == (at(100), at(290))


@pytest.mark.long
def test_a_client_that_has_sent_nothing_yet_or_also_receives_proves_that_a_night_was_silent(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("new", "both"):
        with small_ledger(tmp_path / name) as small:
            small.writer("shop").accepted(1, "orders", "one")
            client = small.writer("client", closed_at=300)
            client.say(0.5, Kind.PAIRED, "", namespace="contoso", count=1)
            if name == "both":
                client.backlogged(1, "orders", "two")
                client.say(2, Kind.RECEIVED, "orders", "one", namespace="contoso", outcome="completed")
            assert exit_code(report(spark, small.write(), 100, 290)) == 0, name


@pytest.mark.long
def test_a_window_after_the_last_record_and_before_the_first_is_unknown(
    spark: SparkSession, small: SmallLedger
) -> None:
    ledger = small.write()
    for since, until in ((400, None), (400, 500), (None, 5), (-100, 5)):
        found = report(spark, ledger, since, until)
        assert exit_code(found) == 3, (since, until)
        [silent] = found.coverage.missing
        assert "no record is from this time" in silent.reason
        assert '<h1 class="verdict unsure">' in page(found)


def test_a_window_without_a_message_in_which_nobody_kept_a_ledger_for_a_while_is_unknown(
    spark: SparkSession, small: SmallLedger
) -> None:
    ledger = small.write()
    assert exit_code(report(spark, ledger, 210, 290)) == 0, "the namespace was there all the time"
    found = report(spark, ledger, 210, 350)
    assert exit_code(found) == 3
    assert "no message is on record, and from 2025-03-09" in found.reconciliation.verdict
    assert exit_code(report(spark, ledger, 100, 350)) == 0, "its messages are accounted for"


@pytest.mark.long
def test_a_syphon_that_had_nothing_to_do_takes_no_certainty(spark: SparkSession, small: SmallLedger) -> None:
    """It accepts nothing and stores nothing."""
    syphon = small.writer("syphon")
    syphon.brought_home(20, "orders", "home")
    first = small.writer("shop-0")
    first.backlogged(15, "orders", "home")
    ledger = small.write()
    expect(ledger, "syphon", "contoso")
    assert exit_code(report(spark, ledger, 100, 250)) == 0
    assert exit_code(report(spark, ledger, 210, 290)) == 0


def test_a_primary_that_is_expected_and_absent_makes_the_answer_unknown(spark: SparkSession, tmp_path: Path) -> None:
    with small_ledger(tmp_path) as small:
        namespace, shop = small.writer("contoso", closed_at=100), small.writer("shop", closed_at=300)
        for minute in (5, 60, 150, 160):
            shop.accepted(minute, "orders", f"{minute}")
            if minute < 100:
                namespace.through(minute + 0.1, "orders", f"{minute}")
        ledger = small.write()
        assert exit_code(report(spark, ledger, 120, 250)) == 0, "nobody expects it"
        expect(ledger, "contoso", "shop")
        for since, until in ((120, 250), (200, 250)):
            found = report(spark, ledger, since, until)
            assert exit_code(found) == 3, (since, until)
            assert [each.program for each in found.coverage.missing] == ["contoso on *"]


def test_what_an_absent_syphon_may_have_brought_home_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    with small_ledger(tmp_path) as small:
        client = small.writer("client")
        for minute in (2, 10, 40, 95):
            client.backlogged(minute, "orders", f"{minute}")
        small.writer("syphon", machine="web-1").brought_home(3, "orders", "2")
        other = small.writer("syphon", machine="web-2")
        other.brought_home(55, "orders", "40")
        other.brought_home(97, "orders", "95")
        ledger = small.write()
        found = report(spark, ledger, 8, 100)
        assert exit_code(found) == 4, "nobody else is expected"
        hosts = "".join(f'[[writer]]\nhost = "web-{number}"\nprogram = "syphon"\n' for number in (1, 2))
        (ledger / EXPECTED_FILE).write_text(hosts)
        found = report(spark, ledger, 8, 100)
        assert exit_code(found) == 3
        assert [each.program for each in found.coverage.missing] == ["syphon on web-1"]
        assert [(each["verdict"], each["message_id"]) for each in found.reconciliation.named] == [("unknown", "10")]


@pytest.mark.long
def test_what_anybody_on_an_absent_machine_may_have_brought_home_is_not_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its client was seen; its syphon was idle so far, and looks like nothing."""
    with small_ledger(tmp_path) as small:
        small.writer("client", machine="web-1").accepted(2, "orders", "early")
        small.writer("syphon", machine="web-1").say(1, Kind.LONG_POLL, "", namespace="backup", count=1)
        client = small.writer("client", machine="web-2")
        client.backlogged(10, "orders", "one")
        client.backlogged(40, "orders", "two")
        small.writer("syphon", machine="web-2").brought_home(55, "orders", "two")
        ledger = small.write()
        (ledger / EXPECTED_FILE).write_text('[[writer]]\nhost = "web-1"\n')
        found = report(spark, ledger, 8, 100)
        assert exit_code(found) == 3
        assert [(each["verdict"], each["message_id"]) for each in found.reconciliation.named] == [("unknown", "one")]


def without_first_records(ledger: Path, program: str, count: int) -> str:
    """As if its first segment had never arrived; returns which process it was."""
    for segment in sorted(ledger.glob("*.jsonl")):
        lines = segment.read_bytes().splitlines(keepends=True)
        facts = json.loads(lines[0])
        if facts["program"] == program:
            segment.write_bytes(b"".join(lines[count:]))
            return str(facts["process"])
    raise AssertionError(program)


def test_the_first_records_of_a_process_may_be_of_any_time_before(spark: SparkSession, small: SmallLedger) -> None:
    small.writer("shop-0").accepted(12, "orders", "never stored")
    late = small.writer("shop-5")
    late.accepted(12, "orders", "nor this one")
    late.accepted(150, "orders", "5-150")
    ledger = small.write()
    assert report(spark, ledger, 0, 40).reconciliation.lost == 2
    shutil.rmtree(ledger / STORE_FOLDER)
    without_first_records(ledger, "shop-5", 2)
    found = report(spark, ledger, 0, 40)
    assert (found.reconciliation.lost, found.reconciliation.lost_at_least, exit_code(found)) == (None, 1, 4)
    [hole] = found.coverage.missing
    assert (hole.program, hole.since_ms, hole.until_ms) == ("shop-5", 0, at(150))
    assert exit_code(report(spark, ledger, 160, 290)) == 0, "it was there by then"


@pytest.mark.long
def test_a_primary_without_its_first_records_kept_a_ledger_before(spark: SparkSession, tmp_path: Path) -> None:
    with small_ledger(tmp_path) as small:
        namespace, shop = small.writer("contoso", closed_at=300), small.writer("shop")
        for minute in (5, 20, 60):
            shop.accepted(minute, "orders", f"{minute}")
            namespace.through(minute + 0.1, "orders", f"{minute}")
        shop.accepted(12, "orders", "never stored")
        ledger = small.write()
        without_first_records(ledger, "contoso", 5)
        found = report(spark, ledger, 0, 40)
        assert exit_code(found) == 3
        assert found.reconciliation.entities == {"orders": {"unknown": 3}}


@pytest.mark.long
def test_what_is_missing_after_pruned_records_is_as_late_as_these(spark: SparkSession, small: SmallLedger) -> None:
    shop = small.writer("shop-5")
    for minute in (1, 12, 60):
        shop.accepted(minute, "orders", f"5-{minute}")
    ledger = small.write()
    process = without_first_records(ledger, "shop-5", 3)
    gone = PrunedProcess("here", "shop-5", at(1), at(1), unread=[(1, 2)], pruned_ms=at(200))
    save_pruned(ledger, Pruned(processes={process: gone}))
    found = report(spark, ledger, 10, 40)
    assert exit_code(found) == 3
    assert [(each.since_ms, each.until_ms) for each in found.coverage.missing] == [
        (at(1), at(60)),
        (at(1), at(1) + 1),
    ]


@pytest.mark.long
def test_a_quiet_night_of_those_that_are_still_running_is_nothing_lost(spark: SparkSession, tmp_path: Path) -> None:
    base_ms = time.time_ns() // 1_000_000 - 20 * 60 * MINUTE
    with small_ledger(tmp_path, base_ms=base_ms) as small:
        client, namespace = small.writer("shop", "running"), small.writer("contoso", "running")
        client.accepted(1, "orders", "m0")
        namespace.through(1.1, "orders", "m0")
        ledger = small.write()
        expect(ledger, "shop", "contoso")
        assert len(segments_and_held(ledger).running) == 2
        window = (base_ms + 600 * MINUTE - BASE_MS) / MINUTE
        for until in (None, window + 100_000):
            found = report(spark, ledger, window, until)
            assert (exit_code(found), found.reconciliation.accepted) == (0, 0), report_text(found)
        assert exit_code(report(spark, ledger, window + 10_000, None)) == 3, "nobody knows what will be"


@pytest.mark.long
def test_a_watch_of_a_window_without_records_is_not_certain(
    small: SmallLedger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, numbers = small.write(), tmp_path / "watch.prom"
    assert run(["ledger", "expect", str(ledger)]) == 0
    arguments = ["--ledger", str(ledger), "--since", "1d"]
    assert run(["pipeline", "watch", *arguments, "--rounds", "1", "--metrics-file", str(numbers)]) == 3
    assert "twinbus_watch_certain 0.0" in numbers.read_text()
    capsys.readouterr()
    assert run(["pipeline", "report", *arguments, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["coverage"]["complete"] is False
    assert {"shop-1", "shop-4", "contoso"} <= {
        each["program"].partition(" ")[0] for each in document["coverage"]["unknown"]
    }
