"""A topic: what is sent to it goes to those of its subscriptions whose rules say so.

A small send is handed on at once: all copies are written in the same change set, and those that are the same share one
payload. A send that would take long is stored in the topic first, whole and in one change set, and handed on from there
in steps; whatever comes after it lines up behind it. Scheduled messages are stored in the topic too, and are handed on
when they wake. What was stored goes by the rules that are in force when it is handed on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from twinbus.errors import EntityDisabled, QuotaExceeded, StoreDamaged
from twinbus.namespace.entities.coming import Coming
from twinbus.namespace.entities.copies import Copy, Groups, Plan, Published, choose, held_back
from twinbus.namespace.entities.journeys import Journey, journey_of, written
from twinbus.namespace.entities.matching import MESSAGE_WORK, Entry, Matcher
from twinbus.namespace.entities.settings import TopicSettings
from twinbus.namespace.entities.shelf import EntityContext, Shelf, expiry, on_time_ms
from twinbus.namespace.entities.subscription import StoredRule, Subscription
from twinbus.namespace.happenings import Cause, Happening, Story
from twinbus.namespace.message import Arrival, scheduled_time_ms, time_to_live_ms
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

AT_ONCE_MS = 0
"""The due time of what is in line in a topic. What is scheduled is never due so early."""
ROWS_PER_READ = 1_000

Choosing = Generator[float, None, Groups]


class Begun(NamedTuple):
    """A stored message of which it is not yet known who gets it."""

    row: MessageRow
    version: int
    """Of the rules that were in force when it was begun."""
    sequence: int
    message: Published
    choosing: Choosing


class Topic(Shelf):
    settings: TopicSettings

    def __init__(self, row: EntityRow, summary: EntitySummary, context: EntityContext, *, committed: int) -> None:
        super().__init__(row, summary, context, committed=committed)
        self.matcher = Matcher()
        self.subscriptions: dict[str, Subscription] = {}
        """By name in lower case."""
        self.in_line = summary.due_at_once
        """How many messages wait here to be handed on; they count as scheduled."""
        self.in_line_bytes = summary.due_at_once_bytes
        self._coming = Coming(self.matcher)
        self._work_of_one = 0.0
        """What it took to hand on a message, on average of the last send; 0: not known yet."""
        self._begun: Begun | None = None
        """What the last step could not finish."""
        self._rows_at_once = 100
        """So many are read at a time."""
        self._unwritten: int | None = None
        """The change set in which stored messages were handed on, as long as it is not on disk."""
        self.is_held = False
        """There is no room for copies: what is stored here stays, what is forwarded to it lines up."""

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
        first = self._next_sequence
        numbered = list(enumerate([arrival for arrival in arrivals if not arrival.is_ping], first))
        scheduled = [each for each in numbered if _is_scheduled(each[1], now_ms)]
        new = [each for each in numbered if not _is_scheduled(each[1], now_ms)] if scheduled else numbered
        stored = self._rows(scheduled, now_ms, in_line=False)
        plans = self._short_plans(new, now_ms, step)
        in_line = [] if plans is not None else self._rows(new, now_ms, in_line=True)
        self._check_quota(sum(len(row.payload) for row in stored + in_line))
        if in_line:
            publish = partial(self._published, now_ms=now_ms)
            self._coming.take(new, publish, self.in_line_bytes, self.subscriptions.values(), step)
        else:
            self._check_room([copy for plan in plans or () for copy in plan.copies])
        self._next_sequence = first + len(numbered)  # by now: what is handed on may come back here at once
        self.tell(Happening.STORED, stored + in_line, step)
        if journey is not None and journey.hops:
            in_line = [written(row, journey) for row in in_line]
        if stored or in_line:
            self.insert((*stored, *in_line), step)
        if plans:
            self._hand_on(plans, journey, now_ms, step, is_new=True)
            self.count_sequences(step)
        return tuple([sequence for sequence, _ in numbered])

    def _short_plans(self, arrivals: Sequence[tuple[int, Arrival]], now_ms: int, step: Step) -> list[Plan] | None:
        """Who gets what, if it can be handed on in this step; None: it has to line up."""
        if (self.in_line or self.is_held) and self.damage is None:
            return None
        if step.work + len(arrivals) * MESSAGE_WORK > step.work_max:  # no need to try
            self.check_intact()
            return None
        plans: list[Plan] = []
        done_before = step.work
        for sequence, arrival in arrivals:
            message = self._published(arrival, now_ms)
            plan = None if step.is_long else self._plan(sequence, message, self._choose(sequence, message), step)
            if plan is None:
                self.check_intact()  # otherwise it would be in line for ever
                return None
            plans.append(plan)
            self._work_of_one = (step.work - done_before) / len(plans)
        return plans

    @property
    def work_of_one(self) -> float:
        """About what it takes to hand on a message (`Step.work`)."""
        return self._work_of_one or 1.0 + len(self.subscriptions) + self.matcher.asked

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
                f"the topic '{self.row.path}' is full: {self.payload_bytes} bytes of at most {limit} wait in it "
                f"for their time or their turn, and {new_bytes} more were sent; cancel some or raise its maximum size"
            )

    def _rows(self, arrivals: Iterable[tuple[int, Arrival]], now_ms: int, *, in_line: bool) -> list[MessageRow]:
        """Messages as they are stored here: until their time has come, or in line until it is their turn."""
        entity_id, default_ttl_ms = self.entity_id, self.settings.default_ttl_ms
        return [
            MessageRow(
                entity_id,
                sequence,
                MessageState.SCHEDULED,
                sequence,
                now_ms,
                expiry(arrival.ttl_ms, default_ttl_ms, now_ms) if in_line else None,
                AT_ONCE_MS if in_line else arrival.due_at_ms,
                0,
                arrival.message_id,
                arrival.session_id,
                None,
                arrival.payload,
            )
            for sequence, arrival in arrivals
        ]

    def _count(self, rows: Sequence[MessageRow], by: int) -> None:
        super()._count(rows, by)
        in_line = [row for row in rows if row.due_at_ms == AT_ONCE_MS]
        self.in_line += by * len(in_line)
        self.in_line_bytes += by * sum([len(row.payload) for row in in_line])

    # --- out ---

    def _plan(self, sequence: int, message: Published, choosing: Choosing, step: Step) -> Plan | None:
        """Who gets a message, as far as that was not found out before; None: it takes longer than this step."""
        while True:
            try:
                step.work += next(choosing)
            except StopIteration as chosen:
                plan = Plan(sequence, message, chosen.value)
                step.work += sum(map(len, plan.groups)) + len(plan.groups) - 1
                return plan
            if step.is_long:
                return None

    def _hand_on(self, plans: list[Plan], journey: Journey | None, now_ms: int, step: Step, *, is_new: bool) -> None:
        """Give each subscription its copies of messages that have just been sent (`is_new`), or were scheduled."""
        delays = self._context.copy_delays(now_ms)
        for plan in plans:
            if step.story is not None:
                self._tell_copies(plan, step.story, is_new=is_new)
            for copies in plan.groups:
                late = copies if delays is None else [held_back(copy, delays, now_ms) for copy in copies]
                if late:
                    self._write(late, plan.sequence, journey, now_ms, step)

    def _tell_copies(self, plan: Plan, story: Story, *, is_new: bool) -> None:
        message, copies = plan.message, list(plan.copies)
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

    def _check_room(self, copies: Iterable[Copy]) -> None:
        added: dict[Subscription, int] = {}
        for _, subscription, message, _ in copies:
            added[subscription] = added.get(subscription, 0) + len(message.payload)
        for subscription, new_bytes in added.items():
            subscription.check_quota(new_bytes)

    def _write(self, copies: list[Copy], sequence: int, journey: Journey | None, now_ms: int, step: Step) -> None:
        staying = [copy for copy in copies if copy.queue.destination is None]
        if staying:
            self._store(staying, sequence, step)
        for copy in copies if len(staying) < len(copies) else ():
            if copy.queue.destination is not None:
                row = self._row_of(copy, sequence)
                way = journey_of(row) if journey is None else journey
                if copy.due_at_ms is None:
                    self._courier.pass_on(copy.queue, row, way, on_time_ms(copy.message.enqueued_at_ms, now_ms), step)
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

    # --- from the store ---

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        while self._afterwards and self._afterwards[0].number <= number:
            for row in self._afterwards.popleft().appearing:
                self._watch_due(row)
        if self._unwritten is not None and self._unwritten <= number:
            self._unwritten = None
        self.recent.committed(number)
        if self.guard is not None:
            self.guard.forget()
        self._read_on(now_ms, step)

    def _next_work_ms(self) -> int | None:
        return None if self.damage is not None or self._has_to_wait else self._dues.next_ms

    @property
    def _has_to_wait(self) -> bool:
        """Whether the disk is behind, or full: then it makes no sense to hand on more."""
        return self.is_held or self._unwritten is not None

    def tick(self, now_ms: int, step: Step) -> None:
        self._read_on(now_ms, step)

    def _read_on(self, now_ms: int, step: Step) -> None:
        if not self._has_to_wait:
            self._sweep(self._dues, DueRows, now_ms, step, self._rows_at_once)

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """What is in line, and scheduled messages whose time has come, are handed on as if they had been sent now."""
        if self.damage is None:
            step.work_max /= 2  # the sender has its answer, and whoever sends now has to wait while copies are written
            rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
            left = self._wake(rows, now_ms, step)
            self._rows_at_once = min(ROWS_PER_READ, 2 * (len(rows) - len(left)) + 1)
            if left:
                before = read.rows[: read.rows.index(left[0])]
                self._dues.end(_point(before[-1]) if before else None, left[0].due_at_ms)
            else:
                self._dues.end(_point(read.rows[-1]) if read.rows else None, read.next_time_ms)
        self.recent.read_ended(read.request)
        self._read_on(now_ms, step)

    def _wake(self, rows: list[MessageRow], now_ms: int, step: Step) -> list[MessageRow]:
        """Hand on as many of these as this step can take; returns the others."""
        handed = 0
        for row in rows:
            plan = None if step.is_long or self.is_held else self._plan_of(row, now_ms, step)
            if plan is None:
                break
            handed += 1
            self.remove(row, step)
            # A full subscription gets it all the same: nobody is left who could be told.
            self._hand_on([plan], None, now_ms, step, is_new=False)
            if row.due_at_ms == AT_ONCE_MS:
                self._coming.handed_on(plan)
        if handed:
            self.count_sequences(step)
            self._unwritten = step.number
        return rows[handed:]

    def _plan_of(self, row: MessageRow, now_ms: int, step: Step) -> Plan | None:
        begun = self._begun
        if begun is None or (begun.row, begun.version) != (row, self.matcher.version):
            is_in_line = row.due_at_ms == AT_ONCE_MS
            sequence = row.sequence if is_in_line else self.take_sequence()
            message = self._as_sent(row) if is_in_line else self._awake(row, now_ms)
            begun = Begun(row, self.matcher.version, sequence, message, self._choose(sequence, message))
        plan = self._plan(begun.sequence, begun.message, begun.choosing, step)
        self._begun = begun if plan is None else None
        return plan

    def _choose(self, sequence: int, message: Published) -> Choosing:
        return choose(self.matcher, sequence, message)

    def _as_sent(self, row: MessageRow) -> Published:
        """What was in line is as it would have been without: it lives no longer for that."""
        sent_at_ms = row.enqueued_at_ms
        ttl_ms = None if row.expires_at_ms is None else row.expires_at_ms - sent_at_ms
        return Published(row.payload, row.message_id, row.session_id, ttl_ms, sent_at_ms, sent_at_ms)

    def _awake(self, row: MessageRow, now_ms: int) -> Published:
        ttl_ms = self._lowered(time_to_live_ms(row.payload))
        meant_for_ms = max(row.enqueued_at_ms, scheduled_time_ms(row.payload) or 0)
        enqueued_at_ms = on_time_ms(row.due_at_ms, now_ms)
        return Published(row.payload, row.message_id, row.session_id, ttl_ms, enqueued_at_ms, meant_for_ms)


def _is_scheduled(arrival: Arrival, now_ms: int) -> bool:
    return arrival.due_at_ms is not None and arrival.due_at_ms > now_ms and not arrival.is_ping


def _point(row: MessageRow) -> tuple[int, int]:
    return row.due_at_ms or 0, row.sequence
