"""Copies of a message for subscriptions: who gets one, what is in it, and whether there is space for it.

Space is checked before a topic accepts messages that it distributes later: by then no sender waits for an answer.
Usually every subscription has space for all of them. For one that does not, its rules decide how much it will get.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from twinbus.broker.core.replies import Step
from twinbus.broker.entities.dead_letter_properties import SESSION_NEEDED, reasons
from twinbus.broker.entities.entity import CopyDelays
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.topics.subscription import ActiveRule, RuleMatcher, Subscription
from twinbus.broker.filters.message_view import TopicMessage
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.message import Arrival, read_arrival, with_properties
from twinbus.errors import ArgumentError, DecodeError, MessageTooLarge, QuotaExceeded

FILTER_FAILED = "FilterEvaluationException"
NO_SESSION = "The subscription has sessions."
OTHER_COPY_WORK = 10
"""The work of making a copy with its own changes or reason (`Step.work`)."""


class PublishedMessage(NamedTuple):
    """A message on its way to the subscriptions."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    ttl_ms: int | None
    enqueued_at_ms: int
    meant_for_ms: int
    """When it would have been enqueued without delay."""
    dead_letter_reason: str = ""
    """Why it is dead-lettered; empty if it is not."""


class MessageCopy(NamedTuple):
    """A message for one subscription, or for its dead letters."""

    queue: Queue
    subscription: Subscription
    message: PublishedMessage
    due_at_ms: int | None = None
    """When it appears; None: at once."""


Groups = list[list[MessageCopy]]
"""Copies of one message; those in one group differ only in where they go."""


class CopyPlan(NamedTuple):
    """Who gets a message."""

    sequence: int
    message: PublishedMessage
    groups: Groups

    @property
    def copies(self) -> Iterator[MessageCopy]:
        return chain.from_iterable(self.groups)


def delay_copy(copy: MessageCopy, delays: CopyDelays, now_ms: int) -> MessageCopy:
    """The copy, delayed if a fault delays its subscription. Dead letters are not delayed."""
    is_dead = copy.queue is not copy.subscription
    due_at_ms = 0 if is_dead else copy.message.meant_for_ms + delays(copy.subscription.row.path)
    return copy._replace(due_at_ms=due_at_ms) if due_at_ms > now_ms else copy


def choose_copies(matcher: RuleMatcher, sequence: int, message: PublishedMessage) -> Generator[float, None, Groups]:
    """Who gets a message. Yields the work of each part (`Step.work`), so that it can be interrupted."""
    view = TopicMessage(message.payload, sequence, message.enqueued_at_ms, message.ttl_ms)
    selection = yield from matcher.select(view)
    plain = list(selection.plain.values())
    groups: Groups = []
    lacking = [each for each in plain if lacks_session(each, message)]
    if lacking:
        plain = [each for each in plain if not lacks_session(each, message)]
        dead = _with_reason(message, SESSION_NEEDED, NO_SESSION)
        groups.append([copy for each in lacking for copy in _dead_letter_copy(each, dead)])
    groups.append([MessageCopy(each, each, message) for each in plain])
    work = OTHER_COPY_WORK + view.property_bytes / 50
    failed = dict(selection.failed)
    for entry in selection.changed:
        try:
            groups.append(_one_copy(entry.subscription, apply_action(entry, view, message)))
        except (ArgumentError, DecodeError, MessageTooLarge, FilterError) as error:
            text = f"The action of rule '{entry.rule.name}' cannot be done: {error}"
            failed.setdefault(entry.subscription.entity_id, (entry.subscription, text))
        yield work
    for subscription, text in failed.values():
        if subscription.settings.dead_letter_on_filter_errors:
            groups.append(_dead_letter_copy(subscription, _with_reason(message, FILTER_FAILED, text)))
            yield work
    return [group for group in groups if group]


def lacks_session(subscription: Subscription, message: PublishedMessage) -> bool:
    return message.session_id is None and isinstance(subscription, SessionQueue)


def _one_copy(subscription: Subscription, message: PublishedMessage) -> list[MessageCopy]:
    """A copy for a subscription, or for its dead letters if it lacks a required session."""
    if lacks_session(subscription, message):
        return _dead_letter_copy(subscription, _with_reason(message, SESSION_NEEDED, NO_SESSION))
    return [MessageCopy(subscription, subscription, message)]


def _with_reason(message: PublishedMessage, reason: str, text: str) -> PublishedMessage:
    return message._replace(payload=with_properties(message.payload, reasons(reason, text)), dead_letter_reason=reason)


def _dead_letter_copy(subscription: Subscription, message: PublishedMessage) -> list[MessageCopy]:
    """A copy for the dead letters of a subscription."""
    dead_letters = subscription.dead_letter
    return [] if dead_letters is None else [MessageCopy(dead_letters, subscription, message)]


def apply_action(entry: ActiveRule, view: TopicMessage, message: PublishedMessage) -> PublishedMessage:
    """The message after a rule's action; raises `FilterError`, or another error if the result is not a message."""
    if entry.action is None:
        return message
    payload = view.changed(entry.action.apply(view), entry.rule.name)
    arrival = read_arrival(payload, lambda: message.message_id or "")
    ttl_ms = message.ttl_ms if arrival.ttl_ms is None else arrival.ttl_ms
    return message._replace(
        payload=payload, message_id=arrival.message_id, session_id=arrival.session_id, ttl_ms=ttl_ms
    )


LONG_STEPS = 4
"""Rules are evaluated for at most the work of this many steps."""

Found = TypeVar("Found")
Numbered = tuple[int, Arrival]


class ReservedSpace:
    """How much each subscription gets, at most, of the pending messages."""

    def __init__(self, matcher: RuleMatcher) -> None:
        self._matcher = matcher
        self._known: dict[int, int] = {}
        """By entity id, for those whose rules were evaluated. Others may get all pending messages."""
        self._version = matcher.version

    def take(
        self,
        arrivals: Sequence[Numbered],
        publish: Callable[[Arrival], PublishedMessage],
        pending_bytes: int,
        subscriptions: Iterable[Subscription],
        step: Step,
    ) -> None:
        """Reserve space for messages behind this many pending bytes. `publish` converts one for the rules.

        Raises `QuotaExceeded`, and has counted nothing, if a subscription has no room for what it may get of them.
        """
        if not pending_bytes or self._version != self._matcher.version:
            self._known, self._version = {}, self._matcher.version
        new_bytes = sum([len(arrival.payload) for _, arrival in arrivals])
        known: dict[int, int] = {}
        for subscription in subscriptions:
            entity_id, copies = subscription.entity_id, self._matcher.copies_most(subscription)
            before = min(pending_bytes * copies, self._known.get(entity_id, pending_bytes * copies))
            room, added = subscription.size_bytes_max - subscription.stored_bytes - before, new_bytes * copies
            if added > room:
                known[entity_id] = before + self._count_by_rules(subscription, arrivals, publish, before, room, step)
            elif entity_id in self._known:
                known[entity_id] = before + added
        self._known |= known

    def _count_by_rules(
        self,
        subscription: Subscription,
        arrivals: Sequence[Numbered],
        publish: Callable[[Arrival], PublishedMessage],
        before: int,
        room: int,
        step: Step,
    ) -> int:
        """How many bytes a subscription gets by its rules; raises `QuotaExceeded` if they are more than `room`."""
        rules, added = self._matcher.only(subscription), 0
        for sequence, arrival in arrivals:
            message = publish(arrival)
            view = TopicMessage(message.payload, sequence, message.enqueued_at_ms, message.ttl_ms)
            if any(_run_to_end(rules.select(view), step)):
                copies = chain.from_iterable(_run_to_end(choose_copies(rules, sequence, message), step))
                added += sum([len(copy.message.payload) for copy in copies])
            if added > room:
                raise QuotaExceeded(
                    f"{_state_of(subscription, before)}, and {added} or more were sent; "
                    f"receive messages or raise its maximum size"
                )
            if step.work > LONG_STEPS * step.work_max:
                raise QuotaExceeded(
                    f"{_state_of(subscription, before)}, and it would take too long to find out how much of what was "
                    f"sent goes there: send fewer messages at a time, receive some or raise its maximum size"
                )
        return added

    def distributed(self, plan: CopyPlan) -> None:
        """A pending message was distributed."""
        for copy in plan.copies if self._known else ():
            known = self._known.get(copy.subscription.entity_id)
            if known is not None:
                self._known[copy.subscription.entity_id] = max(0, known - len(copy.message.payload))


def _run_to_end(work: Generator[float, None, Found], step: Step) -> Found:
    """The result of work that is not interrupted."""
    while True:
        try:
            step.work += next(work)
        except StopIteration as end:
            found: Found = end.value
            return found


def _state_of(subscription: Subscription, before: int) -> str:
    path, stored, limit = subscription.row.path, subscription.stored_bytes, subscription.size_bytes_max
    return f"'{path}' is nearly full: it holds {stored} bytes of at most {limit}, up to {before} are on their way"
