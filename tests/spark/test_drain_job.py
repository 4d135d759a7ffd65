"""A drain as a Spark job, with real tasks, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient
from backlog_messages import backlog_messages_for, fill
from object_store import new_place
from ordered_backlog import session_message
from spark_backlog import SparkBacklog, ids_in, peeks_of
from typer.testing import CliRunner

from twinbus.cli.main import make_app, run
from twinbus.cli.pipeline.drain import SparkArguments
from twinbus.cli.pipeline.drain_output import DrainJsonLines
from twinbus.errors import OptionsError, TwinbusError
from twinbus.ledger import LedgerReader, verify
from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.spark.access import Access
from twinbus.spark.drain.drain import drain
from twinbus.spark.drain.ledger_counts import records_of
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.result import DrainProgress, DrainResult
from twinbus.spark.drain.rounds import refuse_speculation, run_round
from twinbus.spark.failures import summarize
from twinbus.testing import NamespacePair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0


@pytest.fixture
def backlog(namespace_pair: NamespacePair, tmp_path: Path) -> SparkBacklog:
    return SparkBacklog(namespace_pair, tmp_path)


def test_several_tasks_share_one_deep_queue_until_it_is_empty(spark: SparkSession, backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 4_000))
    looks: list[DrainProgress] = []
    options = backlog.options(prefetch=200)
    backlog.primary.faults.add("slow", entities=["orders"], delay=timedelta(seconds=1))

    def look(progress: DrainProgress) -> None:
        looks.append(progress)
        if len(workers_that_brought_something(backlog.ledger, options.run)) > 1:
            backlog.primary.faults.clear()  # until then one alone would take twenty seconds

    done = drain(spark, options, on_progress=look, every_s=0.5)
    assert (done.ending, done.found, done.left, done.rounds) == ("empty", 4_000, 0, 1)
    assert sorted(report.shard for report in done.reports) == [0, 1]
    assert all(report.moved for report in done.reports), "nobody was idle"
    assert (done.count("moved"), done.as_dict()["counted_from"]) == (4_000, "ledger")
    assert looks[0].left == 4_000
    assert set(ids_in(backlog.primary, "orders").values()) == {1}


@pytest.mark.usefixtures("s3")
def test_the_driver_ships_what_its_tasks_have_recorded(
    spark: SparkSession, backlog: SparkBacklog, tmp_path: Path
) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 20))
    place = new_place("s3", tmp_path)
    assert drain(spark, backlog.options(ledger_ship_to=place)).ending == "empty"
    copy = verify(place)
    assert copy.is_complete
    assert copy.records == verify(backlog.ledger).records
    assert sum(len(each.message_ids) for each in LedgerReader(place).records() if each.kind == Kind.COMPLETED) == 20


def test_topics_sessions_and_partitions_get_theirs_home(spark: SparkSession, backlog: SparkBacklog) -> None:
    backlog.primary.create_topic("news", "all")
    backlog.primary.create_queue("visits", requires_session=True)
    backlog.primary.create_queue("parts", partitioned=True)
    for path in ("news", "visits", "parts"):
        queue = backlog.path(queue_for(key_of(path, "s1"), (0, 1)))
        messages = [session_message(path, "s1", f"{path}-{number}") for number in range(30)]
        fill(backlog.secondary.connection_string, queue, messages)
    done = drain(spark, backlog.options(order="session"))
    assert (done.ending, done.count("moved"), done.count("refused")) == ("empty", 90, 0)
    for path, place in {"news": "news/Subscriptions/all", "visits": "visits", "parts": "parts"}.items():
        assert ids_in(backlog.primary, place) == {f"{path}-{number}": 1 for number in range(30)}
    client = ServiceBusClient.from_connection_string(backlog.primary.connection_string)
    with client, client.get_queue_receiver("visits", session_id="s1", max_wait_time=60) as receiver:
        assert next(receiver).session_id == "s1"


def workers_that_brought_something(ledger: Path, run: str) -> set[int]:
    if not ledger.exists():
        return set()
    return {record.pid for record in records_of(ledger, run) if record.kind == Kind.COMPLETED}


def kill_a_worker(backlog: SparkBacklog, run: str, killed: list[int]) -> None:
    """As soon as some task has brought something home; from then on the primary is quick."""
    while not (busy := workers_that_brought_something(backlog.ledger, run)):
        time.sleep(0.05)
    killed.append(busy.pop())
    os.kill(killed[0], signal.SIGKILL)
    backlog.primary.faults.clear()


def locks_lost(ledger: Path, run: str) -> int:
    return sum(len(record.message_ids) for record in records_of(ledger, run) if record.kind == Kind.LOCK_LOST)


def test_a_killed_task_loses_nothing_and_repeats_at_most_its_window(
    spark: SparkSession, namespace_pair: NamespacePair, tmp_path: Path
) -> None:
    backlog = SparkBacklog(namespace_pair, tmp_path, lock_ms=5_000)  # the dead task's are waited for
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 3_000))
    options = backlog.options(prefetch=100)
    backlog.primary.faults.add("slow", delay=timedelta(seconds=1))  # long enough for the killer to come
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(backlog, options.run, killed), daemon=True)
    killer.start()
    done = drain(spark, options, every_s=0.5)
    arrived = ids_in(backlog.primary, "orders")
    assert killed
    assert done.ending == "empty"
    assert len(arrived) == 3_000, "nothing is lost"
    lost = locks_lost(backlog.ledger, options.run)  # none, unless the machine stood still for five seconds
    assert arrived.total() <= 3_000 + 100 + lost, "one window for the killed attempt"
    assert ids_in(backlog.secondary, backlog.path(0)).total() == 0
    assert done.recorded is not None
    assert done.recorded.killed == 1
    # All of it, unless the disk was busy: nobody waits for the ledger longer than a fifth of a second.
    assert 2_900 <= done.count("moved") <= 3_000, "the ledger knows what the dead task did, but for one window"
    assert done.count("repeated") <= arrived.total() - 3_000, "what it had sent without an answer, nobody knows"
    assert done.count("moved") > sum(report.moved for report in done.reports), "Spark forgot what the dead task did"


def test_a_credential_that_only_the_driver_has_is_reported_and_nothing_moves(
    spark: SparkSession, backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 10))
    monkeypatch.setenv("TWINBUS_ONLY_HERE", backlog.primary.connection_string)  # after the workers' JVM was started
    done = drain(spark, backlog.options(primary=Access("env:TWINBUS_ONLY_HERE"), ledger=None))
    assert (done.ending, done.left, done.count("moved")) == ("stuck", 10, 0)
    assert "env:TWINBUS_ONLY_HERE: nothing is there" in done.troubles[0]


def test_a_secondary_out_of_reach_is_one_line(spark: SparkSession, backlog: SparkBacklog) -> None:
    options = backlog.options()
    backlog.secondary.stop()
    with pytest.raises(TwinbusError, match="unreachable"):
        drain(spark, options)


def test_a_secondary_that_goes_away_meanwhile_ends_the_run_with_what_is_known(
    spark: SparkSession, backlog: SparkBacklog
) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 10))
    backlog.primary.faults.add("no-send", entities=["orders"])
    options = backlog.options(patience_s=1.0)
    done = drain(spark, options, on_progress=lambda _: backlog.secondary.stop())
    assert (done.ending, done.rounds, done.left, done.count("moved")) == ("stuck", 1, 10, 0)
    assert "unreachable" in done.unreadable
    assert done.unreadable in done.as_dict()["troubles"]


def test_an_interrupt_that_comes_before_the_tasks_do_cancels_them_too(
    spark: SparkSession, backlog: SparkBacklog
) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 10))
    backlog.primary.faults.add("no-send", entities=["orders"])

    def interrupt() -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_round(spark, backlog.options(patience_s=WAIT_S), [Shard(0, (0,))], every_s=0, look=interrupt)
    assert time.monotonic() - began < WAIT_S, "nobody waits until the tasks have lost their patience"


def test_a_name_that_nobody_paired_is_one_line(spark: SparkSession, backlog: SparkBacklog) -> None:
    with pytest.raises(TwinbusError, match="no backlog queue of fabrikam can be read: not found"):
        drain(spark, backlog.options(primary_name="fabrikam"))


def test_queues_that_do_not_exist_are_left_out(spark: SparkSession, backlog: SparkBacklog) -> None:
    done = drain(spark, backlog.options(queue_count=3))
    assert (done.ending, done.rounds) == ("empty", 0)
    assert list(done.missing) == [2]


def test_a_look_that_finds_nothing_costs_a_peek_a_queue(spark: SparkSession, backlog: SparkBacklog) -> None:
    done = drain(spark, backlog.options(), counts_quarantine=False)
    assert (done.ending, done.found, done.rounds, done.recorded) == ("empty", 0, 0, None)
    assert peeks_of(backlog.secondary) == {backlog.path(0): 1, backlog.path(1): 1}


def test_speculation_is_refused(spark: SparkSession) -> None:
    class Speculating:
        class conf:  # noqa: N801 - as Spark calls it
            @staticmethod
            def get(name: str, default: str) -> str:
                return {"spark.speculation": "true"}.get(name, default)

    refuse_speculation(spark)
    with pytest.raises(OptionsError, match=r"spark\.speculation is on"):
        refuse_speculation(Speculating())  # type: ignore[arg-type]


def command(backlog: SparkBacklog, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """`twinbus pipeline drain --json` in the session that is there: exit code, what it said, and all its output."""
    references = [backlog.secret(backlog.primary).credential, backlog.secret(backlog.secondary).credential]
    secrets = ("--primary-secret", references[0], "--secondary-secret", references[1])
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    found = CliRunner().invoke(make_app(), ["pipeline", "drain", *secrets, "--queues", "2", *words, "--json"])
    for number, handler in before.items():
        signal.signal(number, handler)
    return found.exit_code, [json.loads(line) for line in found.stdout.splitlines()], found.output


def test_with_every_the_command_goes_on_until_it_is_stopped(
    spark: SparkSession, backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []

    class Watched(DrainJsonLines):
        def finish(self, done: DrainResult) -> None:
            super().finish(done)
            moved.append(done.count("moved"))

    def fill_until_there_was_a_second_drain() -> None:
        for filled in (30, 60):
            fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 30))
            while sum(moved) < filled:
                time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("twinbus.cli.pipeline.drain.DrainJsonLines", Watched)
    helper = threading.Thread(target=fill_until_there_was_a_second_drain, daemon=True)
    helper.start()
    code, said, output = command(backlog, "--every", "1s", "--ledger", str(backlog.ledger))
    assert code == 0, output
    assert len(moved) >= 2, "a drain after the first one"
    assert sum([event["moved"] for event in said if event["event"] == "finished"]) == 60
    assert {event["event"] for event in said} == {"progress", "finished"}
    assert ids_in(backlog.primary, "orders").total() == 60


@pytest.mark.parametrize(("words", "code"), [([], 3), (["--every", "1s"], 0)], ids=["once", "every"])
def test_sigterm_ends_the_tasks_though_nothing_moves(
    spark: SparkSession, backlog: SparkBacklog, words: list[str], code: int
) -> None:
    fill(backlog.secondary.connection_string, backlog.path(0), backlog_messages_for("orders", 10))
    backlog.primary.faults.add("no-send", entities=["orders"])

    def stop_when_a_task_is_at_work() -> None:
        while not list(backlog.ledger.glob("*.jsonl")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_a_task_is_at_work, daemon=True).start()
    began = time.monotonic()
    found, said, output = command(backlog, "--ledger", str(backlog.ledger), "--patience", "2m", *words)
    assert found == code, output
    assert {event["event"] for event in said} == {"progress"}
    assert time.monotonic() - began < 120, "nobody waits until the tasks have lost their patience"


def test_the_command_ends_with_0_when_the_backlog_is_empty(spark: SparkSession, backlog: SparkBacklog) -> None:
    fill(backlog.secondary.connection_string, backlog.path(1), backlog_messages_for("orders", 20))
    code, said, output = command(backlog, "--ledger", str(backlog.ledger))
    assert code == 0, output
    assert said[-1]["event"] == "finished"
    assert (said[-1]["moved"], said[-1]["ending"], said[-1]["left"]) == (20, "empty", 0)
    for namespace in (backlog.primary, backlog.secondary):
        assert namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0] not in output


# --- without a session ---


def test_a_plain_local_master_is_given_four_attempts_a_task() -> None:
    masters = [None, "local", "local[2]", "local[*]", "local[2,1]", "spark://host:7077"]
    given = [None, "local[1,4]", "local[2,4]", "local[*,4]", "local[2,1]", "spark://host:7077"]
    assert [SparkArguments(master=master).patient_master for master in masters] == given


def test_what_executors_lack_is_reported_with_the_way_out() -> None:
    trace = "Job aborted\n  File \"worker.py\", line 1\nModuleNotFoundError: No module named 'twinbus'\n  at scala"
    assert summarize(trace) == "executors have no twinbus: install twinbus there too, or bring it with --archive"


def test_of_what_went_wrong_in_a_task_the_last_line_is_reported() -> None:
    trace = 'Job aborted: failed 4 times\n  File "x", line 1\ntwinbus.errors.StoreError: no room\n\n\tat scala'
    assert summarize(trace) == "no room"
    trace = (
        "Caused by: [FAILED_READ_FILE] Encountered error while reading file file:///st/steps/a.parquet. SQLSTATE: KD001"
    )
    assert summarize(trace).startswith("/st/steps/a.parquet cannot be read: remove the store")
    trace = trace.replace("/steps/", "/balance/7/tallies/")
    assert summarize(trace) == (
        "/st/balance/7/tallies/a.parquet cannot be read: remove /st/balance, and the next report makes it again"
    )
    trace = trace.replace("/balance/7/tallies/", "/accounts/7/")
    assert summarize(trace) == (
        "/st/accounts/7/a.parquet cannot be read: remove /st/accounts, and the next report makes it again"
    )
    trace = trace.replace("file:///st", "s3a://bucket/st")
    assert summarize(trace).startswith(
        "s3a://bucket/st/accounts/7/a.parquet cannot be read: remove s3a://bucket/st/acc"
    )


def test_a_checkpoint_without_ticks_is_refused() -> None:
    assert run(["pipeline", "drain", "--checkpoint", "here"]) == 2


def test_only_a_local_master_shares_our_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    masters = (None, "local[2]", "spark://host:7077")
    assert [SparkArguments(master=master).is_local for master in masters] == [True, True, False]
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://host:7077\n")
    assert not SparkArguments().is_local


def test_a_drain_without_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    string = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=hush"
    found = CliRunner().invoke(make_app(), ["pipeline", "drain", "--primary", string, "--secondary", string])
    assert isinstance(found.exception, TwinbusError)
    assert "pip install 'twinbus[spark]'" in str(found.exception)


def test_a_string_on_the_command_line_is_of_no_use_to_executors_elsewhere() -> None:
    string = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=hush"
    words = ["--primary", string, "--secondary", string.replace("contoso", "backup"), "--master", "spark://host:7077"]
    found = CliRunner().invoke(make_app(), ["pipeline", "drain", *words])
    assert isinstance(found.exception, OptionsError)
    assert "--primary-secret" in str(found.exception)
    assert "hush" not in str(found.exception)
