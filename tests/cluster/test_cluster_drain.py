"""Drains on a standalone cluster: two workers on this machine, everything in one backlog queue, processes killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backlog_messages import backlog_messages_for, fill
from scripted_ledger import BASE_MS, Script, write_lines
from served import KEY, Served
from spark_backlog import ids_of
from spark_cluster import EXECUTOR, PYTHON_WORKER, SPARK_HOME, Drain, SparkCluster, processes_of, until

import twinbus
from twinbus.ledger import Event, Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.spark.archive import FOLDER, pack
from twinbus.spark.drain.options import PREFETCH as WINDOW
from twinbus.spark.jobs.compaction import LITTLE_BYTES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

QUEUES = 2
MESSAGES = 20_000
REPORTED = 200_000
SLOW_MS = 4_000
"""A window a task takes so long: time for both to come, and to be killed in the middle."""


class Place:
    """A cluster between two namespaces."""

    def __init__(self, folder: Path, primary: Served, secondary: Served, cluster: SparkCluster) -> None:
        self.folder = folder
        self.primary = primary
        self.secondary = secondary
        self.cluster = cluster
        self._runs = 0
        for index in range(QUEUES):
            secondary.admin.create_queue(
                backlog_path("contoso", index), max_delivery_count=2_147_483_647, lock_duration="PT10S"
            )

    def prepare(self, count: int) -> None:
        """An empty home, two workers, and so many messages in one backlog queue."""
        self.cluster.heal()
        self.primary.clear()
        if "orders" in self.primary.queue_names():
            self.primary.admin.delete_queue("orders")
        self.primary.admin.create_queue("orders")
        self._runs += 1
        fill(self.secondary.connection_string, backlog_path("contoso", 0), backlog_messages_for("orders", count))

    @property
    def ledger(self) -> Path:
        return self.folder / f"ledger-{self._runs}"

    def drain(self, *words: str) -> Drain:
        where = ("--count", str(QUEUES), "--ledger", str(self.ledger), "--json")
        return self.cluster.drain(*where, *words)

    def until_both_pump(self) -> None:
        """Each has messages under lock, and some are home."""
        until(lambda: len(self.pumping(Kind.RECEIVED_FROM_BACKLOG)) == 2, "both executors pump")
        until(lambda: bool(self.pumping()), "something is home")

    def arrived(self) -> Counter[str]:
        return asyncio.run(ids_of(self.primary.connection_string, "orders"))

    def left(self) -> int:
        return asyncio.run(ids_of(self.secondary.connection_string, backlog_path("contoso", 0))).total()

    def pumping(self, kind: str = Kind.COMPLETED) -> set[int]:
        """The processes that have brought something home, or done something else."""
        if not self.ledger.exists():
            return set()
        lines = [line for segment in segments_in(self.ledger) for line in segment.read_bytes().splitlines()]
        records = [record for record in map(read_line, lines) if not isinstance(record, Flaw)]
        return {record.pid for record in records if record.kind == kind}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("cluster")
    with Served("contoso", folder / "data") as primary, Served("backup", folder / "data") as secondary:
        strings = {"TWINBUS_PRIMARY": primary.connection_string, "TWINBUS_SECONDARY": secondary.connection_string}
        wrong = {"TWINBUS_ODD": primary.connection_string.replace(KEY, "bm90IHRoZSBrZXk=")}
        place = folder / "spark"
        place.mkdir()
        with SparkCluster(place, strings | wrong) as cluster:
            yield Place(folder, primary, secondary, cluster)
            assert cluster.files_with(KEY) == [], "no log, closure or event log has a key in it"


def test_each_executor_moves_its_part_of_one_queue_and_the_driver_nothing(place: Place) -> None:
    place.prepare(2 * MESSAGES)
    place.primary.break_("slow", delay_ms=100)  # else the first executor is half done when the second one comes
    drain = place.drain()
    seen: set[int] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            seen.update(place.cluster.processes(PYTHON_WORKER))

    watcher = threading.Thread(target=watch)
    watcher.start()
    driver = processes_of(drain.process.pid)
    done = drain.finished()
    stop.set()
    watcher.join()
    assert (done["ending"], done["moved"], done["repeated"], done["left"]) == ("empty", 2 * MESSAGES, 0, 0)
    assert len(done["executors"]) == 2
    assert min(done["executors"].values()) >= 2 * MESSAGES // 4, done["executors"]
    assert place.pumping() <= seen, "only processes of the workers pump"
    assert not place.pumping() & driver
    assert place.arrived() == {f"orders-{number}": 1 for number in range(2 * MESSAGES)}


def a_python_worker(place: Place) -> set[int]:
    return set(list(place.pumping())[:1])


def an_executor(place: Place) -> set[int]:
    return set(list(place.cluster.processes(EXECUTOR))[:1])


def a_worker(place: Place) -> set[int]:
    return {place.cluster.workers[0].pid}


@pytest.mark.parametrize("victims", [a_python_worker, an_executor, a_worker])
def test_whoever_is_killed_nothing_is_lost_and_at_most_a_window_comes_twice(
    place: Place, victims: Callable[[Place], set[int]]
) -> None:
    place.prepare(MESSAGES)
    place.primary.break_("slow", delay_ms=SLOW_MS)
    drain = place.drain()
    place.until_both_pump()
    for pid in victims(place):
        os.kill(pid, signal.SIGKILL)
    place.primary.clear()
    done = drain.finished()
    arrived = place.arrived()
    assert (done["ending"], done["left"], place.left()) == ("empty", 0, 0)
    assert len(arrived) == done["moved"] == MESSAGES, "nothing is lost"
    assert done["killed_attempts"] == 1
    assert arrived.total() <= MESSAGES + WINDOW, "one window for the killed attempt"


def test_after_the_driver_was_killed_the_same_command_finishes(place: Place) -> None:
    place.prepare(MESSAGES)
    place.primary.break_("slow", delay_ms=SLOW_MS)
    drain = place.drain()
    place.until_both_pump()
    drain.kill()
    until(lambda: not place.cluster.processes(EXECUTOR), "executors do not outlive their driver")
    place.primary.clear()
    before = place.arrived()
    assert 0 < len(before) < MESSAGES
    done = place.drain().finished()
    arrived = place.arrived()
    assert (done["ending"], place.left(), len(arrived)) == ("empty", 0, MESSAGES)
    assert arrived.total() <= MESSAGES + 2 * WINDOW, "a window for each of the two attempts"


def test_a_key_that_is_wrong_on_executors_only_is_reported_with_the_machine(place: Place) -> None:
    place.prepare(100)
    drain = place.cluster.drain(
        *("--count", str(QUEUES), "--primary-secret", "env:TWINBUS_ODD", "--json"),
        environment={"TWINBUS_ODD": place.primary.connection_string},
    )
    code, out, err = drain.ended()
    assert code == 3, err
    assert "orders: unauthorised" in out
    assert "bm90IHRoZSBrZXk" not in out + err
    assert place.left() == 100
    assert place.drain().finished()["moved"] == 100


# --- as an archive ---


@pytest.fixture(scope="module")
def archive(place: Place) -> Path:
    file = place.folder / "twinbus.tar.gz"
    pack(file)
    return file


PROGRAM = str(Path(twinbus.__file__).parent / "__main__.py")
DRAIN = ("pipeline", "drain", "--count", str(QUEUES), "--json")
BARE = {"PYSPARK_PYTHON": sys._base_executable, "PYSPARK_DRIVER_PYTHON": sys.executable}  # type: ignore[attr-defined]
"""Executors with a Python in which nothing is installed."""


def test_executors_without_anything_installed_get_it_from_the_archive(place: Place, archive: Path) -> None:
    place.prepare(1_000)
    words = ("--count", str(QUEUES), "--json")
    code, out, err = place.cluster.drain(*words, environment=BARE).ended()
    assert code == 1, out
    assert "bring it with --archive" in err, "without the archive they have nothing"
    done = place.cluster.drain(*words, "--archive", str(archive), environment=BARE).finished()
    assert (done["ending"], done["moved"]) == ("empty", 1_000)
    assert len(place.arrived()) == 1_000


def test_a_report_is_made_on_executors_with_nothing_installed(place: Place, archive: Path) -> None:
    """Of a ledger that is too large to be read by the driver on the side."""
    ledger, page = place.folder / "large-ledger", place.folder / "report.html"
    ledger.mkdir()
    for process in range(4):
        script = Script(f"{process:016x}", "shop")
        for number in range(REPORTED // 4):
            script.note(
                BASE_MS + number, Event(Kind.ACCEPTED, "orders", message_ids=(f"{process}-{number}",), sizes=(5,))
            )
        write_lines(ledger, script.process, script.lines())
    assert sum(segment.stat().st_size for segment in segments_in(ledger)) > LITTLE_BYTES
    words = ("pipeline", "report", "--ledger", str(ledger), "--out", str(page), "--json", "--master", place.cluster.url)
    command = (sys.executable, "-m", "twinbus", *words)
    code, out, err = place.cluster.run(*command, environment=BARE).ended()
    assert (code, out) == (1, ""), "without the archive they have nothing"
    assert "bring it with --archive" in err
    done = place.cluster.run(*command, "--archive", str(archive), environment=BARE).finished()
    assert done["reconciliation"]["accepted"] == REPORTED
    assert (done["coverage"]["complete"], done["coverage"]["skipped"]) == (True, [])
    assert "stored on primary" in page.read_text(encoding="utf-8")


def test_speculation_is_refused_before_anything_moves(place: Place, archive: Path) -> None:
    code, out, err = submit(place, archive, "--conf", "spark.speculation=true", PROGRAM, *DRAIN).ended()
    assert code == 2
    assert "spark.speculation is on" in out + err, "spark-submit puts both into one"


COPY = """
from pyspark.sql import SparkSession
from twinbus.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
options = {"servicebus.credential": "env:TWINBUS_PRIMARY"}
found = spark.read.format("servicebus").options(**options, maxMessagesPerPartition=300).load("orders")
found.explain(True)
found.write.format("servicebus").options(**options, queue="copy").mode("append").save()
"""


def submit(place: Place, archive: Path, *words: str) -> Drain:
    """A source plans on the driver, in a Python of its own: so the driver has the archive too, unpacked."""
    unpacked = place.folder / FOLDER
    if not unpacked.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
    return place.cluster.run(
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--master", place.cluster.url, "--archives", f"{archive}#{FOLDER}"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={FOLDER}", *words),
        environment=BARE | {"PYTHONPATH": str(unpacked)},
    )


def test_spark_submit_takes_the_archive_for_drains_and_for_programs(place: Place, archive: Path) -> None:
    place.prepare(1_000)
    done = submit(place, archive, PROGRAM, *DRAIN).finished()
    assert (done["ending"], done["moved"]) == ("empty", 1_000)
    place.primary.admin.create_queue("copy")
    script = place.folder / "copy_orders.py"
    script.write_text(COPY)
    code, out, err = submit(place, archive, str(script)).ended()
    assert code == 0, out + err
    assert "servicebus" in out
    assert KEY not in out + err
    assert asyncio.run(ids_of(place.primary.connection_string, "copy")) == place.arrived()
