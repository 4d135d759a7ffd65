"""Why a message lies in the dead-letter queue of a backlog queue: the texts under `DeadLetterReason`."""

from __future__ import annotations

from typing import Final

MALFORMED: Final = "TwinbusMalformed"
"""It is no message that came from a paired client: an alias is missing, of a wrong type, or names no entity."""
TOO_LARGE: Final = "TwinbusTooLarge"
"""It is larger than its destination takes."""
REFUSED: Final = "TwinbusRefused"
"""The destination says that it can never take it."""
EXPIRED: Final = "TwinbusExpired"
"""Its time to live ended in the backlog."""

REASONS: Final = (MALFORMED, TOO_LARGE, REFUSED, EXPIRED)

NOTES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
"""The application properties in which a dead letter says why it is one."""

_PATH_LENGTH_MAX = 260


def path_problem(path: str) -> str | None:
    """Why no entity can be called that; None if one can.

    A path with a part that begins with `$` would reach the service's own nodes, with our rights and in our name.
    """
    if not path.strip("/") or len(path) > _PATH_LENGTH_MAX:
        return f"x-ms-path has 1 to {_PATH_LENGTH_MAX} characters, got {len(path)}"
    if "://" in path or not path.isprintable():
        return f"x-ms-path must be the name of an entity, got {path[:60]!r}"
    if any(part.startswith("$") for part in path.split("/")):
        return f"x-ms-path must not lead to a node of the service, got {path[:60]!r}"
    return None
