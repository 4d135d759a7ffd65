"""The faults in force, and what they make of an operation.

No clock, no randomness, no I/O: time comes with every call, chance as a function. If several faults affect one
operation:

1. an outage comes first: a reset connection (`Drop`) before silence, silence before everything else;
2. of those that refuse, the one that was added first decides, `busy` only if no other refuses, and the namespace's own
   throttle last;
3. delays of `slow` add up, and a refusal takes as long as an acceptance would;
4. of several `late` the longest counts, and one `unanswered` is enough.

A refused operation uses up no count of `unanswered`, and one that another fault refuses none of `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from twinbus.broker.faults.catalogue import KINDS, RESTART, Fault
from twinbus.broker.faults.decisions import PROCEED, Drop, FaultDecision, Ignore, Proceed, Refuse
from twinbus.broker.faults.effects import (
    ATTACHING,
    Busy,
    Late,
    NoManage,
    NoReceive,
    NoSend,
    OutageEffect,
    OutageMode,
    Refusing,
    Restarting,
    Slow,
    Unanswered,
)
from twinbus.broker.faults.scope import MANAGEMENT_SUFFIX, entity_of, topic_of
from twinbus.broker.faults.throttle import Bucket, Throttle, too_many_operations
from twinbus.broker.operations import Operation
from twinbus.errors import ConditionError, InternalError, NamespaceError, TwinbusError
from twinbus.units import short_duration

NEVER_MS = 2**63


class ActiveFault:
    """A fault in force, with its current phase."""

    def __init__(self, fault_id: str, fault: Fault, now_ms: int) -> None:
        self.id = fault_id
        self.fault = fault
        self.scope = fault.scope
        self.covers = fault.scope.compile()
        self.since_ms = now_ms
        self._next_phases = list(fault.phases())
        self._last_due_ms = 0
        self._start_phase(now_ms)

    def _start_phase(self, now_ms: int) -> None:
        length_ms, effect = self._next_phases.pop(0)
        self.effect = effect
        self.affects = effect.affects
        self.until_ms = NEVER_MS if length_ms is None else now_ms + length_ms
        self.left = effect.count if isinstance(effect, Refusing | Unanswered) else None
        """How often it may still apply; None: no limit."""
        self.bucket = Bucket(effect.per_second, now_ms) if isinstance(effect, Busy) else None

    def advance(self, now_ms: int) -> bool:
        """Move to the current phase; False if the fault is over."""
        while now_ms >= self.until_ms:
            if not self._next_phases:
                return False
            self._start_phase(self.until_ms)
        return self.left != 0

    def in_order(self, due_ms: int) -> int:
        """`due_ms`, or later if something before it is due later: order is kept."""
        self._last_due_ms = max(self._last_due_ms, due_ms)
        return self._last_due_ms

    def ends_ms(self) -> int | None:
        """When the last phase ends; None: only when cleared or used up."""
        if self.until_ms == NEVER_MS:
            return None
        return self.until_ms + sum(phase.length_ms or 0 for phase in self._next_phases)

    def to_values(self, now_ms: int) -> dict[str, Any]:
        """Everything about it as plain values; `text` is for people."""
        ends_ms = self.ends_ms()
        left_ms = None if ends_ms is None else max(0, ends_ms - now_ms)
        return {
            "id": self.id,
            **self.fault.to_values(),
            "since_ms": self.since_ms,
            "left_ms": left_ms,
            "strikes_left": self.left,
            "text": f"{self.scope}: {self._meaning()}, {self._rest(left_ms)}",
        }

    def _meaning(self) -> str:
        if self.fault.kind != RESTART:
            return KINDS[self.fault.kind].meaning
        return "restarting" if isinstance(self.effect, Restarting) else "slow after a restart"

    def _rest(self, left_ms: int | None) -> str:
        rest = "until cleared" if left_ms is None else f"{short_duration(left_ms)} left"
        return rest if self.left is None else f"{self.left} times, {rest}"


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
"""What a management request does besides managing: e.g. `no-send` also refuses to schedule."""


class FaultTable:
    def __init__(self, chance: Callable[[], float], throttle: Throttle | None = None) -> None:
        """`chance` returns numbers from 0 up to, not including, 1."""
        self._chance = chance
        self._throttle = throttle if throttle is not None and throttle.limits.limits_operations else None
        self._faults: list[ActiveFault] = []
        self._affecting: dict[Operation, tuple[ActiveFault, ...]] = {}
        self._next_ms = NEVER_MS
        self._added = 0
        self.version = 0
        """Grows with every change of the faults."""
        self.is_quiet = self._throttle is None
        """No faults and no throttle: `decide` need not be called."""

    # --- what is in force ---

    def add(self, fault: Fault, now_ms: int) -> ActiveFault:
        """Put a fault in force from now on; raises `TwinbusError` if there are too many."""
        self.advance(now_ms)
        if len(self._faults) >= FAULTS_MAX:
            raise TwinbusError(f"there are {FAULTS_MAX} faults already: clear some first")
        self._added += 1
        added = ActiveFault(f"{fault.kind}-{self._added}", fault, now_ms)
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

    def active(self, now_ms: int) -> list[ActiveFault]:
        """The faults in force, the oldest first."""
        self.advance(now_ms)
        return list(self._faults)

    def advance(self, now_ms: int) -> None:
        """End faults whose time is over, and move others to their next phase."""
        if now_ms < self._next_ms:
            return
        self._faults = [one for one in self._faults if one.advance(now_ms)]
        self._changed()

    def next_change_ms(self) -> int | None:
        """When to call `advance`; None: not before a fault is added."""
        return None if self._next_ms == NEVER_MS else self._next_ms

    def outage(self) -> OutageMode | None:
        """How the port fails, by the faults in force at the last `advance`; None: it does not."""
        modes = {_outage_mode(one) for one in self._affecting.get(Operation.CONNECT, ()) if one.scope.is_namespace}
        return next((how for how in OutageMode if how in modes), None)

    def _changed(self) -> None:
        self.version += 1
        self._affecting = {
            operation: tuple(one for one in self._faults if operation in one.affects) for operation in Operation
        }
        self._next_ms = min((one.until_ms for one in self._faults), default=NEVER_MS)
        self.is_quiet = not self._faults and self._throttle is None

    # --- what becomes of an operation ---

    def decide(self, operation: Operation, path: str | None, now_ms: int) -> FaultDecision:
        """Decide on an operation on an entity, or with None on the namespace. It counts: call once for each.

        A link to an entity's management node can always be attached, except in an outage.
        """
        self.advance(now_ms)
        if path is not None and operation in ATTACHING and path.lower().endswith(MANAGEMENT_SUFFIX):
            operation = Operation.CONNECT
        return self._decide(self._affecting.get(operation, ()), operation, path, now_ms)

    def decide_request(self, operation_name: str, path: str, now_ms: int) -> FaultDecision:
        """Decide on a management request for an entity."""
        self.advance(now_ms)
        meaning = REQUEST_MEANINGS.get(operation_name, Operation.MANAGE)
        concerned = (Operation.MANAGE, meaning)
        affecting = tuple([one for one in self._faults if any(operation in one.affects for operation in concerned)])
        return self._decide(affecting, Operation.MANAGE, path, now_ms)

    def copy_delays(self, now_ms: int) -> Callable[[str], int] | None:
        """By subscription path: the delay of copies of a topic's messages; None: no copy is delayed.

        A fault that covers the topic does not count: it delayed the message when it was sent.
        """
        if not self._faults:
            return None
        self.advance(now_ms)
        late = [
            (one.covers, one.effect.delay_ms)
            for one in self._faults
            if isinstance(one.effect, Late) and not one.scope.is_namespace
        ]
        if not late:
            return None

        def delay_ms(path: str) -> int:
            entity = entity_of(path)
            topic = topic_of(entity)
            return max([delay_ms for covers, delay_ms in late if covers(entity) and not covers(topic)], default=0)

        return delay_ms

    def _decide(
        self, affecting: Sequence[ActiveFault], operation: Operation, path: str | None, now_ms: int
    ) -> FaultDecision:
        entity = None if path is None else entity_of(path)
        faults = [one for one in affecting if one.covers(entity)]
        if faults:
            cut = _outage_decision(faults)
            if cut is not None:
                return cut
        elif self._throttle is None:
            return PROCEED
        delay_ms = sum([self._delay(one, one.effect, now_ms) for one in faults if isinstance(one.effect, Slow)])
        error = self._refusal(faults, operation, path, now_ms)
        if error is not None:
            return Refuse(error, delay_ms)
        return self._proceed(faults, delay_ms) if faults else PROCEED

    def _proceed(self, faults: Sequence[ActiveFault], delay_ms: int) -> Proceed:
        late_ms = max([one.effect.delay_ms for one in faults if isinstance(one.effect, Late)], default=0)
        unanswered = any(isinstance(one.effect, Unanswered) and self._applies(one, one.effect) for one in faults)
        return Proceed(delay_ms, late_ms, unanswered) if delay_ms or late_ms or unanswered else PROCEED

    def _refusal(
        self, faults: Sequence[ActiveFault], operation: Operation, path: str | None, now_ms: int
    ) -> NamespaceError | None:
        for one in faults:
            effect = one.effect
            if isinstance(effect, Refusing):
                if self._applies(one, effect):
                    return ConditionError(effect.condition, effect.text or _reason(one, path, "refuses"))
            elif not isinstance(effect, Busy):
                error = _steady_refusal(one, path)
                if error is not None:
                    return error
        return self._busy_refusal(faults, operation, path, now_ms)

    def _busy_refusal(
        self, faults: Sequence[ActiveFault], operation: Operation, path: str | None, now_ms: int
    ) -> NamespaceError | None:
        buckets = [one.bucket for one in faults if one.bucket is not None]
        for bucket in buckets:
            if not bucket.has_room(now_ms):
                return too_many_operations(_name_of(path), bucket.per_second)
        refusal = self._throttle.refusal(operation, path, now_ms) if self._throttle is not None else None
        if refusal is None and operation not in ATTACHING:
            for bucket in buckets:
                bucket.take()
        return refusal

    def _delay(self, one: ActiveFault, slow: Slow, now_ms: int) -> int:
        wanted_ms = slow.delay_ms + (int(self._chance() * (slow.jitter_ms + 1)) if slow.jitter_ms else 0)
        return one.in_order(now_ms + wanted_ms) - now_ms

    def _applies(self, one: ActiveFault, effect: Refusing | Unanswered) -> bool:
        if one.left == 0 or (effect.probability < 1 and self._chance() >= effect.probability):
            return False
        if one.left is not None:
            one.left -= 1
            if one.left == 0:
                self._next_ms = 0  # used up: it ends with the next `advance`
        return True


def _outage_mode(one: ActiveFault) -> OutageMode | None:
    """The outage of a fault, if it is one; while restarting, the port is closed."""
    match one.effect:
        case OutageEffect(how=how):
            return how
        case Restarting():
            return OutageMode.REFUSE
        case NoSend() | NoReceive() | NoManage() | Refusing() | Busy() | Slow() | Late() | Unanswered():
            return None
        case _:
            assert_never(one.effect)


def _outage_decision(faults: Sequence[ActiveFault]) -> FaultDecision | None:
    modes = {
        how
        for one in faults
        if (how := _outage_mode(one)) is not None and (one.scope.is_namespace or how is not OutageMode.REFUSE)
    }
    if not modes:
        return None
    return Ignore() if modes == {OutageMode.SILENT} else Drop()


def _steady_refusal(one: ActiveFault, path: str | None) -> NamespaceError | None:
    match one.effect:
        case NoSend():
            return InternalError(_reason(one, path, "cannot be sent to"))
        case NoReceive():
            return InternalError(_reason(one, path, "cannot be received from"))
        case NoManage():
            return InternalError(_reason(one, path, "cannot be managed"))
        case Restarting():
            return InternalError(_reason(one, path, "is restarting"))
        case OutageEffect():
            return ConditionError("amqp:link:detach-forced", _reason(one, path, "cannot be reached"))
        case Refusing() | Busy() | Slow() | Late() | Unanswered():
            return None
        case _:
            assert_never(one.effect)


def _reason(one: ActiveFault, path: str | None, what: str) -> str:
    return f"{_name_of(path)} {what} (fault {one.id})"


def _name_of(path: str | None) -> str:
    return "the namespace" if path is None else f"'{path}'"
