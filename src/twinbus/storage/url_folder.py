"""A folder of an object store or of HDFS, reached through fsspec. The package for a scheme is imported when needed."""

from __future__ import annotations

import errno
import io
import logging
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from twinbus.errors import OptionsError, StoreError
from twinbus.storage.daemon_pool import DaemonPool
from twinbus.storage.folder import Lease, SkipFolder, StoredFile
from twinbus.storage.lease import hold_lease
from twinbus.units import parse_time_ms

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

BUFFER_BYTES = 1 << 20
AT_ONCE = 8


class _Kind(NamedTuple):
    extra: str
    """Which extra of twinbus has the package that reaches it."""
    by_rename: bool = False
    """A file can be seen while it is written, so it is written under another name first. An object appears whole."""
    replaces: bool = True
    """A file can be replaced in one step. The client of HDFS has only a rename that refuses to."""


KINDS = {
    "s3a": _Kind("s3"),
    "s3": _Kind("s3"),
    "abfss": _Kind("azure-storage"),
    "abfs": _Kind("azure-storage"),
    "az": _Kind("azure-storage"),
    "gs": _Kind("gcs"),
    "hdfs": _Kind("spark", by_rename=True, replaces=False),
    "webhdfs": _Kind("webhdfs", by_rename=True),
    "memory": _Kind("s3"),
}
"""Places by scheme. `memory` is for tests: it ends with the process."""


@dataclass(frozen=True, slots=True)
class UrlFolder:
    url: str

    @property
    def is_local(self) -> bool:
        return False

    def path(self) -> Path:
        raise StoreError(f"{self.url} is not a folder of this machine")

    def where(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

    def below(self, name: str) -> UrlFolder:
        return UrlFolder(self.where(name))

    @property
    def _scheme(self) -> str:
        return self.url.partition("://")[0].lower()

    @property
    def _kind(self) -> _Kind:
        return KINDS[self._scheme]

    def check_packages(self) -> None:
        scheme, extra = self._scheme, self._kind.extra
        try:
            from fsspec import get_filesystem_class

            get_filesystem_class(scheme)
        except (ImportError, ValueError) as error:  # fsspec knows some schemes only with their package
            package = getattr(error.__cause__ or error, "name", None) or "that reaches it"
            raise OptionsError(f"{scheme}:// needs the package {package}: pip install 'twinbus[{extra}]'") from error

    def check_replaces(self) -> None:
        if not self._kind.replaces:
            raise OptionsError(
                f"{self.url}: a file at {self._scheme}:// cannot be replaced in one step, and after a "
                "crash there would be none: it can be shipped to and read from, all else needs webhdfs://host:port/path"
            )

    def _fs(self) -> tuple[Any, str]:
        """The file system, which fsspec keeps, and the path of this folder in it."""
        self.check_packages()
        try:
            from fsspec import get_filesystem_class
            from fsspec.asyn import AsyncFileSystem, get_loop
            from fsspec.core import url_to_fs

            if issubclass(get_filesystem_class(self._scheme), AsyncFileSystem):
                _use_daemons(get_loop())  # before: a file system may look up names as it is made
            return url_to_fs(self.url)  # type: ignore[no-any-return]
        except Exception as error:
            raise StoreError(f"{self.url} cannot be reached: {_text(error)}") from error

    # --- reading ---

    def files(self, below: str = "", *, skip: SkipFolder | None = None) -> list[StoredFile]:
        fs, root = self._fs()
        start = f"{root}/{below}".rstrip("/")
        with _store_errors(self.where(below), "cannot be listed"):
            fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = fs.find(start, detail=True)
        if start in found:
            raise StoreError(f"{self.where(below)} is a file, not a folder")
        base = root.rstrip("/")
        stored = [
            _stored(path.removeprefix(base).lstrip("/"), facts)
            for path, facts in found.items()
            if facts.get("type") != "directory" and not path.endswith("/")
        ]
        return sorted(stored if skip is None else _without_skipped(stored, skip))

    def open(self, name: str) -> BinaryIO:
        fs, path = self._at(name)
        with _os_errors(self.where(name)):
            return io.BufferedReader(_RemoteFile(self.where(name), fs.open(path, "rb")), BUFFER_BYTES)

    def read(self, name: str) -> bytes:
        fs, path = self._at(name)
        with _os_errors(self.where(name)):
            return bytes(fs.cat_file(path))

    def exists(self, name: str) -> bool:
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be looked at"):
            fs.invalidate_cache()
            return bool(fs.exists(path))

    def file(self, name: str) -> StoredFile | None:
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be looked at"):
            fs.invalidate_cache()
            try:
                facts: dict[str, Any] = fs.info(path)
            except FileNotFoundError:
                return None
            return None if facts.get("type") == "directory" else _stored(name, facts)

    # --- writing ---

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        self.check_replaces()
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be written"), self._whole(fs, path) as target:
            fs.pipe_file(target, data)

    def create(self, name: str, data: bytes) -> bool:
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be written"):
            if self._kind.by_rename:
                return _create_by_rename(fs, path, data)
            try:
                fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
            except Exception as error:
                if not _is_refused_condition(error):
                    raise
                return False
        return True

    def upload(self, name: str, source: Path) -> None:
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be written"), self._whole(fs, path) as target:
            fs.put_file(str(source), target)

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="twinbus-") as folder:
            draft = Path(folder) / "draft"
            yield draft
            self.upload(name, draft)

    def sync(self, names: Iterable[str]) -> None:
        """What is stored there is durable."""

    def delete_drafts(self, below: str = "") -> None:
        if self._kind.by_rename:
            self.delete([each.name for each in self.files(below) if _is_draft(each.name)])

    @contextmanager
    def _whole(self, fs: Any, path: str) -> Iterator[str]:
        """Where to write, so that what has the name is whole."""
        if not self._kind.by_rename:
            yield path
            return
        draft = _draft(fs, path)
        try:
            yield draft
            _replace(fs, draft, path)
        except BaseException:
            with suppress(Exception):
                fs.rm_file(draft)
            raise

    def delete(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE, "twinbus-storage") as pool:
            for _ in pool.map(self._delete, names):
                pass

    def _delete(self, name: str) -> None:
        fs, path = self._at(name)
        with _store_errors(self.where(name), "cannot be deleted"), suppress(FileNotFoundError):
            fs.rm_file(path)

    def lock(self, name: str) -> AbstractContextManager[Lease]:
        self.check_replaces()  # its holder rewrites it, and what it guards is replaced
        return hold_lease(self, name)

    def arrow_filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import FSSpecHandler, PyFileSystem  # type: ignore[import-untyped]

        fs, root = self._fs()
        return PyFileSystem(FSSpecHandler(fs)), root

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = self._fs()
        return fs, f"{root.rstrip('/')}/{name}"


@lru_cache(1)
def _use_daemons(loop: AbstractEventLoop) -> None:
    """Once for each loop: fsspec has one, which all its file systems share, and a forked child has another."""
    loop.set_default_executor(DaemonPool())


def _stored(name: str, facts: dict[str, Any]) -> StoredFile:
    changed = next((facts[key] for key in _TIMES if facts.get(key)), 0)
    changed_ms = _ms(changed)
    if isinstance(changed, datetime):
        changed = changed.timestamp()  # the client of memory gives one in a listing, and the other for one file
    version = facts.get("ETag") or facts.get("etag") or facts.get("md5Hash") or changed
    return StoredFile(name, int(facts.get("size") or 0), str(version).strip('"'), changed_ms)


_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modificationTime", "modified", "created")
"""What the packages call the time of the last change."""


def _ms(moment: Any) -> int:
    if isinstance(moment, str):
        return parse_time_ms(moment)
    if isinstance(moment, datetime):
        return round(moment.timestamp() * 1000)
    return round(moment * 1000) if isinstance(moment, float) else int(moment)


def _without_skipped(files: list[StoredFile], skip: SkipFolder) -> Iterator[StoredFile]:
    """A listing of objects is flat: folders are in the names only."""
    folders: dict[str, tuple[set[str], set[str]]] = {}
    for file in files:
        above, _, own = file.name.rpartition("/")
        folders.setdefault(above, (set(), set()))[0].add(own)
        while above:
            higher, _, own = above.rpartition("/")
            folders.setdefault(higher, (set(), set()))[1].add(own)
            above = higher
    skipped = {folder for folder, inside in folders.items() if skip(*inside)}
    for file in files:
        parts = file.name.split("/")[:-1]
        if skipped.isdisjoint("/".join(parts[:count]) for count in range(len(parts) + 1)):
            yield file


# --- file systems that have renames ---


def _is_draft(name: str) -> bool:
    own = name.rpartition("/")[2]
    return own.startswith(".") and own.endswith(".new")


def _draft(fs: Any, path: str) -> str:
    above, _, name = path.rpartition("/")
    fs.makedirs(above, exist_ok=True)
    return f"{above}/.{name}.{secrets.token_hex(4)}.new"


def _replace(fs: Any, draft: str, path: str) -> None:
    if "webhdfs" in fs.protocol:
        # fsspec has no name for this option of the service, without which a rename refuses to replace.
        answer = fs._call("RENAME", method="put", path=draft, destination=path, renameoptions="OVERWRITE")
        answer.raise_for_status()
        return
    with suppress(FileNotFoundError):
        fs.rm_file(path)  # of copies only: what is gone after a crash is copied again
    fs.mv(draft, path)


def _create_by_rename(fs: Any, path: str, data: bytes) -> bool:
    """A rename without options fails, or does nothing, if there is a file of that name."""
    fs.invalidate_cache()
    if fs.exists(path):
        return False
    draft = _draft(fs, path)
    fs.pipe_file(draft, data)
    with suppress(Exception):
        fs.mv(draft, path)
    if not fs.exists(draft):
        return True
    fs.rm_file(draft)
    if not fs.exists(path):
        raise OSError(errno.EIO, "it could not be renamed")
    return False


# --- errors ---


class _RemoteFile(io.RawIOBase):
    """Makes errors of the packages `OSError`, as readers expect, and leaves lines to the buffer in front of it."""

    def __init__(self, url: str, file: Any) -> None:
        self._url = url
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        with _os_errors(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with _os_errors(self._url):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with suppress(Exception):
                self._file.close()
        super().close()


@contextmanager
def _os_errors(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such file", url) from error
    except Exception as error:
        raise OSError(errno.EIO, _text(error), url) from error


@contextmanager
def _store_errors(url: str, what: str) -> Iterator[None]:
    try:
        yield
    except (StoreError, OptionsError):
        raise
    except Exception as error:
        raise StoreError(f"{url} {what}: {_text(error)}") from error


def _text(error: BaseException) -> str:
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    return text or type(error).__name__


def _is_refused_condition(error: BaseException) -> bool:
    """Whether a store said that the file exists; packages do not agree on how they say it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileExistsError) or getattr(cause, "status_code", None) in (409, 412):
            return True
        answer = getattr(cause, "response", None)
        if isinstance(answer, dict) and answer.get("ResponseMetadata", {}).get("HTTPStatusCode") in (409, 412):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


# fsspec and its kind report at a level that would reach users of every command.
logging.getLogger("s3fs").setLevel(logging.CRITICAL)
