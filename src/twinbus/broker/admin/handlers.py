"""Handlers of administration requests: the namespace, queues, topics, subscriptions and rules.

Queues and topics share addresses: the description in a request says which it is. One command creates an entity once its
whole description is valid, so nothing is ever half-created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from twinbus.broker.admin import documents
from twinbus.broker.admin.admin_server import AdminServer
from twinbus.broker.admin.fields import TARGET_AUTHORIZATIONS
from twinbus.broker.admin.routes import Resource, ResourcePath, page_of
from twinbus.broker.admin.rule_documents import read_rule
from twinbus.broker.admin.settings_documents import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    ValidationContext,
    description_in,
    local_name,
    read_settings,
)
from twinbus.broker.admin.xml_text import SERVICE_BUS
from twinbus.broker.core.commands import (
    Command,
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
from twinbus.broker.core.replies import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.broker.data_directory import new_key
from twinbus.broker.entities.settings import QueueSettings, check_entity_path, check_part_name
from twinbus.broker.entities.topics.rules import DEFAULT_RULE
from twinbus.broker.operations import Done
from twinbus.errors import ArgumentError, OptionsError

ENTRY = "application/atom+xml;type=entry;charset=utf-8"
FEED = "application/atom+xml;type=feed;charset=utf-8"


class AdminRequest(NamedTuple):
    """An authorized request."""

    http: web.Request
    path: ResourcePath
    body: bytes
    context: documents.DocumentContext
    now_ms: int

    @property
    def is_update(self) -> bool:
        """Whether it updates an entity instead of creating it."""
        return "If-Match" in self.http.headers


Handler = Callable[[AdminRequest], Awaitable[web.Response]]


class AdminHandlers:
    def __init__(self, server: AdminServer) -> None:
        self._server = server
        self.by_resource: dict[Resource, dict[str, Handler]] = {
            Resource.NAMESPACE: {"GET": self._get_namespace},
            Resource.QUEUES: {"GET": self._list_queues},
            Resource.TOPICS: {"GET": self._list_topics},
            Resource.ENTITY: {"GET": self._get_entity, "PUT": self._put_entity, "DELETE": self._delete_entity},
            Resource.SUBSCRIPTIONS: {"GET": self._list_subscriptions},
            Resource.SUBSCRIPTION: {
                "GET": self._get_subscription,
                "PUT": self._put_subscription,
                "DELETE": self._delete_subscription,
            },
            Resource.RULES: {"GET": self._list_rules},
            Resource.RULE: {"GET": self._get_rule, "PUT": self._put_rule, "DELETE": self._delete_rule},
            Resource.NOTHING: {},
        }
        """By resource and HTTP method."""

    # --- namespace, queues, topics ---

    async def _get_namespace(self, request: AdminRequest) -> web.Response:
        return _response(documents.namespace_entry(self._server.created_at_ms, request.context))

    async def _list_queues(self, request: AdminRequest) -> web.Response:
        page = page_of(request.http.query)
        found = await self._server.ask(ListQueues(page.skip, page.top))
        return _response(documents.queue_feed(found.entities, page.next_query(found.has_more), request.context), FEED)

    async def _list_topics(self, request: AdminRequest) -> web.Response:
        page = page_of(request.http.query)
        found = await self._server.ask(ListTopics(page.skip, page.top))
        return _response(documents.topic_feed(found.entities, page.next_query(found.has_more), request.context), FEED)

    async def _get_entity(self, request: AdminRequest, status: int = 200) -> web.Response:
        if not request.path.path:
            _check_name(check_entity_path, request.path.path, "queue")
        found = await self._server.ask(GetEntity(request.path.path))
        if isinstance(found, TopicDescription):
            return _response(documents.topic_entry(found, request.context), status=status)
        assert isinstance(found, QueueDescription), "a subscription has its own resource"
        return _response(documents.queue_entry(found, request.context), status=status)

    async def _put_entity(self, request: AdminRequest) -> web.Response:
        await self._server.ask(self._entity_command(request))
        return await self._get_entity(request, status=200 if request.is_update else 201)

    def _entity_command(self, request: AdminRequest) -> Command[Done]:
        path, context = request.path.path, self._validation_context(request)
        description = description_in(request.body, QUEUE.element, TOPIC.element)
        if local_name(description) == TOPIC.element:
            _check_name(check_entity_path, request.path.path, "topic")
            topic = read_settings(description, TOPIC, context)
            return UpdateTopic(path, topic) if request.is_update else CreateTopic(path, topic)
        _check_name(check_entity_path, request.path.path, "queue")
        queue = read_settings(description, QUEUE, context)
        self._check_targets(request, queue)
        return UpdateQueue(path, queue) if request.is_update else CreateQueue(path, queue)

    async def _delete_entity(self, request: AdminRequest) -> web.Response:
        if not request.path.path:
            _check_name(check_entity_path, request.path.path, "queue")
        await self._server.ask(DeleteEntity(request.path.path))
        return web.Response(status=200)

    # --- subscriptions ---

    async def _list_subscriptions(self, request: AdminRequest) -> web.Response:
        page, topic = page_of(request.http.query), request.path.topic
        found = await self._server.ask(ListSubscriptions(topic, page.skip, page.top))
        return _response(
            documents.subscription_feed(topic, found.entities, page.next_query(found.has_more), request.context),
            FEED,
        )

    async def _get_subscription(self, request: AdminRequest, status: int = 200) -> web.Response:
        found = await self._server.ask(GetEntity(request.path.subscription_path))
        assert isinstance(found, SubscriptionDescription)
        return _response(documents.subscription_entry(found, request.context), status=status)

    async def _put_subscription(self, request: AdminRequest) -> web.Response:
        await self._server.ask(self._subscription_command(request))
        return await self._get_subscription(request, status=200 if request.is_update else 201)

    def _subscription_command(self, request: AdminRequest) -> Command[Done]:
        topic, name = request.path.topic, request.path.subscription
        _check_name(check_part_name, name, "subscription")
        description = description_in(request.body, SUBSCRIPTION.element)
        settings = read_settings(description, SUBSCRIPTION, self._validation_context(request))
        self._check_targets(request, settings)
        if request.is_update:
            return UpdateSubscription(topic, name, settings)
        first = description.find(f"{{{SERVICE_BUS}}}DefaultRuleDescription")
        if first is None or not len(first):
            return CreateSubscription(topic, name, settings)
        rule_name = first.findtext(f"{{{SERVICE_BUS}}}Name") or DEFAULT_RULE
        return CreateSubscription(topic, name, settings, read_rule(first, rule_name))

    async def _delete_subscription(self, request: AdminRequest) -> web.Response:
        await self._server.ask(DeleteEntity(request.path.subscription_path))
        return web.Response(status=200)

    # --- rules ---

    async def _list_rules(self, request: AdminRequest) -> web.Response:
        page, path = page_of(request.http.query), request.path.subscription_path
        found = await self._server.ask(ListRules(path, page.skip, page.top))
        return _response(documents.rule_feed(path, found.rules, page.next_query(found.has_more), request.context), FEED)

    async def _get_rule(self, request: AdminRequest, status: int = 200) -> web.Response:
        path = request.path.subscription_path
        rule = await self._server.ask(GetRule(path, request.path.rule))
        return _response(documents.rule_entry(path, rule, request.context), status=status)

    async def _put_rule(self, request: AdminRequest) -> web.Response:
        path, name = request.path.subscription_path, request.path.rule
        _check_name(check_part_name, name, "rule")
        rule = read_rule(description_in(request.body, "RuleDescription"), name)
        await self._server.ask(UpdateRule(path, rule) if request.is_update else CreateRule(path, rule))
        return await self._get_rule(request, status=200 if request.is_update else 201)

    async def _delete_rule(self, request: AdminRequest) -> web.Response:
        await self._server.ask(DeleteRule(request.path.subscription_path, request.path.rule))
        return web.Response(status=200)

    # --- checks ---

    def _validation_context(self, request: AdminRequest) -> ValidationContext:
        return ValidationContext(
            now_ms=request.now_ms,
            message_bytes_max=self._server.message_bytes_max,
            new_key=new_key,
            host=request.context.host,
        )

    def _check_targets(self, request: AdminRequest, settings: QueueSettings) -> None:
        """Raise `Unauthorized` unless the request may manage the entities to which messages are forwarded."""
        for setting, header in TARGET_AUTHORIZATIONS.items():
            target = getattr(settings, setting)
            if target is not None:
                self._server.authorization.check_target(request.http.headers, header, target)


def _check_name(check: Callable[[str, str], None], name: str, kind: str) -> None:
    try:
        check(name, kind)
    except OptionsError as error:
        raise ArgumentError(str(error)) from None


def _response(body: bytes, content_type: str = ENTRY, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
