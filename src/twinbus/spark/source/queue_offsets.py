"""`startingOffsets` and `endingOffsets`: where reading begins and ends, in the form of Spark's Kafka source.

    earliest
    latest
    {"orders": 31, "bills": "latest", "visits": {"0": -2, "33": 9288674231451649}}

In JSON -1 is `latest`, -2 is `earliest`. A number is a sequence number; one for a whole entity leaves out lower
partitions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from twinbus.spark.source.offsets import partition_of

EARLIEST, LATEST = -2, -1
NUMBER_MAX = 2**63 - 1
DIGITS_MAX = 20
WORDS = {"earliest": EARLIEST, "latest": LATEST}


class QueueOffsets(NamedTuple):
    """An offset for every partition of every entity."""

    default: int
    """Of entities that are not named."""
    entities: Mapping[str, Mapping[int | None, int]] = {}
    """By name in lower case, then by partition; None: all that are not named."""

    def at(self, entity: str, partition: int) -> int:
        named = self.entities.get(entity.lower())
        return self.default if named is None else named.get(partition, named.get(None, self.default))

    @property
    def numbers(self) -> set[int]:
        """Everything that is said."""
        return {self.default, *[each for named in self.entities.values() for each in named.values()]}


EVERYTHING = QueueOffsets(EARLIEST)
UP_TO_NOW = QueueOffsets(LATEST)


def parse_queue_offsets(text: str, default: int) -> QueueOffsets:
    """Raises `ValueError` with what is wrong. `default` is for entities and partitions that are not named."""
    if text.lower() in WORDS:
        return QueueOffsets(WORDS[text.lower()])
    try:
        said = json.loads(text, object_pairs_hook=_each_once)
    except _SaidTwice:
        raise
    except ValueError:
        raise ValueError('earliest, latest or JSON as {"orders": 31, "bills": "latest"}') from None
    if not isinstance(said, dict):
        raise ValueError(f"a JSON object with the names of queues, earliest or latest: {_instead(said)}")
    return QueueOffsets(default, {name.strip("/").lower(): _of_entity(name, each) for name, each in said.items()})


class _SaidTwice(ValueError):
    pass


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of several would win without a word."""
    seen: set[str] = set()
    for name, _ in pairs:
        key = str(int(name)) if name.isdecimal() and len(name) <= DIGITS_MAX else name.strip("/").lower()
        if key in seen:
            raise _SaidTwice(f"said once for each queue and partition: {name!r:.40} is there twice, in whatever case")
        seen.add(key)
    return dict(pairs)


def _instead(said: Any) -> str:
    word = {number: word for word, number in WORDS.items()}.get(said) if isinstance(said, int) else None
    return f"write {word}" if word else f'write {{"orders": {said if isinstance(said, int) else 31}}}'


def _of_entity(name: str, said: Any) -> dict[int | None, int]:
    if not isinstance(said, dict):
        return {None: _number(name, said)}
    found: dict[int | None, int] = {}
    for partition, each in said.items():
        if not partition.isdecimal():
            raise ValueError(f"{name}: partitions are numbers, not {partition!r:.40}")
        number = _number(f"{name}, partition {partition}", each)
        if number > 0 and partition_of(number) != int(partition):
            raise ValueError(
                f"{name}: sequence number {number} is of partition {partition_of(number)}, not {partition}"
            )
        found[int(partition)] = number
    return found


def _number(what: str, said: Any) -> int:
    if isinstance(said, str) and said.lower() in WORDS:
        return WORDS[said.lower()]
    if isinstance(said, int) and not isinstance(said, bool) and (said in WORDS.values() or 1 <= said <= NUMBER_MAX):
        return said
    raise ValueError(f"{what}: a sequence number, -1 or latest, -2 or earliest; not {said!r:.40}")
