"""Which entities messages may be brought to: named one by one, or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from twinbus.errors import OptionsError

Entities = Annotated[
    list[str] | None,
    typer.Option(
        "--entity",
        metavar="NAME",
        help="A queue or topic: only messages for it; others stay in the backlog. Repeat for more.",
    ),
]
EntitiesFile = Annotated[
    Path | None,
    typer.Option("--entities-file", metavar="FILE", help="A file with such names, one a line; # starts a comment."),
]


def listed_entities(named: Sequence[str] | None, file: Path | None) -> frozenset[str] | None:
    """The names of both; None: nobody named any, so all are meant."""
    names = [*(named or ()), *([] if file is None else _names_in(file))]
    if any(not name.strip("/ ") for name in names):
        raise OptionsError("an entity has a name, got an empty one")
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
