"""What is in a staging location: messages as Arrow files, manifests, and the mark of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from twinbus.errors import StoreError, TwinbusError
from twinbus.spark.source.consuming.staging import TaskManifest, decode_manifest, mark_of
from twinbus.storage import Folder

FILE_MESSAGES_MAX, FILE_BYTES_MAX = 1_000, 8 * 1024 * 1024
"""Of one file: a chunk is received, staged and completed as a whole."""
AT_ONCE = 8
ENTITY = b"entity"


class StagedMessages(NamedTuple):
    """One file."""

    entity: str
    messages: list[bytes]
    """As they came, with what the service says of them."""


class LostStaging(TwinbusError):
    """Files are gone that no stream has deleted."""


def encode_messages(entity: str, messages: Sequence[bytes]) -> bytes:
    """An Arrow file with a column `message`, compressed, and the entity beside the schema."""
    import pyarrow as pa  # type: ignore[import-untyped]

    schema = pa.schema([("message", pa.large_binary())], metadata={ENTITY: entity.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write(pa.record_batch([pa.array(messages, pa.large_binary())], schema=schema))
    return bytes(sink.getvalue())


def decode_messages(data: bytes) -> StagedMessages:
    import pyarrow as pa

    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        entity = reader.schema.metadata[ENTITY].decode()
        return StagedMessages(entity, reader.read_all().column("message").to_pylist())


def read_manifest(folder: Folder, name: str) -> TaskManifest | None:
    """None: there is none. Raises `StoreError`."""
    try:
        return decode_manifest(folder.read(name))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{folder.where(name)} cannot be read: {error.strerror}") from error


def read_manifests(folder: Folder, names: Sequence[str]) -> list[TaskManifest]:
    """Those that are still there."""
    with ThreadPoolExecutor(AT_ONCE, "twinbus-staging") as pool:
        found = pool.map(lambda name: read_manifest(folder, name), names)
        return [manifest for manifest in found if manifest is not None]


def read_staged(folder: Folder, names: Sequence[str]) -> Iterator[StagedMessages]:
    """File by file. Raises `LostStaging` where one is gone, once all others are read."""
    gone = []
    for name in names:
        try:
            data = folder.read(name)
        except FileNotFoundError:
            gone.append(name)
            continue
        except OSError as error:
            raise StoreError(f"{folder.where(name)} cannot be read: {error.strerror}") from error
        yield decode_messages(data)
    if gone:
        raise LostStaging(
            f"{len(gone):,} files of messages are gone from {folder.url}, {gone[0]} first, and the messages in them "
            "are no longer in their queues"
        )


def put_mark(folder: Folder, stream: str) -> None:
    folder.put(mark_of(stream), b"{}")


def check_mark(folder: Folder, stream: str) -> None:
    """Raises `LostStaging` if staging is not where the driver put the mark."""
    if not folder.exists(mark_of(stream)):
        raise LostStaging(
            f"{folder.where(mark_of(stream))} is not there: the staging location was deleted, or it is a folder that "
            "this machine does not share with the driver"
        )
