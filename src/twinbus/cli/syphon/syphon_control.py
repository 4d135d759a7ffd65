"""`twinbus syphon list`, `pause`, `resume` and `pace`: see and steer the syphons that run on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.option_groups import EntityArguments, add_command, option
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, or_dash, say, table
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import first_few, harmless, on_one_line
from twinbus.units import rough_duration

if TYPE_CHECKING:
    from twinbus.syphon.control import PaceChange, RunningSyphon, SyphonFacts

NOT_ALL = "a syphon does not answer"
NONE_RUNS = "no syphon of this user runs on this machine"

SyphonIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SYPHON]...",
        help="An id, as `syphon list` shows it; a process; or a primary: all of its syphons.  [default: all]",
    ),
]


def find(names: Sequence[str] | None) -> list[RunningSyphon]:
    """Raises `OptionsError` if there is none of one name, `TwinbusError` if none runs at all."""
    from twinbus.syphon.control import choose, running_syphons

    found = running_syphons()
    if names:
        return choose(found, names)
    if not found:
        raise TwinbusError(NONE_RUNS)
    return found


@dataclass(frozen=True, kw_only=True)
class NewPaceArguments(EntityArguments):
    panel: ClassVar[str] = "Pace"
    rate: float | None = option(None, "N", "Messages a second, at most, of each of these syphons.")
    no_rate: bool = option(False, None, "No limit of the rate.", "--no-rate")
    first: int | None = option(None, "N", "Move this many more, then pause.")
    no_first: bool = option(False, None, "No pause after a number of messages.", "--no-first")
    all_entities: bool = option(False, None, "Messages for all entities again.", "--all-entities")

    def change(self) -> PaceChange:
        """Raises `OptionsError` that speaks of options as they are typed."""
        from twinbus.syphon.control import KEEP, PaceChange

        entities = self.listed()
        given = {"--rate": self.rate, "--first": self.first, "--entity": entities}
        lifted = {"--rate": self.no_rate, "--first": self.no_first, "--entity": self.all_entities}
        lifts = {"--rate": "--no-rate", "--first": "--no-first", "--entity": "--all-entities"}
        for name, value in given.items():
            if value is not None and lifted[name]:
                raise OptionsError(f"{name} and {lifts[name]} exclude each other")
        if not any(lifted.values()) and all(value is None for value in given.values()):
            raise OptionsError("nothing changes: give --rate, --first, --entity, or what lifts them")
        try:
            return PaceChange(
                rate=self.rate if self.rate is not None or self.no_rate else KEEP,
                first=self.first if self.first is not None or self.no_first else KEEP,
                entities=entities if entities is not None or self.all_entities else KEEP,
            )
        except OptionsError as error:
            text = str(error).replace("first must", "--first must").replace("rate must", "--rate must")
            raise OptionsError(text) from None


def list_syphons(
    syphons: SyphonIds = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON lines: a syphon each.")] = False,
) -> None:
    """List the syphons that run on this machine: how far they are, at what pace, and when all will be home.

    Those of `twinbus syphon`, of clients and proxies that have one, of spools, and drains whose driver runs here.
    Syphons of other users and machines are not among them. Ends with 3 if one does not answer.

    \b
    Examples:
      twinbus syphon list
      twinbus syphon list contoso --json
    """
    from twinbus.syphon.control import choose, running_syphons

    found = running_syphons()
    found = choose(found, syphons) if syphons else found
    if as_json:
        for each in found:
            say(json_text(each.as_dict()))
    else:
        say(syphons_text(found) if found else NONE_RUNS)
    _exit(found)


def pause(syphons: SyphonIds = None, as_json: AsJson = False) -> None:
    """Pause syphons of this machine: they send nothing more, and what they hold goes back to the backlog.

    They stay paused until `twinbus syphon resume`, or until they end. Ends with 3 if one does not answer.

    \b
    Examples:
      twinbus syphon pause
      twinbus syphon pause 4711-1
    """
    from twinbus.syphon import control

    _steer(find(syphons), control.pause, as_json=as_json)


def resume(syphons: SyphonIds = None, as_json: AsJson = False) -> None:
    """Let syphons of this machine go on after a pause.

    \b
    Examples:
      twinbus syphon resume
      twinbus syphon resume 4711-1 --json
    """
    from twinbus.syphon import control

    _steer(find(syphons), control.resume, as_json=as_json)


def pace(new: NewPaceArguments, syphons: SyphonIds = None, as_json: AsJson = False) -> None:
    """Change the pace of syphons of this machine, while they run or are paused.

    What is not given stays as it is. With --first a running syphon pauses again after so many, and `twinbus syphon
    resume` goes on. A change lasts until the syphon ends. Ends with 3 if one does not answer.

    \b
    Examples:
      twinbus syphon pace --rate 200
      twinbus syphon pace 4711-1 --first 100 --entity orders
      twinbus syphon pace --no-rate --all-entities
    """
    from twinbus.syphon.control import set_pace

    change = new.change()
    _steer(find(syphons), lambda each: set_pace(each, change), as_json=as_json)


def _steer(
    syphons: Sequence[RunningSyphon], carry_out: Callable[[RunningSyphon], SyphonFacts], *, as_json: bool
) -> None:
    done = []
    for each in syphons:
        try:
            done.append(replace(each, facts=carry_out(each), problem=""))
        except OptionsError:
            raise
        except TwinbusError as error:
            done.append(replace(each, facts=None, problem=str(error)))
    say(json_text([each.as_dict() for each in done]) if as_json else syphons_text(done))
    _exit(done)


def _exit(syphons: Sequence[RunningSyphon]) -> None:
    if any(each.facts is None for each in syphons):
        raise typer.Exit(ExitCode.NOT_ALL)


# --- what people see ---


def syphons_text(syphons: Sequence[RunningSyphon]) -> str:
    """A row for each, then what is wrong with them."""
    heads = ("id", "kind", "primary", "state", "home", "waiting", "rate", "pace", "all home in")
    rows = [_row(each) for each in syphons]
    lines = [f"{each.id}: {on_one_line(trouble)}" for each in syphons for trouble in _troubles(each)]
    return harmless("\n".join([table([heads, *rows]), *lines]), "\n")


def _row(syphon: RunningSyphon) -> tuple[object, ...]:
    facts = syphon.facts
    if facts is None:
        return (syphon.id, "?", on_one_line(syphon.primary), "does not answer", *5 * "?")
    return (
        syphon.id,
        facts.role,
        on_one_line(facts.primary),
        facts.state,
        f"{facts.moved:,}",
        "?" if facts.waiting is None else f"about {facts.waiting:,}",
        f"{facts.rate:,.0f}/s",
        pace_text(facts),
        or_dash(None if facts.seconds_left is None else rough_duration(facts.seconds_left)),
    )


def pace_text(facts: SyphonFacts) -> str:
    """What limits it."""
    limits = [
        *([] if facts.rate_limit is None else [f"at most {facts.rate_limit:,.6g}/s"]),
        *([] if facts.first_left is None else [f"{facts.first_left:,} more, then a pause"]),
        *([] if facts.entities is None else [f"only {on_one_line(first_few(facts.entities, 3))}"]),
    ]
    return "; ".join(limits) or "all it can"


def _troubles(syphon: RunningSyphon) -> list[str]:
    facts = syphon.facts
    if facts is None:
        return [syphon.problem]
    return [*facts.destinations_down, *facts.troubles]


def add_control_commands(app: typer.Typer) -> None:
    """Below `twinbus syphon`."""
    add_command(app, list_syphons, "List the syphons of this machine.", name="list", not_all=NOT_ALL)
    add_command(app, pause, "Pause them.", not_all=NOT_ALL)
    add_command(app, resume, "Let them go on.", not_all=NOT_ALL)
    add_command(app, pace, "Change their pace.", not_all=NOT_ALL)
