"""Kinds of faults and their parameters: one vocabulary for the command, the control socket, fixtures and docs.

A fault is requested as plain values, the same everywhere: `fault` (its kind), `entities` or `pattern` (otherwise it
is for the whole namespace), `length_ms` (otherwise it lasts until it is cleared), and the parameters of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple

from twinbus.broker.faults.effects import (
    SENDING,
    Busy,
    Direction,
    FaultEffect,
    Late,
    NoManage,
    NoReceive,
    NoSend,
    OutageEffect,
    OutageMode,
    Refusing,
    Restarting,
    Slow,
    Unanswered,
)
from twinbus.broker.faults.scope import BELOW_ENTITY, BELOW_TOPIC, ENTITIES_MAX, NAME_LENGTH_MAX, Scope
from twinbus.errors import OptionsError
from twinbus.units import short_duration

LENGTH_MS_MAX = 7 * 24 * 3_600_000
LATE_MS_MAX = 15 * 60_000
"""The service documentation knows no longer delay."""
SLOW_MS_MAX = 5 * 60_000
PER_SECOND_MAX = 1_000_000
COUNT_MAX = 1_000_000
TEXT_LENGTH_MAX = 500
_TELLABLE_MS = 10**15
"""Longer durations are shown as given."""
_CONDITION = re.compile(r"[a-z][a-z0-9.-]*(:[a-z][a-z0-9-]*)+")


class InvalidParameter(Exception):
    """An invalid value; the text says what would be valid."""


def _excerpt(value: Any) -> str:
    """The start of a wrong value."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # a number with more digits than Python writes
        return "a number with thousands of digits"


@dataclass(frozen=True, slots=True)
class FaultParameter:
    key: str
    """Its name on the control socket."""
    label: str
    """The flag of the command without dashes."""
    read: Callable[[Any], Any]
    default: Any = None
    is_required: bool = False


def duration(key: str, low_ms: int, high_ms: int, *, default: int | None = None) -> FaultParameter:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low_ms <= value <= high_ms:
            got = short_duration(value) if type(value) is int and 0 <= value <= _TELLABLE_MS else _excerpt(value)
            raise InvalidParameter(f"must be from {short_duration(low_ms)} to {short_duration(high_ms)}, got {got}")
        return value

    return FaultParameter(key, key.removesuffix("_ms").replace("_", "-"), read, default)


def choice(key: str, choices: type[Enum], default: Enum) -> FaultParameter:
    def read(value: Any) -> Enum:
        names = [str(one.value) for one in choices]
        if value not in names:
            raise InvalidParameter(f"must be {', '.join(names[:-1])} or {names[-1]}, got {_excerpt(value)}")
        return choices(value)

    return FaultParameter(key, key, read, default)


def _read_per_second(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= PER_SECOND_MAX:
        raise InvalidParameter(f"must be a number from 0 (always busy) to {PER_SECOND_MAX}, got {_excerpt(value)}")
    return float(value)


def _read_probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidParameter(f"must be above 0 and at most 1, got {_excerpt(value)}")
    return float(value)


def _read_count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= COUNT_MAX:
        raise InvalidParameter(f"must be a whole number from 1 to {COUNT_MAX}, got {_excerpt(value)}")
    return value


def _read_condition(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 100 or not _CONDITION.fullmatch(value):
        raise InvalidParameter(
            f"must be an AMQP condition, e.g. com.microsoft:server-busy or amqp:not-found, got {_excerpt(value)}"
        )
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_LENGTH_MAX or not value.isprintable():
        raise InvalidParameter(f"must be one line of 1 to {TEXT_LENGTH_MAX} characters, got {_excerpt(value)}")
    return value


LENGTH = duration("length_ms", 1, LENGTH_MS_MAX)
HOW = choice("how", OutageMode, OutageMode.REFUSE)
ON = choice("on", Direction, Direction.BOTH)
CONDITION = FaultParameter("condition", "condition", _read_condition, is_required=True)
TEXT = FaultParameter("text", "text", _read_text)
PER_SECOND = FaultParameter("per_second", "per-second", _read_per_second, 0.0)
PROBABILITY = FaultParameter("probability", "probability", _read_probability, 1.0)
COUNT = FaultParameter("count", "count", _read_count)
SLOW_DELAY = duration("delay_ms", 1, SLOW_MS_MAX, default=1_000)
JITTER = duration("jitter_ms", 0, SLOW_MS_MAX, default=0)
LATE_DELAY = duration("delay_ms", 1, LATE_MS_MAX, default=60_000)
RESTART_DELAY = duration("delay_ms", 1, SLOW_MS_MAX, default=500)
SLOW_FOR = duration("slow_for_ms", 0, LENGTH_MS_MAX, default=30_000)


RESTART = "restart"
RESTART_MS = 10_000
_INCLUDED = "dead-letter queue and management"
_COMMON_KEYS = frozenset({"fault", "entities", "pattern", "length_ms"})


class FaultPhase(NamedTuple):
    length_ms: int | None
    """None: until the fault is cleared."""
    effect: FaultEffect


class FaultKind(NamedTuple):
    meaning: str
    parameters: tuple[FaultParameter, ...]
    effect: Callable[..., FaultEffect]


KINDS: dict[str, FaultKind] = {
    "no-send": FaultKind("sends are refused with amqp:internal-error", (), NoSend),
    "no-receive": FaultKind("receives and settlements are refused with amqp:internal-error", (), NoReceive),
    "no-manage": FaultKind("admin requests get HTTP 503, management requests 500", (), NoManage),
    "unreachable": FaultKind("nothing gets through: the port is closed, resets, or is silent", (HOW,), OutageEffect),
    "refuse": FaultKind(
        "sends, receives or both are refused with any AMQP condition",
        (CONDITION, TEXT, ON, PROBABILITY, COUNT),
        Refusing,
    ),
    "busy": FaultKind("requests above a rate are answered with server busy", (PER_SECOND,), Busy),
    "slow": FaultKind("answers and deliveries are delayed", (SLOW_DELAY, JITTER), Slow),
    "late": FaultKind("sends are accepted, messages appear later", (LATE_DELAY,), Late),
    "unanswered": FaultKind("messages are stored, the sender gets no answer", (PROBABILITY, COUNT), Unanswered),
    RESTART: FaultKind(
        "unavailable for a while, then slow for a while; a dump is written first",
        (SLOW_FOR, RESTART_DELAY),
        Slow,
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A valid request for a fault."""

    kind: str
    scope: Scope
    length_ms: int | None
    parameters: Mapping[str, Any]

    def phases(self) -> tuple[FaultPhase, ...]:
        """Its effects, one after the other."""
        if self.kind != RESTART:
            return (FaultPhase(self.length_ms, KINDS[self.kind].effect(**self.parameters)),)
        unavailable = FaultPhase(self.length_ms, Restarting())
        slow_for_ms = self.parameters["slow_for_ms"]
        return (
            (unavailable, FaultPhase(slow_for_ms, Slow(self.parameters["delay_ms"]))) if slow_for_ms else (unavailable,)
        )

    def to_values(self) -> dict[str, Any]:
        """The values that request this fault, with defaults."""
        plain = {key: value.value if isinstance(value, Enum) else value for key, value in self.parameters.items()}
        return {
            "fault": self.kind,
            "entities": list(self.scope.entities),
            "pattern": self.scope.pattern,
            "length_ms": self.length_ms,
            **plain,
        }


def read_fault(values: Mapping[str, Any]) -> Fault:
    """The fault these values request; raises `OptionsError` with all problems. None counts as not given."""
    given = {key: value for key, value in values.items() if value is not None}
    name = given.get("fault")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise OptionsError(_unknown_kind(name))
    known = _COMMON_KEYS | {one.key for one in kind.parameters}
    problems = [f"{name} takes no {_label(key)}" for key in given if key not in known]
    scope = _read_scope(given, problems)
    length_ms = _read_parameter(LENGTH, given, problems)
    read = {one.key: _read_parameter(one, given, problems) for one in kind.parameters}
    OptionsError.raise_for(problems)
    if name == RESTART and length_ms is None:
        length_ms = RESTART_MS
    fault = Fault(str(name), scope, length_ms, read)
    problems.extend(_without_effect(fault))
    OptionsError.raise_for(problems)
    return fault


def _without_effect(fault: Fault) -> Iterator[str]:
    """Subscriptions in the scope of a fault that affects senders only."""
    if all(phase.effect.affects <= SENDING and not isinstance(phase.effect, Late) for phase in fault.phases()):
        for name in fault.scope.names:
            if BELOW_TOPIC in name.lower():
                topic = name[: name.lower().index(BELOW_TOPIC)]
                yield f"{fault.kind} has no effect on {name}: nobody sends to a subscription, name its topic {topic}"


def _label(key: str) -> str:
    return key.removesuffix("_ms").replace("_", "-") if key.isprintable() and len(key) < 40 else "such parameter"


def _unknown_kind(name: object) -> str:
    close = get_close_matches(name, KINDS, n=1) if isinstance(name, str) else []
    return f"no fault is called {name!r:.60}: " + (
        f"did you mean {close[0]}?" if close else f"there are {', '.join(KINDS)}"
    )


def _read_parameter(parameter: FaultParameter, given: Mapping[str, Any], problems: list[str]) -> Any:
    if parameter.key not in given:
        if parameter.is_required:
            problems.append(f"{parameter.label} is missing")
        return parameter.default
    try:
        return parameter.read(given[parameter.key])
    except InvalidParameter as wrong:
        problems.append(f"{parameter.label} {wrong}")
        return parameter.default


def _read_scope(given: Mapping[str, Any], problems: list[str]) -> Scope:
    found = list(_scope_problems(given.get("entities"), given.get("pattern")))
    problems.extend(found)
    return Scope() if found else Scope(tuple(given.get("entities", ())), given.get("pattern"))


def _scope_problems(entities: object, pattern: object) -> Iterator[str]:
    if entities and pattern is not None:
        yield "entities and pattern exclude each other: choose one"
    if entities is not None:
        if not isinstance(entities, list | tuple) or len(entities) > ENTITIES_MAX:
            yield f"entities must be a list of at most {ENTITIES_MAX} names, got {entities!r:.60}"
        else:
            for one in entities:
                if not _is_name(one):
                    yield f"{one!r:.60} is not a name of an entity"
                elif BELOW_ENTITY in one:
                    whole = one.partition(BELOW_ENTITY)[0]
                    yield f"{one} cannot fail alone: a fault for {whole} includes its {_INCLUDED}"
    if pattern is not None:
        if not _is_name(pattern):
            yield f"pattern must be a name with * and ?, e.g. orders*, got {pattern!r:.60}"
        elif BELOW_ENTITY in str(pattern):
            yield f"{pattern} fits no entity: a fault for an entity includes its {_INCLUDED}"


def _is_name(value: object) -> bool:
    return (
        isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX and value.isprintable() and value == value.strip()
    )
