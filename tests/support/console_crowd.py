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

    @property
    def streams(self) -> int:
        """Pages that are told what is new."""
        app = self.server._app
        return 0 if app is None else len(app._streams)

    def put(self, name: str, section: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self.state.put, name, section)

    def add_event(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self.state.add_event, "note", text)


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


def source(at: float, fresh_s: float, problem: str = "") -> dict[str, Any]:
    return {"at": at, "stale_at": at + fresh_s, "problem": problem}


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
        "cannot_receive": 0,
        "cannot_manage": 0,
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


def every_section(text: str, state: str | None = None) -> dict[str, dict[str, Any]]:
    """Everything that the page shows, with this text wherever others may have written it; None: as states, too."""
    state = text if state is None else state
    side = {"name": text, "address": text, "state": state, "reason": text, "since": 1.0}
    queue = {"name": text, "state": state, "reason": text, "is_extra": True, "messages": None, "at_least": 1,
             "quarantined": None, "quarantined_at_least": 0, "size": 1, "room": 1, "oldest_age": 1.0}  # fmt: skip
    syphon = {"name": text, "id": text, "pid": 1, "state": state, "reason": text, "rate": 1.0, "role": text,
              "is_paused": False, "entities": [text], "destinations_down": [text], "troubles": [text]}  # fmt: skip
    quarantined = {"number": [0, 1], "message_id": text, "entity": text, "reason": text, "description": text,
                   "size": 1, "since": 1.0}  # fmt: skip
    step = {"text": text, "command": text, "action": "", "key": "", "link": ""}
    return {
        "verdict": {
            "pair": {**verdict()["pair"], "state": state, "reason": text, "reasons": [text], "unknown": [text]}
        },
        "advice": {
            "loss": {"state": "no", "text": text},
            "home": {"seconds": None, "word": text, "text": text},
            "todo": [step],
        },
        "sides": {"primary": {"side": "primary", **side}, "secondary": {"side": "secondary", **side}},
        "entities": {text: entity(text, state, text)},
        "queues": {text: queue},
        "unlisted": {"why": text},
        "syphons": {text: syphon},
        "quarantine": {"0/1": quarantined},
        "fleet": {"has_board": True, "problem": text},
        "processes": {text: {**process(1, state), "name": text, "reason": text, "troubled_names": [text]}},
        "spools": {text: {"name": text, "folder": text, "messages": 1, "process": None, "problem": text}},
        "proxies": {text: {"name": text, "state": state, "reason": text}},
        "controls": {"sides": ["primary"]},
        "sources": {"the pair": source(1.0, 1.0, text), "the board": {"at": None, "stale_at": None, "problem": text}},
        "faults": {f"primary/{text}": {"side": "primary", "id": text, "text": text, "ends": None}},
        "backlog": {
            "waiting": None,
            "waiting_at_least": 1,
            "size": 1,
            "room": 1,
            "oldest_age": 1.0,
            "full_in": 9.0,
            "is_filling": True,
            "doubt": text,
            "unlisted": text,
            "quarantined": 1,
        },
    }
