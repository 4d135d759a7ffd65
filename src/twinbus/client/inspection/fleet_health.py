"""What the fleet means for the verdict on a pair (X7). No clock and no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from twinbus.board.fleet import EntityInFleet, Fleet, FleetProcess, FleetVerdict
from twinbus.board.report import ProcessPhase
from twinbus.client.inspection.health import NAMES_MAX, Check, Health, Judgement
from twinbus.plain_text import first_few
from twinbus.units import rough_duration

HEALTHS = {
    FleetVerdict.FAILED_OVER: Health.FAILED_OVER,
    FleetVerdict.FAILING: Health.FAILING,
    FleetVerdict.WAITING: Health.WAITING,
    FleetVerdict.UNKNOWN: Health.UNKNOWN,
    FleetVerdict.HEALTHY: Health.HEALTHY,
}
"""The worst first: a verdict gives way to a worse one."""


def with_fleet(judgement: Judgement, fleet: Fleet, checks: frozenset[Check]) -> Judgement:
    """The verdict with what the processes of the pair say themselves. Without a board it stays as it is."""
    if Check.FLEET not in checks or fleet.has_board is False:
        return judgement
    order = list(HEALTHS.values())
    found = HEALTHS[fleet.verdict]
    is_worse = order.index(found) < order.index(judgement.health)
    said, unknown = tuple(_reasons(fleet)), tuple(_unknown(fleet))
    reasons = (*said, *judgement.reasons) if is_worse else (*judgement.reasons, *said)
    unknowns = (*judgement.unknown, *unknown)
    health = found if is_worse else judgement.health
    text = judgement.text
    if said or is_worse:
        text = "; ".join(reasons or unknowns)
    return replace(judgement, health=health, text=text, reasons=reasons, unknown=unknowns)


def _reasons(fleet: Fleet) -> Iterator[str]:
    reporting = fleet.reporting
    in_trouble = [row for row in fleet.entities() if not row.is_healthy]
    for row in in_trouble[:NAMES_MAX]:
        yield _entity_reason(row, len(reporting))
    if len(in_trouble) > NAMES_MAX:
        yield f"{len(in_trouble) - NAMES_MAX:,} more entities are in trouble for some processes"
    faulted = [each for each in reporting if each.report.phase is ProcessPhase.FAULTED]
    if faulted:
        yield f"{_processes(len(faulted))} faulted ({_named(faulted)})"
    cut_off = [each for each in reporting if each.report.secondary_down_for_s is not None]
    if cut_off:
        yield f"{_processes(len(cut_off))} cannot reach the secondary ({_named(cut_off)})"
    held = sum([each.report.held for each in reporting])
    if held:
        yield f"{held:,} sends are held"
    spooled = [each for each in reporting if each.report.spooled]
    if spooled:
        total = sum([each.report.spooled or 0 for each in spooled])
        yield f"{total:,} messages wait in spools ({_named(spooled)})"
    bringing = [each.report.syphon.left for each in reporting if each.report.syphon and each.report.syphon.left]
    if bringing:
        yield f"{max(bringing):,} messages wait, says a syphon"


def _entity_reason(row: EntityInFleet, total: int) -> str:
    facts = [f"have failed over {row.entity}"] if row.failed_over else []
    count = row.failed_over or row.suspect or row.cannot_receive or row.cannot_manage
    if not facts:
        what = "send to" if row.suspect else "receive from" if row.cannot_receive else "manage"
        facts = [f"cannot {what} {row.entity}"]
    since = "" if row.longest_s is None else f" for {rough_duration(row.longest_s)}"
    why = f" ({row.reason})" if row.reason else ""
    return f"{count:,} of {total:,} processes {facts[0]}{since}{why}"


def _unknown(fleet: Fleet) -> Iterator[str]:
    if fleet.problem:
        yield f"the fleet ({fleet.problem})"
    if fleet.silent:
        count = len(fleet.silent)
        subject = "a process does that has" if count == 1 else f"{count:,} processes do that have"
        yield f"what {subject} stopped reporting ({_named(fleet.silent)})"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"


def _named(processes: list[FleetProcess] | tuple[FleetProcess, ...]) -> str:
    return first_few([f"{each.report.host} {each.report.process}" for each in processes], NAMES_MAX)
