"""`twinbus proxy`: a pair that any Service Bus client can use, until somebody stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from twinbus.cli.arguments.credentials import parse_rules
from twinbus.cli.arguments.option_groups import ArgumentGroup, PairArguments, option
from twinbus.cli.arguments.pairing_arguments import PairingArguments
from twinbus.cli.arguments.server_arguments import DataArguments, KeyArguments, ServerLimitArguments, TlsArguments
from twinbus.cli.metrics_export import ListenAddress, parse_address
from twinbus.cli.serving import ServerOutput, address_hints, prepare_process, until_signal
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.proxy.options import ProxyOptions
    from twinbus.proxy.server import ProxyServer

DEFAULT_NAME = "proxy"
DEFAULT_LISTEN = "127.0.0.1:5672"
"""For this machine only: without TLS on the way, keys can be read. The port is the default
of clients for plain AMQP, and some cannot use another."""


@dataclass(frozen=True, kw_only=True)
class ListenArguments(ArgumentGroup):
    panel: ClassVar[str] = "Network"
    listen: str = option(DEFAULT_LISTEN, "[HOST:]PORT", "Where applications connect; port 0 picks a free one.")
    metrics: str | None = option(
        None,
        "[HOST:]PORT",
        "Serve metrics for Prometheus there (/metrics), and answer probes (/healthz/live, /healthz/ready); without a "
        "host, locally.",
    )

    def address(self) -> ListenAddress:
        return parse_address(self.listen, "--listen", 5672, any_free=True)

    def metrics_address(self) -> ListenAddress | None:
        return None if self.metrics is None else parse_address(self.metrics, any_free=True)


def proxy(
    namespaces: PairArguments,
    pairing: PairingArguments,
    listening: ListenArguments,
    tls: TlsArguments,
    storage: DataArguments,
    access: KeyArguments,
    limits: ServerLimitArguments,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Its name: of its folder in --data, and in `twinbus status`."),
    ] = DEFAULT_NAME,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: one when it is ready, one when it has stopped.")
    ] = False,
) -> None:
    """Let applications in any language use a pair: they change their connection string, and nothing else.

    Prints its name and a connection string for applications, one more for each --rule, and serves until it gets SIGINT
    (Ctrl-C) or SIGTERM. What applications send goes to the primary, or to the secondary's backlog while the primary is
    down. Everything else (receiving, sessions, administration) is passed on to the primary.

    Applications have keys of the proxy, with rights of their own. The credentials of the two namespaces stay here.

    \b
    Examples:
      twinbus proxy --primary @primary.txt --secondary @secondary.txt
      twinbus proxy --failover-interval 10s --syphon
      twinbus proxy --listen 0.0.0.0:5671 --cert chain.pem --key-file key.pem
      twinbus proxy --rule app:Send+Listen --metrics 9464
      twinbus proxy --listen 127.0.0.1:0 --memory --json

    \b
    Then, in Python, with the connection string that is printed:
      from azure.servicebus import ServiceBusClient, ServiceBusMessage
      with ServiceBusClient.from_connection_string(PRINTED) as client:
          client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))
    """
    from twinbus.limit_names import with_limits
    from twinbus.proxy.options import ProxyOptions

    address, metrics = listening.address(), listening.metrics_address()
    rules, (cert, key_file) = parse_rules(access.rule or ()), tls.certificate or (None, None)
    primary, secondary = _pair(namespaces)
    options = ProxyOptions(
        primary=primary,
        pairing=pairing.options(secondary),
        name=name,
        host=address.host,
        port=address.port,
        data=storage.folder,
        key=access.key,
        rules=rules,
        cert=cert,
        key_file=key_file,
        tls_only=tls.tls_only,
    )
    options = with_limits(options, limits.limits())
    prepare_process(2 * options.server_limits.connections)  # each may need one to the primary, too
    asyncio.run(until_signal(lambda stop: serve_until_stopped(stop, options, metrics, ProxyOutput(as_json))))


def _pair(namespaces: PairArguments) -> tuple[Namespace, Namespace]:
    """Both sides. Their errors do not count as usage errors: they usually come from the environment."""
    try:
        return namespaces.both()
    except OptionsError as error:
        raise TwinbusError(str(error)) from None


class ProxyOutput(ServerOutput):
    def ready(self, server: ProxyServer, metrics: ListenAddress | None) -> None:
        if self.as_json:
            self._say_json("ready", server, metrics)
        else:
            self.say_strings(server)

    def stopped(self, server: ProxyServer, metrics: ListenAddress | None) -> None:
        if self.as_json:
            self._say_json("stopped", server, metrics)

    def _say_json(self, event: str, server: ProxyServer, metrics: ListenAddress | None) -> None:
        options, pairing = server.options, server.options.pairing
        more = {
            "primary": options.primary.host_label,
            "secondary": pairing.secondary.host_label,
            "data": None if options.data is None else str(options.data.absolute()),
            "ledger": None if pairing.ledger is None else str(pairing.ledger),
            "spool": None if pairing.spool is None else str(pairing.spool),
            "metrics": None if metrics is None else str(metrics),
        }
        self.say_json(event, "proxy", server, more)


async def serve_until_stopped(
    stop: asyncio.Event, options: ProxyOptions, metrics: ListenAddress | None, output: ProxyOutput
) -> None:
    """Serve until it is time to stop; what was taken from applications is answered first."""
    from twinbus.broker.ops.process_memory import collect_seldom
    from twinbus.proxy.control_socket import ProxyControls
    from twinbus.proxy.metrics_port import MetricsPort
    from twinbus.proxy.server import ProxyServer

    server = ProxyServer(options)
    if not await _finishes_before(stop, _start(server, output)):
        return
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        controls = ProxyControls(options.name, server.directory, server.facts)
        stack.push_async_callback(controls.stop)
        await controls.start()
        if metrics is not None:
            port = MetricsPort(metrics.host, metrics.port, server)
            await port.start()
            stack.push_async_callback(port.stop)
            metrics = ListenAddress(metrics.host, port.port)
        output.ready(server, metrics)
        for hint in address_hints(server):
            output.note(hint)
        output.note("serving; Ctrl-C stops")
        collect_seldom()
        await stop.wait()
    output.stopped(server, metrics)


async def _start(server: ProxyServer, output: ProxyOutput) -> None:
    from twinbus.proxy.startup_checks import check_primary, check_secondary

    primary, pairing = server.options.primary, server.options.pairing
    entity = next(iter(pairing.entities), None)
    attempt_s = pairing.attempt_timeout.total_seconds()
    away = await check_primary(primary, attempt_s, entity)
    await check_secondary(pairing.secondary, attempt_s)
    if away is not None:
        output.note(f"the primary {primary.host_label} does not answer yet: {away}")
    await server.start()


async def _finishes_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether work is done before it is time to stop; else it is cancelled. Raises what it raises."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled():
        return False
    task.result()
    return True
