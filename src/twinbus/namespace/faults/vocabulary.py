"""The faults a namespace can be given: one vocabulary for the command, the control socket, the fixtures and the docs.

A fault is asked for as plain values, the same everywhere: `fault` (its kind), `entities` or `pattern` (else it is for
the whole namespace), `length_ms` (else it lasts until it is cleared), and the parameters of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple

from twinbus.errors import OptionsError
from twinbus.namespace.faults import parameters
from twinbus.namespace.faults.parameters import LENGTH, Parameter, Wrong
from twinbus.namespace.faults.scope import BELOW_ENTITY, BELOW_TOPIC, ENTITIES_MAX, NAME_LENGTH_MAX, Scope
from twinbus.namespace.faults.troubles import (
    SENDING,
    Busy,
    Late,
    NoManage,
    NoReceive,
    NoSend,
    Refusing,
    Restarting,
    Slow,
    Trouble,
    Unanswered,
    Unreachable,
)

RESTART = "restart"
RESTART_MS = 10_000
_INCLUDED = "dead-letter queue and management"
_COMMON_KEYS = frozenset({"fault", "entities", "pattern", "length_ms"})


class Phase(NamedTuple):
    length_ms: int | None
    """None: until the fault is cleared."""
    trouble: Trouble


class Kind(NamedTuple):
    """A word of the vocabulary."""

    meaning: str
    parameters: tuple[Parameter, ...]
    trouble: Callable[..., Trouble]


KINDS: dict[str, Kind] = {
    "no-send": Kind("sends are refused with amqp:internal-error", (), NoSend),
    "no-receive": Kind("receives and settlements are refused with amqp:internal-error", (), NoReceive),
    "no-manage": Kind("admin requests get HTTP 503, management requests 500", (), NoManage),
    "unreachable": Kind(
        "nothing gets through: the port is closed, resets, or is silent", (parameters.HOW,), Unreachable
    ),
    "refuse": Kind(
        "sends, receives or both are refused with any AMQP condition",
        (parameters.CONDITION, parameters.TEXT, parameters.ON, parameters.PROBABILITY, parameters.COUNT),
        Refusing,
    ),
    "busy": Kind("requests beyond so many a second are told that the server is busy", (parameters.PER_SECOND,), Busy),
    "slow": Kind("answers and deliveries take their time", (parameters.SLOW_DELAY, parameters.JITTER), Slow),
    "late": Kind("sends are accepted, messages appear later", (parameters.LATE_DELAY,), Late),
    "unanswered": Kind(
        "messages are stored, the sender never hears of it", (parameters.PROBABILITY, parameters.COUNT), Unanswered
    ),
    RESTART: Kind(
        "unavailable for a while, then slow for a while; a dump is written first",
        (parameters.SLOW_FOR, parameters.RESTART_DELAY),
        Slow,
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was asked for and makes sense."""

    kind: str
    scope: Scope
    length_ms: int | None
    parameters: Mapping[str, Any]

    def phases(self) -> tuple[Phase, ...]:
        """What is wrong, one thing after the other."""
        if self.kind != RESTART:
            return (Phase(self.length_ms, KINDS[self.kind].trouble(**self.parameters)),)
        unavailable = Phase(self.length_ms, Restarting())
        slow_for_ms = self.parameters["slow_for_ms"]
        return (unavailable, Phase(slow_for_ms, Slow(self.parameters["delay_ms"]))) if slow_for_ms else (unavailable,)

    def to_values(self) -> dict[str, Any]:
        """The values that ask for this fault, defaults written out."""
        plain = {key: value.value if isinstance(value, Enum) else value for key, value in self.parameters.items()}
        return {
            "fault": self.kind,
            "entities": list(self.scope.entities),
            "pattern": self.scope.pattern,
            "length_ms": self.length_ms,
            **plain,
        }


def read_fault(values: Mapping[str, Any]) -> Fault:
    """The fault these values ask for; raises `OptionsError` with everything that is wrong with them.

    A value that is None counts as not given.
    """
    given = {key: value for key, value in values.items() if value is not None}
    name = given.get("fault")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise OptionsError(_unknown_kind(name))
    problems = [f"{name} takes no {_label(key)}" for key in given if key not in _COMMON_KEYS | _keys_of(kind)]
    scope = _read_scope(given, problems)
    length_ms = _read_parameter(LENGTH, given, problems)
    read = {one.key: _read_parameter(one, given, problems) for one in kind.parameters}
    if problems:
        raise OptionsError("; ".join(problems))
    if name == RESTART and length_ms is None:
        length_ms = RESTART_MS
    fault = Fault(str(name), scope, length_ms, read)
    problems.extend(_without_effect(fault))
    if problems:
        raise OptionsError("; ".join(problems))
    return fault


def _without_effect(fault: Fault) -> Iterator[str]:
    """What of its scope such a fault does nothing to, because only what senders do goes wrong."""
    if all(phase.trouble.touches <= SENDING and not isinstance(phase.trouble, Late) for phase in fault.phases()):
        for name in fault.scope.names:
            if BELOW_TOPIC in name.lower():
                topic = name[: name.lower().index(BELOW_TOPIC)]
                yield f"{fault.kind} has no effect on {name}: nobody sends to a subscription, name its topic {topic}"


def _keys_of(kind: Kind) -> frozenset[str]:
    return frozenset(one.key for one in kind.parameters)


def _label(key: str) -> str:
    return key.removesuffix("_ms").replace("_", "-") if key.isprintable() and len(key) < 40 else "such parameter"


def _unknown_kind(name: object) -> str:
    close = get_close_matches(name, KINDS, n=1) if isinstance(name, str) else []
    return f"no fault is called {name!r:.60}: " + (
        f"did you mean {close[0]}?" if close else f"there are {', '.join(KINDS)}"
    )


def _read_parameter(parameter: Parameter, given: Mapping[str, Any], problems: list[str]) -> Any:
    if parameter.key not in given:
        if parameter.is_required:
            problems.append(f"{parameter.label} is missing")
        return parameter.default
    try:
        return parameter.read(given[parameter.key])
    except Wrong as wrong:
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
                    yield f"{one!r:.60} is no name of an entity"
                elif BELOW_ENTITY in one:
                    whole = one.partition(BELOW_ENTITY)[0]
                    yield f"{one} cannot fail alone: a fault for {whole} includes its {_INCLUDED}"
    if pattern is not None:
        if not _is_name(pattern):
            yield f"pattern must be a name with * and ?, as orders*, got {pattern!r:.60}"
        elif BELOW_ENTITY in str(pattern):
            yield f"{pattern} fits no entity: a fault for an entity includes its {_INCLUDED}"


def _is_name(value: object) -> bool:
    return (
        isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX and value.isprintable() and value == value.strip()
    )
