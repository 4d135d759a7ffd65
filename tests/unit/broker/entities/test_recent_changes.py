"""What a read may not have seen."""

from __future__ import annotations

from twinbus.broker.entities.recent_changes import RecentChanges
from twinbus.broker.store.api import HeadRows, NamedRows

HEAD = HeadRows(1, 1, 10, 1_000)
NAMED = NamedRows(1, (5,))


def test_a_change_is_unknown_only_to_reads_of_an_earlier_moment() -> None:
    recent = RecentChanges(committed=3)
    recent.note_change(5, number=4)
    assert recent.changed_since(5, as_of=3)
    assert not recent.changed_since(5, as_of=4)
    assert not recent.changed_since(6, as_of=3)
    assert not recent.removed_since(5, as_of=3)
    assert recent.changed_at(5) == 4


def test_a_removal_is_a_change_too() -> None:
    recent = RecentChanges(committed=3)
    recent.note_removal(5, number=4)
    assert recent.changed_since(5, as_of=3)
    assert recent.removed_since(5, as_of=3)


def test_changes_are_forgotten_when_they_are_committed() -> None:
    recent = RecentChanges(committed=0)
    recent.note_change(5, number=1)
    recent.note_removal(6, number=2)
    recent.committed(1)
    assert len(recent) == 1
    recent.committed(2)
    assert len(recent) == 0
    assert recent.changed_at(5) == 0


def test_a_later_change_of_the_same_row_is_kept() -> None:
    recent = RecentChanges(committed=0)
    recent.note_change(5, number=1)
    recent.note_change(5, number=2)
    recent.committed(1)
    assert recent.changed_since(5, as_of=1)


def test_changes_are_kept_while_a_read_may_be_older() -> None:
    recent = RecentChanges(committed=1)
    recent.read_began(HEAD)
    recent.note_removal(5, number=2)
    recent.committed(2)
    assert recent.removed_since(5, as_of=1)
    recent.read_ended(HEAD)
    assert len(recent) == 0


def test_of_equal_reads_the_oldest_counts_until_the_last_has_ended() -> None:
    recent = RecentChanges(committed=1)
    recent.read_began(NAMED)
    recent.note_change(5, number=2)
    recent.committed(2)
    recent.read_began(NAMED)
    recent.read_ended(NAMED)  # perhaps the second: the first may still show the row as it was
    assert recent.is_reading(NAMED)
    assert recent.changed_since(5, as_of=1)
    recent.read_ended(NAMED)
    assert not recent.is_reading(NAMED)
    assert len(recent) == 0


class Compared(NamedRows):
    """A read that counts how often it is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return tuple.__eq__(self, other)

    __hash__ = NamedRows.__hash__


def test_one_of_many_reads_is_found_without_looking_at_the_others() -> None:
    recent = RecentChanges(committed=1)
    reads = [Compared(1, (number,)) for number in range(1_000)]
    for read in reads:
        recent.read_began(read)
    recent.note_change(5, number=2)
    recent.committed(2)
    for read in reads:
        assert recent.changed_since(5, as_of=1)
        assert recent.is_reading(read)
        recent.read_ended(read)
    assert Compared.comparisons < 10 * len(reads)
    assert len(recent) == 0
