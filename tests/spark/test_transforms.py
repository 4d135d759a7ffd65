"""Transforms on a handful of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted_ledger import BASE_MS, make_scenario

from twinbus.ledger import SPARK_SCHEMA, Kind
from twinbus.ledger.kinds import DELIVERY_BYTES
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.steps import STEP_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_FIELDS = dict(column.split() for column in SPARK_SCHEMA.split(", "))
NAMES = [column.split()[0] for column in STEP_DDL.split(", ")]


def steps(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    usual: dict[str, Any] = {
        name: ("" if kind == "STRING" else 0) for name, kind in (column.split() for column in STEP_DDL.split(", "))
    }
    usual |= {"message_id": None, "size": None, "session_id": None, "sequence_number": None, "entity": "orders"}
    numbered = ({**usual, "process": "p", "number": number, **row} for number, row in enumerate(rows, 1))
    return spark.createDataFrame([tuple(row[name] for name in NAMES) for row in numbered], STEP_DDL)


def test_steps_read_from_the_segments_are_those_of_compaction(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.compaction import steps_of_files
    from twinbus.spark.transforms.steps import steps as steps_of

    make_scenario(1, 200, misfortunes=1).write(tmp_path)
    (tmp_path / "torn.jsonl").write_text('{"v":1,"process":"x","num')
    read = steps_of(spark.read.schema(SPARK_SCHEMA).json(f"{tmp_path}/*.jsonl"))
    store = compact_ledger(read_in_process, tmp_path)
    compacted = steps_of_files(spark, store.store, store.manifest.files)
    assert read.columns == compacted.columns
    assert {tuple(row) for row in read.collect()} == {tuple(row) for row in compacted.collect()}


def test_outages_that_overlap_are_one_and_flaps_are_counted(spark: SparkSession) -> None:
    from twinbus.spark.transforms.availability import availability, changes, detours, observed, outages

    def step(kind: Kind, at: int, process: str, entity: str = "orders") -> dict[str, Any]:
        return {"kind": str(kind), "at_ms": at, "process": process, "entity": entity}

    rows = steps(
        spark,
        step(Kind.SUSPECTED, 100, "a"),  # a scare: no failover follows
        step(Kind.SUSPECTED, 1000, "a"),
        step(Kind.FAILED_OVER, 1100, "a"),
        step(Kind.RECOVERED, 2000, "a"),
        step(Kind.FAILED_OVER, 1500, "b"),
        step(Kind.RECOVERED, 2500, "b"),
        step(Kind.FAILED_OVER, 2400, "a"),
        step(Kind.RECOVERED, 2450, "a"),
        step(Kind.FAILED_OVER, 4000, "b", "Orders"),
        step(Kind.ACCEPTED, 5000, "b"),
        step(Kind.ACCEPTED, 100, "b", "bills"),
    )
    out = outages(detours(changes(rows)))
    assert [tuple(row) for row in out.collect()] == [
        ("orders", 1, 1000, 1100, 2500, 2, 3),
        ("orders", 2, 4000, 4000, None, 1, 1),
    ]
    found = [tuple(row) for row in availability(out, observed(rows)).collect()]
    assert found == [("bills", 100, 100, 0, 0, None), ("orders", 100, 5000, 2, 2500, 1 - 2500 / 4900)]


def test_both_rules_of_counting(spark: SparkSession) -> None:
    """C3: 64 KB steps, settlements, renewals and management are in the full rule only."""
    from twinbus.spark.transforms.cost import uses
    from twinbus.spark.transforms.traffic import traffic

    large, at = 65_536 + 1, BASE_MS
    one = {"at_ms": at, "message_id": "m", "size": large}
    parked = {**one, "queue": "q/0"}
    found = uses(
        traffic(
            steps(
                spark,
                {**parked, "kind": "backlogged"},
                {**parked, "kind": "received_from_backlog"},
                {**one, "kind": "sent_home"},
                {**parked, "kind": "completed"},
                {**one, "kind": "delivered"},
                {**one, "kind": "delivered", "outcome": "received-and-deleted", "size": 10},
                {"at_ms": at, "kind": "lock_renewed", "count": 3, "queue": "q/0"},
                {"at_ms": at, "kind": "queue_created", "queue": "q/0"},
                {"at_ms": at, "kind": "long_poll", "queue": "q/0", "count": 1},
                {"at_ms": at, "kind": "ping", "count": 1, "bytes": 200},
                {"at_ms": at, "kind": "ping", "count": 1, "bytes": 200, "outcome": "refused"},
                {"at_ms": at, "kind": "ping", "count": 1, "outcome": "not-sent"},
                {"at_ms": at, "kind": "probed", "outcome": "ok"},
                {"at_ms": at, "kind": "peeked", "count": 10},
                {"at_ms": at, "kind": "peeked", "queue": "q/0", "count": 2, "bytes": 2 * large},
                {"at_ms": at, "kind": "queue_checked", "count": 2},
                {"at_ms": at, "kind": "failed_over"},
                {"at_ms": at + 31 * 86_400_000, "kind": "accepted", "message_id": "n", "size": 65_536},
            )
        )
    )
    rows = {(row["month"], row["stage"]): (row["documents"], row["full"], row["bytes"]) for row in found.collect()}
    assert rows == {
        ("2025-03", "send to backlog"): (1, 2, large),
        ("2025-03", "receive from backlog"): (1, 2, large),
        ("2025-03", "send home to primary"): (1, 2, large),
        ("2025-03", "settle in backlog"): (0, 1, 0),
        ("2025-03", "receive from primary"): (2, 3, large + 10 + 2 * DELIVERY_BYTES),
        ("2025-03", "settle on primary"): (0, 1, 0),
        ("2025-03", "lock renewals"): (0, 3, 0),
        ("2025-03", "management"): (0, 3, 0),
        ("2025-03", "idle long polls"): (1, 1, 0),
        ("2025-03", "looks into the backlog"): (0, 10 + 2 * 2, 2 * large),
        ("2025-03", "pings"): (3, 1, 200),  # two of them the service has not taken
        ("2025-04", "send to primary"): (1, 1, 65_536),
    }


def test_what_is_listed_by_number_alone_is_one_operation_each(spark: SparkSession) -> None:
    """As the scheduled messages that a client cancels; how many they are stands in the first row."""
    from twinbus.spark.transforms.traffic import traffic

    one = {"at_ms": BASE_MS, "kind": "cancelled"}
    rows = [{**one, "sequence_number": number, "count": 3 if number == 1 else 0} for number in (1, 2, 3)]
    [found] = traffic(steps(spark, *rows)).collect()
    assert (found["messages"], found["operations"], found["sized_operations"]) == (0, 3, 3)


@pytest.mark.parametrize("is_told_by_namespace", [False, True])
def test_what_is_received_is_charged_once_whoever_tells(spark: SparkSession, is_told_by_namespace: bool) -> None:
    from twinbus.spark.transforms.cost import uses
    from twinbus.spark.transforms.traffic import traffic

    def step(kind: Kind, name: str, outcome: str, size: int = 100) -> dict[str, Any]:
        return {"at_ms": BASE_MS, "kind": str(kind), "message_id": name, "size": size, "outcome": outcome}

    dead = step(Kind.DEAD_LETTERED, "dead", "told-by-receiver")
    rows = [
        step(Kind.RECEIVED, "large", "completed", 65_537),
        step(Kind.RECEIVED, "small", "completed"),
        step(Kind.RECEIVED, "deleted", "received-and-deleted"),
        dead,
    ]
    if is_told_by_namespace:
        rows += [{**row, "kind": str(Kind.DELIVERED)} for row in rows[:3]] + [{**dead, "outcome": "by-receiver"}]
    found = {row["stage"]: row for row in uses(traffic(steps(spark, *rows))).collect()}
    assert set(found) == {"receive from primary", "settle on primary"}
    received = found["receive from primary"]
    assert (received["messages"], received["documents"], received["full"]) == (4, 4, 5)
    assert received["bytes"] == 65_537 + 3 * 100 + 4 * DELIVERY_BYTES
    assert found["settle on primary"]["full"] == 3


def test_a_dead_letter_is_charged_to_whoever_received_it(spark: SparkSession) -> None:
    """Not if the namespace did it by itself; and not twice if a syphon did, which records what it receives."""
    from twinbus.spark.transforms.cost import uses
    from twinbus.spark.transforms.traffic import traffic

    one = {"at_ms": BASE_MS, "message_id": "m", "size": 100}
    rows = [
        {**one, "kind": "dead_lettered", "outcome": "by-namespace"},
        {**one, "kind": "received_from_backlog", "queue": "q/0"},
        {**one, "kind": "dead_lettered", "queue": "q/0"},
    ]
    found = {row["stage"]: row["full"] for row in uses(traffic(steps(spark, *rows))).collect()}
    assert found == {"receive from backlog": 1, "settle in backlog": 1}


def test_months_and_days_are_those_of_utc_wherever_the_session_is(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from twinbus.spark.transforms.cost import uses
    from twinbus.spark.transforms.steps import steps as steps_of
    from twinbus.spark.transforms.traffic import traffic

    begin_of_march_ms = 1_740_787_200_000
    for zone in ("Pacific/Auckland", "America/Los_Angeles"):
        there = spark.newSession()
        there.conf.set("spark.sql.session.timeZone", zone)
        moments = (begin_of_march_ms - 1, begin_of_march_ms)
        accepted = [{"kind": "accepted", "message_id": "m", "size": 1, "at_ms": at} for at in moments]
        assert [row["month"] for row in uses(traffic(steps(there, *accepted))).collect()] == ["2025-02", "2025-03"]
        lines = there.createDataFrame([(1, at) for at in moments], "v INT, at_ms BIGINT")
        missing = [name for name in SPARK_FIELDS if name not in lines.columns]
        lines = lines.select("*", *(F.lit(None).cast(SPARK_FIELDS[name]).alias(name) for name in missing))
        assert [str(row["date"]) for row in steps_of(lines).collect()] == ["2025-02-28", "2025-03-01"]
    spark.createDataFrame([], "nothing INT")  # the active session again


def test_the_flow_has_what_the_namespace_records_beside_what_receivers_record(spark: SparkSession) -> None:
    from twinbus.spark.transforms.traffic import flow, traffic

    one = {"at_ms": BASE_MS, "message_id": "m"}
    [row] = flow(
        traffic(steps(spark, *({**one, "kind": kind} for kind in ("received", "received", "delivered")))),
    ).collect()
    assert (row["delivered"], row["received"], row["depth"]) == (1, 2, 0)


def test_a_message_is_late_when_one_that_was_sent_later_came_first(spark: SparkSession) -> None:
    from twinbus.spark.transforms.accounts import accounts
    from twinbus.spark.transforms.ordering import ordering, ordering_by_session, sent_messages

    def sent(name: str, at: int, session: str | None = None) -> dict[str, Any]:
        return {"kind": "accepted", "message_id": name, "at_ms": at, "process": "client", "session_id": session}

    def done(name: str, at: int) -> dict[str, Any]:
        return {"kind": "delivered", "message_id": name, "at_ms": at, "process": "receiver"}

    rows = steps(
        spark,
        *(sent(name, at, session) for at, (name, session) in enumerate([("a", None), ("b", None), ("c", None)])),
        *(sent(name, 5, "s") for name in ("x", "y")),
        sent("never", 6),
        *(done(name, at) for name, at in [("b", 10), ("y", 11), ("a", 14), ("c", 14), ("x", 15), ("b", 20)]),
    )
    found = [tuple(row) for row in ordering(ordering_by_session(sent_messages(accounts(rows)))).collect()]
    assert found == [("orders", 6, 1, "delivered", 5, 2, 1, 4)]


def test_a_session_is_hurt_in_the_way_of_looking_that_its_entity_is_looked_at(spark: SparkSession) -> None:
    """Not if its messages were stored the other way round but delivered in order, where deliveries are recorded."""
    from twinbus.spark.transforms.accounts import accounts
    from twinbus.spark.transforms.ordering import ordering, ordering_by_session, sent_messages, sessions_hurt

    def record(kind: str, name: str, at: int, session: str) -> dict[str, Any]:
        process = "client" if kind == "accepted" else "namespace"
        return {"kind": kind, "message_id": name, "at_ms": at, "process": process, "session_id": session}

    turns = {"s1": (("a", "b"), ("a", "b"), ("b", "a")), "s2": (("c", "d"), ("d", "c"), ("c", "d"))}
    rows = [
        record(kind, name, at, session)
        for session, names in turns.items()
        for step, kind in enumerate(("accepted", "stored", "delivered"))
        for at, name in enumerate(names[step], 10 * step)
    ]
    by_session = ordering_by_session(sent_messages(accounts(steps(spark, *rows))))
    [orders] = ordering(by_session).collect()
    assert (orders["basis"], orders["late"], orders["sessions_hurt"]) == ("delivered", 1, 1)
    [suffered] = sessions_hurt(by_session, ordering(by_session)).collect()
    assert (suffered["late"], suffered["delivered_late"], suffered["stored_late"]) == (1, 1, 0)
