"""Administration of a namespace: create, change, show and delete entities and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from twinbus.broker.core.commands import (
    AdminCommand,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    DeleteRule,
    GetEntity,
    GetRule,
    ListQueues,
    ListRules,
    ListSubscriptions,
    ListTopics,
    UpdateQueue,
    UpdateRule,
    UpdateSubscription,
    UpdateTopic,
)
from twinbus.broker.core.message_events import MessageEventKind
from twinbus.broker.core.registry import QUEUE, Registry
from twinbus.broker.core.replies import (
    EntitiesFound,
    QueueDescription,
    RulesFound,
    Step,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.subscription import Subscription
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.operations import Done
from twinbus.broker.store.api import DropEntity, EntityRow, PutEntity
from twinbus.errors import ArgumentError, EntityDisabled, EntityNotFound, NotAllowed

Item = TypeVar("Item")


class Administration:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def handle(self, command: AdminCommand, now_ms: int, step: Step) -> None:
        """Carry out a command; raises a `NamespaceError` or `OptionsError` if it is invalid; then nothing is done."""
        self._HANDLERS[type(command)](self, command, now_ms, step)

    def _put(self, rows: Iterable[EntityRow], step: Step) -> None:
        step.changes.extend(PutEntity(row) for row in rows)
        step.reply(Done())

    # --- making and changing ---

    def _create_queue(self, command: CreateQueue, now_ms: int, step: Step) -> None:
        self._check_forwarding(command.settings, None)
        self._put(self._registry.create_queue(command.path, command.settings, now_ms), step)

    def _create_topic(self, command: CreateTopic, now_ms: int, step: Step) -> None:
        self._put([self._registry.create_topic(command.path, command.settings, now_ms)], step)

    def _create_subscription(self, command: CreateSubscription, now_ms: int, step: Step) -> None:
        self._registry.find_topic(command.topic)
        self._check_forwarding(command.settings, None)
        topic, name, settings, rule = command.topic, command.name, command.settings, command.rule
        self._put(self._registry.create_subscription(topic, name, settings, rule, now_ms), step)

    def _update_queue(self, command: UpdateQueue, now_ms: int, step: Step) -> None:
        entity = self._registry.find_whole(command.path)
        if entity.row.kind != QUEUE:
            raise EntityNotFound(f"The messaging entity '{command.path}' could not be found: it is not a queue.")
        self._update(entity, command, now_ms, step)

    def _update_topic(self, command: UpdateTopic, now_ms: int, step: Step) -> None:
        self._update(self._registry.find_topic(command.path), command, now_ms, step)

    def _update_subscription(self, command: UpdateSubscription, now_ms: int, step: Step) -> None:
        self._update(self._registry.find_subscription(command.topic, command.name), command, now_ms, step)

    def _update(
        self, entity: MessagingEntity, command: UpdateQueue | UpdateTopic | UpdateSubscription, now_ms: int, step: Step
    ) -> None:
        _check_kept(entity, command.settings)
        if isinstance(entity, Queue) and isinstance(command.settings, QueueSettings):
            self._check_forwarding(command.settings, entity.settings)
        changed = self._registry.update(entity, command.settings, now_ms)
        for queue in [each for each in changed if isinstance(each, Queue)]:
            try:
                queue.check_receivable()
            except (EntityDisabled, NotAllowed) as error:
                queue.close_receivers(error, now_ms, step)
        self._put([each.row for each in changed], step)

    def _check_forwarding(self, settings: QueueSettings, before: QueueSettings | None) -> None:
        """Raise `ArgumentError` if messages cannot go where these settings say; what was so before may stay.

        Targets that are gone by now are no reason to refuse other changes.
        """
        for name, element in FORWARDING.items():
            target = getattr(settings, name)
            if target is None or target == getattr(before, name, None):
                continue
            try:  # It may be the entity itself, as in the service: that ends after four hops, as every ring.
                self._registry.find(target)
            except EntityNotFound as error:
                raise ArgumentError(f"{element} must be a queue or topic of this namespace: {error}") from None

    def _delete(self, command: DeleteEntity, now_ms: int, step: Step) -> None:
        self.remove(self._registry.find_whole(command.path), now_ms, step)
        step.reply(Done())

    def remove(self, entity: MessagingEntity, now_ms: int, step: Step) -> None:
        """Remove an entity with everything in it; its receivers are closed and its requests refused."""
        for part in list(self._registry.parts_of(entity)):
            step.work += 1
            error = EntityNotFound(f"The messaging entity '{part.row.path}' was deleted.")
            if isinstance(part, Queue):
                part.close_receivers(error, now_ms, step)
            if part.duplicates is not None:
                part.duplicates.refuse(error, step)
            if step.events is not None:
                held = part.active + part.deferred + part.scheduled
                step.events.unnamed(MessageEventKind.REMOVED, part.row.path, held, part.payload_bytes)
        step.changes.extend(map(DropEntity, self._registry.remove(entity)))

    # --- rules ---

    def _subscription(self, path: str) -> Subscription:
        entity = self._registry.find(path)
        if not isinstance(entity, Subscription):
            raise EntityNotFound(f"The messaging entity '{path}' could not be found: it is not a subscription.")
        return entity

    def _create_rule(self, command: CreateRule, now_ms: int, step: Step) -> None:
        subscription = self._subscription(command.path)
        self._put([self._registry.create_rule(subscription, command.rule, now_ms)], step)
        subscription.touch(now_ms)

    def _update_rule(self, command: UpdateRule, now_ms: int, step: Step) -> None:
        subscription = self._subscription(command.path)
        self._put([self._registry.update_rule(subscription, command.rule, now_ms)], step)
        subscription.touch(now_ms)

    def _delete_rule(self, command: DeleteRule, now_ms: int, step: Step) -> None:
        subscription = self._subscription(command.path)
        name = self._registry.find_rule(subscription, command.name).name
        step.changes.append(DropEntity(subscription.rules[name.lower()].row.entity_id))
        subscription.topic.remove_rule(subscription, name)
        step.reply(Done())

    def _get_rule(self, command: GetRule, now_ms: int, step: Step) -> None:
        step.reply(self._registry.find_rule(self._subscription(command.path), command.name))

    def _list_rules(self, command: ListRules, now_ms: int, step: Step) -> None:
        found = [stored.rule for stored in self._subscription(command.path).rules.values()]
        page, has_more = _page(found, command.skip, command.top, lambda rule: rule.name)
        step.reply(RulesFound(tuple(page), has_more))

    # --- showing ---

    def _get(self, command: GetEntity, now_ms: int, step: Step) -> None:
        entity = self._registry.find_whole(command.path)
        if isinstance(entity, Topic):
            step.reply(topic_description(entity))
        elif isinstance(entity, Subscription):
            step.reply(subscription_description(entity))
        elif isinstance(entity, Queue):
            step.reply(queue_description(entity))

    def _list_queues(self, command: ListQueues, now_ms: int, step: Step) -> None:
        page, has_more = _page(self._registry.queues(), command.skip, command.top, _path)
        step.reply(EntitiesFound(tuple(map(queue_description, page)), has_more))

    def _list_topics(self, command: ListTopics, now_ms: int, step: Step) -> None:
        page, has_more = _page(self._registry.topics(), command.skip, command.top, _path)
        step.reply(EntitiesFound(tuple(map(topic_description, page)), has_more))

    def _list_subscriptions(self, command: ListSubscriptions, now_ms: int, step: Step) -> None:
        there = self._registry.find_topic(command.topic).subscriptions.values()
        page, has_more = _page(there, command.skip, command.top, _path)
        step.reply(EntitiesFound(tuple(map(subscription_description, page)), has_more))

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        CreateQueue: _create_queue,
        UpdateQueue: _update_queue,
        CreateTopic: _create_topic,
        UpdateTopic: _update_topic,
        CreateSubscription: _create_subscription,
        UpdateSubscription: _update_subscription,
        CreateRule: _create_rule,
        UpdateRule: _update_rule,
        DeleteRule: _delete_rule,
        GetRule: _get_rule,
        ListRules: _list_rules,
        DeleteEntity: _delete,
        GetEntity: _get,
        ListQueues: _list_queues,
        ListTopics: _list_topics,
        ListSubscriptions: _list_subscriptions,
    }

    COMMANDS: ClassVar[tuple[type, ...]] = tuple(_HANDLERS)


FORWARDING = {"forward_to": "ForwardTo", "forward_dead_letters_to": "ForwardDeadLetteredMessagesTo"}
_KEPT = {
    "requires_session": "whether it has sessions",
    "requires_duplicate_detection": "whether it detects duplicates",
    "partitioned": "whether it is partitioned",
}


def _check_kept(entity: MessagingEntity, settings: QueueSettings | TopicSettings) -> None:
    """Raise `ArgumentError` if something is to change that is fixed when an entity is created."""
    assert isinstance(entity, Queue | Topic)
    for name, what in _KEPT.items():
        if getattr(settings, name, None) != getattr(entity.settings, name, None):
            raise ArgumentError(f"{what} is decided when '{entity.row.path}' is made, and cannot be changed")


def _page(found: Iterable[Item], skip: int, top: int, name: Callable[[Item], str]) -> tuple[list[Item], bool]:
    """Those after the first `skip` by name, and whether there are more."""
    by_name = sorted(found, key=lambda item: name(item).lower())
    return by_name[skip : skip + top], skip + top < len(by_name)


def _path(entity: MessagingEntity) -> str:
    return entity.row.path


def queue_description(queue: Queue) -> QueueDescription:
    """A queue or subscription as it stands now."""
    transfers = queue.transfer_dead_letter
    return QueueDescription(
        queue.row.path,
        queue.settings,
        queue.active,
        queue.deferred,
        queue.scheduled,
        queue.dead_letter.active + queue.dead_letter.deferred if queue.dead_letter else 0,
        queue.stored_bytes,
        queue.row.created_at_ms,
        queue.row.updated_at_ms,
        queue.accessed_at_ms,
        transfers.active + transfers.deferred if transfers is not None else 0,
    )


def subscription_description(subscription: Subscription) -> SubscriptionDescription:
    return SubscriptionDescription(subscription.topic.row.path, subscription.name, queue_description(subscription))


def topic_description(topic: Topic) -> TopicDescription:
    """A topic as it stands now."""
    return TopicDescription(
        topic.row.path,
        topic.settings,
        len(topic.subscriptions),
        topic.matcher.sql_filters,
        topic.matcher.correlation_filters,
        topic.scheduled - topic.pending,
        topic.payload_bytes,
        topic.row.created_at_ms,
        topic.row.updated_at_ms,
        topic.accessed_at_ms,
    )
