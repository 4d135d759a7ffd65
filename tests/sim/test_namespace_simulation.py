"""Simulated namespaces keep their promises, and the simulator notices when one does not."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.disk import SimulatedStore
from sim.runner import first_problem, run_seed
from sim.world import Parts
from twinbus.broker.core.commands import Command, SendMessages, SettleMessages
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.message_events import MessageEventKind, MessageEvents
from twinbus.broker.core.replies import AddressedReply, Delivery, Notice, Step
from twinbus.broker.entities.due_scan import DueScan
from twinbus.broker.entities.duplicate_detection import DuplicateDetector, PendingSend
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.broker.entities.loaded_head import Window
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.receivers import Receiver, Receivers
from twinbus.broker.entities.recent_changes import RecentChanges
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.topics.subscription import ActiveRule, RuleMatcher, Selection
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.filters.message_view import TopicMessage
from twinbus.broker.ops.ledger_events import MessageEventRecorder
from twinbus.broker.store.api import Change, Committed, InsertMessages, MessageRow, MessageState, StoredNamespace

SEEDS, CHUNK = seed_count(60, 1_000), 20
SEEDS_TO_FIND_A_BUG = 1_000


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept_through_crashes_and_failures(first: int) -> None:
    outcome = first_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


def test_a_seed_always_gives_the_same_trace() -> None:
    assert run_seed(7) == run_seed(7)
    assert run_seed(7).seen != run_seed(8).seen


@pytest.mark.long
def test_the_simulations_meet_everything_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000, 1_100):
        seen += run_seed(seed).seen
    expected = {
        "Delivery", "ReceiverDrained", "ReceiverLost", "Complete", "Abandon", "Defer", "DeadLetter", "Release",
        "crashes", "store failed", "in doubt", "locks ended", "woken", "expired", "lost in hand-over",
        "buried: Asked", "buried: MaxDeliveryCountExceeded", "buried: TTLExpiredException",
        "read: HeadRows", "read: RangeRows", "read: NamedRows", "read: ExpiredRows", "read: DueRows",
        "refused: EntityNotFound", "refused: LockLost", "refused: MessageNotFound",
        "refused: QuotaExceeded", "refused: the disk is full", "refused: StoreUnavailable", "copies", "in line",
        "repeated",
        "sessions accepted", "sessions lost", "in sessions", "read: HeadRows of a session",
        "refused: SessionCannotBeLocked", "refused: SessionLockLost", "refused: OperationTimedOut",
        "recorded: stored", "recorded: delivered", "recorded: dead_lettered", "recorded: expired",
        "recorded: duplicate", "recorded: copied", "recorded: unclaimed", "recorded: unscheduled",
        "recorded: removed", "recorded: inventory", "recorded: long_poll",
    }  # fmt: skip
    assert expected <= set(seen)


# --- planted bugs: each of these must be found ---


class HastyStore(SimulatedStore):
    """Says that a set is durable when it is only on its way."""

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        super().submit(number, changes)
        if not self.is_broken:
            self.reports.append(Committed(number))


class TearingStore(SimulatedStore):
    """Writes only part of a set."""

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        torn = tuple(InsertMessages(each.rows[:1]) if isinstance(each, InsertMessages) else each for each in changes)
        super().submit(number, torn)


class ForgetfulStore(SimulatedStore):
    """Gives the numbers of messages that are gone to others."""

    def load(self) -> StoredNamespace:
        stored = super().load()
        summaries = {
            entity_id: summary._replace(
                next_sequence=1 + max((row.sequence for row in self.disk.rows_of(entity_id)), default=0)
            )
            for entity_id, summary in stored.summaries.items()
        }
        return stored._replace(summaries=summaries)


class ShutGate(CommitGate):
    """Refuses everything that writes while the disk is full, also what makes room."""

    def _stores_more(self, command: Command[object]) -> bool:
        return isinstance(command, SendMessages | SettleMessages)


class HastyGate(CommitGate):
    """Answers before the commit."""

    def _carry_on(self, step: Step) -> None:
        replies, step.replies = step.replies, []
        super()._carry_on(step)
        for reply in replies:
            self._send(reply)


class HandingGate(CommitGate):
    """Hands a message out before its deletion is committed."""

    def _carry_on(self, step: Step) -> None:
        step.immediate += [reply for reply in step.replies if isinstance(reply, Delivery)]
        step.replies = [reply for reply in step.replies if not isinstance(reply, Delivery)]
        super()._carry_on(step)


class LyingGate(CommitGate):
    """Says that all is well when a commit has failed."""

    def _refuse(self, sent: AddressedReply | Notice) -> None:
        self._send(sent)


def name_of_part(parts: Parts) -> str:
    return parts.store.__name__ if parts.store is not SimulatedStore else parts.gate.__name__


@pytest.mark.parametrize(
    "parts",
    [
        Parts(store=HastyStore),
        Parts(store=TearingStore),
        Parts(store=ForgetfulStore),
        Parts(gate=HastyGate),
        Parts(gate=ShutGate),
        Parts(gate=HandingGate),
        Parts(gate=LyingGate),
    ],
    ids=name_of_part,
)
def test_a_part_that_breaks_a_promise_is_found(parts: Parts) -> None:
    bug = f"namespace: {name_of_part(parts)}"
    assert found(bug, lambda seeds: first_problem(seeds, parts=parts), SEEDS_TO_FIND_A_BUG) is not None


def appear_at_once(self: Queue, rows: tuple[MessageRow, ...], step: Step) -> None:
    step.changes.append(InsertMessages(rows))
    self._on_commit(step)
    self._count(rows, 1)
    for row in rows:
        if row.state is MessageState.ACTIVE:
            self._window.arrive(row, step.number)


def trust_every_read(self: RecentChanges, sequence: int, as_of: int) -> bool:
    return False


def never_changed(self: RecentChanges, sequence: int) -> int:
    return 0


def count_nothing(self: Queue, row: MessageRow, now_ms: int, step: Step) -> None:
    self.requeue(row, now_ms, step)


def lose_the_row(self: Window, row: MessageRow) -> None:
    return None


def arrive_without_a_trace(self: Window, row: MessageRow, number: int) -> None:
    if self.on_disk_from is None and self._has_room():
        self._fresh.append(row)
        self._bytes += len(row.payload)
    elif self.on_disk_from is None:
        self.on_disk_from = row.sequence


def stay_asleep(self: Receivers, receiver: Receiver) -> None:
    if receiver.credit_limit > 5:
        receiver.queued = True
        self._ready.append(receiver)


def keep_the_room(self: Receivers, receiver: Receiver, size: int) -> None:
    return None


def take_no_heed(self: Receivers, receiver: Receiver, size: int) -> None:
    receiver.room_bytes = 10**9
    self.queue_up(receiver)


def never_look_back(self: DueScan, point: tuple[int, int]) -> None:
    return None


def overlook_expiry(self: Queue, row: MessageRow, step: Step) -> None:
    return None


_select = RuleMatcher.select


def forget_somebody(self: RuleMatcher, message: TopicMessage) -> Generator[float, None, Selection]:
    selection = yield from _select(self, message)
    if len(selection.plain) > 1:
        selection.plain.popitem()
    return selection


def find_everything(self: RuleMatcher, message: TopicMessage, selection: Selection) -> list[list[ActiveRule]]:
    return [list(self._entries.values())]


def give_to_anybody(self: SessionQueue, name: str, now_ms: int, step: Step) -> bool:
    return False


class OpenWindow(Window):
    """Takes back what has not been read yet."""

    def holds(self, sequence: int) -> bool:
        return True


def read_at_once(self: SessionQueue) -> None:
    for session in self._opening.values():
        session.window = OpenWindow(self.entity_id, self._limits, 0, session.name)
    self._opening.clear()


def forget_the_row(self: SessionQueue, row: MessageRow) -> None:
    return None


def never_look_again(self: SessionQueue) -> None:
    return None


def trust_the_disk(self: DuplicateDetector, pending: PendingSend, keys: tuple[str, ...]) -> list[bool]:
    return [key not in (pending.known or ()) for key in keys]


def note_nothing(self: DuplicateDetector, keys: tuple[str, ...], until_ms: int, now_ms: int, step: Step) -> None:
    for key in keys:
        self._accepted[key] = step.number
        self._order.append((step.number, key))


def record_nothing(
    self: MessagingEntity, what: MessageEventKind, rows: Sequence[MessageRow], step: Step, *why: str
) -> None:
    return None


def record_the_first(
    self: MessageEvents,
    what: MessageEventKind,
    path: str,
    rows: Sequence[MessageRow],
    cause: str = "",
    reason: str = "",
) -> None:
    self.of(what, path, cause, reason).add_rows(rows[:1])


def take_no_inventory(self: MessageEventRecorder, entities: object) -> None:
    return None


def count_in_memory_only(self: Topic, step: Step) -> None:
    self._on_commit(step)


@pytest.mark.timeout(600)  # where the known seed is of no use any more, others are tried
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Queue, "insert", appear_at_once),
        (RecentChanges, "changed_since", trust_every_read),
        (RecentChanges, "removed_since", trust_every_read),
        (RecentChanges, "changed_at", never_changed),
        (Queue, "_end_lock", count_nothing),
        (Queue, "expire", overlook_expiry),
        (Window, "put_back", lose_the_row),
        (Window, "arrive", arrive_without_a_trace),
        (Receivers, "queue_up", stay_asleep),
        (Receivers, "returned", keep_the_room),
        (Receivers, "returned", take_no_heed),
        (DueScan, "_step_back", never_look_back),
        (RuleMatcher, "select", forget_somebody),
        (RuleMatcher, "_found", find_everything),
        (Topic, "count_sequences", count_in_memory_only),
        (SessionQueue, "_is_locked", give_to_anybody),
        (DuplicateDetector, "new_ones", trust_the_disk),
        (DuplicateDetector, "remember", note_nothing),
        (SessionQueue, "_open_sessions", read_at_once),
        (SessionQueue, "_show_again", forget_the_row),
        (SessionQueue, "_expect_more", never_look_again),
        (MessagingEntity, "record", record_nothing),
        (MessageEvents, "rows", record_the_first),
        (MessageEventRecorder, "record_inventory", take_no_inventory),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_machine_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found(f"namespace: {name} {bug.__name__}", first_problem, SEEDS_TO_FIND_A_BUG) is not None


# --- the command ---


def test_the_command_prints_the_failing_seed_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Window, "put_back", lose_the_row)
    assert main(["--seeds", "40", "--trace"]) == 1
    printed = capsys.readouterr().out
    assert "python -m sim --first" in printed
    assert "SendMessages(" in printed


def test_the_command_is_content_when_every_promise_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--seeds", "2", "--first", "5"],
        cwd="tests",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 simulations, 0 with a problem" in done.stdout
