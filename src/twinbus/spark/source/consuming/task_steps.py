"""A task that consumes: receive under lock, stage, complete, name what was staged.

`stage_steps` decides and asks for one step at a time; `run_steps` takes the steps with a real folder and a real link.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, assert_never

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.staged_files import encode_messages, read_manifest
from twinbus.spark.source.consuming.staging import ReceiveTask, TaskManifest
from twinbus.storage import Folder

logger = logging.getLogger("twinbus.spark")


class LockedMessage(NamedTuple):
    """A message under lock."""

    number: int
    """Of the delivery on its link."""
    message: bytes


class ChunkReceiver(Protocol):
    """A link of one task to its entity."""

    def receive(self, most: int) -> Sequence[LockedMessage]:
        """The next chunk, at most so many; none if nothing comes. Raises `TwinbusError`."""

    def complete(self, chunk: Sequence[LockedMessage]) -> int:
        """How many of them are completed for certain; the others may come again."""


# --- steps ---


class ReadManifest(NamedTuple):
    """Answer: a `TaskManifest`, or None."""

    name: str


class ReceiveChunk(NamedTuple):
    """Answer: deliveries; none if nothing comes, or the link is lost."""

    most: int
    may_fail: bool
    """Whether a failure ends the task; else what was staged is enough."""


class StageChunk(NamedTuple):
    """Write a file; it is durable when this returns."""

    name: str
    entity: str
    chunk: Sequence[LockedMessage]


class CompleteChunk(NamedTuple):
    """Answer: how many are completed for certain."""

    chunk: Sequence[LockedMessage]


class CreateManifest(NamedTuple):
    """Answer: whether it is new."""

    name: str
    manifest: TaskManifest


Step = ReadManifest | ReceiveChunk | StageChunk | CompleteChunk | CreateManifest
Steps = Generator[Step, Any, TaskManifest]


def stage_steps(task: ReceiveTask, attempt: str) -> Steps:
    """What this task of the batch reads, once it is fixed; see `staging` for why it takes these steps in this order."""
    fixed = yield ReadManifest(task.manifest)
    if fixed is not None:
        return fixed  # type: ignore[no-any-return]
    files: list[str] = []
    rows = uncompleted = 0
    while rows < task.most:
        chunk = yield ReceiveChunk(task.most - rows, may_fail=not files)
        if not chunk:
            break
        files.append(task.file(attempt, len(files)))
        yield StageChunk(files[-1], task.entity, chunk)
        rows += len(chunk)
        completed = yield CompleteChunk(chunk)
        uncompleted += len(chunk) - completed
        if not completed:
            break  # its locks end before it is staged: more would only be repeated
    manifest = TaskManifest(tuple(files), rows, uncompleted)
    if (yield CreateManifest(task.manifest, manifest)):
        return manifest
    fixed = yield ReadManifest(task.manifest)
    if fixed is None:
        raise TwinbusError(f"{task.manifest} is gone: its batch is over, and this attempt of a task comes too late")
    return fixed  # type: ignore[no-any-return]


def run_steps(steps: Steps, folder: Folder, receiver: ChunkReceiver) -> TaskManifest:
    """Take all steps. Raises `TwinbusError`."""
    try:
        step = next(steps)
        while True:
            step = steps.send(take_step(step, folder, receiver))
    except StopIteration as done:
        manifest: TaskManifest = done.value
        return manifest


def take_step(step: Step, folder: Folder, receiver: ChunkReceiver) -> Any:
    match step:
        case ReadManifest(name):
            return read_manifest(folder, name)
        case ReceiveChunk(most, may_fail):
            try:
                return receiver.receive(most)
            except TwinbusError as error:
                if may_fail:
                    raise
                logger.warning("receiving ended early, what came before is delivered: %s", error)
                return ()
        case StageChunk(name, entity, chunk):
            folder.put(name, encode_messages(entity, [delivery.message for delivery in chunk]))
            return None
        case CompleteChunk(chunk):
            return receiver.complete(chunk)
        case CreateManifest(name, manifest):
            return folder.create(name, manifest.encode())
        case _:
            assert_never(step)
