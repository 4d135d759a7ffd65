"""Everything that one paired client knows and has to decide: its entities and its backlog queues.

Calls are short and do no I/O. What is to do is collected as orders, each with the entity it is about, and fetched with
`take_orders`. Whoever shares a pair between threads holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from twinbus.pairing.effects import Effect, PingPrimary, Rouse, StopPings, Tell
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import Event, SendFailed, SendSucceeded
from twinbus.pairing.failure import Failure
from twinbus.pairing.line import Line
from twinbus.pairing.order import Came, Crossing, Fences, Key, Mark
from twinbus.pairing.rotation import Rotation
from twinbus.pairing.rules import Rules
from twinbus.pairing.verdict import Classifier, Role, Verdict, verdict

Order = tuple[Entity | None, Effect]


class Pair:
    def __init__(
        self, rules: Rules, *, entities: Iterable[str] = (), classifier: Classifier | None = None, name: str = "primary"
    ) -> None:
        """`entities` are declared to exist; `name` is the primary namespace's, for the paths of backlog queues."""
        self.rules = rules
        self.name = name
        self.rotation = Rotation((), rules.probation_s)
        self._classifier = classifier
        self._tickets = count(1)
        self.fences = Fences() if rules.keeps_order else None
        self._falls = 0
        self.kept = Line(rules, self._tickets)
        """Sends that wait for the only backlog queue that may take them."""
        self._entities: dict[str, Entity] = {}
        self._orders: list[Order] = []
        for path in entities:
            self.entity(path).is_known = True

    def entity(self, path: str) -> Entity:
        """The entity with this path; names differ not by case alone."""
        key = path.lower()
        if key not in self._entities:
            self._entities[key] = Entity(path, self.rules, self._tickets, fences=self.fences)
        return self._entities[key]

    @property
    def entities(self) -> Sequence[Entity]:
        return tuple(self._entities.values())

    def use_queues(self, queues: Iterable[int], lost: Mapping[int, Failure], at: float) -> None:
        """The backlog queues that were found or created, and those of them that cannot be used now."""
        self.rotation.use(queues)
        if self.fences is not None:
            self.fences.use(self.rotation.queues)
            self._refresh()
        for queue in self.rotation.queues:
            if queue in lost:
                self.queue_failed(queue, at, lost[queue])
            else:
                self.queue_back(queue)

    def take_orders(self) -> list[Order]:
        orders, self._orders = self._orders, []
        return orders

    @property
    def has_orders(self) -> bool:
        return bool(self._orders)

    def order(self, entity: Entity | None, *effects: Effect) -> None:
        self._orders += [(entity, effect) for effect in effects]
        if entity is not None:
            for effect in effects:
                if isinstance(effect, PingPrimary | StopPings):
                    entity.next_ping_at = effect.at if isinstance(effect, PingPrimary) else None

    def feed(self, entity: Entity, event: Event) -> None:
        """Something happened to an entity."""
        self.order(entity, *entity.feed(event))

    # --- sends ---

    def judge(self, entity: Entity, failure: Failure) -> Verdict:
        """The verdict on a failed attempt at the primary."""
        return self._opinion(entity, failure) or verdict(failure, Role.PRIMARY, is_known=entity.is_known)

    def _opinion(self, entity: Entity, failure: Failure) -> Verdict | None:
        """What the application's own classifier says; one that is broken says nothing, and that is told once."""
        if self._classifier is None:
            return None
        try:
            opinion = self._classifier(failure)
        except Exception as error:  # it must not hide why the send failed
            self.warn_once(entity, "pairing_warning", f"the classifier raised {type(error).__name__}: {error}")
            return None
        if opinion is not None and not isinstance(opinion, Verdict):
            self.warn_once(entity, "pairing_warning", f"the classifier must return a Verdict or None, got {opinion!r}")
            return None
        return opinion

    def sent(self, entity: Entity, at: float, epoch: int, messages: int, chance: float) -> None:
        """The primary took messages of an attempt that began in this epoch."""
        entity.is_known = True
        entity.tally.to_primary += messages
        self.feed(entity, SendSucceeded(at, epoch))
        self.order(entity, *entity.count_send(at, epoch, chance, failed=False))

    def send_failed(self, entity: Entity, at: float, epoch: int, failure: Failure, chance: float) -> None:
        """A send to the primary used up its schedule, and the verdict was *down*."""
        self.feed(entity, SendFailed(at, epoch, str(failure), chance))
        self.order(entity, *entity.count_send(at, epoch, chance, failed=True))

    def doubted(
        self,
        entity: Entity,
        failure: Failure,
        message_ids: Sequence[str],
        side: str,
        copies: int | None = None,
        *,
        sizes: Sequence[int] = (),
        queue: int | None = None,
    ) -> None:
        """An attempt to send these messages, or so many of them, ended without an answer."""
        entity.tally.in_doubt += len(message_ids) if copies is None else copies
        details: dict[str, object] = {"message_ids": tuple(message_ids), "side": side}
        if queue is not None:
            details["queue"] = queue
        text = f"{failure.kind.value}: {failure.text}"
        self.order(entity, Tell("in_doubt", text, details, sizes=tuple(sizes)))

    # --- backlog queues ---

    def queue_took(self, entity: Entity, queue: int, messages: int) -> None:
        entity.tally.to_backlog += messages
        self.queue_back(queue)

    def queue_back(self, queue: int) -> None:
        if self.rotation.confirm(queue):
            self.order(None, Tell("backlog_queue_back", "it takes messages again", {"queue": queue}))

    def queue_failed(self, queue: int, at: float, failure: Failure) -> None:
        """The queue leaves the rotation, for all senders."""
        if self.rotation.lose(queue, at, failure):
            wait_s = self.rotation.lost[queue].back_at - at if queue in self.rotation.lost else 0.0
            details = {"queue": queue, "kind": failure.kind.value, "wait_s": wait_s}
            self.order(None, Tell("backlog_queue_lost", str(failure), details))

    # --- order ---

    def new_ticket(self) -> int:
        return next(self._tickets)

    def depart(self, entity: Entity, key: Key, marks: Sequence[Mark]) -> Crossing:
        """Letters of a key are about to be sent to their backlog queue: from now on a fence stands before it."""
        assert self.fences is not None
        crossing = self.fences.depart(key, marks)
        entity.refresh()
        return crossing

    def came_home(self, queue: int, letters: Iterable[Came]) -> None:
        """Our syphon has brought letters home, or they were refused for good."""
        if self.fences is not None:
            self._fences_fell(self.fences.came(queue, letters))

    def seen_empty(self, queue: int, look: int) -> None:
        """Our syphon has looked into a queue and found nothing; `look` is when it began, in the fences' time."""
        if self.fences is not None:
            self._fences_fell(self.fences.seen_empty(queue, look))

    def arrived(self, crossing: Crossing) -> None:
        """A backlog queue has taken letters of a key."""
        if self.fences is not None:
            self._fences_fell(self.fences.arrived(crossing))

    def not_arrived(self, crossing: Crossing, *, in_doubt: bool) -> None:
        """A backlog queue has not taken letters of a key, or nobody knows."""
        if self.fences is not None:
            self._fences_fell(self.fences.failed(crossing, in_doubt=in_doubt))

    def _fences_fell(self, tickets: Iterable[int]) -> None:
        assert self.fences is not None
        if self.fences.falls != self._falls:
            self._falls = self.fences.falls
            self._refresh()
        self.order(None, *map(Rouse, tickets))

    def _refresh(self) -> None:
        for entity in self._entities.values():
            entity.refresh()

    def warn_once(self, entity: Entity, name: str, text: str, **details: object) -> None:
        """Tell something about an entity that is worth telling only once."""
        if name not in entity.warned:
            entity.warned.add(name)
            self.order(entity, Tell(name, text, details))
