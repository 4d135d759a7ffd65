"""Which task empties which queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.spark.drain.plan import plan

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
