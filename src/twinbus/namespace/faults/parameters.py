"""The parameters of faults: what each may be, and what is said of one that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twinbus.namespace.faults.durations import duration_text
from twinbus.namespace.faults.troubles import Ability, How

LENGTH_MS_MAX = 7 * 24 * 3_600_000
LATE_MS_MAX = 15 * 60_000
"""The documents know no message that took longer."""
SLOW_MS_MAX = 5 * 60_000
PER_SECOND_MAX = 1_000_000
COUNT_MAX = 1_000_000
TEXT_LENGTH_MAX = 500
_TELLABLE_MS = 10**15
"""Longer lengths of time are repeated as they came."""
_CONDITION = re.compile(r"[a-z][a-z0-9.-]*(:[a-z][a-z0-9-]*)+")


class Wrong(Exception):
    """A value that cannot be taken; the text says what could be."""


def _shown(value: Any) -> str:
    """A wrong value, as much of it as is worth repeating."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # a number with more digits than Python writes
        return "a number with thousands of digits"


@dataclass(frozen=True, slots=True)
class Parameter:
    key: str
    """Its name on the control socket."""
    label: str
    """Its name for people: the flag of the command without dashes."""
    read: Callable[[Any], Any]
    default: Any = None
    is_required: bool = False


def duration(
    key: str, low_ms: int, high_ms: int, *, default: int | None = None, is_required: bool = False
) -> Parameter:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low_ms <= value <= high_ms:
            got = duration_text(value) if type(value) is int and 0 <= value <= _TELLABLE_MS else _shown(value)
            raise Wrong(f"must be from {duration_text(low_ms)} to {duration_text(high_ms)}, got {got}")
        return value

    return Parameter(key, key.removesuffix("_ms").replace("_", "-"), read, default, is_required)


def choice(key: str, choices: type[Enum], default: Enum) -> Parameter:
    def read(value: Any) -> Enum:
        names = [str(one.value) for one in choices]
        if value not in names:
            raise Wrong(f"must be {', '.join(names[:-1])} or {names[-1]}, got {_shown(value)}")
        return choices(value)

    return Parameter(key, key, read, default)


def _read_per_second(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= PER_SECOND_MAX:
        raise Wrong(f"must be a number from 0 (always busy) to {PER_SECOND_MAX}, got {_shown(value)}")
    return float(value)


def _read_probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise Wrong(f"must be above 0 and at most 1, got {_shown(value)}")
    return float(value)


def _read_count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= COUNT_MAX:
        raise Wrong(f"must be a whole number from 1 to {COUNT_MAX}, got {_shown(value)}")
    return value


def _read_condition(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 100 or not _CONDITION.fullmatch(value):
        raise Wrong(f"must be an AMQP condition, as com.microsoft:server-busy or amqp:not-found, got {_shown(value)}")
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_LENGTH_MAX or not value.isprintable():
        raise Wrong(f"must be one line of 1 to {TEXT_LENGTH_MAX} characters, got {_shown(value)}")
    return value


LENGTH = duration("length_ms", 1, LENGTH_MS_MAX)
HOW = choice("how", How, How.REFUSE)
ON = choice("on", Ability, Ability.BOTH)
CONDITION = Parameter("condition", "condition", _read_condition, is_required=True)
TEXT = Parameter("text", "text", _read_text)
PER_SECOND = Parameter("per_second", "per-second", _read_per_second, 0.0)
PROBABILITY = Parameter("probability", "probability", _read_probability, 1.0)
COUNT = Parameter("count", "count", _read_count)
SLOW_DELAY = duration("delay_ms", 1, SLOW_MS_MAX, default=1_000)
JITTER = duration("jitter_ms", 0, SLOW_MS_MAX, default=0)
LATE_DELAY = duration("delay_ms", 1, LATE_MS_MAX, default=60_000)
RESTART_DELAY = duration("delay_ms", 1, SLOW_MS_MAX, default=500)
SLOW_FOR = duration("slow_for_ms", 0, LENGTH_MS_MAX, default=30_000)
