# Generated from client/aio/provisioner.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""Carries out what preparation asks for, in bounded time.

Each single request of the administration has its own deadline, so a long list of queues may take as many deadlines as
it has pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, assert_never

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient, TopicProperties

from twinbus.board.queue import BOARD_SETTINGS
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
from twinbus.client.sync.concurrency import each_of, sleep, within
from twinbus.client.sync.links import LinkOpener
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS
from twinbus.pairing.sending.failure import Failure

Item = TypeVar("Item")


class BacklogProvisioner:
    """Prepares a pair. One thread at a time; `close` it when it is not needed any more."""

    def __init__(
        self,
        primary: Namespace,
        secondary: Namespace,
        *,
        attempt_s: float = ATTEMPT_S,
        admin_s: float | None = None,
        pause: Callable[[float], object] = sleep,
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

    def prepare(self, plan: Plan) -> Preparation:
        """Everything a pair needs before its first outage; raises `PairingError`."""
        found = self._run(prepare(plan, time.time()))
        return replace(found, requests=self.requests)

    def recheck(self, plan: Plan, before: Preparation) -> Preparation:
        """Whether it is all still there; never raises for what a namespace does."""
        found = self._run(recheck(plan, before, time.time()))
        return found if before.is_complete else replace(found, requests=self.requests)

    def close(self) -> None:
        """Leaves nothing behind, except what is stuck in the SDK until its own time-out."""
        if self._admin is not None:
            self._admin.close()
        self._opener.hang_up()

    def __enter__(self) -> BacklogProvisioner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[Preparation]) -> Preparation:
        try:
            ask = next(flow)
            while True:
                ask = flow.send(self.perform(ask))
        except StopIteration as done:
            result: Preparation = done.value
            return result

    def perform(self, ask: Ask) -> Any:
        """The answer to one ask."""
        match ask:
            case ListBacklogQueues(paths):
                return self._list(paths)
            case CreateBacklogQueue(path):
                return self._create(path, BACKLOG_SETTINGS)
            case CreateBoard(path):
                return self._create(path, BOARD_SETTINGS)
            case TryLinks(tries):
                return self._try_links(tries)
            case ReadDetection(entity):
                return self._read_detection(entity)
            case Pause(seconds):
                self._pause(seconds)
                return None
            case _:
                assert_never(ask)

    # --- the secondary ---

    def _list(self, paths: Iterable[str]) -> Mapping[str, BacklogQueueSettings] | Failure:
        wanted = {path.lower() for path in paths}
        found: dict[str, BacklogQueueSettings] = {}
        queues = self._administration().list_queues()  # asks for nothing yet
        try:
            for page in every_page(self._list_s, queues):
                self._count(secondary=1)
                found |= {queue.name.lower(): settings_of(queue) for queue in page if queue.name.lower() in wanted}
                if found.keys() == wanted:
                    break
        except Exception as error:
            return admin_failure(error)
        return found

    def _create(self, path: str, wanted: Mapping[str, object]) -> Failure | None:
        admin, settings = self._administration(), dict[str, Any](wanted)
        try:
            within(self._admin_s, lambda: admin.create_queue(path, **settings))
        except ResourceExistsError:
            pass  # somebody else was faster
        except Exception as error:
            return admin_failure(error)
        self._count(secondary=1)
        return None

    def _try_links(self, tries: tuple[LinkTry, ...]) -> tuple[Failure | None, ...]:
        if self._client is None:
            self._client = self._secondary.sync_client(self._attempt_s)
        client = self._client

        def attempt(one: LinkTry) -> Failure | None:
            listens = one.right is BacklogRight.LISTEN
            return self._opener.try_link(client, one.path, listens=listens, deadline_s=self._attempt_s)

        return each_of(tries, attempt, LINKS_AT_ONCE, "twinbus-prove")

    def _administration(self) -> ServiceBusAdministrationClient:
        if self._admin is None:
            self._admin = self._secondary.admin_client(self._admin_s)
        return self._admin

    # --- the primary ---

    def _read_detection(self, entity: str) -> Detection | Failure:
        with self._primary.admin_client(self._attempt_s) as admin:
            try:
                read, requests = within(self._attempt_s, lambda: _read_entity(admin, entity))
            except Exception as error:
                return admin_failure(error)
        self._count(primary=requests)
        return detection_of(read)

    def _count(self, primary: int = 0, secondary: int = 0) -> None:
        self.requests = Requests(self.requests.primary + primary, self.requests.secondary + secondary)


def every_page(seconds: float, paged: ItemPaged[Item]) -> Iterator[list[Item]]:
    """The pages of a list, each within this time; raises what the SDK raises, or `TimeoutError`."""
    pages = paged.by_page()
    while (page := within(seconds, lambda: _next_page(pages))) is not None:
        yield page


def _next_page(pages: Iterator[Iterator[Item]]) -> list[Item] | None:
    page = next(pages, None)
    return None if page is None else list(page)


def _read_entity(admin: ServiceBusAdministrationClient, entity: str) -> tuple[QueueProperties | TopicProperties, int]:
    """A queue or a topic, whichever it is, and how many requests that took."""
    try:
        return admin.get_queue(entity), 1
    except (ResourceNotFoundError, AttributeError):  # the SDK stumbles over the description of a topic
        return admin.get_topic(entity), 2
