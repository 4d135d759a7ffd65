"""Members that can be reached as long as somebody else has them, from any thread."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Member = TypeVar("Member")


class WeakRegister(Generic[Member]):
    """May be added to, and forget what is gone, while another thread looks.

    A `WeakSet` may not: iterating raises if it changes. Here the references are copied in one step, which
    needs no lock; a lock could not be taken anyway where things are forgotten, because that may happen in the middle of
    anything.
    """

    def __init__(self) -> None:
        self._members: WeakValueDictionary[int, Member] = WeakValueDictionary()

    def add(self, member: Member) -> None:
        self._members[id(member)] = member

    def all(self) -> list[Member]:
        """Those that are there now."""
        return [member for each in self._members.valuerefs() if (member := each()) is not None]
