"""The secretary for asyncio: carries out what preparation asks for, in bounded time, on tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties, TopicProperties

from twinbus.client.aio_links import AioReceiverProbe, AioSenderLink, LinkFailed
from twinbus.client.namespace import ATTEMPT_S, Namespace
from twinbus.client.plan import Plan
from twinbus.client.preparation import (
    Ask,
    CreateQueue,
    Detection,
    Flow,
    LinkTry,
    ListQueues,
    Pause,
    Preparation,
    ReadDetection,
    Requests,
    Right,
    TryLinks,
    prepare,
    recheck,
)
from twinbus.client.queue_settings import QueueSettings, settings_of
from twinbus.client.secretary import LINKS_AT_ONCE, admin_deadline, admin_failure, asked, detection_of, list_deadline
from twinbus.pairing.backlog_queues import BACKLOG_SETTINGS
from twinbus.pairing.failure import Failure


class AioSecretary:
    """Prepares a pair. `await close()` when it is not needed any more."""

    def __init__(
        self,
        primary: Namespace,
        secondary: Namespace,
        *,
        attempt_s: float = ATTEMPT_S,
        admin_s: float | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """As `Secretary`."""
        self._primary, self._secondary = primary, secondary
        self._attempt_s = attempt_s
        self._admin_s = admin_deadline(attempt_s) if admin_s is None else admin_s
        self._list_s = list_deadline(attempt_s) if admin_s is None else admin_s
        self._pause = pause
        self._client: ServiceBusClient | None = None
        self._admin: ServiceBusAdministrationClient | None = None
        self.requests = Requests()
        """What was asked of the administrations so far, as far as they answered."""

    async def prepare(self, plan: Plan) -> Preparation:
        """Everything a pair needs before its first outage; raises `PairingError`."""
        found = await self._run(prepare(plan, time.time()))
        return replace(found, requests=self.requests)

    async def recheck(self, plan: Plan, before: Preparation) -> Preparation:
        """Whether it is all still there; never raises for what a namespace does."""
        return await self._run(recheck(plan, before, time.time()))

    async def close(self) -> None:
        if self._admin is not None:
            await self._admin.close()

    async def __aenter__(self) -> AioSecretary:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, flow: Flow[Preparation]) -> Preparation:
        try:
            ask = next(flow)
            while True:
                ask = flow.send(await self.perform(ask))
        except StopIteration as done:
            result: Preparation = done.value
            return result

    async def perform(self, ask: Ask) -> Any:
        """The answer to one ask."""
        match ask:
            case ListQueues(paths):
                return await self._list(paths)
            case CreateQueue(path):
                return await self._create(path)
            case TryLinks(tries):
                return await self._try_links(tries)
            case ReadDetection(entity):
                return await self._read_detection(entity)
            case Pause(seconds):
                await self._pause(seconds)
                return None

    # --- the secondary ---

    async def _list(self, paths: Iterable[str]) -> Mapping[str, QueueSettings] | Failure:
        wanted = {path.lower() for path in paths}
        found: dict[str, QueueSettings] = {}
        pages = self._administration().list_queues().by_page()
        try:
            while wanted - found.keys():
                async with asyncio.timeout(self._list_s):
                    page = await next_page(pages)
                if page is None:
                    break
                self._asked(secondary=1)
                found |= {queue.name.lower(): settings_of(queue) for queue in page if queue.name.lower() in wanted}
        except Exception as error:
            return admin_failure(error)
        return found

    async def _create(self, path: str) -> Failure | None:
        admin, settings = self._administration(), dict[str, Any](BACKLOG_SETTINGS)
        try:
            async with asyncio.timeout(self._admin_s):
                await admin.create_queue(path, **settings)
        except ResourceExistsError:
            pass  # somebody else was faster
        except Exception as error:
            return admin_failure(error)
        self._asked(secondary=1)
        return None

    async def _try_links(self, tries: tuple[LinkTry, ...]) -> tuple[Failure | None, ...]:
        if self._client is None:
            self._client = self._secondary.aio_client(self._attempt_s)
        client, turn = self._client, asyncio.Semaphore(LINKS_AT_ONCE)

        async def try_in_turn(one: LinkTry) -> Failure | None:
            async with turn:
                return await self._try_link(client, one)

        return tuple(await asyncio.gather(*(try_in_turn(one) for one in tries)))

    async def _try_link(self, client: ServiceBusClient, one: LinkTry) -> Failure | None:
        try:
            if one.right is Right.LISTEN:
                await AioReceiverProbe.open(client, one.path, deadline_s=self._attempt_s)
            else:
                (await AioSenderLink.open(client, one.path, deadline_s=self._attempt_s)).discard()
        except LinkFailed as failed:
            return failed.failure
        return None

    def _administration(self) -> ServiceBusAdministrationClient:
        if self._admin is None:
            self._admin = self._secondary.aio_admin_client(self._admin_s)
        return self._admin

    # --- the primary ---

    async def _read_detection(self, entity: str) -> Detection | Failure:
        async with self._primary.aio_admin_client(self._attempt_s) as admin:
            try:
                async with asyncio.timeout(self._attempt_s):
                    read, requests = await _read_entity(admin, entity)
            except Exception as error:
                return admin_failure(error)
        self._asked(primary=requests)
        return detection_of(read)

    def _asked(self, primary: int = 0, secondary: int = 0) -> None:
        self.requests = asked(self.requests, primary, secondary)


async def next_page(pages: Any) -> list[QueueProperties] | None:
    """The queues on the next page of a list; None after the last."""
    page = await anext(pages, None)
    return None if page is None else [queue async for queue in page]


async def _read_entity(
    admin: ServiceBusAdministrationClient, entity: str
) -> tuple[QueueProperties | TopicProperties, int]:
    """A queue or a topic, whichever it is, and how many requests that took."""
    try:
        return await admin.get_queue(entity), 1
    except (ResourceNotFoundError, AttributeError):  # the SDK stumbles over the description of a topic
        return await admin.get_topic(entity), 2
