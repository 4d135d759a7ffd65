"""What must be true whenever a client sees a message, whatever the disk does.

Each delivery is held against the accounts, then entered into them. The first one that does not fit ends the
simulation with a `Violation`, whose text says what a user would have seen. `answers.py` does the same for
answers to commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sim.accounts import Account, Accounts, Answer, Ending, Home, Lock, Reader, key_of
from twinbus.amqp.message import sections
from twinbus.broker.core.replies import Delivery
from twinbus.broker.operations import ReceiveMode, ReceiverDrained, ReceiverLost
from twinbus.broker.store.api import MessageRow, MessageState

MARK = "mark"


class Violation(Exception):
    """A promise is broken."""


def check(holds: bool, problem: str) -> None:
    if not holds:
        raise Violation(problem)


def note_of(payload: bytes) -> tuple[int | None, str | None]:
    """The mark a receiver left on a message, and why it was dead-lettered."""
    properties = sections.read_application_properties(payload, sections.walk(payload))
    return properties.get(MARK), properties.get("DeadLetterReason")


def possible_failures(account: Account, life: int, now_ms: int) -> set[int]:
    """What the stored delivery count may be."""
    lock = account.lock
    if lock is None or lock.life != life or lock.asked is not None or lock.until_ms > now_ms:
        return account.failures
    return {lock.failures, lock.failures + 1}


class Invariants:
    def __init__(self, accounts: Accounts, now: Callable[[], int], locked_bytes_max: int) -> None:
        self._accounts = accounts
        self._now = now
        self._locked_bytes_max = locked_bytes_max
        self.seen: Counter[str] = Counter()
        """How often what happened, to show that a simulation is not about nothing."""

    def take(self, reply: Delivery | ReceiverDrained | ReceiverLost) -> None:
        """Check what a receiver gets, and enter it."""
        self.seen[type(reply).__name__] += 1
        match reply:
            case Delivery():
                self._delivered(reply)
            case ReceiverDrained(receiver):
                self._drained(self._accounts.readers[receiver])
            case ReceiverLost(receiver):
                reader = self._accounts.readers[receiver]
                is_late = reader.session is not None and reader.locked_until_ms <= self._now()
                check(is_late or not reader.home.exists, f"receiver {receiver} lost a queue that exists")
                self.seen["sessions lost"] += is_late
                reader.is_open = False

    # --- receivers ---

    def _delivered(self, delivery: Delivery) -> None:
        reader, row = self._accounts.readers.get(delivery.receiver), delivery.row
        if reader is None:
            raise Violation(f"message {row.message_id} was delivered to a receiver of an earlier life")
        reader.received += 1
        check(reader.received <= reader.credit_limit_max, f"receiver {reader.name} got more than its credit")
        if delivery.token is not None:  # one that is deleted first may have been on its way already
            check(reader.is_open, f"closed receiver {reader.name} got a message")
            check(not reader.is_paused, f"paused receiver {reader.name} got a message")
        check((delivery.token is None) is (reader.mode is ReceiveMode.RECEIVE_AND_DELETE), "wrong mode of delivery")
        check(row.state is MessageState.ACTIVE, f"message {row.message_id} was delivered while {row.state.name}")
        held = self._accounts.held_bytes(reader.name, self._now())
        check(held < self._locked_bytes_max, f"receiver {reader.name} got more though it holds {held} bytes")
        if reader.home.has_sessions and not reader.is_dead:
            self.seen["in sessions"] += 1
            check(row.session_id == reader.session, f"receiver {reader.name} got a message of another session")
            is_locked = delivery.token is None or reader.has_session(self._now())
            check(is_locked, f"receiver {reader.name} got a message though its lock had ended")
        account = self.handed(
            row, reader.home, reader.is_dead, delivery.token, delivery.locked_until_ms, receiver=reader.name
        )
        self._check_order(account, reader, row)

    def _check_order(self, account: Account, reader: Reader, row: MessageRow) -> None:
        """Messages that were not lent before in this life reach a receiver by ascending sequence."""
        if account.delivered_in_life != self._accounts.life:
            account.delivered_in_life = self._accounts.life
            check(
                row.sequence > reader.last_fresh_sequence,
                f"receiver {reader.name} got {row.sequence} after {reader.last_fresh_sequence}",
            )
            reader.last_fresh_sequence = row.sequence
            if reader.session is not None:
                self._check_first(account, row)

    def _check_first(self, account: Account, row: MessageRow) -> None:
        """A session is received from its beginning: nothing that could be had is passed over."""
        for other in self._accounts.of(account.home):
            is_waiting = other.is_stored and not other.is_dead and other.delivered_in_life != self._accounts.life
            is_plain = other.due_at_ms is None and other.ttl_ms is None and other.deferred_as is None
            if is_waiting and is_plain and other.session == account.session:
                check(
                    not 0 < other.sequence < row.sequence,
                    f"message {account.message_id} overtook {other.message_id} in session {account.session!r}",
                )

    def _drained(self, reader: Reader) -> None:
        check(reader.is_draining, f"receiver {reader.name} was drained without asking")
        reader.is_draining = False
        reader.received = reader.credit_limit_max = max(reader.received, reader.credit_limit)

    # --- messages ---

    def known(self, row: MessageRow, home: Home, is_dead: bool) -> Account:
        """The account of a message that a client sees, which it may only if it is stored."""
        account = self._accounts.by_key.get(key_of(row.message_id, home))
        if account is None:
            raise Violation(f"a message appeared that nobody sent there: {row.message_id} in {home.path}")
        name = f"message {account.message_id}"
        check(account.home is home, f"{name} appeared in another life of its queue")
        check(account.answer is Answer.STORED, f"{name} was seen though its sender was told {account.answer.value}")
        check(account.ending is None, f"{name} came back though it was {account.ending and account.ending.value}")
        check(account.message_id.encode() in row.payload, f"{name} has another message's payload")
        owner = home.owners.setdefault((is_dead, row.sequence), account.message_id)
        check(owner == account.message_id, f"{name} has sequence {row.sequence}, which was {owner}'s")
        if is_dead and not account.is_dead:
            self._check_reason(account, row)
            account.is_dead, account.deferred_as = True, None
        check(is_dead or not account.is_dead, f"{name} came back from the dead letters")
        return account

    def _check_reason(self, account: Account, row: MessageRow) -> None:
        """A message seen among the dead letters for the first time is there for a reason."""
        settings, expires_at_ms = account.home.settings, account.expires_at_ms
        reason = note_of(row.payload)[1]
        if reason == "MaxDeliveryCountExceeded":
            check(row.delivery_count == settings.max_delivery_count, f"{account.message_id} was buried too early")
        elif reason == "TTLExpiredException":
            is_over = expires_at_ms is not None and expires_at_ms <= self._now()
            check(settings.dead_letter_on_expiration and is_over, f"{account.message_id} was buried alive")
        else:
            check(account.dead_letter_asked, f"{account.message_id} was buried because of {reason}, which nobody asked")
        self.seen[f"buried: {reason}"] += 1

    def handed(
        self,
        row: MessageRow,
        home: Home,
        is_dead: bool,
        token: bytes | None,
        until_ms: int | None,
        *,
        receiver: int | None = None,
    ) -> Account:
        """The account of a message that a client gets, locked or for good."""
        account, accounts, now_ms = self.known(row, home, is_dead), self._accounts, self._now()
        name, lock = f"message {account.message_id}", account.lock
        check(not account.is_locked(accounts.life, now_ms), f"{name} was lent twice at the same time")
        check(lock is None or lock.asked is None, f"{name} was lent while its settlement was unanswered")
        check(
            row.delivery_count in self._failures_to_show(account, is_dead), f"{name} shows {row.delivery_count} failed"
        )
        check(note_of(row.payload)[0] in account.marks, f"{name} lost what a receiver wrote on it")
        if not is_dead:
            self._check_alive(account, row, now_ms, was_deleted=token is None)
        if lock is not None:
            self.seen["locks ended"] += 1
            accounts.give_back(account)
        if token is None or until_ms is None:
            account.ending = Ending.HANDED_OUT
        else:
            holder = accounts.holder(home, account.session, now_ms) if home.has_sessions and not is_dead else None
            end_ms = now_ms + home.settings.lock_ms if holder is None else holder.locked_until_ms
            check(until_ms == end_ms, f"{name} is locked until {until_ms}")
            size = len(row.payload)
            lock = Lock(token, accounts.life, until_ms, row.delivery_count, row.sequence, is_dead, size, receiver)
            lock.holder = None if holder is None else holder.name
            accounts.lend(account, lock)
        return account

    def _failures_to_show(self, account: Account, is_dead: bool) -> set[int]:
        lock = account.lock
        if lock is None:
            return account.failures
        # Its lock has ended. One whose time to live was over by then was buried without another failure.
        return {lock.failures + 1, lock.failures} if is_dead and not lock.is_dead else {lock.failures + 1}

    def _check_alive(self, account: Account, row: MessageRow, now_ms: int, *, was_deleted: bool) -> None:
        name = f"message {account.message_id}"
        check(not account.dead_letter_asked, f"{name} was delivered though it was dead-lettered")
        limit = account.home.settings.max_delivery_count
        check(row.delivery_count < limit, f"{name} was delivered after {row.delivery_count} of {limit} failures")
        if account.due_at_ms is None:
            check(row.enqueued_at_ms == account.sent_at_ms, f"{name} was enqueued at another time than sent")
        else:
            self.seen["woken"] += 1
            check(account.due_at_ms <= row.enqueued_at_ms <= now_ms, f"{name} was delivered before its time")
        if row.state is MessageState.ACTIVE:
            expires_at_ms = None if account.ttl_ms is None else row.enqueued_at_ms + account.ttl_ms
            check(row.expires_at_ms == expires_at_ms, f"{name} has another time to live than it was sent with")
            # One that is deleted first was alive when it was taken; its deletion may have been slow.
            is_over = expires_at_ms is not None and expires_at_ms <= now_ms
            check(was_deleted or not is_over, f"{name} was delivered though it had expired")
