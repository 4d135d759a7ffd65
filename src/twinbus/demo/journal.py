"""What a process of the demo wrote down, one JSON object a line: the only evidence that the judge accepts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["acknowledged", "failed", "received", "news"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    kind: Kind
    entity: str = ""
    message_id: str = ""
    session: str | None = None
    place: str = ""
    """Where an acknowledged message is: "primary", or the path of a backlog queue."""
    news: str = ""
    """The name of what happened."""
    note: str = ""
    """A line for people."""
    took_s: float = 0.0
    """How long a call of send lasted."""
    at_s: float = field(default_factory=time.time)


class JournalWriter:
    """Entries are in the file when `write` returns. Threads may share one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._turn = threading.Lock()

    def write(self, entry: Entry) -> None:
        with self._turn:
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class JournalReader:
    """Follows a journal while it grows. A file that does not exist yet is an empty journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_entries(self) -> Iterator[Entry]:
        """What came since the last call; a line that is still being written comes next time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                yield Entry(**json.loads(line))
