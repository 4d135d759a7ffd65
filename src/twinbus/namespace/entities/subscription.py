"""A subscription: a queue that its topic fills, by the subscription's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from twinbus.errors import NotAllowed
from twinbus.namespace.entities.journeys import Journey
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.rules import Rule
from twinbus.namespace.entities.session_queue import SessionQueue
from twinbus.namespace.entities.shelf import EntityContext, awake
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Step
from twinbus.namespace.store.api import EntityRow, EntitySummary, MessageRow

if TYPE_CHECKING:
    from twinbus.namespace.entities.topic import Topic


class StoredRule(NamedTuple):
    row: EntityRow
    rule: Rule


class Subscription(Queue):
    def __init__(
        self,
        row: EntityRow,
        summary: EntitySummary,
        context: EntityContext,
        *,
        committed: int,
        dead_letter: Queue | None,
        topic: Topic,
    ) -> None:
        super().__init__(row, summary, context, committed=committed, dead_letter=dead_letter)
        self.topic = topic
        self.name = row.path.rpartition("/")[2]
        self.rules: dict[str, StoredRule] = {}
        """By name in lower case; `Topic` keeps them."""

    @property
    def size_bytes_max(self) -> int:
        return self.topic.settings.size_bytes_max

    def used(self, now_ms: int) -> None:
        super().used(now_ms)
        self.topic.used(now_ms)

    def check_sendable(self) -> None:
        raise NotAllowed(f"'{self.row.path}' is a subscription: send to its topic '{self.topic.row.path}'")

    def _awake(self, row: MessageRow, now_ms: int) -> MessageRow:
        """A copy that was held back lives no longer than its topic lets it."""
        ceilings_ms = (self.settings.default_ttl_ms, self.topic.settings.default_ttl_ms)
        ceiling_ms = min([each for each in ceilings_ms if each is not None], default=None)
        return awake(row, self.take_sequence(), ceiling_ms, now_ms)

    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        raise AssertionError("only its topic puts messages into a subscription")

    def take_in(self, arrival: Arrival, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        raise AssertionError("only its topic puts messages into a subscription")


class SessionSubscription(Subscription, SessionQueue):
    """A subscription with sessions."""
