"""The output of `twinbus status`: as text, as JSON, and on a screen with `--watch`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from twinbus.cli.output import json_text, say, table
from twinbus.cli.status.proxy_view import look_at_proxies, proxies_table
from twinbus.cli.status.status import exit_code
from twinbus.client.inspection.freshness import FRESH_S
from twinbus.client.inspection.health import ABILITIES, EVERYTHING, Check, Judgement, entity_health, judge
from twinbus.plain_text import harmless, on_one_line
from twinbus.units import clock_time, rough_duration, size_text

if TYPE_CHECKING:
    from twinbus.cli.status.fleet_view import FleetView
    from twinbus.cli.status.spool_view import SpoolView
    from twinbus.client.inspection.reports import AbilityReport, EntityReport, Inspection, QueueReport, SideReport
    from twinbus.syphon.peeking.dry_run import DryRun

UNKNOWN, EMPTY = "?", "-"
SESSIONS_SHOWN = 20
EXTRA = "beyond --queues"
SHUT = "not emptied"
WORKS = {True: "yes", False: "no", None: UNKNOWN}
SYPHON_WORDS = {True: "seen", False: "no syphon seen: the oldest message lies untouched", None: "unknown"}


@dataclass(slots=True)
class EarlierLooks:
    """What earlier looks have found, for what the present one could not find out."""

    backlog: Inspection | None = None
    """The last look that could read a backlog queue."""
    abilities: dict[tuple[str, Check], tuple[bool, float]] = field(default_factory=dict)
    """What was last known of an entity, and when."""

    def note(self, seen: Inspection) -> None:
        if seen.waiting_at_least is not None:
            self.backlog = seen
        for entity in seen.entities:
            for check in ABILITIES:
                works = _ability(entity, check).works
                if works is not None:
                    self.abilities[entity.entity, check] = works, seen.at


NOTHING_KNOWN = EarlierLooks()


def as_dict(
    seen: Inspection, judgement: Judgement, checks: frozenset[Check], memory: EarlierLooks = NOTHING_KNOWN
) -> dict[str, Any]:
    """The same facts as the text."""
    facts = seen.as_dict()
    verdicts = [entity_health(entity, checks).value for entity in seen.entities]
    facts["entities"] = [each | {"verdict": word} for each, word in zip(facts["entities"], verdicts, strict=True)]
    before = _last_known_backlog(seen, memory)
    return {
        "verdict": judgement.health.value,
        "exit_code": int(exit_code(judgement.health)),
        "text": judgement.text,
        "reasons": list(judgement.reasons),
        "unknown": list(judgement.unknown),
        "checked": [check.value for check in Check if check in checks],
        **facts,
        "last_known_backlog": None if before is None else before.as_dict() | {"age_s": seen.at - before.at},
    }


def verdict_line(judgement: Judgement) -> str:
    return on_one_line(f"{judgement.health.value}: {judgement.text}")


def report(
    seen: Inspection,
    judgement: Judgement,
    checks: frozenset[Check] = EVERYTHING,
    memory: EarlierLooks = NOTHING_KNOWN,
    *,
    show_all: bool = False,
) -> str:
    """The whole look as text, the verdict first."""
    parts = [
        verdict_line(judgement),
        "",
        f"primary    {_side(seen.primary)}",
        f"secondary  {_side(seen.secondary)}",
        *_entities(seen, checks, memory),
        *_backlog(seen, memory, show_all=show_all),
    ]
    if judgement.reasons:
        parts += [harmless(f"unknown    {text}") for text in judgement.unknown]
    return "\n".join([harmless(part, "\n") for part in parts])


def sessions_table(found: DryRun) -> str:
    """The sessions with messages in the backlog; ordered sends to them go there until it is empty."""
    rows = [
        (entity, messages, repr(session) if session else "(no session)")
        for entity, session, messages in found.largest_sessions(SESSIONS_SHOWN)
    ]
    doubt = "".join([f"\n{harmless(doubt)}" for doubt in found.doubts])
    if not rows:
        return f"nothing lies in the backlog that would go home{doubt}"
    more = found.session_count - len(rows)
    shown = table([("entity", "messages", "session"), *rows])
    return shown + (f"\nand {more:,} more, each with no more messages than these" if more > 0 else "") + doubt


def _side(side: SideReport) -> str:
    word = "refuses the key" if side.refuses_key else "answers" if side.is_reachable else "does not answer"
    return harmless(f"{side.name} ({side.address}) {word}" + (f": {side.problem}" if side.problem else ""))


# --- entities ---


def _entities(seen: Inspection, checks: frozenset[Check], memory: EarlierLooks) -> Iterator[str]:
    abilities = [check for check in ABILITIES if check in checks]
    if not abilities:
        return
    if seen.entities:
        heads = ("entity", "verdict", *[check.value for check in abilities], "in backlog")
        rows = [
            (
                on_one_line(entity.entity),
                entity_health(entity, checks).value,
                *[_works(entity, check, seen.at, memory) for check in abilities],
                _waiting(entity.waiting, entity.waiting_at_least),
            )
            for entity in seen.entities
        ]
        yield from ("", table([heads, *rows]))


def _ability(entity: EntityReport, check: Check) -> AbilityReport:
    return {Check.SENDING: entity.sending, Check.RECEIVING: entity.receiving}.get(check, entity.managing)


def _works(entity: EntityReport, check: Check, now: float, memory: EarlierLooks) -> str:
    works = _ability(entity, check).works
    before = memory.abilities.get((entity.entity, check))
    if works is None and before is not None:
        return f"{UNKNOWN} ({WORKS[before[0]]} {rough_duration(now - before[1])} ago)"
    return WORKS[works]


# --- the backlog ---


def _last_known_backlog(seen: Inspection, memory: EarlierLooks) -> Inspection | None:
    """An earlier look into the backlog, if this one could not look."""
    return memory.backlog if seen.waiting_at_least is None else None


def _backlog(seen: Inspection, memory: EarlierLooks, *, show_all: bool) -> Iterator[str]:
    before = _last_known_backlog(seen, memory)
    shown = seen if before is None else before
    rows = [*map(_row, shown.queues), *map(_extra_row, shown.extra)]
    queues = (*shown.queues, *shown.extra)
    kept = [row for row, queue in zip(rows, queues, strict=True) if show_all or not _is_dull(queue)]
    yield ""
    if before is not None:
        yield f"the backlog cannot be looked into now; as of {rough_duration(seen.at - before.at)} ago it was:"
    if kept:
        heads = ("backlog queue", "messages", "quarantine", "size", "oldest", "state")
        yield from (table([heads, *kept]), "")
    yield from _summary(shown)
    if len(rows) > len(kept):
        yield f"queues     {len(rows) - len(kept)} backlog queues work and are empty (--all shows them)"
    yield from [harmless(f"{queue.path}: {what}") for queue in shown.queues for what in queue.differs]
    yield from [harmless(f"{queue.path} cannot be emptied: {queue.shut}") for queue in shown.shut]
    if any(queue.active or queue.at_least for queue in shown.extra):
        yield f"{EXTRA}: a sender elsewhere has more backlog queues; what lies there comes home too"
    if shown.doubt:
        yield harmless(shown.doubt)
    if shown.unlisted and shown.secondary.is_reachable:
        yield harmless(f"settings and sizes are unknown: {shown.unlisted}")


def _is_dull(queue: QueueReport) -> bool:
    """Whether it is known to be empty, and nothing about it is worth a line."""
    is_empty = queue.active == 0 and not queue.dead_letters_at_least
    return is_empty and queue.problem is None and queue.shut is None and not queue.differs


def _row(queue: QueueReport) -> tuple[object, ...]:
    state = ("readable" if queue.takes_messages is None else "open") if queue.problem is None else queue.problem
    state = state if queue.shut is None or queue.problem is not None else SHUT
    return (
        queue.path,
        _waiting(queue.active, queue.at_least),
        _waiting(queue.dead_letters, queue.dead_letters_at_least),
        size_text(queue.size_bytes),
        EMPTY if queue.active == 0 and queue.oldest_age_s is None else _age(queue.oldest_age_s),
        state.partition(":")[0],
    )


def _extra_row(queue: QueueReport) -> tuple[object, ...]:
    *known, state = _row(queue)
    return (*known, EXTRA if queue.problem is None and queue.shut is None else state)


def _summary(seen: Inspection) -> list[str]:
    oldest = "" if seen.waiting_messages == 0 else f", the oldest for {_age(seen.oldest_age_s)}"
    waiting = _waiting(seen.waiting_messages, seen.waiting_at_least)
    return [
        f"waiting    {waiting} messages, {size_text(seen.size_bytes)}{oldest}",
        f"room       {_room(seen.capacity_hours)}",
        f"syphon     {SYPHON_WORDS[seen.syphon_seen]}",
    ]


def _room(hours: float | None) -> str:
    if hours is None:
        return "capacity unknown: add --again-after 10s (needs Manage)"
    return "the backlog is not growing" if hours == float("inf") else f"for {rough_duration(hours * 3600)} at this rate"


def _age(age_s: float | None) -> str:
    return UNKNOWN if age_s is None else rough_duration(age_s)


def _waiting(exactly: int | None, at_least: int | None) -> str:
    """`12`, `1,000+`, or unknown."""
    if exactly is None:
        return f"{at_least:,}+" if at_least else UNKNOWN
    return f"{exactly:,}"


def render(
    seen: Inspection,
    checks: frozenset[Check],
    views: tuple[SpoolView, FleetView],
    memory: EarlierLooks = NOTHING_KNOWN,
    found: DryRun | None = None,
    *,
    as_json: bool,
    show_all: bool,
) -> tuple[Judgement, str]:
    """The verdict, with what spools and the fleet add to it, and all of the output."""
    spools, fleet = views
    spools.look()
    judgement = fleet.judge(spools.judge(judge(seen, checks), checks), checks)
    proxies = look_at_proxies()
    if as_json:
        more: dict[str, object] = {
            "fleet": fleet.as_dict(),
            "proxies": [each.as_dict() for each in proxies],
            "spool": spools.as_dict(),
        }
        more |= {} if found is None else {"backlog": found.as_dict()}
        return judgement, json_text(as_dict(seen, judgement, checks, memory) | more)
    parts = [report(seen, judgement, checks, memory, show_all=show_all), fleet.text(), spools.text()]
    parts += [] if found is None else [sessions_table(found)]
    parts += [proxies_table(proxies)] if proxies else []
    return judgement, "\n\n".join(filter(None, parts))


class StatusScreen:
    """On a terminal the screen is drawn anew with each look; in a pipe every look is printed, as JSON one a line."""

    def __init__(
        self, checks: frozenset[Check], views: tuple[SpoolView, FleetView], *, as_json: bool, show_all: bool
    ) -> None:
        self._spools, self._fleet = views
        self._checks, self._as_json, self._show_all = checks, as_json, show_all
        self._memory = EarlierLooks()
        self._live: Live | None = None
        if sys.stdout.isatty() and not as_json:
            console = Console(highlight=False)
            self._live = Live(
                Text("looking at both ..."), console=console, screen=True, auto_refresh=False, vertical_overflow="crop"
            )
        self.last: Judgement | None = None
        """The last verdict."""
        self._old_soon: threading.Timer | None = None

    def __enter__(self) -> StatusScreen:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        """The screen is as it was before, with the last verdict on it."""
        self._is_replaced()
        if self._live is not None:
            self._live.stop()
            if self.last is not None:
                say(verdict_line(self.last))

    def show(self, seen: Inspection) -> None:
        if Check.FLEET in self._checks:
            self._fleet.look()
        views = self._spools, self._fleet
        self.last, text = render(
            seen, self._checks, views, self._memory, as_json=self._as_json, show_all=self._show_all
        )
        if not self._as_json:
            text += f"\n\nlooked at {clock_time(datetime.fromtimestamp(seen.at, UTC))} UTC; Ctrl-C ends\n"
        self._memory.note(seen)
        if self._live is None:
            say(text)
            sys.stdout.flush()
        else:
            first, _, rest = text.partition("\n")  # the verdict is shown whole, tables line by line
            tables = Text(rest, no_wrap=True, overflow="ellipsis")
            self._is_replaced()
            self._live.update(Group(Text(first, style="bold"), tables), refresh=True)
            self._old_soon = threading.Timer(max(0.0, seen.at + FRESH_S - time()), self._mark, (first, tables))
            self._old_soon.daemon = True
            self._old_soon.start()

    def _mark(self, first: str, tables: Text) -> None:
        """The next look takes so long that nobody knows what is so by now."""
        if self._live is not None:
            stale = f"unknown: the last look is more than {FRESH_S:.0f} s old. It said {first}"
            self._live.update(Group(Text(stale, style="bold"), tables), refresh=True)

    def _is_replaced(self) -> None:
        if self._old_soon is not None:
            self._old_soon.cancel()
            self._old_soon.join()
