"""One connection's fault gate: every operation passes it, and faults stop some.

Without faults it is one look at a flag. With them, an operation may be refused, answered late, never answered, or
cost the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from twinbus.broker.faults.decisions import PROCEED, DelayedActions, Drop, FaultDecision, Ignore, Proceed, Refuse
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.operations import Operation
from twinbus.errors import NamespaceError, ServerBusy


class FaultGate:
    def __init__(
        self,
        faults: FaultTable,
        delayed: DelayedActions,
        drop: Callable[[], None],
        on_busy: Callable[[str, NamespaceError], None],
    ) -> None:
        """`drop` cuts the connection without a word; `on_busy` is called for operations that are throttled."""
        self._faults = faults
        self._delayed = delayed
        self.drop = drop
        self._on_busy = on_busy
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """No fault is in force: no decision is needed."""
        return self._faults.is_quiet

    def decide(self, operation: Operation, path: str, now_ms: int) -> FaultDecision:
        return PROCEED if self.is_open else self._report_busy(path, self._faults.decide(operation, path, now_ms))

    def decide_request(self, name: str, path: str, now_ms: int) -> FaultDecision:
        return PROCEED if self.is_open else self._report_busy(path, self._faults.decide_request(name, path, now_ms))

    def _report_busy(self, path: str, decision: FaultDecision) -> FaultDecision:
        if isinstance(decision, Refuse) and isinstance(decision.error, ServerBusy):
            self._on_busy(path, decision.error)
        return decision

    def apply(
        self,
        decision: FaultDecision,
        now_ms: int,
        proceed: Callable[[], None],
        refuse: Callable[[NamespaceError], None],
    ) -> None:
        """Proceed, refuse, or leave the peer without an answer, as was decided; late if so decided."""
        match decision:
            case Proceed(delay_ms=delay_ms):
                self.call_later(delay_ms, now_ms, proceed)
            case Refuse(error=error, delay_ms=delay_ms):
                self.call_later(delay_ms, now_ms, partial(refuse, error))
            case Drop():
                self.drop()
            case Ignore():
                pass
            case _:
                assert_never(decision)

    def call_later(self, delay_ms: int, now_ms: int, action: Callable[[], None]) -> None:
        """Call after a delay, at once if there is none; not at all if the peer is gone by then."""
        if delay_ms <= 0 or not self._delayed.put(now_ms + delay_ms, partial(self._call, action)):
            action()

    def _call(self, action: Callable[[], None]) -> None:
        if not self._is_closed:
            action()

    def close(self) -> None:
        """The peer is gone: nothing that was delayed for it is done any more."""
        self._is_closed = True
