"""An entity as peeking shows it: numbers, times and states, without a namespace."""

from __future__ import annotations

from twinbus.spark.source.offsets import PARTITION_BITS
from twinbus.spark.source.stream_offsets import PeekedEntry


class PeekedEntity:
    """Numbered as the service numbers: in each partition from 1 on, with the partition in the topmost 16 bits."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.peeks = 0
        self.messages: dict[int, PeekedEntry] = {}
        self._sent: dict[int, int] = {}

    def send(self, partition: int = 0, count: int = 1, *, scheduled: bool = False) -> list[int]:
        numbers = []
        for _ in range(count):
            self.now_ms += 1
            self._sent[partition] = self._sent.get(partition, 0) + 1
            number = (partition << PARTITION_BITS) + self._sent[partition]
            self.messages[number] = PeekedEntry(number, self.now_ms, scheduled)
            numbers.append(number)
        return numbers

    def take(self, *numbers: int) -> None:
        for number in numbers:
            del self.messages[number]

    def make_anew(self) -> None:
        self.now_ms += 1
        self.messages, self._sent = {}, {}

    def peek(self, entity: str, number: int, most: int) -> list[PeekedEntry]:
        """An entity with partitions gives one message at a time, however many are asked for."""
        self.peeks += 1
        found = sorted(each for each in self.messages if each >= number)
        return [self.messages[each] for each in found[: 1 if len(self._sent) > 1 else most]]
