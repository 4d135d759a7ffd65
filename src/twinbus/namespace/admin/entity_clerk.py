"""Requests about the namespace, its queues and its topics.

Queues and topics share addresses: what is to be made, the description in the request tells. An entity is made by one
command once its whole description was found good, so nothing is ever half-made.
"""

from __future__ import annotations

from aiohttp import web

from twinbus.errors import ArgumentError, OptionsError
from twinbus.namespace.admin import documents, topic_documents
from twinbus.namespace.admin.asking import FEED, Ask, Clerk, Handler, document
from twinbus.namespace.admin.documents import NamespaceInfo
from twinbus.namespace.admin.routes import Place, Resource, page_of
from twinbus.namespace.admin.validation import QUEUE, TOPIC, description_in, local_name, read_settings
from twinbus.namespace.commands import (
    AdminCommand,
    CreateQueue,
    CreateTopic,
    DeleteEntity,
    GetEntity,
    ListQueues,
    ListTopics,
    UpdateQueue,
    UpdateTopic,
)
from twinbus.namespace.entities.settings import check_entity_path
from twinbus.namespace.replies import Done, QueueFound, QueuesFound, TopicFound, TopicsFound


class EntityClerk(Clerk):
    def handlers(self) -> dict[Resource, dict[str, Handler]]:
        return {
            Resource.NAMESPACE: {"GET": self._get_namespace},
            Resource.QUEUES: {"GET": self._list_queues},
            Resource.TOPICS: {"GET": self._list_topics},
            Resource.ENTITY: {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
            Resource.NOTHING: {},
        }

    async def _get_namespace(self, ask: Ask) -> web.Response:
        info = NamespaceInfo(self._house.name, self._house.created_at_ms)
        return document(documents.namespace_entry(info, ask.letterhead))

    async def _list_queues(self, ask: Ask) -> web.Response:
        page = page_of(ask.request.query)
        found = await self._ask(ListQueues(page.skip, page.top), QueuesFound)
        next_query = page.next_query if found.has_more else None
        return document(documents.queue_feed(found.queues, next_query, ask.letterhead), FEED)

    async def _list_topics(self, ask: Ask) -> web.Response:
        page = page_of(ask.request.query)
        found = await self._ask(ListTopics(page.skip, page.top), TopicsFound)
        next_query = page.next_query if found.has_more else None
        return document(topic_documents.topic_feed(found.topics, next_query, ask.letterhead), FEED)

    async def _get(self, ask: Ask, status: int = 200) -> web.Response:
        _check_named(ask.place)
        found: QueueFound | TopicFound = await self._ask(GetEntity(ask.place.path), QueueFound | TopicFound)  # type: ignore[arg-type]
        if isinstance(found, QueueFound):
            return document(documents.queue_entry(found.queue, ask.letterhead), status=status)
        return document(topic_documents.topic_entry(found.topic, ask.letterhead), status=status)

    async def _put(self, ask: Ask) -> web.Response:
        await self._ask(self._put_command(ask), Done)
        return await self._get(ask, status=200 if ask.is_update else 201)

    def _put_command(self, ask: Ask) -> AdminCommand:
        path, circumstances = ask.place.path, self._circumstances(ask)
        description = description_in(ask.body, QUEUE.element, TOPIC.element)
        if local_name(description) == TOPIC.element:
            _check_name(ask.place, "topic")
            topic = read_settings(description, TOPIC, circumstances)
            return UpdateTopic(path, topic) if ask.is_update else CreateTopic(path, topic)
        _check_name(ask.place, "queue")
        queue = read_settings(description, QUEUE, circumstances)
        self._check_targets(ask, queue)
        return UpdateQueue(path, queue) if ask.is_update else CreateQueue(path, queue)

    async def _delete(self, ask: Ask) -> web.Response:
        _check_named(ask.place)
        await self._ask(DeleteEntity(ask.place.path), Done)
        return web.Response(status=200)


def _check_named(place: Place) -> None:
    if not place.path:
        _check_name(place, "queue")


def _check_name(place: Place, kind: str) -> None:
    try:
        check_entity_path(place.path, kind)
    except OptionsError as error:
        raise ArgumentError(str(error)) from None
