"""The syphons that run on this machine, seen and steered from outside: pause, resume, another pace.

    for syphon in running_syphons():
        print(syphon.id, syphon.facts)
        set_pace(syphon, PaceChange(rate=500))

Each running syphon has a control socket (`control_socket.py`) and an entry in the local register: that of a command, of
a client, of a proxy, of a spool, and the driver of a drain. Only processes of the same user on the same machine can be
asked; every function waits for the answer, so call them from a thread where an event loop runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from twinbus.control.control_client import ask
from twinbus.control.local_register import Registered, registered
from twinbus.errors import OptionsError, TwinbusError
from twinbus.syphon.pump.pace import KEEP, Keep, PaceChange

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KEEP", "PaceChange", "RunningSyphon", "SyphonFacts", "pause", "resume", "running_syphons", "set_pace"]

SYPHON = "syphon"
"""Kind of process in the register."""
ANSWER_S = 2.0
SHOWN_MAX = 100
"""Entities and troubles in an answer: anybody can invent any number of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonFacts:
    """What a running syphon says of itself; a drain knows most of it only of the tasks that have ended."""

    role: str
    """`command`, `client`, `spool` or `drain`; the syphon of a proxy is that of its client."""
    primary: str
    secondary: str
    state: str
    """`running`, `paused`, `paused after the canary` or `stopped`."""
    is_paused: bool
    seconds: float
    """Since it was started."""
    moved: int
    moved_bytes: int
    rate: float
    """Messages a second, over the last ten seconds."""
    rate_limit: float | None
    """At most this many a second; None: no limit."""
    first_left: int | None
    """How many are moved until it pauses; None: it does not."""
    entities: tuple[str, ...] | None
    """Only messages for these, the first hundred of them; None: for all."""
    waiting: int | None
    """About how many are still to come home; None: not counted."""
    seconds_left: float | None
    """What that takes at the present rate; None: unknown, or nothing moves at the moment."""
    oldest_age_s: float | None
    """How long the oldest message that is known has waited."""
    held: int
    refused: int
    expired: int
    repeated: int
    in_doubt: int
    outside: int
    """For entities that are not listed: they stay."""
    processes: int = 1
    """How many processes, or tasks of a drain, share the work."""
    destinations_down: tuple[str, ...] = ()
    """Entities that cannot be sent to, and why; the first hundred."""
    troubles: tuple[str, ...] = ()
    """Backlog queues that cannot be read, and why; the first hundred."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunningSyphon:
    """A syphon of this machine."""

    id: str
    """Its process, and which of the syphons of that process it is, e.g. `4711-1`."""
    primary: str
    pid: int
    path: Path
    """Its control socket."""
    facts: SyphonFacts | None
    """None: it did not answer."""
    problem: str = ""
    """Why not."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        facts = {} if self.facts is None else self.facts.as_dict()
        problem = {"problem": self.problem} if self.problem else {}
        return {"id": self.id, "pid": self.pid, "primary": self.primary} | facts | problem


def running_syphons(primary: str | None = None, *, wait_s: float = ANSWER_S) -> list[RunningSyphon]:
    """The running ones of this user on this machine, by primary; only those of `primary` if it is given."""
    found = [each for each in registered(SYPHON) if primary is None or each.name.casefold() == primary.casefold()]
    return [_asked(each, wait_s) for each in found]


def choose(syphons: Iterable[RunningSyphon], names: Iterable[str]) -> list[RunningSyphon]:
    """Those with these ids, processes or primaries. Raises `OptionsError` if there is none of one name."""
    there = list(syphons)
    chosen: dict[str, RunningSyphon] = {}
    for name in names:
        wanted = name.casefold()
        matching = {each.id: each for each in there if wanted in (each.id, str(each.pid), each.primary.casefold())}
        if not matching:
            known = ", ".join(each.id for each in there) or "none is running"
            raise OptionsError(f"no syphon is called {name!r:.40}: {known}")
        chosen |= matching
    return list(chosen.values())


def pause(syphon: RunningSyphon, *, wait_s: float = ANSWER_S) -> SyphonFacts:
    """Stop sending, and give back what is held; how it is then. Raises `TwinbusError` if it does not answer."""
    return _facts(ask(syphon.path, "pause", wait_s=wait_s))


def resume(syphon: RunningSyphon, *, wait_s: float = ANSWER_S) -> SyphonFacts:
    """Go on; how it is then. Raises as `pause` does."""
    return _facts(ask(syphon.path, "resume", wait_s=wait_s))


def set_pace(syphon: RunningSyphon, change: PaceChange, *, wait_s: float = ANSWER_S) -> SyphonFacts:
    """Change the pace of a running or paused syphon; how it is then. Raises as `pause` does."""
    return _facts(ask(syphon.path, "pace", arguments_of(change), wait_s=wait_s))


def arguments_of(change: PaceChange) -> dict[str, Any]:
    """The change as plain values: without what stays as it is."""
    values: dict[str, Any] = {"rate": change.rate, "first": change.first, "entities": change.entities}
    if isinstance(change.entities, frozenset):
        values["entities"] = sorted(change.entities)
    return {name: value for name, value in values.items() if not isinstance(value, Keep)}


def _asked(found: Registered, wait_s: float) -> RunningSyphon:
    name = f"{found.pid}-{found.number}"
    try:
        facts = _facts(ask(found.path, "status", wait_s=wait_s))
    except TwinbusError as error:
        return RunningSyphon(name, found.name, found.pid, found.path, None, str(error))
    return RunningSyphon(name, found.name, found.pid, found.path, facts)


_NAMES = tuple(each.name for each in fields(SyphonFacts))
_LISTS = ("entities", "destinations_down", "troubles")


def _facts(answer: object) -> SyphonFacts:
    """Raises `TwinbusError` for an answer that no syphon gives; what a newer one adds is left out."""
    if not isinstance(answer, Mapping):
        raise TwinbusError("an answer that makes no sense")
    values = {name: answer[name] for name in _NAMES if name in answer}
    values |= {name: tuple(values[name]) for name in _LISTS if isinstance(values.get(name), list)}
    try:
        return SyphonFacts(**values)
    except TypeError:
        raise TwinbusError("what answers is a syphon of another version") from None
