"""Room in subscriptions for what waits in line in their topic.

When it is handed on nobody is left who could be told that there is no room, so that is found out before it is taken.
Mostly every subscription has room for all of it. Of one that has not, the rules are asked what it will get.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from twinbus.errors import QuotaExceeded
from twinbus.namespace.entities.copies import Plan, Published, choose
from twinbus.namespace.entities.matching import Matcher
from twinbus.namespace.entities.subscription import Subscription
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Step
from twinbus.namespace.view import TopicMessage

LONG_STEPS = 4
"""Rules are asked for as long as so many steps may take."""

Found = TypeVar("Found")
Numbered = tuple[int, Arrival]


class Coming:
    """How much a subscription gets, at most, of what is in line."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known: dict[int, int] = {}
        """By entity id, for those whose rules were asked. Others may get all that is in line."""
        self._version = matcher.version

    def take(
        self,
        arrivals: Sequence[Numbered],
        publish: Callable[[Arrival], Published],
        in_line_bytes: int,
        subscriptions: Iterable[Subscription],
        step: Step,
    ) -> None:
        """Count messages that are to line up behind so many bytes. `publish` makes of one what rules look at.

        Raises `QuotaExceeded`, and has counted nothing, if a subscription has no room for what it may get of them.
        """
        if not in_line_bytes or self._version != self._matcher.version:
            self._known, self._version = {}, self._matcher.version
        new_bytes = sum([len(arrival.payload) for _, arrival in arrivals])
        known: dict[int, int] = {}
        for subscription in subscriptions:
            entity_id, copies = subscription.entity_id, self._matcher.copies_most(subscription)
            before = min(in_line_bytes * copies, self._known.get(entity_id, in_line_bytes * copies))
            room, added = subscription.size_bytes_max - subscription.stored_bytes - before, new_bytes * copies
            if added > room:
                known[entity_id] = before + self._asked(subscription, arrivals, publish, before, room, step)
            elif entity_id in self._known:
                known[entity_id] = before + added
        self._known |= known

    def _asked(
        self,
        subscription: Subscription,
        arrivals: Sequence[Numbered],
        publish: Callable[[Arrival], Published],
        before: int,
        room: int,
        step: Step,
    ) -> int:
        """How many bytes a subscription gets by its rules; raises `QuotaExceeded` if that is more than `room`."""
        rules, added = self._matcher.only(subscription), 0
        for sequence, arrival in arrivals:
            message = publish(arrival)
            view = TopicMessage(message.payload, sequence, message.enqueued_at_ms, message.ttl_ms)
            if any(_done(rules.select(view), step)):
                copies = chain.from_iterable(_done(choose(rules, sequence, message), step))
                added += sum([len(copy.message.payload) for copy in copies])
            if added > room:
                raise QuotaExceeded(
                    f"{_state_of(subscription, before)}, and {added} or more were sent; "
                    f"receive messages or raise its maximum size"
                )
            if step.work > LONG_STEPS * step.work_max:
                raise QuotaExceeded(
                    f"{_state_of(subscription, before)}, and it would take too long to find out how much of what was "
                    f"sent goes there: send fewer messages at a time, receive some or raise its maximum size"
                )
        return added

    def handed_on(self, plan: Plan) -> None:
        """A message is in line no longer: it is where it goes."""
        for copy in plan.copies if self._known else ():
            known = self._known.get(copy.subscription.entity_id)
            if known is not None:
                self._known[copy.subscription.entity_id] = max(0, known - len(copy.message.payload))


def _done(work: Generator[float, None, Found], step: Step) -> Found:
    """What comes of work that is not put off."""
    while True:
        try:
            step.work += next(work)
        except StopIteration as end:
            found: Found = end.value
            return found


def _state_of(subscription: Subscription, before: int) -> str:
    path, stored, limit = subscription.row.path, subscription.stored_bytes, subscription.size_bytes_max
    return f"'{path}' is nearly full: it holds {stored} bytes of at most {limit}, up to {before} are on their way"
