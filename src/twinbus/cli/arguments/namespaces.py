"""Which namespaces a command is about: by options, by the environment, or by a file, looked for in this order.

A connection string holds a key. On the command line others on the machine can see it; the environment and files are
better places. Wherever a string can be given, `@FILE` means what stands in that file. With a credential of Entra ID a
host name takes its place, or a connection string without a key: there is nothing secret in either.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from twinbus.cli.arguments.completion import named_in
from twinbus.errors import OptionsError
from twinbus.plain_text import without_keys
from twinbus.units import parse_duration

if TYPE_CHECKING:
    from twinbus.client.identity import CachedCredential
    from twinbus.client.namespace import Namespace

CONFIG_FILE = Path("twinbus.toml")
"""Looked for in the current folder, then in the user's own."""
SIDES = ("primary", "secondary")
CREDENTIAL_VARIABLE = "TWINBUS_CREDENTIAL"
STRING_LENGTH_MAX = 10_000
SECTION_FORM = 'connection_string = "...", or host = "..." with credential = "..."'

Primary = Annotated[
    str | None,
    typer.Option(
        "--primary",
        metavar="STRING",
        help="Connection string of the primary, or @FILE that holds it; with --credential its host name.  "
        "[default: TWINBUS_PRIMARY, or twinbus.toml]",
    ),
]
Secondary = Annotated[
    str | None,
    typer.Option(
        "--secondary",
        metavar="STRING",
        help="Connection string of the secondary, or @FILE that holds it; with --credential its host name.  "
        "[default: TWINBUS_SECONDARY, or twinbus.toml]",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file with [primary] and [secondary], each with a connection_string, or a host and a credential.  "
        "[default: twinbus.toml, here or in ~/.config/twinbus]",
    ),
]
Credential = Annotated[
    str | None,
    typer.Option(
        "--credential",
        metavar="KIND",
        autocompletion=named_in("client.identity", "KINDS"),
        help="Entra ID instead of a key: default, environment, workload, managed-identity[:CLIENT-ID], cli, "
        "developer-cli or powershell. Needs azure-identity.  [default: TWINBUS_CREDENTIAL]",
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        metavar="NAME",
        help="Primary's name in backlog queue paths, if it cannot be derived from the host.",
    ),
]
QueueCount = Annotated[int, typer.Option("--queues", metavar="N", help="How many backlog queues: 1 to 100.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="How long one attempt may take, e.g. 500ms or 5s.")
]

_HOST = re.compile(r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+\.?|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")


class NamespaceChoice(NamedTuple):
    text: str
    """A connection string, or a host name."""
    origin: str
    """Where it comes from, for people."""
    credential: str | None = None
    """What Entra ID is asked by, where the text holds no key; None: nobody said."""


def choose(side: str, given: str | None, config: Path | None, credential: str | None = None) -> NamespaceChoice | None:
    """How one side is reached; None: nobody said. Raises `OptionsError` if file or credential cannot be used."""
    named = _credential_name(credential)
    if given:
        return _written_or_in_file(given, f"--{side}", named)
    variable = f"TWINBUS_{side.upper()}"
    if os.environ.get(variable):
        return _written_or_in_file(os.environ[variable], variable, named)
    file = config or next(filter(Path.exists, config_places()), None)
    section = None if file is None else _read(file).get(side)
    if section is None:
        return None
    text = section.get("connection_string") or section["host"]
    return NamespaceChoice(text, f"[{side}] in {file}", named or section.get("credential"))


def _credential_name(given: str | None) -> str | None:
    from twinbus.client.identity import check_name

    text = given or os.environ.get(CREDENTIAL_VARIABLE) or None
    try:
        return None if text is None else check_name(text)
    except OptionsError as error:
        raise OptionsError(f"{'--credential' if given else CREDENTIAL_VARIABLE}: {error}") from None


def config_places() -> tuple[Path, ...]:
    """Where a file is looked for that nobody named; the first that is there counts."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    return CONFIG_FILE, own / "twinbus" / CONFIG_FILE


def _written_or_in_file(text: str, origin: str, credential: str | None) -> NamespaceChoice:
    if not text.startswith("@"):
        return NamespaceChoice(text, origin, credential)
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
    return NamespaceChoice(found, f"{origin} @{file}", credential)


def one(side: str, given: str | None, config: Path | None, credential: str | None = None) -> Namespace:
    """The namespace of one side; raises `OptionsError` saying what is missing or wrong, and never a key."""
    choice = choose(side, given, config, credential)
    if choice is None:
        raise OptionsError(
            f"which namespace? give --{side} (or TWINBUS_{side.upper()}), or a {CONFIG_FILE} with [{side}]"
        )
    return reach(choice, credential)


def refuse_useless_credential(given: str | None, *choices: NamespaceChoice) -> None:
    """Raises `OptionsError` if `--credential` was typed and every side has a key: one of the two is a mistake."""
    if given is not None and all(_has_key(choice) for choice in choices):
        origins = " and ".join(choice.origin for choice in choices)
        raise OptionsError(f"--credential takes the place of a key, and {origins} has one: give host names instead")


def reach(choice: NamespaceChoice, given: str | None = None) -> Namespace:
    """The namespace of a choice; raises `OptionsError` that says where the text comes from.

    `given` is what `--credential` said, where there is only one side.
    """
    from twinbus.client.namespace import Namespace

    refuse_useless_credential(given, choice)
    try:
        if not needs_identity(choice):
            return Namespace.from_connection_string(choice.text)
        credential = _identity_for(choice)
        if is_host(choice.text):
            return Namespace(choice.text, credential)
        return Namespace.from_connection_string(choice.text, credential=credential)
    except OptionsError as error:
        raise OptionsError(f"{choice.origin}: {without_keys(str(error))}") from None


def needs_identity(choice: NamespaceChoice) -> bool:
    """Whether the text says where a namespace is, and holds no key."""
    return is_host(choice.text) or (bool(_parts(choice).get("endpoint")) and not _has_key(choice))


def _has_key(choice: NamespaceChoice) -> bool:
    from twinbus.connection_string import has_secret

    return has_secret(_parts(choice))


def _parts(choice: NamespaceChoice) -> dict[str, str]:
    """Of a connection string; none of what cannot be read: that is said when it is used."""
    from twinbus.connection_string import parts_of

    try:
        return parts_of(choice.text)
    except OptionsError:
        return {}


def is_host(text: str) -> bool:
    """HOST or HOST:PORT. A word without a dot may be a piece of a key, and is not taken for a host."""
    return _HOST.fullmatch(text) is not None


def _identity_for(choice: NamespaceChoice) -> CachedCredential:
    from twinbus.client.identity import identity

    if choice.credential is None:
        raise OptionsError(
            f"there is no key in it: name a credential, e.g. --credential default (or {CREDENTIAL_VARIABLE}), or give "
            "a connection string with a key"
        )
    return identity(choice.credential)


def timeout_s(text: str, option: str = "--timeout") -> float:
    """The seconds of one attempt, or of another option with the same range. Raises `OptionsError`."""
    length_ms = parse_duration(text, option)
    if not 100 <= length_ms <= 120_000:
        raise OptionsError(f"{option} must be from 100ms to 2m, got {text}")
    return length_ms / 1000


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionsError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):  # its text may be a piece of a key
        raise OptionsError(f"{file} is not TOML; it should have [primary] and {SECTION_FORM}") from None
    return {side: _section(file, side, sections[side]) for side in SIDES if side in sections}


def _section(file: Path, side: str, section: Any) -> dict[str, str]:
    form = f"{file} needs {SECTION_FORM} under [{side}]"
    if not isinstance(section, dict) or not all(isinstance(value, str) for value in section.values()):
        raise OptionsError(form)
    unknown = sorted(set(section) - {"connection_string", "host", "credential"})
    if unknown:
        known = "connection_string, host and credential"
        raise OptionsError(f"{file} has {', '.join(unknown)} under [{side}], where only {known} are known")
    if ("connection_string" in section) == ("host" in section):
        raise OptionsError(form)
    if "credential" in section:
        _check_section_credential(file, side, section["credential"])
    return section


def _check_section_credential(file: Path, side: str, text: str) -> None:
    from twinbus.client.identity import check_name

    try:
        check_name(text)
    except OptionsError as error:
        raise OptionsError(f"credential under [{side}] in {file}: {error}") from None
