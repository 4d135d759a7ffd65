"""Checks that a path means the same entity to the proxy and to the primary.

An application may have rights to some entities only, but the proxy has all rights at the primary. So a path that was
authorized here must not name another entity there.
"""

from __future__ import annotations

from twinbus.errors import ArgumentError

PATH_LENGTH_MAX = 1_024
"""The service allows less. Invented names must not use up memory."""


def check_path(path: str) -> None:
    """Raise `ArgumentError` if the primary might read it as another path, or if it is too long."""
    if len(path) > PATH_LENGTH_MAX:
        raise ArgumentError(f"a path of {len(path)} characters cannot be the path of an entity")
    parts = path.split("/")
    is_odd = not path.isprintable() or "\\" in path or "%" in path
    if is_odd or "." in parts or ".." in parts or (path and "" in parts):
        raise ArgumentError(f"the path {path[:80]!r} cannot be the path of an entity")
