"""Whether a proxy can do its work, and why not: the answer to a readiness probe."""

from __future__ import annotations

from typing import NamedTuple

from twinbus.client.reporting.status import EntityState, Phase, Status


class Readiness(NamedTuple):
    is_ready: bool
    """Whether messages that are sent now can be stored somewhere."""
    reason: str
    """Why not, or what is wrong although it is ready; empty: nothing is wrong."""


def readiness(status: Status) -> Readiness:
    """An outage of one namespace is what a proxy is for: it is ready. Without any place for messages it is not."""
    if status.phase is Phase.FAULTED:
        return Readiness(False, f"the pair has ended: {status.fault}")
    if status.phase is not Phase.PAIRED:
        return Readiness(False, status.phase.value)
    spool, away = status.spool, _why_secondary_is_away(status)
    failed = [entity for entity in status.entities if entity.state is EntityState.FAILED_OVER]
    reasons = [f"{entity.entity} is failed over: {entity.reason}" for entity in failed]
    reasons += [f"{each.entity} fails: {each.reason}" for each in status.entities if each.state is EntityState.SUSPECT]
    reasons += [
        f"cannot {each.ability.value} {each.path}: {each.reason}" for each in status.abilities if not each.works
    ]
    reasons += [away] if away else []
    if spool is not None:
        reasons += [f"the spool {spool.folder} takes nothing: {spool.reason}"] if spool.reason else []
        reasons += spool.problems
    has_place = not (failed and away) or (spool is not None and not spool.reason)
    return Readiness(has_place, "; ".join(reasons))


def _why_secondary_is_away(status: Status) -> str:
    secondary = status.secondary_status
    if secondary.unreachable_since is not None:
        return f"the secondary cannot be reached: {secondary.unreachable_reason}"
    lost = [queue for queue in status.backlog_queues if not queue.in_rotation]
    if status.backlog_queues and len(lost) == len(status.backlog_queues):
        return f"no backlog queue can be used: {lost[0].reason}"
    return ""
