"""The secretary: carries out what preparation asks for, in bounded time, on threads.

Administration runs on threads that can be left behind, because a call of the SDK cannot be stopped; each single request
has its own deadline, so a long list of queues may take as many deadlines as it has pages. `aio_secretary.py` is the
twin for asyncio.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient, TopicProperties

from twinbus.client.failures import describe
from twinbus.client.leavable_pool import leavable_pool
from twinbus.client.links import LinkFailed, ReceiverProbe, SenderLink
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
from twinbus.client.watchdog import Watchdog
from twinbus.client.within import within
from twinbus.pairing.backlog_queues import BACKLOG_SETTINGS
from twinbus.pairing.failure import Failure, FailureKind

Item = TypeVar("Item")

LIST_S_MIN, ADMIN_S_MIN = 5.0, 10.0
"""Creating a queue takes the service seconds; a send does not."""
LINKS_AT_ONCE = 10

_SUB_CODE = re.compile(r"SubCode=(\d{5})")
_KIND_OF_SUB_CODE = {
    "40300": FailureKind.FULL,  # the namespace has as many queues as it may have
    "40301": FailureKind.DISABLED,
    "50300": FailureKind.BUSY,
}


class Secretary:
    """Prepares a pair. Use it from one thread at a time; `close` when it is not needed any more."""

    def __init__(
        self,
        primary: Namespace,
        secondary: Namespace,
        *,
        attempt_s: float = ATTEMPT_S,
        admin_s: float | None = None,
        watchdog: Watchdog | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`attempt_s` bounds a link, `admin_s` a request of the administration (longer, unless it is given).

        `pause` is how time passes between attempts; one that returns early makes them come early.
        """
        self._primary, self._secondary = primary, secondary
        self._attempt_s = attempt_s
        self._admin_s = admin_deadline(attempt_s) if admin_s is None else admin_s
        self._list_s = list_deadline(attempt_s) if admin_s is None else admin_s
        self._own_watchdog = Watchdog() if watchdog is None else None
        self._watchdog = watchdog or self._own_watchdog or Watchdog()
        self._pause = pause
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
        return self._run(recheck(plan, before, time.time()))

    def close(self) -> None:
        """Leaves no thread, except one that is stuck in the SDK until its own time-out."""
        if self._admin is not None:
            self._admin.close()
        if self._own_watchdog is not None:
            self._own_watchdog.stop()

    def __enter__(self) -> Secretary:
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
            case ListQueues(paths):
                return self._list(paths)
            case CreateQueue(path):
                return self._create(path)
            case TryLinks(tries):
                return self._try_links(tries)
            case ReadDetection(entity):
                return self._read_detection(entity)
            case Pause(seconds):
                self._pause(seconds)
                return None

    # --- the secondary ---

    def _list(self, paths: Iterable[str]) -> Mapping[str, QueueSettings] | Failure:
        wanted = {path.lower() for path in paths}
        found: dict[str, QueueSettings] = {}
        queues = self._administration().list_queues()  # asks for nothing yet
        try:
            for page in every_page(self._list_s, queues):
                self._asked(secondary=1)
                found |= {queue.name.lower(): settings_of(queue) for queue in page if queue.name.lower() in wanted}
                if found.keys() == wanted:
                    break
        except Exception as error:
            return admin_failure(error)
        return found

    def _create(self, path: str) -> Failure | None:
        admin, settings = self._administration(), dict[str, Any](BACKLOG_SETTINGS)
        try:
            within(self._admin_s, lambda: admin.create_queue(path, **settings))
        except ResourceExistsError:
            pass  # somebody else was faster
        except Exception as error:
            return admin_failure(error)
        self._asked(secondary=1)
        return None

    def _try_links(self, tries: tuple[LinkTry, ...]) -> tuple[Failure | None, ...]:
        client = self._links()
        with leavable_pool(LINKS_AT_ONCE, "twinbus-prove") as pool:
            return tuple(pool.map(lambda one: self._try_link(client, one), tries))

    def _try_link(self, client: ServiceBusClient, one: LinkTry) -> Failure | None:
        options: dict[str, Any] = {"deadline_s": self._attempt_s, "watchdog": self._watchdog}
        try:
            if one.right is Right.LISTEN:
                ReceiverProbe.open(client, one.path, **options)
            else:
                SenderLink.open(client, one.path, **options).discard()
        except LinkFailed as failed:
            return failed.failure
        return None

    def _links(self) -> ServiceBusClient:
        if self._client is None:
            self._client = self._secondary.sync_client(self._attempt_s)
        return self._client

    def _administration(self) -> ServiceBusAdministrationClient:
        if self._admin is None:
            self._admin = self._secondary.admin_client(self._admin_s)
        return self._admin

    # --- the primary ---

    def _read_detection(self, entity: str) -> Detection | Failure:
        with self._primary.admin_client(self._attempt_s) as admin:
            try:
                read, requests = within(self._attempt_s, lambda: read_entity(admin, entity))
            except Exception as error:
                return admin_failure(error)
        self._asked(primary=requests)
        return detection_of(read)

    def _asked(self, primary: int = 0, secondary: int = 0) -> None:
        self.requests = asked(self.requests, primary, secondary)


# --- shared with the twin ------------------------------------------------------------------------------


def plan_for(
    primary: Namespace,
    secondary: Namespace,
    *,
    primary_name: str | None = None,
    queue_count: int = 10,
    creates: bool = True,
    listens: bool = False,
    sends: bool = True,
    entities: Iterable[str] = (),
    attempts: int = 3,
) -> Plan:
    """What is to be prepared between these two; `primary_name` wins over what the namespace is called."""
    return Plan(
        primary_name=primary_name or primary.name,
        primary_address=primary.address,
        secondary_name=secondary.name,
        secondary_address=secondary.address,
        queue_count=queue_count,
        creates=creates,
        listens=listens,
        sends=sends,
        entities=tuple(entities),
        attempts=attempts,
    )


def asked(before: Requests, primary: int, secondary: int) -> Requests:
    """So many requests more."""
    return Requests(before.primary + primary, before.secondary + secondary)


def admin_deadline(attempt_s: float) -> float:
    return max(attempt_s, ADMIN_S_MIN)


def list_deadline(attempt_s: float) -> float:
    return max(attempt_s, LIST_S_MIN)


def admin_failure(error: BaseException) -> Failure:
    """What an exception of the administration client means."""
    failure = describe(error, sending=False)
    code = _SUB_CODE.search(str(error))
    kind = _KIND_OF_SUB_CODE.get(code[1]) if code else None
    return failure if kind is None else replace(failure, kind=kind)


def detection_of(entity: QueueProperties | TopicProperties) -> Detection:
    window = entity.duplicate_detection_history_time_window
    if not entity.requires_duplicate_detection or not isinstance(window, timedelta):
        return Detection(None)
    return Detection(window.total_seconds())


# --- on threads ----------------------------------------------------------------------------------------


def every_page(seconds: float, paged: ItemPaged[Item]) -> Iterator[list[Item]]:
    """The pages of a list, each within this time; raises what the SDK raises, or `TimeoutError`."""
    pages = paged.by_page()
    while (page := within(seconds, lambda: _page(pages))) is not None:
        yield page


def _page(pages: Iterator[Iterator[Item]]) -> list[Item] | None:
    page = next(pages, None)
    return None if page is None else list(page)


def read_entity(admin: ServiceBusAdministrationClient, entity: str) -> tuple[QueueProperties | TopicProperties, int]:
    """A queue or a topic, whichever it is, and how many requests that took."""
    try:
        return admin.get_queue(entity), 1
    except (ResourceNotFoundError, AttributeError):  # the SDK stumbles over the description of a topic
        return admin.get_topic(entity), 2
