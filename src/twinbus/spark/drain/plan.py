"""Which task empties which backlog queues.

The queues are laid end to end, each as long as it is deep, and the whole is cut into equal pieces, one a task: a deep
queue is shared by several tasks, several shallow ones share a task. A piece does not limit what a task may take: a task
ends when all of its queues are empty, whoever emptied them. With order a queue belongs to exactly one task, and the
deepest queues are assigned first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

SHARE_MIN = 500
"""A task for fewer messages is not worth its start, unless it is the only one."""


TASK_RATE_MIN = 50.0
"""Messages a second: a limit that is lower than this for each task needs fewer tasks."""
TASK_FIRST_MIN = 10_000
"""The same for a number of messages: one task counts exactly, and few messages need no more."""


class QueueExtent(NamedTuple):
    """The first and the last sequence number in a queue; numbers between them may be missing."""

    first: int
    last: int

    @property
    def depth(self) -> int:
        """About how many messages that are, and never fewer."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Shard:
    """The work of one task."""

    number: int
    queues: tuple[int, ...]
    """The indexes of its backlog queues."""
    rate: float | None = None
    """Its share of the rate of the whole drain; None: no limit."""
    first: int | None = None
    """Its share of the messages that may be moved; None: no limit."""


def plan(depths: Mapping[int, int], tasks: int, *, in_order: bool = False) -> list[Shard]:
    """At most `tasks` shards; each queue that is not empty is in at least one, with order in exactly one."""
    deep = {index: depth for index, depth in sorted(depths.items()) if depth > 0}
    if not deep:
        return []
    count = max(1, min(tasks, -(-sum(deep.values()) // SHARE_MIN)))
    groups = _deal(deep, min(count, len(deep))) if in_order else _cut(deep, count)
    return [Shard(number, tuple(queues)) for number, queues in enumerate(groups)]


def tasks_for(tasks: int, rate: float | None, first: int | None) -> int:
    """How many of so many tasks are of use at this pace."""
    by_rate = tasks if rate is None else max(1, int(rate / TASK_RATE_MIN))
    by_first = tasks if first is None else max(1, first // TASK_FIRST_MIN)
    return max(1, min(tasks, by_rate, by_first))


def share_pace(shards: list[Shard], rate: float | None, first: int | None) -> list[Shard]:
    """The shards with equal shares of rate and number: together they never exceed either."""
    count = len(shards)
    numbers = [None if first is None else first // count + (place < first % count) for place in range(count)]
    paced = [
        replace(shard, rate=None if rate is None else rate / count, first=number)
        for shard, number in zip(shards, numbers, strict=True)
    ]
    return [shard for shard in paced if shard.first != 0]


def _cut(deep: Mapping[int, int], count: int) -> list[list[int]]:
    """The queues that each of `count` equal pieces of the whole touches."""
    whole = sum(deep.values())
    groups: list[list[int]] = [[] for _ in range(count)]
    start = 0
    for index, depth in deep.items():
        end = start + depth
        first, last = start * count // whole, (end * count - 1) // whole
        for group in groups[first : last + 1]:
            group.append(index)
        start = end
    return groups


def _deal(deep: Mapping[int, int], count: int) -> list[list[int]]:
    """Each queue to the task with the least work so far, the deepest first."""
    groups: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted(deep, key=lambda each: (-deep[each], each)):
        least = loads.index(min(loads))
        groups[least].append(index)
        loads[least] += deep[index]
    return [sorted(group) for group in groups]
