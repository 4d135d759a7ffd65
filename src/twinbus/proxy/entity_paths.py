"""Paths that mean the same to everybody who reads them.

An application may have rights to some entities only, and the proxy has all of them at the primary. So a path that is
checked here must not be another one there.
"""

from __future__ import annotations

from twinbus.errors import ArgumentError

PATH_LENGTH_MAX = 1_024
"""The service allows less. Names that are invented must not take any amount of memory."""


def check_path(path: str) -> None:
    """Raise `ArgumentError` if another reader might take it for another path, or if it is too long to be one."""
    if len(path) > PATH_LENGTH_MAX:
        raise ArgumentError(f"a path of {len(path)} characters cannot be the path of an entity")
    parts = path.split("/")
    is_odd = not path.isprintable() or "\\" in path or "%" in path
    if is_odd or "." in parts or ".." in parts or (path and "" in parts):
        raise ArgumentError(f"the path {path[:80]!r} cannot be the path of an entity")
