"""What can be done with a folder, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

Location = str | Path
"""A path, or a URL: `s3a://bucket/ledger`."""

SkipFolder = Callable[[Collection[str], Collection[str]], bool]
"""Whether to leave out a folder and everything below it, by the names of the files and folders in it."""


class StoredFile(NamedTuple):
    """A file in a listing."""

    name: str
    """Relative to the folder, with slashes."""
    bytes: int
    version: str
    """Another content has another version: the ETag, or when it was changed."""
    modified_ms: int = 0
    """When it was last changed, by the clock of its storage; 0: unknown."""


class Lease(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raise `StoreInUse` if another process has taken the lock over; for the moment before something is decided."""


class Folder(Protocol):
    """Files by name, at any depth. Reading raises `OSError`, as for local files; all else raises `StoreError`.

    Names are relative and have slashes. Folders are made as files are written.
    """

    @property
    def url(self) -> str:
        """As the user typed it: for messages and for Spark. A local folder has its plain path."""

    @property
    def is_local(self) -> bool: ...

    def check_packages(self) -> None:
        """Raise `OptionsError` if a package that reaches it is missing."""
        ...

    def check_replaces(self) -> None:
        """Raise `OptionsError` if `put` and `lock` would, because no file there can be replaced in one step."""
        ...

    def path(self) -> Path:
        """The path of a local folder. Raises `StoreError` for others."""

    def where(self, name: str) -> str:
        """Path or URL of a file."""

    def below(self, name: str) -> Folder:
        """A folder in this one."""

    def files(self, below: str = "", *, skip: SkipFolder | None = None) -> list[StoredFile]:
        """The files at any depth, in the order of their names; none if the folder does not exist.

        Raises `StoreError` if any part of the folder cannot be read.
        """

    def open(self, name: str) -> BinaryIO:
        """To be read, from any place. Raises `FileNotFoundError`, or another `OSError`, also while it is read."""

    def read(self, name: str) -> bytes:
        """The whole content. Raises as `open` does."""

    def exists(self, name: str) -> bool: ...

    def file(self, name: str) -> StoredFile | None:
        """As `files` lists it, without a listing; None if it does not exist."""

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Write or replace a file as a whole; durable when this returns. A local file may be for its owner only."""

    def create(self, name: str, data: bytes) -> bool:
        """The same for a file that must be new; False if it exists. Of several processes only one succeeds."""

    def upload(self, name: str, source: Path) -> None:
        """As `put`, from a local file, which is not read into memory. The copy of a private file is private."""

    def draft(self, name: str) -> AbstractContextManager[Path]:
        """A path of this machine to write a file to: it is stored under its name, as `put` would, when the block ends
        well.
        """

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that others wrote there."""

    def delete_drafts(self, below: str = "") -> None:
        """Delete what is left of files whose writers died. Only for whoever keeps others from writing there."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are deleted."""

    def lock(self, name: str) -> AbstractContextManager[Lease]:
        """Keep out other processes that lock the same name. Raises `StoreInUse`."""

    def arrow_filesystem(self) -> tuple[Any, str]:
        """A file system of PyArrow, and the folder in it: for Parquet without Spark."""
