"""The log of a Delta table: other engines read from it which Parquet files of a folder count.

Only what is needed to publish files that are written anyway: a commit names the files that came and those that went.
Every tenth commit is followed by a checkpoint, and the commits before it go. Whoever calls this keeps other writers
from the folder; other engines may read it at any time.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreError
from twinbus.storage import Folder

LOG, LAST = "_delta_log", "_delta_log/_last_checkpoint"
COMMITS_PER_CHECKPOINT = 10
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
TYPES = {"STRING": "string", "BIGINT": "long", "DATE": "date", "BOOLEAN": "boolean", "INT": "integer"}
_TEXTS = pa.map_(pa.string(), pa.string())
CHECKPOINT_SCHEMA = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
    ]
)
"""Maps are written as lists of pairs."""


class DeltaFile(NamedTuple):
    """A file that counts."""

    bytes: int
    modified_ms: int
    partition: tuple[tuple[str, str], ...] = ()


class _State(NamedTuple):
    version: int
    metadata: dict[str, Any]
    adds: dict[str, dict[str, Any]]


def schema_of(ddl: str) -> str:
    """The schema of a table, as its log has it, from `name TYPE, ...`."""
    columns = (column.split() for column in ddl.split(","))
    fields = [{"name": name, "type": TYPES[kind], "nullable": True, "metadata": {}} for name, kind in columns]
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def publish(
    folder: Folder,
    name: str,
    schema: str,
    files: Mapping[str, DeltaFile],
    partitioned_by: tuple[str, ...] = (),
    *,
    is_rearranged: bool = False,
) -> int:
    """The version of the table in which just these files count. Names are relative to the folder.

    If it is only rearranged, the files have the same rows as those before, and who follows the table reads none again.

    Raises `StoreError` if the log cannot be written, or if another engine writes to the table.
    """
    before = _read(folder)
    wanted = {quote(path, safe="/=:"): file for path, file in files.items()}
    now_ms = time.time_ns() // 1_000_000
    actions: list[dict[str, Any]] = []
    metadata = before.metadata
    if metadata.get("schemaString") != schema:
        metadata = {
            "id": metadata.get("id") or str(uuid4()),
            "name": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(partitioned_by),
            "configuration": {},
            "createdTime": now_ms,
        }
        actions.append({"metaData": metadata})
    gone = sorted(set(before.adds) - set(wanted))
    actions += [
        {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": not is_rearranged}} for path in gone
    ]
    adds = {path: _add(path, file) for path, file in wanted.items()}
    actions += [
        {"add": adds[path] | {"dataChange": not is_rearranged}}
        for path in sorted(adds)
        if before.adds.get(path, {}).get("size") != adds[path]["size"]
    ]
    if not actions:
        return before.version
    version = before.version + 1
    first = [{"protocol": PROTOCOL}] if version == 0 else []
    information = {"commitInfo": {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {}}}
    lines = b"".join(msgspec.json.encode(action) + b"\n" for action in (information, *first, *actions))
    if not folder.create(_commit(version), lines):
        raise StoreError(f"{folder.where(_commit(version))} was written by somebody else: only twinbus may write there")
    if version and version % COMMITS_PER_CHECKPOINT == 0:
        _write_checkpoint(folder, _State(version, metadata, adds))
    return version


def published_files(folder: Folder) -> set[str]:
    """The names of the files that count in the table, relative to the folder. Raises `StoreError`."""
    return set(map(unquote, _read(folder).adds))


def _add(path: str, file: DeltaFile) -> dict[str, Any]:
    return {
        "path": path,
        "partitionValues": dict(file.partition),
        "size": file.bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
    }


def _commit(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def _checkpoint(version: int) -> str:
    return f"{LOG}/{version:020}.checkpoint.parquet"


def _read(folder: Folder) -> _State:
    """The table as it is."""
    names = {each.name.rpartition("/")[2] for each in folder.files(LOG)}
    versions = sorted(int(each.removesuffix(".json")) for each in names if each.endswith(".json"))
    version, metadata, adds = -1, dict[str, Any](), dict[str, dict[str, Any]]()
    try:
        if LAST.rpartition("/")[2] in names:
            version = msgspec.json.decode(folder.read(LAST))["version"]
            metadata, adds = _read_checkpoint(folder.read(_checkpoint(version)))
        for each in versions:
            if each > version:
                metadata = _replay(folder.read(_commit(each)), metadata, adds)
                version = each
    except (OSError, msgspec.DecodeError, pa.ArrowException) as error:
        raise StoreError(f"{folder.where(LOG)} cannot be read: {error}; remove it, and it is made again") from error
    return _State(version, metadata, adds)


def _replay(lines: bytes, metadata: dict[str, Any], adds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    for line in lines.splitlines():
        match msgspec.json.decode(line):
            case {"metaData": dict(found)}:
                metadata = found
            case {"add": dict(added)}:
                adds[added["path"]] = added
            case {"remove": dict(removed)}:
                adds.pop(removed["path"], None)
            case _:
                pass  # other actions do not say which files count
    return metadata


def _write_checkpoint(folder: Folder, state: _State) -> None:
    """After it, readers need none of the commits before; those go."""
    rows = [
        {"protocol": PROTOCOL},
        {"metaData": _with_pairs(state.metadata)},
        *({"add": _with_pairs(each)} for each in state.adds.values()),
    ]
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, CHECKPOINT_SCHEMA), made)
    folder.put(_checkpoint(state.version), made.getvalue())
    folder.put(LAST, msgspec.json.encode({"version": state.version, "size": len(rows)}))
    old = (each.name for each in folder.files(LOG) if each.name < _commit(state.version - COMMITS_PER_CHECKPOINT))
    folder.delete([name for name in old if name != LAST])


def _with_pairs(value: Any) -> Any:
    """The same with maps as lists of pairs, as Arrow takes them."""
    maps = ("options", "configuration", "partitionValues")
    if not isinstance(value, dict):
        return value
    return {name: list(each.items()) if name in maps else _with_pairs(each) for name, each in value.items()}


def _read_checkpoint(data: bytes) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    metadata, adds = dict[str, Any](), dict[str, dict[str, Any]]()
    for row in pq.read_table(io.BytesIO(data), schema=CHECKPOINT_SCHEMA).to_pylist():
        if row["metaData"] is not None:
            metadata = row["metaData"] | {"configuration": dict(row["metaData"]["configuration"])}
            metadata["format"] = metadata["format"] | {"options": dict(metadata["format"]["options"])}
        if row["add"] is not None:
            adds[row["add"]["path"]] = row["add"] | {"partitionValues": dict(row["add"]["partitionValues"])}
    return metadata, adds
