"""A stream that consumes, without Spark and without a namespace: what each keeps, and who may be killed when."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.consuming_offsets import ConsumingOffsets
from twinbus.spark.source.consuming.staged_files import decode_messages, read_staged
from twinbus.spark.source.consuming.staging import (
    AdoptTask,
    ReceiveTask,
    StagedFile,
    TaskManifest,
    parse_name,
    parse_offset,
)
from twinbus.spark.source.consuming.task_steps import LockedMessage, Steps, run_steps, stage_steps, take_step
from twinbus.spark.source.options import read_options
from twinbus.spark.source.stream_offsets import CHECK_S, PeekedEntry
from twinbus.storage import Folder, Lease, SkipFolder, StoredFile

CHUNK, TASK_MAX = 2, 3
QUEUE = "orders"
TRIGGERS_MAX = 300


class Killed(Exception):
    """The process ended here."""


class Fuse:
    """Ends the process at one of its next operations: before it has an effect, or just after."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False

    def burn(self, *, done: bool) -> None:
        if self.left is None or self.after is not done:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Killed


class MemoryFolder:
    """A folder in memory."""

    url = "memory://staging"
    is_local = False

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.fuse = Fuse()

    def check_packages(self) -> None:
        pass

    def check_replaces(self) -> None:
        pass

    def path(self) -> Path:
        raise NotImplementedError

    def where(self, name: str) -> str:
        return f"{self.url}/{name}"

    def below(self, name: str) -> MemoryFolder:
        raise NotImplementedError

    def files(self, below: str = "", *, skip: SkipFolder | None = None) -> list[StoredFile]:
        self.fuse.burn(done=False)
        found = [StoredFile(name, len(data), "") for name, data in sorted(self.content.items())]
        self.fuse.burn(done=True)
        return found

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def read(self, name: str) -> bytes:
        if name not in self.content:
            raise FileNotFoundError(name)
        return self.content[name]

    def exists(self, name: str) -> bool:
        return name in self.content

    def file(self, name: str) -> StoredFile | None:
        return next((each for each in self.files() if each.name == name), None)

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        self.fuse.burn(done=False)
        self.content[name] = data
        self.fuse.burn(done=True)

    def create(self, name: str, data: bytes) -> bool:
        if name in self.content:
            return False
        self.content[name] = data
        return True

    def upload(self, name: str, source: Path) -> None:
        raise NotImplementedError

    def draft(self, name: str) -> AbstractContextManager[Path]:
        raise NotImplementedError

    def sync(self, names: Iterable[str]) -> None:
        """Memory is as durable as it gets."""

    def delete_drafts(self, below: str = "") -> None:
        raise NotImplementedError

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.fuse.burn(done=False)
            self.content.pop(name, None)
            self.fuse.burn(done=True)

    def lock(self, name: str) -> AbstractContextManager[Lease]:
        raise NotImplementedError

    def arrow_filesystem(self) -> tuple[Any, str]:
        raise NotImplementedError


class LockedQueue:
    """Messages by number; a lock is a number of a delivery."""

    def __init__(self) -> None:
        self.waiting: dict[int, int | None] = {}
        """None: free."""
        self.locks_are_short = False
        """They end before anything is completed."""
        self.sent = 0
        self._deliveries = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            self.waiting[self.sent] = None

    def end_locks(self) -> None:
        self.waiting = dict.fromkeys(self.waiting)

    def peek(self, entity: str, number: int, most: int) -> list[PeekedEntry]:
        found = sorted(each for each in self.waiting if each >= number)[:most]
        return [PeekedEntry(each, each) for each in found]

    def receive(self, most: int) -> Sequence[LockedMessage]:
        chunk = []
        for number in [each for each, lock in self.waiting.items() if lock is None][: min(most, CHUNK)]:
            self._deliveries += 1
            self.waiting[number] = self._deliveries
            chunk.append(LockedMessage(self._deliveries, str(number).encode()))
        return chunk

    def complete(self, chunk: Sequence[LockedMessage]) -> int:
        if self.locks_are_short:
            self.end_locks()
        live = [each for each in chunk if self.waiting.get(int(each.message)) == each.number]
        for each in live:
            del self.waiting[int(each.message)]
        return len(live)


class Attempt:
    """An attempt at a task, and the step that it takes next."""

    def __init__(self, task: ReceiveTask, name: str) -> None:
        self.steps = stage_steps(task, name.encode().hex())
        self.step = next(self.steps)

    def rest(self) -> Steps:
        """The steps that it has not taken."""
        answer = yield self.step
        while True:
            try:
                answer = yield self.steps.send(answer)
            except StopIteration as done:
                manifest: TaskManifest = done.value
                return manifest


class ConsumingWorld:
    """Spark's side: its log of offsets, its log of commits, and a sink."""

    def __init__(self, staged: ConsumingWorld | None = None, place: Folder | None = None, **given: str) -> None:
        """`staged`: another stream, whose queue and staging location this one has; `place`: a real one."""
        self.queue: LockedQueue = LockedQueue() if staged is None else staged.queue
        self.folder: MemoryFolder = MemoryFolder({} if staged is None else staged.folder.content)
        self._place = place
        self._tasks_folder: Folder = place or MemoryFolder(self.folder.content)
        """The same, without the fuse of the driver: tasks are killed between their steps."""
        wishes = {"servicebus.credential": "env:SB", "queues": QUEUE, "mode": "receive", "stagingLocation": "/staging"}
        self.options = read_options(wishes | {"maxMessagesPerPartition": str(TASK_MAX)} | given)
        self.offsets: dict[int, dict[str, Any]] = {}
        self.committed = 0
        self.sink: dict[int, list[int]] = {}
        """What the first evaluation of each batch that the sink kept had in it."""
        self.seen: dict[int, list[int]] = {}
        self.zombies: list[Attempt] = []
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.troubles = 0
        """Attempts that were killed, or slept, and locks that ended."""
        self._driver = self._new_driver()

    def _new_driver(self) -> ConsumingOffsets:
        self.folder.fuse.left = None
        return ConsumingOffsets(
            self.options,
            self._place or self.folder,
            self.queue.peek,
            monotonic=lambda: self.now_s,
            sleep=self.pauses.append,
        )

    def restart(self) -> None:
        self._driver = self._new_driver()

    def stop_at_what_is_there(self) -> None:
        self._driver.stop_at_what_is_there()

    # --- a trigger ---

    def trigger(self, cuts: Sequence[int] = (), stop_at: str = "", *, evaluates_twice: bool = False) -> bool:
        """One batch; False if there was nothing to do. `cuts` says how the first attempts of its tasks end: after so
        many steps, killed, or asleep if negative. The driver is killed at `stop_at`.
        """
        self.now_s += 2 * CHECK_S
        batch = max(self.offsets, default=0)
        if batch == self.committed:
            start = self.offsets.get(batch) or self._driver.initial()
            end = self._driver.latest(start, None)
            if end == start:
                return False
            batch += 1
            self.offsets[batch] = end
            self._stop(stop_at, "planned")
            if batch > 1:
                self._driver.commit(self.offsets[batch - 1])
        end = self.offsets[batch]
        start = self.offsets.get(batch - 1) or self._driver.initial()
        tasks = self._driver.tasks(start, end)
        assert parse_offset(end).batch == batch
        for number, task in enumerate(tasks):
            self._fail_attempt(task, cuts[number % len(cuts)] if cuts else 0, f"a{batch}{number}{len(self.zombies)}")
        rows = self._evaluate(batch, tasks)
        self._stop(stop_at, "evaluated")
        if evaluates_twice:
            assert self._evaluate(batch, tasks) == rows
        if batch not in self.sink:
            self.sink[batch] = rows
        assert self.sink[batch] == rows, "a sink that knows the batch skips it: it must be the same one"
        self._stop(stop_at, "sunk")
        self.committed = batch
        return True

    @staticmethod
    def _stop(stop_at: str, here: str) -> None:
        if stop_at == here:
            raise Killed

    def race(self, task: ReceiveTask, ahead: int) -> tuple[TaskManifest, TaskManifest]:
        """What two attempts read, of which the first takes so many steps before the second one does all of its own."""
        first = Attempt(task, "first")
        is_at_work = self._advance(first, ahead)
        second = self._stage(task, "second")
        if not is_at_work:  # it was quicker
            return second, second
        return run_steps(first.rest(), self._tasks_folder, self.queue), second

    def _fail_attempt(self, task: ReceiveTask | AdoptTask, cut: int, name: str) -> None:
        if isinstance(task, AdoptTask) or not cut:
            return
        attempt = Attempt(task, name)
        if self._advance(attempt, abs(cut) - 1):
            self.troubles += 1
            if cut < 0:
                self.zombies.append(attempt)

    def _advance(self, attempt: Attempt, count: int) -> bool:
        """Whether the attempt is still at work after so many more steps."""
        try:
            for _ in range(count):
                attempt.step = attempt.steps.send(take_step(attempt.step, self._tasks_folder, self.queue))
        except (StopIteration, TwinbusError):
            return False
        return True

    def wake(self, count: int) -> None:
        """The oldest attempt that slept goes on."""
        if self.zombies:
            attempt = self.zombies.pop(0)
            if self._advance(attempt, count):
                self.zombies.append(attempt)

    def _evaluate(self, batch: int, tasks: Sequence[ReceiveTask | AdoptTask]) -> list[int]:
        rows = [row for number, task in enumerate(tasks) for row in self._rows(task, f"b{batch}-{number}-{self.now_s}")]
        assert self.seen.setdefault(batch, rows) == rows, "all complete evaluations of a batch are the same"
        return rows

    def _rows(self, task: ReceiveTask | AdoptTask, name: str) -> list[int]:
        files: Collection[str] = task.files if isinstance(task, AdoptTask) else self._stage(task, name).files
        return [int(row) for staged in read_staged(self._tasks_folder, list(files)) for row in staged.messages]

    def _stage(self, task: ReceiveTask, name: str) -> TaskManifest:
        return run_steps(stage_steps(task, name.encode().hex()), self._tasks_folder, self.queue)

    # --- what is true ---

    def staged(self) -> Counter[int]:
        """Messages in files, however often."""
        data = [each for name, each in self.folder.content.items() if isinstance(parse_name(name), StagedFile)]
        return Counter(int(message) for each in data for message in decode_messages(each).messages)

    def delivered(self) -> Counter[int]:
        """Messages in committed batches."""
        return Counter(row for batch, rows in self.sink.items() if batch <= self.committed for row in rows)

    def missing(self) -> set[int]:
        """Messages that are nowhere."""
        return set(range(1, self.queue.sent + 1)) - set(self.queue.waiting) - set(self.staged()) - set(self.delivered())

    def finish(self) -> None:
        """Everybody comes to an end, and the stream runs until nothing is left."""
        self.restart()
        while self.zombies:
            self.wake(100)
        for _ in range(TRIGGERS_MAX):
            if not self.trigger() and not self.queue.waiting:
                return
            self.queue.end_locks()
        raise AssertionError("the stream never ends")
