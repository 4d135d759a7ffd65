"""The settings of a queue: what they are, what they may be, and how they are written down."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from twinbus.errors import OptionsError, StoreDamaged

PATH_LENGTH_MAX = 260
DELIVERY_COUNT_LIMIT = 2_147_483_647
LOCK_MS_MIN, LOCK_MS_MAX = 5_000, 300_000
TTL_MS_MIN = 1_000
SIZE_MB_MAX = 81_920


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a queue behaves. The defaults are those of the service."""

    lock_ms: int = 60_000
    """How long a receiver may keep a message before others get it."""
    max_size_mb: int = 1024
    max_delivery_count: int = 10
    """Failed deliveries after which a message is dead-lettered."""
    default_ttl_ms: int | None = None
    """Time to live of messages that bring none, and a ceiling for those that do; None: for ever."""
    dead_letter_on_expiration: bool = False

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise OptionsError("; ".join(problems))

    def _problems(self) -> list[str]:
        found = []
        if not LOCK_MS_MIN <= self.lock_ms <= LOCK_MS_MAX:
            found.append(f"lock duration must be from 5 s to 5 min, got {self.lock_ms / 1000:g} s")
        if not 1 <= self.max_size_mb <= SIZE_MB_MAX:
            found.append(f"maximum size must be from 1 to {SIZE_MB_MAX} MB, got {self.max_size_mb}")
        if not 1 <= self.max_delivery_count <= DELIVERY_COUNT_LIMIT:
            found.append(f"maximum delivery count must be 1 to {DELIVERY_COUNT_LIMIT}, got {self.max_delivery_count}")
        if self.default_ttl_ms is not None and self.default_ttl_ms < TTL_MS_MIN:
            found.append(f"default time to live must be at least 1 s, got {self.default_ttl_ms} ms")
        return found

    @property
    def size_bytes_max(self) -> int:
        return self.max_size_mb * 1024 * 1024

    def to_text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> QueueSettings:
        """Read what `to_text` wrote; settings this version does not know are an error, never dropped."""
        values = json.loads(text)
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise StoreDamaged(f"the store has queue settings this version does not know: {', '.join(sorted(unknown))}")
        return cls(**values)


def check_queue_path(path: str) -> None:
    """Raise `OptionsError` if a queue cannot be called that."""
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/~")
    if not path or len(path) > PATH_LENGTH_MAX:
        raise OptionsError(f"a queue name has 1 to {PATH_LENGTH_MAX} characters, got {len(path)}")
    if path.startswith("/") or path.endswith("/") or "//" in path:
        raise OptionsError(f"a queue name must not begin or end with '/' nor have an empty part, got {path!r}")
    if not set(path) <= allowed:
        raise OptionsError(f"a queue name has letters, digits, '.', '-', '_', '~' and '/', got {path!r}")
