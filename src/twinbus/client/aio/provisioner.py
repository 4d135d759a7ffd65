"""Carries out what preparation asks for, in bounded time.

Each single request of the administration has its own deadline, so a long list of queues may take as many deadlines as
it has pages.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, assert_never

from azure.core.async_paging import AsyncItemPaged
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties, TopicProperties

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.client.aio.concurrency import each_of, sleep, within
from twinbus.client.aio.links import LinkOpener
from twinbus.client.namespace import ATTEMPT_S, Namespace
from twinbus.client.setup.administration import (
    LINKS_AT_ONCE,
    admin_deadline,
    admin_failure,
    detection_of,
    list_deadline,
)
from twinbus.client.setup.plan import Plan
from twinbus.client.setup.preparation import (
    Ask,
    BacklogRight,
    CreateBacklogQueue,
    CreateBoard,
    Detection,
    Flow,
    LinkTry,
    ListBacklogQueues,
    Pause,
    Preparation,
    ReadDetection,
    Requests,
    TryLinks,
    prepare,
    recheck,
)
from twinbus.client.setup.queue_settings import BacklogQueueSettings, settings_of
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS
from twinbus.pairing.sending.failure import Failure

Item = TypeVar("Item")


class BacklogProvisioner:
    """Prepares a pair. One task at a time; `close` it when it is not needed any more."""

    def __init__(
        self,
        primary: Namespace,
        secondary: Namespace,
        *,
        attempt_s: float = ATTEMPT_S,
        admin_s: float | None = None,
        pause: Callable[[float], Awaitable[object]] = sleep,
    ) -> None:
        """`attempt_s` bounds a link, `admin_s` a request of the administration (longer, unless it is given).

        `pause` is how time passes between attempts; one that returns early makes them come early.
        """
        self._primary, self._secondary = primary, secondary
        self._attempt_s = attempt_s
        self._admin_s = admin_deadline(attempt_s) if admin_s is None else admin_s
        self._list_s = list_deadline(attempt_s) if admin_s is None else admin_s
        self._pause = pause
        self._opener = LinkOpener()
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
        found = await self._run(recheck(plan, before, time.time()))
        return found if before.is_complete else replace(found, requests=self.requests)

    async def close(self) -> None:
        """Leaves nothing behind, except what is stuck in the SDK until its own time-out."""
        if self._admin is not None:
            await self._admin.close()
        self._opener.hang_up()

    async def __aenter__(self) -> BacklogProvisioner:
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
            case ListBacklogQueues(paths):
                return await self._list(paths)
            case CreateBacklogQueue(path):
                return await self._create(path, BACKLOG_SETTINGS)
            case CreateBoard(path):
                return await self._create(path, BOARD_SETTINGS)
            case TryLinks(tries):
                return await self._try_links(tries)
            case ReadDetection(entity):
                return await self._read_detection(entity)
            case Pause(seconds):
                await self._pause(seconds)
                return None
            case _:
                assert_never(ask)

    # --- the secondary ---

    async def _list(self, paths: Iterable[str]) -> Mapping[str, BacklogQueueSettings] | Failure:
        wanted = {path.lower() for path in paths}
        found: dict[str, BacklogQueueSettings] = {}
        queues = self._administration().list_queues()  # asks for nothing yet
        try:
            async for page in every_page(self._list_s, queues):
                self._count(secondary=1)
                found |= {queue.name.lower(): settings_of(queue) for queue in page if queue.name.lower() in wanted}
                if found.keys() == wanted:
                    break
        except Exception as error:
            return admin_failure(error)
        return found

    async def _create(self, path: str, wanted: Mapping[str, object]) -> Failure | None:
        admin, settings = self._administration(), dict[str, Any](wanted)
        try:
            await within(self._admin_s, lambda: admin.create_queue(path, **settings))
        except ResourceExistsError:
            pass  # somebody else was faster
        except Exception as error:
            return admin_failure(error)
        self._count(secondary=1)
        return None

    async def _try_links(self, tries: tuple[LinkTry, ...]) -> tuple[Failure | None, ...]:
        if self._client is None:
            self._client = self._secondary.aio_client(self._attempt_s)
        client = self._client

        async def attempt(one: LinkTry) -> Failure | None:
            listens = one.right is BacklogRight.LISTEN
            return await self._opener.try_link(client, one.path, listens=listens, deadline_s=self._attempt_s)

        return await each_of(tries, attempt, LINKS_AT_ONCE, "twinbus-prove")

    def _administration(self) -> ServiceBusAdministrationClient:
        if self._admin is None:
            self._admin = self._secondary.aio_admin_client(self._admin_s)
        return self._admin

    # --- the primary ---

    async def _read_detection(self, entity: str) -> Detection | Failure:
        async with self._primary.aio_admin_client(self._attempt_s) as admin:
            try:
                read, requests = await within(self._attempt_s, lambda: _read_entity(admin, entity))
            except Exception as error:
                return admin_failure(error)
        self._count(primary=requests)
        return detection_of(read)

    def _count(self, primary: int = 0, secondary: int = 0) -> None:
        self.requests = Requests(self.requests.primary + primary, self.requests.secondary + secondary)


async def every_page(seconds: float, paged: AsyncItemPaged[Item]) -> AsyncIterator[list[Item]]:
    """The pages of a list, each within this time; raises what the SDK raises, or `TimeoutError`."""
    pages = paged.by_page()
    while (page := await within(seconds, lambda: _next_page(pages))) is not None:
        yield page


async def _next_page(pages: AsyncIterator[AsyncIterator[Item]]) -> list[Item] | None:
    page = await anext(pages, None)
    return None if page is None else [item async for item in page]  # sync: return None if page is None else list(page)


async def _read_entity(
    admin: ServiceBusAdministrationClient, entity: str
) -> tuple[QueueProperties | TopicProperties, int]:
    """A queue or a topic, whichever it is, and how many requests that took."""
    try:
        return await admin.get_queue(entity), 1
    except (ResourceNotFoundError, AttributeError):  # the SDK stumbles over the description of a topic
        return await admin.get_topic(entity), 2
