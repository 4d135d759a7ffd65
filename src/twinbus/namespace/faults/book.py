"""The book of faults: which are in force, and what they make of an operation.

No clock, no chance and no I/O of its own: time comes with every question, chance as a function. When several faults
touch one operation:

1. what cannot be reached stays so: a reset connection (`Drop`) comes before silence, silence before everything else;
2. of those that refuse, the one that was added first gives the answer, `busy` only if no other refuses, and the
   namespace's own throttle last;
3. delays of `slow` add up, and a refusal takes as long as an acceptance would;
4. of several `late` the longest counts, and one `unanswered` is enough.

What is refused uses up no count of `unanswered`, and what another fault refuses none of `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from twinbus.errors import ConditionError, InternalError, NamespaceError, TwinbusError
from twinbus.namespace.faults.inforce import NEVER_MS, InForce
from twinbus.namespace.faults.rulings import PROCEED, Drop, Proceed, Refuse, Ruling, Silence
from twinbus.namespace.faults.scope import MANAGEMENT_SUFFIX, entity_of, topic_of
from twinbus.namespace.faults.throttle import Throttle, too_many_operations
from twinbus.namespace.faults.troubles import (
    ATTACHING,
    Busy,
    How,
    Late,
    NoManage,
    NoReceive,
    NoSend,
    Refusing,
    Restarting,
    Slow,
    Unanswered,
    Unreachable,
)
from twinbus.namespace.faults.vocabulary import Fault
from twinbus.namespace.operations import Operation

FAULTS_MAX = 100

REQUEST_MEANINGS = {
    "schedule-message": Operation.SEND,
    "cancel-scheduled-message": Operation.SEND,
    "peek-message": Operation.DELIVER,
    "receive-by-sequence-number": Operation.DELIVER,
    "renew-lock": Operation.SETTLE,
    "update-disposition": Operation.SETTLE,
    "renew-session-lock": Operation.SETTLE,
}
"""What a management request does, beside being one: without the ability to send, nothing can be scheduled."""


class Reach(Enum):
    """How the whole namespace is to be met on its port."""

    OPEN = "open"
    REFUSING = "refusing"
    DROPPING = "dropping"
    SILENT = "silent"


class FaultBook:
    def __init__(self, chance: Callable[[], float], throttle: Throttle | None = None) -> None:
        """`chance` gives numbers from 0 up to, not including, 1."""
        self._chance = chance
        self._throttle = throttle if throttle is not None and throttle.limits.limits_operations else None
        self._faults: list[InForce] = []
        self._touching: dict[Operation, tuple[InForce, ...]] = {}
        self._next_ms = NEVER_MS
        self._added = 0
        self.version = 0
        """Grows whenever something about the faults changes."""
        self.is_quiet = self._throttle is None
        """Nothing is wrong and nothing is counted: `ruling` need not be asked."""

    # --- what is in force ---

    def add(self, fault: Fault, now_ms: int) -> InForce:
        """Put a fault in force from now on; raises `TwinbusError` if there are too many."""
        self.turn(now_ms)
        if len(self._faults) >= FAULTS_MAX:
            raise TwinbusError(f"there are {FAULTS_MAX} faults already: clear some first")
        self._added += 1
        added = InForce(f"{fault.kind}-{self._added}", fault, now_ms)
        self._faults.append(added)
        self._changed()
        return added

    def clear(self, fault_id: str | None = None) -> list[str]:
        """End one fault, or all; returns the ids of those that ended, none if there is no such fault."""
        ended = [one.id for one in self._faults if fault_id in (None, one.id)]
        if ended:
            self._faults = [one for one in self._faults if one.id not in ended]
            self._changed()
        return ended

    def active(self, now_ms: int) -> list[InForce]:
        """The faults in force, the oldest first."""
        self.turn(now_ms)
        return list(self._faults)

    def turn(self, now_ms: int) -> None:
        """End what has lasted its time and go on to the next phase of what has one."""
        if now_ms < self._next_ms:
            return
        self._faults = [one for one in self._faults if one.turn(now_ms)]
        self._changed()

    def next_change_ms(self) -> int | None:
        """When `turn` has something to do; None: not before a fault is added."""
        return None if self._next_ms == NEVER_MS else self._next_ms

    def reach(self) -> Reach:
        """How the namespace as a whole is to be met, by the faults that were in force at the last `turn`."""
        hows = {_how(one) for one in self._touching.get(Operation.CONNECT, ()) if one.scope.is_namespace}
        for how, reach in ((How.REFUSE, Reach.REFUSING), (How.DROP, Reach.DROPPING), (How.SILENT, Reach.SILENT)):
            if how in hows:
                return reach
        return Reach.OPEN

    def _changed(self) -> None:
        self.version += 1
        self._touching = {
            operation: tuple(one for one in self._faults if operation in one.touches) for operation in Operation
        }
        self._next_ms = min((one.until_ms for one in self._faults), default=NEVER_MS)
        self.is_quiet = not self._faults and self._throttle is None

    # --- what becomes of an operation ---

    def ruling(self, operation: Operation, path: str | None, now_ms: int) -> Ruling:
        """What becomes of an operation on an entity, or with None on the namespace. It counts: ask once for each.

        A link to an entity's management is attached whatever the entity lacks, as long as it can be reached.
        """
        self.turn(now_ms)
        if path is not None and operation in ATTACHING and path.lower().endswith(MANAGEMENT_SUFFIX):
            operation = Operation.CONNECT
        return self._rule(self._touching.get(operation, ()), operation, path, now_ms)

    def request_ruling(self, name: str, path: str, now_ms: int) -> Ruling:
        """What becomes of a management request (`com.microsoft:` before its name or not) for an entity."""
        self.turn(now_ms)
        meaning = REQUEST_MEANINGS.get(name.removeprefix("com.microsoft:"), Operation.MANAGE)
        concerned = (Operation.MANAGE, meaning)
        touching = tuple([one for one in self._faults if any(operation in one.touches for operation in concerned)])
        return self._rule(touching, Operation.MANAGE, path, now_ms)

    def copy_delays(self, now_ms: int) -> Callable[[str], int] | None:
        """How long copies of a topic's messages are held back, by the subscription's path; None: none is at all.

        A fault that covers the topic is not counted: it held the message back when that was sent.
        """
        if not self._faults:
            return None
        self.turn(now_ms)
        late = [
            (one.covers, one.trouble.delay_ms)
            for one in self._faults
            if isinstance(one.trouble, Late) and not one.scope.is_namespace
        ]
        if not late:
            return None

        def delay_ms(path: str) -> int:
            entity = entity_of(path)
            topic = topic_of(entity)
            return max([delay_ms for covers, delay_ms in late if covers(entity) and not covers(topic)], default=0)

        return delay_ms

    def _rule(self, touching: Sequence[InForce], operation: Operation, path: str | None, now_ms: int) -> Ruling:
        entity = None if path is None else entity_of(path)
        faults = [one for one in touching if one.covers(entity)]
        if faults:
            cut = _cut(faults)
            if cut is not None:
                return cut
        elif self._throttle is None:
            return PROCEED
        delay_ms = sum([self._delay(one, one.trouble, now_ms) for one in faults if isinstance(one.trouble, Slow)])
        error = self._refusal(faults, operation, path, now_ms)
        if error is not None:
            return Refuse(error, delay_ms)
        return self._proceed(faults, delay_ms) if faults else PROCEED

    def _proceed(self, faults: Sequence[InForce], delay_ms: int) -> Proceed:
        late_ms = max([one.trouble.delay_ms for one in faults if isinstance(one.trouble, Late)], default=0)
        unanswered = any(isinstance(one.trouble, Unanswered) and self._strikes(one, one.trouble) for one in faults)
        return Proceed(delay_ms, late_ms, unanswered) if delay_ms or late_ms or unanswered else PROCEED

    def _refusal(
        self, faults: Sequence[InForce], operation: Operation, path: str | None, now_ms: int
    ) -> NamespaceError | None:
        for one in faults:
            trouble = one.trouble
            if isinstance(trouble, Refusing):
                if self._strikes(one, trouble):
                    return ConditionError(trouble.condition, trouble.text or _because(one, path, "refuses"))
            elif not isinstance(trouble, Busy):
                error = _steady_refusal(one, path)
                if error is not None:
                    return error
        return self._busy_refusal(faults, operation, path, now_ms)

    def _busy_refusal(
        self, faults: Sequence[InForce], operation: Operation, path: str | None, now_ms: int
    ) -> NamespaceError | None:
        buckets = [one.bucket for one in faults if one.bucket is not None]
        for bucket in buckets:
            if not bucket.has_room(now_ms):
                return too_many_operations(_named(path), bucket.per_second)
        refusal = self._throttle.refusal(operation, path, now_ms) if self._throttle is not None else None
        if refusal is None and operation not in ATTACHING:
            for bucket in buckets:
                bucket.take()
        return refusal

    def _delay(self, one: InForce, slow: Slow, now_ms: int) -> int:
        wanted_ms = slow.delay_ms + (int(self._chance() * (slow.jitter_ms + 1)) if slow.jitter_ms else 0)
        return one.in_turn(now_ms + wanted_ms) - now_ms

    def _strikes(self, one: InForce, trouble: Refusing | Unanswered) -> bool:
        if one.left == 0 or (trouble.probability < 1 and self._chance() >= trouble.probability):
            return False
        if one.count_down():
            self._next_ms = 0  # used up: it ends at the next turn
        return True


def _how(one: InForce) -> How | None:
    """How what this fault covers cannot be reached; a restarting namespace has its port closed."""
    match one.trouble:
        case Unreachable(how=how):
            return how
        case Restarting():
            return How.REFUSE
        case _:
            return None


def _cut(faults: Sequence[InForce]) -> Ruling | None:
    hows = {
        how for one in faults if (how := _how(one)) is not None and (one.scope.is_namespace or how is not How.REFUSE)
    }
    if not hows:
        return None
    return Silence() if hows == {How.SILENT} else Drop()


def _steady_refusal(one: InForce, path: str | None) -> NamespaceError | None:
    match one.trouble:
        case NoSend():
            return InternalError(_because(one, path, "cannot be sent to"))
        case NoReceive():
            return InternalError(_because(one, path, "cannot be received from"))
        case NoManage():
            return InternalError(_because(one, path, "cannot be managed"))
        case Restarting():
            return InternalError(_because(one, path, "is restarting"))
        case Unreachable():
            return ConditionError("amqp:link:detach-forced", _because(one, path, "cannot be reached"))
        case _:
            return None


def _because(one: InForce, path: str | None, what: str) -> str:
    return f"{_named(path)} {what} (fault {one.id})"


def _named(path: str | None) -> str:
    return "the namespace" if path is None else f"'{path}'"
