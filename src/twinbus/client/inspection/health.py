"""The verdict on a pair from one look at it (X7). No clock and no I/O: what was seen comes in, a verdict goes out.

Healthy, failing, failed over and waiting are said only if the look proves them. What could not be asked is unknown and
named, also beside a verdict that is certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from twinbus.client.inspection.reports import AbilityReport, EntityReport, Inspection, QueueReport
from twinbus.plain_text import first_few

NAMES_MAX = 3
"""Entities that one line names; the table has them all."""


class Health(StrEnum):
    HEALTHY = "healthy"
    """Everything that was to be checked works, and nothing waits in the backlog."""
    FAILING = "failing"
    """The primary, an entity or the backlog does not work, and no messages show that senders have failed over."""
    FAILED_OVER = "failed over"
    """Sending to the primary fails, and messages lie in the backlog."""
    WAITING = "waiting"
    """Messages are not home yet, and nothing is known to fail. What could not be asked is named beside it."""
    UNKNOWN = "unknown"
    """Nothing is known to fail or to wait, and not everything could be asked."""
    WORKS = "works"
    """Of an entity only: it works, and nobody knows whether messages for it lie in what was not read of the backlog."""


class Check(StrEnum):
    """What a verdict is about."""

    SENDING = "sending"
    """Entities of the primary take messages."""
    RECEIVING = "receiving"
    """Entities of the primary give messages out."""
    MANAGING = "managing"
    """Entities of the primary can be managed."""
    FAILOVER = "failover"
    """Backlog queues take messages, and each can be emptied."""
    BACKLOG = "backlog"
    """Nothing waits in the backlog or is in quarantine."""
    FLEET = "fleet"
    """The processes that report on the board are fine; without a board it says nothing."""


EVERYTHING = frozenset(Check)
ABILITIES = (Check.SENDING, Check.RECEIVING, Check.MANAGING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    health: Health
    text: str
    """The verdict in one line: the reasons for it, or what is unknown."""
    reasons: tuple[str, ...] = ()
    """What is proven to be wrong, or to wait; the worst first."""
    unknown: tuple[str, ...] = ()
    """What could not be asked, and why."""


def judge(seen: Inspection, checks: frozenset[Check] = EVERYTHING) -> Judgement:
    """The verdict on what was seen, as far as it is about `checks`."""
    sides = list(_sides_down(seen, checks))
    entities = [text for check in ABILITIES if check in checks for text in _failing(seen.entities, check)]
    if not seen.primary.is_reachable:
        entities = []  # what fails for all of them has been said
    queues = list(_queues_failing(seen)) if Check.FAILOVER in checks else []
    waiting = list(_waiting(seen)) if Check.BACKLOG in checks else []
    is_sending_down = not seen.primary.is_reachable or any(each.sending.works is False for each in seen.entities)
    has_failed_over = is_sending_down and Check.SENDING in checks and bool(seen.waiting_at_least)
    unknown = tuple(_unknown(seen, checks))
    reasons = (*sides, *entities, *queues, *waiting)
    if has_failed_over and seen.secondary.is_reachable:
        health = Health.FAILED_OVER
        reasons = tuple(dict.fromkeys((*sides, *entities, *_waiting(seen), *queues)))
    elif sides or entities or queues:
        health = Health.FAILING
    elif waiting:
        health = Health.WAITING
    else:
        health = Health.UNKNOWN if unknown else Health.HEALTHY
    text = "; ".join(reasons or unknown) or _all_well(seen, checks)
    if health is Health.WAITING and unknown:  # what cannot be asked may be an outage that goes on
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        text = f"{text}; not known: {unknown[0]}{more}"
    return Judgement(health=health, text=text, reasons=reasons, unknown=unknown)


def entity_health(entity: EntityReport, checks: frozenset[Check] = EVERYTHING) -> Health:
    """The verdict on one entity."""
    abilities = [ability for check, ability in _abilities(entity) if check in checks]
    if entity.sending.works is False and entity.waiting_at_least and Check.SENDING in checks:
        return Health.FAILED_OVER
    if any(ability.works is False for ability in abilities):
        return Health.FAILING
    if entity.waiting_at_least and Check.BACKLOG in checks:
        return Health.WAITING
    if any(ability.works is None for ability in abilities):
        return Health.UNKNOWN
    is_dark = entity.waiting is None and Check.BACKLOG in checks
    if not is_dark:
        return Health.HEALTHY
    return Health.WORKS if abilities else Health.UNKNOWN


def _abilities(entity: EntityReport) -> tuple[tuple[Check, AbilityReport], ...]:
    return (
        (Check.SENDING, entity.sending),
        (Check.RECEIVING, entity.receiving),
        (Check.MANAGING, entity.managing),
    )


def _all_well(seen: Inspection, checks: frozenset[Check]) -> str:
    if checks != EVERYTHING:
        return f"as far as this was checked: {', '.join([check.value for check in Check if check in checks])}"
    count = len(seen.entities)
    works = f"{count} {'entity works' if count == 1 else 'entities work'}" if count else "it has no queue or topic"
    return f"{works}, and nothing waits in the backlog"


# --- what is proven ---


def _sides_down(seen: Inspection, checks: frozenset[Check]) -> Iterator[str]:
    if not seen.primary.is_reachable and checks.intersection(ABILITIES):
        yield f"{seen.primary.name} does not answer ({seen.primary.problem})"
    if not seen.secondary.is_reachable and checks & {Check.FAILOVER, Check.BACKLOG}:
        yield f"{seen.secondary.name} does not answer ({seen.secondary.problem})"


def _failing(entities: Iterable[EntityReport], check: Check) -> Iterator[str]:
    """One line for each reason, with the entities that share it."""
    for why, names in _by_reason(entities, check, works=False).items():
        yield f"{check.value} fails for {first_few(names, NAMES_MAX)} ({why})"


def _by_reason(entities: Iterable[EntityReport], check: Check, *, works: bool | None) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for entity in entities:
        ability = dict(_abilities(entity))[check]
        if ability.works is works:
            groups.setdefault(ability.why or "no reason was given", []).append(entity.entity)
    return groups


def _queues_failing(seen: Inspection) -> Iterator[str]:
    if not seen.secondary.is_reachable:
        return
    closed = [queue for queue in seen.queues if queue.problem is not None and not queue.refuses_key]
    if closed:
        yield f"{len(closed)} of {len(seen.queues)} backlog queues cannot be used ({closed[0].problem})"
    shut = [queue for queue in seen.shut if queue not in closed]
    if shut:
        more = f" and {len(shut) - 1} more" if len(shut) > 1 else ""
        yield f"{shut[0].path}{more} cannot be emptied ({shut[0].shut})"


def _waiting(seen: Inspection) -> Iterator[str]:
    at_least, exactly = seen.waiting_at_least or 0, seen.waiting_messages
    if at_least:
        number = f"{exactly:,}" if exactly is not None else f"at least {at_least:,}"
        yield f"{number} {_messages(exactly)} in the backlog"
    dead = sum([queue.dead_letters or queue.dead_letters_at_least for queue in seen.queues_there])
    if dead:
        is_exact = all(queue.dead_letters is not None for queue in seen.queues_there)
        number = f"{dead:,}" if is_exact else f"at least {dead:,}"
        yield f"{number} {_messages(dead)} in quarantine (twinbus syphon quarantine list)"


def _messages(count: int | None) -> str:
    return "message" if count == 1 else "messages"


# --- what is unknown ---


def _unknown(seen: Inspection, checks: frozenset[Check]) -> Iterator[str]:
    abilities = [check for check in ABILITIES if check in checks]
    if abilities and seen.primary.is_reachable:
        yield from _unknown_of_primary(seen, abilities)
    if checks & {Check.FAILOVER, Check.BACKLOG} and seen.secondary.is_reachable:
        yield from _unknown_of_secondary(seen, checks)


def _unknown_of_primary(seen: Inspection, abilities: list[Check]) -> Iterator[str]:
    if seen.primary.refuses_key:
        yield f"{seen.primary.name} refuses the key ({seen.primary.problem})"
        return
    if seen.entities_unlisted is not None:
        yield f"which entities {seen.primary.name} has ({seen.entities_unlisted}): name them with --entity"
    for check in abilities:
        for why, names in _by_reason(seen.entities, check, works=None).items():
            yield f"{check.value} of {first_few(names, NAMES_MAX)} ({why})"


def _unknown_of_secondary(seen: Inspection, checks: frozenset[Check]) -> Iterator[str]:
    if seen.secondary.refuses_key:
        yield f"{seen.secondary.name} refuses the key ({seen.secondary.problem})"
        return
    queues = seen.queues_there
    if Check.FAILOVER in checks:
        unsure = [queue for queue in seen.queues if queue.problem is None and queue.takes_messages is None]
        unsure += [queue for queue in seen.queues if queue.refuses_key]
        if unsure:
            yield f"whether backlog queues take messages ({_paths(unsure)}: the key may not send)"
    if Check.BACKLOG not in checks:
        return
    unread = [queue for queue in queues if queue.active is None and not queue.is_readable]
    if unread:
        yield f"what waits in the backlog ({_paths(unread)} cannot be read)"
    if seen.doubt is not None:
        yield seen.doubt
    is_dark = [queue.dead_letters is None and not queue.dead_letters_at_least for queue in queues]
    if not unread and any(is_dark):
        yield "what is in quarantine (the key may not count dead letters)"


def _paths(queues: list[QueueReport]) -> str:
    return queues[0].path if len(queues) == 1 else f"{queues[0].path} and {len(queues) - 1} more"
