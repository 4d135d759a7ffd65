"""The entities of a primary, seen from outside: does each take messages, give them out, and let itself be managed?

Nothing is changed and no message is taken. Sending is tried with a ping where the namespace drops pings; elsewhere a
link that opens has to do. Receiving is tried with a peek, managing by reading the settings. A peek is a request to the
entity's management, so one that fails is not the proof that receiving does: a receiver's link has to be refused, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, assert_never

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.amqp.codec.performatives import DROPS_PINGS
from twinbus.client.core.ping_message import ping_message
from twinbus.client.inspection.inspection_cost import LookCounter
from twinbus.client.inspection.peek import peek_depth
from twinbus.client.inspection.reports import AbilityReport, EntityReport
from twinbus.client.namespace import Namespace
from twinbus.client.sdk.abandonable_threads import within
from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.setup import findings
from twinbus.client.setup.administration import admin_failure
from twinbus.client.setup.preparation import OUT_OF_REACH
from twinbus.client.sync.links import LinkOpener
from twinbus.client.sync.provisioner import every_page
from twinbus.pairing.sending.failure import Failure, FailureKind


class EntityKind(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EntityLook:
    """What was found."""

    entities: tuple[EntityReport, ...] = ()
    unlisted: Failure | None = None
    """Why nobody can say that these are all; None: they are."""
    answers: tuple[Failure | None, ...] = ()
    """Everything the primary answered, to tell a key that is refused everywhere from one that lacks a right."""


class EntityAsker:
    """Asks one primary. `pool` runs several questions at a time; each ends in bounded time."""

    def __init__(
        self, primary: Namespace, client: ServiceBusClient, opener: LinkOpener, attempt_s: float, admin_s: float
    ) -> None:
        self._primary, self._client, self._opener = primary, client, opener
        self._attempt_s, self._admin_s = attempt_s, admin_s

    def look(
        self,
        named: Collection[str],
        met: Iterable[str],
        knock: Failure | None,
        pool: Executor,
        before: Collection[str] = (),
    ) -> EntityLook:
        """Ask about the entities that are `named`; if none is, about all, and those that were `met` elsewhere.

        If they cannot be listed, those that were there `before` are asked about. `knock` is the primary's answer so
        far; if it did not answer, its entities are not asked one by one.
        """
        with self._primary.admin_client(self._admin_s) as admin:
            kinds: dict[str, EntityKind] = dict.fromkeys(named, EntityKind.UNKNOWN)
            unlisted = None
            if not named:
                listed = self._list(admin)
                if isinstance(listed, Failure):
                    unlisted, listed = listed, dict.fromkeys(before, EntityKind.UNKNOWN)
                known = {path.lower() for path in listed}
                others = sorted({path for path in met if path.lower() not in known})
                kinds = listed | dict.fromkeys(others, EntityKind.UNKNOWN)
            found = list(pool.map(lambda path, kind: self._ask(admin, path, kind, knock), kinds, kinds.values()))
        answers = [knock, *([] if named else [unlisted]), *[answer for _, several in found for answer in several]]
        return EntityLook(tuple([report for report, _ in found]), unlisted, tuple(answers))

    def _list(self, admin: ServiceBusAdministrationClient) -> dict[str, EntityKind] | Failure:
        try:
            queues = [queue.name for page in every_page(self._admin_s, admin.list_queues()) for queue in page]
            topics = [topic.name for page in every_page(self._admin_s, admin.list_topics()) for topic in page]
        except Exception as error:
            return admin_failure(error)
        return dict.fromkeys(queues, EntityKind.QUEUE) | dict.fromkeys(topics, EntityKind.TOPIC)

    def _ask(
        self, admin: ServiceBusAdministrationClient, path: str, kind: EntityKind, knock: Failure | None
    ) -> tuple[EntityReport, list[Failure | None]]:
        is_away = knock is not None and knock.kind in OUT_OF_REACH
        managed = self._manage(admin, path, kind)
        kind = managed if isinstance(managed, EntityKind) else kind
        sent = knock if is_away else self._send(path)
        received = knock if is_away else self._receive(admin, path, kind)
        managing = None if isinstance(managed, EntityKind) else managed
        report = EntityReport(
            entity=path,
            kind=kind.value,
            sending=_ability(sent, "send"),
            receiving=_ability(received, "listen"),
            managing=_ability(managing, "manage"),
        )
        return report, [sent, received if isinstance(received, Failure) else None, managing]

    def _send(self, path: str) -> Failure | None:
        offered: set[str] = set()
        try:
            link = self._opener.open(self._client, path, deadline_s=self._attempt_s, heard=offered.update)
            try:
                if DROPS_PINGS in offered:
                    link.send(ping_message(), self._attempt_s)
            finally:
                link.discard()
        except LinkFailed as failed:
            return failed.failure
        return None

    def _receive(self, admin: ServiceBusAdministrationClient, path: str, kind: EntityKind) -> Failure | str | None:
        """None: it works; a text: nobody could ask, and why."""
        if kind is not EntityKind.TOPIC:
            return self._receive_from(path)
        try:
            pages = every_page(self._admin_s, admin.list_subscriptions(path))
            names = [one.name for page in pages for one in page]
        except Exception as error:
            return f"its subscriptions cannot be listed: {findings.brief(admin_failure(error))}"
        answers = [self._receive_from(f"{path}/Subscriptions/{name}") for name in names]
        failures = [answer for answer in answers if isinstance(answer, Failure)]
        return next((answer for answer in (*failures, *answers) if answer is not None), None)

    def _receive_from(self, path: str) -> Failure | str | None:
        peeked = self._peek(path)
        if peeked is None or peeked.kind is FailureKind.UNAUTHORISED or peeked.kind in OUT_OF_REACH:
            return peeked
        failure = self._opener.try_link(self._client, path, listens=True, deadline_s=self._attempt_s)
        if failure is not None and failure.kind is not FailureKind.NOT_ALLOWED:  # has sessions, and none was named
            return failure
        return f"peeking fails, which does not show that receiving does: {findings.brief(peeked)}"

    def _peek(self, path: str) -> Failure | None:
        """A queue with sessions wants one to be named: one that nobody else has."""
        failure: Failure | None = None
        for session in (None, os.urandom(16).hex()):
            found = peek_depth(
                self._client,
                path,
                1,
                deadline_s=self._attempt_s,
                watchdog=self._opener.watchdog,
                cost=LookCounter(),
                session_id=session,
            )
            failure = found if isinstance(found, Failure) else None
            if failure is None or failure.kind is not FailureKind.NOT_ALLOWED:
                break
        return failure

    def _manage(self, admin: ServiceBusAdministrationClient, path: str, kind: EntityKind) -> EntityKind | Failure:
        reads: Sequence[tuple[EntityKind, Callable[[str], Any]]]
        reads = [(EntityKind.QUEUE, admin.get_queue), (EntityKind.TOPIC, admin.get_topic)]
        failure = Failure(FailureKind.NOT_FOUND, f"{path} does not exist")
        for what, read in reads:
            if kind not in (what, EntityKind.UNKNOWN):
                continue
            try:
                within(self._admin_s, partial(read, path))
            except (ResourceNotFoundError, AttributeError):  # the SDK stumbles over the description of another kind
                continue
            except Exception as error:
                return admin_failure(error)
            return what
        return failure


def _ability(answer: Failure | str | None, right: str) -> AbilityReport:
    match answer:
        case None:
            return AbilityReport(works=True)
        case str():
            return AbilityReport(works=None, why=answer)
        case Failure(kind=FailureKind.UNAUTHORISED):
            return AbilityReport(works=None, why=f"the key may not {right}")
        case Failure():
            return AbilityReport(works=False, why=findings.brief(answer))
        case _:
            assert_never(answer)
