"""A look at a pair from outside: are both sides there, and what lies in the backlog?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage
from azure.servicebus.management import QueueProperties, QueueRuntimeProperties

from twinbus.client.inspection.entity_probe import EntityAsker, EntityLook
from twinbus.client.inspection.inspection_cost import LookCounter
from twinbus.client.inspection.peek import peek_depth
from twinbus.client.inspection.reports import EntityReport, Inspection, QueueReport, SideReport
from twinbus.client.namespace import ATTEMPT_S, Namespace
from twinbus.client.sdk.abandonable_threads import leavable_pool
from twinbus.client.setup import findings
from twinbus.client.setup.administration import LINKS_AT_ONCE, admin_deadline, admin_failure, plan_for
from twinbus.client.setup.plan import Plan
from twinbus.client.setup.preparation import OUT_OF_REACH
from twinbus.client.setup.queue_settings import settings_of, shut_by
from twinbus.client.sync.links import LinkOpener
from twinbus.client.sync.provisioner import every_page
from twinbus.errors import OptionsError, PairingError
from twinbus.pairing.backlog import envelope
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS, backlog_path, index_of
from twinbus.pairing.backlog.queue_depth import MESSAGES_MAX, Depth
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking.queue_discovery import QueueDiscovery, doubts, remedy
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE

FURTHER_UNKNOWN = "it is unknown whether there are further backlog queues"
NOBODY_HOME = OUT_OF_REACH | {FailureKind.NOT_FOUND}
SAMPLE = 250
"""Messages of a backlog queue that are looked at to see which entities they are for."""
MET_MAX = 20
"""Entities that are asked about because messages in the backlog name them: anybody may write a name there."""
MEGABYTE = 1024 * 1024
FOR_EVER = timedelta(days=10_675_199)


def inspect(
    primary: Namespace,
    secondary: Namespace,
    count: int = 10,
    *,
    primary_name: str | None = None,
    attempt_s: float = ATTEMPT_S,
    admin_s: float | None = None,
    messages_max: int = MESSAGES_MAX,
    earlier: Inspection | None = None,
    entities: Collection[str] | None = None,
) -> Inspection:
    """Look at both sides; takes some seconds when one of them is silent. Changes nothing and takes no message.

    Raises `PairingError` for two that are no pair; what a namespace refuses to tell is unknown. Where numbers may not
    be listed, up to `messages_max` messages of a queue are counted by peeking, each of which is an operation.

    With `entities` those entities of the primary are asked about, too (all, if it is empty), and some messages of each
    backlog queue are looked at to see which entity they are for.
    """
    plan = plan_for(primary, secondary, primary_name=primary_name, queue_count=count)
    problem = findings.plan_problem(plan)
    if problem is not None:
        raise PairingError(problem)
    admin_s = admin_deadline(attempt_s) if admin_s is None else admin_s
    inspector = _Inspector(plan, primary, secondary, attempt_s, admin_s, messages_max)
    try:
        return inspector.look(earlier, entities)
    finally:
        inspector.opener.hang_up()


@dataclass(frozen=True, slots=True)
class _Listing:
    settings: dict[str, QueueProperties]
    """By path in lower case."""
    numbers: dict[str, QueueRuntimeProperties]
    failure: Failure | None = None


class _Beyond(NamedTuple):
    """What a look for backlog queues has found, which no listing tells."""

    paths: list[str]
    """Those beyond the count."""
    doubt: str | None = None
    """Why nobody can say that these are all; None: they are."""
    shut: Mapping[str, str] = MappingProxyType({})
    """Those that no syphon can empty, wherever they are, and why: where settings may not be listed."""

    def complete(self, report: QueueReport) -> QueueReport:
        """The same with what this look has found."""
        return replace(report, shut=report.shut or self.shut.get(report.path))


class _Inspector:
    def __init__(
        self,
        plan: Plan,
        primary: Namespace,
        secondary: Namespace,
        attempt_s: float,
        admin_s: float,
        messages_max: int,
    ) -> None:
        self._plan, self._primary, self._secondary = plan, primary, secondary
        self._attempt_s, self._admin_s, self._messages_max = attempt_s, admin_s, messages_max
        self.opener = LinkOpener()
        self._peek = partial(peek_depth, deadline_s=attempt_s, watchdog=self.opener.watchdog)
        self._cost = LookCounter()
        self._met: Counter[str] = Counter()
        """Messages that were seen in the backlog, by the entity they are for. Several threads count."""
        self._met_count = 0
        self._lock = threading.Lock()

    def look(self, earlier: Inspection | None, entities: Collection[str] | None) -> Inspection:
        now, paths = time.time(), list(self._plan.paths.values())
        here = self._primary.sync_client(self._attempt_s)
        there = self._secondary.sync_client(self._attempt_s)
        with leavable_pool(LINKS_AT_ONCE, "twinbus-inspect") as pool:
            # A link to a queue that is not there is answered like any other: so it shows that somebody answers.
            answer = pool.submit(self._knock_at_home, here, paths[0])
            tried = list(pool.map(lambda path: self._knock(there, path), paths))
            found = pool.submit(self._list, tried[0]).result()
            # Numbers are listed where that is allowed; elsewhere they are counted by peeking, up to a limit.
            is_counted = found.failure is None
            most = self._messages_max if not is_counted else 1 if entities is None else SAMPLE
            depths = list(pool.map(lambda path, why: self._depth(there, path, why, most), paths, tried))
            tried = [_surest(why, depth) for why, depth in zip(tried, depths, strict=True)]
            beyond = pool.submit(self._further, found, depths).result()
            others = list(pool.map(lambda path: self._depth(there, path, None, most), beyond.paths))
            reports = [
                *map(lambda path, why, depth: _queue_report(path, why, depth, found, now), paths, tried, depths),
                *map(lambda path, depth: _extra_report(path, depth, found, now), beyond.paths, others),
            ]
            reports = [beyond.complete(report) for report in reports]
            if entities is not None and not is_counted:
                reports = list(pool.map(lambda report: self._with_dead_letters(there, report), reports))
            knocked = answer.result()
            asked = EntityLook()
            if entities is not None:
                asker = EntityAsker(self._primary, here, self.opener, self._attempt_s, self._admin_s)
                met = [path for path, _ in self._met.most_common(MET_MAX)]
                before = () if earlier is None else [entity.entity for entity in earlier.entities]
                asked = asker.look(entities, met, knocked, pool, before)
        problems = [_problem(why, depth) for why, depth in zip(tried, depths, strict=True)]
        seen = Inspection(
            at=now,
            primary=_side(self._plan.primary_name, self._primary, asked.answers or [knocked]),
            secondary=_side(self._plan.secondary_name, self._secondary, problems),
            queues=tuple(reports[: len(paths)]),
            extra=tuple(reports[len(paths) :]),
            entities=asked.entities,
            entities_unlisted=None if asked.unlisted is None else findings.brief(asked.unlisted),
            doubt=beyond.doubt,
            unlisted=None if found.failure is None else findings.brief(found.failure),
            earlier=None if earlier is None else replace(earlier, earlier=None),  # or every look would keep all before
            cost=self._cost.total,
        )
        return replace(seen, entities=tuple([self._with_waiting(entity, seen) for entity in seen.entities]))

    def _meet(self, message: ServiceBusReceivedMessage) -> None:
        """Note which entity a message in the backlog is for."""
        properties = message.application_properties or {}
        path = properties.get(envelope.PATH.encode(), properties.get(envelope.PATH))  # a peek gives bytes
        name = path.decode("utf-8", "replace") if isinstance(path, bytes) else path
        with self._lock:
            self._met_count += 1
            if isinstance(name, str):
                self._met[name] += 1

    def _with_waiting(self, entity: EntityReport, seen: Inspection) -> EntityReport:
        waiting = sum([count for path, count in self._met.items() if path.lower() == entity.entity.lower()])
        has_met_all = self._met_count == seen.waiting_messages
        return replace(entity, waiting=waiting if has_met_all else None, waiting_at_least=waiting)

    def _with_dead_letters(self, client: ServiceBusClient, report: QueueReport) -> QueueReport:
        """Counted by peeking, if the queue itself can be read."""
        if not report.is_readable:
            return report
        depth = self._peek(client, report.path + DEAD_LETTER_QUEUE, SAMPLE, cost=self._cost)
        if isinstance(depth, Failure):
            return report
        return replace(report, dead_letters=depth.messages, dead_letters_at_least=depth.at_least)

    def _knock(self, client: ServiceBusClient, path: str) -> Failure | None:
        return self.opener.try_link(client, path, listens=False, deadline_s=self._attempt_s)

    def _knock_at_home(self, client: ServiceBusClient, path: str) -> Failure | None:
        """A key that may not send may still listen: only one that may do neither is refused."""
        answer = self._knock(client, path)
        if answer is None or answer.kind is not FailureKind.UNAUTHORISED:
            return answer
        depth = self._peek(client, path, 1, cost=LookCounter())
        return depth if isinstance(depth, Failure) else None

    def _depth(self, client: ServiceBusClient, path: str, why: Failure | None, most: int) -> Depth | Failure:
        if why is not None and why.kind in NOBODY_HOME:
            return why
        return self._peek(client, path, most, cost=self._cost, met=self._meet)

    def _list(self, why: Failure | None) -> _Listing:
        if why is not None and why.kind in OUT_OF_REACH:
            return _Listing({}, {}, why)
        with self._secondary.admin_client(self._admin_s) as admin:
            try:
                return _Listing(
                    _by_path(self._cost.pages(every_page(self._admin_s, admin.list_queues()))),
                    _by_path(self._cost.pages(every_page(self._admin_s, admin.list_queues_runtime_properties()))),
                )
            except Exception as error:
                return _Listing({}, {}, admin_failure(error))

    def _further(self, found: _Listing, depths: Iterable[Depth | Failure]) -> _Beyond:
        assert self._plan.primary_name is not None
        if found.failure is None:
            indexes = {index_of(one.name, self._plan.primary_name) for one in found.settings.values()}
            further = sorted([index for index in indexes if index is not None and index >= self._plan.queue_count])
            return _Beyond([backlog_path(self._plan.primary_name, index) for index in further])
        if not any(isinstance(depth, Depth) for depth in depths):  # a key that cannot read these cannot read others
            return _Beyond([], f"{FURTHER_UNKNOWN}: {findings.brief(found.failure)}")
        return self._tried(self._plan.primary_name)

    def _tried(self, primary_name: str) -> _Beyond:
        """The same without the right to list: by a link to each that a sender may have."""
        try:
            dial = replace(self._secondary.dial(self._attempt_s), list_queues=None)
            search = QueueDiscovery(dial, primary_name, self._plan.queue_count, attempt_s=self._attempt_s)
            found = asyncio.run(search.search())
        except (ConnectionFailed, OptionsError) as error:
            return _Beyond([], f"{FURTHER_UNKNOWN}: {error}")
        shut = {backlog_path(primary_name, index): f"{why}; {remedy(why)}" for index, why in found.shut.items()}
        doubt = "; ".join(doubts({**found.refused, **found.unsure})) or None
        return _Beyond([backlog_path(primary_name, index) for index in found.extra], doubt, shut)


def _by_path(pages: Iterable[list[Any]]) -> dict[str, Any]:
    return {one.name.lower(): one for page in pages for one in page}


# --- reports from what was found -----------------------------------------------------------------------


def _side(name: str | None, namespace: Namespace, answers: Iterable[Failure | None]) -> SideReport:
    """What its answers say of a namespace: a key that is good for something is not refused."""
    given = list(answers)
    failures = [answer for answer in given if answer is not None]
    silent = [why for why in failures if why.kind in OUT_OF_REACH]
    refused = [why for why in failures if why.kind is FailureKind.UNAUTHORISED]
    is_refused = not silent and bool(refused) and len(refused) == len(given)
    worst = silent or (refused if is_refused else [])
    return SideReport(
        name=name or namespace.address,
        address=namespace.address,
        is_reachable=not silent,
        problem=findings.brief(worst[0]) if worst else None,
        refuses_key=is_refused,
    )


def _surest(why: Failure | None, depth: Depth | Failure) -> Failure | None:
    """Why a queue takes nothing. A key without Send does not learn whether it exists; one with Listen does."""
    if why is not None and why.kind is FailureKind.UNAUTHORISED and isinstance(depth, Failure):
        return depth if depth.kind is FailureKind.NOT_FOUND else why
    return why


def _problem(why: Failure | None, depth: Depth | Failure) -> Failure | None:
    """Why a queue is of no use to this credential. One that may read it, as a syphon's, need not send to it."""
    is_readable = isinstance(depth, Depth)
    return None if why is None or (why.kind is FailureKind.UNAUTHORISED and is_readable) else why


def _queue_report(path: str, why: Failure | None, depth: Depth | Failure, found: _Listing, now: float) -> QueueReport:
    settings, numbers = found.settings.get(path.lower()), found.numbers.get(path.lower())
    seen = depth if isinstance(depth, Depth) else None
    age_s = None if seen is None or seen.oldest_ms is None else max(0.0, now - seen.oldest_ms / 1000)
    problem = _problem(why, depth)
    counted = None if seen is None or found.failure is None else seen
    active = None if counted is None else counted.messages
    return QueueReport(
        path=path,
        exists=True if seen is not None else _exists(why, found, settings),
        problem=None if problem is None else findings.brief(problem),
        refuses_key=problem is not None and problem.kind is FailureKind.UNAUTHORISED,
        takes_messages=None if problem is None and why is not None else why is None,
        is_readable=seen is not None,
        shut=None if settings is None else shut_by(settings_of(settings)),
        differs=() if settings is None else differences(settings),
        active=active if numbers is None else numbers.active_message_count,
        at_least=(0 if counted is None else counted.at_least) if numbers is None else numbers.active_message_count or 0,
        dead_letters=None if numbers is None else numbers.dead_letter_message_count,
        dead_letters_at_least=0 if numbers is None else numbers.dead_letter_message_count or 0,
        size_bytes=None if numbers is None else numbers.size_in_bytes,
        size_bytes_max=None if settings is None else (settings.max_size_in_megabytes or 0) * MEGABYTE,
        oldest_age_s=age_s,
        oldest_was_delivered=seen is not None and seen.was_delivered,
        accessed_at=None if numbers is None or not numbers.accessed_at_utc else numbers.accessed_at_utc.timestamp(),
    )


def _extra_report(path: str, depth: Depth | Failure, found: _Listing, now: float) -> QueueReport:
    """Of a queue that nobody here sends to: whether it takes messages is not asked."""
    report = _queue_report(path, None, depth, found, now)
    failure = depth if isinstance(depth, Failure) else None
    return replace(
        report,
        takes_messages=None,
        problem=None if failure is None else findings.brief(failure),
        refuses_key=failure is not None and failure.kind is FailureKind.UNAUTHORISED,
    )


def _exists(why: Failure | None, found: _Listing, settings: QueueProperties | None) -> bool | None:
    if found.failure is None:
        return settings is not None
    if why is None:
        return True
    return False if why.kind is FailureKind.NOT_FOUND else None


def differences(settings: QueueProperties) -> tuple[str, ...]:
    """Where a queue is not as pairing would have made it; accepted all the same."""
    found = [(name, wanted, getattr(settings, name)) for name, wanted in BACKLOG_SETTINGS.items()]
    return tuple(f"{name} is {is_now}, not {wanted}" for name, wanted, is_now in found if not _same(wanted, is_now))


def _same(wanted: object, found: object) -> bool:
    if isinstance(found, timedelta):
        return found >= FOR_EVER if wanted != "PT1M" else found == timedelta(minutes=1)
    return wanted == found
