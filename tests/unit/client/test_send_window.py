"""What is on its way on one link: answered once, in order, and waited for no longer than it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import pytest
from fake_link import FakeLink, rejected

from twinbus.amqp.codec.outcomes import RELEASED, Received
from twinbus.client.native.send_window import WINDOW_BYTES_MAX, PendingTransfer, SendWindow
from twinbus.errors import ConditionError
from twinbus.pairing.sending.failure import Failure, FailureKind

ATTEMPT_S = 5.0


class Noted(PendingTransfer):
    """Notes what became of it."""

    def __init__(self, name: str, at: float, size: int = 100) -> None:
        super().__init__(size, at)
        self.name = name
        self.ends: list[tuple[float, Failure | None]] = []

    def stored(self, at: float) -> None:
        self.ends.append((at, None))

    def failed(self, failure: Failure, at: float) -> None:
        self.ends.append((at, failure))

    @property
    def failure(self) -> Failure:
        (end,) = self.ends
        assert end[1] is not None
        return end[1]


class Scene:
    def __init__(self, credit: int = 1_000) -> None:
        self.link = FakeLink(credit)
        self.looks: list[float] = []
        self.window = SendWindow("orders", self.link.as_link, ATTEMPT_S, 100.0, self.looks.append)

    def send(self, name: str, at: float, size: int = 100) -> Noted:
        transfer = Noted(name, at, size)
        self.window.send(name.encode(), 0, transfer)
        return transfer

    @property
    def sent(self) -> list[str]:
        return [payload.decode() for payload, _ in self.link.sent]


def test_each_transfer_is_answered_once_with_what_the_peer_said() -> None:
    scene = Scene()
    transfers = [scene.send(name, 100.0) for name in "abc"]
    scene.link.answer(scene.window, 101.0, 0, 2)
    scene.link.answer(scene.window, 102.0, 1, outcome=rejected("com.microsoft:entity-disabled"))
    scene.link.answer(scene.window, 103.0, 0, 1, 2)
    assert transfers[0].ends == transfers[2].ends == [(101.0, None)]
    failure = transfers[1].failure
    assert (failure.kind, failure.condition, failure.in_doubt) == (
        FailureKind.DISABLED,
        "com.microsoft:entity-disabled",
        False,
    )
    assert isinstance(failure.error, ConditionError)
    assert scene.window.is_empty


@pytest.mark.parametrize(
    ("outcome", "kind", "in_doubt"),
    [
        (rejected("com.microsoft:timeout"), FailureKind.TIMED_OUT, True),
        (rejected("com.microsoft:server-busy"), FailureKind.BUSY, False),
        (RELEASED, FailureKind.INTERNAL, False),
        (None, FailureKind.INTERNAL, False),
    ],
)
def test_only_a_time_out_leaves_in_doubt_whether_it_is_stored(
    outcome: object, kind: FailureKind, in_doubt: bool
) -> None:
    scene = Scene()
    transfer = scene.send("a", 100.0)
    scene.link.answer(scene.window, 101.0, 0, outcome=outcome)  # type: ignore[arg-type]
    assert (transfer.failure.kind, transfer.failure.in_doubt) == (kind, in_doubt)


def test_how_far_a_delivery_got_is_no_answer() -> None:
    scene = Scene()
    transfer = scene.send("a", 100.0)
    scene.link.answer(scene.window, 101.0, 0, outcome=Received(0, 0), settled=False)
    assert transfer.ends == []


def test_without_credit_transfers_wait_in_their_order() -> None:
    scene = Scene(credit=2)
    transfers = [scene.send(name, 100.0) for name in "abcd"]
    assert scene.sent == ["a", "b"]
    scene.link.credit = 1
    scene.window.fill(101.0)
    transfers.append(scene.send("e", 101.0))
    assert scene.sent == ["a", "b", "c"]
    scene.link.credit = 5  # and nobody has said so yet
    transfers.append(scene.send("f", 101.0))
    assert scene.sent == ["a", "b", "c"]
    scene.link.answer(scene.window, 102.0, 0, 1, 2)
    assert scene.sent == ["a", "b", "c", "d", "e", "f"]
    scene.link.answer(scene.window, 103.0, 3, 4, 5)
    assert [each.ends[0][1] for each in transfers] == [None] * 6


def test_no_more_bytes_are_on_their_way_than_are_answered_soon() -> None:
    scene = Scene()
    for name in "abc":
        scene.send(name, 100.0, size=WINDOW_BYTES_MAX // 2)
    assert scene.sent == ["a", "b"]
    scene.link.answer(scene.window, 101.0, 0)
    assert scene.sent == ["a", "b", "c"]


def test_when_the_link_is_lost_what_had_left_is_in_doubt_and_what_waited_is_not() -> None:
    scene = Scene(credit=1)
    left, waited = scene.send("a", 100.0), scene.send("b", 100.0)
    scene.window.lost(Failure(FailureKind.UNREACHABLE, "gone"), 101.0)
    assert left.failure.in_doubt
    assert not waited.failure.in_doubt
    assert left.failure.error is not waited.failure.error
    assert (scene.window.is_retired, scene.window.has_ended, scene.window.count) == (True, True, 0)


def test_on_a_silent_link_each_transfer_is_given_up_when_its_time_is_over() -> None:
    scene = Scene()
    first, second = scene.send("a", 100.0), scene.send("b", 102.0)
    assert scene.looks == [105.0]
    scene.window.look(104.9)
    assert first.ends == []
    scene.window.look(105.0)
    assert (first.failure.kind, first.failure.in_doubt) == (FailureKind.NO_ANSWER, True)
    assert second.ends == []
    assert scene.window.due_at() == 107.0
    assert scene.window.is_retired
    assert scene.window.is_silent
    scene.window.look(107.0)
    assert second.failure.in_doubt
    assert scene.window.due_at() is None


def test_on_a_slow_link_that_answers_nothing_is_overdue() -> None:
    scene = Scene()
    transfers = [scene.send(f"{number}", 100.0) for number in range(10)]
    for number in range(10):
        at = 104.0 + 4 * number
        scene.window.look(at)
        scene.link.answer(scene.window, at, number)
    assert [each.ends[0][1] for each in transfers] == [None] * 10
    assert not scene.window.is_retired


def test_one_transfer_that_is_never_answered_is_noticed_among_others_that_are() -> None:
    scene = Scene()
    lost = scene.send("lost", 100.0)
    answered = []
    for number in range(1, 8):
        answered.append(scene.send(f"{number}", 100.0 + number))
        scene.link.answer(scene.window, 100.5 + number, number)
        scene.window.look(100.5 + number)
    assert (len(lost.ends), lost.ends[0][0]) == (1, 105.5)
    assert not scene.window.is_silent
    assert all(each.ends[0][1] is None for each in answered)


def test_transfers_behind_one_that_is_never_answered_may_still_be_answered() -> None:
    scene = Scene()
    lost, behind = scene.send("lost", 100.0), scene.send("behind", 104.0)
    scene.window.look(105.0)
    assert lost.failure.in_doubt
    assert scene.window.is_retired
    scene.link.answer(scene.window, 105.5, 1)
    assert behind.ends == [(105.5, None)]
    assert scene.window.is_empty


def test_those_that_wait_for_credit_are_overdue_only_if_nothing_moves() -> None:
    scene = Scene(credit=1)
    first = scene.send("a", 100.0)
    waits = [scene.send(name, 100.0) for name in "bc"]
    scene.link.answer(scene.window, 104.0, 0)
    assert first.ends == [(104.0, None)]
    assert scene.window.due_at() == 109.0
    scene.window.look(108.9)
    assert [each.ends for each in waits] == [[], []]
    scene.window.look(109.0)
    assert [(each.failure.kind, each.failure.in_doubt) for each in waits] == [(FailureKind.NO_ANSWER, False)] * 2
    assert scene.window.is_retired


def test_a_window_that_was_idle_gives_a_transfer_all_its_time() -> None:
    scene = Scene()
    scene.send("a", 100.0)
    scene.link.answer(scene.window, 100.1, 0)
    late = scene.send("b", 900.0)
    assert scene.looks == [105.0, 905.0]
    scene.window.look(904.9)
    assert late.ends == []


def test_a_link_that_is_about_to_be_reported_as_lost_takes_nothing() -> None:
    scene = Scene()
    scene.link.attached = False
    transfer = scene.send("a", 100.0)
    assert scene.sent == []
    scene.window.lost(Failure(FailureKind.UNREACHABLE, "gone"), 100.0)
    assert not transfer.failure.in_doubt


class Together(Noted):
    """Notes with which others it was stored."""

    groups: ClassVar[list[list[str]]] = []

    @classmethod
    def all_stored(cls, transfers: Sequence[Self], at: float) -> None:
        cls.groups.append([transfer.name for transfer in transfers])


def test_transfers_of_one_class_that_are_stored_together_are_told_together() -> None:
    scene = Scene()
    Together.groups.clear()
    transfers = [(Together if name in "abde" else Noted)(name, 100.0) for name in "abcdef"]
    for transfer in transfers:
        scene.window.send(transfer.name.encode(), 0, transfer)
    scene.link.answer(scene.window, 101.0, 0, 1, 2, 3, 4)
    assert Together.groups == [["a", "b"], ["d", "e"]]
    assert (transfers[2].ends, transfers[5].ends) == ([(101.0, None)], [])
    assert not scene.window.is_empty


def test_what_is_sent_after_the_link_has_ended_fails_at_once_and_is_not_in_doubt() -> None:
    """Whoever waited for a link may get it one turn of the event loop after it was lost: nobody looks at it then."""
    scene = Scene()
    scene.window.lost(Failure(FailureKind.UNREACHABLE, "connection reset"), 101.0)
    late = scene.send("late", 102.0)
    assert not late.failure.in_doubt
    assert "connection reset" in late.failure.text
    assert scene.sent == []
    assert scene.window.is_empty
    assert scene.looks == []
