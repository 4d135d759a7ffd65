"""A topic: what is sent to it goes to those of its subscriptions whose rules say so.

A topic keeps no messages but scheduled ones, which are handed on when they wake, by the rules that are in force then.
All copies of a message are written in the same change set, and those that are the same share one payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinbus.errors import ArgumentError, DecodeError, EntityDisabled, MessageTooLarge, QuotaExceeded, StoreDamaged
from twinbus.namespace import sql
from twinbus.namespace.entities.journeys import Journey, journey_of, written
from twinbus.namespace.entities.matching import Entry, Matcher
from twinbus.namespace.entities.notes import SESSION_NEEDED, reasons, with_notes
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.session_queue import SessionQueue
from twinbus.namespace.entities.settings import TopicSettings
from twinbus.namespace.entities.shelf import CopyDelays, EntityContext, Shelf, expiry, woken_at_ms
from twinbus.namespace.entities.subscription import StoredRule, Subscription
from twinbus.namespace.happenings import Cause, Happening, Story
from twinbus.namespace.message import Arrival, read_arrival, scheduled_time_ms, time_to_live_ms
from twinbus.namespace.replies import Step
from twinbus.namespace.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    InsertCopies,
    InsertMessages,
    MessageRow,
    MessageState,
    RowsRead,
)
from twinbus.namespace.view import TopicMessage

FILTER_FAILED = "FilterEvaluationException"
COPIES_MAX = 500_000
"""Of one send. All copies are made in one step: a large batch to very many subscriptions would fill the memory."""


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


class Plan(NamedTuple):
    """Who gets a message."""

    sequence: int
    message: Published
    plain: list[Copy]
    """Copies that are the same."""
    others: list[Copy]

    @property
    def copies(self) -> list[Copy]:
        return self.plain + self.others


class Topic(Shelf):
    settings: TopicSettings

    def __init__(self, row: EntityRow, summary: EntitySummary, context: EntityContext, *, committed: int) -> None:
        super().__init__(row, summary, context, committed=committed)
        self.matcher = Matcher()
        self.subscriptions: dict[str, Subscription] = {}
        """By name in lower case."""

    def configure(self, row: EntityRow) -> None:
        self.row = row
        try:
            self.settings = TopicSettings.from_text(row.settings)
        except StoreDamaged as error:
            raise StoreDamaged(f"'{row.path}': {error}") from error

    @property
    def is_in_use(self) -> bool:
        return super().is_in_use or any(each.is_in_use for each in self.subscriptions.values())

    # --- rules ---

    def put_rule(self, row: EntityRow, entry: Entry) -> None:
        """Put a rule in force, in place of the one of that name if there is one."""
        rules = entry.subscription.rules
        if entry.rule.name.lower() in rules:
            self.matcher.remove(entry.key)
        rules[entry.rule.name.lower()] = StoredRule(row, entry.rule)
        self.matcher.add(entry)

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        del subscription.rules[name.lower()]
        self.matcher.remove((subscription.entity_id, name.lower()))

    # --- in ---

    def check_sendable(self) -> None:
        """Raise `EntityDisabled` unless the topic's status lets clients send."""
        if not self.settings.status.lets_send:
            text = f"the topic '{self.row.path}' has the status {self.settings.status}: nothing can be sent to it"
            raise EntityDisabled(text)

    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number messages and hand them on, all or none; returns the topic's numbers. Pings pass the checks only."""
        return self._send(arrivals, None, now_ms, step)

    def take_in(self, arrival: Arrival, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        self._send((arrival,), journey, now_ms, step)

    def _send(self, arrivals: tuple[Arrival, ...], journey: Journey | None, now_ms: int, step: Step) -> tuple[int, ...]:
        self.check_sizes(arrivals)
        self._check_quota(sum(len(arrival.payload) for arrival in arrivals if _is_scheduled(arrival, now_ms)))
        sequences: list[int] = []
        first = self._next_sequence
        publishing: list[tuple[int, Published]] = []
        scheduled: list[MessageRow] = []
        for arrival in arrivals:
            if arrival.is_ping:
                continue
            sequences.append(sequence := first + len(sequences))
            if _is_scheduled(arrival, now_ms):
                scheduled.append(self._scheduled_row(arrival, sequence, now_ms))
            else:
                publishing.append((sequence, self._published(arrival, now_ms)))
        plans = self._bounded_plans(publishing)
        self._check_room([copy for plan in plans for copy in plan.copies])
        self._next_sequence = first + len(sequences)  # by now: what is handed on may come back here at once
        self._hand_on(plans, journey, now_ms, step, is_new=True)
        if scheduled:
            self.insert(tuple(scheduled), step)
            self.tell(Happening.STORED, scheduled, step)
        if publishing:
            self.count_sequences(step)
        return tuple(sequences)

    def _published(self, arrival: Arrival, now_ms: int) -> Published:
        ttl_ms = self._lowered(arrival.ttl_ms)
        return Published(arrival.payload, arrival.message_id, arrival.session_id, ttl_ms, now_ms, now_ms)

    def _lowered(self, ttl_ms: int | None) -> int | None:
        """A time to live, at most the topic's."""
        return expiry(ttl_ms, self.settings.default_ttl_ms, 0)

    def _check_quota(self, new_bytes: int) -> None:
        limit = self.settings.size_bytes_max
        if self.payload_bytes + new_bytes > limit:
            raise QuotaExceeded(
                f"the topic '{self.row.path}' is full: {self.payload_bytes} bytes of at most {limit} wait for their "
                f"time in it, and {new_bytes} more were sent; cancel some or raise its maximum size"
            )

    def _scheduled_row(self, arrival: Arrival, sequence: int, now_ms: int) -> MessageRow:
        return MessageRow(
            self.entity_id,
            sequence,
            MessageState.SCHEDULED,
            sequence,
            now_ms,
            None,
            arrival.due_at_ms,
            0,
            arrival.message_id,
            arrival.session_id,
            None,
            arrival.payload,
        )

    # --- out ---

    def _plans(self, messages: Iterable[tuple[int, Published]]) -> list[Plan]:
        return [Plan(sequence, message, *self._plan(sequence, message)) for sequence, message in messages]

    def _bounded_plans(self, messages: list[tuple[int, Published]]) -> list[Plan]:
        """The same, or `MessageTooLarge` as soon as there are too many copies."""
        plans: list[Plan] = []
        copies = 0
        for each in messages:
            plans += self._plans([each])
            copies += len(plans[-1].plain) + len(plans[-1].others)
            if copies > COPIES_MAX:
                text = f"{len(messages)} messages for '{self.row.path}' make more than {COPIES_MAX} copies"
                raise MessageTooLarge(f"{text} in its subscriptions: send fewer at a time")
        return plans

    def _hand_on(self, plans: list[Plan], journey: Journey | None, now_ms: int, step: Step, *, is_new: bool) -> None:
        """Give each subscription its copies of messages that have just been sent (`is_new`), or were scheduled."""
        delays = self._context.copy_delays(now_ms)
        for plan in plans:
            if step.story is not None:
                self._tell_copies(plan, step.story, is_new=is_new)
            for copies in (plan.plain, *[[copy] for copy in plan.others]):
                late = copies if delays is None else [_held_back(copy, delays, now_ms) for copy in copies]
                if late:
                    self._write(late, plan.sequence, journey, step)

    def _tell_copies(self, plan: Plan, story: Story, *, is_new: bool) -> None:
        message, copies = plan.message, plan.copies
        named = (message.message_id, message.session_id, len(message.payload), plan.sequence)
        if is_new:
            story.of(Happening.STORED, self.row.path).add(*named)
        if not copies:
            story.of(Happening.UNCLAIMED, self.row.path).add(*named)
        for queue, subscription, copied, _ in copies:
            named = (copied.message_id, copied.session_id, len(copied.payload), plan.sequence)
            story.of(Happening.COPIED, subscription.row.path).add(*named)
            if queue is not subscription:
                buried = (Happening.DEAD_LETTERED, subscription.row.path, Cause.BY_NAMESPACE, copied.buried_for)
                story.of(*buried).add(*named)

    def _plan(self, sequence: int, message: Published) -> tuple[list[Copy], list[Copy]]:
        """The copies that are the same, and those that are not."""
        view = TopicMessage(message.payload, sequence, message.enqueued_at_ms, message.ttl_ms)
        selection = self.matcher.select(view)
        others: list[Copy] = []
        plain = []
        for subscription in selection.plain.values():
            if _lacks_session(subscription, message):
                others += _one_copy(subscription, message)
            else:
                plain.append(Copy(subscription, subscription, message))
        failed = dict(selection.failed)
        for entry in selection.changed:
            try:
                changed = _changed(entry, view, message)
                others += _one_copy(entry.subscription, changed)
            except (ArgumentError, DecodeError, MessageTooLarge, sql.FilterError) as error:
                text = f"The action of rule '{entry.rule.name}' cannot be done: {error}"
                failed.setdefault(entry.subscription.entity_id, (entry.subscription, text))
        for subscription, text in failed.values():
            if subscription.settings.dead_letter_on_filter_errors:
                others += _buried(subscription, message, FILTER_FAILED, text)
        return plain, others

    def _check_room(self, copies: Iterable[Copy]) -> None:
        added: dict[Subscription, int] = {}
        for _, subscription, message, _ in copies:
            added[subscription] = added.get(subscription, 0) + len(message.payload)
        for subscription, new_bytes in added.items():
            subscription.check_quota(new_bytes)

    def _write(self, copies: list[Copy], sequence: int, journey: Journey | None, step: Step) -> None:
        staying = [copy for copy in copies if copy.queue.destination is None]
        if staying:
            self._store(staying, sequence, step)
        for copy in copies if len(staying) < len(copies) else ():
            if copy.queue.destination is not None:
                row = self._row_of(copy, sequence)
                way = journey_of(row) if journey is None else journey
                if copy.due_at_ms is None:
                    self._courier.pass_on(copy.queue, row, way, copy.message.enqueued_at_ms, step)
                else:  # it goes on when it appears
                    copy.queue.insert((written(row, way) if way.hops else row,), step)

    def _store(self, copies: list[Copy], sequence: int, step: Step) -> None:
        rows = [self._row_of(copy, sequence) for copy in copies]
        step.changes.append(InsertMessages(tuple(rows)) if len(rows) == 1 else InsertCopies(tuple(rows)))
        for copy, row in zip(copies, rows, strict=True):
            copy.queue.expect((row,), step)

    def _row_of(self, copy: Copy, sequence: int) -> MessageRow:
        queue, subscription, message, due_at_ms = copy
        is_dead = queue is not subscription
        ends_ms = expiry(message.ttl_ms, subscription.settings.default_ttl_ms, message.enqueued_at_ms)
        return MessageRow(
            queue.entity_id,
            queue.take_sequence(),
            MessageState.ACTIVE if due_at_ms is None else MessageState.SCHEDULED,
            sequence,
            message.enqueued_at_ms,
            ends_ms if due_at_ms is None and not is_dead else None,
            due_at_ms,
            0,
            message.message_id,
            message.session_id,
            subscription.row.path if is_dead else None,
            message.payload,
        )

    # --- time ---

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        while self._afterwards and self._afterwards[0].number <= number:
            for row in self._afterwards.popleft().appearing:
                self._watch_due(row)
        self.recent.committed(number)
        if self.guard is not None:
            self.guard.forget()

    def _next_work_ms(self) -> int | None:
        return None if self.damage is not None else self._dues.next_ms

    def tick(self, now_ms: int, step: Step) -> None:
        self._sweep(self._dues, DueRows, now_ms, step)

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Scheduled messages whose time has come are handed on as if they had been sent now."""
        if self.damage is None:
            rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
            self._end_due_sweep(read)
            self._wake(rows, now_ms, step)
        self.recent.read_ended(read.request)

    def _wake(self, rows: list[MessageRow], now_ms: int, step: Step) -> None:
        if not rows:
            return
        self._remove_all(rows, step)
        # A full subscription gets them all the same: nobody is left who could be told.
        woken = [(self.take_sequence(), self._awake(row, now_ms)) for row in rows]
        self._hand_on(self._plans(woken), None, now_ms, step, is_new=False)
        self.count_sequences(step)

    def _awake(self, row: MessageRow, now_ms: int) -> Published:
        ttl_ms = self._lowered(time_to_live_ms(row.payload))
        meant_for_ms = max(row.enqueued_at_ms, scheduled_time_ms(row.payload) or 0)
        return Published(row.payload, row.message_id, row.session_id, ttl_ms, woken_at_ms(row, now_ms), meant_for_ms)


def _is_scheduled(arrival: Arrival, now_ms: int) -> bool:
    return arrival.due_at_ms is not None and arrival.due_at_ms > now_ms and not arrival.is_ping


def _held_back(copy: Copy, delays: CopyDelays, now_ms: int) -> Copy:
    """The same copy, to appear later if its subscription is late. Dead letters are not."""
    is_dead = copy.queue is not copy.subscription
    due_at_ms = 0 if is_dead else copy.message.meant_for_ms + delays(copy.subscription.row.path)
    return copy._replace(due_at_ms=due_at_ms) if due_at_ms > now_ms else copy


def _lacks_session(subscription: Subscription, message: Published) -> bool:
    return message.session_id is None and isinstance(subscription, SessionQueue)


def _one_copy(subscription: Subscription, message: Published) -> list[Copy]:
    """A copy for a subscription; for its dead letters if it lacks the session that it needs there."""
    if _lacks_session(subscription, message):
        return _buried(subscription, message, SESSION_NEEDED, "The subscription has sessions.")
    return [Copy(subscription, subscription, message)]


def _buried(subscription: Subscription, message: Published, reason: str, text: str) -> list[Copy]:
    """A copy for the dead letters of a subscription."""
    grave = subscription.dead_letter
    payload = with_notes(message.payload, reasons(reason, text))
    return [] if grave is None else [Copy(grave, subscription, message._replace(payload=payload, buried_for=reason))]


def _changed(entry: Entry, view: TopicMessage, message: Published) -> Published:
    """The message as a rule's action leaves it; raises `FilterError` or, if it is no message then, what tells why."""
    if entry.action is None:
        return message
    payload = view.changed(entry.action.apply(view), entry.rule.name)
    arrival = read_arrival(payload, lambda: message.message_id or "")
    ttl_ms = message.ttl_ms if arrival.ttl_ms is None else arrival.ttl_ms
    return message._replace(
        payload=payload, message_id=arrival.message_id, session_id=arrival.session_id, ttl_ms=ttl_ms
    )
