"""`twinbus serve`: namespaces on this machine until somebody stops them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import typer

from twinbus.cli.arguments.credentials import parse_rules, read_issuer
from twinbus.cli.arguments.option_groups import ArgumentGroup, LedgerArguments, option
from twinbus.cli.arguments.server_arguments import (
    DEFAULT_DATA,
    DataArguments,
    KeyArguments,
    ServerLimitArguments,
    TlsArguments,
)
from twinbus.cli.metrics_export import parse_address as parse_listen
from twinbus.cli.output import json_text
from twinbus.cli.serving import ServerOutput, address_hints, prepare_process, until_signal
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.broker.core.commands import Creation
    from twinbus.broker.server import NamespaceServer
    from twinbus.console.server import ConsoleOptions
    from twinbus.options import NamespaceOptions

DEFAULT_PORT = 5672
DEFAULT_ADDRESS = f"local:{DEFAULT_PORT}"
Inventory: TypeAlias = "dict[str, tuple[Creation, ...]]"
FIRST_QUEUE = "orders"
"""Made when nothing was asked for and nothing is there: a namespace without a queue is of no use to a newcomer."""


@dataclass(frozen=True, kw_only=True)
class StorageArguments(DataArguments):
    data: Path | None = option(
        None, "DIR", f"The data directory: messages are kept there, a folder per namespace.  [default: {DEFAULT_DATA}]"
    )
    memory: bool = option(False, None, "Keep nothing: messages end with the process.", "--memory")


@dataclass(frozen=True, kw_only=True)
class ServedLedgerArguments(LedgerArguments):
    panel: ClassVar[str] = "Storage"
    ledger: Path | None = option(
        None,
        "DIR",
        "The ledger in which everything is recorded, each namespace by its name. Clients and syphons "
        "may share it.  [default: nothing is recorded]",
    )

    def __post_init__(self) -> None:
        if self.ledger is not None and str(self.ledger) in ("", "."):
            raise OptionsError("--ledger takes a folder of its own, e.g. ./ledger, not the current one")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class AccessArguments(KeyArguments):
    jwt_issuer: list[Path] | None = option(
        None,
        "FILE",
        "A JSON file about an issuer whose web tokens are accepted: issuer, algorithm, key or key_file, "
        "audience. Repeat for more.",
    )


@dataclass(frozen=True, kw_only=True)
class HostArguments(ArgumentGroup):
    panel: ClassVar[str] = "Network"
    host: str = option("127.0.0.1", "HOST", "The address to listen on.")


@dataclass(frozen=True, kw_only=True)
class ServedConsoleArguments(ArgumentGroup):
    panel: ClassVar[str] = "Console"
    console: str | None = option(
        None,
        "[HOST:]PORT",
        "Serve a console there, about the first namespace as the primary and the second as the secondary; without a "
        "host, locally.",
    )
    allow_changes: bool = option(
        False,
        None,
        "Pages may also pause and pace, redrive, resubmit, purge, and make these namespaces fail.",
        "--allow-changes",
    )

    def options(self, count: int, certificate: tuple[Path, Path] | None) -> ConsoleOptions | None:
        """None: no console. Raises `OptionsError`."""
        from twinbus.cli.commands.console import options_of
        from twinbus.console.access import is_loopback

        if self.console is None:
            if self.allow_changes:
                raise OptionsError("--allow-changes is for --console")
            return None
        if count < 2:
            raise OptionsError("--console needs a pair: give --namespace twice, first the primary")
        address = parse_listen(self.console, "--console", 9470, any_free=True)
        cert, key_file = (None, None) if certificate is None or is_loopback(address.host) else certificate
        return options_of(address, None, allows_changes=self.allow_changes, cert=cert, key_file=key_file)


def serve(
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:PORT",
            help=f"A namespace and its port; port 0 picks a free one. Repeat for more.  [default: {DEFAULT_ADDRESS}]",
        ),
    ] = None,
    storage: StorageArguments,
    recording: ServedLedgerArguments,
    access: AccessArguments,
    network: HostArguments,
    tls: TlsArguments,
    limits: ServerLimitArguments,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A queue to create in each namespace unless it is there. Repeat for more."),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Create what this file describes unless it is there: queues, topics, subscriptions and rules of each "
            "namespace, in the form of the official emulator's Config.json. Without --namespace, its namespaces are "
            "served, from port 5672 on.",
        ),
    ] = None,
    pages: ServedConsoleArguments,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="The result as JSON lines: one per namespace when it is ready, when it stopped."),
    ] = False,
) -> None:
    """Serve Service Bus namespaces on this machine.

    Prints one line per namespace, its name and its connection string, and serves until it gets SIGINT (Ctrl-C) or
    SIGTERM. A message whose send returned is on disk, whatever happens to this process then.

    \b
    Examples:
      twinbus serve
      twinbus serve --namespace contoso:5672 --queue orders --queue invoices
      twinbus serve --entities Config.json
      twinbus serve --namespace contoso:0 --memory --json
      twinbus serve --rule reader:Listen --rule app:Send
      twinbus serve --namespace contoso:5672 --ledger ./ledger
      twinbus serve --host 0.0.0.0 --cert fullchain.pem --key-file privkey.pem

    \b
    Then, in Python, with the connection string that is printed:
      from azure.servicebus import ServiceBusClient, ServiceBusMessage
      with ServiceBusClient.from_connection_string(PRINTED) as client:
          client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))
    """
    from twinbus.broker.admin.entity_file import read_inventory_file
    from twinbus.options import NamespaceOptions

    inventory = {} if entities is None else read_inventory_file(entities)
    cert, key_file = tls.certificate or (None, None)
    shared = NamespaceOptions(
        data=storage.folder,
        queues=tuple(queue or ()),
        key=access.key,
        host=network.host,
        rules=parse_rules(access.rule or ()),
        jwt_issuers=tuple(map(read_issuer, access.jwt_issuer or ())),
        cert=cert,
        key_file=key_file,
        tls_only=tls.tls_only,
        ledger=recording.ledger,
        ledger_ship_to=recording.ledger_ship_to,
    )
    addresses = namespace or addresses_of(inventory) or [DEFAULT_ADDRESS]
    plan = plan_namespaces(addresses, inventory, limits.limits(), shared)
    prepare_process(sum(options.server_limits.connections for options in plan))
    output, first_queue = ServeOutput(as_json), None if namespace or entities else FIRST_QUEUE
    page = pages.options(len(plan), tls.certificate)
    asyncio.run(until_signal(lambda stop: serve_until_stopped(stop, plan, output, first_queue=first_queue, page=page)))


def plan_namespaces(
    addresses: Sequence[str], inventory: Inventory, limits: Mapping[str, float], shared: NamespaceOptions
) -> list[NamespaceOptions]:
    """The options of each namespace; raises `OptionsError` if one is wrong or two get in each other's way."""
    from twinbus.limit_names import with_limits

    described = match_entities(inventory, [parse_address(text)[0] for text in addresses])
    plan: list[NamespaceOptions] = []
    for name, port in map(parse_address, addresses):
        if any(name.lower() == other.name.lower() for other in plan):
            raise OptionsError(f"--namespace {name} is given twice: each namespace needs its own name")
        if port and any(port == other.port for other in plan):
            raise OptionsError(f"port {port} is given twice: each namespace needs its own port (0 picks a free one)")
        options = replace(shared, name=name, port=port, entities=described.get(name, ()))
        plan.append(with_limits(options, limits))
    return plan


def parse_address(text: str) -> tuple[str, int]:
    """`contoso:5672` -> name and port."""
    name, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise OptionsError(f"--namespace takes NAME:PORT, e.g. contoso:5672 (port 0 picks a free one); got {text!r}")
    return name, int(port)


def addresses_of(inventory: Inventory) -> list[str]:
    """The namespaces of a file, one port after the other."""
    return [f"{name}:{DEFAULT_PORT + index}" for index, name in enumerate(inventory)]


def match_entities(inventory: Inventory, names: Sequence[str]) -> Inventory:
    """What is to be created in which of these namespaces. One in the file and one here are the same by any name."""
    if len(inventory) == len(names) == 1:
        return {names[0]: next(iter(inventory.values()))}
    served = {name.lower(): name for name in names}
    unknown = [name for name in inventory if name.lower() not in served]
    if unknown:
        raise OptionsError(f"--entities describes {', '.join(unknown)}: name it with --namespace, too, or leave it out")
    return {served[name.lower()]: creations for name, creations in inventory.items()}


class ServeOutput(ServerOutput):
    def ready(self, server: NamespaceServer) -> None:
        if self.as_json:
            self._say_json("ready", server)
        else:
            self.say_strings(server)

    def stopped(self, server: NamespaceServer) -> None:
        if self.as_json:
            self._say_json("stopped", server)

    def console(self, entrance: str, port: int) -> None:
        """The address holds the token."""
        if self.as_json:
            typer.echo(json_text({"event": "console", "console": entrance, "port": port}))
        else:
            typer.echo(f"console  {entrance}")

    def _say_json(self, event: str, server: NamespaceServer) -> None:
        options = server.options
        more = {
            "data": None if options.data is None else str(options.data.absolute()),
            "ledger": None if options.ledger is None else str(options.ledger.absolute()),
            "queues": server.queue_names(),
        }
        self.say_json(event, "namespace", server, more)


async def serve_until_stopped(
    stop: asyncio.Event,
    plan: Sequence[NamespaceOptions],
    output: ServeOutput,
    *,
    first_queue: str | None,
    page: ConsoleOptions | None = None,
) -> None:
    """Serve all of these namespaces, or none, until it is time to stop."""
    from twinbus.broker.ops.process_memory import collect_seldom
    from twinbus.broker.server import NamespaceServer

    servers = [NamespaceServer(options) for options in plan]
    try:
        await _start_all(servers)
        for server in servers:
            if first_queue is not None and not server.queue_names():
                await server.create_queue(first_queue)
                output.note(f"{server.options.name} had no queue: made one called {first_queue}")
        for server in servers:
            output.ready(server)
        _give_hints(servers, output)
        collect_seldom()
        async with _console_about(servers, page, output):
            await stop.wait()
    finally:
        await asyncio.gather(*(server.stop() for server in servers))
    for server in servers:
        output.stopped(server)


@contextlib.asynccontextmanager
async def _console_about(
    servers: Sequence[NamespaceServer], options: ConsoleOptions | None, output: ServeOutput
) -> AsyncIterator[None]:
    if options is None:
        yield
        return
    from twinbus.cli.commands.console import ConsoleWatching, open_console
    from twinbus.client.namespace import Namespace

    primary, secondary = [Namespace.from_connection_string(each.connection_string) for each in servers[:2]]
    console = await open_console(options, (primary, secondary), servers[0].options.name, ConsoleWatching())
    try:
        output.console(console.entrance, console.port)
        yield
    finally:
        await console.stop()


async def _start_all(servers: Sequence[NamespaceServer]) -> None:
    for server in servers:  # all ports first: if one is taken, no data directory has been touched
        with _naming(server):
            await server.bind()
    for server in servers:
        with _naming(server):
            await server.start()


@contextlib.contextmanager
def _naming(server: NamespaceServer) -> Iterator[None]:
    """Errors inside the block say which namespace they are about."""
    try:
        yield
    except TwinbusError as error:
        raise type(error)(f"namespace {server.options.name}: {error}") from None


def _give_hints(servers: Sequence[NamespaceServer], output: ServeOutput) -> None:
    for server in servers:
        for hint in address_hints(server):
            output.note(hint)
        if not server.entity_names():
            output.note(f"{server.options.name} has no queue yet: --queue NAME makes one")
    output.note("serving; Ctrl-C stops")
