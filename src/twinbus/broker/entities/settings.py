"""The settings of queues, topics and subscriptions: fields, limits, and how they are stored.

Everything the official administration clients can set has a field. A field whose behaviour this version lacks takes
only the value that asks for nothing: a setting is honoured or refused, never just kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from twinbus.errors import OptionsError, StoreDamaged

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PATH_LENGTH_MAX = 260
NAME_LENGTH_MAX = 50
"""Of subscriptions and rules."""
DELIVERY_COUNT_LIMIT = 2_147_483_647
LOCK_MS_MIN, LOCK_MS_MAX = 5_000, 300_000
TTL_MS_MIN = 1_000
SIZE_MB_MAX = 81_920
MESSAGE_KB_MAX = 102_400
DUPLICATE_WINDOW_MS_MIN, DUPLICATE_WINDOW_MS_MAX = 20_000, 7 * 24 * 3_600_000
IDLE_MS_MIN = 300_000
METADATA_LENGTH_MAX = 1_024
RULES_MAX = 12
CLAIM_LENGTH_MAX = 256
RIGHTS = ("Send", "Listen", "Manage")
UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot carry."""
_KEY_NAME, _KEY = re.compile(r"[\x21-\x3a\x3c\x3e-\x7e]{1,256}"), re.compile(r"[\x21-\x3a\x3c-\x7e]{1,256}")
"""The characters that a connection string can carry."""


class QueueStatus(StrEnum):
    """What clients may do. It applies to the dead-letter queue too."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def lets_send(self) -> bool:
        return self in (QueueStatus.ACTIVE, QueueStatus.RECEIVE_DISABLED)

    @property
    def lets_receive(self) -> bool:
        return self in (QueueStatus.ACTIVE, QueueStatus.SEND_DISABLED)


class AuthorizationRule(NamedTuple):
    """A key of one entity, as its owner wrote it; `broker.auth` evaluates it."""

    key_name: str
    rights: tuple[str, ...]
    """Any of Send, Listen and Manage."""
    primary_key: str
    secondary_key: str
    created_at_ms: int = 0
    modified_at_ms: int = 0
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"


class SettingProblem(NamedTuple):
    """A problem of one setting: `what` says what would be valid and what was given."""

    field: str
    what: str


class Settings:
    """What all settings share; each kind is a dataclass."""

    __slots__ = ()
    KIND: ClassVar[str]
    max_size_mb: int
    max_message_kb: int | None

    @property
    def size_bytes_max(self) -> int:
        return self.max_size_mb * 1024 * 1024

    @property
    def message_bytes_max(self) -> int | None:
        return None if self.max_message_kb is None else self.max_message_kb * 1024

    def __post_init__(self: DataclassInstance) -> None:
        problems = settings_problems({field.name: getattr(self, field.name) for field in fields(self)})
        if problems:
            raise OptionsError("; ".join(f"{_LABELS.get(field, field)} {what}" for field, what in problems))

    def to_text(self: DataclassInstance) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, path: str) -> Self:
        """Read what `to_text` of this or an older version wrote: missing fields have their defaults.

        Raises `StoreDamaged`, with the entity's path, for anything else. Settings this version does not know are an
        error, never dropped.
        """
        try:
            return cls._from_values(json.loads(text), path)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise StoreDamaged(f"'{path}': the store has invalid {cls.KIND} settings: {error}") from error

    @classmethod
    def _from_values(cls, values: dict[str, Any], path: str) -> Self:
        unknown = set(values) - {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            names = ", ".join(sorted(unknown))
            raise StoreDamaged(f"'{path}': the store has {cls.KIND} settings this version does not know: {names}")
        values["status"] = QueueStatus(values.get("status", QueueStatus.ACTIVE))
        if "authorization_rules" in values:
            values["authorization_rules"] = tuple(
                AuthorizationRule(name, tuple(rights), *rest) for name, rights, *rest in values["authorization_rules"]
            )
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(Settings):
    """Settings of a queue or a subscription, which is a queue that its topic fills. The defaults are the service's."""

    KIND: ClassVar[str] = "queue"

    lock_ms: int = 60_000
    """How long a receiver may lock a message before others get it."""
    max_size_mb: int = 1024
    max_delivery_count: int = 10
    """Failed deliveries after which a message is dead-lettered."""
    default_ttl_ms: int | None = None
    """Time to live of messages without one, and the maximum for others; None: unlimited."""
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_errors: bool = True
    """Of a subscription: whether messages are dead-lettered on which its filters cannot be evaluated."""
    batched_operations: bool = True
    """Whether writes may share a transaction. They always do: every reply waits until its own is durable."""
    status: QueueStatus = QueueStatus.ACTIVE
    user_metadata: str | None = None
    """Free text of the owner."""
    auto_delete_on_idle_ms: int | None = None
    """None: never."""
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 600_000
    """Has no effect without duplicate detection."""
    forward_to: str | None = None
    """The queue or topic to which its messages are forwarded; None: none."""
    forward_dead_letters_to: str | None = None
    """The same for its dead letters."""
    partitioned: bool = False
    express: bool = False
    """Whether messages may stay in memory for a while. They never do: a message is accepted once it is on disk."""
    max_message_kb: int | None = None
    """None: the limit of the namespace, which applies in any case."""
    authorization_rules: tuple[AuthorizationRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Settings):
    """Settings of a topic. The defaults are the service's; fields mean what they mean for a queue."""

    KIND: ClassVar[str] = "topic"

    max_size_mb: int = 1024
    """The limit of each of its subscriptions, and of its pending and scheduled messages."""
    default_ttl_ms: int | None = None
    batched_operations: bool = True
    status: QueueStatus = QueueStatus.ACTIVE
    user_metadata: str | None = None
    auto_delete_on_idle_ms: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 600_000
    support_ordering: bool = True
    """Whether messages keep their order. They always do."""
    partitioned: bool = False
    express: bool = False
    max_message_kb: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()


def settings_problems(values: Mapping[str, Any]) -> list[SettingProblem]:
    """All problems of these settings; empty if they are valid."""
    found = []
    for field, value in values.items():
        what = _CHECKS[field](value) if field in _CHECKS else None
        if what is not None:
            found.append(SettingProblem(field, what))
    return found


# --- checks: None if valid, otherwise the problem ------------------------------------------

Check = Callable[[Any], str | None]


def _at_most(high: int, unit: str = "") -> Check:
    def check(value: int | None) -> str | None:
        if value is None or 1 <= value <= high:
            return None
        return f"must be from 1 to {high}{unit}, got {value}"

    return check


def _lock(value: int) -> str | None:
    fits = LOCK_MS_MIN <= value <= LOCK_MS_MAX
    return None if fits else f"must be from 5 s to 5 min, got {value / 1000:g} s"


def _time_to_live(value: int | None) -> str | None:
    return None if value is None or value >= TTL_MS_MIN else f"must be at least 1 s, got {value} ms"


def _idle_time(value: int | None) -> str | None:
    return None if value is None or value >= IDLE_MS_MIN else f"must be at least 5 min, got {value / 1000:g} s"


def _duplicate_window(value: int) -> str | None:
    fits = DUPLICATE_WINDOW_MS_MIN <= value <= DUPLICATE_WINDOW_MS_MAX
    return None if fits else f"must be from 20 s to 7 days, got {value / 1000:g} s"


def _metadata(value: str | None) -> str | None:
    if value is None:
        return None
    if len(value) > METADATA_LENGTH_MAX:
        return f"must have at most {METADATA_LENGTH_MAX} characters, got {len(value)}"
    return "must not have control characters" if UNPRINTABLE.search(value) else None


def _entity_path(value: str | None) -> str | None:
    try:
        if value is not None:
            check_entity_path(value, "queue or topic")
    except OptionsError as error:
        return f"must be the path of a queue or topic of this namespace: {error}"
    return None


def _rules(rules: tuple[AuthorizationRule, ...]) -> str | None:
    names = [rule.key_name.lower() for rule in rules]
    if len(rules) > RULES_MAX:
        return f"must be at most {RULES_MAX} rules, got {len(rules)}"
    if len(set(names)) < len(names):
        return "must have different key names"
    return next((what for what in map(_rule, rules) if what is not None), None)


def _rule(rule: AuthorizationRule) -> str | None:
    name = rule.key_name
    if not _KEY_NAME.fullmatch(name):
        return f"must have key names of 1 to 256 printable ASCII characters, none of ' ', ';', '=', got {name[:60]!r}"
    if not rule.rights or not set(rule.rights) <= set(RIGHTS):
        return f"must give any of {', '.join(RIGHTS)}, got {', '.join(rule.rights)[:60] or 'none'} for {name!r}"
    if not _KEY.fullmatch(rule.primary_key) or not _KEY.fullmatch(rule.secondary_key):
        return f"must have keys of 1 to 256 printable ASCII characters without ' ' and ';', got others for {name!r}"
    claim = rule.claim_type + rule.claim_value
    if len(claim) > CLAIM_LENGTH_MAX or UNPRINTABLE.search(claim):
        return f"must have claims of at most {CLAIM_LENGTH_MAX} characters, none of them a control character"
    return None


_CHECKS: dict[str, Check] = {
    "lock_ms": _lock,
    "max_size_mb": _at_most(SIZE_MB_MAX, " MB"),
    "max_delivery_count": _at_most(DELIVERY_COUNT_LIMIT),
    "default_ttl_ms": _time_to_live,
    "user_metadata": _metadata,
    "auto_delete_on_idle_ms": _idle_time,
    "duplicate_window_ms": _duplicate_window,
    "forward_to": _entity_path,
    "forward_dead_letters_to": _entity_path,
    "max_message_kb": _at_most(MESSAGE_KB_MAX, " KB"),
    "authorization_rules": _rules,
}
_LABELS = {
    "lock_ms": "lock duration",
    "max_size_mb": "maximum size",
    "max_delivery_count": "maximum delivery count",
    "default_ttl_ms": "default time to live",
    "max_message_kb": "maximum message size",
}


_PATH = re.compile(r"[A-Za-z0-9._/~-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_RULE_NAME = re.compile(r"[A-Za-z0-9._$-]+", re.ASCII)
"""A rule has no address, so it may be called `$Default`; a subscription `$management` would look like a node."""
_OWN_PARTS = {"subscriptions"}
"""Parts that a path must not have: the subscriptions of a topic follow there."""


def check_entity_path(path: str, kind: str = "queue") -> None:
    """Raise `OptionsError` if this is not a valid name of a queue or topic."""
    parts = path.split("/")
    if not path or len(path) > PATH_LENGTH_MAX:
        raise OptionsError(f"a {kind} name has 1 to {PATH_LENGTH_MAX} characters, got {len(path)}")
    if "" in parts:
        raise OptionsError(f"a {kind} name must not begin or end with '/' nor have an empty part, got {path!r}")
    if any(not part.strip(".") for part in parts):  # a client on its way here would take them for steps
        raise OptionsError(f"a {kind} name must not have a part that is only dots, got {path!r}")
    if not _PATH.fullmatch(path):
        raise OptionsError(f"a {kind} name has letters, digits, '.', '-', '_', '~' and '/', got {path!r}")
    if not _OWN_PARTS.isdisjoint(part.lower() for part in parts[1:]):
        raise OptionsError(f"a {kind} name must not have a part 'subscriptions' behind others, got {path!r}")


def check_part_name(name: str, kind: str) -> None:
    """Raise `OptionsError` if this is not a valid name of a subscription or rule."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise OptionsError(f"a {kind} name has 1 to {NAME_LENGTH_MAX} characters, got {len(name)}")
    allowed, signs = (_RULE_NAME, "'.', '-', '_' and '$'") if kind == "rule" else (_NAME, "'.', '-' and '_'")
    if not allowed.fullmatch(name) or not name.strip("."):
        raise OptionsError(f"a {kind} name has letters, digits, {signs}, got {name!r}")
