"""What the driver of a drain decides, with tasks that run in this process: no Spark is started."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backlog_messages import backlog_message, backlog_messages_for, fill, unaddressed
from json_rules import broken_rules
from roles import QUEUE_COUNT, SYPHON, estate
from spark_backlog import SparkBacklog, ids_in
from token_makers import scoped_to

from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.cli.pipeline.drain import _once
from twinbus.cli.pipeline.drain_output import DrainJsonLines, DrainLines
from twinbus.client.namespace import Namespace
from twinbus.errors import TwinbusError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.spark.access import Access
from twinbus.spark.drain import drain as drain_module
from twinbus.spark.drain.drain import drain
from twinbus.spark.drain.forecast import plan_drain
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.result import DrainResult
from twinbus.spark.drain.shard import ShardReport, drain_shard
from twinbus.syphon.control import PaceChange, pause, resume, running_syphons, set_pace
from twinbus.testing import NamespacePair
from twinbus.transport.links.peek import PAGE

NO_SPARK: Any = SimpleNamespace(conf={})
"""All that the driver asks of a session."""


def here(
    _spark: object, options: DrainOptions, shards: Sequence[Shard], *, every_s: float, look: Callable[[], None]
) -> list[ShardReport]:
    """A round whose tasks run one after the other, in this process."""
    look()
    return [drain_shard(options, shard) for shard in shards]


@pytest.fixture
def backlog(namespace_pair: NamespacePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkBacklog:
    monkeypatch.setattr(drain_module, "run_round", here)
    return SparkBacklog(namespace_pair, tmp_path)


@pytest.fixture
def keeps_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def drained(backlog: SparkBacklog, **wishes: Any) -> DrainResult:
    return drain(NO_SPARK, backlog.options(tasks=2, **wishes))


def once(backlog: SparkBacklog, **wishes: Any) -> int:
    """The exit code."""
    return _once(NO_SPARK, backlog.options(tasks=2, **wishes), DrainLines())


def test_what_is_for_entities_that_were_not_named_stays_and_is_counted(
    backlog: SparkBacklog, keeps_signals: None, capsys: pytest.CaptureFixture[str]
) -> None:
    put(backlog, 0, backlog_messages_for("vault", 3) + backlog_messages_for("orders", 5))
    put(backlog, 1, backlog_messages_for("vault", 1))
    assert once(backlog, entities=frozenset({"ORDERS"})) == 0
    out = capsys.readouterr().out
    assert out.startswith("5 messages are home")
    assert "nothing of what was chosen is left" in out
    assert "4 messages stay in the backlog" in out
    done = drained(backlog, entities=frozenset({"ORDERS"}))
    assert (done.rounds, done.ending) == (0, "chosen"), "nothing to do, and the backlog is not empty"
    assert len(ids_in(backlog.secondary, backlog.path(0))) == 3


def put(backlog: SparkBacklog, index: int, messages: Sequence[bytes]) -> None:
    fill(backlog.secondary.connection_string, backlog.path(index), messages)


# --- the keys that the page asks for ---


def test_a_drain_needs_no_more_than_the_two_keys_of_a_syphon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    monkeypatch.setattr(drain_module, "run_round", here)
    with estate() as world:
        secrets = {}
        for side, text in world.strings(SYPHON).items():
            (tmp_path / side).write_text(text)
            secrets[side] = Access(f"file:{tmp_path / side}")
        options = DrainOptions(
            primary=secrets["TWINBUS_PRIMARY"],
            secondary=secrets["TWINBUS_SECONDARY"],
            primary_name="contoso",
            queue_count=QUEUE_COUNT - 1,
            ledger=str(tmp_path / "ledger"),
            attempt_s=30.0,
            tasks=2,
        )
        for index in range(QUEUE_COUNT):
            messages = [backlog_message("orders", f"{index}-{number}") for number in range(10)]
            fill(world.secondary.connection_string, backlog_path("contoso", index), messages)
        assert _once(NO_SPARK, options, DrainLines()) == 0, capsys.readouterr()
        assert ids_in(world.primary, "orders").total() == 10 * QUEUE_COUNT
        fill(world.secondary.connection_string, backlog_path("contoso", 0), [unaddressed()])
        assert _once(NO_SPARK, options, DrainLines()) == 3
        assert "1 message is in quarantine" in capsys.readouterr().out


# --- queues beyond the count ---


def test_what_lies_beyond_the_count_is_found_and_brought_home(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    for index in (2, 57):
        backlog.secondary.create_queue(backlog.path(index), max_delivery_count=2_147_483_647)
        put(backlog, index, [backlog_message("orders", f"{index}-{number}") for number in range(10)])
    put(backlog, 0, backlog_messages_for("orders", 10))
    assert once(backlog) == 0
    assert ids_in(backlog.primary, "orders").total() == 30
    out = capsys.readouterr().out
    assert ": the backlog is empty\n" in out
    assert "beyond --queues: 2, 57;" in out


def test_a_queue_that_comes_up_during_a_drain_is_emptied_before_anybody_says_empty(
    backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 5))

    def meanwhile(*arguments: Any, **named: Any) -> list[ShardReport]:
        if not backlog_has_grown:
            backlog_has_grown.append(True)
            backlog.secondary.create_queue(backlog.path(3))
            put(backlog, 3, backlog_messages_for("orders", 5))
        return here(*arguments, **named)

    backlog_has_grown: list[bool] = []
    monkeypatch.setattr(drain_module, "run_round", meanwhile)
    done = drained(backlog)
    assert (done.ending, done.rounds, done.count("moved"), done.extra) == ("empty", 2, 10, [3])


def test_a_key_that_may_not_look_everywhere_exits_with_3_and_never_shows_an_empty_backlog(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 5))
    narrow = backlog.secret(backlog.secondary, scoped_to(backlog.secondary, backlog.path(0)))
    assert once(backlog, secondary=narrow, queue_count=1) == 3
    out = capsys.readouterr().out
    assert out.startswith("5 messages are home")
    assert "is empty" not in out
    assert "unknown whether messages are in backlog queue 1 and 98 more: unauthorised" in out


def test_a_queue_that_cannot_be_emptied_ends_a_drain_with_3_and_is_named_and_the_rest_comes_home(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    """A task would wait for it until its patience ends, round after round."""
    put(backlog, 0, backlog_messages_for("orders", 5))
    put(backlog, 1, backlog_messages_for("orders", 3))
    settings: dict[int, dict[str, Any]] = {2: {"requires_session": True}, 3: {"forward_to": "elsewhere"}}
    with Namespace.from_connection_string(backlog.secondary.connection_string).admin_client() as admin:
        admin.create_queue("elsewhere")
        for index, values in settings.items():
            admin.create_queue(backlog.path(index), **values)
        queue = admin.get_queue(backlog.path(1))
        queue.status = "ReceiveDisabled"
        admin.update_queue(queue)
    assert once(backlog) == 3
    out = capsys.readouterr().out
    assert out.startswith("5 messages are home")
    assert "is empty" not in out
    assert [f"backlog queue {index} cannot be emptied: " in out for index in (1, 2, 3)] == [True] * 3
    done = drained(backlog)
    assert (done.ending, done.rounds, done.count("moved")) == ("unsure", 0, 0)


def test_a_queue_that_is_disabled_during_a_drain_ends_it_as_well(
    backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 5))
    put(backlog, 1, backlog_messages_for("orders", 3))

    def meanwhile(*arguments: Any, **named: Any) -> list[ShardReport]:
        with Namespace.from_connection_string(backlog.secondary.connection_string).admin_client() as admin:
            queue = admin.get_queue(backlog.path(1))
            queue.status = "ReceiveDisabled"
            admin.update_queue(queue)
        return here(*arguments, **named)

    monkeypatch.setattr(drain_module, "run_round", meanwhile)
    done = drained(backlog)
    assert (done.ending, done.rounds, done.count("moved")) == ("unsure", 1, 5)
    assert any("backlog queue 1 cannot be emptied: disabled" in trouble for trouble in done.troubles)


# --- quarantine ---


def test_messages_in_quarantine_end_a_drain_with_3_and_are_counted_also_those_of_earlier_runs(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    put(backlog, 0, [*backlog_messages_for("orders", 5), unaddressed()])
    for _ in range(2):
        assert once(backlog) == 3
        out = capsys.readouterr().out
        assert ": the backlog is empty\n" in out
        assert "1 message is in quarantine: twinbus syphon quarantine list shows" in out


# --- order ---


def of_session(session: str, number: int) -> bytes:
    properties = {PropertyField.MESSAGE_ID: f"{session}-{number}", PropertyField.GROUP_ID: session}
    return address(encode_message(properties=properties, data=b"body"), "orders")


def session_in(queue: int) -> str:
    """A session whose messages belong to this one of two queues."""
    return next(name for name in map(str, range(100)) if queue_for(key_of("orders", name), (0, 1)) == queue)


def test_a_drain_in_order_is_refused_before_anything_moves_if_a_message_lies_in_a_queue_that_is_not_its_own(
    backlog: SparkBacklog, keeps_signals: None
) -> None:
    put(backlog, 0, [of_session(session_in(0), 1), of_session(session_in(1), 1)])
    with pytest.raises(TwinbusError, match=r"order cannot be promised: .*belong to queue 1.*check --queues"):
        once(backlog, order="session")
    assert ids_in(backlog.primary, "orders").total() == 0


def test_a_drain_in_order_is_refused_if_a_message_lies_beyond_the_count(backlog: SparkBacklog) -> None:
    backlog.secondary.create_queue(backlog.path(2))
    assert drained(backlog, order="session").ending == "empty", "an empty queue there breaks no order"
    put(backlog, 2, [of_session("a", 1)])
    with pytest.raises(TwinbusError, match="with another number of backlog queues than 2"):
        drained(backlog, order="session")


def test_a_message_without_known_order_that_no_first_look_saw_ends_a_drain_in_order_and_stays(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str], keeps_signals: None
) -> None:
    rightly = [of_session(session_in(0), number) for number in range(PAGE + 50)]
    put(backlog, 0, [*rightly, of_session(session_in(1), 1)])
    with pytest.raises(TwinbusError, match=r"order cannot be promised: .*belong to queue 1"):
        once(backlog, order="session")
    assert "the order of the next ones is not known" in capsys.readouterr().out
    assert f"{session_in(1)}-1" in ids_in(backlog.secondary, backlog.path(0))
    assert f"{session_in(1)}-1" not in ids_in(backlog.primary, "orders")


def test_a_drain_in_order_of_messages_that_lie_where_they_belong_brings_them_home(backlog: SparkBacklog) -> None:
    for queue in (0, 1):
        put(backlog, queue, [of_session(session_in(queue), number) for number in range(20)])
    assert (drained(backlog, order="session").ending, ids_in(backlog.primary, "orders").total()) == ("empty", 40)


# --- the brakes of a syphon ---


def test_first_moves_exactly_so_many_and_asks(backlog: SparkBacklog, keeps_signals: None) -> None:
    for index in (0, 1):
        put(backlog, index, [backlog_message("orders", f"{index}-{number}") for number in range(60)])
    assert once(backlog, first=25) == 3
    assert ids_in(backlog.primary, "orders").total() == 25
    asked: list[int] = []

    def go_on(moved: int) -> bool:
        asked.append(moved)
        return True

    done = drain(NO_SPARK, backlog.options(tasks=2, first=30), on_first=go_on)
    assert (done.ending, done.count("moved"), asked) == ("empty", 95, [30])


def test_a_number_that_is_larger_than_the_backlog_asks_nobody(backlog: SparkBacklog) -> None:
    put(backlog, 0, backlog_messages_for("orders", 20))
    done = drained(backlog, first=30_000)
    assert (done.ending, done.count("moved")) == ("empty", 20)


def test_after_a_killed_attempt_among_the_first_no_more_are_moved(
    backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 20))

    def killed(_spark: object, options: DrainOptions, shards: Sequence[Shard], **_: Any) -> list[ShardReport]:
        return [drain_shard(options, shard, attempt=1) for shard in shards]

    monkeypatch.setattr(drain_module, "run_round", killed)
    done = drained(backlog, first=5)
    assert (done.ending, done.rounds, done.count("moved")) == ("first", 1, 0)
    assert "not known" in done.troubles[0]


def test_only_what_is_older_than_the_cut_off(backlog: SparkBacklog, keeps_signals: None) -> None:
    put(backlog, 0, backlog_messages_for("orders", 5))
    before = datetime.now(UTC) - timedelta(hours=1)
    assert once(backlog, enqueued_before=before) == 0
    assert ids_in(backlog.primary, "orders").total() == 0
    done = drained(backlog, enqueued_before=datetime.now(UTC) + timedelta(hours=1))
    assert (done.ending, done.count("moved")) == ("chosen", 5), "what may have come since was not looked at"


def test_the_rate_is_that_of_the_whole_drain_over_many_rounds(backlog: SparkBacklog) -> None:
    for index in (0, 1):
        put(backlog, index, [backlog_message("orders", f"{index}-{number}") for number in range(150)])
    done = drained(backlog, rate=100.0, round_s=1)
    assert (done.ending, done.count("moved")) == ("empty", 300)
    assert done.rounds >= 2
    assert done.seconds >= 2.8, "100 a second, and no more at the beginning of each round than one task may send"


def test_a_drain_is_paused_paced_and_goes_on_from_outside(
    backlog: SparkBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 400))
    told: list[str] = []

    def steer() -> None:
        (found,) = until(lambda: [each for each in running_syphons() if each.facts and each.facts.moved])
        assert found.facts is not None
        told.append(found.facts.role)
        assert pause(found).is_paused
        moved = until(lambda: ids_in(backlog.primary, "orders").total() if is_calm(backlog) else None)
        assert moved < 400
        set_pace(found, PaceChange(rate=None))
        time.sleep(0.5)
        assert ids_in(backlog.primary, "orders").total() == moved, "a pause stays a pause"
        resume(found)

    def local(spark: object, options: DrainOptions, shards: Sequence[Shard], **named: Any) -> list[ShardReport]:
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(here, spark, options, shards, **named)
            while not wait([job], 0.1).done:
                named["look"]()
            return job.result()

    monkeypatch.setattr(drain_module, "run_round", local)
    monkeypatch.setattr(drain_module, "is_local", lambda _spark: True)
    with ThreadPoolExecutor(1) as pool:
        steering = pool.submit(steer)
        done = drain(NO_SPARK, backlog.options(tasks=1, rate=50.0), every_s=0.1)
        steering.result(WAIT_S)
    assert (done.ending, done.count("moved"), done.count("repeated"), told) == ("empty", 400, 0, ["drain"])
    assert running_syphons() == []


WAIT_S = 60.0


def until(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def is_calm(backlog: SparkBacklog) -> bool:
    """Whether nothing arrives any more."""
    before = ids_in(backlog.primary, "orders").total()
    time.sleep(0.7)
    return ids_in(backlog.primary, "orders").total() == before


def test_a_namespace_that_is_down_is_waited_for_over_rounds_and_the_reason_is_said(backlog: SparkBacklog) -> None:
    put(backlog, 0, backlog_messages_for("orders", 5))
    backlog.primary.faults.add("no-send")
    done = drained(backlog, round_s=1, patience_s=3.5)
    assert (done.ending, done.rounds > 2) == ("stuck", True)
    assert "orders: internal error" in done.troubles[0]
    backlog.primary.faults.clear()
    assert drained(backlog).count("moved") == 5


def test_reports_of_a_drain_of_days_take_no_more_room_than_those_of_minutes() -> None:
    done = DrainResult()
    for number in range(1_000):
        done.add([ShardReport(each, 0, f"host:{each}", moved=2, is_cut=True) for each in range(4)])
        assert number < 999 or len(done.reports) <= 8
    assert done.count("moved") == 8_000
    assert done.as_dict()["executors"] == {f"host:{each}": 2_000 for each in range(4)}


def test_a_plan_says_what_tasks_would_do_and_takes_nothing(
    backlog: SparkBacklog, capsys: pytest.CaptureFixture[str]
) -> None:
    put(backlog, 0, backlog_messages_for("orders", 1_200))
    put(backlog, 1, backlog_messages_for("orders", 300))
    found = plan_drain(NO_SPARK, backlog.options(tasks=2, rate=400.0))
    DrainLines().plan(found)
    shown = capsys.readouterr().out
    assert "about 1,500 messages wait in 2 backlog queues" in shown
    assert [line.split() for line in shown.splitlines() if "200/s" in line] == [
        ["0", "0", "200/s"],
        ["1", "0,", "1", "200/s"],
    ]
    assert "take twinbus syphon --until-empty" in shown
    DrainJsonLines().plan(found)
    said = json.loads(capsys.readouterr().out)
    assert (said["waiting"], said["tasks"][0]["limit_per_s"]) == (1_500, 200)
    assert list(broken_rules(said)) == []
    assert len(ids_in(backlog.secondary, backlog.path(0))) == 1_200
