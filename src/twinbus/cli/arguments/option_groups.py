"""Groups of options that commands share, and options that were renamed or dropped.

A command takes a group as one parameter; `with_groups` makes one option of each of its fields. The help shows the
options of a group under the title of its `panel`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from twinbus.cli.arguments import namespaces
from twinbus.cli.arguments.namespaces import (
    Config,
    Credential,
    NamespaceChoice,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
)
from twinbus.cli.exit_codes import exit_codes
from twinbus.cli.output import note
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.ledger import Ledger


# --- groups ---


@dataclass(frozen=True, kw_only=True)
class ArgumentGroup:
    """Options that belong together. Fields are annotated as the parameters of a command are."""

    panel: ClassVar[str | None] = "Options"
    """None: among the other options of the command."""


def option(default: Any, metavar: str | None, help: str, *names: str, **others: Any) -> Any:
    """A field of a group; `names` only if they differ from the name of the field. Flags have no metavar."""
    return field(default=default, metadata={"option": typer.Option(*names, metavar=metavar, help=help, **others)})


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option for each field of its groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[ArgumentGroup]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and issubclass(kind, ArgumentGroup):
            groups[parameter.name] = kind
            parameters += _parameters_of(kind)
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters_of(kind: type[ArgumentGroup]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        declared = copy.copy(each.metadata["option"] if each.metadata else hint.__metadata__[0])
        declared.rich_help_panel = kind.panel
        annotation: Any = operator.getitem(Annotated, (hint if each.metadata else hint.__origin__, declared))
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=annotation)


class PanelCommand(TyperCommand):
    """A command whose help shows options under the titles of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _format_panels(self, ctx, formatter)


class PanelGroup(TyperGroup):
    """The same for a command with commands below it."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _format_panels(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def _format_panels(command: Any, context: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None:
            is_argument = param.param_type_name == "argument"
            title = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Options"
            panels.setdefault(title, []).append(record)
    for title, records in panels.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def command_group(text: str, *examples: str) -> typer.Typer:
    """Commands below one word; the word alone shows their help."""
    lines = "\n".join(f"  {example}" for example in examples)
    return typer.Typer(
        help=text,
        epilog=f"\b\nExamples:\n{lines}\n\n{exit_codes()}",
        rich_markup_mode=None,
        no_args_is_help=False,
        invoke_without_command=True,
        callback=_show_help,
    )


def add_command(
    app: typer.Typer,
    command: Callable[..., None],
    short_help: str | None = None,
    *,
    name: str | None = None,
    **codes: Any,
) -> None:
    """Add a command with its groups, panels and exit codes; `codes` say what those mean there (see `exit_codes`)."""
    decorate = app.command(name, cls=PanelCommand, epilog=exit_codes(**codes), short_help=short_help)
    decorate(with_groups(command))


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@dataclass(frozen=True, kw_only=True)
class PrimaryArguments(ArgumentGroup):
    panel: ClassVar[str] = "Namespaces"
    primary: Primary = None
    config: Config = None
    credential: Credential = None

    def namespace(self) -> Namespace:
        """Raises `OptionsError` if it is missing or wrong."""
        return namespaces.one("primary", self.primary, self.config, self.credential)


@dataclass(frozen=True, kw_only=True)
class PairArguments(ArgumentGroup):
    panel: ClassVar[str] = "Namespaces"
    primary: Primary = None
    secondary: Secondary = None
    config: Config = None
    credential: Credential = None

    def one(self, side: str) -> Namespace:
        """Raises `OptionsError` if it is missing or wrong."""
        given = self.primary if side == "primary" else self.secondary
        return namespaces.one(side, given, self.config, self.credential)

    def choose(self, side: str) -> NamespaceChoice | None:
        """How one side is reached; None if nothing says it."""
        given = self.primary if side == "primary" else self.secondary
        return namespaces.choose(side, given, self.config, self.credential)

    def both(self) -> tuple[Namespace, Namespace]:
        """Primary and secondary. Raises `OptionsError` saying what is missing or wrong, and never a key."""
        choices = {side: self.choose(side) for side in namespaces.SIDES}
        missing = [side for side, choice in choices.items() if choice is None]
        if missing:
            options = " and ".join(f"--{side} (or TWINBUS_{side.upper()})" for side in missing)
            file = namespaces.CONFIG_FILE
            raise OptionsError(f"which namespaces? give {options}, or a {file} with [primary] and [secondary]")
        known = [choice for choice in choices.values() if choice is not None]
        namespaces.refuse_useless_credential(self.credential, *known)
        here, there = map(namespaces.reach, known)
        if here.address == there.address:
            origins = " and ".join(choice.origin for choice in known)
            raise OptionsError(f"{origins} are the same namespace, {here.address}: pair two different ones")
        return here, there

    def secondary_and_name(self, backlog: BacklogArguments) -> tuple[Namespace, str]:
        """The secondary and the primary's name, for commands that do not need the primary itself."""
        if backlog.primary_name is None:
            here, there = self.both()
            return there, backlog.name_of(here)
        return self.one("secondary"), backlog.primary_name


@dataclass(frozen=True, kw_only=True)
class BacklogArguments(ArgumentGroup):
    panel: ClassVar[str] = "Backlog"
    queues: QueueCount = 10
    primary_name: PrimaryName = None

    def __post_init__(self) -> None:
        check_range("--queues", self.queues, 1, 100)

    def name_of(self, primary: Namespace) -> str:
        """The primary's name in backlog queue paths. Raises `OptionsError` if it is unknown."""
        name = self.primary_name or primary.name
        if name is None:
            raise OptionsError(f"{primary.address} does not contain its name: give --primary-name")
        return name


NoCreate = Annotated[
    bool, typer.Option("--no-create", help="Use the backlog queues that exist, and create none: needs no Manage.")
]


@dataclass(frozen=True, kw_only=True)
class PreparedBacklogArguments(BacklogArguments):
    """The same, for commands that create missing backlog queues."""

    no_create: NoCreate = False


@dataclass(frozen=True, kw_only=True)
class EntityArguments(ArgumentGroup):
    """Which entities messages are brought home for."""

    panel: ClassVar[str] = "Which messages"
    entity: list[str] | None = option(
        None, "NAME", "A queue or topic: only messages for it; others stay in the backlog. Repeat for more."
    )
    entities_file: Path | None = option(None, "FILE", "A file with such names, one a line; # starts a comment.")

    def listed(self) -> frozenset[str] | None:
        """The names of both options; None means all entities."""
        names = [*(self.entity or ()), *([] if self.entities_file is None else _names_in(self.entities_file))]
        if any(not name.strip("/ ") for name in names):
            raise OptionsError("the name of an entity must not be empty")
        return frozenset(name.strip("/") for name in names) or None


def _names_in(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionsError(f"--entities-file {file} cannot be read: {why}") from None
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    if not names:
        raise OptionsError(f"--entities-file {file} names no entity: write one a line, or leave the option out for all")
    return names


LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger", metavar="DIR", help="The ledger in which everything is recorded that happens to a message."
    ),
]

SHIP_HELP = (
    "Copy finished segments of the ledger to this URL, e.g. s3a://bucket/ledger.  [default: TWINBUS_LEDGER_SHIP_TO]"
)
LedgerShipTo = Annotated[str | None, typer.Option("--ledger-ship-to", metavar="URL", help=SHIP_HELP)]


@dataclass(frozen=True, kw_only=True)
class LedgerArguments(ArgumentGroup):
    """Where a command records what it does, and where the record is copied to."""

    panel: ClassVar[str | None] = None
    ledger: LedgerFolder = None
    ledger_ship_to: LedgerShipTo = None

    def __post_init__(self) -> None:
        check_ship_to(self.ledger, self.ledger_ship_to)

    def open(self) -> AbstractContextManager[Ledger | None]:
        """The ledger until the block ends. Raises `OptionsError` if the folder cannot hold one."""
        from twinbus.ledger import Ledger

        folder, place = self.ledger, self.ledger_ship_to
        return nullcontext() if folder is None else Ledger.at(folder, "twinbus syphon", place)


def check_ship_to(ledger: Path | None, ship_to: str | None) -> None:
    """Raises `OptionsError` if a ledger in this folder can never be shipped there, or where the environment says."""
    if ledger is None:
        if ship_to is not None:
            raise OptionsError("--ledger-ship-to needs --ledger: it copies the segments of that folder")
        return
    from twinbus.ledger.options import SHIP_VARIABLE, ship_to_or_variable
    from twinbus.ledger.upkeep.shipping import place_for

    place = ship_to_or_variable(ship_to)
    try:
        if place is not None:
            place_for(ledger, place)
    except OptionsError as error:
        raise OptionsError(f"{SHIP_VARIABLE if ship_to is None else '--ledger-ship-to'}: {error}") from None


SpoolFolderOption = Annotated[
    Path | None, typer.Option("--spool", metavar="DIR", help="The folder that clients have as their spool.")
]


def check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionsError(f"{option} must be from {low} to {high}, got {value}")


def check_writable(option: str, file: Path | None) -> None:
    """Raises `OptionsError` if a file cannot be written: before the work, not after it."""
    from twinbus.storage import is_url

    if file is not None and is_url(str(file)):
        raise OptionsError(f"{option} is a file of this machine, not a URL ({file.parts[0]}//...): copy it from here")
    if file is not None and (file.is_dir() or not file.parent.is_dir() or not os.access(file.parent, os.W_OK)):
        raise OptionsError(f"{option} {file} cannot be written: give a file in a directory that exists")


# --- renamed and dropped options ---

_QUEUES = {"--count": "--queues"}
OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "bench": {"--clients": "--connections"},
    "cost forecast": {"--entities": "--entity-count"},
    "drill": _QUEUES,
    "ledger tail": {"--lines": "--last"},
    "pair": _QUEUES,
    "pipeline drain": _QUEUES | {"--ttl": "--ttl-mode"},
    "send": {"--count": "--repeat"},
    "status": _QUEUES,
    "syphon": _QUEUES | {"--ttl": "--ttl-mode"},
    "syphon quarantine discard": _QUEUES,
    "syphon quarantine list": _QUEUES,
    "syphon quarantine redrive": _QUEUES,
    "syphon quarantine show": _QUEUES,
}
"""By command, the new name of each old one. An old name works and is not shown."""

DROPPED: Mapping[str, Mapping[str, str]] = {
    "drill": {"--warm-up": "canaries are sent for 2s before the fault"},
    "syphon": {"--text": "text is the default"},
}
"""By command, options that the next version does not have: they work, are not shown, and print this hint."""


def accept_old_names(command: Any, path: tuple[str, ...] = ()) -> None:
    """Make a command and all below it take old names, and print a hint when a dropped option is used."""
    renamed, dropped = OLD_NAMES.get(" ".join(path), {}), DROPPED.get(" ".join(path), {})
    if renamed or dropped:
        _extend(command, renamed, dropped)
    for name, each in getattr(command, "commands", {}).items():
        accept_old_names(each, (*path, name))


def _extend(command: Any, renamed: Mapping[str, str], dropped: Mapping[str, str]) -> None:
    make_parser = command.make_parser

    def make(context: Any) -> Any:
        parser = make_parser(context)
        for old, new in renamed.items():
            (option,) = [each for each in command.params if new in each.opts]
            twin = copy.copy(option)  # parsed under another name into the same value
            twin.opts, twin.secondary_opts = [old], []
            twin.add_to_parser(parser, context)
        parse_args = parser.parse_args

        def parse(args: list[str]) -> Any:
            parsed = parse_args(args)
            used = {name for option in parsed[2] for name in option.opts}
            for name in sorted(used & set(dropped)) if not context.resilient_parsing else ():
                note(f"{name} goes away in the next version: {dropped[name]}")
            return parsed

        parser.parse_args = parse
        return parser

    command.make_parser = make
