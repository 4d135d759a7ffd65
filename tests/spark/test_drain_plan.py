"""Which task empties which queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.spark.drain.forecast import LOCAL, NARROW, NOTHING, SMALL, WIDE, advice
from twinbus.spark.drain.plan import TASK_RATE_MIN, plan, share_pace, tasks_for
from twinbus.spark.drain.width import ELASTIC_TASKS_MAX, elastic_tasks

DEPTHS = st.dictionaries(st.integers(0, 20), st.sampled_from([0, 1, 3, 499, 500, 501, 100_000, 10**9]), max_size=12)


@given(DEPTHS, st.integers(1, 40), st.booleans())
def test_every_queue_with_messages_has_a_task_and_no_other_has(depths: dict[int, int], tasks: int, order: bool) -> None:
    shards = plan(depths, tasks, in_order=order)
    assert {queue for shard in shards for queue in shard.queues} == {queue for queue, depth in depths.items() if depth}
    assert len(shards) <= tasks
    assert all(shard.queues for shard in shards)
    assert [shard.number for shard in shards] == list(range(len(shards)))


@given(DEPTHS, st.integers(1, 40))
def test_in_order_a_queue_belongs_to_exactly_one_task(depths: dict[int, int], tasks: int) -> None:
    owned = [queue for shard in plan(depths, tasks, in_order=True) for queue in shard.queues]
    assert len(owned) == len(set(owned))


def test_one_deep_queue_is_shared_by_all_tasks() -> None:
    assert [shard.queues for shard in plan({3: 100_000}, 4)] == [(3,)] * 4


def test_many_shallow_queues_share_a_task() -> None:
    assert [shard.queues for shard in plan(dict.fromkeys(range(10), 40), 4)] == [tuple(range(10))]


def test_tasks_go_where_the_depth_is() -> None:
    shards = plan({0: 90_000, 1: 5_000, 2: 5_000}, 10)
    assert sum(0 in shard.queues for shard in shards) == 9
    assert shards[-1].queues == (1, 2)


def test_in_order_the_deepest_queues_are_dealt_out_first() -> None:
    assert [shard.queues for shard in plan({0: 10_000, 1: 9_000, 2: 500, 3: 600}, 2, in_order=True)] == [
        (0,),
        (1, 2, 3),
    ]


@given(
    st.dictionaries(st.integers(0, 20), st.integers(1, 200_000), min_size=1),
    st.integers(1, 64),
    st.sampled_from([None, 0.5, 100.0, 10_000.0]),
    st.sampled_from([None, 1, 7, 25_001, 1_000_000]),
    st.booleans(),
)
def test_shares_of_rate_and_number_are_those_of_the_whole(
    depths: dict[int, int], tasks: int, rate: float | None, first: int | None, order: bool
) -> None:
    width = tasks_for(tasks, rate, first)
    shards = share_pace(plan(depths, width, in_order=order), rate, first)
    assert 1 <= len(shards) <= width <= tasks
    if rate is None:
        assert {shard.rate for shard in shards} == {None}
    else:
        assert sum(shard.rate or 0 for shard in shards) <= rate * (1 + 1e-9)
        assert len(shards) == 1 or min(shard.rate or 0 for shard in shards) >= TASK_RATE_MIN
    if first is not None:
        assert sum(shard.first or 0 for shard in shards) == first
        assert all(shard.first for shard in shards)


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({}, ELASTIC_TASKS_MAX),
        ({"maxExecutors": "10"}, 10),
        ({"maxExecutors": "10", "cores": "4"}, 40),
        ({"maxExecutors": "10", "cores": "4", "cpus": "2"}, 20),
        ({"maxExecutors": "2147483647", "cores": "4"}, ELASTIC_TASKS_MAX),
        ({"maxExecutors": "4", "master": "spark://host:7077"}, ELASTIC_TASKS_MAX),
        ({"maxExecutors": "4", "master": "spark://host:7077", "cores": "2"}, 8),
    ],
)
def test_executors_that_would_come_count(settings: dict[str, str], tasks: int) -> None:
    names = {
        "maxExecutors": "spark.dynamicAllocation.maxExecutors",
        "cores": "spark.executor.cores",
        "cpus": "spark.task.cpus",
        "master": "spark.master",
    }
    known = {names[name]: value for name, value in settings.items()}
    assert elastic_tasks((known | {"spark.dynamicAllocation.enabled": "true"}).get) == tasks
    assert elastic_tasks(known.get) is None


@pytest.mark.parametrize(
    ("waiting", "tasks", "is_local", "text"),
    [
        (0, 0, False, NOTHING),
        (1_000, 8, False, SMALL),
        (5_000_000, 1, False, NARROW),
        (5_000_000, 4, True, LOCAL),
        (5_000_000, 8, False, WIDE),
    ],
)
def test_a_plan_says_when_a_syphon_would_do(waiting: int, tasks: int, is_local: bool, text: str) -> None:
    assert text in advice(waiting, tasks, is_local=is_local)
