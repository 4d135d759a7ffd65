"""Transactions beside a model that is too simple to be wrong: sets of names, and who has which.

Commits are immediate here; what happens while they are slow or fail is the simulator's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from namespace_harness import QUEUE, SECOND_MS, NamespaceHarness, arrival, names
from seeds import examples

from twinbus.broker.core.commands import (
    BeginTransaction,
    CloseReceiver,
    EndTransaction,
    Enlist,
    SendMessages,
    SettleMessages,
)
from twinbus.broker.core.transactions import MESSAGES_MAX, TRANSACTION_MS
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Abandon, Complete, Done, Refused, Settled
from twinbus.errors import NotAllowed, QuotaExceeded, TransactionRolledBack, UnknownTransaction

LOCK_MS = 50 * SECOND_MS


@dataclass
class Draft:
    """What a transaction would do."""

    adds: list[str] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    ends_ms: int | None = None


class TransactionsBesideModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = NamespaceHarness(QueueSettings(lock_ms=LOCK_MS, max_delivery_count=1_000))
        self.stored: list[str] = []
        self.locks: dict[str, tuple[bytes, int]] = {}
        """By message: the token, and when it ends."""
        self.drafts: dict[int, Draft] = {}
        self.count = 0

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _holder(self, name: str) -> int | None:
        return next((number for number, draft in self.drafts.items() if name in draft.removes), None)

    @precondition(lambda self: len(self.drafts) < 3)
    @rule()
    def begin(self) -> None:
        number = self._next()
        assert self.real.ask(BeginTransaction(number)) == Done()
        self.drafts[number] = Draft()

    @precondition(lambda self: self.drafts)
    @rule(data=st.data(), size=st.sampled_from((1, 2, 60)))
    def send(self, data: st.DataObject, size: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.drafts)))
        draft, sent = self.drafts[number], [f"m{self._next()}" for _ in range(size)]
        reply = self.real.ask(Enlist(number, SendMessages(QUEUE, tuple(map(arrival, sent)))))
        if len(draft.adds) + size > MESSAGES_MAX:
            assert isinstance(reply, Refused)
            assert isinstance(reply.error, QuotaExceeded)
            return
        assert reply == Done()
        draft.adds += sent
        self._begin_time(draft)

    def _begin_time(self, draft: Draft) -> None:
        draft.ends_ms = draft.ends_ms or self.real.now_ms + TRANSACTION_MS

    @rule()
    def receive(self) -> None:
        free = [name for name in self.stored if name not in self.locks]
        delivered = self.real.receive(2)
        self.real.do(CloseReceiver(self.real.last_receiver))
        assert names(delivered) == free[:2]
        for each in delivered:
            self.locks[each.row.message_id or ""] = (each.token or b"", self.real.now_ms + LOCK_MS)

    @precondition(lambda self: self.drafts and self.locks)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        number, name = data.draw(st.sampled_from(sorted(self.drafts))), data.draw(st.sampled_from(sorted(self.locks)))
        token, holder = self.locks[name][0], self._holder(name)
        reply = self.real.ask(Enlist(number, SettleMessages(QUEUE, (token,), Complete())))
        assert isinstance(reply, Settled)
        self._begin_time(self.drafts[number])
        if holder is None:
            assert reply == Settled({})
            self.drafts[number].removes.append(name)
        else:
            assert isinstance(reply.failures[token], NotAllowed)

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.locks)))
        token = self.locks[name][0]
        reply = self.real.ask(SettleMessages(QUEUE, (token,), Abandon()))
        assert isinstance(reply, Settled)
        if self._holder(name) is None:
            assert reply == Settled({})
            del self.locks[name]
        else:
            assert isinstance(reply.failures[token], NotAllowed)

    @precondition(lambda self: self.drafts)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.drafts)))
        draft = self.drafts.pop(number)
        reply = self.real.ask(EndTransaction(number, commits))
        if not commits:
            assert reply == Done()
        elif any(name not in self.locks for name in draft.removes):
            assert isinstance(reply, Refused)
            assert isinstance(reply.error, TransactionRolledBack)
        else:
            assert reply == Done()
            self.stored = [name for name in self.stored if name not in draft.removes] + draft.adds
            for name in draft.removes:
                del self.locks[name]

    @rule()
    def end_one_that_is_not_there(self) -> None:
        assert isinstance(self.real.refusal(EndTransaction(0, True)), UnknownTransaction)

    @rule(by_ms=st.sampled_from((1, 30 * SECOND_MS, LOCK_MS, TRANSACTION_MS)))
    def pass_time(self, by_ms: int) -> None:
        self.real.pass_time(by_ms)
        now_ms = self.real.now_ms
        for number in [number for number, draft in self.drafts.items() if (draft.ends_ms or now_ms + 1) <= now_ms]:
            del self.drafts[number]
        ended = [name for name, (_, until_ms) in self.locks.items() if until_ms <= now_ms]
        for name in ended:
            del self.locks[name]
            for draft in self.drafts.values():
                if name in draft.removes:  # it cannot be committed any more, whoever has the message next
                    draft.removes = [f"{name} is lost" if each == name else each for each in draft.removes]

    @invariant()
    def everybody_sees_what_was_committed(self) -> None:
        found = names(self.real.peek(most=250))
        assert found == self.stored[:250]
        assert len(self.real.gate.machine.transactions) == len(self.drafts)


TestTransactionsBesideModel = TransactionsBesideModel.TestCase
TestTransactionsBesideModel.settings = settings(max_examples=examples(150, 30), stateful_step_count=30, deadline=None)
