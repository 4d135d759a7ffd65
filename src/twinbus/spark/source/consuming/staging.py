"""How a stream consumes messages: decisions only, without I/O.

Spark tells a reader on the driver that a batch is done, but the locks of messages belong to the tasks that received
them, end after five minutes at most, and Spark never reports the last batch. So messages leave the queue *before* Spark
has processed them, and until then they are in a folder that survives everything: the staging location.

A task of a batch

1. reads what its manifest names, if there is one: another attempt, or another evaluation of the batch, has been here;
2. else receives messages under lock, writes each chunk of them as a file that is durable, and completes the chunk on
   the same link;
3. creates its manifest, which names these files. Of several attempts only one can; the others read what it names.

From then on the task of this batch always reads the same rows. The driver

4. plans the next batch when Spark asks for the latest offset. Then everything up to the last offset is committed: the
   files that manifests of these batches name, and those that these batches adopted, are *delivered*, and are deleted.
   All other files of these batches are of attempts that were lost: the next batch *adopts* them;
5. writes the whole plan into the offset: how many tasks there are for each entity and which files are adopted. Spark
   keeps it before the first task runs, so a batch that is run again is the same, whatever has happened since.

Why nothing is lost: a message is completed only when it is in a file; a file is deleted only if a committed batch has
read it; a file of a committed batch that was not read is adopted. An attempt that wakes up late may create a manifest
that no batch reads. While the manifests of a batch exist that cannot happen, and they are kept until its delivered
files are gone. The next offset says so (`closed`), and from then on manifests of that batch mean nothing: whatever
files it still gets are adopted.

What is repeated: messages that were staged and not completed when an attempt was killed, at most a chunk of them, and
a batch that Spark runs again in a sink that is not idempotent.

    STREAM/stream.json                    the stream was here: if it is gone, staging was lost
    STREAM/BATCH-TASK-ATTEMPT-CHUNK.arrow  messages
    STREAM/BATCH-TASK.json                 a manifest
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from twinbus.errors import TwinbusError

RECEIVE = "receive"
MARK = "stream.json"
ADOPTED_MAX = 500
"""Files in one offset, which Spark keeps in its checkpoint; the rest is for the batch after it."""
ADOPTED_PER_TASK = 10
TASKS_MAX = 1_000
_DATA = re.compile(r"(\d{9,})-(\d{4,})-([0-9a-f]+)-(\d{4,})\.arrow")
_MANIFEST = re.compile(r"(\d{9,})-(\d{4,})\.json")

# --- names ---


class StagedFile(NamedTuple):
    """A file of messages."""

    stream: str
    batch: int
    task: int
    attempt: str
    chunk: int

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.batch:09}-{self.task:04}-{self.attempt}-{self.chunk:04}.arrow"


class ManifestName(NamedTuple):
    stream: str
    batch: int
    task: int

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.batch:09}-{self.task:04}.json"


def mark_of(stream: str) -> str:
    return f"{stream}/{MARK}"


def parse_name(name: str) -> StagedFile | ManifestName | None:
    """None: it is not ours, or a mark."""
    stream, _, own = name.rpartition("/")
    if data := _DATA.fullmatch(own):
        return StagedFile(stream, int(data[1]), int(data[2]), data[3], int(data[4]))
    if manifest := _MANIFEST.fullmatch(own):
        return ManifestName(stream, int(manifest[1]), int(manifest[2]))
    return None


# --- manifests ---


class TaskManifest(NamedTuple):
    """What a task of a batch reads."""

    files: tuple[str, ...] = ()
    rows: int = 0
    uncompleted: int = 0
    """Staged, but their locks ended or their link was lost: they come again."""

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_manifest(data: bytes) -> TaskManifest:
    fields = json.loads(data)
    return TaskManifest(tuple(fields["files"]), int(fields["rows"]), int(fields["uncompleted"]))


# --- offsets ---


class EntityTasks(NamedTuple):
    """How an entity is received in one batch."""

    tasks: int
    most: int
    """Messages for each task."""


class ReceiveOffset(NamedTuple):
    """The end of a batch, and its plan."""

    stream: str
    batch: int = 0
    closed: int = 0
    """Manifests up to this batch mean nothing."""
    tasks: Mapping[str, EntityTasks] = {}
    adopted: tuple[str, ...] = ()
    received: int = 0
    """Messages in earlier batches, counted as often as they came."""
    uncompleted: int = 0
    adopted_files: int = 0

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict() | {"tasks": {name: list(tasks) for name, tasks in self.tasks.items()}}
        return {"mode": RECEIVE} | fields | {"adopted": list(self.adopted)}


def is_receive_offset(offset: Mapping[str, Any] | None) -> bool:
    return (offset or {}).get("mode") == RECEIVE


def parse_offset(offset: Mapping[str, Any]) -> ReceiveOffset:
    """Raises `TwinbusError` if it is of a stream that browses, or of another version."""
    if not is_receive_offset(offset):
        raise TwinbusError(
            "the checkpoint is of a stream with mode=browse, and what that has read is still in its queues: give "
            "mode=receive a checkpointLocation of its own"
        )
    fields = {name: value for name, value in offset.items() if name != "mode"}
    try:
        tasks = {name: EntityTasks(*pair) for name, pair in fields.pop("tasks").items()}
        return ReceiveOffset(**fields | {"tasks": tasks, "adopted": tuple(fields["adopted"])})
    except (AttributeError, KeyError, TypeError, ValueError):
        raise TwinbusError(
            f"the checkpoint says {dict(offset)!r:.200}, which this twinbus does not understand: go on with the "
            "version that wrote it, or a newer one"
        ) from None


# --- tasks ---


class ReceiveTask(NamedTuple):
    """Receives, or reads what was received."""

    stream: str
    batch: int
    task: int
    entity: str
    most: int

    @property
    def manifest(self) -> str:
        return ManifestName(self.stream, self.batch, self.task).name

    def file(self, attempt: str, chunk: int) -> str:
        return StagedFile(self.stream, self.batch, self.task, attempt, chunk).name


class AdoptTask(NamedTuple):
    """Reads files of attempts that were lost."""

    stream: str
    files: tuple[str, ...]


def tasks_of(end: ReceiveOffset) -> list[ReceiveTask | AdoptTask]:
    """All tasks of the batch that ends there: the same whenever it is run."""
    pieces = [end.adopted[at : at + ADOPTED_PER_TASK] for at in range(0, len(end.adopted), ADOPTED_PER_TASK)]
    found: list[ReceiveTask | AdoptTask] = [AdoptTask(end.stream, piece) for piece in pieces]
    number = 0
    for entity, (count, most) in sorted(end.tasks.items()):
        found += [ReceiveTask(end.stream, end.batch, number + each, entity, most) for each in range(count)]
        number += count
    return found


def plan_tasks(shares: Mapping[str, int], most: int) -> dict[str, EntityTasks]:
    """Tasks of at most `most` messages each for so many messages of each entity; at most `TASKS_MAX`, the rest waits.

    Every entity with messages gets at least one, and tasks of an entity have equal shares.
    """
    needed = {entity: -(-share // most) for entity, share in shares.items() if share > 0}
    whole = sum(needed.values())
    if whole > TASKS_MAX:
        needed = {entity: max(1, count * TASKS_MAX // whole) for entity, count in needed.items()}
    return {entity: EntityTasks(count, min(most, -(-shares[entity] // count))) for entity, count in needed.items()}


# --- what is in staging ---


class SortedFiles(NamedTuple):
    delivered: tuple[str, ...]
    """A committed batch has read them: delete them."""
    orphans: tuple[str, ...]
    """Of lost attempts: the next batch adopts them."""
    void: tuple[str, ...]
    """Manifests that mean nothing any more: delete them."""


def manifests_to_read(names: Iterable[str], committed: ReceiveOffset) -> list[str]:
    """The manifests that say which files are delivered, once everything up to an offset is committed."""
    found = [parse_name(name) for name in names]
    return [
        each.name
        for each in found
        if isinstance(each, ManifestName)
        and each.stream == committed.stream
        and committed.closed < each.batch <= committed.batch
    ]


def sort_files(names: Iterable[str], committed: ReceiveOffset, manifests: Collection[TaskManifest]) -> SortedFiles:
    """`manifests` are those of `manifests_to_read`. Files of later batches, and of other streams, are left alone."""
    read = {file for manifest in manifests for file in manifest.files} | set(committed.adopted)
    delivered, orphans, void = [], [], []
    for name in names:
        found = parse_name(name)
        if name in read:
            delivered.append(name)
        elif found is None or found.stream != committed.stream:
            continue
        elif isinstance(found, StagedFile) and found.batch <= committed.batch:
            orphans.append(name)
        elif isinstance(found, ManifestName) and found.batch <= committed.closed:
            void.append(name)
    return SortedFiles(tuple(delivered), tuple(sorted(orphans)), tuple(void))


def files_of_others(names: Iterable[str], stream: str) -> list[str]:
    """Messages that other streams have staged, perhaps of a checkpoint that was deleted."""
    found = [parse_name(name) for name in names]
    return sorted(each.name for each in found if isinstance(each, StagedFile) and each.stream != stream)


def next_offset(
    committed: ReceiveOffset,
    orphans: Collection[str],
    tasks: Mapping[str, EntityTasks],
    *,
    received: int = 0,
    uncompleted: int = 0,
) -> ReceiveOffset | None:
    """The offset of the next batch, once delivered files are deleted; None if there is nothing to do.

    `received` and `uncompleted` are counts of the last batch.
    """
    if not orphans and not tasks:
        return None
    adopted = tuple(sorted(orphans)[:ADOPTED_MAX])
    return ReceiveOffset(
        committed.stream,
        committed.batch + 1,
        committed.batch,
        dict(tasks),
        adopted,
        committed.received + received,
        committed.uncompleted + uncompleted,
        committed.adopted_files + len(adopted),
    )
