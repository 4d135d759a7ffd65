"""The page docs/reference/failover.md, drawn from the code; `make pages` writes it.

Nothing about transitions is written down here: `step` is asked for every pair of state and event, under every
circumstance that could matter. A test fails when the page on disk is not what this module would write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import getdoc
from itertools import product
from pathlib import Path
from typing import NamedTuple

from twinbus.pairing import effects, events
from twinbus.pairing.effects import Effect, ReportEvent
from twinbus.pairing.entity import name_of
from twinbus.pairing.events import Event, FailoverForced
from twinbus.pairing.failover import FailedOver, Healthy, State, Suspect, step
from twinbus.pairing.ping_schedule import JITTER
from twinbus.pairing.rules import Rules

PAGE = "failover.md"
DONE_BY = "<!-- Made from the code by `make pages`; do not edit. -->"
INTRODUCTION = """
What the client decides for one queue or topic, and what it orders to be done. [The idea behind
it](../concepts/failover.md) is told elsewhere; this page is drawn by asking the code for every pair of state and event.
"""
TRANSITIONS_TEXT = """
Pairs that are not listed change nothing, and neither does an event of another epoch: the outcome of an attempt that
began before the last change comes too late. *Reported* are the events that `bus.on` and the log get
([events](events.md)).
"""

SINCE, INTERVAL_S, PING_S = 100.0, 60.0, 30.0
STATES: Sequence[State] = (
    Healthy(0),
    Suspect(0, SINCE, "refused"),
    FailedOver(1, SINCE, "refused"),
    FailedOver(1, SINCE, "refused", pings_good=1),
    FailedOver(1, SINCE, "refused", pings_good=1, is_tried=True),
    FailedOver(1, SINCE, "refused", stays=True),
)
READY = "Links to the primary open: the next message tries it."
TRIED = "One message tries the primary meanwhile."
STAYS = "Only a person brings it back."


class Circumstances(NamedTuple):
    """What a decision may depend on beside state and event, in words."""

    interval: str
    time: str
    pings: str
    order: str


INTERVALS = ("with a failover interval", "without a failover interval")
TIMES = ("the interval has passed", "too early")
PINGS = ("no other ping is needed", "more pings are needed")
ORDERS = ("in the default order", 'with order="session"')
ALL = tuple(Circumstances(*each) for each in product(INTERVALS, TIMES, PINGS, ORDERS))

Maker = Callable[[float, int], Event]
EVENTS: Mapping[str, Maker] = {
    "SendSucceeded": events.SendSucceeded,
    "SendFailed": lambda at, epoch: events.SendFailed(at, epoch, "refused"),
    "TooManyFailed": lambda at, epoch: events.TooManyFailed(at, epoch, "refused"),
    "TimeCame": events.TimeCame,
    "PingSucceeded": events.PingSucceeded,
    "PingFailed": lambda at, epoch: events.PingFailed(at, epoch, "refused"),
    "LinkOpened": events.LinkOpened,
    "TrialBegan": events.TrialBegan,
    "TrialProvedNothing": events.TrialProvedNothing,
    "OthersFailedOver": lambda at, epoch: events.OthersFailedOver(at, epoch, ("a", "b")),
    "FailoverForced": lambda at, epoch: FailoverForced(at, epoch, "forced"),
    "FailoverForced, to stay": lambda at, epoch: FailoverForced(at, epoch, "forced", stays=True),
    "MarkedHealthy": events.MarkedHealthy,
}


class Outcome(NamedTuple):
    after: str
    is_new_epoch: bool
    orders: tuple[str, ...]
    reported: tuple[str, ...]


class Transition(NamedTuple):
    before: str
    event: str
    when: str
    """The circumstance on which it depends; empty if it does not."""
    outcome: Outcome


# --- asking ---


def transitions() -> Iterator[Transition]:
    """Everything that changes a state or orders something."""
    for state, (event, make) in product(STATES, EVENTS.items()):
        answers = {each: _ask(state, make, each) for each in ALL if _is_possible(state, each)}
        for when, outcome in _by_what_matters(answers).items():
            if outcome is not None:
                yield Transition(shown(state), event, when, outcome)


def shown(state: State) -> str:
    return name_of(state) + (f", {_part(state)}" if _part(state) else "")


def _part(state: State) -> str:
    """What is to be said of an entity that is failed over beside that."""
    if not isinstance(state, FailedOver):
        return ""
    return "stays" if state.stays else "tried" if state.is_tried else "ready" if state.is_ready else ""


def _is_possible(state: State, each: Circumstances) -> bool:
    return each.interval == INTERVALS[0] or not isinstance(state, Suspect)


def _ask(state: State, make: Maker, each: Circumstances) -> Outcome | None:
    """What `step` answers; None if nothing comes of it."""
    needed = 1 + PINGS.index(each.pings)
    if isinstance(state, FailedOver):
        state = replace(state, pings_needed=needed, pings_good=needed if state.pings_good else 0)
    interval_s = INTERVAL_S if each.interval == INTERVALS[0] else 0.0
    rules = Rules(
        failover_interval_s=interval_s,
        ping_interval_s=PING_S,
        pings_to_return=needed,
        keeps_order=each.order == ORDERS[1],
    )
    at = SINCE + (interval_s if each.time == TIMES[0] else interval_s / 2)
    after, ordered = step(state, make(at, state.epoch), rules)
    outcome = Outcome(shown(after), after.epoch > state.epoch, *_told_apart(ordered))
    return outcome if outcome.after != shown(state) or ordered else None


def _told_apart(ordered: Iterable[Effect]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    orders = [type(effect).__name__ for effect in ordered if not isinstance(effect, ReportEvent)]
    return tuple(orders), tuple(effect.name for effect in ordered if isinstance(effect, ReportEvent))


def _by_what_matters(answers: Mapping[Circumstances, Outcome | None]) -> Mapping[str, Outcome | None]:
    """The different outcomes, each by the one circumstance that makes the difference."""
    if len(outcomes := set(answers.values())) == 1:
        return {"": outcomes.pop()}
    for part in range(len(Circumstances._fields)):
        found = list(dict.fromkeys((each[part], outcome) for each, outcome in answers.items()))
        if len(found) == len(dict(found)):
            return dict(found)
    raise AssertionError("more than one circumstance matters: the page has no words for that")


# --- drawing ---


def diagram(found: Sequence[Transition]) -> list[str]:
    """A Mermaid state diagram: one arrow for each pair of states, with everything that leads along it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for each in found:
        label = f"{each.event} ({each.when})" if each.when else each.event
        arrows.setdefault((each.before, each.outcome.after), []).append(label)
    return [
        "stateDiagram-v2",
        *(f'    state "{shown(state)}" as {_name(shown(state))}' for state in STATES),
        f"    [*] --> {_name(shown(STATES[0]))}",
        *(f"    {_name(a)} --> {_name(b)}: {'<br>'.join(labels)}" for (a, b), labels in arrows.items()),
    ]


def _name(state: str) -> str:
    return state.replace(", ", "_").replace(" ", "_")


def page() -> str:
    found = list(transitions())
    lines = [
        "# The failover decision",
        "",
        DONE_BY,
        INTRODUCTION,
        "```mermaid",
        *diagram(found),
        "```",
        "",
        "## States",
        "",
        *_table(("state", ""), [(shown(state), _words(type(state), state)) for state in STATES]),
        "",
        "## Transitions",
        TRANSITIONS_TEXT,
        *_table(("state", "event", "if", "next state", "epoch", "orders", "reported"), map(_row, found)),
        "",
        "## Events",
        "",
        *_table(("event", ""), [(f"`{name}`", _words(getattr(events, name))) for name in _kinds(EVENTS)]),
        "",
        "## Orders",
        "",
        *_table(("order", ""), [(f"`{name}`", _words(getattr(effects, name))) for name in _ordered(found)]),
        "",
        f"A ping is ordered for one ping interval later, give or take {JITTER:.0%}.",
    ]
    return "\n".join(lines) + "\n"


def _row(each: Transition) -> Sequence[str]:
    after = each.outcome
    orders, reported = (", ".join(f"`{name}`" for name in names) for names in (after.orders, after.reported))
    name, _, stay = each.event.partition(",")
    return (each.before, f"`{name}`{stay}", each.when, after.after, "a new one" * after.is_new_epoch, orders, reported)


def _kinds(names: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(name.partition(",")[0] for name in names)


def _ordered(found: Iterable[Transition]) -> Sequence[str]:
    return sorted({order for each in found for order in each.outcome.orders})


def _words(described: type, state: State | None = None) -> str:
    words = " ".join((getdoc(described) or "").split())
    more = {"stays": STAYS, "tried": TRIED, "ready": READY}.get("" if state is None else _part(state))
    return f"{words} {more}" if more else words


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]


def write(folder: Path) -> Path | None:
    """The page, if it was not as it should be; now it is."""
    path = folder / PAGE
    if path.exists() and path.read_text(encoding="utf-8") == page():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(page(), encoding="utf-8")
    return path


if __name__ == "__main__":
    written = write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
    if written is not None:
        sys.stdout.write(f"{written}\n")
