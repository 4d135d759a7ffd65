"""A lock where there are no file locks: an object that its holder rewrites every few seconds.

Each holder has a number of its own, one more than the last: `NAME.lease/000000007` is created by one process only, and
the largest number holds the lock. A holder that ends says so in its object; the next one creates the next number, and
only then are older objects deleted: a number is never used twice. A holder that stops rewriting is dead after
`LEASE_S`, as measured by the clock of whoever waits: the clocks of two machines are never compared. A holder that was
only asleep finds a larger number when it looks (`check`).
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from twinbus.errors import StoreError, StoreInUse

if TYPE_CHECKING:
    from twinbus.storage.folder import Folder

LEASE_S = 30.0
RENEW_S = 5.0


class _LeaseObject(msgspec.Struct):
    holder: str
    """A name that no other holder has."""
    host: str
    place: str
    """Start of the machine, and which processes its number is among: containers count their own."""
    pid: int
    renewed: int = 0
    """How often: so every content is another."""
    is_released: bool = False


class _Found(NamedTuple):
    number: int
    data: bytes


class StoreLease:
    """A lease that is held; a thread renews it."""

    def __init__(self, folder: Folder, name: str, number: int, content: _LeaseObject) -> None:
        self._folder = folder
        self._name = name
        self._number = number
        self._content = content
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="twinbus-lease", daemon=True)

    def check(self) -> None:
        newest = _newest(self._folder, self._name)
        if newest != self._number:
            raise StoreInUse(f"another process has taken over {self._folder.url}: this one did not answer for too long")

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._content.is_released = True
        with suppress(StoreError):  # then it ends by itself
            self._write()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            with suppress(StoreError):  # the next attempt may work; if none does, others may take it over
                self._content.renewed += 1
                self._write()

    def _write(self) -> None:
        self._folder.put(_object(self._name, self._number), msgspec.json.encode(self._content))


@contextmanager
def hold_lease(folder: Folder, name: str) -> Iterator[StoreLease]:
    """Hold the lock `name` of a folder. Raises `StoreInUse` once its holder is seen to live."""
    lease = _take(folder, name)
    lease.start()
    try:
        yield lease
    finally:
        lease.end()


def _take(folder: Folder, name: str) -> StoreLease:
    number = _free_number(folder, name)
    content = _LeaseObject(secrets.token_hex(8), socket.gethostname(), _place(), os.getpid())
    if not folder.create(_object(name, number), msgspec.json.encode(content)):
        raise StoreInUse(f"another process is using {folder.url}")
    if _newest(folder, name) != number:  # it was taken, released and tidied away since we looked
        folder.delete([_object(name, number)])
        raise StoreInUse(f"another process is using {folder.url}")
    folder.delete([file for each, file in _objects(folder, name) if each < number])
    return StoreLease(folder, name, number, content)


def _free_number(folder: Folder, name: str) -> int:
    """The number that may be taken next. Raises `StoreInUse` if its holder lives; takes `LEASE_S` to see it dead."""
    found = _read_newest(folder, name)
    if found is None:
        return 1
    deadline = time.monotonic() + LEASE_S
    while True:
        holder = msgspec.json.decode(found.data, type=_LeaseObject)
        if holder.is_released or _is_dead_here(holder) or time.monotonic() >= deadline:
            return found.number + 1
        time.sleep(min(1.0, LEASE_S / 10))
        again = _read_newest(folder, name)
        if again is None:
            return found.number + 1
        if again != found and not msgspec.json.decode(again.data, type=_LeaseObject).is_released:
            raise StoreInUse(f"another process is using {folder.url}: {holder.pid} on {holder.host}")
        found = again


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_dead_here(holder: _LeaseObject) -> bool:
    """Whether it ran on this machine and has ended."""
    if not holder.place or holder.place != _place():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _read_newest(folder: Folder, name: str) -> _Found | None:
    number = _newest(folder, name)
    if not number:
        return None
    try:
        return _Found(number, folder.read(_object(name, number)))
    except FileNotFoundError:  # the next one was taken meanwhile
        raise StoreInUse(f"another process is using {folder.url}") from None
    except OSError as error:
        raise StoreError(f"{folder.where(_object(name, number))} cannot be read: {error.strerror}") from error


def _newest(folder: Folder, name: str) -> int:
    return max((number for number, _ in _objects(folder, name)), default=0)


def _objects(folder: Folder, name: str) -> list[tuple[int, str]]:
    """The number and name of each object of a lock."""
    prefix = f"{name}.lease/"
    numbered = [(file.name.removeprefix(prefix), file.name) for file in folder.files(f"{name}.lease")]
    return [(int(number), file) for number, file in numbered if number.isdecimal()]


def _object(name: str, number: int) -> str:
    return f"{name}.lease/{number:09}"
