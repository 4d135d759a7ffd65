"""`twinbus pair`: make two namespaces ready for the first outage, or say what has to be made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.completion import one_of, roles, tools
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.json_form import json_text
from twinbus.cli.namespaces import (
    AsJson,
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    check_count,
    choose,
    is_host,
    reach,
    seconds,
)
from twinbus.cli.say import note, say
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.client.plan import Plan
    from twinbus.client.preparation import Preparation
    from twinbus.client.roles import Role

NOT_EXACT = "with --role: more rights than needed, or some could not be tried"


def pair(
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Use the backlog queues that exist, and create none: needs no Manage.")
    ] = False,
    syphon: Annotated[
        bool,
        typer.Option(
            "--syphon", help="Prove what a syphon needs, Listen on the backlog queues; Send there is tried and told."
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
            autocompletion=one_of(roles),
            help="Create nothing; check that the credentials have exactly what this role needs: sender, syphon or "
            "monitor. Name the primary's entities with --entity.",
        ),
    ] = None,
    primary_name: PrimaryName = None,
    secondary_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --emit: what the secondary is called.")
    ] = None,
    timeout: Timeout = "5s",
    emit: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL",
            autocompletion=one_of(tools),
            help="Contact nobody; print what an administrator has to create, for bicep, terraform or cli (Azure CLI).",
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
    check_count(count)
    if emit is not None:
        if as_json:
            raise OptionsError("--emit prints a file for a tool: leave --json out")
        names = _known("primary", primary_name, primary, config), _known("secondary", secondary_name, secondary, config)
        say(_emitted(emit, *names, count), nl=False)
        return
    from twinbus.client.secretary import Secretary, plan_for

    if role is not None and (syphon or no_create):
        raise OptionsError("--role creates nothing and says what is needed: leave --syphon and --no-create out")
    wanted = None if role is None else _role(role)
    here, there = both(primary, secondary, config, credential)
    plan = plan_for(
        here,
        there,
        primary_name=None if primary_name is None else _name(primary_name),
        queue_count=count,
        creates=not no_create,
        listens=syphon,
        sends=not syphon,
        entities=entity or (),
    )
    secretary_s = seconds("--timeout", timeout)
    if wanted is not None:
        raise typer.Exit(_check_role(wanted, here, there, plan, secretary_s, as_json=as_json))
    with Bar("trying the backlog queues"), Secretary(here, there, attempt_s=secretary_s) as secretary:
        prepared = secretary.prepare(plan)
    say(json_text(result(plan, prepared)) if as_json else result_text(plan, prepared))
    if not as_json:
        for warning in prepared.warnings:
            note(f"warning: {warning}")


def _role(text: str) -> Role:
    from twinbus.client.roles import Role

    try:
        return Role(text)
    except ValueError:
        raise OptionsError(f"--role must be {', '.join(Role)}, got {text!r}") from None


def _check_role(
    role: Role, here: Namespace, there: Namespace, plan: Plan, attempt_s: float, *, as_json: bool
) -> ExitCode:
    from twinbus.cli import role_text
    from twinbus.client import findings
    from twinbus.client.rights_check import check_role

    problem = findings.plan_problem(plan)
    if problem is not None:
        raise TwinbusError(problem)
    with Bar("trying every right"):
        found = check_role(role, here, there, plan.entities, list(plan.paths.values()), attempt_s=attempt_s)
    say(json_text(role_text.document(plan, found)) if as_json else role_text.text(plan, found))
    return role_text.exit_code(found)


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
    words = (f"{entity} {word}" for entity, word in prepared.duplicate_detection.items())
    if prepared.duplicate_detection:
        lines.append(f"duplicates {', '.join(words)}")
    return "\n".join(lines)


def _emitted(tool: str, primary: str | None, secondary: str | None, count: int) -> str:
    from twinbus.cli.provisioning import emit
    from twinbus.cli.provisioning.order import Order

    if primary is None:
        raise OptionsError("whose backlog? give --primary-name NAME, or --primary with a name in it")
    if secondary is not None and primary.lower() == secondary.lower():
        raise OptionsError(f"primary and secondary are both called {primary}: a backlog belongs in another namespace")
    return emit(tool, Order(_name(primary), None if secondary is None else _name(secondary), count))


def _known(side: str, name: str | None, given: str | None, config: Path | None) -> str | None:
    """The name of one side, if anybody said it; a connection string is looked at for its name only."""
    choice = None if name is not None else choose(side, given, config)
    if choice is None:
        return name
    return choice.text.partition(".")[0] if is_host(choice.text) else reach(choice).name


def _name(name: str) -> str:
    """The name of a namespace as it is; raises `OptionsError` if it is none."""
    from twinbus.options import NAMESPACE_NAME

    if not NAMESPACE_NAME.fullmatch(name):
        raise OptionsError(f"a namespace name has letters, digits and hyphens, 2 to 50 of them, got {name!r}")
    return name
