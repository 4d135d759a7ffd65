"""`twinbus backup`: a copy of namespaces, taken while they work."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.completion import namespaces_in
from twinbus.cli.arguments.server_arguments import DEFAULT_DATA
from twinbus.cli.output import json_text, say, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError
from twinbus.units import size_text

if TYPE_CHECKING:
    from twinbus.broker.ops.backup import Copied, SafeCopy

LOOK_EVERY_S = 0.2


def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory; it appears when all is in it.")],
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The data directory that the namespaces are served from.")
    ] = DEFAULT_DATA,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=namespaces_in(DEFAULT_DATA),
            help="A namespace: only this one. Repeat for more.  [default: all that are in --data]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy namespaces of this machine, with their keys, while they are served or not.

    Each copy shows one moment: every message that was acknowledged before it, and nothing by halves. It is opened once,
    as a server would open it, before it gets its name. The copy is a data directory: to restore it, serve it, or put it
    where the old one was. It holds the keys of the namespaces, so keep it as safe as those.

    \b
    Examples:
      twinbus backup monday
      twinbus backup monday --data ./bus --namespace contoso --json
      twinbus serve --namespace contoso:5672 --data monday
    """
    from twinbus.broker.ops.backup import SafeCopy, bytes_of, namespaces_in

    if not data.is_dir():
        raise OptionsError(f"--data {data} is not a directory: give the one that twinbus serve has")
    names = list(dict.fromkeys(name.lower() for name in namespace or namespaces_in(data)))
    began = monotonic()
    copied = _copy(SafeCopy(data, names, target), bytes_of(data, names))
    took_s = monotonic() - began
    if as_json:
        document = {"backup": str(target), "namespaces": [each.as_dict() for each in copied], "seconds": took_s}
        say(json_text(document))
    else:
        say(result_text(copied))


def _copy(copy: SafeCopy, about_bytes: int) -> list[Copied]:
    """On a thread, because SQLite cannot be interrupted: whoever does not want to wait can still leave."""
    results: list[list[Copied]] = []
    errors: list[BaseException] = []

    def make() -> None:
        try:
            results.append(copy.make())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make, name="twinbus-backup", daemon=True)
    with ProgressBar("copying", about_bytes, written=size_text) as bar:
        thread.start()
        try:
            while thread.is_alive():
                thread.join(LOOK_EVERY_S)
                bar.done = min(copy.bytes_so_far(), about_bytes)
        except KeyboardInterrupt:
            copy.clean_up()
            raise
    if errors:
        raise errors[0]
    return results[0]


def result_text(copied: list[Copied]) -> str:
    rows = [(each.namespace, each.entities, each.messages, size_text(each.bytes)) for each in copied]
    return table([("namespace", "entities", "messages", "size"), *rows])
