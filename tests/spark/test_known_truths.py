"""*Lost* and *nothing lost* are said only where the records prove them: ledgers whose truth is known."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from clock_truths import CLOCK_TRUTHS
from known_truths import TRUTHS, Truth
from scripted_ledger import BASE_MS, MINUTE
from small_ledger import small_ledger

from twinbus.cli.main import run
from twinbus.cli.pipeline.pipeline import exit_code, report_text
from twinbus.cost.prices import Prices
from twinbus.ledger import Kind
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs import balance as balances

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.jobs.findings import Findings


def report(spark: SparkSession, ledger: Path) -> Findings:
    from twinbus.spark.jobs.analysis import analyse

    compacted = compact_ledger(read_in_process, ledger)
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", TRUTHS)
def test_a_report_says_what_the_records_prove_and_no_more(spark: SparkSession, tmp_path: Path, name: str) -> None:
    says_what_is_proven(spark, tmp_path, TRUTHS[name])


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CLOCK_TRUTHS)
def test_no_answer_is_certain_that_a_wrong_clock_could_have_made(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    says_what_is_proven(spark, tmp_path, CLOCK_TRUTHS[name])


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "the_clock_of_a_client_is_put_right_between_messages_that_come_home_and_one_that_waits",
        "the_clock_of_a_client_is_set_back_before_it_sends_the_last_message",
    ],
)
def test_no_answer_is_certain_from_a_store_of_a_version_that_did_not_look_at_the_clocks(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    with small_ledger(tmp_path) as small:
        CLOCK_TRUTHS[name].scenario(small)
        store = compact_ledger(read_in_process, small.write()).store
    known = manifests.load(store)
    for process in known.processes.values():
        process.clock.offsets = []
    manifests.save(store, known)
    found = report(spark, tmp_path)
    assert found.reconciliation.entities == CLOCK_TRUTHS[name].classes
    assert exit_code(found) == 3


def says_what_is_proven(spark: SparkSession, ledger: Path, truth: Truth) -> None:
    with small_ledger(ledger) as small:
        truth.scenario(small)
        found = report(spark, small.write())
    assert found.reconciliation.entities == truth.classes
    assert exit_code(found) == truth.code
    assert truth.words in report_text(found)


def due(minute: float) -> int:
    return BASE_MS + round(minute * MINUTE)


@pytest.mark.long
def test_messages_that_are_scheduled_for_later_do_no_damage_to_order(spark: SparkSession, tmp_path: Path) -> None:
    """Compared with each other, by when they are due; of what Azure numbered nobody knows when that is."""
    with small_ledger(tmp_path) as small:
        client, primary = small.writer("client"), small.writer("contoso")
        client.accepted(1, "orders", "later", sequence_numbers=(7,))
        primary.stored(1, "orders", "later", until_ms=due(60))
        client.accepted(2, "orders", "now")
        primary.through(2, "orders", "now")
        primary.delivered(60, "orders", "later")

        client.accepted(1, "swapped", "third", "first", "second")
        for name, minute, came in (("third", 30, 31), ("first", 10, 40), ("second", 20, 21)):
            primary.stored(1, "swapped", name, until_ms=due(minute))
            primary.delivered(came, "swapped", name)

        client.accepted(1, "plain", "one", "two")
        primary.through(5, "plain", "two")
        primary.through(6, "plain", "one")

        client.accepted(1, "azure", "later", sequence_numbers=(8,))
        client.accepted(2, "azure", "now")
        for minute, name in ((3, "now"), (60, "later")):
            client.say(minute, Kind.RECEIVED, "azure", name, namespace="contoso")
        found = report(spark, small.write())
    order = {row["entity"]: (row["basis"], row["arrived"], row["late"]) for row in found.ordering}
    assert order == {
        "orders": ("delivered", 2, 0),
        "swapped": ("delivered", 3, 1),
        "plain": ("delivered", 2, 1),
        "azure": ("received", 1, 0),
    }


def test_a_message_that_was_accepted_a_moment_ago_may_still_be_written_down(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By a namespace that is running; from a whole horizon on its silence is unknown."""
    with small_ledger(tmp_path, base_ms=time.time_ns() // 1_000_000 - 20 * MINUTE) as small:
        client, primary = small.writer("client", "running"), small.writer("contoso", "running")
        client.accepted(1, "orders", "m0")
        primary.through(1, "orders", "m0")
        client.accepted(2, "orders", "old")
        client.accepted(19, "orders", "young")
        found = report(spark, small.write()).reconciliation
    assert found.entities == {"orders": {"delivered": 1, "unknown": 1, "stored_on_primary": 1}}
    assert [row["message_id"] for row in found.named] == ["old"]


@pytest.mark.long
def test_messages_that_are_not_named_are_counted_and_can_be_written_to_a_file(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_ledger(tmp_path / "ledger") as small:
        TRUTHS["nearly_everything_is_lost"].scenario(small)
        ledger = small.write()
    everything, page = tmp_path / "lost.jsonl", tmp_path / "report.html"
    asked = ["pipeline", "report", "--ledger", str(ledger), "--out", str(page), "--lost-to", str(everything)]
    assert run(asked) == 4
    said = capsys.readouterr().out
    assert said.count("lost: orders m") == 20
    assert "And 975 more: --lost-to FILE writes all of them to a file." in said
    assert "And 795 more: --lost-to FILE writes all of them to a file." in page.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in everything.read_text(encoding="utf-8").splitlines()]
    assert {row["message_id"] for row in rows} == {f"m{number}" for number in range(5, 1000)}
    assert {(row["verdict"], row["entity"], row["why"] != "") for row in rows} == {("lost", "orders", True)}
    assert run([*asked[:4], "--json"]) == 4
    reconciliation = json.loads(capsys.readouterr().out)["reconciliation"]
    assert (len(reconciliation["named"]), reconciliation["not_named"]) == (200, 795)


@pytest.mark.long
def test_what_a_report_kept_is_made_again_with_one_line_that_says_why(spark: SparkSession, tmp_path: Path) -> None:
    """As when an older version kept less, or when it turns out later who the primary is."""
    notes: list[str] = []

    def analysed() -> Findings:
        from twinbus.spark.jobs.analysis import analyse

        compacted = compact_ledger(read_in_process, tmp_path)
        return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, note=notes.append)

    with small_ledger(tmp_path) as small:
        for name in ("contoso", "backup"):
            small.writer(name).through(1, "orders", "m")
        small.write()
    assert analysed().reconciliation.entities == {
        "contoso:orders": {"sent_elsewhere": 1},
        "backup:orders": {"sent_elsewhere": 1},
    }
    assert notes == []
    with small_ledger(tmp_path) as small:
        small.writer("client").accepted(1, "orders", "m")
        small.write()
    assert analysed().reconciliation.entities == {
        "orders": {"delivered": 1},
        "backup:orders": {"sent_elsewhere": 1},
    }
    assert notes == ["what earlier reports found is made again because the primary's name is contoso now"]
    kept = tmp_path / "compacted" / "balance" / "balance.json"
    kept.write_bytes(kept.read_bytes().replace(b'"version":%d' % balances.VERSION, b'"version":5'))
    notes.clear()
    analysed()
    analysed()
    form = balances.VERSION
    assert notes == [
        f"what earlier reports found is made again because it was kept in form 5 and this twinbus keeps form {form}"
    ]
