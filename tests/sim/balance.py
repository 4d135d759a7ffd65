"""What the disk holds, beside what clients were answered.

After a crash some questions have no answer and never will; what became of them is read from the disk, where
each must have happened whole or not at all. Then, as whenever the namespace is at rest, every message that
is promised must be there once, and every row must be a promised message.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.accounts import Account, Accounts, Answer, Ending, Home, Question
from sim.disk import Disk
from sim.invariants import MARK, Invariants, check, note_of, possible_failures
from twinbus.broker.core.commands import (
    CancelScheduled,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    ReceiveDeferred,
    SendMessages,
    SettleMessages,
)
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.operations import Complete, DeadLetter, ReceiveMode
from twinbus.broker.store.api import MessageRow, MessageState


class Balance:
    def __init__(self, accounts: Accounts, invariants: Invariants, disk: Disk) -> None:
        self._accounts = accounts
        self._invariants = invariants
        self._disk = disk
        self._paths: dict[int, str] = {}

    def _read(self) -> list[MessageRow]:
        self._paths = {entity_id: entity.path for entity_id, entity in self._disk.entities().items()}
        return list(self._disk.all_rows())

    # --- after a crash ---

    def resolve(self, removed_unseen: Iterable[MessageRow], now_ms: int) -> None:
        """Enter what a crash left unanswered, as the disk has it.

        `removed_unseen` are rows whose removal became durable without anybody learning of it. A message that was to
        be handed out and deleted may be among them: that is the price of this way of receiving.
        """
        by_id = {key: row for row in self._read() for key in self._keys_of(row)}
        for question in self._accounts.questions.values():
            self._resolve_question(question, by_id, now_ms)
        self._accounts.questions.clear()
        deleting = {
            reader.home for reader in self._accounts.readers.values() if reader.mode is ReceiveMode.RECEIVE_AND_DELETE
        }
        for row in removed_unseen:
            account = self._accounts.by_key.get(self._key_of(row))
            if account is not None and account.home in deleting and account.is_stored and account.key not in by_id:
                if account.expires_at_ms is None or account.expires_at_ms > now_ms:
                    self._invariants.seen["lost in hand-over"] += 1
                account.ending = Ending.HANDED_OUT

    def _resolve_question(self, question: Question, by_id: dict[str, MessageRow], now_ms: int) -> None:
        self._invariants.seen["in doubt"] += 1
        command, home = question.command, question.home
        accounts = question.accounts
        present = [account.key in by_id for account in accounts]
        match command:
            case SendMessages():
                self._resolve_send(accounts, by_id)
            case CancelScheduled() if len(set(command.sequences)) == len(accounts):
                self._end_absent(question, present, Ending.CANCELLED, now_ms)
            case ReceiveDeferred(mode=ReceiveMode.RECEIVE_AND_DELETE):
                self._end_absent(question, present, Ending.HANDED_OUT, now_ms)
            case SettleMessages(outcome=outcome):
                for account in question.tokens.values():
                    if isinstance(outcome, Complete) and account.key not in by_id:
                        account.ending = Ending.COMPLETED
                    elif not isinstance(outcome, Complete):
                        self._doubt(account, outcome, by_id.get(account.key))
            case CreateQueue() | CreateTopic() | CreateSubscription() | DeleteEntity() if home is not None:
                self._resolve_home(home)

    def _keys_of(self, row: MessageRow) -> list[str]:
        """Of which accounts a row is; one in line in a topic is of all copies that will be made of it."""
        if not self._is_in_line(row):
            return [self._key_of(row)]
        return [account.key for account in self._copies_of(row)]

    def _is_in_line(self, row: MessageRow) -> bool:
        topic = self._accounts.topic
        return topic is not None and self._disk.paths[row.entity_id] == topic.path

    def _copies_of(self, row: MessageRow) -> list[Account]:
        return [each for each in self._accounts.by_key.values() if each.message_id == row.message_id]

    def _key_of(self, row: MessageRow) -> str:
        path = self._disk.paths[row.entity_id].removesuffix(DEAD_LETTER_SUFFIX)
        return f"{row.message_id}@{path}"

    def _resolve_send(self, accounts: tuple[Account, ...], by_id: dict[str, MessageRow]) -> None:
        """All of it is there or nothing; what was for a subscription that was removed since, is unknown."""
        known = [account for account in accounts if account.home.path in self._paths.values()]
        present = [account.key in by_id for account in known]
        self._check_whole("a send", present)
        for account in accounts:
            account.answer = Answer.STORED if account not in known or present[0] else Answer.REFUSED

    def _check_whole(self, what: str, present: list[bool]) -> None:
        check(all(present) or not any(present), f"{what} was written in part: {present}")

    def _end_absent(self, question: Question, present: list[bool], ending: Ending, now_ms: int) -> None:
        others = [each for each in self._accounts.questions.values() if each is not question]
        elsewhere = {account for each in others for account in (*each.accounts, *each.tokens.values())}
        waiting = [
            is_there
            for account, is_there in zip(question.accounts, present, strict=True)
            if account.is_stored and account not in elsewhere and not (account.due_at_ms or now_ms + 1) <= now_ms
        ]
        self._check_whole(f"what was to be {ending.value}", waiting)
        for account, is_there in zip(question.accounts, present, strict=True):
            if account.is_stored and not is_there:
                account.ending = ending

    def _doubt(self, account: Account, outcome: object, row: MessageRow | None) -> None:
        properties = getattr(outcome, "properties", None) or {}
        if MARK in properties:
            account.marks = {*account.marks, properties[MARK]}
        if isinstance(outcome, DeadLetter):
            account.dead_letter_asked = row is not None and self._is_dead(row)

    def _resolve_home(self, home: Home) -> None:
        home.exists = home.in_force = home.path in self._paths.values()
        if not home.exists:
            home.is_gone = True
            for account in self._accounts.of(home):
                account.ending = account.ending or Ending.DROPPED

    # --- at rest ---

    def compare(self, now_ms: int) -> None:
        """Every promised message is there once, as promised; nothing else is."""
        seen: set[str] = set()
        for row in self._read():
            if self._is_in_line(row):
                self._check_in_line(row, seen)
                continue
            account = self._account_of(row)
            check(account.key not in seen, f"message {account.message_id} is stored twice")
            seen.add(account.key)
            self._check_row(account, row, now_ms)
        for account in self._accounts.by_key.values():
            if account.is_stored and account.key not in seen:
                self._check_absent(account, now_ms)

    def _check_in_line(self, row: MessageRow, seen: set[str]) -> None:
        """What is in line is nowhere else, and nobody was answered that it is not stored."""
        self._invariants.seen["in line"] += 1
        for account in self._copies_of(row):
            check(account.key not in seen, f"message {account.message_id} is in line and handed on")
            check(account.answer is Answer.STORED, f"{account.message_id} is in line and {account.answer.value}")
            seen.add(account.key)

    def _account_of(self, row: MessageRow) -> Account:
        path = self._paths[row.entity_id]
        home = self._accounts.homes[path.removesuffix(DEAD_LETTER_SUFFIX)]
        return self._invariants.known(row, home, self._is_dead(row))

    def _is_dead(self, row: MessageRow) -> bool:
        return self._paths[row.entity_id].endswith(DEAD_LETTER_SUFFIX)

    def _check_row(self, account: Account, row: MessageRow, now_ms: int) -> None:
        name = f"message {account.message_id}"
        failures = possible_failures(account, self._accounts.life, now_ms)
        check(row.delivery_count in failures, f"{name} is stored with {row.delivery_count} failures, not {failures}")
        mark = note_of(row.payload)[0]
        check(mark in account.marks, f"{name} is stored with the mark {mark}, not {account.marks}")
        if account.deferred_as is not None:
            is_so = row.state is MessageState.DEFERRED and row.sequence == account.deferred_as
            check(is_so, f"{name} was deferred as {account.deferred_as} and is {row.state.name} {row.sequence}")
        elif account.lock is None and row.state is MessageState.DEFERRED:
            account.deferred_as = row.sequence  # its deferral was written though nobody heard of it
        if account.lock is None:
            account.failures, account.marks = {row.delivery_count}, {mark}

    def _check_absent(self, account: Account, now_ms: int) -> None:
        name, expires_at_ms = f"message {account.message_id}", account.expires_at_ms
        is_over = expires_at_ms is not None and expires_at_ms <= now_ms
        is_kept = account.is_dead or account.deferred_as is not None or account.home.settings.dead_letter_on_expiration
        check(is_over and not is_kept, f"{name} was acknowledged and is lost")
        check(not account.is_locked(self._accounts.life, now_ms), f"{name} expired while it was locked")
        self._accounts.give_back(account)
        account.ending = Ending.EXPIRED
        self._invariants.seen["expired"] += 1
