"""What the page shows, as plain rows: made of what status, board, syphons, spools and meter say, and of nothing else.

Times are seconds since 1970, lengths seconds, sizes bytes. None is unknown, never nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twinbus.board.fleet import EntityInFleet, Fleet, FleetProcess
from twinbus.client.inspection.freshness import FRESH_S
from twinbus.client.inspection.health import Health, Judgement, entity_health
from twinbus.client.inspection.reports import AbilityReport, EntityReport, Inspection, QueueReport, SideReport
from twinbus.cost.prices import Prices

Row = dict[str, Any]
Rows = dict[str, Row]

TRACKED: Mapping[str, str] = {
    "verdict": "pairs",
    "entities": "queues and topics",
    "sides": "namespaces",
    "syphons": "syphons",
    "processes": "processes",
}
"""Sections whose rows have a `state` of which the page shows since when it is so, and what several rows are called."""
CHANGE_WORDS: Mapping[str, frozenset[str]] = {
    "bad": frozenset(("failed over", "failing", "suspect", "does not answer", "refuses the key", "silent", "faulted")),
    "good": frozenset(("healthy", "answers", "reporting")),
}
"""What an event about a change is; anything else is a note."""
VERBS = frozenset(("answers", "does not answer", "refuses the key"))
"""States that are said without *is*."""
WORST_FIRST = (Health.FAILED_OVER, Health.FAILING, Health.WAITING, Health.UNKNOWN, Health.WORKS, Health.HEALTHY)
OUTRANKED_BY_SUSPICION = frozenset((Health.WAITING, Health.UNKNOWN, Health.WORKS, Health.HEALTHY))
SUSPECT = "suspect"
NOT_COUNTED = "not all of the backlog was looked at: more may wait there"
PROCESSES_NAMED = 5
"""Of those that say that an entity is in trouble."""


# --- how old it is ---


def source_row(at: float | None, problem: str) -> Row:
    """As of when one of those that are asked was last seen (None: never), and why it cannot be seen now."""
    return {"at": at, "stale_at": None if at is None else at + FRESH_S, "problem": problem}


# --- verdict and sides ---


def verdict_rows(judgement: Judgement, seen: Inspection) -> Rows:
    return {
        "pair": {
            "name": "the pair",
            "state": judgement.health.value,
            "reason": judgement.text,
            "reasons": list(judgement.reasons),
            "unknown": list(judgement.unknown),
            "at": seen.at,
            "since": None,
        }
    }


def side_rows(seen: Inspection) -> Rows:
    return {which: _side(which, side) for which, side in (("primary", seen.primary), ("secondary", seen.secondary))}


def _side(which: str, side: SideReport) -> Row:
    state = "refuses the key" if side.refuses_key else "answers" if side.is_reachable else "does not answer"
    return {"side": which, "name": side.name, "address": side.address, "state": state, "reason": side.problem or ""}


# --- entities ---


def entity_rows(seen: Inspection, fleet: Fleet | None, pings: Mapping[str, float], fleet_at: float = 0.0) -> Rows:
    """Entities that were asked about, and those that processes name.

    `pings`: by lower name, when the next one of this machine is. `fleet_at`: when the board was looked at.
    """
    named = {} if fleet is None else {each.entity.lower(): each for each in fleet.entities()}
    who = {} if fleet is None else _who_says(fleet)
    rows = {
        each.entity.lower(): _entity(each, named.get(each.entity.lower()), who, pings, fleet_at)
        for each in seen.entities
    }
    for key, each in named.items():
        if key not in rows:
            rows[key] = _entity(None, each, who, pings, fleet_at)
    return rows


def _entity(
    asked: EntityReport | None,
    named: EntityInFleet | None,
    who: Mapping[str, Sequence[Row]],
    pings: Mapping[str, float],
    fleet_at: float,
) -> Row:
    name = asked.entity if asked is not None else named.entity if named is not None else ""
    key = name.lower()
    state, reason = _entity_state(asked, named)
    told = None if named is None or named.ping_in_s is None else round(fleet_at + named.ping_in_s)
    return {
        "name": name,
        "kind": "" if asked is None or asked.kind == "unknown" else asked.kind,
        "state": state,
        "reason": reason,
        "since": None if named is None or named.longest_s is None else round(fleet_at - named.longest_s),
        **{
            what: None if asked is None else _works(getattr(asked, what))
            for what in ("sending", "receiving", "managing")
        },
        "waiting": None if asked is None else asked.waiting,
        "waiting_at_least": 0 if asked is None else asked.waiting_at_least,
        "failed_over": 0 if named is None else named.failed_over,
        "suspect": 0 if named is None else named.suspect,
        "healthy": 0 if named is None else named.healthy,
        "cannot_receive": 0 if named is None else named.cannot_receive,
        "cannot_manage": 0 if named is None else named.cannot_manage,
        "who": list(who.get(key, ())),
        "next_ping": min(filter(None, [pings.get(key), told]), default=None),
    }


def _entity_state(asked: EntityReport | None, named: EntityInFleet | None) -> tuple[str, str]:
    """The worse of what was found here and of what processes say."""
    words = [Health.UNKNOWN if asked is None else entity_health(asked)]
    reasons = [] if asked is None else [ability.why for ability in _failing(asked) if ability.why]
    if named is not None and named.failed_over:
        words.append(Health.FAILED_OVER)
    if named is not None and (named.cannot_receive or named.cannot_manage):
        words.append(Health.FAILING)
    if named is not None and not named.is_healthy and named.reason:
        reasons.append(named.reason)
    if asked is None and named is not None and named.is_healthy:
        words = [Health.WORKS]  # nobody has looked whether messages for it wait
    worst = min(words, key=WORST_FIRST.index)
    is_suspect = named is not None and bool(named.suspect) and worst in OUTRANKED_BY_SUSPICION
    state = SUSPECT if is_suspect else worst.value
    if not reasons and state == Health.UNKNOWN and asked is not None:
        reasons = [ability.why for ability in (asked.sending, asked.receiving, asked.managing) if ability.why]
    if not reasons and (state == Health.WORKS or (asked is not None and asked.waiting is None)):
        reasons = [NOT_COUNTED]
    return state, "; ".join(dict.fromkeys(reasons))


def _failing(asked: EntityReport) -> list[AbilityReport]:
    return [ability for ability in (asked.sending, asked.receiving, asked.managing) if ability.works is False]


def _works(ability: AbilityReport) -> Row:
    return {"works": ability.works, "why": ability.why}


def _who_says(fleet: Fleet) -> dict[str, list[Row]]:
    """By entity, some of the processes that say that it is in trouble."""
    found: dict[str, list[Row]] = {}
    for process in fleet.reporting:
        for each in process.report.entities:
            troubles = [] if each.state.value == "healthy" else [each.state.value]
            troubles += [f"cannot {what}" for what in each.cannot]
            if troubles and len(found.setdefault(each.entity.lower(), [])) < PROCESSES_NAMED:
                found[each.entity.lower()].append({"process": process_name(process), "state": ", ".join(troubles)})
    return found


# --- the fleet ---


def process_name(process: FleetProcess) -> str:
    return f"{process.report.kind.value} {process.report.process} on {process.report.host}"


def fleet_facts(fleet: Fleet) -> Row:
    return {
        "verdict": fleet.verdict.value,
        "has_board": fleet.has_board,
        "is_complete": fleet.is_complete,
        "problem": fleet.problem,
        "reporting": len(fleet.reporting),
        "silent": len(fleet.silent),
        "left_out": fleet.left_out,
    }


def process_rows(fleet: Fleet) -> Rows:
    return {f"{each.report.host}/{each.report.instance}": _process(each) for each in fleet.processes}


def _process(process: FleetProcess) -> Row:
    report = process.report
    troubled = [each for each in report.entities if each.state.value != "healthy" or each.cannot]
    state = process.word.value if process.word.value != "reporting" or report.phase.value != "faulted" else "faulted"
    return {
        "name": process_name(process),
        "kind": report.kind.value,
        "host": report.host,
        "process": report.process,
        "state": state,
        "reason": report.reason,
        "entities": len(report.entities) + sum(report.left_out.values()),
        "troubled": len(troubled),
        "troubled_names": [each.entity for each in troubled[:PROCESSES_NAMED]],
        "held": report.held,
        "spooled": report.spooled,
        "sent_to_backlog": report.sent_to_backlog,
        "secondary_down_for": report.secondary_down_for_s,
        "syphon": None
        if report.syphon is None
        else {"state": report.syphon.state, "rate": report.syphon.rate, "left": report.syphon.left},
    }


# --- the backlog ---


def backlog_facts(seen: Inspection) -> Row:
    hours = seen.capacity_hours
    rate = seen.bytes_per_s
    room = _room(seen)
    return {
        "waiting": seen.waiting_messages,
        "waiting_at_least": seen.waiting_at_least,
        "size": seen.size_bytes,
        "room": room,
        "oldest_age": seen.oldest_age_s,
        "full_in": None if hours is None or hours == float("inf") else hours * 3600,
        "is_filling": None if hours is None else hours != float("inf"),
        "bytes_per_s": rate,
        "syphon_seen": seen.syphon_seen,
        "doubt": seen.doubt,
        "unlisted": seen.unlisted,
        "quarantined": seen.dead_letters,
        "at": seen.at,
    }


def _room(seen: Inspection) -> int | None:
    sizes = [(each.size_bytes_max, each.size_bytes) for each in seen.queues if each.exists is not False]
    known = [most - used for most, used in sizes if most is not None and used is not None]
    return max(0, sum(known)) if sizes and len(known) == len(sizes) else None


def queue_rows(seen: Inspection) -> Rows:
    rows = {each.path: _queue(each, is_extra=False) for each in seen.queues}
    return rows | {each.path: _queue(each, is_extra=True) for each in seen.extra}


def _queue(queue: QueueReport, *, is_extra: bool) -> Row:
    is_shut = queue.shut is not None
    state = "cannot be used" if queue.problem is not None else "not emptied" if is_shut else "open"
    size, most = queue.size_bytes, queue.size_bytes_max
    return {
        "name": queue.path,
        "state": state,
        "reason": queue.problem or queue.shut or "; ".join(queue.differs),
        "is_extra": is_extra,
        "messages": queue.active,
        "at_least": queue.at_least,
        "quarantined": queue.dead_letters,
        "quarantined_at_least": queue.dead_letters_at_least,
        "size": size,
        "room": None if size is None or most is None else max(0, most - size),
        "oldest_age": queue.oldest_age_s,
    }


# --- the meter ---


def meter_facts(by_side: Mapping[str, Mapping[str, Any] | None], prices: Prices) -> Row:
    """What the namespaces' own meters have counted since they were started, and what a bill would make of it."""
    sides = {side: _metered(said) for side, said in by_side.items() if said is not None}
    steps = sum(each["steps"] for each in sides.values())
    return {
        "sides": sides,
        "operations": sum(each["operations"] for each in sides.values()),
        "charged": steps,
        "usd": round(prices.operations_usd(steps), 4) if sides else None,
        "usd_a_million": prices.standard_operations[min(1, len(prices.standard_operations) - 1)].usd_per_million,
        "prices_as_of": prices.as_of,
    }


def _metered(said: Mapping[str, Any]) -> Row:
    counts: dict[str, int] = {}
    for each in said.get("operations", ()):
        counts[each["kind"]] = counts.get(each["kind"], 0) + each["operations"]
    return {
        "operations": sum(counts.values()),
        "steps": sum(each["steps"] for each in said.get("operations", ())),
        "bytes": sum(each["bytes"] for each in said.get("operations", ())),
        "by_kind": counts,
        "connections": said.get("connections"),
        "full_disk": said.get("full_disk"),
    }


# --- spools and proxies ---


def next_pings(statuses: Iterable[Mapping[str, Any]], parse: Any) -> dict[str, float]:
    """By lower name of an entity, when the next ping of a proxy of this machine is."""
    found: dict[str, float] = {}
    for status in statuses:
        for each in (status.get("pair") or {}).get("entities", ()):
            at = each.get("next_ping_at")
            if at is not None:
                when = parse(at).timestamp()
                key = str(each.get("entity", "")).lower()
                found[key] = min(found.get(key, when), when)
    return found
