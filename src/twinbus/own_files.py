"""Files for their owner only, in folders where other users cannot replace them.

A user who can write to a folder can put a link there, so that a new file overwrites another one, or that a foreign key
is taken for ours. So world-writable folders are refused, and a link is followed only if it belongs to the user who runs
this process, or to root.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import TextIO

from twinbus.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_own_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner only. Raises `OSError`."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if not missing and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def check_folder(folder: Path, *, must_be_ours: bool = False) -> None:
    """Raise `StoreError` if others can put files into a folder, or take files out; and `OSError`.

    In a folder with the sticky bit, e.g. /tmp, they cannot touch our files, unless the folder `must_be_ours`. A group
    with write access is trusted: it was granted on purpose.
    """
    refuse_foreign_link(folder)
    facts = folder.stat()
    if must_be_ours and not _is_trusted(facts.st_uid):
        raise StoreError(
            f"the folder {folder} belongs to another user ({facts.st_uid}), who could read and replace what is in it: "
            "choose another folder, or give it to the user who runs twinbus (chown)"
        )
    if facts.st_mode & stat.S_IWOTH and (must_be_ours or not facts.st_mode & stat.S_ISVTX):
        raise StoreError(
            f"everybody can write the folder {folder}, and could replace keys and messages in it: "
            f"take that right away (chmod o-w '{folder}'), or choose a folder inside it"
        )


def refuse_foreign_link(path: Path) -> None:
    """Raise `StoreError` if the path is a link that another user has put there; a path that is not there is fine."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(facts.st_mode) and not _is_trusted(facts.st_uid):
        raise StoreError(
            f"{path} is a link that another user ({facts.st_uid}) has put there: it is not followed; remove it"
        )


def open_own(path: Path, flags: int) -> int:
    """Open a file that is for its owner only; raises `StoreError` for a link of another user, and `OSError`.

    Others lose their rights to an existing file too, if it is ours: so files of older versions become private.
    """
    file = _open(path, flags, FILE_MODE)
    try:
        _narrow(file)
    except BaseException:
        os.close(file)
        raise
    return file


def read_own(path: Path) -> str:
    """The text of a file that is for its owner only; raises what `open_own` raises, and `UnicodeDecodeError`."""
    with os.fdopen(open_own(path, os.O_RDONLY), encoding="ascii") as file:
        return file.read()


def write_whole(path: Path, content: str | bytes, mode: int = FILE_MODE) -> None:
    """Write a file, whole or not at all, and on the disk when this returns. Raises `OSError`.

    By default it is for its owner only.
    """
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)  # left by an interrupted run; or a link, which must not be written through
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(draft, flags, FILE_MODE)  # not in the block: a draft of somebody else is not ours to remove
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if mode != FILE_MODE:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_report(path: Path, text: str) -> None:
    """Write a file that the user asked for, e.g. a report, with the usual rights. Raises as `open_own` does."""
    file = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(text)


def open_lock(path: Path) -> TextIO:
    """Open a file that is only there to be locked, made if it is missing. Raises as `open_own` does."""
    return os.fdopen(_open(path, os.O_WRONLY | os.O_CREAT, 0o666), "w")


def try_lock(file: int, *, is_shared: bool = False) -> bool:
    """Lock an open file, until it is closed or this process ends. False if another one has it; raises `OSError`."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    """Before it is closed: a forked child has it open, too."""
    fcntl.flock(file, fcntl.LOCK_UN)


def write_holder(lock: int) -> None:
    """Say in a file that this process has locked it."""
    os.truncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _open(path: Path, flags: int, mode: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    refuse_foreign_link(path)
    return os.open(path, flags | os.O_CLOEXEC, mode)


def _narrow(file: int) -> None:
    facts = os.fstat(file)
    if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) & ~FILE_MODE:
        os.fchmod(file, stat.S_IMODE(facts.st_mode) & FILE_MODE)


def _is_trusted(user: int) -> bool:
    return user in (0, os.geteuid())
