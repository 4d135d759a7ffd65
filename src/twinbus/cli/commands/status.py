"""`twinbus status`: how a pair is doing, seen from outside."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.namespaces import (
    AsJson,
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    check_count,
    name_of,
    seconds,
)
from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.client.reports import Inspection, QueueReport, SideReport
    from twinbus.syphon.survey import Survey

UNKNOWN, EMPTY = "?", "-"
SESSIONS_SHOWN = 20
LOOK_EVERY_S = 0.2
EXTRA = "beyond --count"
SHUT = "not emptied"
SYPHON_WORDS = {True: "seen", False: "no syphon seen: the oldest message lies untouched", None: "cannot be told"}
_UNITS = ("B", "KB", "MB", "GB", "TB")


def status(
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    timeout: Timeout = "5s",
    again_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look twice, with so much time between, and tell growth by the difference."),
    ] = None,
    sessions: Annotated[
        bool,
        typer.Option(
            "--sessions",
            help="Also tell, by peeking through the backlog, what lies there for which entity and session.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show whether both namespaces answer, and what lies in the backlog.

    Nothing is changed and no message is taken; everything is as of now. Settings, sizes and dead letters need Manage on
    the secondary. How many messages wait, and since when, needs Listen: without Manage they are counted by peeking, up
    to 1000 a queue, and "1,000+" says that there are more. What may not be read is shown as "?" (null in JSON). Exit
    code 1 if one of the two does not answer, a backlog queue can be neither sent to nor read, or no syphon can empty
    one: it demands sessions, forwards, or is disabled.

    \b
    Examples:
      twinbus status
      twinbus status --again-after 10s
      twinbus status --sessions
      twinbus status --json
    """
    from twinbus.client.inspection import inspect

    check_count(count)
    attempt_s = seconds("--timeout", timeout)
    wait_s = None if again_after is None else seconds("--again-after", again_after)
    here, there = both(primary, secondary, config, credential)
    with Bar("looking at both") as bar:
        seen = inspect(here, there, count, primary_name=primary_name, attempt_s=attempt_s)
        if wait_s is not None:
            _wait(wait_s, bar)
            seen = inspect(here, there, count, primary_name=primary_name, attempt_s=attempt_s, earlier=seen)
    can_look = sessions and seen.secondary.is_reachable
    found = _look_through(here, there, count, primary_name, attempt_s) if can_look else None
    if as_json:
        typer.echo(json.dumps(seen.as_dict() | ({} if found is None else {"backlog": found.as_dict()})))
    else:
        typer.echo("\n\n".join([report(seen), *([] if found is None else [sessions_table(found)])]))
    if not seen.is_well:
        raise TwinbusError(_trouble(seen))


def _wait(length_s: float, bar: Bar) -> None:
    """Between two looks; the bar shows how long it still takes."""
    bar.what, began = "waiting for the second look", time.monotonic()
    while (left := began + length_s - time.monotonic()) > 0:
        bar.done, bar.total = max(1, round(length_s - left)), round(length_s)
        time.sleep(min(LOOK_EVERY_S, left))
    bar.what, bar.done, bar.total = "looking again", 0, None


def _look_through(here: Namespace, there: Namespace, count: int, primary_name: str | None, attempt_s: float) -> Survey:
    from twinbus.cli.ends import Ends, look_through
    from twinbus.cli.gauges import Names
    from twinbus.syphon import SyphonOptions

    names = Names(name_of(here, primary_name), there.name or there.address)
    ends = Ends(here.dial(attempt_s), there.dial(attempt_s), names, count)
    return asyncio.run(look_through(ends, SyphonOptions(attempt_s=attempt_s)))


def sessions_table(found: Survey) -> str:
    """Who sends with order has these go on into the backlog until they are home."""
    from twinbus.cli import draw

    rows = [
        (entity, messages, repr(session) if session else "(no session)")
        for entity, session, messages in found.largest_sessions(SESSIONS_SHOWN)
    ]
    doubt = "".join([f"\n{doubt}" for doubt in found.doubts])
    if not rows:
        return f"nothing lies in the backlog that would go home{doubt}"
    more = found.session_count - len(rows)
    table = draw.table([("entity", "messages", "session"), *rows])
    return table + (f"\nand {more:,} more, each with no more messages than these" if more > 0 else "") + doubt


def report(seen: Inspection) -> str:
    """The whole look as text."""
    from twinbus.cli import draw

    heads = ("backlog queue", "messages", "dead letters", "size", "oldest", "state")
    parts = [
        f"primary    {_side(seen.primary)}",
        f"secondary  {_side(seen.secondary)}",
        "",
        draw.table([heads, *map(_row, seen.queues), *map(_extra_row, seen.extra)]),
        "",
        *_summary(seen),
        *(f"{queue.path}: {what}" for queue in seen.queues for what in queue.differs),
    ]
    parts += [f"{queue.path} cannot be emptied: {queue.shut}" for queue in seen.shut]
    if any(queue.active or queue.at_least for queue in seen.extra):
        parts.append(f"{EXTRA}: a sender elsewhere has more backlog queues; what lies there comes home too")
    if seen.doubt:
        parts.append(seen.doubt)
    if seen.unlisted:
        parts.append(f"settings, sizes and dead letters are unknown: {seen.unlisted}")
    return "\n".join(parts)


def _side(side: SideReport) -> str:
    word = "answers" if side.is_reachable else "does not answer"
    return f"{side.name} ({side.address}) {word}" + (f": {side.problem}" if side.problem else "")


def _row(queue: QueueReport) -> tuple[object, ...]:
    state = ("readable" if queue.takes_messages is None else "open") if queue.problem is None else queue.problem
    state = state if queue.shut is None or queue.problem is not None else SHUT
    return (
        queue.path,
        _waiting(queue.active, queue.at_least),
        _number(queue.dead_letters),
        size(queue.size_bytes),
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
        f"waiting    {waiting} messages, {size(seen.size_bytes)}{oldest}",
        f"room       {_room(seen.capacity_hours)}",
        f"syphon     {SYPHON_WORDS[seen.syphon_seen]}",
    ]


def _room(hours: float | None) -> str:
    from twinbus.client.duration import roughly

    if hours is None:
        return "cannot be told yet"
    return "the backlog is not growing" if hours == float("inf") else f"for {roughly(hours * 3600)} at this rate"


def _age(age_s: float | None) -> str:
    from twinbus.client.duration import roughly

    return UNKNOWN if age_s is None else roughly(age_s)


def _waiting(exactly: int | None, at_least: int | None) -> str:
    """`12`, `1,000+`, or unknown."""
    return f"{at_least:,}+" if exactly is None and at_least else _number(exactly)


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """`12.3 MB`; at most four digits."""
    if number is None:
        return UNKNOWN
    value = float(number)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def _trouble(seen: Inspection) -> str:
    """In one line, what is not as it should be."""
    sides = (seen.primary, seen.secondary)
    trouble = [f"{side.name} does not answer ({side.problem})" for side in sides if not side.is_reachable]
    closed = [queue for queue in seen.queues if queue.problem is not None]
    if closed and seen.secondary.is_reachable:
        what = "can be neither sent to nor read"
        trouble.append(f"{len(closed)} of {len(seen.queues)} backlog queues {what} ({closed[0].problem})")
    shut = [queue for queue in seen.shut if queue not in closed]
    if shut:
        first, *others = shut
        more = f" and {len(others)} more" if others else ""
        trouble.append(f"{first.path}{more} cannot be emptied ({first.shut})")
    return "; ".join(trouble)
