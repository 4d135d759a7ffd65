"""What simulated applications do: send, receive, settle, and all the rest, at random.

Every method is one thing an application may do now; one that is not possible at the moment does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from sim.accounts import Account, Accounts, Answer, Home, Question, Reader
from sim.clock import VirtualClock
from sim.invariants import MARK
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    CancelScheduled,
    CloseReceiver,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    Grant,
    OpenReceiver,
    PauseReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    ResumeReceiver,
    SendMessages,
    SettleMessages,
)
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TrueFilter
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, ReceiveMode, Release, SettlementOutcome

READERS_MAX = 6
QUEUES = ("orders", "Invoices/2024")
TOPIC = "Events"
SUBSCRIPTIONS = ("s1", "s2", "s3")
LABELS = ("red", "blue")
SESSIONS = ("", "a", "b")
RULES: tuple[tuple[Filter, Callable[[str, int], bool]], ...] = (
    (TrueFilter(), lambda *_: True),
    (FalseFilter(), lambda *_: False),
    (CorrelationFilter(label="red"), lambda label, _: label == "red"),
    (SqlFilter("number > 2"), lambda _, number: number > 2),
)
"""What subscriptions may want, and how an application would decide the same."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How the applications of one simulation are; drawn once, so that some simulations go where others never do."""

    ttl_share: float
    schedule_share: float
    big_share: float
    delete_share: float
    session_share: float
    duplicate_share: float
    outcomes: tuple[type[SettlementOutcome], ...]

    @classmethod
    def draw(cls, random: Random) -> Habits:
        outcomes: tuple[type[SettlementOutcome], ...] = (Complete, Abandon, Defer, DeadLetter, Release)
        return cls(
            ttl_share=random.choice((0, 0.1, 0.5)),
            schedule_share=random.choice((0, 0.1, 0.5)),
            big_share=random.choice((0, 0, 0, 0.1)),
            delete_share=random.choice((0, 0.3, 1)),
            session_share=random.choice((0, 0, 0, 0.7)),
            duplicate_share=random.choice((0, 0, 0.7)),
            outcomes=tuple(random.choices(outcomes, k=4)),
        )

    def draw_settings(self, random: Random) -> QueueSettings:
        return QueueSettings(
            lock_ms=random.choice((5_000, 8_000)),
            max_size_mb=1,
            max_delivery_count=random.choice((1, 2, 3, 10)),
            default_ttl_ms=random.choice((None, None, None, None, 4_000, 60_000)),
            dead_letter_on_expiration=random.random() < 0.5,
            requires_session=random.random() < self.session_share,
            requires_duplicate_detection=random.random() < self.duplicate_share,
            duplicate_window_ms=20_000,
        )


class Clients:
    def __init__(
        self,
        random: Random,
        accounts: Accounts,
        clock: VirtualClock,
        ask: Callable[[Question, int], None],
        do: Callable[[Command[object]], None],
        has_line: Callable[[], bool],
    ) -> None:
        """`has_line`: whether something waits in the topic, which a new subscription would get though it came first."""
        self._has_line = has_line
        self._random = random
        self._accounts = accounts
        self._clock = clock
        self._send_question = ask
        self._do = do
        self._numbers = count(1)
        self._habits = Habits.draw(random)
        self._old_tokens: list[bytes] = []

    def _ask(self, question: Question) -> None:
        number = next(self._numbers)
        self._accounts.questions[number] = question
        self._send_question(question, number)

    # --- queues ---

    def create_queue(self) -> None:
        path = self._random.choice(QUEUES)
        known = self._accounts.homes.get(path)
        if known is not None and not known.is_gone:
            return
        home = self._accounts.homes[path] = Home(path, self._habits.draw_settings(self._random))
        self._ask(Question(CreateQueue(path, home.settings), self._clock(), home=home))

    def create_topic(self) -> None:
        topic = self._accounts.topic
        if topic is None or topic.is_gone:
            topic = self._accounts.topic = Home(TOPIC, QueueSettings(max_size_mb=1))
            self._ask(Question(CreateTopic(TOPIC, TopicSettings(max_size_mb=1)), self._clock(), home=topic))

    def create_subscription(self) -> None:
        name = self._random.choice(SUBSCRIPTIONS)
        path = f"{TOPIC}/Subscriptions/{name}"
        known = self._accounts.homes.get(path)
        if self._accounts.topic is None or (known is not None and not known.is_gone) or self._has_line():
            return
        given, wants = self._random.choice(RULES)
        settings = replace(self._habits.draw_settings(self._random), requires_duplicate_detection=False)
        home = self._accounts.homes[path] = Home(path, settings, wants, in_force=True)
        command = CreateSubscription(TOPIC, name, home.settings, Rule("first", given))
        self._ask(Question(command, self._clock(), home=home))

    def publish(self) -> None:
        topic = self._accounts.topic
        if topic is None:
            return
        accounts, arrivals = [], []
        homes = [home for home in self._accounts.homes.values() if home.wants is not None and home.in_force]
        for _ in range(self._random.choice((1, 1, 2, 5))):
            label, number = self._random.choice(LABELS), self._random.randint(1, 4)
            arrival, account = self._write_message(topic, label, number)
            arrivals.append(arrival)
            self._accounts.published_bytes += len(arrival.payload)
            wanting = [home for home in homes if home.wants is not None and home.wants(label, number)]
            accounts += [self._copy(account, home) for home in wanting]
        self._accounts.by_key |= {account.key: account for account in accounts}
        self._ask(Question(SendMessages(TOPIC, tuple(arrivals)), self._clock(), accounts=tuple(accounts), home=topic))

    def _copy(self, sent: Account, home: Home) -> Account:
        limits = [ttl for ttl in (sent.ttl_ms, home.settings.default_ttl_ms) if ttl is not None]
        ttl_ms = min(limits, default=None)
        size, session = sent.size, sent.session
        return Account(sent.message_id, home, sent.sent_at_ms, size, ttl_ms, None, is_copy=True, session=session)

    def delete_queue(self) -> None:
        home = self._some_home()
        if home is not None and home.exists:
            home.exists = home.in_force = False
            self._ask(Question(DeleteEntity(home.path), self._clock(), home=home))

    def _some_home(self) -> Home | None:
        return self._random.choice([*self._accounts.homes.values()] or [None])

    # --- senders ---

    def send(self) -> None:
        home = self._some_home()
        if home is None or home.wants is not None:
            return
        accounts, arrivals = [], []
        for _ in range(self._random.choice((1, 1, 1, 2, 5))):
            arrival, account = self._write_message(home)
            accounts.append(account)
            arrivals.append(arrival)
            self._accounts.by_key[account.key] = account
        self._ask(
            Question(SendMessages(home.path, tuple(arrivals)), self._clock(), accounts=tuple(accounts), home=home)
        )

    def _write_message(self, home: Home, label: str | None = None, number: int = 0) -> tuple[Arrival, Account]:
        """With a label it is for a topic, and then not scheduled."""
        random, habits, now_ms = self._random, self._habits, self._clock()
        message_id, session = f"m{next(self._numbers)}.", random.choice(SESSIONS)
        ttl_ms = random.choice((0, 1_000, 3_000, 60_000)) if random.random() < habits.ttl_share else None
        is_late = label is None and random.random() < habits.schedule_share
        due_at_ms = now_ms + random.choice((-50, 1, 500, 9_000)) if is_late else None
        payload = sections.encode_message(
            header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
            annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
            properties={
                PropertyField.MESSAGE_ID: message_id,
                PropertyField.SUBJECT: label,
                PropertyField.GROUP_ID: session,
            },
            application_properties=None if label is None else {"number": number},
            data=bytes(250_000 if random.random() < habits.big_share else random.choice((1, 40))),
        )
        is_scheduled = due_at_ms is not None and due_at_ms > now_ms
        limits = [ttl for ttl in (ttl_ms, home.settings.default_ttl_ms) if ttl is not None]
        shortest_ms = min(limits, default=None)
        due_at_ms = due_at_ms if is_scheduled else None
        account = Account(message_id, home, now_ms, len(payload), shortest_ms, due_at_ms, session=session)
        return read_arrival(payload, lambda: "unused"), account

    def send_again(self) -> None:
        """Send something that is stored a second time: nobody is to notice."""
        home, now_ms = self._some_home(), self._clock()
        if home is None or not home.settings.requires_duplicate_detection:
            return
        is_remembered = now_ms - home.settings.duplicate_window_ms
        # Without large messages none is refused for its size, and one that has no answer yet will be stored, or lost.
        likely = (Answer.STORED,) if self._habits.big_share else (Answer.STORED, Answer.NONE)
        recent = (each for each in self._accounts.of(home) if each.sent_at_ms > is_remembered)
        stored = [each for each in recent if each.answer in likely]
        if stored:
            account = self._random.choice(stored[-3:])
            properties = {PropertyField.MESSAGE_ID: account.message_id, PropertyField.GROUP_ID: account.session}
            payload = sections.encode_message(properties=properties, data=b"again")
            command = SendMessages(home.path, (read_arrival(payload, lambda: "unused"),))
            self._ask(Question(command, now_ms, home=home, is_repeat=True))

    def cancel(self) -> None:
        home = self._some_home()
        if home is None or home.wants is not None:
            return
        scheduled = [each for each in self._accounts.of(home) if each.due_at_ms is not None and each.sequence]
        some = tuple(self._random.sample(scheduled, min(len(scheduled), self._random.choice((1, 1, 2)))))
        if some:
            sequences = tuple(account.sequence for account in some) + self._sometimes((10_000,))
            known = some if len(set(sequences)) == len(some) else ()
            self._ask(Question(CancelScheduled(home.path, sequences), self._clock(), accounts=known, home=home))

    def _sometimes(self, extra: tuple[int, ...]) -> tuple[int, ...]:
        return extra if self._random.random() < 0.1 else ()

    # --- receivers ---

    def open_reader(self) -> None:
        home = self._some_home()
        if home is None or len(self._accounts.open_readers()) >= READERS_MAX:
            return
        deletes = self._random.random() < 0.4 * self._habits.delete_share
        mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
        reader = Reader(next(self._numbers), home, self._random.random() < 0.25, mode, self._accounts.life)
        self._open(reader, self._random.choice((None, None, *SESSIONS)))

    def open_last_readers(self) -> list[Reader]:
        """One receiver for every queue and its dead letters, with all the credit they can want."""
        homes = [home for home in self._accounts.homes.values() if home.exists]
        readers = [
            Reader(next(self._numbers), home, is_dead, ReceiveMode.PEEK_LOCK, self._accounts.life)
            for home in homes
            for is_dead in (False, True)
            if is_dead or not home.has_sessions
        ]
        for reader in readers:
            self._open(reader)
            self._grant(reader, 1_000_000, drain=False)
        return readers

    def open_last_sessions(self) -> None:
        """A receiver for every session that nobody has."""
        for home in self._accounts.homes.values():
            for name in SESSIONS if home.exists and home.has_sessions else ():
                if self._accounts.holder(home, name, self._clock()) is None:
                    reader = Reader(next(self._numbers), home, False, ReceiveMode.PEEK_LOCK, self._accounts.life)
                    self._open(reader, name)
                    if reader.is_open:
                        self._grant(reader, 1_000_000, drain=False)

    def _open(self, reader: Reader, session: str | None = None) -> None:
        self._accounts.readers[reader.name] = reader
        command: AcceptSession | OpenReceiver = OpenReceiver(reader.name, reader.path, reader.mode)
        if reader.home.has_sessions and not reader.is_dead:
            reader.is_waiting = True
            command = AcceptSession(reader.name, reader.path, reader.mode, session, self._random.choice((500, 20_000)))
        self._ask(Question(command, self._clock(), home=reader.home))

    def grant(self) -> None:
        reader = self._some_reader()
        if reader is not None and not reader.is_waiting:
            more = self._random.choice((0, 1, 2, 5, 5, 20))
            self._grant(reader, reader.received + more, drain=self._random.random() < 0.15)

    def _grant(self, reader: Reader, credit_limit: int, *, drain: bool) -> None:
        reader.credit_limit = credit_limit
        reader.credit_limit_max = max(reader.credit_limit_max, credit_limit)
        reader.is_draining = drain
        self._do(Grant(reader.name, credit_limit, drain))

    def _some_reader(self) -> Reader | None:
        return self._random.choice(self._accounts.open_readers() or [None])

    def pause(self) -> None:
        reader = self._some_reader()
        if reader is not None:
            reader.is_paused = True
            self._do(PauseReceiver(reader.name))

    def resume(self) -> None:
        reader = self._some_reader()
        if reader is not None:
            reader.is_paused = False
            self._do(ResumeReceiver(reader.name))

    def close_reader(self) -> None:
        reader = self._some_reader()
        if reader is not None:
            self._close(reader)

    def disconnect(self) -> None:
        """Everybody goes, without settling anything."""
        for reader in self._accounts.open_readers():
            self._close(reader)

    def _close(self, reader: Reader) -> None:
        reader.is_open = reader.is_draining = False
        now_ms = self._clock()
        if reader.is_waiting:
            self._accounts.forget_question(reader.name)
        if reader.session is not None and reader.locked_until_ms > now_ms:
            for account in [*self._accounts.by_token.values()]:
                lock = account.lock
                if lock is not None and lock.holder == reader.name and lock.asked is None:
                    self._accounts.give_back(account)
        self._do(CloseReceiver(reader.name))

    # --- locks ---

    def settle(self) -> None:
        self._settle(self._random.choice(self._habits.outcomes))

    def complete(self) -> None:
        self._settle(Complete)

    def complete_everything(self) -> None:
        """Complete all that is locked now, and nothing else."""
        for home in self._accounts.homes.values():
            for is_dead in (False, True):
                tokens = [token for token, _ in self._tokens_of(home, is_dead)]
                if tokens:
                    self._settle_tokens(home, is_dead, tokens, Complete())

    def _tokens_of(self, home: Home, is_dead: bool) -> list[tuple[bytes, Account]]:
        return [
            (token, account)
            for token, account in self._accounts.by_token.items()
            if account.home is home
            and account.lock is not None
            and account.lock.is_dead is is_dead
            and account.lock.asked is None
        ]

    def _some_tokens(self) -> tuple[Home, bool, list[bytes]] | None:
        account = self._random.choice([*self._accounts.by_token.values()] or [None])
        if account is None or account.lock is None:
            return None
        home, is_dead = account.home, account.lock.is_dead
        tokens = [token for token, _ in self._tokens_of(home, is_dead)]
        some = self._random.sample(tokens, min(len(tokens), self._random.choice((1, 1, 2, 5))))
        if self._random.random() < 0.1:
            some.append(self._random.choice([self._random.randbytes(16), *self._old_tokens, *some]))
        self._old_tokens = [*self._old_tokens[-20:], *some]
        return home, is_dead, some

    def _settle(self, kind: type[SettlementOutcome]) -> None:
        chosen = self._some_tokens()
        if chosen is not None:
            self._settle_tokens(*chosen, self._outcome(kind))

    def _outcome(self, kind: type[SettlementOutcome]) -> SettlementOutcome:
        if kind is Complete or kind is Release:
            return kind()
        if kind is DeadLetter:
            return DeadLetter({"DeadLetterReason": "Asked", MARK: next(self._numbers)})
        marked = self._random.random() < 0.3
        return kind({MARK: next(self._numbers)} if marked else None)  # type: ignore[call-arg]

    def _settle_tokens(self, home: Home, is_dead: bool, tokens: list[bytes], outcome: SettlementOutcome) -> None:
        question = Question(SettleMessages(_path(home, is_dead), tuple(tokens), outcome), self._clock(), home=home)
        question.tokens = self._held(tokens, home, is_dead)
        for account in question.tokens.values():
            if account.lock is not None and home.exists:
                account.lock.asked = outcome
                if isinstance(outcome, Release):
                    self._accounts.give_back(account)
        self._ask(question)

    def _held(self, tokens: list[bytes], home: Home, is_dead: bool) -> dict[bytes, Account]:
        held = dict(self._tokens_of(home, is_dead))
        life, now_ms = self._accounts.life, self._clock()
        return {token: held[token] for token in tokens if token in held and held[token].is_locked(life, now_ms)}

    def renew(self) -> None:
        chosen = self._some_tokens()
        if chosen is not None and chosen[0].has_sessions and not chosen[1]:
            command = RenewSessionLock(chosen[0].path, self._random.choice(SESSIONS))
            self._ask(Question(command, self._clock(), home=chosen[0]))
        elif chosen is not None:
            home, is_dead, tokens = chosen
            question = Question(RenewMessageLocks(_path(home, is_dead), tuple(tokens)), self._clock(), home=home)
            question.tokens = self._held(tokens, home, is_dead)
            self._ask(question)

    # --- by sequence ---

    def peek(self) -> None:
        home = self._some_home()
        if home is not None:
            path = _path(home, self._random.random() < 0.3)
            command = PeekMessages(
                path, self._random.randint(0, home.last_sequence + 2), self._random.choice((1, 3, 100))
            )
            self._ask(Question(command, self._clock(), home=home))

    def receive_deferred(self) -> None:
        home = self._some_home()
        if home is None:
            return
        is_dead = self._random.random() < 0.2
        deferred = [each for each in self._accounts.of(home) if each.deferred_as and each.is_dead is is_dead]
        some = tuple(self._random.sample(deferred, min(len(deferred), self._random.choice((1, 1, 3)))))
        if some:
            deletes = self._random.random() < 0.4 * self._habits.delete_share
            mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
            self._receive_deferred(home, is_dead, some, mode)

    def receive_all_deferred(self) -> None:
        for home in self._accounts.homes.values():
            for is_dead in (False, True):
                waiting = [
                    each
                    for each in self._accounts.of(home)
                    if each.is_stored
                    and each.deferred_as
                    and each.is_dead is is_dead
                    and not each.is_locked(self._accounts.life, self._clock())
                ]
                if waiting:
                    self._receive_deferred(home, is_dead, tuple(waiting), ReceiveMode.PEEK_LOCK)

    def _receive_deferred(self, home: Home, is_dead: bool, some: tuple[Account, ...], mode: ReceiveMode) -> None:
        session = None
        if home.has_sessions and not is_dead:
            session = some[0].session
            some = tuple(account for account in some if account.session == session)
        sequences = tuple(account.deferred_as or 0 for account in some) + self._sometimes((10_000,))
        known = some if len(sequences) == len(some) else ()
        command = ReceiveDeferred(_path(home, is_dead), sequences, mode, session_id=session)
        self._ask(Question(command, self._clock(), accounts=known, home=home))


def _path(home: Home, is_dead: bool) -> str:
    return home.path + DEAD_LETTER_SUFFIX if is_dead else home.path
