"""A folder of this machine. It may be mounted from elsewhere, e.g. a Unity volume, where locks or syncs are missing."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from twinbus.errors import StoreError, StoreInUse
from twinbus.own_files import FILE_MODE, open_lock, try_lock
from twinbus.storage.folder import SkipFolder, StoredFile

DRAFT = ".new"
"""Ends the names of files that are being written; listings leave them out, and so do other tools, because of the dot
they begin with.
"""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    folder: Path

    @property
    def url(self) -> str:
        return str(self.folder)

    @property
    def is_local(self) -> bool:
        return True

    def check_packages(self) -> None:
        pass

    def check_replaces(self) -> None:
        pass

    def path(self) -> Path:
        return self.folder

    def where(self, name: str) -> str:
        return str(self.folder / name)

    def below(self, name: str) -> LocalFolder:
        return LocalFolder(self.folder / name)

    # --- reading ---

    def files(self, below: str = "", *, skip: SkipFolder | None = None) -> list[StoredFile]:
        return sorted(self._walk(self.folder / below, skip))

    def _walk(self, start: Path, skip: SkipFolder | None) -> Iterator[StoredFile]:
        visited: set[tuple[int, int]] = set()
        for folder, folders, files in os.walk(start, onerror=_refuse, followlinks=True):
            try:
                facts = Path(folder).stat()
            except FileNotFoundError:  # moved away meanwhile
                folders.clear()
                continue
            if (facts.st_dev, facts.st_ino) in visited or (skip is not None and skip(files, folders)):
                folders.clear()  # a link that leads back, or not wanted
                continue
            visited.add((facts.st_dev, facts.st_ino))
            for name in files:
                if not _is_draft(name):
                    yield from self._stored(Path(folder, name))

    def _stored(self, file: Path) -> Iterator[StoredFile]:
        name = file.relative_to(self.folder).as_posix()
        try:
            facts = file.stat()
        except OSError:
            if file.is_symlink():  # leads nowhere: whoever reads it says so
                yield StoredFile(name, 0, "")
            return  # else moved away meanwhile
        if stat.S_ISREG(facts.st_mode):
            yield StoredFile(name, facts.st_size, str(facts.st_mtime_ns), facts.st_mtime_ns // 1_000_000)

    def open(self, name: str) -> BinaryIO:
        return (self.folder / name).open("rb")

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()

    def file(self, name: str) -> StoredFile | None:
        return next(iter(self._stored(self.folder / name)), None)

    # --- writing ---

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        with self._draft_of(name, private=private) as (draft, file):
            file.write(data)
            _finish(file)
            draft.replace(self.folder / name)

    def create(self, name: str, data: bytes) -> bool:
        with self._draft_of(name, private=False) as (draft, file):
            file.write(data)
            _finish(file)
            try:
                return _link(draft, self.folder / name, data)
            except FileExistsError:
                return False

    def upload(self, name: str, source: Path) -> None:
        with source.open("rb") as read, self._draft_of(name, private=_is_private(source)) as (draft, file):
            shutil.copyfileobj(read, file, 1 << 20)
            _finish(file)
            draft.replace(self.folder / name)

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        with self._draft_of(name, private=False) as (draft, file):
            yield draft
            os.fsync(file.fileno())
            draft.replace(self.folder / name)

    def sync(self, names: Iterable[str]) -> None:
        folders: set[Path] = set()
        for name in names:
            file = self.folder / name
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
            folders.update(self.folder / above for above in Path(name).parents)
        for folder in folders:
            _sync_names(folder)

    def delete_drafts(self, below: str = "") -> None:
        for draft in (self.folder / below).rglob(f".*{DRAFT}"):
            draft.unlink(missing_ok=True)

    @contextmanager
    def _draft_of(self, name: str, *, private: bool) -> Iterator[tuple[Path, BinaryIO]]:
        """A file beside the one to be written: what has a name is whole. Its name is on the disk in the end."""
        whole = self.folder / name
        draft = whole.with_name(f".{whole.name}.{secrets.token_hex(4)}{DRAFT}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            try:
                with os.fdopen(os.open(draft, flags, FILE_MODE if private else 0o666), "wb") as file:
                    yield draft, file
            finally:
                draft.unlink(missing_ok=True)
            _sync_names(whole.parent)
        except OSError as error:
            raise StoreError(f"{whole} cannot be written: {error.strerror or error}") from error

    def delete(self, names: Iterable[str]) -> None:
        folders: set[Path] = set()
        for name in names:
            file = self.folder / name
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(f"{file} cannot be deleted: {error.strerror}") from error
            folders.add(file.parent)
        for folder in folders:
            _sync_names(folder)

    @contextmanager
    def lock(self, name: str) -> Iterator[FileLock]:
        file = self.folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            opened = open_lock(file)
        except OSError as error:
            raise StoreError(f"nothing can be written to {file.parent}: {error.strerror}") from error
        with opened:
            try:
                is_ours = try_lock(opened.fileno())
            except OSError as error:
                raise StoreError(f"the file system of {file.parent} has no file locks ({error.strerror})") from error
            if not is_ours:
                raise StoreInUse(f"another process is using {file.parent}")
            yield FileLock()

    def arrow_filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

        return LocalFileSystem(), str(self.folder)


class FileLock:
    """The system gives a file lock to nobody else while its holder lives."""

    def check(self) -> None:
        pass


def _link(draft: Path, file: Path, data: bytes) -> bool:
    """Give the draft its name, which must be new."""
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:  # mounted from elsewhere, without links
        with file.open("xb") as opened:
            opened.write(data)
            _finish(opened)
    return True


def _is_draft(name: str) -> bool:
    return name.startswith(".") and name.endswith(DRAFT)


def _is_private(file: Path) -> bool:
    return not file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_names(folder: Path) -> None:
    """New names survive a power cut. What is mounted from elsewhere may not know how: there the server sees to it."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # moved away meanwhile
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}; make it readable, or move it to another place"
        ) from error
