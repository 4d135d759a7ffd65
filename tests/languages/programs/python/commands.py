"""What the Python programs share: reading commands, answering them, and files that survive a kill."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

BATCH = 5
AFTER_FAILURE_S = 0.5
DUE_S = 1.0
"""A scheduled message is due that long after it was sent."""

Command = dict[str, Any]
Answer = dict[str, Any]


class IdFile:
    """A line for each id, on disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._lock = threading.Lock()
        self.counts = {"accepted": 0, "failed": 0, "received": 0, "problem": 0}

    def add(self, *lines: tuple[object, ...]) -> None:
        with self._lock:
            for kind, *_ in lines:
                self.counts[str(kind)] += 1
            text = "".join(" ".join(str(word) for word in words).replace("\n", " ") + "\n" for words in lines)
            os.write(self._file, text.encode())
            os.fsync(self._file)


class Round(NamedTuple):
    how: str
    ids: list[str]


def rounds(prefix: str) -> Iterator[Round]:
    """What to send, without end."""
    number = 0
    for how in cycle(("single", "batch", "schedule")):
        count = 1 if how == "single" else BATCH
        yield Round(how, [f"{prefix}-{number + each}" for each in range(count)])
        number += count


def kind_of(error: BaseException) -> str:
    return type(error).__name__


def failed_lines(ids: list[str], error: BaseException) -> list[tuple[object, ...]]:
    return [("failed", each, kind_of(error), error) for each in ids]


def counts_of(files: list[IdFile]) -> Answer:
    return {kind: sum(file.counts[kind] for file in files) for kind in ("accepted", "failed", "received")}


class ThreadedClient:
    """A client whose loops run on threads, each with a file of its own."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._loops: list[threading.Thread] = []
        self._files: list[IdFile] = []

    def send(self, command: Command) -> Answer:
        self._send(command["entity"], command["how"], command["ids"])
        return {}

    def start_sending(self, command: Command) -> Answer:
        return self._start(self._keep_sending, command)

    def start_receiving(self, command: Command) -> Answer:
        return self._start(self._keep_receiving, command)

    def _start(self, loop: Callable[[Command, IdFile], None], command: Command) -> Answer:
        file = IdFile(command["file"])
        self._files.append(file)
        thread = threading.Thread(target=loop, args=(command, file), daemon=True)
        self._loops.append(thread)
        thread.start()
        return {}

    def stop(self, _: Command) -> Answer:
        self._stopping.set()
        for loop in self._loops:
            loop.join()
        return counts_of(self._files)

    def _send(self, entity: str, how: str, ids: list[str]) -> None:
        raise NotImplementedError

    def _keep_sending(self, command: Command, file: IdFile) -> None:
        raise NotImplementedError

    def _keep_receiving(self, command: Command, file: IdFile) -> None:
        raise NotImplementedError


def commands() -> Iterator[Command]:
    for line in sys.stdin:
        yield json.loads(line)


def answer(command: Command, began: float, values: Answer) -> None:
    line = {"id": command["id"], "ms": round((time.monotonic() - began) * 1000), **values}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def error_values(error: BaseException) -> Answer:
    return {"error": kind_of(error), "text": str(error)}


def serve(client: object) -> None:
    """Answer commands until there are no more: each is a method of the client."""
    for command in commands():
        began = time.monotonic()
        try:
            values = method_of(client, command)(command)
        except Exception as error:
            values = error_values(error)
        answer(command, began, values)


def method_of(client: object, command: Command) -> Callable[[Command], Any]:
    method: Callable[[Command], Any] = getattr(client, str(command["do"]).replace("-", "_"))
    return method
