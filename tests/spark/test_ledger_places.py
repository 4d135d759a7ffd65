"""Random ledgers, on every kind of storage: nobody says that something is lost that is not, or that nothing is.

What is true is known to the scenario, message by message. Its records come in turns, cut in the middle of lines; some
come twice, some processes have a wrong clock, and some never come.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import s3fs
from java_servers import hdfs, s3proxy
from object_store import make_bucket, new_place, s3_server
from scripted_ledger import MINUTE, Scenario, make_scenario

from twinbus.cost.prices import Prices
from twinbus.ledger.upkeep.expected import EXPECTED_FILE
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.findings import Findings
from twinbus.spark.transforms.selection import ALL, LedgerSelection
from twinbus.storage import Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("local", "file", "memory", "s3", "s3proxy", "hdfs")
SEEDS = range(4)
TURNS = 3
MESSAGES = 900
"""Enough that whatever is lost in the backlog is overtaken by others."""


class Places:
    """New places of each kind; a server runs from when it is first needed."""

    def __init__(self, home: Path, until_done: ExitStack) -> None:
        self._home = home
        self._until_done = until_done
        self._environments: dict[str, Mapping[str, str]] = {}
        self._webhdfs = ""

    def new(self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        match kind:
            case "local":
                return str(tmp_path / "place")
            case "file":
                return (tmp_path / "a place").as_uri()
            case "hdfs":
                self._webhdfs = self._webhdfs or self._until_done.enter_context(hdfs(self._home / "hdfs"))
                return f"webhdfs://{self._webhdfs}/{tmp_path.name}"
            case "s3" | "s3proxy":
                if kind not in self._environments:
                    server = s3_server() if kind == "s3" else s3proxy(self._home / "s3proxy")
                    self._environments[kind] = self._until_done.enter_context(server)
                for name, value in self._environments[kind].items():
                    monkeypatch.setenv(name, value)
                s3fs.S3FileSystem.clear_instance_cache()  # it was made for the other server
                make_bucket()
                return new_place("s3", tmp_path)
            case _:
                return new_place(kind, tmp_path)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with ExitStack() as until_done:
        yield Places(tmp_path_factory.mktemp("servers"), until_done)


def report(spark: SparkSession, ledger: str, store: str | None = None, selection: LedgerSelection = ALL) -> Findings:
    from twinbus.spark.jobs.analysis import ChosenMessages, analyse

    compacted, chosen = compact_ledger(read_in_process, ledger, store), ChosenMessages(selection)
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, chosen=chosen)


def said(found: Findings) -> dict[str, Any]:
    """What does not depend on when it was read, and in how many pieces."""
    document = found.as_dict()
    return {name: document[name] for name in ("reconciliation", "outages", "availability", "ordering", "cost", "flow")}


def put_in_turns(folder: Folder, scenario: Scenario, seed: int, absent: str = "") -> Iterator[int]:
    """The records of each process in a folder of its host, in two segments, a piece more of them in each turn."""
    chance = random.Random(seed)
    segments = {}
    for script in scenario.scripts.values():
        if script.program != absent:
            lines = script.lines()
            middle = chance.randrange(len(lines) + 1)
            for number, part in enumerate((lines[:middle], lines[middle:]), 1):
                segments[f"{script.program}/20250309T060000Z-{script.process}-{number:06}.jsonl"] = b"".join(part)
    for turn in range(TURNS):
        names = list(segments)
        chance.shuffle(names)
        for name in names:
            whole = segments[name]
            upto = len(whole) if turn == TURNS - 1 else chance.randrange(len(whole) + 1)
            if upto and (not folder.exists(name) or len(folder.read(name)) < upto):
                folder.put(name, whole[:upto])
        yield turn
    name = chance.choice([name for name, whole in segments.items() if whole])
    folder.put(f"again/copy-of-{name.rpartition('/')[2]}", segments[name])
    yield TURNS


def truly_lost(scenario: Scenario) -> set[tuple[str, str]]:
    return {name for name, verdict in scenario.expected.items() if verdict == "lost"}


def assert_no_false_answer(found: Findings, scenario: Scenario) -> None:
    lost = {(row["entity"], row["message_id"]) for row in found.reconciliation.named if row["verdict"] == "lost"}
    assert lost <= truly_lost(scenario), "nothing is called lost that is not"
    assert not (found.is_lossless and truly_lost(scenario)), "nobody says that nothing is lost"


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_comes_in_whatever_order_is_found(
    spark: SparkSession, places: Places, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little by little it is what it is at once."""
    place = places.new(kind, tmp_path, monkeypatch)
    scenario = make_scenario(seed, MESSAGES, misfortunes=seed % 2)
    ledger = f"{place}/ledger"
    for _ in put_in_turns(open_folder(ledger), scenario, seed):
        little_by_little = report(spark, ledger)
        assert_no_false_answer(little_by_little, scenario)
    at_once = report(spark, ledger, f"{place}/store")
    assert said(little_by_little) == said(at_once)
    assert little_by_little.reconciliation.entities == scenario.counts()
    assert little_by_little.is_lossless is (seed % 2 == 0)
    later = LedgerSelection(little_by_little.coverage.last_ms + 1)
    assert report(spark, ledger, selection=later).is_lossless is None, "nobody kept a ledger then"


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_is_absent_makes_no_answer_certain(
    spark: SparkSession, places: Places, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places.new(kind, tmp_path, monkeypatch)
    scenario = make_scenario(seed, MESSAGES, misfortunes=seed % 2)
    absent = random.Random(seed).choice(sorted({script.program for script in scenario.scripts.values()}))
    folder = open_folder(f"{place}/ledger")
    folder.put(EXPECTED_FILE, f'[[writer]]\nprogram = "{absent}"\n'.encode())
    for _ in put_in_turns(folder, scenario, seed, absent):
        found = report(spark, f"{place}/ledger")
    assert found.is_lossless is not True
    assert found.reconciliation.lost is None
    assert [each.program for each in found.coverage.missing if absent in each.program]


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_clock_that_is_wrong_makes_no_answer_wrong(
    spark: SparkSession, places: Places, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places.new(kind, tmp_path, monkeypatch)
    scenario, chance = make_scenario(seed, MESSAGES, misfortunes=seed % 2), random.Random(seed)
    wrong = chance.choice(list(scenario.scripts.values()))
    wrong.ahead_ms = chance.choice((-90, -20, 20, 90)) * MINUTE
    for _ in put_in_turns(open_folder(f"{place}/ledger"), scenario, seed):
        assert_no_false_answer(report(spark, f"{place}/ledger"), scenario)
