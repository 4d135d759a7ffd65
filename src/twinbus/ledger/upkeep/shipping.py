"""Copies finished segments to another place, e.g. an object store, and makes sure that each copy is right.

A segment is finished when no process writes to it any more. Its copy is `HOST/SEGMENT` below the place, whoever copies
it and how often: a copy that is there and right is left alone. After an upload the copy is compared with its source,
by the checksum that the store reports, or by reading it back. A file that is there and says something else is never
replaced, unless the source begins with all of it, as after a copy that was made too early. What was pruned there is
not brought back.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec

from twinbus.errors import OptionsError, StoreError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import read_line
from twinbus.ledger.reading.segment_files import FoundSegments, StoredSegment, segments_and_held
from twinbus.ledger.schema import Record
from twinbus.ledger.upkeep.pruning import Candidate, NumberSpan, Pruned, load_pruned, numbers_in, prune, subtract_spans
from twinbus.storage import Folder, Location, StoredFile, open_folder

Compression = Literal["gzip", "zstd"]
SUFFIXES: dict[Compression | None, str] = {None: "", "gzip": ".gz", "zstd": ".zst"}
SHIPPED_FILE = "shipped.json"
BLOCK_BYTES = 1 << 20
END_BYTES = 64 * 1024


class _Copy(msgspec.Struct, frozen=True):
    """A copy that was compared with its source."""

    bytes: int
    version: str
    source_bytes: int


class ShippedCopies(msgspec.Struct):
    """Which copies are known to be right, by place and name: `shipped.json` beside the segments.

    It only spares reading copies again: without it, all of them are compared once more.
    """

    places: dict[str, dict[str, _Copy]] = {}


@dataclass(slots=True)
class ShipResult:
    shipped: list[str] = field(default_factory=list)
    """Names of the copies that were made."""
    shipped_bytes: int = 0
    known: int = 0
    """Copies that were there before, and right."""
    pruned: list[str] = field(default_factory=list)
    """Segments whose copies were pruned there: they are not copied again."""
    waiting: list[str] = field(default_factory=list)
    """Segments that a process still writes to, or may."""
    right: list[str] = field(default_factory=list)
    """Segments whose copies are right."""
    deleted: list[str] = field(default_factory=list)
    """Segments that were deleted here after their copies had been compared."""
    failed: dict[str, str] = field(default_factory=dict)
    """Segments that were not copied, and why."""
    is_cut: bool = False
    """Whether it was stopped before it had looked at all of them."""


OnShipped = Callable[[StoredSegment], None]


def place_for(ledger: Path, to: Location) -> Folder:
    """Where a ledger is shipped to. Nothing is connected to. Raises `OptionsError` if nothing can be shipped there."""
    if to == "":
        raise OptionsError("a ledger is shipped to a URL or a folder, not to an empty text")
    place = open_folder(to)
    place.check_packages()
    if place.is_local and place.path().resolve().is_relative_to(ledger.resolve()):
        raise OptionsError(f"a ledger cannot be shipped into itself: {place.url} is in {ledger}")
    return place


class Shipper:
    """Ships the segments of one ledger to one place. Runs may be repeated and interrupted at any moment."""

    def __init__(self, ledger: Path, to: Location, *, compress: Compression | None = None) -> None:
        """Raises `OptionsError` if nothing can be shipped there."""
        self._ledger = ledger
        self._to = place_for(ledger, to)
        self._compress = compress
        if compress == "zstd":
            _zstd()

    def run(
        self,
        *,
        process: str | None = None,
        left_overs: bool = False,
        skip: Collection[str] = (),
        is_over: Callable[[], bool] = lambda: False,
        delete: bool = False,
        now_ms: int = 0,
        on_shipped: OnShipped | None = None,
    ) -> ShipResult:
        """Ship everything that is finished and not to be skipped by its name; of one `process` only, if it is named.

        Then only what it has written into the folder itself. With `left_overs` only what no running process has
        written. Before each segment is looked at, `is_over` says whether to stop.
        With `delete` the segments are deleted here once their copies are known to be right, and noted in `pruned.json`.
        Raises `StoreError` if the ledger or the place cannot be read. What fails for one segment is in the result.
        """
        result, found = ShipResult(), segments_and_held(self._ledger, process)
        segments = [
            each
            for each in found.segments
            if each.name not in skip and not (left_overs and each.process in found.running)
        ]
        there: dict[str, dict[str, StoredFile]] = {}
        checked = lru_cache(1)(lambda: _load_shipped(self._ledger))
        pruned = lru_cache(1)(lambda: load_pruned(self._to.url))
        right: list[StoredSegment] = []
        try:
            for segment in segments:
                if is_over():
                    result.is_cut = True
                    break
                try:
                    if not _is_finished(segment, found):
                        result.waiting.append(segment.name)
                        continue
                    base = _base_of(segment)
                    if self._has_copy(segment, base, self._listed(base, there), checked(), result):
                        right.append(segment)
                    elif _is_pruned(segment, pruned()):
                        result.pruned.append(segment.name)
                    else:
                        self._copy(segment, base, checked(), result)
                        right.append(segment)
                except FileNotFoundError:
                    continue  # moved away meanwhile
                except (OSError, StoreError) as error:
                    if isinstance(error, StoreError) and not there:
                        raise  # nothing could be listed
                    result.failed[segment.name] = _text(error)
                if on_shipped is not None:
                    on_shipped(segment)
        finally:
            if result.shipped or result.known:
                _save_shipped(self._ledger, checked())
        result.right = [each.name for each in right]
        if delete and right:
            chosen = [Candidate(each, is_read=False) for each in right if not each.path.is_symlink()]
            prune(self._ledger, chosen, now_ms, lambda each: result.deleted.append(each.name), self._to.url)
        return result

    def _listed(self, base: str, there: dict[str, dict[str, StoredFile]]) -> dict[str, StoredFile]:
        """The copies that there are of the same host. They are listed once in a run."""
        host = base.partition("/")[0]
        if host not in there:
            there[host] = {file.name: file for file in self._to.files(host)}
        return there[host]

    def _has_copy(
        self,
        segment: StoredSegment,
        base: str,
        there: dict[str, StoredFile],
        checked: ShippedCopies,
        result: ShipResult,
    ) -> bool:
        """Whether there is a right copy. Raises `StoreError` for one that is not to be replaced."""
        copies = checked.places.setdefault(self._to.url, {})
        forms = [base] if segment.is_compressed else [f"{base}{suffix}" for suffix in SUFFIXES.values()]
        for name in (name for name in forms if name in there):
            copy, seen = there[name], copies.get(name)
            if seen == _Copy(copy.bytes, copy.version, segment.bytes) or self._is_right(segment, copy):
                copies[name] = _Copy(copy.bytes, copy.version, segment.bytes)
                result.known += 1
                return True
            if not self._is_beginning(segment, name):
                raise StoreError(f"{self._to.where(name)} says something else: it is not replaced; look at both")
        return False

    def _copy(self, segment: StoredSegment, base: str, checked: ShippedCopies, result: ShipResult) -> None:
        """Raises `OSError` or `StoreError` unless there is a right copy now."""
        compress = None if segment.is_compressed else self._compress
        name = f"{base}{SUFFIXES[compress]}"
        with _packed(segment, compress) as source:
            self._to.upload(name, source)
            copy = self._to.file(name)
            if copy is None or not _is_same(self._to, copy, source):
                raise StoreError(f"{self._to.where(name)} is not what was sent: it is sent again at the next run")
        checked.places[self._to.url][name] = _Copy(copy.bytes, copy.version, segment.bytes)
        result.shipped.append(name)
        result.shipped_bytes += copy.bytes

    def _is_right(self, segment: StoredSegment, copy: StoredFile) -> bool:
        """Whether a copy, which may be compressed, has the lines of a segment."""
        stored = StoredSegment(self._to, copy.name, copy.bytes)
        if stored.is_compressed == segment.is_compressed:
            return copy.bytes == segment.bytes and _is_same(self._to, copy, segment.path)
        with segment.open() as one, stored.open() as other:
            return _digest(one) == _digest(other)

    def _is_beginning(self, segment: StoredSegment, name: str) -> bool:
        """Whether the segment begins with everything that the copy has, and goes on."""
        try:
            with segment.open() as one, StoredSegment(self._to, name).open() as other:
                while data := other.read(BLOCK_BYTES):
                    if one.read(len(data)) != data:
                        return False
                return bool(one.read(1))
        except OSError:  # cut off, so that it cannot be unpacked: it says nothing
            return StoredSegment(self._to, name).is_compressed


def _text(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _is_finished(segment: StoredSegment, found: FoundSegments) -> bool:
    if segment in found.held:
        return False
    if segment not in found.without_locks:
        return True
    # Without locks only the records say so: its process has gone on to the next segment, or has closed its ledger.
    later = [each for each in found.segments if each.process == segment.process and each.name > segment.name]
    return bool(segment.process and later) or _is_closed(segment)


def _is_closed(segment: StoredSegment) -> bool:
    with segment.open() as file:
        last = _last_of(file)
    return last is not None and last.kind == Kind.CLOSED


def _is_pruned(segment: StoredSegment, pruned: Pruned) -> bool:
    """Whether everything that a segment has was pruned from where it is to be shipped to."""
    with segment.open() as file:
        first, last = _first_of(file), _last_of(file)
    if first is None or first.process not in pruned.processes:
        return False
    if segment.process and last is not None and _are_pruned({segment.process: [(first.number, last.number)]}, pruned):
        return True  # reading all of it each time takes long
    return _are_pruned(numbers_in(segment), pruned)  # numbers of dropped events are nowhere


def _are_pruned(numbers: dict[str, list[NumberSpan]], pruned: Pruned) -> bool:
    return all(
        process in pruned.processes and not subtract_spans(spans, pruned.processes[process].spans)
        for process, spans in numbers.items()
    )


def _first_of(file: BinaryIO) -> Record | None:
    record = read_line(file.readline(END_BYTES))
    return record if isinstance(record, Record) else None


def _last_of(file: BinaryIO) -> Record | None:
    size = file.seek(0, 2)
    file.seek(max(0, size - END_BYTES))
    record = read_line(file.read().rstrip(b"\n").rpartition(b"\n")[2])
    return record if isinstance(record, Record) else None


def _base_of(segment: StoredSegment) -> str:
    return f"{_host_of(segment)}/{_own_name(segment)}"


def _host_of(segment: StoredSegment) -> str:
    """The host that its first record names: the same whoever ships it."""
    with segment.open() as file:
        record = _first_of(file)
    host = record.host if record is not None else socket.gethostname()
    return "".join(each if each.isalnum() or each in "-._" else "_" for each in host).lstrip(".") or "unknown"


def _own_name(segment: StoredSegment) -> str:
    """Names that we give are unique; others keep their folders."""
    return segment.name.rpartition("/")[2] if segment.process else segment.name


# --- copies ---


@contextmanager
def _packed(segment: StoredSegment, compress: Compression | None) -> Iterator[Path]:
    """The file to send."""
    if compress is None:
        yield segment.path
        return
    with tempfile.NamedTemporaryFile(prefix="twinbus-") as file, segment.open() as lines:
        with _packer(cast("BinaryIO", file), compress) as packed:
            shutil.copyfileobj(lines, packed, BLOCK_BYTES)
        file.flush()
        yield Path(file.name)


def _packer(file: BinaryIO, compress: Compression) -> BinaryIO:
    if compress == "gzip":
        return cast("BinaryIO", gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0))
    return cast("BinaryIO", _zstd().ZstdCompressor(level=3).stream_writer(file, closefd=False))


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise OptionsError("zstd needs the package zstandard: pip install 'twinbus[zstd]'") from error
    return zstandard


def _is_same(folder: Folder, copy: StoredFile, source: Path) -> bool:
    """Whether a copy has the bytes of a file, by the MD5 that S3 reports for most objects, or by reading it."""
    if copy.bytes != source.stat().st_size:
        return False
    with source.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if not folder.is_local and copy.version == md5:
        return True
    with source.open("rb") as one, folder.open(copy.name) as other:
        return _digest(one) == _digest(other)


def _digest(file: BinaryIO) -> bytes:
    total = hashlib.sha256()
    while data := file.read(BLOCK_BYTES):
        total.update(data)
    return total.digest()


# --- what is known ---


def _load_shipped(ledger: Path) -> ShippedCopies:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((ledger / SHIPPED_FILE).read_bytes(), type=ShippedCopies)
    return ShippedCopies()


def _save_shipped(ledger: Path, copies: ShippedCopies) -> None:
    known = _load_shipped(ledger)  # others may have shipped meanwhile
    for place, names in copies.places.items():
        known.places.setdefault(place, {}).update(names)
    with suppress(StoreError):  # then they are compared again
        open_folder(ledger).put(SHIPPED_FILE, msgspec.json.encode(known), private=True)
