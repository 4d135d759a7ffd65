"""The measures of a drill: events in, numbers out, compared with limits. Times are seconds of one clock.

A number that is not known is None, never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

from twinbus.units import measured_duration

Place: TypeAlias = Literal["primary", "backlog"]


@dataclass(frozen=True, slots=True)
class CanaryAccepted:
    """A canary was stored on one side."""

    canary: str
    started: float
    ended: float
    place: Place


@dataclass(frozen=True, slots=True)
class CanaryRaised:
    """A send ended in an error: its caller knows that the canary was not accepted."""

    canary: str
    started: float
    ended: float
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class FaultOrdered:
    at: float


@dataclass(frozen=True, slots=True)
class FaultLifted:
    at: float


@dataclass(frozen=True, slots=True)
class SentHome:
    """A syphon of ours has stored a canary of the backlog at home."""

    at: float
    canary: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A canary lies at home. Every copy has a sequence number of its own and is seen once."""

    at: float
    canary: str
    sequence: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A canary still lies in the backlog when nobody waits for it any longer."""

    canary: str


@dataclass(frozen=True, slots=True)
class OthersReceive:
    """Somebody else takes messages from the entity: a canary that is not seen may be in good hands."""


@dataclass(frozen=True, slots=True)
class NotLooked:
    """Nobody could look for the canaries at home: what is lost is not known."""


Event: TypeAlias = (
    CanaryAccepted
    | CanaryRaised
    | FaultOrdered
    | FaultLifted
    | SentHome
    | Seen
    | LeftBehind
    | OthersReceive
    | NotLooked
)
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The numbers of one drill; lengths of time in seconds."""

    sent: int
    to_primary: int
    to_backlog: int
    raised: int
    """Sends that ended in an error."""
    in_doubt: int
    """Those of them whose canary may be stored all the same."""
    effect_s: float | None
    """From the order to fail until the first send met the fault; None: none ever did."""
    failover_s: float | None
    """From the start of that send until the backlog accepted one; None: it never did."""
    gap_s: float | None
    """The longest time without an accepted send, from the last one before the fault on."""
    recovery_s: float | None
    """From the end of the fault until the primary accepted a send; None: it did not."""
    drain_s: float | None
    """From the end of the fault until the last canary of the backlog was home; None: not all came."""
    waiting: int
    """Canaries that still lie in the backlog."""
    taken: int
    """Canaries that were stored and not seen, where somebody else receives: they were probably received."""
    lost: tuple[str, ...] | None
    """Canaries that were accepted and are nowhere; None: nobody could look."""
    duplicates: int
    """Copies at home beyond the first."""
    at_home: int = 0
    """Copies that were seen at home, before any was taken away again."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"lost": None if self.lost is None else list(self.lost)}


def measure(events: Iterable[Event]) -> Measures:
    """The numbers that these events come to, in whichever order they are told."""
    events = list(events)
    accepted, raised = _of(events, CanaryAccepted), _of(events, CanaryRaised)
    ordered, lifted = _first(events, FaultOrdered), _first(events, FaultLifted)
    met = _first_to_meet(accepted, raised, ordered)
    waiting, missing = _whereabouts(events, accepted)
    others = bool(_of(events, OthersReceive))
    return Measures(
        sent=len(accepted) + len(raised),
        to_primary=sum(each.place == "primary" for each in accepted),
        to_backlog=sum(each.place == "backlog" for each in accepted),
        raised=len(raised),
        in_doubt=sum(each.in_doubt for each in raised),
        effect_s=None if met is None or ordered is None else max(0.0, met - ordered),
        failover_s=_failover_s(accepted, met),
        gap_s=_gap_s(accepted, raised, ordered),
        recovery_s=_recovery_s(accepted, lifted),
        drain_s=_drain_s(events, accepted, lifted),
        waiting=len(waiting),
        taken=len(missing) if others else 0,
        lost=None if _of(events, NotLooked) else () if others else tuple(missing),
        duplicates=_duplicates(_of(events, Seen)),
        at_home=len({(each.canary, each.sequence) for each in _of(events, Seen)}),
    )


def _first_to_meet(
    accepted: Sequence[CanaryAccepted], raised: Sequence[CanaryRaised], ordered: float | None
) -> float | None:
    """When the first send began that the primary did not take after the order to fail."""
    if ordered is None:
        return None
    sends: list[CanaryAccepted | CanaryRaised] = [*(each for each in accepted if each.place == "backlog"), *raised]
    starts = [each.started for each in sends if each.ended >= ordered]
    return min(starts, default=None)


def _failover_s(accepted: Sequence[CanaryAccepted], met: float | None) -> float | None:
    detours = [each.ended for each in accepted if each.place == "backlog"]
    return None if met is None or not detours else min(detours) - met


def _gap_s(accepted: Sequence[CanaryAccepted], raised: Sequence[CanaryRaised], ordered: float | None) -> float | None:
    if ordered is None or not accepted:
        return None
    ends = sorted(each.ended for each in accepted)
    before = [end for end in ends if end < ordered][-1:]  # the gap begins with what was accepted last
    last = max([ends[-1], *(each.ended for each in raised)])
    moments = [*(before or [ordered]), *(end for end in ends if end >= ordered), last]
    return max(later - earlier for earlier, later in pairwise(moments))


def _recovery_s(accepted: Sequence[CanaryAccepted], lifted: float | None) -> float | None:
    if lifted is None:
        return None
    returns = [each.ended for each in accepted if each.place == "primary" and each.ended >= lifted]
    return min(returns) - lifted if returns else None


def _drain_s(events: Sequence[Event], accepted: Sequence[CanaryAccepted], lifted: float | None) -> float | None:
    if lifted is None:
        return None
    home: dict[str, float] = {}
    arrivals: list[SentHome | Seen] = [*_of(events, SentHome), *_of(events, Seen)]
    for each in arrivals:
        home[each.canary] = min(each.at, home.get(each.canary, each.at))
    detours = [each.canary for each in accepted if each.place == "backlog"]
    if any(canary not in home for canary in detours):
        return None
    return max([0.0, *(home[canary] - lifted for canary in detours)])


def _whereabouts(events: Sequence[Event], accepted: Sequence[CanaryAccepted]) -> tuple[set[str], list[str]]:
    """Canaries that wait in the backlog, and those that were accepted and are nowhere to be seen."""
    waiting = {each.canary for each in _of(events, LeftBehind)}
    seen = {each.canary for each in _of(events, Seen)}
    return waiting, [each.canary for each in accepted if each.canary not in seen | waiting]


def _duplicates(seen: Sequence[Seen]) -> int:
    copies = Counter(canary for canary, _ in {(each.canary, each.sequence) for each in seen})
    return sum(count - 1 for count in copies.values())


def _of(events: Sequence[Event], kind: type[Kind]) -> list[Kind]:
    return [each for each in events if isinstance(each, kind)]


def _first(events: Sequence[Event], kind: type[FaultOrdered] | type[FaultLifted]) -> float | None:
    return min((each.at for each in _of(events, kind)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no matter how long, as long as it happens at all."""

    failover_s: float | None = None
    gap_s: float | None = None
    recovery_s: float | None = None
    drain_s: float | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure beside its limit."""

    name: str
    value: str
    limit: str
    """Empty: none was set."""
    is_kept: bool
    """Without a limit: whether it happened at all."""

    @property
    def word(self) -> str:
        """What is said of it: *kept* only where there was a limit to keep."""
        return ("kept" if self.limit else "") if self.is_kept else "MISSED"

    def as_dict(self) -> dict[str, Any]:
        kept = self.is_kept if self.limit else None
        return {"name": self.name, "value": self.value, "limit": self.limit, "kept": kept, "passed": self.is_kept}


def check_limits(measures: Measures, limits: Limits) -> tuple[Finding, ...]:
    """Every measure that can be missed, in the order in which things happen."""
    return (
        _timely("failover", measures.failover_s, limits.failover_s, "never: no send took the detour"),
        _timely("gap", measures.gap_s, limits.gap_s, "unknown: nothing was accepted"),
        _timely("recovery", measures.recovery_s, limits.recovery_s, "never: the primary took no send again"),
        _timely("drain", measures.drain_s, limits.drain_s, _not_drained(measures)),
        _losses(measures, limits.lost),
    )


def passes(findings: Sequence[Finding]) -> bool:
    return all(finding.is_kept for finding in findings)


def _timely(name: str, value_s: float | None, limit_s: float | None, never: str) -> Finding:
    limit = "" if limit_s is None else f"at most {limit_s:g} s"
    if value_s is None:
        return Finding(name, never, limit, is_kept=False)
    return Finding(name, measured_duration(value_s), limit, is_kept=limit_s is None or value_s <= limit_s)


def _not_drained(measures: Measures) -> str:
    return f"not done: {measures.waiting} still in the backlog" if measures.waiting else "not done: not all came home"


def _losses(measures: Measures, most: int) -> Finding:
    limit = f"at most {most}"
    if measures.lost is None:
        return Finding("lost", "unknown: nobody could look", limit, is_kept=False)
    return Finding("lost", str(len(measures.lost)), limit, is_kept=len(measures.lost) <= most)
