"""Everything that has to be there before the first outage: found, made, and tried.

The flows here ask and are answered: which queues exist, create this one, try these links. They know neither clients nor
clocks, so the same words pair a sync and an asyncio client, and every answer a namespace could give can be tested
without one. `provisioner.py` carries the asks out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from twinbus.client.setup import findings
from twinbus.client.setup.plan import Plan
from twinbus.client.setup.queue_settings import BacklogQueueSettings, by_risk
from twinbus.errors import PairingError
from twinbus.pairing.sending.failure import Failure, FailureKind

Kind = FailureKind
Result = TypeVar("Result")

BACKOFF_S = (0.2, 1.0)
BUSY_WAIT_S = 10.0
"""Nothing is asked again earlier of a server that said it is busy."""
PASSING = frozenset((Kind.UNREACHABLE, Kind.TIMED_OUT, Kind.INTERNAL, Kind.BUSY))
"""Worth another attempt. Silence is not: it has cost a whole attempt already."""
OUT_OF_REACH = frozenset((Kind.UNREACHABLE, Kind.NO_ANSWER))
SAME_FOR_ALL = frozenset((Kind.UNAUTHORISED, Kind.FULL)) | OUT_OF_REACH
"""What befell one creation would befall the next one too."""


class BacklogRight(Enum):
    SEND = "Send"
    LISTEN = "Listen"


# --- what is asked, and what is answered ---------------------------------------------------------------


class ListBacklogQueues(NamedTuple):
    """Which of these queues does the secondary have? Answer: their settings by path, or a `Failure`."""

    paths: tuple[str, ...]


class CreateBacklogQueue(NamedTuple):
    """Create a backlog queue. Answer: None (also if it was there), or a `Failure`."""

    path: str


class CreateBoard(NamedTuple):
    """Create the board. Answer: None (also if it was there), or a `Failure`."""

    path: str


class TryLinks(NamedTuple):
    """Open links to the secondary and close them again. Answer: None or a `Failure` for each, in order."""

    tries: tuple[LinkTry, ...]


class LinkTry(NamedTuple):
    path: str
    right: BacklogRight


class ReadDetection(NamedTuple):
    """How does the primary detect duplicates in this entity? Answer: `Detection`, or a `Failure`."""

    entity: str


class Detection(NamedTuple):
    window_s: float | None
    """For how long it knows an id; None: it does not look."""


class Pause(NamedTuple):
    """Let time pass. Answer: None."""

    seconds: float


Ask = ListBacklogQueues | CreateBacklogQueue | CreateBoard | TryLinks | ReadDetection | Pause
Flow = Generator[Ask, Any, Result]


# --- the result ----------------------------------------------------------------------------------------


class Requests(NamedTuple):
    """Requests of the administration, each of which a service may charge."""

    primary: int = 0
    secondary: int = 0
    """With those that create queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a pair has to rely on."""

    queues: tuple[int, ...]
    """Backlog queues that were tried and can be used, by index."""
    lost: Mapping[int, Failure] = field(default_factory=dict)
    """Backlog queues that are there and cannot be used now."""
    created: tuple[int, ...] = ()
    """Those that were made by this pairing."""
    warnings: tuple[str, ...] = ()
    checked_at: float = 0.0
    """When it was asked for, in seconds since 1970; if it is not complete, for the first time."""
    rights: tuple[BacklogRight, ...] = ()
    """What the credential was seen to be allowed on at least one backlog queue, of what was tried."""
    duplicate_detection: Mapping[str, str] = field(default_factory=dict)
    """By declared entity: on, off, short (its window), missing (no such entity), or unknown."""
    requests: Requests = field(default_factory=Requests)
    """What it has cost."""
    queue_settings: str = "unknown"
    """Whether the backlog queues have the settings they should: good, risky (the warnings say why), or unknown."""
    managed: Mapping[str, Failure | None] = field(default_factory=dict)
    """Declared entities whose settings were asked for, and why there was no answer; None: there was one."""
    board: str = ""
    """The board: used, created, or unusable; empty if there is to be none."""
    is_complete: bool = True
    """False: the secondary could not be reached, and nothing is known of its queues; to be prepared again."""
    lasting: tuple[str, ...] = ()
    """Those of the warnings about which only pairing can know more: a look later does not ask again."""

    @property
    def found(self) -> tuple[int, ...]:
        """All backlog queues that are there; `bus.backlog_queue_count` is how many."""
        return tuple(sorted({*self.queues, *self.lost}))


class _Found(NamedTuple):
    present: tuple[int, ...]
    """There, or worth a try."""
    certain: frozenset[int] = frozenset()
    """Those of them that are known to be there: listed, created, or used before."""
    created: tuple[int, ...] = ()
    absent: Mapping[int, Failure] = {}
    listing_failure: Failure | None = None
    settings: Mapping[int, BacklogQueueSettings] | None = None
    """Of those that were there already; None: they could not be read."""


class _Proof(NamedTuple):
    send: Mapping[int, Failure]
    listen: Mapping[int, Failure]

    def needed(self, plan: Plan) -> Mapping[int, Failure]:
        """Why backlog queues cannot be used for what the plan is about."""
        return self.send if plan.sends else self.listen


# --- the flows -----------------------------------------------------------------------------------------


def prepare(plan: Plan, now: float) -> Flow[Preparation]:
    """Find or create the backlog queues and prove that they can be used.

    Raises `PairingError` with everything that stands in the way, before asking anything if the plan itself is wrong.
    Fewer queues than planned, and whatever else can be lived with, is in the warnings.
    """
    problem = findings.plan_problem(plan)
    if problem is not None:
        raise PairingError(problem)
    found = (yield from _find_or_create(plan)) if plan.creates else _Found(tuple(plan.paths))
    proof = yield from _prove(plan, found.present)
    unreached = _why_unreached(found, proof.needed(plan)) if plan.can_wait else None
    if unreached is not None:
        warning = findings.unreached(plan, unreached)
        return Preparation(queues=(), warnings=(warning,), checked_at=now, is_complete=False)
    _refuse_if_useless(plan, found, proof)
    prepared = _weigh(plan, found, proof, now)
    risky = () if found.settings is None else tuple(findings.risky(plan, by_risk(found.settings)))
    managed: dict[str, Failure | None] = {}
    detection, detection_warnings = yield from _look_at_detection(plan, managed)
    board, board_warnings = yield from _find_board(plan)
    return replace(
        prepared,
        duplicate_detection=detection,
        queue_settings="unknown" if found.settings is None else "risky" if risky else "good",
        warnings=(*prepared.warnings, *risky, *detection_warnings, *board_warnings),
        board=board,
        managed=managed,
        lasting=(*risky, *detection_warnings),
    )


def recheck(plan: Plan, before: Preparation, now: float) -> Flow[Preparation]:
    """Prove again that the backlog queues can be used; never raises, and asks nothing of the primary.

    A queue that was missing is used from now on if somebody has made it meanwhile. If the secondary was never reached,
    everything is done that pairing could not do.
    """
    if not before.is_complete:
        try:
            found = yield from prepare(plan, now)
        except PairingError as error:
            return replace(before, warnings=error.problems)
        return found if found.is_complete else replace(found, checked_at=before.checked_at)
    proof = yield from _prove(plan, tuple(plan.paths))
    after = _weigh(plan, _Found(tuple(plan.paths), frozenset(before.found)), proof, now)
    return replace(
        after,
        created=before.created,
        duplicate_detection=before.duplicate_detection,
        queue_settings=before.queue_settings,
        board=before.board,
        managed=before.managed,
        warnings=(*after.warnings, *before.lasting),
        lasting=before.lasting,
    )


def _find_or_create(plan: Plan) -> Flow[_Found]:
    listed: Mapping[str, BacklogQueueSettings] | Failure = yield from _persist(
        ListBacklogQueues(tuple(plan.paths.values())), plan
    )
    if isinstance(listed, Failure):
        if listed.kind is Kind.UNAUTHORISED:
            raise PairingError((yield from _why_unauthorised(plan, listed)))
        # Queues may well be there although they cannot be listed: the links will show.
        return _Found(tuple(plan.paths), listing_failure=listed)
    there = {path.lower(): settings for path, settings in listed.items()}
    settings = {index: there[path.lower()] for index, path in plan.paths.items() if path.lower() in there}
    present = list(settings)
    created, absent = yield from _create(plan, [index for index in plan.paths if index not in present])
    in_doubt = [index for index, why in absent.items() if why.kind is Kind.NO_ANSWER]
    certain = frozenset((*present, *created))
    return _Found(tuple(sorted((*certain, *in_doubt))), certain, tuple(created), absent, settings=settings)


def _create(plan: Plan, indexes: list[int]) -> Flow[tuple[list[int], dict[int, Failure]]]:
    created: list[int] = []
    absent: dict[int, Failure] = {}
    for index in indexes:
        failure: Failure | None = yield from _persist(CreateBacklogQueue(plan.paths[index]), plan)
        if failure is None:
            created.append(index)
        elif failure.kind in SAME_FOR_ALL:
            absent.update(dict.fromkeys(indexes[indexes.index(index) :], failure))
            break
        else:
            absent[index] = failure
    return created, absent


def _why_unauthorised(plan: Plan, failure: Failure) -> Flow[str]:
    """A credential that opens a link is a good one and lacks only Manage."""
    (tried,) = yield TryLinks((LinkTry(plan.paths[0], BacklogRight.SEND),))
    if tried is None or tried.kind is Kind.NOT_FOUND:
        return findings.needs_manage(plan, failure)
    return findings.bad_credential(plan, failure)


def _prove(plan: Plan, indexes: Iterable[int]) -> Flow[_Proof]:
    rights = (BacklogRight.SEND, BacklogRight.LISTEN) if plan.listens else (BacklogRight.SEND,)
    waiting = [(index, right) for right in rights for index in indexes]
    failures: dict[tuple[int, BacklogRight], Failure] = {}
    for attempt in range(plan.attempts if waiting else 0):
        answers = yield TryLinks(tuple(LinkTry(plan.paths[index], right) for index, right in waiting))
        failed = {one: why for one, why in zip(waiting, answers, strict=True) if why is not None}
        failures = {one: why for one, why in failures.items() if one not in waiting} | failed
        waiting = [one for one, why in failed.items() if why.kind in PASSING]
        if not waiting or attempt == plan.attempts - 1:
            break
        yield Pause(_wait_s([failed[one] for one in waiting], attempt))
    return _Proof(
        {index: why for (index, right), why in failures.items() if right is BacklogRight.SEND},
        {index: why for (index, right), why in failures.items() if right is BacklogRight.LISTEN},
    )


def _why_unreached(found: _Found, needed: Mapping[int, Failure]) -> Failure | None:
    """Why nothing is known of any queue, if that may pass by itself; None: something is known."""
    failures = _failures(found, needed)
    is_all = set(found.present) <= set(needed) and bool(failures)
    passing = [why for why in failures.values() if why.kind in PASSING | OUT_OF_REACH]
    return passing[0] if is_all and len(passing) == len(failures) else None


def _failures(found: _Found, needed: Mapping[int, Failure]) -> dict[int, Failure]:
    """By queue, why it cannot be used."""
    failures = {**needed, **found.absent}
    if found.listing_failure is None:
        return failures
    # "Not found" is only half of the truth then.
    return {i: found.listing_failure if why.kind is Kind.NOT_FOUND else why for i, why in failures.items()}


def _refuse_if_useless(plan: Plan, found: _Found, proof: _Proof) -> None:
    """Raise `PairingError` unless there is a backlog queue to send to, and one to listen to if that is wanted."""
    needed = proof.needed(plan)
    if set(found.present) <= set(needed):
        refused = [why for why in found.absent.values() if why.kind is Kind.UNAUTHORISED]
        if refused:
            raise PairingError(findings.needs_manage(plan, refused[0]))
        if not plan.sends and needed and all(why.kind is Kind.UNAUTHORISED for why in needed.values()):
            raise PairingError(findings.cannot_listen(plan, next(iter(needed.values()))))
        raise PairingError(*findings.nothing_usable(plan, _failures(found, needed)))
    refused = [why for why in proof.listen.values() if why.kind is Kind.UNAUTHORISED]
    if refused and len(refused) == len(found.present):
        raise PairingError(findings.cannot_listen(plan, refused[0]))


def _weigh(plan: Plan, found: _Found, proof: _Proof, now: float) -> Preparation:
    needed = proof.needed(plan)
    usable = tuple(index for index in found.present if index not in needed)
    unseen = {
        index: found.listing_failure or why
        for index, why in needed.items()
        if why.kind is Kind.NOT_FOUND and index not in found.certain
    }
    absent = unseen | {index: why for index, why in found.absent.items() if index not in usable}
    lost = {index: why for index, why in needed.items() if index not in absent}
    deaf = {index: why for index, why in proof.listen.items() if index not in proof.send} if plan.sends else {}
    return Preparation(
        queues=usable,
        lost=lost,
        created=tuple(sorted({*found.created, *(index for index in found.absent if index in usable)})),
        warnings=_warnings(plan, found, absent, lost | _closed_to_senders(plan, proof), deaf),
        checked_at=now,
        rights=_rights(plan, found, proof),
    )


def _closed_to_senders(plan: Plan, proof: _Proof) -> dict[int, Failure]:
    """Queues that take no messages, where that is not what this credential is for."""
    if plan.sends:
        return {}
    return {i: why for i, why in proof.send.items() if why.kind is not Kind.UNAUTHORISED and i not in proof.listen}


def _rights(plan: Plan, found: _Found, proof: _Proof) -> tuple[BacklogRight, ...]:
    present = set(found.present)
    may_send = bool(present - set(proof.send))
    may_listen = plan.listens and bool(present - set(proof.listen))
    return tuple([right for right, may in ((BacklogRight.SEND, may_send), (BacklogRight.LISTEN, may_listen)) if may])


def _warnings(
    plan: Plan,
    found: _Found,
    absent: Mapping[int, Failure],
    lost: Mapping[int, Failure],
    deaf: Mapping[int, Failure],
) -> tuple[str, ...]:
    shared = findings.shared_host(plan)
    return (
        *((shared,) if shared else ()),
        *((findings.unlisted(plan, found.listing_failure),) if found.listing_failure else ()),
        *findings.missing(plan, absent),
        *findings.unusable(plan, lost),
        *findings.deaf(plan, deaf),
    )


def _find_board(plan: Plan) -> Flow[tuple[str, tuple[str, ...]]]:
    """Whether the board can be posted on; missing, it is made. A pair works without, so nothing here is an error."""
    if not plan.has_board:
        return "", ()
    rights = (BacklogRight.SEND, BacklogRight.LISTEN) if plan.reads_board else (BacklogRight.SEND,)
    wanted = TryLinks(tuple([LinkTry(plan.board_path, right) for right in rights]))
    failure = next(filter(None, (yield wanted)), None)
    word = "used"
    if failure is not None and failure.kind is Kind.NOT_FOUND and plan.creates:
        failure = yield from _persist(CreateBoard(plan.board_path), plan)
        word = "created"
        if failure is None:
            failure = next(filter(None, (yield wanted)), None)
    return (word, ()) if failure is None else ("unusable", (findings.board_unusable(plan, failure),))


def _look_at_detection(plan: Plan, managed: dict[str, Failure | None]) -> Flow[tuple[dict[str, str], tuple[str, ...]]]:
    """What the primary says of duplicates, entity by entity; one that is down is not asked again and again."""
    words = dict.fromkeys(plan.entities, "unknown")
    warnings: list[str] = []
    for entity in plan.entities:
        answer: Detection | Failure = yield ReadDetection(entity)
        managed[entity] = answer if isinstance(answer, Failure) else None
        if isinstance(answer, Failure) and answer.kind in SAME_FOR_ALL:
            break
        words[entity], warning = _judge_detection(plan, entity, answer)
        warnings += [warning] if warning else []
    return words, tuple(warnings)


def _judge_detection(plan: Plan, entity: str, answer: Detection | Failure) -> tuple[str, str | None]:
    if isinstance(answer, Failure):
        is_missing = answer.kind is Kind.NOT_FOUND
        return ("missing", findings.undeclared(plan, entity)) if is_missing else ("unknown", None)
    if answer.window_s is None:
        return "off", findings.detection_off(entity)
    if answer.window_s < plan.outage_s:
        return "short", findings.detection_short(entity, answer.window_s, plan.outage_s)
    return "on", None


def _persist(ask: ListBacklogQueues | CreateBacklogQueue | CreateBoard, plan: Plan) -> Flow[Any]:
    """The answer, asked for again while the trouble looks like passing."""
    for attempt in range(plan.attempts):
        answer = yield ask
        if not isinstance(answer, Failure) or answer.kind not in PASSING or attempt == plan.attempts - 1:
            break
        yield Pause(_wait_s([answer], attempt))
    return answer


def _wait_s(failures: Iterable[Failure], attempt: int) -> float:
    busy = any(failure.kind is Kind.BUSY for failure in failures)
    return BUSY_WAIT_S if busy else BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
