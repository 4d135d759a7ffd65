"""Why the syphon dead-letters a message: the values of `DeadLetterReason`."""

from __future__ import annotations

from typing import Final

MALFORMED: Final = "TwinbusMalformed"
"""It did not come from a paired client: an alias is missing, of a wrong type, or names no entity."""
TOO_LARGE: Final = "TwinbusTooLarge"
"""It is larger than its destination accepts."""
REFUSED: Final = "TwinbusRefused"
"""The destination can never accept it."""
EXPIRED: Final = "TwinbusExpired"
"""Its time to live ended in the backlog."""

REASONS: Final = (MALFORMED, TOO_LARGE, REFUSED, EXPIRED)

DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
"""The application properties in which a dead-lettered message says why."""

_PATH_LENGTH_MAX = 260


def path_problem(path: str) -> str | None:
    """Why this cannot be the name of an entity; None if it can.

    A path with a part that begins with `$` would reach nodes of the service itself, with our rights.
    """
    if not path.strip("/") or len(path) > _PATH_LENGTH_MAX:
        return f"x-ms-path must have 1 to {_PATH_LENGTH_MAX} characters, got {len(path)}"
    if "://" in path or not path.isprintable():
        return f"x-ms-path must be the name of an entity, got {path[:60]!r}"
    if any(part.startswith("$") for part in path.split("/")):
        return f"x-ms-path must not lead to a node of the service, got {path[:60]!r}"
    return None
