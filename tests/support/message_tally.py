"""What an application knows of its messages when its namespace is gone from one moment to the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass
class MessageTally:
    """Names of messages. What was asked and not answered is in doubt: it may have happened, wholly or not at all."""

    sent: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    """The send was answered."""
    ending: set[str] = field(default_factory=set)
    """Somebody asked to complete or cancel it."""
    ended: set[str] = field(default_factory=set)
    """And was answered."""
    sends: list[frozenset[str]] = field(default_factory=list)
    """Names that were sent together."""

    def began(self, names: Collection[str]) -> None:
        self.sent.update(names)
        self.sends.append(frozenset(names))

    @property
    def must_be_there(self) -> set[str]:
        return self.stored - self.ending

    @property
    def may_be_there(self) -> set[str]:
        return self.sent - self.ended

    def check(self, found: Sequence[str]) -> None:
        """Everything promised is there, once; nothing else; no send was written in part."""
        there = set(found)
        assert self.must_be_there - there == set(), "acknowledged and lost"
        assert there - self.may_be_there == set(), "nobody sent it, or it came back after its end"
        assert len(found) == len(there), "there twice"
        for names in self.sends:
            if names.isdisjoint(self.ending):
                assert names & there in (frozenset(), names), f"a send was written in part: {sorted(names & there)}"


def assert_in_order(found: Sequence[str]) -> None:
    """Names are numbers in the order in which they were sent."""
    assert list(found) == sorted(found, key=lambda name: [int(part) for part in name.split("-")]), "out of order"
