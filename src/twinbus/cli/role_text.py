"""What `twinbus pair --role` says of two credentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, assert_never

from twinbus.cli.exit_codes import ExitCode
from twinbus.client.roles import NEEDS, Place, Role, RoleCheck, Trial, Verdict, by_right

if TYPE_CHECKING:
    from twinbus.client.plan import Plan

PATHS_SHOWN = 3


def document(plan: Plan, found: RoleCheck) -> dict[str, Any]:
    """For programs."""
    return {
        "role": found.role.value,
        "verdict": found.verdict.value,
        "primary": {"name": plan.primary_name, "address": plan.primary_address},
        "secondary": {"name": plan.secondary_name, "address": plan.secondary_address},
        "missing": [_trial(each) for each in found.missing],
        "excess": [_trial(each) for each in found.excess],
        "unknown": [_trial(each) for each in found.unknown],
        "untried": [place.value for place in found.untried],
        "tried": len(found.trials),
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {"place": trial.place.value, "entity": trial.path, "right": trial.right.value, "why": trial.why}


def text(plan: Plan, found: RoleCheck) -> str:
    """For people: one verdict, then everything that is not as it should be."""
    lines = [_verdict(found), f"primary    {plan.primary}", f"secondary  {plan.secondary}"]
    lines += [f"needs      {needed}" for needed in _needs(found.role)]
    lines += [f"missing    {line}" for line in _lines(found.missing, with_reason=True)]
    lines += [f"too much   {line}" for line in _lines(found.excess, with_reason=False)]
    lines += [f"unknown    {line}" for line in _lines(found.unknown, with_reason=True)]
    if Place.PRIMARY in found.untried:
        lines.append("unknown    rights on the primary's entities: name them with --entity")
    return "\n".join(lines)


def _verdict(found: RoleCheck) -> str:
    match found.verdict:
        case Verdict.EXACT:
            return f"The credentials have exactly what a {found.role} needs."
        case Verdict.MISSING:
            return f"The credentials lack what a {found.role} needs."
        case Verdict.EXCESS:
            return f"The credentials may do more than a {found.role} needs."
        case Verdict.UNKNOWN:
            return f"Whether the credentials have exactly what a {found.role} needs is unknown."
        case _ as never:
            assert_never(never)


def _needs(role: Role) -> Iterator[str]:
    words = {Place.PRIMARY: "the primary's entities", Place.BACKLOG: "the backlog queues"}
    for place, right in NEEDS[role].items():
        yield f"{right} on {words[place]}"


def _lines(trials: Iterable[Trial], *, with_reason: bool) -> Iterator[str]:
    for right, group in by_right(trials):
        named = ", ".join([each.path for each in group[:PATHS_SHOWN]])
        more = f" and {len(group) - PATHS_SHOWN:,} more" if len(group) > PATHS_SHOWN else ""
        why = f": {group[0].why}" if with_reason and group[0].why else ""
        yield f"{right} on {named}{more}{why}"


def exit_code(found: RoleCheck) -> ExitCode:
    match found.verdict:
        case Verdict.EXACT:
            return ExitCode.DONE
        case Verdict.MISSING:
            return ExitCode.FAILED
        case Verdict.EXCESS | Verdict.UNKNOWN:
            return ExitCode.NOT_ALL
        case _ as never:
            assert_never(never)
