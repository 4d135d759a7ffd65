"""P13 by the server's own meter: what a syphon costs that has nothing to do, on a clock turned by hand.

The real pump decides, our engine speaks for it, a real link dispatcher answers and counts; only the sockets between
them are missing.
"""

from __future__ import annotations

from connection_harness import NOW_MS, ConnectionHarness

from twinbus.amqp.events import Event, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.ops.meter import Metered
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.effects import Effect, GrantCredit, SettleDeliveries
from twinbus.syphon.pump.pump import Pump

QUEUES = 10
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class IdleSyphon(ConnectionHarness):
    """A pump on the links of a harness, and time that goes from one thing to do to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        paths = [backlog_path("contoso", index) for index in range(QUEUES)]
        for path in paths:
            self.gate.do(CreateQueue(path, QueueSettings(max_size_mb=1)), NOW_MS)
        self.store.commit()
        self.links: list[ReceivingLink] = [self.receiver(path) for path in paths]
        self.pump = Pump(paths, SyphonOptions(), NOW_MS)
        for index in range(QUEUES):
            self.pump.queue_attached(index, NOW_MS)

    def run_until(self, end_ms: int) -> None:
        """Everything that happens before this moment."""
        while self.now_ms < end_ms:
            for effect in self.pump.take_effects(self.now_ms):
                self._do(effect)
            self._hear(self.exchange())
            self.now_ms = max(self.now_ms + 1, self.pump.next_ms(self.now_ms))
            if self.now_ms < end_ms:
                self.pump.tick(self.now_ms)

    def _do(self, effect: Effect) -> None:
        match effect:
            case GrantCredit(queue=index, credit=credit):
                self.links[index].grant(credit)
            case SettleDeliveries(queue=index, first=first, last=last, outcome=outcome):
                self.links[index].settle(first, last, outcome)
            case _:
                raise AssertionError(f"an idle syphon does not want {effect}")

    def _hear(self, events: list[Event]) -> None:
        assert not [event for event in events if isinstance(event, TransferArrived)]

    def operations(self) -> dict[Metered, int]:
        """What the meter has counted, for all entities together."""
        counted: dict[Metered, int] = {}
        for reading in self.context.meter.readings():
            counted[reading.kind] = counted.get(reading.kind, 0) + reading.operations
        return counted


def test_an_idle_syphon_of_ten_queues_costs_40_receives_an_hour_and_28800_in_30_days() -> None:
    idle = IdleSyphon()
    idle.run_until(NOW_MS + HOUR_MS)
    assert idle.operations() == {Metered.RECEIVE_GRANT: 40}
    idle.run_until(NOW_MS + DAY_MS)
    assert idle.operations() == {Metered.RECEIVE_GRANT: 960}
    idle.run_until(NOW_MS + 30 * DAY_MS)
    assert idle.operations() == {Metered.RECEIVE_GRANT: 28_800}


def test_every_queue_pays_the_same() -> None:
    idle = IdleSyphon()
    idle.run_until(NOW_MS + DAY_MS)
    by_queue = {reading.entity: reading.operations for reading in idle.context.meter.readings()}
    assert by_queue == {backlog_path("contoso", index): 96 for index in range(QUEUES)}
