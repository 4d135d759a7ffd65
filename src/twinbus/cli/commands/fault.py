"""`twinbus fault`: make a running namespace fail on purpose, see how it fails, and end it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.commands.serve import DEFAULT_ADDRESS, DEFAULT_DATA
from twinbus.cli.completion import fault_kinds, namespaces_in, one_of
from twinbus.cli.exit_codes import exit_codes
from twinbus.cli.json_form import json_text
from twinbus.cli.say import say
from twinbus.errors import OptionsError, TwinbusError

DEFAULT_NAMESPACE = DEFAULT_ADDRESS.partition(":")[0]

Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help=f"The data directory that the namespace is served from.  [default: {DEFAULT_DATA}]"
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        autocompletion=namespaces_in(DEFAULT_DATA),
        help=f"A namespace: the one that fails.  [default: {DEFAULT_NAMESPACE}]",
    ),
]
Control = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="The control socket itself, instead of --data and --namespace."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


def add(
    kind: Annotated[
        str, typer.Argument(metavar="FAULT", help="What is to be wrong; see above.", autocompletion=one_of(fault_kinds))
    ],
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A queue or topic that fails. Repeat for a group.  [default: the whole namespace]"
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only for entities whose name fits, as 'orders*'.")
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long, as 500ms, 30s or 5m.  [default: until it is cleared]"),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            autocompletion=one_of(lambda: ("refuse", "drop", "silent")),
            help="unreachable: refuse (the port is closed), drop (connections are reset) or silent "
            "(connections are taken, nothing is ever said).  [default: refuse]",
        ),
    ] = None,
    condition: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="refuse: the AMQP condition clients are given.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="refuse: the description that goes with it.")] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            autocompletion=one_of(lambda: ("sends", "receives", "both")),
            help="refuse: sends, receives or both.  [default: both]",
        ),
    ] = None,
    per_second: Annotated[
        float | None, typer.Option(metavar="N", help="busy: how many requests a second get through.  [default: 0]")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="slow: what an answer takes longer [default: 1s]; late: how much later messages appear, at most 15m "
            "[default: 1m]; restart: as slow, once it is back [default: 500ms].",
        ),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="slow: up to so much more, by chance.  [default: 0ms]")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(metavar="P", help="refuse, unanswered: how likely, up to 1.  [default: 1]")
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", help="refuse, unanswered: how often, then it is over.")
    ] = None,
    slow_for: Annotated[
        str | None, typer.Option(metavar="TIME", help="restart: how long it is slow afterwards.  [default: 30s]")
    ] = None,
    data: Data = None,
    namespace: Name = None,
    control: Control = None,
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
      busy         server busy beyond so many requests a second
      slow         every answer takes its time
      late         accepted at once, there later
      unanswered   stored, but the sender never hears of it
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
    from twinbus.namespace.faults.vocabulary import read_fault

    values = {
        "fault": kind,
        "entities": entity or None,
        "pattern": pattern,
        "length_ms": _milliseconds("--for", length),
        "how": how,
        "condition": condition,
        "text": text,
        "on": on,
        "per_second": per_second,
        "delay_ms": _milliseconds("--delay", delay),
        "jitter_ms": _milliseconds("--jitter", jitter),
        "probability": probability,
        "count": count,
        "slow_for_ms": _milliseconds("--slow-for", slow_for),
    }
    given = {key: value for key, value in values.items() if value is not None}
    read_fault(given)  # what is wrong with it is said also when nothing is running
    added = _ask(data, namespace, control, "fault.add", given)
    for note in added["notes"]:
        say(f"twinbus: {note}", err=True)
    say(json_text(added) if as_json else f"{added['id']}  {added['text']}")


def list_faults(data: Data = None, namespace: Name = None, control: Control = None, as_json: AsJson = False) -> None:
    """Show the faults that are in force, the oldest first.

    \b
    Examples:
      twinbus fault list
      twinbus fault list --data ./bus --namespace contoso --json
    """
    found = _ask(data, namespace, control, "fault.list")
    if as_json:
        say(json_text(found))
    elif not found:
        say("twinbus: no fault is in force", err=True)
    else:
        say("\n".join(f"{one['id']}  {one['text']}" for one in found))


def clear(
    fault_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The fault, as `fault add` and `fault list` name it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them: every fault of the namespace.")] = False,
    data: Data = None,
    namespace: Name = None,
    control: Control = None,
    as_json: AsJson = False,
) -> None:
    """End a fault, or all of them.

    \b
    Examples:
      twinbus fault clear no-send-1
      twinbus fault clear --all --namespace contoso
    """
    if (fault_id is None) != everything:
        raise OptionsError("name one fault to clear, as no-send-1, or give --all")
    cleared = _ask(data, namespace, control, "fault.clear", {"id": fault_id})
    if as_json:
        say(json_text(cleared))
    elif not cleared:
        say("twinbus: no fault was in force", err=True)
    else:
        say("\n".join(f"{one}  cleared" for one in cleared))


def _milliseconds(option: str, text: str | None) -> int | None:
    from twinbus.namespace.faults.durations import parse_duration

    try:
        return None if text is None else parse_duration(text)
    except OptionsError as error:
        raise OptionsError(f"{option}: {error}") from None


def _ask(
    data: Path | None,
    namespace: str | None,
    control: Path | None,
    request: str,
    arguments: dict[str, Any] | None = None,
) -> Any:
    from twinbus import control_client

    return control_client.ask(_control_socket(data, namespace, control), request, arguments)


def _control_socket(data: Path | None, namespace: str | None, control: Path | None) -> Path:
    """Where to reach the namespace; raises `TwinbusError` if none can be running there."""
    from twinbus.control_client import CONTROL_SOCKET

    if control is not None:
        if data is not None or namespace is not None:
            raise OptionsError("--control says all that --data and --namespace say: give one or the other")
        return control
    folder, name = data or DEFAULT_DATA, namespace or DEFAULT_NAMESPACE
    home = folder / name.lower()
    if home.parent != folder or not home.is_dir():
        raise TwinbusError(f"there is no namespace {name!r} in {folder}{_others(folder)}")
    if not (home / CONTROL_SOCKET).exists():
        raise TwinbusError(f"namespace {name} in {folder} is not running: start it with twinbus serve --data {folder}")
    return home / CONTROL_SOCKET


def _others(folder: Path) -> str:
    names = sorted(one.name for one in folder.iterdir() if one.is_dir())[:10] if folder.is_dir() else []
    return f": it has {', '.join(names)}" if names else ": choose with --data and --namespace"


EXAMPLES = """\b
Examples:
  twinbus fault add no-send --entity orders --for 30s
  twinbus fault list
  twinbus fault clear --all"""


def fault_commands() -> typer.Typer:
    """`twinbus fault` with its verbs."""
    epilog = exit_codes()
    app = typer.Typer(
        help="Make a running namespace fail on purpose, and end it.",
        epilog=f"{EXAMPLES}\n\n{epilog}",
        rich_markup_mode=None,
        no_args_is_help=False,
        invoke_without_command=True,
        callback=_show_help,
    )
    app.command("add", epilog=epilog, short_help="Make it fail in one way.")(add)
    app.command("list", epilog=epilog, short_help="Show what is wrong on purpose.")(list_faults)
    app.command("clear", epilog=epilog, short_help="End a fault, or all.")(clear)
    return app


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
