"""Copies of a message: who gets one, and what is in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import NamedTuple

from twinbus.errors import ArgumentError, DecodeError, MessageTooLarge
from twinbus.namespace import sql
from twinbus.namespace.entities.matching import Entry, Matcher
from twinbus.namespace.entities.notes import SESSION_NEEDED, reasons, with_notes
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.session_queue import SessionQueue
from twinbus.namespace.entities.shelf import CopyDelays
from twinbus.namespace.entities.subscription import Subscription
from twinbus.namespace.message import read_arrival
from twinbus.namespace.view import TopicMessage

FILTER_FAILED = "FilterEvaluationException"
NO_SESSION = "The subscription has sessions."
OTHER_COPY_WORK = 10
"""What it takes to make a copy with changes or notes of its own (`Step.work`)."""


class Published(NamedTuple):
    """A message on its way to the subscriptions."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    ttl_ms: int | None
    enqueued_at_ms: int
    meant_for_ms: int
    """When it would have been enqueued if nothing had held it back."""
    buried_for: str = ""
    """Why it goes among the dead letters; empty if it does not."""


class Copy(NamedTuple):
    """A message for one subscription, or for its dead letters."""

    queue: Queue
    subscription: Subscription
    message: Published
    due_at_ms: int | None = None
    """When it appears; None: at once."""


Groups = list[list[Copy]]
"""Copies of one message; those in one group are the same but for where they go."""


class Plan(NamedTuple):
    """Who gets a message."""

    sequence: int
    message: Published
    groups: Groups

    @property
    def copies(self) -> Iterator[Copy]:
        return chain.from_iterable(self.groups)


def held_back(copy: Copy, delays: CopyDelays, now_ms: int) -> Copy:
    """The same copy, to appear later if its subscription is late. Dead letters are not."""
    is_dead = copy.queue is not copy.subscription
    due_at_ms = 0 if is_dead else copy.message.meant_for_ms + delays(copy.subscription.row.path)
    return copy._replace(due_at_ms=due_at_ms) if due_at_ms > now_ms else copy


def choose(matcher: Matcher, sequence: int, message: Published) -> Generator[float, None, Groups]:
    """Who gets a message. Says after each piece of work how much it was (`Step.work`), so that it can be put off."""
    view = TopicMessage(message.payload, sequence, message.enqueued_at_ms, message.ttl_ms)
    selection = yield from matcher.select(view)
    plain = list(selection.plain.values())
    groups: Groups = []
    lacking = [each for each in plain if lacks_session(each, message)]
    if lacking:
        plain = [each for each in plain if not lacks_session(each, message)]
        dead = _with_reason(message, SESSION_NEEDED, NO_SESSION)
        groups.append([copy for each in lacking for copy in _buried(each, dead)])
    groups.append([Copy(each, each, message) for each in plain])
    work = OTHER_COPY_WORK + view.property_bytes / 50
    failed = dict(selection.failed)
    for entry in selection.changed:
        try:
            groups.append(_one_copy(entry.subscription, changed(entry, view, message)))
        except (ArgumentError, DecodeError, MessageTooLarge, sql.FilterError) as error:
            text = f"The action of rule '{entry.rule.name}' cannot be done: {error}"
            failed.setdefault(entry.subscription.entity_id, (entry.subscription, text))
        yield work
    for subscription, text in failed.values():
        if subscription.settings.dead_letter_on_filter_errors:
            groups.append(_buried(subscription, _with_reason(message, FILTER_FAILED, text)))
            yield work
    return [group for group in groups if group]


def lacks_session(subscription: Subscription, message: Published) -> bool:
    return message.session_id is None and isinstance(subscription, SessionQueue)


def _one_copy(subscription: Subscription, message: Published) -> list[Copy]:
    """A copy for a subscription; for its dead letters if it lacks the session that it needs there."""
    if lacks_session(subscription, message):
        return _buried(subscription, _with_reason(message, SESSION_NEEDED, NO_SESSION))
    return [Copy(subscription, subscription, message)]


def _with_reason(message: Published, reason: str, text: str) -> Published:
    return message._replace(payload=with_notes(message.payload, reasons(reason, text)), buried_for=reason)


def _buried(subscription: Subscription, message: Published) -> list[Copy]:
    """A copy for the dead letters of a subscription."""
    grave = subscription.dead_letter
    return [] if grave is None else [Copy(grave, subscription, message)]


def changed(entry: Entry, view: TopicMessage, message: Published) -> Published:
    """The message as a rule's action leaves it; raises `FilterError` or, if it is no message then, what tells why."""
    if entry.action is None:
        return message
    payload = view.changed(entry.action.apply(view), entry.rule.name)
    arrival = read_arrival(payload, lambda: message.message_id or "")
    ttl_ms = message.ttl_ms if arrival.ttl_ms is None else arrival.ttl_ms
    return message._replace(
        payload=payload, message_id=arrival.message_id, session_id=arrival.session_id, ttl_ms=ttl_ms
    )
