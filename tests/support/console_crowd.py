"""A console in this process whose state is written by the test: as many entities, processes and events as it likes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from twinbus.client.namespace import Namespace
from twinbus.console.actions import ConsolePair
from twinbus.console.server import ConsoleOptions, ConsoleServer
from twinbus.console.state import ConsoleState
from twinbus.console.watch import ConsoleWatch

PRIMARY = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;"
    "TwinbusNamespace=contoso;UseDevelopmentEmulator=true"
)
SECONDARY = PRIMARY.replace("contoso", "backup").replace(":1;", ":2;")
TOKEN = "0123456789abcdef" * 3


class NoWatch:
    """Looks at nothing: the test says what there is."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def queues(self) -> list[int]:
        return [0]


class Crowd:
    def __init__(self, loop: asyncio.AbstractEventLoop, server: ConsoleServer, state: ConsoleState) -> None:
        self._loop, self.server, self.state = loop, server, state

    @property
    def entrance(self) -> str:
        return self.server.entrance

    def put(self, name: str, section: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self.state.put, name, section)

    def tell(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self.state.tell, "note", text)


@contextmanager
def crowd(*, allows_changes: bool = False) -> Iterator[Crowd]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="console-of-test")
    thread.start()
    state = ConsoleState()
    sides = [Namespace.from_connection_string(text) for text in (PRIMARY, SECONDARY)]
    pair = ConsolePair(sides[0], sides[1], "contoso", 10, 1.0, {})
    options = ConsoleOptions(port=0, token=TOKEN, allows_changes=allows_changes)
    server = ConsoleServer(options, pair, state, cast("ConsoleWatch", NoWatch()))
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    try:
        yield Crowd(loop, server, state)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def verdict(state: str = "failed over", reason: str = "sending fails") -> dict[str, Any]:
    row = {"name": "the pair", "state": state, "reason": reason, "reasons": [reason], "unknown": [], "at": 1.0}
    return {"pair": {**row, "since": None}}


def entity(name: str, state: str = "healthy", reason: str = "") -> dict[str, Any]:
    ability = {"works": state != "failed over", "why": reason or None}
    counts = {"failed_over": 3 if state == "failed over" else 0, "suspect": 0, "healthy": 197}
    return {
        "name": name,
        "kind": "queue",
        "state": state,
        "reason": reason,
        "since": None,
        **dict.fromkeys(("sending", "receiving", "managing"), ability),
        "waiting": 0,
        "waiting_at_least": 0,
        **counts,
        "who": [{"process": "client 7 on web-1", "state": state}],
        "next_ping": None,
    }


def process(number: int, state: str = "reporting") -> dict[str, Any]:
    return {
        "name": f"client {number} on web-{number % 20}",
        "kind": "client",
        "host": f"web-{number % 20}",
        "process": number,
        "state": state,
        "reason": "",
        "entities": 1_000,
        "troubled": number % 3,
        "troubled_names": ["q-1"],
        "held": 0,
        "spooled": None,
        "sent_to_backlog": number,
        "secondary_down_for": None,
        "syphon": None,
    }
