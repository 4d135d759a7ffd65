"""`twinbus pair`: make two namespaces ready for the first outage, or say what has to be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from twinbus.cli.arguments.common_options import AsJson, Timeout, timeout_s
from twinbus.cli.arguments.completion import named_in
from twinbus.cli.arguments.namespaces import is_host, reach
from twinbus.cli.arguments.option_groups import PairArguments, PreparedBacklogArguments
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, note, say
from twinbus.cli.progress_bar import ProgressBar
from twinbus.client.setup.roles import NEEDS, PairRole, Place, RoleCheck, RoleFit, Trial, by_right
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import first_few

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.client.setup.plan import Plan
    from twinbus.client.setup.preparation import Preparation

NOT_EXACT = "with --role: more rights than needed, or some could not be tried"


def pair(
    namespaces: PairArguments,
    backlog: PreparedBacklogArguments,
    syphon: Annotated[
        bool,
        typer.Option(
            "--syphon",
            help="A syphon runs with these keys: prove what it needs, Listen on the backlog queues; Send there is "
            "tried and shown.",
        ),
    ] = False,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A queue or topic of the primary to look at: for duplicates, with --role for rights. Repeat for more.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            autocompletion=named_in("client.setup.roles", "PairRole"),
            help="Create nothing; check that the credentials have exactly the rights of this role: sender, syphon or "
            "monitor. Name the primary's entities with --entity.",
        ),
    ] = None,
    board: Annotated[
        bool,
        typer.Option(
            "--board",
            help="The board of the pair, on which processes say how they are doing: create it where it is missing, and "
            "prove that it can be posted on.",
        ),
    ] = False,
    secondary_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --emit: the secondary's name.")
    ] = None,
    timeout: Timeout = "5s",
    emit: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL",
            autocompletion=named_in("cli.provisioning", "TOOLS"),
            help="Connect to nothing; print what an administrator has to create, for bicep, terraform or cli (Azure "
            "CLI).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find or create the backlog queues, prove that they work, and say what is wrong.

    This is what an application does when it pairs, tried in advance. Missing backlog queues are created on the
    secondary (which needs Manage), a link is opened to each of them and closed again, no message is sent. Doing it
    again changes nothing. The primary may be down. What the credential is seen to be allowed is in the result: an
    application that sends needs Send, a syphon needs Listen, an application with a syphon needs both.

    With --role nothing is created. Every right is tried on both sides, and the result says what the role lacks (exit
    code 1), and what is more than it needs or could not be tried (exit code 3).

    \b
    Examples:
      twinbus pair --primary "$PRIMARY" --secondary "$SECONDARY"
      twinbus pair --no-create --syphon --json
      twinbus pair --role sender --entity orders
      twinbus pair --emit bicep --primary-name contoso --secondary-name backup
    """
    if emit is not None:
        if as_json:
            raise OptionsError("--emit prints a file for a tool: leave --json out")
        names = (
            _name_of_side("primary", backlog.primary_name, namespaces),
            _name_of_side("secondary", secondary_name, namespaces),
        )
        say(_emit(emit, *names, backlog.queues, has_board=board), nl=False)
        return
    from twinbus.client.setup.administration import plan_for
    from twinbus.client.sync.provisioner import BacklogProvisioner

    if role is not None and (syphon or backlog.no_create):
        raise OptionsError("--role creates nothing and says what is needed: leave --syphon and --no-create out")
    wanted = None if role is None else _role(role)
    here, there = namespaces.both()
    plan = plan_for(
        here,
        there,
        primary_name=None if backlog.primary_name is None else _check_name(backlog.primary_name),
        queue_count=backlog.queues,
        creates=not backlog.no_create,
        listens=syphon,
        sends=not syphon,
        entities=entity or (),
        has_board=board,
    )
    attempt_s = timeout_s(timeout)
    if wanted is not None:
        raise typer.Exit(_check_role(wanted, here, there, plan, attempt_s, as_json=as_json))
    with (
        ProgressBar("trying the backlog queues"),
        BacklogProvisioner(here, there, attempt_s=attempt_s) as provisioner,
    ):
        prepared = provisioner.prepare(plan)
    say(json_text(result(plan, prepared)) if as_json else result_text(plan, prepared))
    if not as_json:
        for warning in prepared.warnings:
            note(f"warning: {warning}")


def _role(text: str) -> PairRole:
    try:
        return PairRole(text)
    except ValueError:
        raise OptionsError(f"--role must be {', '.join(PairRole)}, got {text!r}") from None


def _check_role(
    role: PairRole, here: Namespace, there: Namespace, plan: Plan, attempt_s: float, *, as_json: bool
) -> ExitCode:
    from twinbus.client.setup import findings
    from twinbus.client.setup.rights_check import check_role

    problem = findings.plan_problem(plan)
    if problem is not None:
        raise TwinbusError(problem)
    board = [plan.board_path] if plan.has_board else []
    with ProgressBar("trying every right"):
        found = check_role(role, here, there, plan.entities, list(plan.paths.values()), board, attempt_s=attempt_s)
    say(json_text(role_document(plan, found)) if as_json else role_text(plan, found))
    return role_exit_code(found)


def result(plan: Plan, prepared: Preparation) -> dict[str, Any]:
    """What was found, for programs."""
    return {
        "primary": {"name": plan.primary_name, "address": plan.primary_address},
        "secondary": {"name": plan.secondary_name, "address": plan.secondary_address},
        "backlog_queue_count": len(prepared.found),
        "usable": [plan.paths[index] for index in prepared.queues],
        "rights": [right.value for right in prepared.rights],
        "created": [plan.paths[index] for index in prepared.created],
        "lost": {plan.paths[index]: str(failure) for index, failure in prepared.lost.items()},
        "board": prepared.board or None,
        "duplicate_detection": dict(prepared.duplicate_detection),
        "warnings": list(prepared.warnings),
    }


def result_text(plan: Plan, prepared: Preparation) -> str:
    folder = plan.paths[0].rpartition("/")[0]
    lines = [
        f"primary    {plan.primary}",
        f"secondary  {plan.secondary}",
        f"backlog    {len(prepared.queues)} of {plan.queue_count} queues can be used, {len(prepared.created)} of them "
        f"new: {folder}/0..{plan.queue_count - 1}",
        f"rights     {', '.join([right.value for right in prepared.rights])} on the backlog queues",
    ]
    if prepared.board:
        lines.append(f"board      {prepared.board}: {plan.board_path}")
    words = ", ".join(f"{word} for {entity}" for entity, word in prepared.duplicate_detection.items())
    if words:
        lines.append(f"duplicate detection: {words}")
    return "\n".join(lines)


def _emit(tool: str, primary: str | None, secondary: str | None, count: int, *, has_board: bool) -> str:
    from twinbus.cli.provisioning import emit
    from twinbus.cli.provisioning.templates import ProvisioningRequest

    if primary is None:
        raise OptionsError("which primary? give --primary-name NAME, or --primary with a name in it")
    if secondary is not None and primary.lower() == secondary.lower():
        raise OptionsError(f"primary and secondary are both called {primary}: a backlog belongs in another namespace")
    named = None if secondary is None else _check_name(secondary)
    return emit(tool, ProvisioningRequest(_check_name(primary), named, count, has_board))


def _name_of_side(side: str, name: str | None, namespaces: PairArguments) -> str | None:
    """The name of one side, if known; a connection string is read for its name only."""
    choice = None if name is not None else namespaces.choose(side)
    if choice is None:
        return name
    return choice.text.partition(".")[0] if is_host(choice.text) else reach(choice).name


def _check_name(name: str) -> str:
    """The name of a namespace as it is; raises `OptionsError` if it is none."""
    from twinbus.options import NAMESPACE_NAME

    if not NAMESPACE_NAME.fullmatch(name):
        raise OptionsError(f"a namespace name has letters, digits and hyphens, 2 to 50 of them, got {name!r}")
    return name


PATHS_SHOWN = 3


def role_document(plan: Plan, found: RoleCheck) -> dict[str, Any]:
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


def role_text(plan: Plan, found: RoleCheck) -> str:
    """For people: one verdict, then everything that is not as it should be."""
    lines = [_verdict(found), f"primary    {plan.primary}", f"secondary  {plan.secondary}"]
    words = {Place.PRIMARY: "the primary's entities", Place.BACKLOG: "the backlog queues", Place.BOARD: "the board"}
    needs = [(place, NEEDS[found.role][place]) for place in found.places]
    lines += [f"needs      {' and '.join(sorted(rights))} on {words[place]}" for place, rights in needs]
    lines += [f"missing    {line}" for line in _lines(found.missing, with_reason=True)]
    lines += [f"too much   {line}" for line in _lines(found.excess, with_reason=False)]
    lines += [f"unknown    {line}" for line in _lines(found.unknown, with_reason=True)]
    if Place.PRIMARY in found.untried:
        lines.append("unknown    rights on the primary's entities: name them with --entity")
    return "\n".join(lines)


def _verdict(found: RoleCheck) -> str:
    match found.verdict:
        case RoleFit.EXACT:
            return f"The credentials have exactly what a {found.role} needs."
        case RoleFit.MISSING:
            return f"The credentials lack what a {found.role} needs."
        case RoleFit.EXCESS:
            return f"The credentials may do more than a {found.role} needs."
        case RoleFit.UNKNOWN:
            return f"Whether the credentials have exactly what a {found.role} needs is unknown."
        case _ as never:
            assert_never(never)


def _lines(trials: Iterable[Trial], *, with_reason: bool) -> Iterator[str]:
    for right, group in by_right(trials):
        why = f": {group[0].why}" if with_reason and group[0].why else ""
        yield f"{right} on {first_few([each.path for each in group], PATHS_SHOWN)}{why}"


def role_exit_code(found: RoleCheck) -> ExitCode:
    match found.verdict:
        case RoleFit.EXACT:
            return ExitCode.DONE
        case RoleFit.MISSING:
            return ExitCode.FAILED
        case RoleFit.EXCESS | RoleFit.UNKNOWN:
            return ExitCode.NOT_ALL
        case _ as never:
            assert_never(never)
