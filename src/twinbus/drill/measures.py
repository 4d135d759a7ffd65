"""What a drill comes to: events in, numbers out. No clock and no I/O: times are seconds of one clock, in the events.

A number that cannot be known is None, never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

Place: TypeAlias = Literal["primary", "backlog"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A canary was stored on one side."""

    canary: str
    started: float
    ended: float
    place: Place


@dataclass(frozen=True, slots=True)
class Raised:
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
    Accepted | Raised | FaultOrdered | FaultLifted | SentHome | Seen | LeftBehind | OthersReceive | NotLooked
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
    story = list(events)
    accepted, raised = _of(story, Accepted), _of(story, Raised)
    ordered, lifted = _first(story, FaultOrdered), _first(story, FaultLifted)
    met = _first_to_meet(accepted, raised, ordered)
    waiting, missing = _whereabouts(story, accepted)
    others = bool(_of(story, OthersReceive))
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
        drain_s=_drain_s(story, accepted, lifted),
        waiting=len(waiting),
        taken=len(missing) if others else 0,
        lost=None if _of(story, NotLooked) else () if others else tuple(missing),
        duplicates=_duplicates(_of(story, Seen)),
        at_home=len({(each.canary, each.sequence) for each in _of(story, Seen)}),
    )


def _first_to_meet(accepted: Sequence[Accepted], raised: Sequence[Raised], ordered: float | None) -> float | None:
    """When the first send began that the primary did not take after the order to fail."""
    if ordered is None:
        return None
    sends: list[Accepted | Raised] = [*(each for each in accepted if each.place == "backlog"), *raised]
    starts = [each.started for each in sends if each.ended >= ordered]
    return min(starts, default=None)


def _failover_s(accepted: Sequence[Accepted], met: float | None) -> float | None:
    detours = [each.ended for each in accepted if each.place == "backlog"]
    return None if met is None or not detours else min(detours) - met


def _gap_s(accepted: Sequence[Accepted], raised: Sequence[Raised], ordered: float | None) -> float | None:
    if ordered is None or not accepted:
        return None
    ends = sorted(each.ended for each in accepted)
    before = [end for end in ends if end < ordered][-1:]  # the gap begins with what was accepted last
    last = max([ends[-1], *(each.ended for each in raised)])
    moments = [*(before or [ordered]), *(end for end in ends if end >= ordered), last]
    return max(later - earlier for earlier, later in pairwise(moments))


def _recovery_s(accepted: Sequence[Accepted], lifted: float | None) -> float | None:
    if lifted is None:
        return None
    returns = [each.ended for each in accepted if each.place == "primary" and each.ended >= lifted]
    return min(returns) - lifted if returns else None


def _drain_s(story: Sequence[Event], accepted: Sequence[Accepted], lifted: float | None) -> float | None:
    if lifted is None:
        return None
    home: dict[str, float] = {}
    arrivals: list[SentHome | Seen] = [*_of(story, SentHome), *_of(story, Seen)]
    for each in arrivals:
        home[each.canary] = min(each.at, home.get(each.canary, each.at))
    detours = [each.canary for each in accepted if each.place == "backlog"]
    if any(canary not in home for canary in detours):
        return None
    return max([0.0, *(home[canary] - lifted for canary in detours)])


def _whereabouts(story: Sequence[Event], accepted: Sequence[Accepted]) -> tuple[set[str], list[str]]:
    """Canaries that wait in the backlog, and those that were accepted and are nowhere to be seen."""
    waiting = {each.canary for each in _of(story, LeftBehind)}
    seen = {each.canary for each in _of(story, Seen)}
    return waiting, [each.canary for each in accepted if each.canary not in seen | waiting]


def _duplicates(seen: Sequence[Seen]) -> int:
    copies = Counter(canary for canary, _ in {(each.canary, each.sequence) for each in seen})
    return sum(count - 1 for count in copies.values())


def _of(story: Sequence[Event], kind: type[Kind]) -> list[Kind]:
    return [each for each in story if isinstance(each, kind)]


def _first(story: Sequence[Event], kind: type[FaultOrdered] | type[FaultLifted]) -> float | None:
    return min((each.at for each in _of(story, kind)), default=None)
