"""A namespace of a simulated pair that lends messages too: receivers, locks that end, looks into its queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.pair_namespace import SimulatedNamespace
from twinbus.broker.core.commands import CloseReceiver, Command, Grant, Tick
from twinbus.broker.core.replies import Delivery, Notice, Reply
from twinbus.broker.operations import ReceiverLost, Refused

Lent = Callable[[Delivery], None]
Lost = Callable[[], None]


class LendingNamespace(SimulatedNamespace):
    def _boot(self) -> None:
        self._readers: dict[int, tuple[Lent, Lost]] = {}
        self._wake_ms: int | None = None
        super()._boot()

    # --- receivers ---

    def attach(self, receiver: int, command: Any, lent: Lent, lost: Lost) -> None:
        """Open a receiver; `lent` gets what it is lent, `lost` is called once if it ends by itself."""
        self._readers[receiver] = (lent, lost)
        self.inquire(command, lambda reply: self._opened(receiver, reply))

    def _opened(self, receiver: int, reply: Reply) -> None:
        if isinstance(reply, Refused) and receiver in self._readers:
            self._readers.pop(receiver)[1]()

    def detach(self, receiver: int) -> None:
        """The receiver is gone. What it was lent stays locked."""
        if self._readers.pop(receiver, None) is not None and self.is_well:
            self.do(CloseReceiver(receiver))

    def grant(self, receiver: int, credit_limit: int) -> None:
        if receiver in self._readers:
            self.do(Grant(receiver, credit_limit))

    @property
    def is_well(self) -> bool:
        return self.is_up and self._gate.failure is None

    # --- asking ---

    def inquire(self, command: Any, answer: Callable[[Any], None]) -> None:
        """As `ask`, for whatever kind of answer; there is none if the process dies."""
        gate = self._gate
        gate.ask(command, self._loop.now_ms, lambda reply: answer(reply) if gate is self._gate else None)
        self._write_soon()

    def do(self, command: Command[object]) -> None:
        self._gate.do(command, self._loop.now_ms)
        self._write_soon()

    def _write_soon(self) -> None:
        self._commit_soon()
        if not self._is_committing and not self._store.is_idle:
            self._is_committing = True
            store = self._store
            self._loop.call_in(self._random.random() * self._commit_s, lambda: self._commit(store))
        self._set_alarm()

    def _commit(self, store: Any) -> None:
        super()._commit(store)
        self._set_alarm()

    def _take(self, notice: Notice) -> None:
        if isinstance(notice, Delivery) and notice.receiver in self._readers:
            self._readers[notice.receiver][0](notice)
        elif isinstance(notice, ReceiverLost) and notice.receiver in self._readers:
            self._readers.pop(notice.receiver)[1]()

    # --- time and trouble ---

    def _set_alarm(self) -> None:
        """Locks end and messages expire by themselves."""
        wake_ms = self._gate.next_wake_ms() if self.is_well else None
        if wake_ms is None or (self._wake_ms is not None and self._wake_ms <= wake_ms):
            return
        self._wake_ms = wake_ms
        gate = self._gate
        self._loop.call_in(max(0, wake_ms - self._loop.now_ms) / 1000 + 0.001, lambda: self._ring(gate, wake_ms))

    def _ring(self, gate: Any, wake_ms: int) -> None:
        if self._wake_ms == wake_ms:
            self._wake_ms = None
        if gate is self._gate and self.is_well:
            self.do(Tick())

    def crash(self) -> None:
        super().crash()
        self._lose_readers()

    def _store_failed(self, reason: str) -> None:
        super()._store_failed(reason)
        self._loop.call_in(0, self._lose_readers)

    def _recover(self) -> None:
        super()._recover()
        self._wake_ms = None
        self._set_alarm()

    def _lose_readers(self) -> None:
        readers, self._readers = self._readers, {}
        for _, lost in readers.values():
            lost()
