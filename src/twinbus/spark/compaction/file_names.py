"""What the Parquet files of a segment are called.

Spark passes over files whose names begin with `_` or `.`, and takes brackets, braces, stars and the like for patterns;
a JVM may not know other letters than those of ASCII. Segments are called whatever somebody called them.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}")
_READABLE = 80
_DIGEST = 16


def file_name(segment: str, start: int) -> str:
    """The name for what was read of a segment from `start` on: its own where that is safe, and never another's."""
    stem = str(Path(segment).with_suffix(""))
    return f"{stem if _SAFE.fullmatch(stem) else _safe(stem)}-{start}.parquet"


def _safe(stem: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", stem).strip("-.")[:_READABLE]
    return f"{readable or 'segment'}-{sha256(os.fsencode(stem)).hexdigest()[:_DIGEST]}"
