"""Looking for messages whose time has come: each is met once, however long it stays on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespace_harness import QUEUE, SECOND_MS, NamespaceHarness, arrival, names

from twinbus.broker.core.commands import RenewMessageLocks, SendMessages, Tick
from twinbus.broker.entities.due_scan import DueScan
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Abandon, Release
from twinbus.broker.store.api import DueRows, ExpiredRows, ReadRequest

LOCK_MS = 60 * SECOND_MS


class CountedHarness(NamespaceHarness):
    """Notes what is read from the store."""

    def __init__(self, settings: QueueSettings | None = None, limits: WindowLimits | None = None) -> None:
        super().__init__(settings or QueueSettings(lock_ms=LOCK_MS), limits)
        self.requests: list[ReadRequest] = []
        ask_store = self.store.request

        def request(request: ReadRequest) -> None:
            self.requests.append(request)
            ask_store(request)

        self.store.request = request  # type: ignore[method-assign]

    def reads_of(self, kind: type[ReadRequest]) -> int:
        return sum(isinstance(request, kind) for request in self.requests)

    def tick_often(self, times: int = 100) -> None:
        """Tick as a server does: whenever the machine wants to be woken. No commit happens meanwhile."""
        for _ in range(times):
            wake_ms = self.gate.next_wake_ms()
            if wake_ms is None or wake_ms > self.now_ms:
                return
            self.do(Tick())


@pytest.fixture
def harness() -> CountedHarness:
    return CountedHarness()


def short_lived(count: int) -> list[object]:
    return [arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(count)]


# --- expiry ---


def test_lent_messages_that_have_expired_are_read_once(harness: CountedHarness) -> None:
    harness.send(*short_lived(200))  # type: ignore[arg-type]
    assert len(harness.receive(200)) == 200
    for _ in range(50):
        harness.now_ms += SECOND_MS
        harness.tick_often()
    assert harness.reads_of(ExpiredRows) == 2  # a hundred at a time
    assert harness.queue.active == 200
    harness.pass_time(LOCK_MS)
    assert harness.queue.active == 0
    assert harness.reads_of(ExpiredRows) <= 3


def test_the_machine_sleeps_until_the_locks_of_expired_messages_end(harness: CountedHarness) -> None:
    harness.send(*short_lived(200))  # type: ignore[arg-type]
    (lent, *_) = harness.receive(200)
    harness.pass_time(2 * SECOND_MS)
    assert harness.gate.next_wake_ms() == lent.locked_until_ms


def test_messages_whose_expiry_is_being_written_are_not_read_again(harness: CountedHarness) -> None:
    harness.send(*short_lived(250))  # type: ignore[arg-type]
    harness.now_ms += SECOND_MS
    harness.tick_often()
    assert harness.reads_of(ExpiredRows) == 3
    harness.now_ms += SECOND_MS
    harness.tick_often()
    assert harness.reads_of(ExpiredRows) == 3
    harness.commit()
    assert harness.queue.active == 0


@pytest.mark.parametrize("outcome", [Abandon(), Release()])
def test_a_message_given_back_after_its_time_ends_without_another_look(
    harness: CountedHarness, outcome: Abandon | Release
) -> None:
    harness.send(*short_lived(200))  # type: ignore[arg-type]
    lent = harness.receive(200)
    harness.pass_time(2 * SECOND_MS)
    for delivery in lent:
        harness.settle(outcome, delivery)
        harness.pass_time(0)
    assert harness.queue.active == 0
    assert harness.reads_of(ExpiredRows) == 2


def test_a_message_given_back_in_time_still_expires(harness: CountedHarness) -> None:
    harness.send(arrival("long", ttl_ms=5 * SECOND_MS), arrival("short", ttl_ms=SECOND_MS))
    lent = harness.receive(2)
    harness.pass_time(2 * SECOND_MS)  # the sweep has met the second one
    harness.settle(Release(), lent[0])
    harness.pass_time(SECOND_MS)
    assert names(harness.peek()) == ["long"]
    harness.pass_time(2 * SECOND_MS)
    assert harness.queue.active == 1  # the short one is still lent
    assert names(harness.receive(2)) == []


def test_a_lock_that_is_renewed_keeps_an_expired_message_and_costs_no_reads(harness: CountedHarness) -> None:
    harness.send(*short_lived(1))  # type: ignore[arg-type]
    (lent,) = harness.receive()
    for _ in range(20):
        harness.pass_time(LOCK_MS - SECOND_MS)
        harness.ask(RenewMessageLocks(QUEUE, (lent.token or b"",)))
    assert harness.queue.active == 1
    assert harness.reads_of(ExpiredRows) == 1


def test_a_message_that_has_expired_before_it_was_durable_never_appears(harness: CountedHarness) -> None:
    harness.send(*short_lived(5))  # type: ignore[arg-type]
    harness.do(SendMessages(QUEUE, (arrival("late", ttl_ms=SECOND_MS // 2), arrival("long"))))
    harness.now_ms += SECOND_MS
    harness.tick_often()  # the sweep is past the late one's time before it is written
    harness.commit()
    harness.tick_often()
    harness.commit()
    assert names(harness.peek()) == ["long"]
    assert harness.queue.active == 1
    assert names(harness.receive(5)) == ["long"]


def test_large_messages_are_swept_in_bounded_reads() -> None:
    harness = CountedHarness(limits=WindowLimits(rows_max=50, bytes_max=10_000))
    harness.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS, body=bytes(4_000)) for number in range(20)])
    harness.pass_time(SECOND_MS)
    assert harness.queue.active == 0
    assert harness.reads_of(ExpiredRows) == 10
    assert all(request.bytes_max == 10_000 for request in harness.requests if isinstance(request, ExpiredRows))


# --- schedules ---


def test_scheduled_messages_whose_waking_is_being_written_are_not_read_again(harness: CountedHarness) -> None:
    due_at_ms = harness.now_ms + SECOND_MS
    harness.send(*[arrival(f"m{number}", due_at_ms=due_at_ms) for number in range(250)])
    for _ in range(20):
        harness.now_ms += SECOND_MS
        harness.tick_often()
    assert harness.reads_of(DueRows) == 3
    harness.commit()
    assert (harness.queue.active, harness.queue.scheduled) == (250, 0)


def test_a_scheduled_message_that_is_due_before_it_is_durable_wakes(harness: CountedHarness) -> None:
    harness.send(arrival("first", due_at_ms=harness.now_ms + 2 * SECOND_MS))
    harness.do(SendMessages(QUEUE, (arrival("late", due_at_ms=harness.now_ms + SECOND_MS),)))
    harness.now_ms += 3 * SECOND_MS
    harness.tick_often()  # the sweep is past the late one's time before it is written
    harness.commit()
    harness.pass_time(0)
    assert sorted(filter(None, names(harness.receive(5)))) == ["first", "late"]


# --- the sweep itself ---


def test_a_sweep_sleeps_while_its_read_is_under_way() -> None:
    sweep = DueScan(5)
    assert sweep.is_due(5)
    sweep.begin()
    sweep.watch(4, 9)
    assert (sweep.next_ms, sweep.is_due(5)) == (None, False)
    sweep.end(None, 7)
    assert (sweep.next_ms, sweep.is_due(5)) == (4, True)


POINTS = st.tuples(st.integers(0, 5), st.integers(1, 5))


@given(st.data())
def test_a_sweep_misses_nothing_whatever_appears_when(data: st.DataObject) -> None:
    """Beside a disk: what was there when a read was asked for is met, the rest by a later one."""
    sweep, disk, met = DueScan(None), set[tuple[int, int]](), set[tuple[int, int]]()
    read: list[tuple[int, int]] | None = None
    next_ms: int | None = None
    for action in data.draw(st.lists(st.sampled_from(["appear", "look", "read"]), max_size=30)) + ["read", "look"] * 40:
        if action == "appear":
            point = data.draw(POINTS)
            if point not in disk:
                disk.add(point)
                sweep.watch(*point)
        elif action == "look" and sweep.is_due(5):
            behind = sorted(point for point in disk if point > sweep.after)
            read, next_ms = behind[:2], behind[2][0] if len(behind) > 2 else None
            sweep.begin()
        elif action == "read" and read is not None:
            sweep.end(read[-1] if read else None, next_ms)
            met.update(read)
            read = None
    assert met == disk
