"""The line of held sends beside a plain list."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from seeds import examples

from twinbus.pairing.entity import Line
from twinbus.pairing.rules import Rules

COUNT_MAX, BYTES_MAX = 4, 100
SIZES = st.sampled_from([0, 1, 30, 50, 100, 101])


class LineBesideModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.tickets = count(1)
        self.line = Line(Rules(hold_count_max=COUNT_MAX, hold_bytes_max=BYTES_MAX), self.tickets)
        self.model: list[tuple[int, int]] = []

    @rule(size=SIZES)
    def somebody_wants_to_wait(self, size: int) -> None:
        held = sum(size for _, size in self.model)
        has_room = len(self.model) < COUNT_MAX and held + size <= BYTES_MAX
        assert self.line.has_room_for(size) == has_room
        if has_room:
            ticket = self.line.join(size)
            assert ticket not in dict(self.model)
            self.model.append((ticket, size))

    @rule()
    def a_ticket_is_given_elsewhere(self) -> None:
        next(self.tickets)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model) - 1))
        ticket, _ = self.model.pop(place)
        is_called = place == 0 and self.model
        assert self.line.leave(ticket) == (self.model[0][0] if is_called else None)

    @rule()
    def somebody_leaves_who_is_not_there(self) -> None:
        assert self.line.leave(next(self.tickets)) is None

    @invariant()
    def the_line_is_the_list(self) -> None:
        assert len(self.line) == len(self.model)
        assert self.line.bytes == sum(size for _, size in self.model)
        assert self.line.head == (self.model[0][0] if self.model else None)


TestLineBesideModel = LineBesideModel.TestCase
TestLineBesideModel.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
