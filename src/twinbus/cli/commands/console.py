"""`twinbus console`: a web page for operators."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from twinbus.cli.arguments.namespaces import Timeout, timeout_s
from twinbus.cli.arguments.option_groups import (
    ArgumentGroup,
    BacklogArguments,
    PairArguments,
    SpoolFolderOption,
    check_range,
    option,
)
from twinbus.cli.metrics_export import PORT_MAX, ListenAddress
from twinbus.cli.output import json_text, note
from twinbus.cli.serving import prepare_process, until_signal
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.console.server import ConsoleOptions, ConsoleServer

DEFAULT_PORT = 9470
EVERY_S = (2.0, 25.0)


@dataclass(frozen=True, kw_only=True)
class ConsoleArguments(ArgumentGroup):
    panel: ClassVar[str] = "Network"
    port: int = option(DEFAULT_PORT, "N", "The port for browsers; 0 picks a free one.")
    host: str = option("127.0.0.1", "HOST", "The address to listen on.")
    host_name: list[str] | None = option(
        None, "NAME", "A name of this machine that browsers may use, e.g. ops.example.com. Repeat for more."
    )
    cert: Path | None = option(
        None, "FILE", "The certificate for TLS, with its chain, in PEM form: needed unless only this machine connects."
    )
    key_file: Path | None = option(None, "FILE", "The private key of --cert, in PEM form, without passphrase.")

    def __post_init__(self) -> None:
        check_range("--port", self.port, 0, PORT_MAX)

    def options(self, token_file: Path | None, *, allows_changes: bool) -> ConsoleOptions:
        """Raises `OptionsError`."""
        return options_of(
            ListenAddress(self.host, self.port),
            token_file,
            allows_changes=allows_changes,
            names=tuple(self.host_name or ()),
            cert=self.cert,
            key_file=self.key_file,
        )


def console(
    namespaces: PairArguments,
    backlog: BacklogArguments,
    network: ConsoleArguments,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Pages may also pause and pace, redrive, resubmit, purge, and make a namespace of twinbus fail.",
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Keep the token there, made once: then pages outlive a restart.  [default: a new one each time]",
        ),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A queue or topic of the primary to ask about. Repeat for more.  [default: all]"
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="DIR", help="The ledger from which events are shown, too.")
    ] = None,
    spool: SpoolFolderOption = None,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often: from one look at the pair to the next, 2s to 25s.")
    ] = "5s",
    timeout: Timeout = "5s",
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: one when it is ready, with the address.")
    ] = False,
) -> None:
    """Serve a web page that shows how a pair is doing, live, until Ctrl-C.

    What is down, since when and for whom; what waits where, and when it will be home; what to press. It shows what
    `twinbus status`, the board, the syphons, spools and meters say. With --allow-changes it also has buttons; each does
    what a command does.

    It prints an address that ends with a token: whoever has it gets in, nobody else. Only this machine can connect,
    unless --host names another address; then TLS is needed.

    \b
    Examples:
      twinbus console
      twinbus console --allow-changes --port 0
      twinbus console --token-file ~/.config/twinbus/console-token
      twinbus console --host 10.0.0.5 --cert chain.pem --key-file key.pem
    """
    attempt_s = timeout_s(timeout)
    every_s = _every(every)
    here, there = namespaces.both()
    name = backlog.name_of(here)
    options = network.options(token_file, allows_changes=allow_changes)
    prepare_process(256)
    watching = ConsoleWatching(backlog.queues, attempt_s, every_s, tuple(entity or ()), ledger, spool)
    asyncio.run(until_signal(lambda stop: _serve(stop, options, (here, there), name, watching, as_json=as_json)))


@dataclass(frozen=True, slots=True)
class ConsoleWatching:
    """What is looked at, and how often."""

    queues: int = 10
    attempt_s: float = 5.0
    every_s: float = 5.0
    entities: tuple[str, ...] = ()
    ledger: Path | None = None
    spool: Path | None = None


def options_of(
    address: ListenAddress, token_file: Path | None, *, allows_changes: bool, **others: Any
) -> ConsoleOptions:
    """Raises `OptionsError`."""
    from twinbus.console.server import ConsoleOptions
    from twinbus.console.token import kept_token, new_token

    return ConsoleOptions(
        host=address.host,
        port=address.port,
        token=new_token() if token_file is None else kept_token(token_file),
        allows_changes=allows_changes,
        **others,
    )


async def open_console(
    options: ConsoleOptions, sides: tuple[Namespace, Namespace], primary_name: str, watching: ConsoleWatching
) -> ConsoleServer:
    """A running console. Raises `TwinbusError`."""
    from twinbus.console.actions import ConsolePair
    from twinbus.console.server import ConsoleServer
    from twinbus.console.state import ConsoleState
    from twinbus.console.watch import ConsoleWatch

    pair = ConsolePair(*sides, primary_name, watching.queues, watching.attempt_s, {})
    state = ConsoleState()
    watch = ConsoleWatch(
        pair,
        state,
        every_s=watching.every_s,
        entities=watching.entities,
        ledger=watching.ledger,
        spool=watching.spool,
    )
    server = ConsoleServer(options, pair, state, watch)
    await server.start()
    return server


async def _serve(
    stop: asyncio.Event,
    options: ConsoleOptions,
    sides: tuple[Namespace, Namespace],
    primary_name: str,
    watching: ConsoleWatching,
    *,
    as_json: bool,
) -> None:
    server = await open_console(options, sides, primary_name, watching)
    try:
        say_ready(server, options, as_json=as_json)
        await stop.wait()
    finally:
        await server.stop()


def say_ready(server: ConsoleServer, options: ConsoleOptions, *, as_json: bool) -> None:
    """The address with its token, on stdout."""
    if as_json:
        facts = {"event": "ready", "console": server.entrance, "port": server.port}
        typer.echo(json_text(facts | {"allows_changes": options.allows_changes}))
        return
    typer.echo(server.entrance)
    kind = "may change things" if options.allows_changes else "only show (--allow-changes adds buttons)"
    note(f"open that address in a browser: it holds the token; pages {kind}; Ctrl-C stops")


def _every(text: str) -> float:
    every_s = timeout_s(text, "--every")
    if not EVERY_S[0] <= every_s <= EVERY_S[1]:
        raise OptionsError(f"--every must be from {EVERY_S[0]:g}s to {EVERY_S[1]:g}s, got {text}")
    return every_s
