"""Reads chunks in processes of their own, one a core: `python -m twinbus.spark.compaction.reading_processes STORE`

Such a process reads one chunk a line from its standard input and answers each with a line. They need no Spark, so a
ledger is read while the JVM starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.abc import MetaPathFinder
from queue import SimpleQueue

import msgspec

from twinbus.errors import StoreError
from twinbus.spark.compaction.chunk import Chunk, ChunkResult, compact
from twinbus.spark.compaction.compaction import read_in_process
from twinbus.storage import Folder, open_folder

LITTLE_BYTES = 16 << 20
"""This much is read in the time that a process takes to start."""


class _Answer(msgspec.Struct):
    result: ChunkResult | None = None
    error: str = ""
    """Why nothing can be written to the store."""


def read_in_processes(chunks: list[Chunk], store: Folder) -> list[ChunkResult]:
    """Read the chunks in as many processes as there are cores, the largest first so that none is left alone at the end.

    Raises `StoreError` if the store cannot be written, or if one of the processes ends.
    """
    processes = min(len(chunks), len(os.sched_getaffinity(0)))
    if processes <= 1 or sum(chunk.stop - chunk.start for chunk in chunks) <= LITTLE_BYTES:
        return read_in_process(chunks, store)
    command = [sys.executable, "-m", __name__, whereabouts(store)]
    # They import what this process does, wherever that is.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    with ExitStack() as until_read, ThreadPoolExecutor(processes) as at_once:
        for _ in range(processes):
            started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own module
            until_read.enter_context(started)  # closes its input, which ends it, and waits
            idle.put(started)

        def read(chunk: Chunk) -> ChunkResult:
            process = idle.get()
            try:
                return _ask(process, chunk)
            finally:
                idle.put(process)

        in_order = sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)
        results = {chunk.segment: at_once.submit(read, chunk) for chunk in in_order}
        return [results[chunk.segment].result() for chunk in chunks]


def whereabouts(store: Folder) -> str:
    """Where other processes find it: its URL, or its path without links."""
    return str(store.path().resolve()) if store.is_local else store.url


def _ask(process: subprocess.Popen[bytes], chunk: Chunk) -> ChunkResult:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(chunk) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except (BrokenPipeError, ValueError):  # it has ended; or had, when another chunk was to be read
        line = b""
        with suppress(BrokenPipeError):
            process.stdin.close()  # with what it did not take; later that would be an error once more
    answer = msgspec.json.decode(line, type=_Answer) if line else _Answer()
    if answer.result is not None:
        return answer.result
    raise StoreError(answer.error or f"the process that was to read {chunk.segment} ended: try again")


def _answer(line: bytes, store: Folder) -> _Answer:
    try:
        return _Answer(compact(msgspec.json.decode(line, type=Chunk), store))
    except StoreError as error:
        return _Answer(error=str(error))


class _NoPandas(MetaPathFinder):
    """Arrow imports pandas at the first list it gets, in case that is one of pandas: it takes longer than all else."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def main() -> None:
    sys.meta_path.insert(0, _NoPandas())
    store = open_folder(sys.argv[1])
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(line, store)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
