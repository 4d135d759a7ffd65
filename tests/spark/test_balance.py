"""A report made little by little says the same as one made of everything at once, and looks only at what is new."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from random_ledger import random_ledger
from scripted_ledger import BASE_MS, MINUTE, Script, make_scenario

from twinbus.cost.prices import Prices
from twinbus.errors import StoreDamaged, StoreError, StoreInUse
from twinbus.ledger import Event, Kind
from twinbus.ledger.writing.segment import segment_name
from twinbus.spark import session as sessions
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs import balance as balances
from twinbus.spark.session import LITTLE_ROWS, SOME_ROWS, session_for
from twinbus.storage.local_folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from scripted_ledger import Scenario

    from twinbus.spark.jobs.findings import Findings

HORIZON_MIN = 15


def report(spark: SparkSession, ledger: Path, store: Path | None = None) -> Findings:
    from twinbus.spark.jobs.analysis import analyse

    compacted = compact_ledger(read_in_process, ledger, store)
    return analyse(spark, compacted, Prices(), horizon_min=HORIZON_MIN, tell=lambda _: None)


def said(found: Findings) -> dict[str, Any]:
    """All that a report says about messages and entities, but not when it was made and what was being written."""
    shown = found.as_dict()
    del shown["made_at"]
    shown["coverage"] = {name: shown["coverage"][name] for name in ("complete", "records", "first_ms", "last_ms")}
    return shown


def cut(chance: random.Random, lines: list[bytes], parts: int) -> list[list[bytes]]:
    """The lines in so many parts, in order, some of them empty."""
    marks = sorted(chance.randrange(len(lines) + 1) for _ in range(parts - 1))
    return [lines[begin:end] for begin, end in zip([0, *marks], [*marks, len(lines)], strict=True)]


def write_in_turns(scripts: Iterable[Script], ledger: Path, parts: int, seed: int) -> Iterator[int]:
    """Write the records of each process part by part, cut anywhere; yields after each turn."""
    chance = random.Random(seed)
    ledger.mkdir()
    pieces = {script.process: cut(chance, script.lines(), parts) for script in scripts}
    for turn in range(parts):
        for process, parts_of in pieces.items():
            path = ledger / segment_name(BASE_MS * 1_000_000, process, chance.choice((1, turn + 1)))
            with path.open("ab") as file:
                file.write(b"".join(parts_of[turn]))
        yield turn


QUICK_SEED = 1
SEEDS = [
    pytest.param(QUICK_SEED, marks=pytest.mark.long),
    *(pytest.param(seed, marks=pytest.mark.large) for seed in range(2, 12)),
]
"""The first has less data and is in `make test-long`; `make test-ledger` runs the others."""
KEEPING = (QUICK_SEED, 3, 4, 5)
"""In these ledgers the last turn leaves some files of accounts alone. In those of seeds 2, 6 and 7 it changes all."""


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little ledgers have many files of accounts and many stretches, and no run is too large for a closer look."""
    from twinbus.spark.jobs import merge
    from twinbus.spark.transforms import ordering

    monkeypatch.setattr(merge, "ACCOUNTS_PER_FILE", 400)
    monkeypatch.setattr(merge, "FEW_PER_FILE", 200)
    monkeypatch.setattr(merge, "LITTLE_SHARE", 0)
    monkeypatch.setattr(ordering, "STRETCH_RECORDS", 20)


PLANS = [
    pytest.param((LITTLE_ROWS, SOME_ROWS), id="in one partition"),
    pytest.param((0, SOME_ROWS), id="planned once"),
    pytest.param((0, 0), id="planned adaptively"),
]
"""What counts as little data and as some; with the last, the session of the whole report runs every query."""


def plan_by(monkeypatch: pytest.MonkeyPatch, rows: tuple[int, int]) -> None:
    monkeypatch.setattr(sessions, "LITTLE_ROWS", rows[0])
    monkeypatch.setattr(sessions, "SOME_ROWS", rows[1])


@pytest.mark.parametrize(
    ("rows", "is_adaptive", "partitions"),
    [
        pytest.param((LITTLE_ROWS, SOME_ROWS), "false", "2", id="in one partition", marks=pytest.mark.long),
        pytest.param((0, SOME_ROWS), "false", "4", id="planned once", marks=pytest.mark.long),
        pytest.param((0, 0), "true", "3", id="planned adaptively"),
    ],
)
def test_a_report_says_the_same_however_its_queries_are_planned(
    spark: SparkSession,
    scenario: Scenario,
    findings: Findings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[int, int],
    is_adaptive: str,
    partitions: str,
) -> None:
    plan_by(monkeypatch, rows)
    scenario.write(tmp_path)
    wished = {"spark.sql.adaptive.enabled": is_adaptive, "spark.sql.shuffle.partitions": partitions}
    before = {name: spark.conf.get(name, None) for name in wished}
    try:
        if rows == (0, 0):  # no other session is made then; the one of the tests plans as for little data
            for name, value in wished.items():
                spark.conf.set(name, value)
        session = session_for(spark, 1_000)
        assert {name: session.conf.get(name) for name in wished} == wished
        assert said(report(spark, tmp_path)) == said(findings)
    finally:
        for name, given in before.items():
            spark.conf.unset(name)
            if given is not None:
                spark.conf.set(name, given)


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("rows", [*PLANS, pytest.param((150, SOME_ROWS), marks=pytest.mark.large)])
@pytest.mark.parametrize("seed", SEEDS)
def test_any_ledger_at_all_read_in_any_parts_gives_the_report_of_the_whole(
    spark: SparkSession, tmp_path: Path, seed: int, rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever counts as little data, or as some."""
    plan_by(monkeypatch, rows)
    files: list[set[str]] = []
    for _ in write_in_turns(random_ledger(seed, 300, spread=20), tmp_path / "ledger", 3, seed):
        little_by_little = report(spark, tmp_path / "ledger")
        files.append(accounts_in(tmp_path / "ledger" / "compacted"))
    assert seed not in KEEPING or files[-2] & files[-1], "some files are kept"
    at_once = report(spark, tmp_path / "ledger", tmp_path / "store")
    assert said(little_by_little) == said(at_once)
    assert at_once.ordering == looked_at_as_one(spark, tmp_path / "ledger")


def a_tangle(seed: int, messages: int) -> list[Script]:
    """Two clients send one message a minute each; most are delivered soon, some as much as hours later."""
    chance = random.Random(seed)
    clients, namespace = [Script("0a", "client"), Script("0b", "client")], Script("0c", "contoso")
    for number in range(messages):
        at = BASE_MS + number * MINUTE // 2
        common: dict[str, Any] = {"message_ids": (f"m{number}",), "sizes": (10,)}
        common["session_ids"] = (chance.choice(("", "s1", "s2")),)
        clients[number % 2].note(at, Event(Kind.ACCEPTED, "orders", **common))
        after = chance.choice((1, 1, 1, 1, 90)) * MINUTE + chance.randrange(MINUTE)
        namespace.note(at + after, Event(Kind.DELIVERED, "orders", **common))
        if chance.random() < 0.1:
            clients[number % 2].note(at, Event(Kind.SUSPECTED, "orders"))
    return [*clients, namespace]


@pytest.mark.large
@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("rows", PLANS)
def test_torn_stretches_and_files_that_became_many_give_the_report_of_the_whole(
    spark: SparkSession, tmp_path: Path, rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are too many are put together; what is mended stays true."""
    from twinbus.spark.jobs import merge

    plan_by(monkeypatch, rows)
    monkeypatch.setattr(merge, "ACCOUNT_FILES_MAX", 8)
    monkeypatch.setattr(merge, "ACCOUNTS_PER_FILE", 40)
    monkeypatch.setattr(merge, "FEW_PER_FILE", 40)  # so that a turn leaves some files of accounts alone
    monkeypatch.setattr(merge, "FILES_MAX", 1)
    most: dict[str, int] = {}
    for _ in write_in_turns(a_tangle(1, 300), tmp_path / "ledger", 4, 1):
        little_by_little = report(spark, tmp_path / "ledger")
        store = tmp_path / "ledger" / "compacted"
        now = {
            table: len(files)
            for table, files in balances.load(LocalFolder(store), manifests.load(LocalFolder(store))).tables.items()
        }
        most = {table: max(count, most.get(table, 0)) for table, count in now.items()}
    assert [most[table] for table in ("mended", "tallies", "changes")] == [2, 2, 2], "of four that were written"
    at_once = report(spark, tmp_path / "ledger", tmp_path / "store")
    assert said(little_by_little) == said(at_once)
    assert at_once.ordering == looked_at_as_one(spark, tmp_path / "ledger")


def looked_at_as_one(spark: SparkSession, ledger: Path) -> list[dict[str, Any]]:
    """Damage to order, without any stretches."""
    from twinbus.spark.jobs.balance_frames import collect_rows
    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms import ordering as order
    from twinbus.spark.transforms.accounts import accounts

    steps = steps_in(spark, compact_ledger(read_in_process, ledger))
    return collect_rows(order.ordering(order.ordering_by_session(order.sent_messages(accounts(steps)))))


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ledger_read_in_any_parts_gives_the_report_of_the_whole(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    messages, entities = (150, 1) if seed == QUICK_SEED else (400, 3)
    scenario = make_scenario(seed, messages, misfortunes=1, entities=entities)
    for _ in write_in_turns(scenario.scripts.values(), tmp_path / "ledger", 3, seed):
        little_by_little = report(spark, tmp_path / "ledger")
    at_once = report(spark, tmp_path / "ledger", tmp_path / "store")
    assert said(little_by_little) == said(at_once)
    assert little_by_little.reconciliation.entities == scenario.counts()


def test_accounts_of_any_parts_put_together_are_those_of_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms.accounts import accounts, merge_accounts

    scenario = make_scenario(5, 600, misfortunes=3)
    scenario.write(tmp_path)
    steps = steps_in(spark, compact_ledger(read_in_process, tmp_path))
    part = F.pmod(F.xxhash64("process", "number"), F.lit(3))
    parts = [accounts(steps.where(part == each)) for each in range(3)]
    together = merge_accounts(parts[0].unionByName(parts[1]).unionByName(parts[2]))
    whole = {tuple(row) for row in accounts(steps).collect()}
    assert {tuple(row) for row in together.collect()} == whole
    assert len(whole) == len(scenario.expected)


class DayLedger:
    """A ledger of one sender and one receiver, minute by minute."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._client, self._receiver = Script("0a", "client"), Script("0b", "receiver")
        self._written = {"0a": 0, "0b": 0}

    def note(self, kind: Kind, minute: int, message_id: str) -> None:
        script = self._client if kind == Kind.ACCEPTED else self._receiver
        script.note(BASE_MS + minute * MINUTE, Event(kind, "orders", message_ids=(message_id,), sizes=(10,)))

    def write(self) -> None:
        """Append what is new; nobody has closed yet."""
        for script in (self._client, self._receiver):
            lines = script.lines(closed=False)
            path = self._ledger / segment_name(BASE_MS * 1_000_000, script.process, 1)
            with path.open("ab") as file:
                file.write(b"".join(lines[self._written[script.process] :]))
            self._written[script.process] = len(lines)


def make_day(ledger: Path) -> DayLedger:
    """Six hundred messages in ten hours, of which the last has not been delivered."""
    day = DayLedger(ledger)
    for number in range(600):
        day.note(Kind.ACCEPTED, number, f"m{number}")
        if number < 599:
            day.note(Kind.DELIVERED, number, f"m{number}")
    day.write()
    return day


def test_what_was_looked_at_is_not_looked_at_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that are in the balance can be anything; of the accounts only those are replaced that change."""
    from twinbus.spark.jobs import merge

    monkeypatch.setattr(merge, "ACCOUNTS_PER_FILE", 100)
    day = make_day(tmp_path)
    first = report(spark, tmp_path)
    assert first.reconciliation.entities == {"orders": {"delivered": 599, "stored_on_primary": 1}}
    store = tmp_path / "compacted"
    before = accounts_in(store)
    assert len(before) > 2
    for file in manifests.load(LocalFolder(store)).files:
        (store / file).write_bytes(b"no Parquet")

    day.note(Kind.DELIVERED, 600, "m599")
    day.note(Kind.DELIVERED, 601, "m598")
    day.write()
    second = report(spark, tmp_path)
    assert second.reconciliation.entities == {"orders": {"delivered": 599, "duplicated": 1}}
    assert [row["message_id"] for row in second.reconciliation.named] == ["m598"]
    assert len(before & accounts_in(store)) == len(before) - 1
    assert files_below(store) == accounts_in(store)


@pytest.mark.long
def test_what_says_nothing_of_messages_changes_nothing_about_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tables have as many files as they may have."""
    from twinbus.spark.jobs import merge

    pings = Script("0c", "client")

    def ping(minute: int) -> None:
        pings.note(BASE_MS + minute * MINUTE, Event(Kind.PING, "orders"))
        path = tmp_path / segment_name(BASE_MS * 1_000_000, "0c", minute + 1)
        path.write_bytes(b"".join(pings.lines(closed=False)[-1:]))

    ping(0)
    assert report(spark, tmp_path).reconciliation.entities == {}
    make_day(tmp_path)
    before = said(report(spark, tmp_path))
    monkeypatch.setattr(merge, "FILES_MAX", 0)
    ping(1)
    after = said(report(spark, tmp_path))
    assert after["reconciliation"] == before["reconciliation"]
    assert after["ordering"] == before["ordering"]
    assert after["coverage"]["records"] == before["coverage"]["records"] + 1


@pytest.mark.long
def test_messages_that_nobody_here_has_sent_have_no_order_and_are_accounted_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where only a namespace keeps a ledger: there are accounts, and no stretches."""
    from twinbus.spark.jobs import merge

    monkeypatch.setattr(merge, "ACCOUNTS_PER_FILE", 10)
    day = DayLedger(tmp_path)
    for number in range(60):
        day.note(Kind.STORED, number, f"m{number}")
    day.write()
    assert report(spark, tmp_path).ordering == []
    day.note(Kind.DELIVERED, 60, "m59")
    day.write()
    found = report(spark, tmp_path)
    assert (found.ordering, found.reconciliation.entities) == ([], {"orders": {"sent_elsewhere": 60}})


@pytest.mark.long
def test_a_torn_stretch_is_mended_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nothing new is about it; then it is mended again."""
    from twinbus.spark.jobs import merge
    from twinbus.spark.transforms import ordering

    monkeypatch.setattr(ordering, "STRETCH_RECORDS", 20)
    day = DayLedger(tmp_path)
    for number in range(60):
        day.note(Kind.ACCEPTED, number, f"m{number}")
    for number in (*range(5), *range(6, 10), *range(11, 60), 10):
        day.note(Kind.DELIVERED, 100 + (number if number != 10 else 99), f"m{number}")
    day.write()
    [orders] = report(spark, tmp_path).ordering
    assert (orders["arrived"], orders["late"]) == (59, 1)

    day.note(Kind.ACCEPTED, 300, "m300")
    day.note(Kind.DELIVERED, 301, "m300")
    day.write()
    with monkeypatch.context() as patch:
        patch.setattr(merge, "_repair", dies)
        [orders] = report(spark, tmp_path).ordering
    assert (orders["arrived"], orders["late"]) == (60, 1)

    day.note(Kind.DELIVERED, 302, "m5")
    day.write()
    [orders] = report(spark, tmp_path).ordering
    assert (orders["arrived"], orders["late"]) == (61, 2)


def accounts_in(store: Path) -> set[str]:
    return set(balances.load(LocalFolder(store), manifests.load(LocalFolder(store))).files("accounts"))


def files_below(store: Path) -> set[str]:
    return {str(file.relative_to(store)) for file in store.glob("accounts/*/*.parquet")}


@pytest.mark.long
def test_a_balance_that_does_not_fit_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    make_day(tmp_path)
    compacted = compact_ledger(read_in_process, tmp_path)
    store = compacted.store.path()

    def accounted() -> int:
        with open_balance(spark, compacted) as found:
            return found.accounts.count()

    assert accounted() == 600
    kept = (store / "balance" / "balance.json").read_bytes()
    for damage in (b"{", b'{"version":99}', kept.replace(b"steps/date", b"steps/gone")):
        (store / "balance" / "balance.json").write_bytes(damage)
        assert accounted() == 600
    next(iter(store.glob("accounts/*/*.parquet"))).unlink()
    assert accounted() == 600


@pytest.mark.long
def test_a_balance_of_fewer_steps_than_its_files_have_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """Without its manifest a ledger is compacted again, into files of the same names."""
    day = make_day(tmp_path)
    assert report(spark, tmp_path).reconciliation.accepted == 600
    day.note(Kind.ACCEPTED, 600, "m600")
    day.write()
    (tmp_path / "compacted" / manifests.NAME).unlink()
    assert report(spark, tmp_path).reconciliation.accepted == 601
    day.note(Kind.ACCEPTED, 601, "m601")
    day.write()
    assert report(spark, tmp_path).reconciliation.accepted == 602


def dies(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no power")


@pytest.mark.long
def test_a_run_that_dies_leaves_the_balance_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    day = make_day(tmp_path)
    with open_balance(spark, compact_ledger(read_in_process, tmp_path)):
        pass
    before = accounts_in(tmp_path / "compacted")
    day.note(Kind.ACCEPTED, 700, "late")
    day.write()
    compacted = compact_ledger(read_in_process, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(balances, "save", dies)
        with pytest.raises(StoreError, match=r"balance: no power$"), open_balance(spark, compacted):
            pass
    assert accounts_in(compacted.store.path()) == before
    with open_balance(spark, compacted) as found:
        assert found.accounts.count() == 601
    assert files_below(compacted.store.path()) == accounts_in(compacted.store.path())


@pytest.mark.long
def test_a_file_of_the_balance_that_is_none_is_reported_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    day = make_day(tmp_path)
    report(spark, tmp_path)
    store = tmp_path / "compacted"
    for file in accounts_in(store):
        whole = (store / file).read_bytes()
        (store / file).write_bytes(whole[: len(whole) // 2])
    day.note(Kind.DELIVERED, 600, "m599")
    day.write()
    compacted = compact_ledger(read_in_process, tmp_path)
    with (
        pytest.raises(StoreDamaged, match=r"/compacted/balance is damaged: .*; remove that"),
        open_balance(spark, compacted),
    ):
        pass
    shutil.rmtree(store / "balance")
    assert report(spark, tmp_path).reconciliation.entities == {"orders": {"delivered": 600}}


@pytest.mark.long
def test_the_session_that_was_active_is_it_after_a_report(spark: SparkSession, tmp_path: Path) -> None:
    """Ours for little data would be slow with much, and is nobody else's business."""
    from pyspark.sql import SparkSession

    day = make_day(tmp_path)
    for minute in (700, 701):
        report(spark, tmp_path)
        assert SparkSession.active() is spark
        assert sessions.ensure_session() is spark
        day.note(Kind.ACCEPTED, minute, f"m{minute}")
        day.write()


@pytest.mark.long
def test_files_that_somebody_reads_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    day = make_day(tmp_path)
    with open_balance(spark, compact_ledger(read_in_process, tmp_path)) as read:
        day.note(Kind.DELIVERED, 600, "m599")
        day.write()
        with open_balance(spark, compact_ledger(read_in_process, tmp_path)) as newer:
            assert newer.accounts.where("delivered = 1").count() == 600
        assert read.accounts.where("delivered = 1").count() == 599


def test_only_one_process_at_a_time_brings_the_balance_forward(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    make_day(tmp_path)
    compacted = compact_ledger(read_in_process, tmp_path)
    with manifests.lock_store(compacted.store), pytest.raises(StoreInUse), open_balance(spark, compacted):
        pass
