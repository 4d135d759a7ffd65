"""The two ends of a syphon, and which backlog queues there are between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from twinbus.cli.gauges import Names
from twinbus.cli.say import note
from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.dial import Dial
    from twinbus.syphon import SyphonOptions
    from twinbus.syphon.queue_search import BacklogQueues, QueueSearch
    from twinbus.syphon.survey import Survey


class Ends(NamedTuple):
    """The two ends of a syphon."""

    primary: Dial
    secondary: Dial
    names: Names
    """The primary's is the one by which the backlog queues are called."""
    queue_count: int

    def search(self, attempt_s: float) -> QueueSearch:
        """Who looks for backlog queues."""
        from twinbus.syphon.queue_search import QueueSearch

        return QueueSearch(self.secondary, self.names.primary, self.queue_count, attempt_s=attempt_s)


async def watchful(ends: Ends, options: SyphonOptions, queues: Sequence[int] | None) -> SyphonOptions:
    """Options with which a message stops the syphon if its order is not known; raises if one is in sight already."""
    from twinbus.syphon.linked import LineFailed
    from twinbus.syphon.order_check import first_order_problem
    from twinbus.syphon.pace import Pace

    known = range(ends.queue_count) if queues is None else queues
    over = spread_over(ends, known)
    try:
        wants, name = Pace(options, 0).wants, ends.names.primary
        problem = await first_order_problem(ends.secondary, name, known, over, wants, attempt_s=options.attempt_s)
    except LineFailed:
        problem = None  # nobody answers now: the pump looks at every message anyway
    if problem is not None:
        raise not_in_order(problem)
    return replace(options, order_over=over)


def spread_over(ends: Ends, queues: Sequence[int]) -> tuple[int, ...]:
    """The queues over which senders with this count spread sessions: further ones are not among them."""
    return tuple([index for index in queues if index < ends.queue_count])


def not_in_order(problem: str) -> TwinbusError:
    from twinbus.syphon.order_check import order_refused

    return order_refused(problem, "check --queues, or leave --order out, or choose others with --entity")


async def queues_of(ends: Ends, search: QueueSearch) -> Sequence[int] | None:
    """Those to empty; None if the secondary does not answer yet."""
    found = await _present(search)
    return None if found is None else usable(ends.names.primary, found)


async def _present(search: QueueSearch) -> BacklogQueues | None:
    """Which queues are there; None if the secondary does not answer now: the syphon will wait for it."""
    from twinbus.syphon.linked import LineFailed
    from twinbus.syphon.queue_search import FOR_GOOD

    try:
        return await search.look()
    except LineFailed as error:
        if error.failure.kind in FOR_GOOD:
            raise TwinbusError(f"the secondary refuses: {error.failure}") from None
        note(f"the secondary does not answer, waiting for it: {error.failure}")
        return None


def usable(name: str, found: BacklogQueues) -> Sequence[int]:
    """The queues to empty; raises `TwinbusError` if there is none."""
    if found.queues:
        if found.missing:
            index, failure = next(iter(found.missing.items()))
            more = f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""
            note(f"backlog queue {index}{more} cannot be read: {failure}")
        for doubt in found.doubts:
            note(doubt)
        return found.queues
    failure = next(iter(found.missing.values()))
    hint = "is --primary-name right, and has anybody paired them? see twinbus pair"
    raise TwinbusError(f"no backlog queue of {name} can be read: {failure} ({hint})")


async def look_through(ends: Ends, options: SyphonOptions) -> Survey:
    """What would go where, by peeking. Raises `TwinbusError` if the secondary does not answer."""
    from twinbus.syphon.survey import survey

    search = ends.search(options.attempt_s)
    queues = await queues_of(ends, search)
    if queues is None:
        raise TwinbusError("the secondary does not answer: nothing can be told")
    if options.order is not None:
        options = replace(options, order_over=spread_over(ends, queues))
    latest = search.latest
    shut = () if latest is None else tuple(latest.shut)
    found = await survey(ends.secondary, ends.names.primary, ends.queue_count, options, queues=queues, shut=shut)
    found.doubts = list(dict.fromkeys([*([] if latest is None else latest.doubts), *found.doubts]))
    return found
