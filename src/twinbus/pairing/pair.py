"""Everything that one paired client knows and has to decide: its entities and its backlog queues.

Calls are short and do no I/O. What is to do is collected as orders, each with the entity it is about, and fetched with
`take_orders`. Whoever shares a pair between threads holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Literal

from twinbus.pairing.backlog.ordering import Crossing, DepartedMessage, Fences, Key, Mark
from twinbus.pairing.backlog.rotation import Rotation
from twinbus.pairing.effects import Effect, PingPrimary, ReportEvent, StopPings, WakeWaiter
from twinbus.pairing.entity import Entity, Line
from twinbus.pairing.events import Event, LinkOpened, OthersFailedOver, PingSucceeded, SendFailed, SendSucceeded
from twinbus.pairing.failover import Suspect
from twinbus.pairing.primary_abilities import Abilities, Ability
from twinbus.pairing.rules import Rules
from twinbus.pairing.secondary import Secondary, Waiter, is_about_the_secondary
from twinbus.pairing.sending.error_class import Classifier, ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

Order = tuple[Entity | None, Effect]


class Pair:
    def __init__(
        self, rules: Rules, *, entities: Iterable[str] = (), classifier: Classifier | None = None, name: str = "primary"
    ) -> None:
        """`entities` are declared to exist; `name` is the primary namespace's, for the paths of backlog queues."""
        self.rules = rules
        self.name = name
        self.rotation = Rotation((), rules.probation_s)
        self.secondary = Secondary(rules.attempt_s)
        self._classifier = classifier
        self.abilities = Abilities()
        self.is_spool_full = False
        """The spool took nothing of what was last put there."""
        self.drops_pings: bool | None = None
        """Whether the primary has announced that it does; None: nobody has connected to it yet."""
        self._tickets = count(1)
        self._awaited: set[int] = set()
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

    def find(self, path: str) -> Entity | None:
        """The same, if it is known already."""
        return self._entities.get(path.lower())

    @property
    def entities(self) -> Sequence[Entity]:
        return tuple(self._entities.values())

    def use_queues(self, queues: Iterable[int], lost: Mapping[int, Failure], at: float) -> None:
        """The backlog queues that were found or created, and those of them that cannot be used now."""
        self.rotation.use(queues)
        if self.fences is not None:
            self.fences.use(self.rotation.queues)
            self._refresh()
        unreachable = [why for why in lost.values() if is_about_the_secondary(why)]
        for queue in self.rotation.queues:
            if queue not in lost:
                self.queue_back(queue)
            elif not is_about_the_secondary(lost[queue]):
                self.queue_failed(queue, at, lost[queue])
        if unreachable and len(unreachable) == len(self.rotation.queues):
            self.secondary_failed(at, self.secondary.generation, unreachable[0], 0.0)

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
        was = entity.side
        self.order(entity, *entity.feed(event))
        if isinstance(event, SendSucceeded | PingSucceeded | LinkOpened):
            self.met_primary(event.at, None)
        if was is NamespaceSide.BACKLOG and entity.side is NamespaceSide.PRIMARY:
            entity.is_spooling = False
            self.order(None, *self.secondary.rouse(entity.path))
        elif isinstance(event, LinkOpened) and entity.may_try(event.at):
            self.order(None, *self.secondary.rouse(entity.path))  # sends that wait may try the primary

    @property
    def probe(self) -> Literal["ping", "link"]:
        """How the primary is asked whether it is back (P7): one that is not known to drop pings might deliver them."""
        if self.rules.probe != "auto":
            return self.rules.probe
        return "ping" if self.drops_pings else "link"

    # --- sends ---

    def classify(self, entity: Entity, failure: Failure) -> ErrorClass:
        """The class of a failed attempt at the primary."""
        return self._opinion(entity, failure) or classify(failure, SendKind.PRIMARY, is_known=entity.is_known)

    def _opinion(self, entity: Entity, failure: Failure) -> ErrorClass | None:
        """What the application's own classifier says; one that is broken says nothing, and that is reported once."""
        if self._classifier is None:
            return None
        try:
            opinion = self._classifier(failure)
        except Exception as error:  # it must not hide why the send failed
            self.warn_once(entity, "pairing_warning", f"the classifier raised {type(error).__name__}: {error}")
            return None
        if opinion is not None and not isinstance(opinion, ErrorClass):
            self.warn_once(
                entity, "pairing_warning", f"the classifier must return an ErrorClass or None, got {opinion!r}"
            )
            return None
        return opinion

    def sent(self, entity: Entity, at: float, epoch: int, messages: int, chance: float) -> None:
        """The primary took messages of an attempt that began in this epoch."""
        entity.is_known = True
        entity.tally.to_primary += messages
        self.feed(entity, SendSucceeded(at, epoch))
        self.order(entity, *entity.count_send(at, epoch, chance, failed=False))

    def send_failed(self, entity: Entity, at: float, epoch: int, failure: Failure, chance: float) -> None:
        """A send to the primary used up its schedule, and its class was *down*."""
        self.feed(entity, SendFailed(at, epoch, str(failure), chance))
        self.met_primary(at, failure)
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
        """An attempt to send these messages, or `copies` of them, ended without an answer."""
        entity.tally.in_doubt += len(message_ids) if copies is None else copies
        details: dict[str, object] = {"message_ids": tuple(message_ids), "side": side}
        if queue is not None:
            details["queue"] = queue
        text = f"{failure.kind.value}: {failure.text}"
        self.order(entity, ReportEvent("in_doubt", text, details, sizes=tuple(sizes)))

    # --- what other hosts have found ---

    @property
    def is_any_suspect(self) -> bool:
        return any(isinstance(entity.state, Suspect) for entity in self._entities.values())

    def others_failed_over(self, path: str, hosts: tuple[str, ...], at: float, chance: float) -> None:
        """A quorum of other hosts has failed an entity over. Nothing comes of it unless it is suspect here."""
        entity = self.find(path)
        if entity is not None:
            self.feed(entity, OthersFailedOver(at, entity.epoch, hosts, chance))

    # --- what else the primary can do ---

    def met_primary(self, at: float, failure: Failure | None) -> None:
        """The primary was asked for something; None: and has answered."""
        self.order(None, *self.abilities.met(at, failure))

    def tried(self, path: str, ability: Ability, at: float, failure: Failure | None) -> None:
        """An entity or subscription of the primary was received from, or managed."""
        self.order(None, *self.abilities.tried(path, ability, at, failure))

    # --- backlog queues ---

    def queue_took(self, entity: Entity, queue: int, messages: int, at: float) -> None:
        entity.tally.to_backlog += messages
        entity.is_spooling = False
        self.order(None, *self.secondary.stored(at))
        self.queue_back(queue)

    def queue_back(self, queue: int) -> None:
        if self.rotation.confirm(queue):
            self.order(None, ReportEvent("backlog_queue_back", "it takes messages again", {"queue": queue}))

    def queue_failed(self, queue: int, at: float, failure: Failure, generation: int | None = None) -> bool:
        """The queue leaves the rotation, for all senders; False: it was not to blame, and stays as it is.

        `generation` is that of the secondary when the attempt began. Silence that the secondary as a whole has broken
        since, or has not yet, is not the queue's.
        """
        is_silent = failure.kind is FailureKind.NO_ANSWER
        if is_silent and not (self.secondary.is_open and generation in (None, self.secondary.generation)):
            return False
        if self.rotation.lose(queue, at, failure):
            wait_s = self.rotation.lost[queue].back_at - at if queue in self.rotation.lost else 0.0
            details = {"queue": queue, "kind": failure.kind.value, "wait_s": wait_s}
            self.order(None, ReportEvent("backlog_queue_lost", str(failure), details))
        if is_silent:
            self.order(None, *self.secondary.doubt(at))
        return True

    # --- the spool ---

    def spooled(self, entity: Entity, messages: int, at: float, why: str) -> None:
        """The spool took messages that neither namespace took; `why` not the secondary."""
        entity.tally.to_spool += messages
        self.is_spool_full = False
        if not entity.is_spooling:
            entity.is_spooling = True
            self.order(entity, ReportEvent("spooling", why))
        self.order(None, *self.secondary.want(at))

    def spool_failed(self, entity: Entity, failure: Failure, at: float) -> None:
        """The spool took nothing."""
        if not self.is_spool_full:
            self.is_spool_full = True
            self.order(entity, ReportEvent("spool_full", str(failure), {"kind": failure.kind.value}))
        self.order(None, *self.secondary.want(at))

    # --- the secondary as a whole ---

    def secondary_failed(self, at: float, generation: int, failure: Failure, chance: float) -> None:
        """An attempt that began in this generation found nobody to connect to, or lost its connection."""
        was_open = self.secondary.is_open
        self.order(None, *self.secondary.failed(at, generation, failure, chance))
        self._forgive_silence(at, was_open=was_open)

    def had_too_little_time(self, queue: int, began_at: float, at: float, failure: Failure, generation: int) -> None:
        """An attempt that began in this generation got no answer, but had too little time for one.

        That says nothing of queue or secondary, but a trial will; and many of them in a row do say that the queue is
        silent, unless there was no connection.
        """
        if generation != self.secondary.generation or not self.secondary.is_open:
            return
        if not is_about_the_secondary(failure):
            silence = self.rotation.silent_for_a_moment(queue, began_at, at)
            if self.secondary.has_proof(silence):
                self.queue_failed(queue, at, failure, generation)
        self.order(None, *self.secondary.doubt_a_little(at))

    def trial_failed(self, at: float, generation: int, failure: Failure, chance: float) -> None:
        """A trial that began in this generation could not connect."""
        was_open = self.secondary.is_open
        self.order(None, *self.secondary.trial_failed(at, generation, failure, chance))
        self._forgive_silence(at, was_open=was_open)

    def trial_connected(self, at: float) -> None:
        self.order(None, *self.secondary.trial_connected(at))

    def begin_trial(self, at: float) -> tuple[int | None, float]:
        """To which queue the trial that is due opens a link, and how long it may take; no queue: none is due.

        It is the choice of whoever waits longest, then another one each time: no queue can keep the others waiting.
        """
        wanted = [waiter.queue for waiter in self.secondary.waiting.values()]
        queues = self.rotation.queues
        usable = list(dict.fromkeys(queue for queue in (*wanted, *queues) if queue in queues))
        timeout_s = self.secondary.begin_trial(at, can_try=bool(usable))
        if timeout_s is None:
            self.order(None, *self.secondary.put_off(at))
            return None, 0.0
        return usable[self.secondary.trials % len(usable)], timeout_s

    def look_at_secondary(self, at: float) -> None:
        """Nobody may be waiting for it, but whether it is back is worth knowing."""
        self.order(None, *self.secondary.look(at))

    def secondary_ended(self, at: float) -> None:
        """It was closed for good: nobody is to wait for it."""
        self.order(None, *self.secondary.reached(at, "it was closed"))

    def wait_for_secondary(self, ticket: int, entity: Entity, queue: int | None, at: float) -> None:
        self.order(None, *self.secondary.wait(ticket, Waiter(entity.path, queue), at))

    def _forgive_silence(self, at: float, *, was_open: bool) -> None:
        """Queues that gave no answer just before the secondary was found to be silent were not to blame."""
        if was_open and not self.secondary.is_open:
            for queue in self.rotation.forgive_silence(at - 2 * self.rules.attempt_s):
                text = "the secondary as a whole was silent"
                self.order(None, ReportEvent("backlog_queue_back", text, {"queue": queue}))

    # --- sends that wait ---

    def take_ticket(self, earlier: int | None = None) -> int:
        """A ticket by which a send that waits for something of the whole pair is woken; to be given back.

        `earlier`: the one that it had when it waited before.
        """
        ticket = next(self._tickets) if earlier is None else earlier
        self._awaited.add(ticket)
        return ticket

    def give_back(self, ticket: int) -> None:
        """The send does not wait any more: nobody needs to wake it."""
        self._awaited.discard(ticket)

    def is_awaited(self, entity: Entity | None, ticket: int) -> bool:
        """Whether somebody still waits with this ticket, in the line of an entity or for something of the pair."""
        return ticket in self._awaited if entity is None else ticket in entity.line

    # --- order ---

    def depart(self, entity: Entity, key: Key, marks: Sequence[Mark]) -> Crossing:
        """Messages of a key are about to be sent to their backlog queue: from now on a fence stands before it."""
        assert self.fences is not None
        crossing = self.fences.depart(key, marks)
        entity.refresh()
        return crossing

    def came_home(self, queue: int, encoded_messages: Iterable[DepartedMessage]) -> None:
        """Our syphon has brought messages home, or they were refused for good."""
        if self.fences is not None:
            self._fences_fell(self.fences.came(queue, encoded_messages))

    def seen_empty(self, queue: int, look: int) -> None:
        """Our syphon has looked into a queue and found nothing; `look` is when it began, in the fences' time."""
        if self.fences is not None:
            self._fences_fell(self.fences.seen_empty(queue, look))

    def arrived(self, crossing: Crossing) -> None:
        """A backlog queue has taken messages of a key."""
        if self.fences is not None:
            self._fences_fell(self.fences.arrived(crossing))

    def not_arrived(self, crossing: Crossing, *, in_doubt: bool) -> None:
        """A backlog queue has not taken messages of a key, or nobody knows."""
        if self.fences is not None:
            self._fences_fell(self.fences.failed(crossing, in_doubt=in_doubt))

    def _fences_fell(self, tickets: Iterable[int]) -> None:
        assert self.fences is not None
        if self.fences.falls != self._falls:
            self._falls = self.fences.falls
            self._refresh()
        self.order(None, *map(WakeWaiter, tickets))

    def _refresh(self) -> None:
        for entity in self._entities.values():
            entity.refresh()

    def warn_once(self, entity: Entity, name: str, text: str, **details: object) -> None:
        """Report something about an entity that is worth reporting only once."""
        if name not in entity.warned:
            entity.warned.add(name)
            self.order(entity, ReportEvent(name, text, details))
