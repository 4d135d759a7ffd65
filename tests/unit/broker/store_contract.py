"""What `broker/store/api.py` promises, as tests that every store runs.

A test class inherits from `StoreContract` and says how its store is opened. `WatchedStore` is also of use by itself: a
store beside everything it has reported.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

import pytest

from twinbus.broker.store.api import (
    AdvanceSequence,
    Change,
    CommitFailed,
    Committed,
    DeleteMessages,
    DropEntity,
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    IdsRead,
    InsertCopies,
    InsertMessages,
    KnownIds,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    PutEntity,
    PutSessionState,
    RangeRows,
    Read,
    ReadFailed,
    ReadRequest,
    RememberMessageIds,
    ReplaceMessage,
    Report,
    RowRequest,
    RowsRead,
    SessionsRead,
    SessionStateOf,
    StateGrowth,
    StateRead,
    Store,
    StoredNamespace,
    WaitingSessions,
)

ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED
WAIT_S = 30
MANY = 1_000_000
EVERYTHING = RangeRows(1, 0, MANY, MANY)
"""All rows of entity 1."""


def message(
    sequence: int,
    *,
    entity_id: int = 1,
    state: MessageState = ACTIVE,
    expires_at_ms: int | None = None,
    due_at_ms: int | None = None,
    payload: bytes = b"body",
) -> MessageRow:
    """A row with plausible values for what does not matter."""
    return MessageRow(
        entity_id, sequence, state, sequence, 1_000, expires_at_ms, due_at_ms, 0, f"id-{sequence}", None, None, payload
    )


def entity(
    entity_id: int = 1, *, path: str = "orders", parent_id: int | None = None, settings: str = "{}"
) -> EntityRow:
    return EntityRow(entity_id, path, "queue", parent_id, settings, 1_000, 1_000)


def insert(*sequences: int, entity_id: int = 1) -> InsertMessages:
    return InsertMessages(tuple(message(sequence, entity_id=entity_id) for sequence in sequences))


def sequences_of(read: RowsRead) -> list[int]:
    return [row.sequence for row in read.rows]


class WatchedStore:
    """A loaded and started store, with its reports in the order they came."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reports: list[Report] = []
        self._changed = Condition()
        self.loaded = store.load()
        self.number = self.loaded.last_number
        store.start(self._take)

    def submit(self, *changes: Change) -> int:
        """Hand over the next change set; returns its number."""
        self.number += 1
        self.store.submit(self.number, changes)
        return self.number

    def commit(self, *changes: Change) -> int:
        """Hand over the next change set and wait until it is durable; returns its number."""
        number = self.submit(*changes)
        answer = self.wait_for(
            lambda report: (
                isinstance(report, CommitFailed) or (isinstance(report, Committed) and report.number >= number)
            )
        )
        assert isinstance(answer, Committed), answer
        return number

    def read(self, request: RowRequest) -> RowsRead:
        """Ask for rows and wait for them."""
        answer = self.read_any(request)
        assert isinstance(answer, RowsRead), answer
        assert answer.request == request
        return answer

    def read_any(self, request: ReadRequest) -> Report:
        """Ask for anything and wait for the answer."""
        seen = len(self.reports)
        self.store.request(request)
        return self.wait_for(lambda report: isinstance(report, Read | ReadFailed), since=seen)

    def failure(self) -> CommitFailed:
        """Wait for a failed commit."""
        answer = self.wait_for(lambda report: isinstance(report, CommitFailed))
        assert isinstance(answer, CommitFailed)
        return answer

    def load(self) -> StoredNamespace:
        """Load again, and go on from there."""
        self.loaded = self.store.load()
        self.number = self.loaded.last_number
        self.reports.clear()
        return self.loaded

    def committed(self) -> list[int]:
        return [report.number for report in self.reports if isinstance(report, Committed)]

    def wait_for(self, fits: Callable[[Report], bool], *, since: int = 0) -> Report:
        """The first report that fits, once it has come."""
        with self._changed:
            found = self._changed.wait_for(lambda: [one for one in self.reports[since:] if fits(one)], WAIT_S)
        assert found, f"no such report in {WAIT_S} s"
        return found[0]

    def _take(self, report: Report) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()


OpenStore = Callable[..., WatchedStore]
"""Opens a store on disk, with options."""


class StoreContract:
    """Subclasses override `opened` and `reopened`, and close what they open."""

    def opened(self) -> WatchedStore:
        """A store with nothing in it."""
        raise NotImplementedError

    def reopened(self, watched: WatchedStore) -> WatchedStore:
        """The same store after `close` and a fresh start."""
        raise NotImplementedError

    @pytest.fixture
    def empty(self) -> WatchedStore:
        return self.opened()

    @pytest.fixture
    def orders(self, empty: WatchedStore) -> WatchedStore:
        """A store with the queue `orders` and no messages."""
        empty.commit(PutEntity(entity()))
        return empty

    # --- sessions

    @pytest.fixture
    def sessions(self, orders: WatchedStore) -> WatchedStore:
        """A store with messages in the sessions '', 'a', 'b' (only deferred) and 'c', and some without one."""
        names = ["a", None, "b", "c", "a", "", "c"]
        rows = [message(number)._replace(session_id=name) for number, name in enumerate(names, 1)]
        rows[2] = rows[2]._replace(state=DEFERRED)
        orders.commit(InsertMessages(tuple(rows)))
        return orders

    def names(self, watched: WatchedStore, request: WaitingSessions | KnownSessions) -> list[str]:
        read = watched.read_any(request)
        assert isinstance(read, SessionsRead)
        assert (read.request, read.as_of) == (request, watched.number)
        return list(read.names)

    def state(self, watched: WatchedStore, session_id: str) -> bytes | None:
        read = watched.read_any(SessionStateOf(1, session_id))
        assert isinstance(read, StateRead)
        return read.state

    def test_rows_of_a_session_come_in_order_and_alone(self, sessions: WatchedStore) -> None:
        assert sequences_of(sessions.read(HeadRows(1, 0, 9, MANY, "a"))) == [1, 5]
        assert sequences_of(sessions.read(HeadRows(1, 2, 9, MANY, "a"))) == [5]
        assert sequences_of(sessions.read(HeadRows(1, 0, 9, MANY, "b"))) == []
        assert sequences_of(sessions.read(RangeRows(1, 0, 9, MANY, "b"))) == [3]
        assert sequences_of(sessions.read(HeadRows(1, 0, 9, MANY, ""))) == [6]
        first = sessions.read(HeadRows(1, 0, 1, MANY, "c"))
        assert (sequences_of(first), first.complete) == ([4], False)

    def test_waiting_sessions_have_active_rows(self, sessions: WatchedStore) -> None:
        assert self.names(sessions, WaitingSessions(1, None, (), 9)) == ["", "a", "c"]
        assert self.names(sessions, WaitingSessions(1, "", (), 9)) == ["a", "c"]
        assert self.names(sessions, WaitingSessions(1, "a", ("x",), 9)) == ["c"]
        assert self.names(sessions, WaitingSessions(1, None, ("a", ""), 1)) == ["c"]
        assert self.names(sessions, WaitingSessions(2, None, (), 9)) == []

    def test_waiting_sessions_are_found_behind_many_that_are_excluded(self, orders: WatchedStore) -> None:
        names = [f"s{number:03}" for number in range(300)]
        rows = [message(number)._replace(session_id=name) for number, name in enumerate(names, 1)]
        orders.commit(InsertMessages(tuple(rows)))
        assert self.names(orders, WaitingSessions(1, None, tuple(names[:298]), 1)) == ["s298"]
        assert self.names(orders, WaitingSessions(1, "s100", tuple(names[:298]), 5)) == ["s298", "s299"]
        assert self.names(orders, WaitingSessions(1, None, tuple(names[1::2]), 2)) == ["s000", "s002"]

    def test_names_are_distinguished_by_every_character(self, orders: WatchedStore) -> None:
        names = ["a", "a\0b", "a\0c", 'a"', "a\\", "a\n"]
        rows = [message(number)._replace(session_id=name) for number, name in enumerate(names, 1)]
        orders.commit(InsertMessages(tuple(rows)), RememberMessageIds(1, ("b\0b", "c"), 100, 0))
        assert self.names(orders, WaitingSessions(1, None, (), 9)) == sorted(names)
        assert self.names(orders, WaitingSessions(1, None, ("a\0b",), 9)) == sorted({*names} - {"a\0b"})
        assert self.names(orders, WaitingSessions(1, "a\0b", (), 1)) == ["a\0c"]
        assert self.known(orders, "b", "b\0b", "b\0c", "c", "c\0") == {"b\0b", "c"}

    def test_known_sessions_have_rows_or_a_state(self, sessions: WatchedStore) -> None:
        sessions.commit(PutSessionState(1, "z", b"state", 5), PutSessionState(1, "a", b"", 9))
        assert self.names(sessions, KnownSessions(1, None, 0, 9)) == ["", "a", "b", "c", "z"]
        assert self.names(sessions, KnownSessions(1, None, 3, 9)) == ["c", "z"]
        assert self.names(sessions, KnownSessions(1, None, 1, 2)) == ["a", "b"]
        assert self.names(sessions, KnownSessions(1, 4, 0, 9)) == ["a", "z"]
        assert self.names(sessions, KnownSessions(1, 5, 0, 9)) == ["a"]

    def test_the_state_of_a_session_is_what_was_put_last(self, orders: WatchedStore) -> None:
        assert self.state(orders, "a") is None
        orders.submit(PutSessionState(1, "a", b"one", 1))
        orders.commit(PutSessionState(1, "a", b"two", 2))
        assert self.state(orders, "a") == b"two"
        again = self.reopened(orders)
        assert self.state(again, "a") == b"two"
        again.commit(PutSessionState(1, "a", None, 3))
        assert self.state(again, "a") is None
        again.commit(PutSessionState(1, "a", b"three", 4))
        again.commit(DropEntity(1))
        assert self.state(again, "a") is None

    def test_a_commit_says_how_much_more_states_there_are_and_a_summary_how_many(self, orders: WatchedStore) -> None:
        def growth() -> StateGrowth:
            report = orders.reports[-1]
            assert isinstance(report, Committed)
            (grown,) = report.states
            return grown

        orders.commit(PutEntity(entity(2)), PutSessionState(1, "a\0\u00e4", bytes(10), 1))
        assert growth() == StateGrowth(1, 1, 4 + 10)
        orders.commit(PutSessionState(1, "b", bytes(100), 1), PutSessionState(1, "a\0\u00e4", b"", 2))
        assert growth() == StateGrowth(1, 1, 101 - 10)
        assert self.reopened(orders).loaded.summaries[1][8:10] == (2, 4 + 101)

    def test_states_that_are_replaced_or_cleared_are_counted_off(self, orders: WatchedStore) -> None:
        orders.commit(PutEntity(entity(2)), PutSessionState(1, "a", bytes(10), 1), PutSessionState(2, "a", b"x", 1))
        orders.commit(
            PutSessionState(1, "a", None, 2), PutSessionState(1, "c", None, 2), PutSessionState(2, "b", b"", 1)
        )
        report = orders.reports[-1]
        assert isinstance(report, Committed)
        assert set(report.states) == {StateGrowth(1, -1, -11), StateGrowth(2, 1, 1)}
        summaries = self.reopened(orders).loaded.summaries
        assert (summaries[1][8:10], summaries[2][8:10]) == ((0, 0), (2, 3))

    # --- ids of messages

    def known(self, watched: WatchedStore, *ids: str, now_ms: int = 0) -> set[str]:
        read = watched.read_any(KnownIds(1, ids, now_ms))
        assert isinstance(read, IdsRead)
        assert read.as_of == watched.number
        return set(read.known)

    def test_ids_are_known_until_their_time_is_over(self, orders: WatchedStore) -> None:
        orders.submit(RememberMessageIds(1, ("a", "b", ""), 100, 0))
        orders.commit(RememberMessageIds(1, ("b", "é"), 200, 0))
        again = self.reopened(orders)
        assert self.known(again, "a", "b", "", "é", "x", now_ms=99) == {"a", "b", "", "é"}
        assert self.known(again, "a", "b", "é", now_ms=100) == {"b", "é"}
        again.commit(RememberMessageIds(1, ("a",), 300, 250))
        assert self.known(again, "a", "b", now_ms=250) == {"a"}
        again.commit(DropEntity(1))
        assert self.known(again, "a") == set()

    def test_any_number_of_ids_can_be_asked_for_at_once(self, orders: WatchedStore) -> None:
        ids = [str(number) for number in range(3_000)]
        orders.commit(RememberMessageIds(1, tuple(ids[::2]), 100, 0))
        assert self.known(orders, *ids) == set(ids[::2])
        assert self.known(orders, *ids[:5]) == {"0", "2", "4"}
        assert self.known(orders) == set()

    # --- commits

    def test_a_new_store_is_empty_and_starts_at_one(self, empty: WatchedStore) -> None:
        assert empty.loaded == StoredNamespace((), {}, next_entity_id=1, last_number=0)

    def test_every_set_is_covered_by_a_report_and_reports_rise(self, orders: WatchedStore) -> None:
        for sequence in range(1, 200):
            orders.submit(insert(sequence))
        orders.commit(insert(200))
        numbers = orders.committed()
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == orders.number

    def test_an_empty_set_is_committed_too(self, orders: WatchedStore) -> None:
        assert orders.commit() == 2
        assert self.reopened(orders).loaded.last_number == 2

    def test_a_set_with_the_wrong_number_is_a_programming_error(self, orders: WatchedStore) -> None:
        with pytest.raises(ValueError, match="2 comes next, not 3"):
            orders.store.submit(3, ())

    def test_changes_act_in_the_order_given_within_and_across_sets(self, orders: WatchedStore) -> None:
        orders.submit(insert(1, 2, 3), DeleteMessages(1, (2,)))
        orders.submit(ReplaceMessage(message(3, payload=b"new")), DeleteMessages(1, (1,)), insert(1))
        orders.submit(DeleteMessages(1, (3,)), insert(4, 5))
        orders.commit(DeleteMessages(1, (4,)), ReplaceMessage(message(5, state=DEFERRED)))
        assert orders.read(RangeRows(1, 0, MANY, MANY)).rows == (message(1), message(5, state=DEFERRED))

    def test_copies_are_rows_like_others_in_the_order_given(self, orders: WatchedStore) -> None:
        orders.commit(PutEntity(entity(2, path="other")))
        copies = tuple(message(1, entity_id=number, payload=b"same") for number in (1, 2))
        changed = message(1, entity_id=2, payload=b"changed")
        orders.submit(InsertCopies(copies), DeleteMessages(1, (1,)), ReplaceMessage(changed))
        orders.commit(InsertCopies(tuple(message(2, entity_id=number, payload=b"both") for number in (1, 2))))
        assert orders.read(RangeRows(1, 0, MANY, MANY)).rows == (message(2, payload=b"both"),)
        assert orders.read(RangeRows(2, 0, MANY, MANY)).rows == (changed, message(2, entity_id=2, payload=b"both"))
        assert self.reopened(orders).loaded.summaries[2].payload_bytes == len(b"changed") + len(b"both")

    def test_sequences_can_be_given_without_rows(self, orders: WatchedStore) -> None:
        orders.commit(AdvanceSequence(1, 8))
        orders.commit(AdvanceSequence(1, 5))
        again = self.reopened(orders)
        assert again.loaded.summaries[1].next_sequence == 8
        again.commit(insert(8))

    def test_closing_commits_and_reports_what_was_submitted(self, orders: WatchedStore) -> None:
        for sequence in range(1, 100):
            orders.submit(insert(sequence))
        again = self.reopened(orders)
        assert orders.committed()[-1] == orders.number
        assert again.loaded.summaries[1].active == 99

    def test_closing_twice_is_harmless(self, orders: WatchedStore) -> None:
        orders.store.close()
        orders.store.close()

    # --- refusals

    @pytest.mark.parametrize(
        "wrong",
        [
            insert(7),
            insert(9, 9),
            DeleteMessages(1, (8,)),
            DeleteMessages(1, (7, 7)),
            ReplaceMessage(message(8)),
            insert(1, entity_id=2),
            DeleteMessages(2, (1,)),
            DropEntity(2),
        ],
        ids=str,
    )
    def test_a_set_that_does_not_fit_what_is_stored_fails_whole(self, orders: WatchedStore, wrong: Change) -> None:
        orders.commit(insert(7))
        before = self.contents(orders)
        number = orders.submit(insert(10), wrong)
        assert orders.failure().number == number
        assert orders.failure().reason
        assert self.contents(orders) == before

    def test_after_a_failure_nothing_is_taken_until_the_store_is_loaded_again(self, orders: WatchedStore) -> None:
        orders.commit(insert(1))
        orders.submit(DeleteMessages(1, (99,)))
        failed = orders.failure()
        orders.submit(insert(2))
        assert orders.load().last_number == failed.number - 1
        assert orders.commit(insert(3)) == failed.number
        assert sequences_of(orders.read(RangeRows(1, 0, MANY, MANY))) == [1, 3]
        assert orders.committed() == [failed.number]

    def test_loading_again_without_a_failure_changes_nothing(self, orders: WatchedStore) -> None:
        orders.submit(insert(1))
        assert orders.load().summaries[1].active == 1
        orders.commit(insert(2))
        assert orders.load().summaries[1].active == 2

    # --- rows

    def test_a_row_comes_back_as_it_went_in(self, orders: WatchedStore) -> None:
        rows = (
            MessageRow(
                1, 1, ACTIVE, 7, 2**53 + 1, 5, None, 3, 'quote " \\ \x00 \n é 🚌', "", "orders/x", b"\x00\xff" * 3
            ),
            MessageRow(1, 2, DEFERRED, 2**62, 0, None, None, 0, None, None, None, b""),
            MessageRow(1, 2**62, SCHEDULED, 2, 0, 9, 8, 0, "m", "s", None, bytes(range(256)) * 300),
        )
        orders.commit(InsertMessages(rows))
        found = orders.read(RangeRows(1, 0, MANY, MANY)).rows
        assert found == rows
        assert all(type(row) is MessageRow and type(row.state) is MessageState for row in found)
        assert self.reopened(orders).read(NamedRows(1, (2, 1, 2**62))).rows == rows

    def test_the_head_is_the_active_rows_from_a_sequence_upwards(self, orders: WatchedStore) -> None:
        orders.commit(insert(1, 2, 4, 6), InsertMessages((message(3, state=DEFERRED), message(5, state=SCHEDULED))))
        head = orders.read(HeadRows(1, 2, MANY, MANY))
        assert (sequences_of(head), head.complete, head.next_time_ms) == ([2, 4, 6], True, None)

    def test_a_range_is_the_rows_of_every_state(self, orders: WatchedStore) -> None:
        orders.commit(insert(1, 2, 4), InsertMessages((message(3, state=DEFERRED), message(5, state=SCHEDULED))))
        assert sequences_of(orders.read(RangeRows(1, 2, MANY, MANY))) == [2, 3, 4, 5]

    @pytest.mark.parametrize("request_of", [HeadRows, RangeRows])
    @pytest.mark.parametrize(
        ("rows_max", "bytes_max", "expected", "complete"),
        [
            (2, MANY, [1, 2], False),
            (3, MANY, [1, 2, 3], True),
            (MANY, 250, [1, 2], False),
            (MANY, 300, [1, 2, 3], True),
            (MANY, 1, [1], False),
        ],
    )
    def test_rows_and_bytes_bound_a_read_but_one_row_always_fits(
        self,
        orders: WatchedStore,
        request_of: type[HeadRows] | type[RangeRows],
        rows_max: int,
        bytes_max: int,
        expected: list[int],
        complete: bool,
    ) -> None:
        orders.commit(InsertMessages(tuple(message(sequence, payload=bytes(100)) for sequence in (1, 2, 3))))
        read = orders.read(request_of(1, 1, rows_max, bytes_max))
        assert (sequences_of(read), read.complete) == (expected, complete)

    def test_named_rows_are_those_that_exist_in_order_and_once(self, orders: WatchedStore) -> None:
        orders.commit(insert(1, 2, 3))
        read = orders.read(NamedRows(1, (3, 9, 1, 3)))
        assert (sequences_of(read), read.complete) == ([1, 3], True)

    def test_expired_rows_are_active_ones_and_the_earliest_come_first(self, orders: WatchedStore) -> None:
        rows = [message(at, expires_at_ms=time) for at, time in ((1, 30), (2, 10), (3, 20), (4, 10), (5, None))]
        orders.commit(InsertMessages((*rows, message(6, state=DEFERRED, expires_at_ms=1))))
        read = orders.read(ExpiredRows(1, 20, 10, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([2, 4, 3], True, 30)
        read = orders.read(ExpiredRows(1, 20, 2, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([2, 4], False, 20)
        read = orders.read(ExpiredRows(1, 30, 10, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([2, 4, 3, 1], True, None)
        read = orders.read(ExpiredRows(1, 5, 10, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([], True, 10)

    def test_due_rows_are_scheduled_ones_by_time_and_then_by_sequence(self, orders: WatchedStore) -> None:
        rows = [message(at, state=SCHEDULED, due_at_ms=time) for at, time in ((1, 30), (2, 10), (3, 20), (4, 10))]
        orders.commit(InsertMessages((*rows, message(5))))
        read = orders.read(DueRows(1, 20, 2, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([2, 4], False, 20)
        orders.commit(ReplaceMessage(message(2)), DeleteMessages(1, (4,)))
        read = orders.read(DueRows(1, 20, 2, MANY))
        assert (sequences_of(read), read.complete, read.next_time_ms) == ([3], True, 30)

    @pytest.mark.parametrize(
        ("after", "expected", "next_time_ms"),
        [
            ((-1, 0), [2, 4, 3], 30),
            ((9, 99), [2, 4, 3], 30),
            ((10, 2), [4, 3], 30),
            ((10, 3), [4, 3], 30),
            ((10, 4), [3], 30),
            ((20, 3), [], 30),
            ((30, 0), [], 30),
            ((30, 1), [], None),
        ],
    )
    @pytest.mark.parametrize("request_of", [ExpiredRows, DueRows])
    def test_rows_by_time_may_begin_behind_a_point(
        self,
        orders: WatchedStore,
        request_of: type[ExpiredRows] | type[DueRows],
        after: tuple[int, int],
        expected: list[int],
        next_time_ms: int | None,
    ) -> None:
        self.insert_timed(orders, request_of)
        read = orders.read(request_of(1, 20, 10, MANY, *after))
        assert (sequences_of(read), read.complete, read.next_time_ms) == (expected, True, next_time_ms)

    @pytest.mark.parametrize("request_of", [ExpiredRows, DueRows])
    def test_a_walk_through_rows_by_time_meets_each_once(
        self, orders: WatchedStore, request_of: type[ExpiredRows] | type[DueRows]
    ) -> None:
        self.insert_timed(orders, request_of)
        met, after, times = [], (-1, 0), []
        for _ in range(4):
            read = orders.read(request_of(1, 30, 10, 1, *after))  # one row at a time, for want of bytes
            (row,) = read.rows
            met.append(row.sequence)
            times.append((read.next_time_ms, read.complete))
            after = (row.expires_at_ms or row.due_at_ms or 0, row.sequence)
        assert met == [2, 4, 3, 1]
        assert times == [(10, False), (20, False), (30, False), (None, True)]

    @pytest.mark.parametrize("request_of", [ExpiredRows, DueRows])
    @pytest.mark.parametrize(("bytes_max", "expected"), [(250, [2, 4]), (300, [2, 4, 3]), (1, [2])])
    def test_bytes_bound_rows_by_time_but_one_row_always_fits(
        self,
        orders: WatchedStore,
        request_of: type[ExpiredRows] | type[DueRows],
        bytes_max: int,
        expected: list[int],
    ) -> None:
        self.insert_timed(orders, request_of, payload=bytes(100))
        read = orders.read(request_of(1, 20, 10, bytes_max))
        assert (sequences_of(read), read.complete) == (expected, len(expected) == 3)

    def insert_timed(
        self, orders: WatchedStore, request_of: type[ExpiredRows] | type[DueRows], payload: bytes = b"body"
    ) -> None:
        """Rows 2, 4, 3, 1 in the order of the time that such a request goes by."""
        times = ((1, 30), (2, 10), (3, 20), (4, 10))
        if request_of is ExpiredRows:
            rows = [message(at, expires_at_ms=time, payload=payload) for at, time in times]
        else:
            rows = [message(at, state=SCHEDULED, due_at_ms=time, payload=payload) for at, time in times]
        orders.commit(InsertMessages(tuple(rows)))

    def test_a_read_says_which_set_it_shows(self, orders: WatchedStore) -> None:
        for sequence in range(1, 20):
            number = orders.commit(insert(sequence))
            read = orders.read(HeadRows(1, 0, MANY, MANY))
            assert (read.as_of, len(read.rows)) == (number, sequence)

    @pytest.mark.parametrize(
        "request_",
        [HeadRows(5, 0, 9, 9), RangeRows(5, 0, 9, 9), NamedRows(5, (1,)), ExpiredRows(5, 9, 9, 9), DueRows(5, 9, 9, 9)],
    )
    def test_an_unknown_entity_has_no_rows(self, orders: WatchedStore, request_: RowRequest) -> None:
        read = orders.read(request_)
        assert (read.rows, read.complete, read.next_time_ms) == ((), True, None)

    # --- entities and summaries

    def test_an_entity_is_overwritten_by_its_id_and_keeps_its_rows(self, orders: WatchedStore) -> None:
        changed = entity(path="renamed", settings='{"lock": 5}')
        orders.commit(insert(1), PutEntity(entity(2, path="orders/$dead", parent_id=1)))
        orders.commit(PutEntity(changed))
        loaded = self.reopened(orders).loaded
        assert loaded.entities == (changed, entity(2, path="orders/$dead", parent_id=1))
        assert loaded.summaries[1].active == 1
        assert loaded.next_entity_id == 3

    def test_a_summary_shows_what_the_rows_come_to(self, orders: WatchedStore) -> None:
        orders.commit(
            InsertMessages(
                (
                    message(1, state=DEFERRED, payload=bytes(5), expires_at_ms=1),
                    message(3, payload=bytes(10), expires_at_ms=50),
                    message(4, payload=bytes(20), expires_at_ms=40),
                    message(6, state=SCHEDULED, payload=bytes(40), due_at_ms=70),
                    message(7, state=SCHEDULED, payload=bytes(80), due_at_ms=60),
                )
            ),
            PutEntity(entity(2)),
        )
        summaries = self.reopened(orders).loaded.summaries
        assert summaries[1] == EntitySummary(2, 1, 2, 155, 3, 40, 60, next_sequence=8)
        assert summaries[2] == EntitySummary(0, 0, 0, 0, None, None, None, next_sequence=1)

    def test_what_is_due_at_once_is_counted_apart_and_comes_first(self, orders: WatchedStore) -> None:
        late = message(1, state=SCHEDULED, payload=bytes(5), due_at_ms=1)
        at_once = [message(at, state=SCHEDULED, payload=bytes(at), expires_at_ms=1, due_at_ms=0) for at in (3, 4)]
        orders.commit(InsertMessages((late, *at_once)))
        assert orders.read(DueRows(1, 0, 1, MANY)).rows == (at_once[0],)
        assert orders.read(DueRows(1, 1, MANY, MANY, 0, 3)).rows == (at_once[1], late)
        assert orders.read(ExpiredRows(1, 9, MANY, MANY)).rows == ()
        found = self.reopened(orders).loaded.summaries[1]
        assert (found.scheduled, found.first_expiry_ms, found.first_due_ms) == (3, None, 0)
        assert (found.due_at_once, found.due_at_once_bytes) == (2, 7)

    def test_sequences_and_entity_ids_are_remembered_after_their_rows_are_gone(self, orders: WatchedStore) -> None:
        orders.commit(insert(1, 2, 3), PutEntity(entity(2)), PutEntity(entity(3)))
        orders.commit(DeleteMessages(1, (2, 3)), DropEntity(3))
        again = self.reopened(orders)
        assert again.loaded.summaries[1].next_sequence == 4
        assert again.loaded.next_entity_id == 4
        again.commit(DeleteMessages(1, (1,)))
        assert self.reopened(again).loaded.summaries[1].next_sequence == 4

    def test_a_dropped_entity_and_its_rows_are_gone_at_once(self, orders: WatchedStore) -> None:
        orders.commit(*(insert(*range(at, at + 100)) for at in range(1, 3001, 100)))
        orders.commit(PutEntity(entity(2)), insert(1, entity_id=2))
        orders.commit(DropEntity(1))
        assert orders.read(RangeRows(1, 0, MANY, MANY)).rows == ()
        assert orders.read(NamedRows(1, (1, 2))).rows == ()
        again = self.reopened(orders)
        assert [row.entity_id for row in again.loaded.entities] == [2]
        assert list(again.loaded.summaries) == [2]
        assert sequences_of(again.read(RangeRows(2, 0, MANY, MANY))) == [1]

    def contents(self, watched: WatchedStore) -> list[tuple[MessageRow, ...]]:
        return [watched.read(RangeRows(entity_id, 0, MANY, MANY)).rows for entity_id in (1, 2)]
