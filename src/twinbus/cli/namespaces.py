"""Which namespaces a command is about: by options, by the environment, or by a file, looked for in this order.

A connection string holds a key. On the command line others on the machine can see it; the environment and files are
better places. Wherever a string can be given, `@FILE` means what stands in that file.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace

CONFIG_FILE = Path("twinbus.toml")
"""Looked for in the current folder, then in the user's own."""
SIDES = ("primary", "secondary")
KEYS = {"connection_string"}
STRING_LENGTH_MAX = 10_000

Primary = Annotated[
    str | None,
    typer.Option(
        "--primary",
        metavar="STRING",
        help="Connection string of the primary, or @FILE that holds it.  [default: TWINBUS_PRIMARY, or twinbus.toml]",
    ),
]
Secondary = Annotated[
    str | None,
    typer.Option(
        "--secondary",
        metavar="STRING",
        help="Connection string of the secondary, or @FILE that holds it.  [default: TWINBUS_SECONDARY, or "
        "twinbus.toml]",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file with [primary] and [secondary], each with a connection_string.  [default: twinbus.toml, here or "
        "in ~/.config/twinbus]",
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        metavar="NAME",
        help="What the backlog queues are called by, where the primary's address does not tell.",
    ),
]
QueueCount = Annotated[int, typer.Option("--count", metavar="N", help="How many backlog queues: 1 to 100.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as one JSON object.")]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="How long one attempt may take, as 500ms or 5s.")
]

_SECRET = re.compile(r"(?i)(SharedAccessKey|SharedAccessSignature|sig)\s*=[^;'\"]*")


class Choice(NamedTuple):
    text: str
    """A connection string."""
    origin: str
    """Where it comes from, for people."""


def choose(side: str, given: str | None, config: Path | None) -> Choice | None:
    """The connection string of one side; None: nobody said one. Raises `OptionsError` if the file cannot be used."""
    if given:
        return _written_or_in_file(given, f"--{side}")
    variable = f"TWINBUS_{side.upper()}"
    if os.environ.get(variable):
        return _written_or_in_file(os.environ[variable], variable)
    file = config or next(filter(Path.exists, config_places()), None)
    if file is None:
        return None
    text = _read(file).get(side, {}).get("connection_string")
    return None if text is None else Choice(text, f"[{side}] in {file}")


def config_places() -> tuple[Path, ...]:
    """Where a file is looked for that nobody named; the first that is there counts."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    return CONFIG_FILE, own / "twinbus" / CONFIG_FILE


def _written_or_in_file(text: str, origin: str) -> Choice:
    if not text.startswith("@"):
        return Choice(text, origin)
    file = Path(text[1:])
    try:
        with file.open(encoding="utf-8") as opened:
            found = opened.read(STRING_LENGTH_MAX).strip()
    except OSError as error:
        raise OptionsError(f"{origin}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        found = ""
    if not found or "\n" in found:  # what is in it is not repeated: it may be a key
        raise OptionsError(f"{origin}: {file} should hold one line, a connection string, and nothing else")
    return Choice(found, f"{origin} @{file}")


def one(side: str, given: str | None, config: Path | None) -> Namespace:
    """The namespace of one side; raises `OptionsError` saying what is missing or wrong, and never a key."""
    choice = choose(side, given, config)
    if choice is None:
        raise OptionsError(
            f"which namespace? give --{side} (or TWINBUS_{side.upper()}), or a {CONFIG_FILE} with [{side}]"
        )
    return reach(choice)


def both(primary: str | None, secondary: str | None, config: Path | None) -> tuple[Namespace, Namespace]:
    """The two namespaces; raises `OptionsError` saying what is missing or wrong, and never a key."""
    choices = {side: choose(side, given, config) for side, given in zip(SIDES, (primary, secondary), strict=True)}
    missing = [side for side, choice in choices.items() if choice is None]
    if missing:
        options = " and ".join(f"--{side} (or TWINBUS_{side.upper()})" for side in missing)
        raise OptionsError(f"which namespaces? give {options}, or a {CONFIG_FILE} with [primary] and [secondary]")
    here, there = (reach(choice) for choice in choices.values() if choice is not None)
    if here.address == there.address:
        origins = " and ".join(choice.origin for choice in choices.values() if choice is not None)
        raise OptionsError(f"{origins} are the same namespace, {here.address}: pair two different ones")
    return here, there


def reach(choice: Choice) -> Namespace:
    """A namespace by its connection string; raises `OptionsError` that says where the string comes from."""
    from twinbus.client.namespace import Namespace

    try:
        return Namespace.from_connection_string(choice.text)
    except OptionsError as error:
        text = _SECRET.sub(r"\1=***", str(error))
        raise OptionsError(f"{choice.origin}: {text}") from None


def name_of(primary: Namespace, given: str | None) -> str:
    """What the backlog queues of a primary are called by; raises `OptionsError` if nobody says it."""
    name = given or primary.name
    if name is None:
        raise OptionsError(f"{primary.address} does not tell its name: give --primary-name")
    return name


def secondary_of(
    primary: str | None, secondary: str | None, config: Path | None, primary_name: str | None
) -> tuple[Namespace, str]:
    """The secondary and the primary's name, for what can be done without the primary."""
    if primary_name is None:
        here, there = both(primary, secondary, config)
        return there, name_of(here, None)
    return one("secondary", secondary, config), primary_name


def seconds(option: str, text: str) -> float:
    """A length of time that was written for an option."""
    from twinbus.namespace.faults.durations import parse_duration

    try:
        length_ms = parse_duration(text)
    except OptionsError as error:
        raise OptionsError(f"{option}: {error}") from None
    if not 100 <= length_ms <= 120_000:
        raise OptionsError(f"{option} must be from 100ms to 2m, got {text}")
    return length_ms / 1000


def check_count(count: int) -> int:
    if not 1 <= count <= 100:
        raise OptionsError(f"--count must be from 1 to 100, got {count}")
    return count


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionsError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):  # its text may be a piece of a key
        raise OptionsError(f'{file} is not TOML; it should have [primary] and connection_string = "..."') from None
    return {side: _section(file, side, said[side]) for side in SIDES if side in said}


def _section(file: Path, side: str, section: Any) -> dict[str, str]:
    if not isinstance(section, dict) or not isinstance(section.get("connection_string"), str):
        raise OptionsError(f'{file} needs connection_string = "..." under [{side}]')
    unknown = sorted(set(section) - KEYS)
    if unknown:
        raise OptionsError(f"{file} has {', '.join(unknown)} under [{side}], where only connection_string is known")
    return section
