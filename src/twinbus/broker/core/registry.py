"""The entities of a namespace by name.

Everything an entity consists of has a row of its own: a queue and its dead-letter queue; a topic, its subscriptions,
their dead-letter queues and their rules. `parent_id` says what belongs to what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from twinbus.broker.core.replies import Step
from twinbus.broker.entities.dead_letter_queue import DeadLetterQueue, TransferDeadLetterQueue
from twinbus.broker.entities.entity import CopyDelays, EntityContext, MessagingEntity
from twinbus.broker.entities.forwarding import Forwarder
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings, check_entity_path, check_part_name
from twinbus.broker.entities.topics import rules
from twinbus.broker.entities.topics.rules import DEFAULT_RULE, Rule
from twinbus.broker.entities.topics.subscription import SessionSubscription, Subscription, compile_rule
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.store.api import EntityRow, EntitySummary, PutEntity, StoredNamespace
from twinbus.errors import ArgumentError, EntityAlreadyExists, EntityNotFound, NotAllowed, QuotaExceeded, StoreDamaged

DEAD_LETTER_SUFFIX = "/$deadletterqueue"
TRANSFER_SUFFIX = "/$transfer/$deadletterqueue"
"""What could not be forwarded: made when it is first needed."""
SUBSCRIPTIONS = "/Subscriptions/"
RULES = "/Rules/"
QUEUE, DEAD_LETTER_QUEUE, TOPIC, SUBSCRIPTION, RULE = "queue", "dead-letter-queue", "topic", "subscription", "rule"
TRANSFER_QUEUE = "transfer-dead-letter-queue"
ENTITIES_MAX = 10_000
"""Queues and topics together."""
PARTITIONED_MAX = 100
SUBSCRIPTIONS_MAX = 2_000
"""Of one topic."""
SQL_FILTERS_MAX, CORRELATION_FILTERS_MAX = 2_000, 100_000
"""Of one topic."""
ACTIONS_MAX = 2_000
"""Of one topic: each may make a copy of its own, and all copies of a message are made in one step."""
_EMPTY = EntitySummary(0, 0, 0, 0, None, None, None, 1)

Kind = TypeVar("Kind", bound=MessagingEntity)


def has_sessions(row: EntityRow) -> bool:
    """Whether it is a queue or subscription with sessions; invalid settings are refused elsewhere."""
    return '"requires_session":true' in row.settings


def as_queue(entity: MessagingEntity) -> Queue:
    """What can be received from: a queue, a subscription or a dead-letter queue."""
    if not isinstance(entity, Queue):
        raise NotAllowed(f"'{entity.row.path}' is a topic: its messages are in its subscriptions")
    return entity


def as_session_queue(entity: MessagingEntity) -> SessionQueue:
    queue = as_queue(entity)
    if not isinstance(queue, SessionQueue):
        raise NotAllowed(f"'{queue.row.path}' has no sessions")
    return queue


def check_sendable(entity: MessagingEntity, path: str) -> None:
    """Raise a `NamespaceError` if nothing can be sent to an entity."""
    if isinstance(entity, Queue) and entity.dead_letter is None:
        raise NotAllowed(f"'{path}' is a dead-letter queue: it cannot be sent to")
    entity.check_sendable()


class Registry:
    """Entities by path and by id. Paths keep the case they were created with and are found in any."""

    def __init__(
        self,
        stored: StoredNamespace,
        new_token: Callable[[], bytes],
        window_limits: WindowLimits,
        copy_delays: Callable[[int], CopyDelays | None],
        message_bytes_max: int | None = None,
    ) -> None:
        self.context = EntityContext(
            new_token, window_limits, copy_delays, Forwarder(self), message_bytes_max, stored.last_number
        )
        self._by_path: dict[str, MessagingEntity] = {}
        self._by_id: dict[int, MessagingEntity] = {}
        self._counted = 0
        self._next_id = stored.next_entity_id
        self._summaries = stored.summaries
        parts: dict[int | None, list[EntityRow]] = defaultdict(list)
        for row in stored.entities:
            parts[row.parent_id].append(row)
        for row in parts[None]:
            if row.kind == TOPIC:
                self._open_topic(row, parts)
            elif row.kind == QUEUE:
                self._open_queue(row, parts[row.entity_id])
            else:
                raise StoreDamaged(f"'{row.path}' is a {row.kind}, which this version does not know")
        self._summaries = {}

    def _open_topic(self, row: EntityRow, parts: dict[int | None, list[EntityRow]]) -> None:
        topic = self._enter(Topic(row, self._summary(row), self.context))
        self._counted += 1
        for part in parts[row.entity_id]:
            own = parts[part.entity_id]
            subscription = self._open_subscription(part, topic, own)
            for rule_row in own:
                if rule_row.kind == RULE:
                    topic.put_rule(rule_row, compile_rule(subscription, rules.from_text(rule_row.settings)))

    def _open_queue(self, row: EntityRow, parts: list[EntityRow]) -> None:
        self._counted += 1
        kind, dead_letter = SessionQueue if has_sessions(row) else Queue, self._open_dead_letter_queue(row, parts)
        self._enter_with_dead_letters(kind(row, self._summary(row), self.context, dead_letter), dead_letter, parts)

    def _open_subscription(self, row: EntityRow, topic: Topic, parts: list[EntityRow]) -> Subscription:
        kind = SessionSubscription if has_sessions(row) else Subscription
        dead_letter = self._open_dead_letter_queue(row, parts)
        subscription = kind(row, self._summary(row), self.context, dead_letter, topic)
        topic.subscriptions[subscription.name.lower()] = subscription
        self._enter_with_dead_letters(subscription, dead_letter, parts)
        return subscription

    def _open_dead_letter_queue(self, owner: EntityRow, parts: list[EntityRow]) -> DeadLetterQueue:
        for row in parts:
            if row.kind == DEAD_LETTER_QUEUE:
                return self._enter(DeadLetterQueue(row, self._summary(row), self.context, None))
        raise StoreDamaged(f"the {owner.kind} '{owner.path}' has no dead-letter queue")

    def _enter_with_dead_letters(self, queue: Queue, dead_letter: DeadLetterQueue, parts: list[EntityRow]) -> None:
        dead_letter.owner = self._enter(queue)
        for part in parts:
            if part.kind == TRANSFER_QUEUE:
                self._open_transfer_queue(queue, part)

    def _open_transfer_queue(self, owner: Queue, row: EntityRow) -> Queue:
        dead_letters = TransferDeadLetterQueue(row, self._summary(row), self.context, None)
        owner.transfer_dead_letter, dead_letters.owner = dead_letters, owner
        return self._enter(dead_letters)

    def _summary(self, row: EntityRow) -> EntitySummary:
        return self._summaries.get(row.entity_id, _EMPTY)

    def _enter(self, entity: Kind) -> Kind:
        self._by_path[entity.row.path.lower()] = entity
        self._by_id[entity.entity_id] = entity
        return entity

    # --- finding ---

    def find(self, path: str) -> MessagingEntity:
        entity = self._by_path.get(path.lower())
        if entity is None:
            # The first words are the ones by which the JS client recognises a missing entity.
            raise EntityNotFound(f"The messaging entity '{path}' could not be found.")
        return entity

    def get(self, path: str) -> MessagingEntity | None:
        """The entity of that name, if there is one."""
        return self._by_path.get(path.lower())

    def find_or_make(self, path: str, step: Step) -> MessagingEntity:
        """An entity, and if it is only the transfer dead letters that are missing, those too."""
        if path.lower() not in self._by_path and path.lower().endswith(TRANSFER_SUFFIX):
            owner = self._by_path.get(path[: -len(TRANSFER_SUFFIX)].lower())
            if isinstance(owner, Queue) and owner.dead_letter is not None:
                return self.transfer_dead_letters(owner, step)
        return self.find(path)

    def transfer_dead_letters(self, queue: Queue, step: Step) -> Queue:
        """Where a queue or subscription puts what it cannot forward; that of dead letters is their entity's."""
        owner = self._by_id[queue.row.parent_id or 0] if queue.dead_letter is None else queue
        assert isinstance(owner, Queue)
        if owner.transfer_dead_letter is None:
            row = self._dead_letter_row(owner.row, TRANSFER_SUFFIX, TRANSFER_QUEUE)
            step.changes.append(PutEntity(row))
            return self._open_transfer_queue(owner, row)
        return owner.transfer_dead_letter

    def find_queue(self, path: str) -> Queue:
        return as_queue(self.find(path))

    def find_topic(self, path: str) -> Topic:
        entity = self.find(path)
        if not isinstance(entity, Topic):
            raise EntityNotFound(f"The messaging entity '{path}' could not be found: it is not a topic.")
        return entity

    def find_subscription(self, topic: str, name: str) -> Subscription:
        found = self.find_topic(topic).subscriptions.get(name.lower())
        if found is None:
            raise EntityNotFound(f"The messaging entity '{topic}{SUBSCRIPTIONS}{name}' could not be found.")
        return found

    def find_whole(self, path: str) -> MessagingEntity:
        """An entity that is made and removed by itself; a dead-letter queue is not."""
        entity = self.find(path)
        if isinstance(entity, Queue) and entity.dead_letter is None:
            raise NotAllowed(f"'{path}' is a dead-letter queue: it comes and goes with its queue")
        return entity

    def is_partitioned(self, path: str) -> bool:
        """Whether there is an entity at a path that is partitioned; a subscription is as its topic is."""
        entity = self._by_path.get(path.lower())
        if isinstance(entity, Subscription):
            entity = entity.topic
        return entity is not None and entity.settings.partitioned

    def by_id(self, entity_id: int) -> MessagingEntity | None:
        """The entity, or None if it was deleted meanwhile."""
        return self._by_id.get(entity_id)

    def top_level(self, entity: MessagingEntity) -> MessagingEntity:
        """The queue or topic that an entity is, or belongs to."""
        while entity.row.parent_id is not None:
            entity = self._by_id[entity.row.parent_id]
        return entity

    def all(self) -> Iterable[MessagingEntity]:
        return self._by_id.values()

    def queues(self) -> Iterator[Queue]:
        """The queues themselves, without their dead-letter queues and without subscriptions."""
        return (queue for queue in self._by_id.values() if isinstance(queue, Queue) and queue.row.kind == QUEUE)

    def topics(self) -> Iterator[Topic]:
        return (topic for topic in self._by_id.values() if isinstance(topic, Topic))

    # --- making ---

    def create_queue(self, path: str, settings: QueueSettings, now_ms: int) -> list[EntityRow]:
        """A new queue and its dead-letter queue, as rows to write."""
        self._check_new(path, "queue", settings)
        row = EntityRow(self._take_id(), path, QUEUE, None, settings.to_text(), now_ms, now_ms)
        dead_row = self._dead_letter_row(row, DEAD_LETTER_SUFFIX, DEAD_LETTER_QUEUE)
        self._open_queue(row, [dead_row])
        return [row, dead_row]

    def create_topic(self, path: str, settings: TopicSettings, now_ms: int) -> EntityRow:
        self._check_new(path, "topic", settings)
        row = EntityRow(self._take_id(), path, TOPIC, None, settings.to_text(), now_ms, now_ms)
        self._open_topic(row, defaultdict(list))
        return row

    def create_subscription(
        self, topic_path: str, name: str, settings: QueueSettings, rule: Rule | None, now_ms: int
    ) -> list[EntityRow]:
        """A new subscription, its dead-letter queue and its first rule, as rows to write."""
        topic = self.find_topic(topic_path)
        check_part_name(name, "subscription")
        if name.lower() in topic.subscriptions:
            raise EntityAlreadyExists(f"the subscription '{name}' of '{topic.row.path}' exists already")
        if len(topic.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise QuotaExceeded(f"a topic has at most {SUBSCRIPTIONS_MAX} subscriptions: delete one first")
        path = f"{topic.row.path}{SUBSCRIPTIONS}{name}"
        row = EntityRow(self._take_id(), path, SUBSCRIPTION, topic.entity_id, settings.to_text(), now_ms, now_ms)
        dead_row = self._dead_letter_row(row, DEAD_LETTER_SUFFIX, DEAD_LETTER_QUEUE)
        subscription = self._open_subscription(row, topic, [dead_row])
        try:
            first = self.create_rule(subscription, rule or Rule(DEFAULT_RULE), now_ms)
        except Exception:
            self.remove(subscription)
            raise
        return [row, dead_row, first]

    def create_rule(self, subscription: Subscription, rule: Rule, now_ms: int) -> EntityRow:
        """A new rule in force, as a row to write."""
        if rule.name.lower() in subscription.rules:
            raise EntityAlreadyExists(f"the rule '{rule.name}' of '{subscription.row.path}' exists already")
        return self._put_rule(subscription, rule, None, now_ms)

    def update_rule(self, subscription: Subscription, rule: Rule, now_ms: int) -> EntityRow:
        """A rule in force in place of the one of that name, whose time of creation and spelling it keeps."""
        before = self.find_rule(subscription, rule.name)
        kept = rule._replace(name=before.name)
        return self._put_rule(subscription, kept, subscription.rules[rule.name.lower()].row, now_ms)

    def _put_rule(self, subscription: Subscription, rule: Rule, row: EntityRow | None, now_ms: int) -> EntityRow:
        check_part_name(rule.name, "rule")
        if isinstance(rule.filter, rules.CorrelationFilter) and not any(rule.filter):
            raise ArgumentError("a correlation filter needs at least one property to compare")
        rule = rule._replace(created_at_ms=now_ms if row is None else row.created_at_ms)
        entry = compile_rule(subscription, rule)
        self._check_room(subscription.topic, rule, None if row is None else subscription.rules[rule.name.lower()].rule)
        if row is None:
            path = f"{subscription.row.path}{RULES}{rule.name}"
            row = EntityRow(self._take_id(), path, RULE, subscription.entity_id, "", now_ms, now_ms)
        row = row._replace(settings=rules.to_text(rule), updated_at_ms=now_ms)
        subscription.topic.put_rule(row, entry)
        return row

    def _check_room(self, topic: Topic, rule: Rule, before: Rule | None) -> None:
        """Raise `QuotaExceeded` if there is no room for a rule in place of another one, if there was one."""
        is_correlation = isinstance(rule.filter, rules.CorrelationFilter)
        if before is None or isinstance(before.filter, rules.CorrelationFilter) is not is_correlation:
            there = topic.matcher.correlation_filters if is_correlation else topic.matcher.sql_filters
            most = CORRELATION_FILTERS_MAX if is_correlation else SQL_FILTERS_MAX
            if there >= most:
                kind = "correlation" if is_correlation else "SQL"
                raise QuotaExceeded(f"a topic has at most {most} {kind} filters: delete one first")
        adds_action = rule.action is not None and (before is None or before.action is None)
        if adds_action and topic.matcher.actions >= ACTIONS_MAX:
            raise QuotaExceeded(f"the rules of a topic have at most {ACTIONS_MAX} actions: delete a rule that has one")

    def find_rule(self, subscription: Subscription, name: str) -> Rule:
        found = subscription.rules.get(name.lower())
        if found is None:
            raise EntityNotFound(f"The messaging entity '{subscription.row.path}{RULES}{name}' could not be found.")
        return found.rule

    def _check_new(self, path: str, kind: str, settings: QueueSettings | TopicSettings) -> None:
        check_entity_path(path, kind)
        there = self._by_path.get(path.lower())
        if there is not None:
            raise EntityAlreadyExists(f"the {there.row.kind} '{there.row.path}' exists already")
        if self._counted >= ENTITIES_MAX:
            raise QuotaExceeded(f"a namespace has at most {ENTITIES_MAX} queues and topics: delete one first")
        if settings.partitioned:  # only queues and topics count: what belongs to them has their settings
            top_level = (each for each in self._by_id.values() if each.row.parent_id is None)
            if sum(each.settings.partitioned for each in top_level) >= PARTITIONED_MAX:
                raise QuotaExceeded(f"a namespace has at most {PARTITIONED_MAX} partitioned entities: delete one first")

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _dead_letter_row(self, owner: EntityRow, suffix: str, kind: str) -> EntityRow:
        path = owner.path + suffix
        return owner._replace(entity_id=self._take_id(), path=path, kind=kind, parent_id=owner.entity_id)

    # --- changing and removing ---

    def update(
        self, entity: MessagingEntity, settings: QueueSettings | TopicSettings, now_ms: int
    ) -> list[MessagingEntity]:
        """Give an entity, and its dead-letter queues, other settings; their rows have to be written."""
        text = settings.to_text()
        changed: list[MessagingEntity] = [entity, *(entity.dead_letter_queues if isinstance(entity, Queue) else ())]
        for each in changed:
            each.configure(each.row._replace(settings=text, updated_at_ms=now_ms))
            each.touch(now_ms)
        return changed

    def parts_of(self, entity: MessagingEntity) -> Iterator[MessagingEntity]:
        """An entity and whatever is gone when it is removed; rules have no place of their own here."""
        yield entity
        if isinstance(entity, Queue):
            yield from entity.dead_letter_queues
        if isinstance(entity, Topic):
            for subscription in entity.subscriptions.values():
                yield from self.parts_of(subscription)

    def remove(self, entity: MessagingEntity) -> list[int]:
        """Forget an entity with all its parts; returns the ids of all of them, rules too."""
        parts = list(self.parts_of(entity))
        gone = [part.entity_id for part in parts]
        for part in parts:
            del self._by_path[part.row.path.lower()]
            del self._by_id[part.entity_id]
            if isinstance(part, Subscription):
                gone += [stored.row.entity_id for stored in part.rules.values()]
                for name in list(part.rules):
                    part.topic.remove_rule(part, name)
        if isinstance(entity, Subscription):
            del entity.topic.subscriptions[entity.name.lower()]
        else:
            self._counted -= 1
        return gone
