"""A large ledger, written as quickly as Python can: as the ledger writes it, without its care."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from zlib import crc32

SEGMENT_LINES = 200_000
BASE_MS, BETWEEN_MS = 1_741_500_000_000, 7
QUEUES = 20
OUT_MS, OUT_EVERY_MS = 60_000, 600_000
"""How long half of the queues are out, and how often."""
BACK_MS, DONE_MS = 60_000, 1_000
"""How long a message waits in the backlog, and how long at home for its receiver."""


class LedgerWriter:
    """Two clients, a syphon and a receiver. One minute in ten half of the queues are out; what is sent to them then
    comes home a minute later, beside what is sent directly again: order suffers.

    Time goes on with every message: what is in the backlog, or waits for its receiver, when one writing ends is in the
    next.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._writers = [_Lines(directory, f"{number:016x}") for number in range(4)]
        self._message = 0
        self._is_out = False
        self._home: deque[tuple[int, bytes, bytes, bytes]] = deque()
        self._done: deque[tuple[int, bytes]] = deque()
        """Both in the order of their times, because everybody waits equally long."""

    def write(self, events: int) -> None:
        """So many events more, in segments of their own."""
        target = self._events + events
        while self._events < target:
            self._send(BASE_MS + self._message * BETWEEN_MS)
            self._message += 1
        for writer in self._writers:
            writer.end()

    @property
    def _events(self) -> int:
        return sum(writer.number for writer in self._writers)

    def _send(self, at: int) -> None:
        message, client = self._message, self._writers[self._message // 2 % 2]
        name = b'"message_ids":["%032x"],"sizes":[1024]' % (message * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))
        where = b'"entity":"queue%d","namespace":"contoso",' % (message % QUEUES)
        self._go_on(at)
        self._tell(at)
        if message % 2 or not self._is_out:
            client.add(at, b'"kind":"accepted",%b%b' % (where, name))
            self._done.append((at + DONE_MS, where + name))
        else:
            queue = b'"queue":"contoso/x-servicebus-transfer/%d",' % (message // 10 % 10)
            client.add(at, b'"kind":"backlogged",%b%b%b' % (where, queue, name))
            self._home.append((at + BACK_MS, where, queue, name))

    def _tell(self, now: int) -> None:
        """Both clients say when the queues go and when they are back."""
        is_out = now % OUT_EVERY_MS < OUT_MS
        kinds = (b"suspected", b"failed_over") if is_out else (b"recovered",)
        for client in self._writers[:2] if is_out != self._is_out else ():
            for queue in range(0, QUEUES, 2):
                for kind in kinds:
                    client.add(now, b'"kind":"%b","entity":"queue%d","namespace":"contoso"' % (kind, queue))
        self._is_out = is_out

    def _go_on(self, now: int) -> None:
        """What is due by now comes home, or is delivered."""
        syphon, receiver = self._writers[2:]
        while self._home and self._home[0][0] <= now:
            at, where, queue, name = self._home.popleft()
            syphon.add(at, b'"kind":"received_from_backlog",%b%b%b' % (where, queue, name))
            syphon.add(at + 4, b'"kind":"sent_home",%b%b' % (where, name))
            syphon.add(at + 9, b'"kind":"completed",%b%b%b' % (where, queue, name))
            self._done.append((now + DONE_MS, where + name))
        while self._done and self._done[0][0] <= now:
            at, what = self._done.popleft()
            receiver.add(at, b'"kind":"delivered",' + what)


class _Lines:
    """Lines of one process."""

    def __init__(self, directory: Path, process: str) -> None:
        self._directory, self._process = directory, process
        self._who = b'{"v":1,"process":"%b","pid":1,"host":"bench","program":"bench"' % process.encode()
        self._lines: list[bytes] = []
        self._segment = 0
        self.number = 0

    def add(self, at_ms: int, said: bytes) -> None:
        self.number += 1
        body = b'%b,"number":%d,"at_ms":%d,"monotonic_us":%d,%b' % (self._who, self.number, at_ms, at_ms, said)
        self._lines.append(b'%b,"crc":%d}\n' % (body, crc32(body)))
        if len(self._lines) >= SEGMENT_LINES:
            self.end()

    def end(self) -> None:
        """Write what there is as a segment."""
        if self._lines:
            self._segment += 1
            name = f"20250309T060000Z-{self._process}-{self._segment:06}.jsonl"
            (self._directory / name).write_bytes(b"".join(self._lines))
            self._lines.clear()
