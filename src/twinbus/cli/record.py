"""Where a command records what it does to messages, if anywhere."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinbus.ledger import Ledger

PROGRAM = "twinbus syphon"

LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger", metavar="DIR", help="The ledger in which everything is recorded that happens to a message."
    ),
]


def record_in(folder: Path | None) -> AbstractContextManager[Ledger | None]:
    """The ledger in this folder until the block ends; raises `OptionsError` for a folder that cannot hold one."""
    from twinbus.ledger import Ledger

    return nullcontext() if folder is None else Ledger.at(folder, PROGRAM)
