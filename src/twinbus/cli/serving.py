"""A process that serves until somebody stops it: what `serve` and `proxy` have in common."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from twinbus.cli.output import json_text, note
from twinbus.cli.signals import on_signals
from twinbus.connection_string import EVERY_ADDRESS, TLS_PORT, ConnectionString
from twinbus.plain_text import LogLines, RateLimit

if TYPE_CHECKING:
    from twinbus.broker.endpoint import EndpointServer

SWITCH_S = 0.0001
"""How long one thread of Python keeps the others waiting. A commit takes a handful of such waits while the event loop
is busy: with Python's usual 5 ms, everybody's messages would wait for them."""
OTHER_FILES = 256
"""Open files of a process beside its connections, generously."""


class ServerOutput:
    """Tells on stdout how servers are reached, and that they have stopped; notes for people go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def note(self, text: str) -> None:
        if not self.as_json:
            note(text)

    def say_strings(self, server: EndpointServer[Any]) -> None:
        """For people: the name, and each connection string."""
        name = server.options.name
        typer.echo(f"{name}  {server.connection_string}")
        for rule, connection_string in rule_connection_strings(server).items():
            typer.echo(f"{name} {rule}  {connection_string}")

    def say_json(self, event: str, kind: str, server: EndpointServer[Any], more: dict[str, Any]) -> None:
        """For programs; `kind`: what it is called by."""
        options = server.options
        facts = {
            "event": event,
            kind: options.name,
            "host": options.host,
            "port": server.port,
            "tls_only": server.is_tls_only,
            "connection_string": server.connection_string,
            "rule_connection_strings": rule_connection_strings(server),
        }
        typer.echo(json_text(facts | more))


def prepare_process(connections: int) -> None:
    """For as many connections: open files, short turns of threads, log lines on stderr."""
    allow_open_files(connections)
    _log_to_stderr()
    sys.setswitchinterval(SWITCH_S)


def allow_open_files(connections: int) -> None:
    """Ask the system for as many open files as there may be connections; it decides how many it gives."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _log_to_stderr() -> None:
    """One line for each record, and not many alike: some tell of what peers do."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines("twinbus: "))
    handler.addFilter(RateLimit())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


async def until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Serve until the event that `serve` gets is set: by SIGINT or SIGTERM."""
    stop = asyncio.Event()

    def request_stop(number: int) -> None:
        """The second signal ends the process on the spot."""
        if stop.is_set():
            os._exit(128 + number)  # what was acknowledged is on disk already
        stop.set()

    with on_signals({number: partial(request_stop, number) for number in (signal.SIGINT, signal.SIGTERM)}):
        await serve(stop)


# --- what clients have to know ---


def rule_connection_strings(server: EndpointServer[Any]) -> dict[str, str]:
    """By rule, those of the rules that were asked for."""
    return {rule.name: server.connection_string_for(rule.name) for rule in server.options.rules}


def needs_of_clients(server: EndpointServer[Any]) -> str:
    """What clients have to be told beside the connection string, if the server takes TLS only."""
    needs = []
    if server.ca_file is not None:
        needs.append(f"to trust {server.ca_file}")
    if server.port != TLS_PORT:
        needs.append(f"(except those of Node and Java) to be told the port, because they go to {TLS_PORT}")
    return f"official clients need {' and '.join(needs)}" if needs else "clients need nothing but the string"


def address_hints(server: EndpointServer[Any]) -> list[str]:
    """What to know about how it is reached, one line each."""
    name, hints = server.options.name, []
    if server.is_tls_only:
        hints.append(f"{name} takes TLS only: {needs_of_clients(server)}")
    if here := _only_here(server):
        hints.append(f"{name}: on other machines, write {socket.gethostname()} in place of {here}")
    return hints


def _only_here(server: EndpointServer[Any]) -> str | None:
    """The host of the printed string, if others can reach the port and this name means their own machine to them."""
    if server.options.host not in EVERY_ADDRESS:
        return None
    host = ConnectionString.parse(server.connection_string).host
    return host if host in EVERY_ADDRESS.values() else None
