"""A topic: it distributes messages to the subscriptions whose rules match.

A small send is distributed at once: all copies are written in the same change set, and equal ones share one payload. A
send that would take long is stored in the topic first, in one change set, and distributed from there in steps; later
messages wait behind it. Scheduled messages are stored in the topic too, and distributed when they are due. For stored
messages the rules at the time of their distribution count.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from twinbus.broker.core.message_events import Cause, MessageEventKind, MessageEvents
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.entity import (
    EntityContext,
    HopCount,
    MessagingEntity,
    NumberedArrival,
    expiry,
    hop_count_of,
    on_time_ms,
    with_hop_count,
)
from twinbus.broker.entities.settings import TopicSettings
from twinbus.broker.entities.topics.message_copies import (
    CopyPlan,
    Groups,
    MessageCopy,
    PublishedMessage,
    ReservedSpace,
    choose_copies,
    delay_copy,
)
from twinbus.broker.entities.topics.subscription import MESSAGE_WORK, ActiveRule, RuleMatcher, StoredRule, Subscription
from twinbus.broker.message import Arrival, scheduled_time_ms, time_to_live_ms
from twinbus.broker.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    InsertCopies,
    InsertMessages,
    MessageRow,
    MessageState,
    RowsRead,
)
from twinbus.errors import EntityDisabled, QuotaExceeded

AT_ONCE_MS = 0
"""The due time of pending messages. Scheduled ones are never due so early."""
ROWS_PER_READ = 1_000

Choosing = Generator[float, None, Groups]


class UnfinishedPlan(NamedTuple):
    """A stored message whose subscriptions are not all known yet."""

    row: MessageRow
    version: int
    """Of the rules when matching began."""
    sequence: int
    message: PublishedMessage
    choosing: Choosing


class Topic(MessagingEntity):
    settings: TopicSettings

    def __init__(self, row: EntityRow, summary: EntitySummary, context: EntityContext) -> None:
        super().__init__(row, summary, context)
        self.matcher = RuleMatcher()
        self.subscriptions: dict[str, Subscription] = {}
        """By name in lower case."""
        self.pending = summary.due_at_once
        """Messages that wait to be distributed; they count as scheduled."""
        self.pending_bytes = summary.due_at_once_bytes
        self._reserved = ReservedSpace(self.matcher)
        self._work_of_one = 0.0
        """The average work of distributing a message of the last send; 0: unknown."""
        self._unfinished: UnfinishedPlan | None = None
        """What the last step could not finish."""
        self._rows_at_once = 100
        """Rows to read at a time."""
        self._unwritten: int | None = None
        """The change set that distributed stored messages, until it is on disk."""
        self.is_paused = False
        """There is no disk space for copies: pending messages stay, forwarded ones are stored."""

    def configure(self, row: EntityRow) -> None:
        self.row = row
        self.settings = TopicSettings.from_text(row.settings, row.path)

    @property
    def is_in_use(self) -> bool:
        return super().is_in_use or any(each.is_in_use for each in self.subscriptions.values())

    # --- rules ---

    def put_rule(self, row: EntityRow, entry: ActiveRule) -> None:
        """Add a rule, or replace the one of that name."""
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
        """Raise `EntityDisabled` unless the topic's status allows sending."""
        if not self.settings.status.lets_send:
            text = f"the topic '{self.row.path}' has the status {self.settings.status}: nothing can be sent to it"
            raise EntityDisabled(text)

    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number and distribute messages, all or none; returns the topic's sequences. Pings are only checked."""
        return self._send(arrivals, None, now_ms, step)

    def accept_forwarded(self, arrival: Arrival, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        self._send((arrival,), hop_count, now_ms, step)

    def _send(
        self, arrivals: tuple[Arrival, ...], hop_count: HopCount | None, now_ms: int, step: Step
    ) -> tuple[int, ...]:
        return self._prepare(arrivals, (), hop_count, now_ms, step)()

    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        self.check_sizes(arrivals)
        self._check_quota(sum([len(each.payload) for each in arrivals if each.due_at_ms is not None]))

    def prepare_send(
        self, arrivals: tuple[Arrival, ...], reserved: Sequence[NumberedArrival], now_ms: int, step: Step
    ) -> Callable[[], object]:
        return self._prepare(arrivals, reserved, None, now_ms, step)

    def _prepare(
        self,
        arrivals: tuple[Arrival, ...],
        reserved: Sequence[NumberedArrival],
        hop_count: HopCount | None,
        now_ms: int,
        step: Step,
    ) -> Callable[[], tuple[int, ...]]:
        """Check whether messages can be taken; the result takes them, and returns the sequences of `arrivals`."""
        self.check_sizes((*arrivals, *[arrival for _, arrival in reserved]))
        first = self._next_sequence
        numbered = list(enumerate([arrival for arrival in arrivals if not arrival.is_ping], first))
        scheduled = [each for each in numbered if _is_scheduled(each[1], now_ms)]
        new = [each for each in numbered if not _is_scheduled(each[1], now_ms)] if scheduled else numbered
        stored = self._rows([*scheduled, *reserved], now_ms, pending=False)
        plans = self._short_plans(new, now_ms, step)
        pending = [] if plans is not None else self._rows(new, now_ms, pending=True)
        self._check_quota(sum(len(row.payload) for row in stored + pending))
        if pending:
            publish = partial(self._publish_sent, now_ms=now_ms)
            self._reserved.take(new, publish, self.pending_bytes, self.subscriptions.values(), step)
        else:
            self._check_room([copy for plan in plans or () for copy in plan.copies])
        self._next_sequence = first + len(numbered)  # before distributing: a forwarded copy may come back here at once
        return partial(self._take, numbered, stored, pending, plans, hop_count, now_ms, step)

    def _take(
        self,
        numbered: list[NumberedArrival],
        stored: list[MessageRow],
        pending: list[MessageRow],
        plans: list[CopyPlan] | None,
        hop_count: HopCount | None,
        now_ms: int,
        step: Step,
    ) -> tuple[int, ...]:
        """Store and distribute what was found acceptable."""
        self.record(MessageEventKind.STORED, stored + pending, step)
        if hop_count is not None and hop_count.hops:
            pending = [with_hop_count(row, hop_count) for row in pending]
        if stored or pending:
            self.insert((*stored, *pending), step)
        if plans:
            self._distribute(plans, hop_count, now_ms, step, is_new=True)
            self.count_sequences(step)
        return tuple([sequence for sequence, _ in numbered])

    def _short_plans(self, arrivals: Sequence[tuple[int, Arrival]], now_ms: int, step: Step) -> list[CopyPlan] | None:
        """Who gets what, if it can be distributed in this step; None: it must be stored first."""
        if (self.pending or self.is_paused) and self.damage is None:
            return None
        if step.work + len(arrivals) * MESSAGE_WORK > step.work_max:  # no need to try
            self.check_intact()
            return None
        plans: list[CopyPlan] = []
        done_before = step.work
        for sequence, arrival in arrivals:
            message = self._publish_sent(arrival, now_ms)
            choosing = choose_copies(self.matcher, sequence, message)
            plan = None if step.is_long else self._plan(sequence, message, choosing, step)
            if plan is None:
                self.check_intact()  # otherwise it would be pending for ever
                return None
            plans.append(plan)
            self._work_of_one = (step.work - done_before) / len(plans)
        return plans

    @property
    def work_of_one(self) -> float:
        """The approximate work of distributing a message (`Step.work`)."""
        return self._work_of_one or 1.0 + len(self.subscriptions) + self.matcher.asked

    def _publish_sent(self, arrival: Arrival, now_ms: int) -> PublishedMessage:
        ttl_ms = self.limit_ttl(arrival.ttl_ms)
        return PublishedMessage(arrival.payload, arrival.message_id, arrival.session_id, ttl_ms, now_ms, now_ms)

    def limit_ttl(self, ttl_ms: int | None) -> int | None:
        """A time to live, at most the topic's; None: unlimited."""
        return expiry(ttl_ms, self.settings.default_ttl_ms, 0)

    def _check_quota(self, new_bytes: int) -> None:
        limit = self.settings.size_bytes_max
        if self.payload_bytes + new_bytes > limit:
            raise QuotaExceeded(
                f"the topic '{self.row.path}' is full: {self.payload_bytes} bytes of at most {limit} wait in it "
                f"for their time or their turn, and {new_bytes} more were sent; cancel some or raise its maximum size"
            )

    def _rows(self, arrivals: Iterable[tuple[int, Arrival]], now_ms: int, *, pending: bool) -> list[MessageRow]:
        """Messages as stored here: scheduled, or pending until they are distributed."""
        entity_id, default_ttl_ms = self.entity_id, self.settings.default_ttl_ms
        return [
            MessageRow(
                entity_id,
                sequence,
                MessageState.SCHEDULED,
                sequence,
                now_ms,
                expiry(arrival.ttl_ms, default_ttl_ms, now_ms) if pending else None,
                AT_ONCE_MS if pending else arrival.due_at_ms,
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
        pending = [row for row in rows if row.due_at_ms == AT_ONCE_MS]
        self.pending += by * len(pending)
        self.pending_bytes += by * sum([len(row.payload) for row in pending])

    # --- out ---

    def _plan(self, sequence: int, message: PublishedMessage, choosing: Choosing, step: Step) -> CopyPlan | None:
        """Who gets a message; None: finding out takes longer than this step."""
        while True:
            try:
                step.work += next(choosing)
            except StopIteration as chosen:
                plan = CopyPlan(sequence, message, chosen.value)
                step.work += sum(map(len, plan.groups)) + len(plan.groups) - 1
                return plan
            if step.is_long:
                return None

    def _distribute(
        self, plans: list[CopyPlan], hop_count: HopCount | None, now_ms: int, step: Step, *, is_new: bool
    ) -> None:
        """Give each subscription its copies of messages that were just sent (`is_new`), or were stored here."""
        delays = self._context.copy_delays(now_ms)
        for plan in plans:
            if step.events is not None:
                self._record_copies(plan, step.events, is_new=is_new)
            for copies in plan.groups:
                late = copies if delays is None else [delay_copy(copy, delays, now_ms) for copy in copies]
                if late:
                    self._write(late, plan.sequence, hop_count, now_ms, step)

    def _record_copies(self, plan: CopyPlan, events: MessageEvents, *, is_new: bool) -> None:
        message, copies = plan.message, list(plan.copies)
        named = (message.message_id, message.session_id, len(message.payload), plan.sequence)
        if is_new:
            events.of(MessageEventKind.STORED, self.row.path).add(*named)
        if not copies:
            events.of(MessageEventKind.UNCLAIMED, self.row.path).add(*named)
        for queue, subscription, copied, _ in copies:
            named = (copied.message_id, copied.session_id, len(copied.payload), plan.sequence)
            events.of(MessageEventKind.COPIED, subscription.row.path).add(*named)
            if queue is not subscription:
                dead = (
                    MessageEventKind.DEAD_LETTERED,
                    subscription.row.path,
                    Cause.BY_NAMESPACE,
                    copied.dead_letter_reason,
                )
                events.of(*dead).add(*named)

    def _check_room(self, copies: Iterable[MessageCopy]) -> None:
        added: dict[Subscription, int] = {}
        for _, subscription, message, _ in copies:
            added[subscription] = added.get(subscription, 0) + len(message.payload)
        for subscription, new_bytes in added.items():
            subscription.check_quota(new_bytes)

    def _write(
        self, copies: list[MessageCopy], sequence: int, hop_count: HopCount | None, now_ms: int, step: Step
    ) -> None:
        staying = [copy for copy in copies if copy.queue.destination is None]
        if staying:
            self._store(staying, sequence, step)
        for copy in copies if len(staying) < len(copies) else ():
            if copy.queue.destination is not None:
                row = self._row_of(copy, sequence)
                way = hop_count_of(row) if hop_count is None else hop_count
                if copy.due_at_ms is None:
                    enqueued_at_ms = on_time_ms(copy.message.enqueued_at_ms, now_ms)
                    self._context.forwarder.forward(copy.queue, row, way, enqueued_at_ms, step)
                else:  # it goes on when it appears
                    copy.queue.insert((with_hop_count(row, way) if way.hops else row,), step)

    def _store(self, copies: list[MessageCopy], sequence: int, step: Step) -> None:
        rows = [self._row_of(copy, sequence) for copy in copies]
        step.changes.append(InsertMessages(tuple(rows)) if len(rows) == 1 else InsertCopies(tuple(rows)))
        for copy, row in zip(copies, rows, strict=True):
            copy.queue.expect((row,), step)

    def _row_of(self, copy: MessageCopy, sequence: int) -> MessageRow:
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
        while self._commit_actions and self._commit_actions[0].number <= number:
            for row in self._commit_actions.popleft().appearing:
                self._watch_due(row)
        if self._unwritten is not None and self._unwritten <= number:
            self._unwritten = None
        self.recent.committed(number)
        if self.duplicates is not None:
            self.duplicates.forget()
        self.tick(now_ms, step)

    def _next_work_ms(self) -> int | None:
        return None if self.damage is not None or self._has_to_wait else self._due_scan.next_ms

    @property
    def _has_to_wait(self) -> bool:
        """Whether the disk is behind, or full: then nothing more is distributed."""
        return self.is_paused or self._unwritten is not None

    def tick(self, now_ms: int, step: Step) -> None:
        if not self._has_to_wait:
            self._scan(self._due_scan, DueRows, now_ms, step, self._rows_at_once)

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Distribute pending messages and scheduled ones that are due, as if they were sent now."""
        if self.damage is None:
            step.work_max /= 2  # the sender has its answer; current sends wait while copies are written
            rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
            left = self._activate(rows, now_ms, step)
            self._rows_at_once = min(ROWS_PER_READ, 2 * (len(rows) - len(left)) + 1)
            if left:
                before = read.rows[: read.rows.index(left[0])]
                self._due_scan.end(_point(before[-1]) if before else None, left[0].due_at_ms)
            else:
                self._due_scan.end(_point(read.rows[-1]) if read.rows else None, read.next_time_ms)
        self.recent.read_ended(read.request)
        self.tick(now_ms, step)

    def _activate(self, rows: list[MessageRow], now_ms: int, step: Step) -> list[MessageRow]:
        """Distribute as many of these as fit into this step; returns the others."""
        handed = 0
        for row in rows:
            plan = None if step.is_long or self.is_paused else self._plan_of(row, now_ms, step)
            if plan is None:
                break
            handed += 1
            self.touch(now_ms)
            self.remove(row, step)
            # A full subscription gets it too: no sender waits for an error any more.
            self._distribute([plan], None, now_ms, step, is_new=False)
            if row.due_at_ms == AT_ONCE_MS:
                self._reserved.distributed(plan)
        if handed:
            self.count_sequences(step)
            self._unwritten = step.number
        return rows[handed:]

    def _plan_of(self, row: MessageRow, now_ms: int, step: Step) -> CopyPlan | None:
        unfinished = self._unfinished
        if unfinished is None or (unfinished.row, unfinished.version) != (row, self.matcher.version):
            is_in_line = row.due_at_ms == AT_ONCE_MS
            sequence = row.sequence if is_in_line else self.take_sequence()
            message = self._publish_pending(row) if is_in_line else self._publish_due(row, now_ms)
            choosing = choose_copies(self.matcher, sequence, message)
            unfinished = UnfinishedPlan(row, self.matcher.version, sequence, message, choosing)
        plan = self._plan(unfinished.sequence, unfinished.message, unfinished.choosing, step)
        self._unfinished = unfinished if plan is None else None
        return plan

    def _publish_pending(self, row: MessageRow) -> PublishedMessage:
        """A pending message as it was sent: waiting does not extend its life."""
        sent_at_ms = row.enqueued_at_ms
        ttl_ms = None if row.expires_at_ms is None else row.expires_at_ms - sent_at_ms
        return PublishedMessage(row.payload, row.message_id, row.session_id, ttl_ms, sent_at_ms, sent_at_ms)

    def _publish_due(self, row: MessageRow, now_ms: int) -> PublishedMessage:
        ttl_ms = self.limit_ttl(time_to_live_ms(row.payload))
        meant_for_ms = max(row.enqueued_at_ms, scheduled_time_ms(row.payload) or 0)
        enqueued_at_ms = on_time_ms(row.due_at_ms, now_ms)
        return PublishedMessage(row.payload, row.message_id, row.session_id, ttl_ms, enqueued_at_ms, meant_for_ms)


def _is_scheduled(arrival: Arrival, now_ms: int) -> bool:
    return arrival.due_at_ms is not None and arrival.due_at_ms > now_ms and not arrival.is_ping


def _point(row: MessageRow) -> tuple[int, int]:
    return row.due_at_ms or 0, row.sequence
