"""`twinbus fault`: make a running namespace fail on purpose, see how it fails, and end it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.completion import named_in, namespaces_in, one_of
from twinbus.cli.arguments.option_groups import ArgumentGroup, add_command, command_group, option
from twinbus.cli.arguments.server_arguments import DEFAULT_DATA
from twinbus.cli.commands.serve import DEFAULT_ADDRESS
from twinbus.cli.output import json_text, note, say
from twinbus.errors import OptionsError, TwinbusError
from twinbus.units import parse_duration

PLAIN = ("pattern", "how", "condition", "text", "on", "per_second", "probability", "count")
"""Parameters of a fault that are taken as they are."""
DEFAULT_NAMESPACE = DEFAULT_ADDRESS.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class ControlArguments(ArgumentGroup):
    """A running namespace."""

    panel: ClassVar[str] = "Which namespace"
    data: Path | None = option(
        None, "DIR", f"The data directory that the namespace is served from.  [default: {DEFAULT_DATA}]"
    )
    namespace: str | None = option(
        None,
        "NAME",
        f"A namespace: the one that fails.  [default: {DEFAULT_NAMESPACE}]",
        autocompletion=namespaces_in(DEFAULT_DATA),
    )
    control: Path | None = option(None, "PATH", "The control socket itself, instead of --data and --namespace.")

    def ask(self, request: str, arguments: dict[str, Any] | None = None) -> Any:
        """The answer of the namespace. Raises `TwinbusError` if it does not run."""
        from twinbus.control import control_client

        return control_client.ask(self._socket(), request, arguments)

    def _socket(self) -> Path:
        from twinbus.control.control_client import CONTROL_SOCKET

        if self.control is not None:
            if self.data is not None or self.namespace is not None:
                raise OptionsError("--control replaces --data and --namespace: give one or the other")
            return self.control
        folder, name = self.data or DEFAULT_DATA, self.namespace or DEFAULT_NAMESPACE
        home = folder / name.lower()
        if home.parent != folder or not home.is_dir():
            raise TwinbusError(f"there is no namespace {name!r} in {folder}{_others(folder)}")
        if not (home / CONTROL_SOCKET).exists():
            text = f"namespace {name} in {folder} is not running: start it with twinbus serve --data {folder}"
            raise TwinbusError(text)
        return home / CONTROL_SOCKET


def _others(folder: Path) -> str:
    names = sorted(one.name for one in folder.iterdir() if one.is_dir())[:10] if folder.is_dir() else []
    return f": it has {', '.join(names)}" if names else ": choose with --data and --namespace"


@dataclass(frozen=True, kw_only=True)
class FaultParameterArguments(ArgumentGroup):
    """What is wrong, where and for how long."""

    panel: ClassVar[str] = "Fault"
    entity: list[str] | None = option(
        None, "NAME", "A queue or topic that fails. Repeat for a group.  [default: the whole namespace]"
    )
    pattern: str | None = option(None, "PATTERN", "Only for entities whose name matches, e.g. 'orders*'.")
    length: str | None = option(
        None, "TIME", "How long, e.g. 500ms, 30s or 5m.  [default: until it is cleared]", "--for"
    )
    how: str | None = option(
        None,
        "HOW",
        "unreachable: refuse (the port is closed), drop (connections are reset) or silent "
        "(connections are accepted, nothing is answered).  [default: refuse]",
        autocompletion=one_of("refuse", "drop", "silent"),
    )
    condition: str | None = option(None, "CONDITION", "refuse: the AMQP condition that clients get.")
    text: str | None = option(None, "TEXT", "refuse: the description that goes with it.")
    on: str | None = option(
        None,
        "WHAT",
        "refuse: sends, receives or both.  [default: both]",
        autocompletion=one_of("sends", "receives", "both"),
    )
    per_second: float | None = option(None, "N", "busy: how many requests a second get through.  [default: 0]")
    delay: str | None = option(
        None,
        "TIME",
        "slow: by how much answers are delayed [default: 1s]; late: how much later messages appear, at most "
        "15m [default: 1m]; restart: as slow, once it is back [default: 500ms].",
    )
    jitter: str | None = option(None, "TIME", "slow: up to this much more, at random.  [default: 0ms]")
    probability: float | None = option(None, "P", "refuse, unanswered: how likely, up to 1.  [default: 1]")
    count: int | None = option(None, "N", "refuse, unanswered: how often; then the fault ends.")
    slow_for: str | None = option(None, "TIME", "restart: how long it is slow afterwards.  [default: 30s]")

    def values(self) -> dict[str, Any]:
        """Those that were given, by the names of a fault. Raises `OptionsError` for a wrong duration."""
        values = {
            "entities": self.entity or None,
            "length_ms": _milliseconds("--for", self.length),
            "delay_ms": _milliseconds("--delay", self.delay),
            "jitter_ms": _milliseconds("--jitter", self.jitter),
            "slow_for_ms": _milliseconds("--slow-for", self.slow_for),
            **{name: getattr(self, name) for name in PLAIN},
        }
        return {name: value for name, value in values.items() if value is not None}


def add(
    fault: FaultParameterArguments,
    target: ControlArguments,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="FAULT", help="The fault; see above.", autocompletion=named_in("broker.faults.catalogue", "KINDS")
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Make a running namespace fail in one way, for all of it, a group of entities or one.

    What is outside the fault's scope goes on as before. Faults add up, end by themselves after --for, and end with the
    server.

    \b
    Faults:
      no-send      sends are refused: amqp:internal-error
      no-receive   receives and settlements are refused
      no-manage    admin requests get 503, management requests 500
      unreachable  nothing gets through: refuse, drop or silent
      refuse       sends, receives or both are refused with any AMQP condition
      busy         server busy beyond --per-second requests
      slow         every answer is delayed
      late         accepted at once, visible later
      unanswered   stored, but the sender gets no answer
      restart      unavailable for a while, then slow for a while

    \b
    Examples, one for each:
      twinbus fault add no-send --entity orders --for 30s
      twinbus fault add no-receive --entity orders
      twinbus fault add no-manage --for 5m
      twinbus fault add unreachable --how silent --for 10s
      twinbus fault add refuse --condition amqp:not-found --on sends --count 3
      twinbus fault add busy --per-second 5
      twinbus fault add slow --delay 500ms --jitter 200ms
      twinbus fault add late --delay 2m --entity orders
      twinbus fault add unanswered --probability 0.1
      twinbus fault add restart --pattern 'orders*' --for 20s --slow-for 1m
    """
    from twinbus.broker.faults.catalogue import read_fault

    given = {"fault": kind} | fault.values()
    read_fault(given)  # what is wrong with it is said also when nothing is running
    added = target.ask("fault.add", given)
    for text in added["notes"]:
        note(text)
    say(json_text(added) if as_json else f"{added['id']}  {added['text']}")


def list_faults(target: ControlArguments, as_json: AsJson = False) -> None:
    """Show the faults that are in force, the oldest first.

    \b
    Examples:
      twinbus fault list
      twinbus fault list --data ./bus --namespace contoso --json
    """
    found = target.ask("fault.list")
    if as_json:
        say(json_text(found))
    elif not found:
        note("no fault is in force")
    else:
        say("\n".join(f"{one['id']}  {one['text']}" for one in found))


def clear(
    target: ControlArguments,
    fault_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The fault, as `fault add` and `fault list` name it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them: every fault of the namespace.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a fault, or all of them.

    \b
    Examples:
      twinbus fault clear no-send-1
      twinbus fault clear --all --namespace contoso
    """
    if (fault_id is None) != everything:
        raise OptionsError("name one fault to clear, e.g. no-send-1, or give --all")
    cleared = target.ask("fault.clear", {"id": fault_id})
    if as_json:
        say(json_text(cleared))
    elif not cleared:
        note("no fault was in force")
    else:
        say("\n".join(f"{one}  cleared" for one in cleared))


def _milliseconds(option: str, text: str | None) -> int | None:
    return None if text is None else parse_duration(text, option)


def fault_commands() -> typer.Typer:
    app = command_group(
        "Make a running namespace fail on purpose, and end it.",
        "twinbus fault add no-send --entity orders --for 30s",
        "twinbus fault list",
        "twinbus fault clear --all",
    )
    add_command(app, add, "Make it fail in one way.")
    add_command(app, list_faults, "Show what is wrong on purpose.", name="list")
    add_command(app, clear, "End a fault, or all.")
    return app
