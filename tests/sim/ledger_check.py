"""What the ledger of a namespace says is in each place, beside what is there.

It counts the ledger's events alone: a later reader knows no more. A crash keeps from the ledger what
was durable and not yet reported; the inventory at the next start makes up for it, and the count begins anew from there.
"""

from __future__ import annotations

from collections import Counter

from sim.disk import Disk
from sim.invariants import check
from twinbus.broker.core.message_events import Cause
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX, SUBSCRIPTIONS, TRANSFER_SUFFIX
from twinbus.broker.ops.ledger_events import MessageEventRecorder
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event

COMING = (Kind.STORED, Kind.COPIED, Kind.INVENTORY)
GOING = (Kind.DELIVERED, Kind.DEAD_LETTERED, Kind.EXPIRED, Kind.FORWARDED, Kind.UNSCHEDULED, Kind.REMOVED)


class LedgerCheck:
    """A `Recorder` that adds up."""

    def __init__(self, seen: Counter[str]) -> None:
        """`seen` counts how often which kind is recorded."""
        self.recorder = MessageEventRecorder(self, "simulated")
        self._seen = seen
        self._held: Counter[str] = Counter()
        self._published: set[tuple[str, int]] = set()

    def begin(self, machine: NamespaceMachine) -> None:
        """The namespace works, for the first time or again."""
        self._held.clear()
        self._published.clear()
        self.recorder.record_inventory(machine.registry.all())

    def record(self, event: Event, /) -> None:
        place = event.entity or event.queue
        count = len(event.message_ids) + event.count
        self._seen[f"recorded: {event.kind}"] += 1
        if event.kind in COMING:
            self._held[place] += count
        if event.kind in GOING:
            self._held[place] -= count
        if event.kind == Kind.DEAD_LETTERED:
            self._held[_grave_of(event)] += count
        if event.kind == Kind.REMOVED:  # whatever has its name next begins to count anew
            self._published = {each for each in self._published if each[0] != place}
        if event.kind in (Kind.COPIED, Kind.UNCLAIMED):
            self._publish(place.partition(SUBSCRIPTIONS)[0], event.sequence_numbers)

    def _publish(self, topic: str, numbers: tuple[int, ...]) -> None:
        """A topic has a message no more that it has handed on, to however many subscriptions."""
        for number in numbers:
            if (topic, number) not in self._published:
                self._published.add((topic, number))
                self._held[topic] -= 1

    def compare(self, disk: Disk) -> None:
        """Everything is where the ledger says, and nowhere else."""
        there = {row.path: len(disk.rows_of(entity_id)) for entity_id, row in disk.entities().items()}
        for path in there.keys() | self._held.keys():
            said, found = self._held[path], there.get(path, 0)
            check(said == found, f"the ledger says that '{path}' has {said} messages, there are {found}")


def _grave_of(event: Event) -> str:
    place = event.entity or event.queue
    if event.outcome == Cause.NOT_FORWARDED:
        return place.removesuffix(DEAD_LETTER_SUFFIX) + TRANSFER_SUFFIX
    return place + DEAD_LETTER_SUFFIX
