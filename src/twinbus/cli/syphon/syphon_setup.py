"""What a syphon command finds out before and after a run: backlog queues, order, unknown names, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from twinbus.cli.metrics_export import PairNames
from twinbus.cli.output import note
from twinbus.cli.syphon.syphon_run import extra_text, outside_text, quarantine_text
from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.cli.arguments.option_groups import BacklogArguments
    from twinbus.client.namespace import Namespace
    from twinbus.syphon import Syphon, SyphonOptions
    from twinbus.syphon.peeking.backlog_scan import EntityCheck
    from twinbus.syphon.peeking.dry_run import DryRun
    from twinbus.syphon.peeking.queue_discovery import DiscoveredQueues, QueueDiscovery
    from twinbus.transport.dial import Dial


class SyphonEnds(NamedTuple):
    primary: Dial
    secondary: Dial
    names: PairNames
    """The primary's is the one by which the backlog queues are called."""
    queue_count: int

    def search(self, attempt_s: float) -> QueueDiscovery:
        from twinbus.syphon.peeking.queue_discovery import QueueDiscovery

        return QueueDiscovery(self.secondary, self.names.primary, self.queue_count, attempt_s=attempt_s)


def ends_of(primary: Namespace, secondary: Namespace, backlog: BacklogArguments, attempt_s: float) -> SyphonEnds:
    """Raises `OptionsError` if the primary's name is unknown."""
    names = PairNames(backlog.name_of(primary), secondary.name or secondary.address)
    return SyphonEnds(primary.dial(attempt_s), secondary.dial(attempt_s), names, backlog.queues)


async def watch_order(ends: SyphonEnds, options: SyphonOptions, queues: Sequence[int] | None) -> SyphonOptions:
    """Options with which a message stops the syphon if its order is not known; raises if one is in sight already."""
    from twinbus.syphon.peeking.backlog_scan import first_order_problem
    from twinbus.syphon.pump.pace import Pace
    from twinbus.transport.failures import ConnectionFailed

    known = range(ends.queue_count) if queues is None else queues
    over = spread_over(ends, known)
    try:
        wants, name = Pace(options, 0).wants, ends.names.primary
        problem = await first_order_problem(ends.secondary, name, known, over, wants, attempt_s=options.attempt_s)
    except ConnectionFailed:
        problem = None  # nobody answers now: the pump looks at every message anyway
    if problem is not None:
        raise not_in_order(problem)
    return replace(options, order_over=over)


def spread_over(ends: SyphonEnds, queues: Sequence[int]) -> tuple[int, ...]:
    """The queues over which senders with this count spread sessions: further ones are not among them."""
    return tuple([index for index in queues if index < ends.queue_count])


def not_in_order(problem: str) -> TwinbusError:
    from twinbus.syphon.peeking.backlog_scan import order_error

    return order_error(problem, "check --queues, or leave --order out, or choose others with --entity")


async def queues_of(ends: SyphonEnds, search: QueueDiscovery) -> Sequence[int] | None:
    """Those to empty; None if the secondary does not answer now: the syphon will wait for it."""
    from twinbus.syphon.peeking.queue_discovery import FOR_GOOD
    from twinbus.transport.failures import ConnectionFailed

    try:
        return require_queues(ends.names.primary, await search.search())
    except ConnectionFailed as error:
        if error.failure.kind in FOR_GOOD:
            raise TwinbusError(f"the secondary refuses: {error.failure}") from None
        note(f"the secondary does not answer, waiting for it: {error.failure}")
        return None


def require_queues(name: str, found: DiscoveredQueues) -> Sequence[int]:
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


async def look_through(ends: SyphonEnds, options: SyphonOptions) -> DryRun:
    """What would go where, by peeking. Raises `TwinbusError` if the secondary does not answer."""
    from twinbus.syphon.peeking.dry_run import run_dry

    search = ends.search(options.attempt_s)
    queues = await queues_of(ends, search)
    if queues is None:
        raise TwinbusError("the secondary does not answer: its backlog is unknown")
    if options.order is not None:
        options = replace(options, order_over=spread_over(ends, queues))
    latest = search.latest
    shut = () if latest is None else tuple(latest.shut)
    found = await run_dry(ends.secondary, ends.names.primary, ends.queue_count, options, queues=queues, shut=shut)
    found.doubts = list(dict.fromkeys([*([] if latest is None else latest.doubts), *found.doubts]))
    return found


async def check_names(ends: SyphonEnds, options: SyphonOptions, queues: Sequence[int] | None) -> EntityCheck | None:
    """Whether the entities that were named exist; None: all do, or nobody could look into the backlog."""
    from twinbus.syphon.peeking.backlog_scan import check_entities
    from twinbus.transport.failures import ConnectionFailed

    if not options.entities or queues is None:
        return None
    try:
        return await check_entities(
            ends.primary,
            ends.secondary,
            ends.names.primary,
            queues,
            options.entities,
            attempt_s=options.attempt_s,
        )
    except ConnectionFailed:
        return None


def unknown_text(check: EntityCheck | None, primary: str) -> str | None:
    """That names are wrong; None: none is known to be."""
    if check is None or not check.unknown:
        return None
    named = ", ".join(check.unknown)
    return (
        f"no entity {named}: {primary} has none of that name, and no message in the backlog is for it; check --entity"
    )


def unchecked_texts(check: EntityCheck | None, primary: str, met: Sequence[str]) -> list[str]:
    """Names that could not be checked; `met` are those that messages were for."""
    known = {path.casefold() for path in met}
    unchecked = {} if check is None else check.unanswered
    return [
        f"unknown whether {primary} has an entity {name}, and no message was for it: {why}"
        for name, why in unchecked.items()
        if name.casefold() not in known
    ]


def raise_if_unknown(check: EntityCheck | None, primary: str) -> None:
    text = unknown_text(check, primary)
    if text is not None:
        raise TwinbusError(text)


async def not_home(
    ends: SyphonEnds, options: SyphonOptions, syphon: Syphon
) -> tuple[int | None, int | None, str | None]:
    """How many messages that were wanted are in quarantine, and how many in the backlog are for entities that were not
    named; None if unknown, and why."""
    from twinbus.syphon.peeking.backlog_scan import count_quarantined, count_unlisted
    from twinbus.syphon.pump.pace import Pace
    from twinbus.transport.connection import NamespaceConnection
    from twinbus.transport.failures import ConnectionFailed

    pace, queues, name = Pace(options, 0), syphon.queues.indexes, ends.names.primary
    try:
        async with NamespaceConnection(ends.secondary, attempt_s=options.attempt_s) as connection:
            quarantined = await count_quarantined(connection, name, queues, pace.wants)
            is_all = options.entities is None
            return quarantined, 0 if is_all else await count_unlisted(connection, name, queues, pace.allows), None
    except ConnectionFailed as error:
        return None, None, f"unknown whether messages are in quarantine: {error.failure}"


def notes_of(quarantined: int | None, outside: int | None, extra: Sequence[int], doubts: Sequence[str]) -> list[str]:
    """Lines under the result of a run."""
    return [
        *([quarantine_text(quarantined)] if quarantined else []),
        *([outside_text(outside)] if outside else []),
        *([extra_text(extra)] if extra else []),
        *doubts,
    ]
