"""What commands write: every text passes here, and takes nothing along that harms a terminal or tells a key.

Keys that were typed, in the right place or in the wrong one, are known by their text: `hide_typed` notes them first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

from twinbus.plain_text import on_one_line, shown, without, without_keys

ERROR_LENGTH_MAX = 4_000
SECRET_LENGTH_MIN = 8
"""What is shorter is found in too many texts."""

_KEY = re.compile(r"(?i)(?:SharedAccessKey|AccountKey)\s*=\s*([^;\s]+)|\bsig=([^&;\s]+)")
_KEY_LIKE = re.compile(r"[A-Za-z0-9+/]{43}=")

_typed: list[str] = []
"""The longest first: some are a part of another."""


def hide_typed(arguments: Sequence[str]) -> None:
    """From now on, keys and signatures in these arguments are written nowhere; those of earlier calls are forgotten."""
    found: set[str] = set()
    before = ""
    for argument in arguments:
        found.update(one or other for one, other in _KEY.findall(argument))
        found.update(_KEY_LIKE.findall(argument))
        option, _, value = argument.partition("=") if argument.startswith("--") else (before, "", argument)
        if option == "--key":
            found.add(value)
        elif option == "--rule":
            found.add(value.split(":", 2)[-1])
        before = argument
    found |= {each.rstrip("=") for each in found}  # what is taken for an option ends before an equals sign
    _typed[:] = sorted((each for each in found if len(each) >= SECRET_LENGTH_MIN), key=len, reverse=True)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write a result, or a note on stderr. In a result only keys that were typed are hidden: the rest is data."""
    hidden = without_keys(text, _typed) if err else without(text, _typed)
    typer.echo(shown(hidden), err=err, nl=nl)


def note(text: str) -> None:
    """Write one line on stderr, whatever is in the text."""
    typer.echo(f"twinbus: {error_line(text)}", err=True)


def error_line(text: str) -> str:
    """One line, whatever an argument, a file name or a server said."""
    return on_one_line(without_keys(text, _typed), ERROR_LENGTH_MAX)


def traceback_text(text: str) -> str:
    return shown(without_keys(text, _typed))
