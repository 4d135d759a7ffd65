"""What a drill is asked to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twinbus.drill.measures import Limits
from twinbus.errors import OptionsError
from twinbus.units import exact_duration

FAULTS = {
    "no-send": "refuses sends",
    "unreachable": "cannot be reached",
    "unanswered": "stores what is sent and does not say so",
}
"""Those that make an application leave the primary, and what each means for the entity."""
HOWS = ("refuse", "drop", "silent")
TTL_MARGIN_S = 60.0
"""How much longer than the fault canaries live at least: they have to come home first."""

LONGER_S = 30.0
"""How much longer than the failover interval a fault lasts, unless told otherwise."""
FAILOVER_INTERVAL_S = PING_INTERVAL_S = 60.0
"""The defaults of a pairing."""

_TIMES_S = {
    "outage": (1.0, 3_600.0),
    "before": (0.5, 600.0),
    "ping_interval": (1.0, 1_800.0),
    "failover_interval": (0.0, 3_600.0),
    "timeout": (0.1, 120.0),
}
_OPTIONS = {"outage": "--length", "before": "--warm-up"}
_LIMITS_S = ("failover", "gap", "recovery", "drain")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """Checked once; all problems are told in one message, in the words of the command."""

    entity: str
    fault: str = "no-send"
    how: str | None = None
    """`unreachable`: in which way."""
    length_s: float | None = None
    """How long the fault lasts; None: 30 seconds longer than the failover interval."""
    before_s: float = 2.0
    """How long canaries are sent while all is well, to know what that looks like."""
    rate: float = 10.0
    """Canaries a second."""
    ttl_s: float | None = None
    """How long a canary lives; None: 10 minutes longer than the fault."""
    failover_interval_s: float = FAILOVER_INTERVAL_S
    """As in the application, which has the pairing's own default unless it says otherwise."""
    ping_interval_s: float = PING_INTERVAL_S
    attempts: int = 3
    timeout_s: float = 5.0
    """How long one attempt may take."""
    queue_count: int = 10
    primary_name: str | None = None
    creates: bool = True
    """Whether missing backlog queues are created, as pairing does."""
    by_status: bool = False
    """Fail by the entity's status, even where there is a control socket."""
    brings_home: bool = True
    """Whether the drill runs a syphon for the entity; otherwise one that runs elsewhere is measured."""
    leaves_canaries: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        OptionsError.raise_for(self._problems())

    @property
    def outage_s(self) -> float:
        return self.failover_interval_s + LONGER_S if self.length_s is None else self.length_s

    @property
    def canary_ttl_s(self) -> float:
        return self.outage_s + 600.0 if self.ttl_s is None else self.ttl_s

    def _problems(self) -> Iterator[str]:
        if not self.entity.strip("/ "):
            yield "--entity needs the name of a queue or topic"
        yield from self._fault_problems()
        for name, (low, high) in _TIMES_S.items():
            yield from _outside(name, getattr(self, f"{name}_s"), low, high)
        if not 0.1 <= self.rate <= 100:
            yield f"--rate must be from 0.1 to 100 canaries a second, got {self.rate:g}"
        if not 1 <= self.attempts <= 20:
            yield f"--attempts must be from 1 to 20, got {self.attempts}"
        yield from self._length_problems()
        for name in _LIMITS_S:
            if (getattr(self.limits, f"{name}_s") or 0) < 0:
                yield f"--max-{name} must not be negative"
        if self.limits.lost < 0:
            yield f"--max-lost must be 0 or more, got {self.limits.lost}"

    def _fault_problems(self) -> Iterator[str]:
        if self.fault not in FAULTS:
            yield f"--fault must be {', '.join(FAULTS)}, got {self.fault!r}"
        elif self.by_status and self.fault != "no-send":
            yield f"a status can only be no-send: leave --by-status or --fault {self.fault} out"
        if self.how is not None and (self.fault != "unreachable" or self.how not in HOWS):
            yield f"--how is for --fault unreachable: {', '.join(HOWS)}; got {self.how!r} for {self.fault}"

    def _length_problems(self) -> Iterator[str]:
        """Drills that could only fail, or lose canaries by themselves."""
        if self.failover_interval_s >= self.outage_s:
            yield (
                f"a fault of {exact_duration(self.outage_s)} is over before the failover interval of "
                f"{exact_duration(self.failover_interval_s)}: make --length longer or --failover-interval shorter"
            )
        if self.canary_ttl_s < self.outage_s + TTL_MARGIN_S:
            yield (
                f"canaries that live {exact_duration(self.canary_ttl_s)} could expire before they are home: "
                f"--ttl must be at least {exact_duration(self.outage_s + TTL_MARGIN_S)}"
            )


def _outside(name: str, value_s: float, low_s: float, high_s: float) -> Iterator[str]:
    if not low_s <= value_s <= high_s:
        option = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
        low, high, got = map(exact_duration, (low_s, high_s, value_s))
        yield f"{option} must be from {low} to {high}, got {got}"
