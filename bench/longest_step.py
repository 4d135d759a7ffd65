"""How long one step of a namespace keeps the event loop: `python -m bench.longest_step [NAME ...]`.

Each operation is given to the same gate as in a server, with a store on disk, and every call into it is timed. The time
is that of the processor, so that a busy machine does not matter. What it costs to decode a peer's bytes, and to encode
what goes out, comes on top.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory

from twinbus.amqp.codec.types import UInt
from twinbus.amqp.message.sections import Header, PropertyField, encode_message
from twinbus.broker.core.commands import (
    AcceptSession,
    Command,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    Grant,
    ListSessions,
    OpenReceiver,
    PeekMessages,
    SendMessages,
    SettleMessages,
    Tick,
)
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Delivery, Notice
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import CorrelationFilter, Rule, SqlAction, SqlFilter
from twinbus.broker.message import Arrival, read_arrival, unpack_batch
from twinbus.broker.operations import Abandon, Complete, DeadLetter, ReceiveMode
from twinbus.broker.ops.process_memory import collect_seldom
from twinbus.broker.store.api import IdsRead, ReadRequest, Report, RowsRead, SessionsRead, StateRead, StoredNamespace
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import MessageTooLarge

BATCH = 4_500
SETTLED = 1_000
"""No peer gets more into one command: neither a disposition nor a request to `$management` has more in one step."""
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
WITH_SQL = Rule("sql", SqlFilter("sys.MessageId LIKE 'm%' AND (color = 'red' OR size IS NULL)"))
LONG_SQL = Rule("sql", SqlFilter(f"size IN ({','.join(map(str, range(230)))}) OR color IS NULL"))
SEARCHING = Rule("sql", SqlFilter(" OR ".join(["text LIKE '%b%'"] * 20)))
CHANGING = Rule("sql", SqlFilter("color IS NULL"), SqlAction("SET color = 'red'; SET size = 3"))
FAILING = Rule("sql", SqlFilter("sys.MessageId + 1 > 7"))


class CountingStore(SqliteStore):
    reading = 0
    """Reads that were not answered yet."""

    def request(self, request: ReadRequest) -> None:
        self.reading += 1
        super().request(request)


class NamespaceHarness:
    def __init__(self, folder: Path) -> None:
        self.now_ms = NOW_MS
        self.notices: list[Notice] = []
        self.longest: dict[str, float] = {}
        """Milliseconds, by what was called."""
        self._tokens = count(1)
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._store = CountingStore(folder / "store.db", synchronous="off")
        self.gate = CommitGate(self._store, self._build, self.notices.append, lambda reason: sys.exit(reason))
        self._store.start(self._reports.put)

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: next(self._tokens).to_bytes(16, "big"))

    def do(self, *commands: Command[object]) -> None:
        """Carry out commands, and everything that follows from them."""
        for command in commands:
            self.time(type(command).__name__, partial(self.gate.do, command, self.now_ms))
        self.settle_down()

    def settle_down(self) -> None:
        """Until nothing more comes from the store, and no time has come."""
        while True:
            wake_ms = self.gate.next_wake_ms()
            if wake_ms is not None and wake_ms <= self.now_ms:
                self.time("Tick", partial(self.gate.do, Tick(), self.now_ms))
            elif not self.gate.unwritten_bytes and not self._store.reading:
                return
            try:
                while True:
                    report = self._reports.get(timeout=0.01)
                    self._store.reading -= isinstance(report, RowsRead | SessionsRead | StateRead | IdsRead)
                    self.time(type(report).__name__, partial(self.gate.report, report, self.now_ms))
            except Empty:
                pass

    def time(self, name: str, call: Callable[[], None]) -> None:
        began = time.thread_time()
        call()
        spent_ms = 1000 * (time.thread_time() - began)
        self.longest[name] = max(spent_ms, self.longest.get(name, 0.0))

    def tokens(self) -> tuple[bytes, ...]:
        """Of what was delivered since the last time."""
        found = [notice.token for notice in self.notices if isinstance(notice, Delivery) and notice.token is not None]
        self.notices.clear()
        return tuple(found)

    def close(self) -> None:
        self._store.close()


def arrivals(number: int, session: Callable[[int], str] | None = None, ttl_ms: int | None = None) -> Iterator[Arrival]:
    for at in range(number):
        properties: dict[PropertyField, str] = {PropertyField.MESSAGE_ID: f"m{at}"}
        if session is not None:
            properties[PropertyField.GROUP_ID] = session(at)
        header = None if ttl_ms is None else Header(ttl_ms=UInt(ttl_ms))
        yield read_arrival(encode_message(header=header, properties=dict(properties), data=b""), lambda: "new")


def fill(harness: NamespaceHarness, path: str, number: int, **kinds: object) -> None:
    everything = list(arrivals(number, **kinds))  # type: ignore[arg-type]
    for start in range(0, number, 1_000):
        harness.do(SendMessages(path, tuple(everything[start : start + 1_000])))


def lent(harness: NamespaceHarness, number: int, settings: QueueSettings) -> tuple[bytes, ...]:
    harness.do(CreateQueue("q", settings))
    fill(harness, "q", number)
    harness.do(OpenReceiver(1, "q", ReceiveMode.PEEK_LOCK))
    harness.longest.clear()
    harness.do(Grant(1, number))
    return harness.tokens()


def batch(harness: NamespaceHarness, settings: QueueSettings) -> None:
    harness.do(CreateQueue("q", settings))
    harness.longest.clear()
    harness.do(SendMessages("q", tuple(arrivals(BATCH))))


def topic(harness: NamespaceHarness, subscriptions: int, rule: Rule | None = None, **settings: object) -> None:
    harness.do(CreateTopic("t", TopicSettings()))
    of_each = QueueSettings(**settings)  # type: ignore[arg-type]
    harness.do(*(CreateSubscription("t", f"s{at}", of_each, rule) for at in range(subscriptions)))
    harness.longest.clear()


def fan_out(
    harness: NamespaceHarness, messages: int, subscriptions: int, rule: Rule | None = None, **settings: object
) -> None:
    topic(harness, subscriptions, rule, **settings)
    harness.do(SendMessages("t", tuple(arrivals(messages))))


def one_large(harness: NamespaceHarness, rule: Rule) -> None:
    """A message with properties as long as they may be."""
    topic(harness, 2_000, rule)
    properties = {"text": "a" * 30_000, **{f"p{at}": at for at in range(1_500)}}
    payload = encode_message(properties={PropertyField.MESSAGE_ID: "m"}, application_properties=properties, data=b"")
    harness.do(SendMessages("t", (read_arrival(payload, lambda: "new"),)))


def many_correlated(harness: NamespaceHarness) -> None:
    """As many filters as there may be, and all of them match."""
    topic(harness, 2_000)
    rule = Rule("", CorrelationFilter(message_id="m0"))
    for at in range(2_000):
        harness.do(*(CreateRule(f"t/subscriptions/s{at}", rule._replace(name=f"r{number}")) for number in range(50)))
    harness.longest.clear()
    harness.do(SendMessages("t", tuple(arrivals(1))))


def wakes(harness: NamespaceHarness) -> None:
    topic(harness, 2_000)
    sent = tuple(each._replace(due_at_ms=harness.now_ms + 1) for each in arrivals(100))
    harness.do(SendMessages("t", sent))
    harness.longest.clear()
    harness.now_ms += 1
    harness.settle_down()


def forwarded(harness: NamespaceHarness, subscriptions: int = 0) -> None:
    if subscriptions:
        topic(harness, subscriptions)
    else:
        harness.do(CreateQueue("t", QueueSettings()))
    harness.do(CreateQueue("q", QueueSettings(forward_to="t")))
    harness.longest.clear()
    harness.do(SendMessages("q", tuple(arrivals(BATCH))))


def multiplied(harness: NamespaceHarness) -> None:
    """Subscriptions of one topic that forward to another one with as many."""
    harness.do(CreateTopic("end", TopicSettings()))
    harness.do(*(CreateSubscription("end", f"s{at}", QueueSettings()) for at in range(200)))
    fan_out(harness, 10, 200, forward_to="end")


def decode(harness: NamespaceHarness, number: int) -> None:
    message = encode_message(properties={PropertyField.MESSAGE_ID: "m"}, data=b"")
    envelope = (b"\x00\x53\x75\xa0" + bytes((len(message),)) + message) * number

    def read() -> None:
        try:
            for each in unpack_batch(envelope, BATCH):
                read_arrival(each, lambda: "new")
        except MessageTooLarge:
            pass

    harness.time("decode", read)


def delete_topic(harness: NamespaceHarness) -> None:
    fan_out(harness, 50, 2_000)
    harness.longest.clear()
    harness.do(DeleteEntity("t"))


def settle(harness: NamespaceHarness, outcome: Complete | Abandon | DeadLetter) -> None:
    tokens = lent(harness, SETTLED, QueueSettings())
    harness.longest.clear()
    harness.do(SettleMessages("q", tokens, outcome))


def ended_locks(harness: NamespaceHarness) -> None:
    lent(harness, BATCH, QueueSettings())
    harness.longest.clear()
    harness.now_ms += HOUR_MS
    harness.settle_down()


def expiry(harness: NamespaceHarness, number: int, *, buried: bool) -> None:
    harness.do(CreateQueue("q", QueueSettings(dead_letter_on_expiration=buried)))
    fill(harness, "q", number, ttl_ms=60_000)
    harness.longest.clear()
    harness.now_ms += HOUR_MS
    harness.settle_down()


def sessions(harness: NamespaceHarness, number: int) -> None:
    harness.do(CreateQueue("q", QueueSettings(requires_session=True)))
    fill(harness, "q", number, session=lambda at: f"s{at}")
    harness.longest.clear()


def accept_sessions(harness: NamespaceHarness, number: int) -> None:
    sessions(harness, number)
    harness.do(*(AcceptSession(at, "q", ReceiveMode.PEEK_LOCK, None) for at in range(number)))
    harness.do(*(Grant(at, 10) for at in range(number)))


def ended_sessions(harness: NamespaceHarness, number: int) -> None:
    accept_sessions(harness, number)
    harness.longest.clear()
    harness.now_ms += HOUR_MS
    harness.settle_down()


def list_sessions(harness: NamespaceHarness) -> None:
    sessions(harness, 50_000)
    harness.do(ListSessions("q", None, 0, 100_000))


def peek(harness: NamespaceHarness) -> None:
    harness.do(CreateQueue("q", QueueSettings()))
    fill(harness, "q", 10_000)
    harness.longest.clear()
    harness.do(PeekMessages("q", 0, 10_000))


def delete(harness: NamespaceHarness) -> None:
    harness.do(CreateQueue("q", QueueSettings()))
    fill(harness, "q", 100_000)
    harness.longest.clear()
    harness.do(DeleteEntity("q"))


OPERATIONS: dict[str, Callable[[NamespaceHarness], object]] = {
    "batch of 4,500": lambda harness: batch(harness, QueueSettings()),
    "batch of 4,500, duplicates": lambda harness: batch(harness, QueueSettings(requires_duplicate_detection=True)),
    "1 message to 2,000 subscriptions": lambda harness: fan_out(harness, 1, 2_000),
    "50 messages to 2,000 subscriptions": lambda harness: fan_out(harness, 50, 2_000),
    "4,500 messages to 100 subscriptions": lambda harness: fan_out(harness, BATCH, 100),
    "20 messages to 2,000 SQL rules": lambda harness: fan_out(harness, 20, 2_000, WITH_SQL),
    "1 message to 2,000 long SQL rules": lambda harness: fan_out(harness, 1, 2_000, LONG_SQL),
    "1 long message to 2,000 SQL rules with LIKE": lambda harness: one_large(harness, SEARCHING),
    "1 message to 2,000 rules with an action": lambda harness: fan_out(harness, 1, 2_000, CHANGING),
    "1 long message to 2,000 rules with an action": lambda harness: one_large(harness, CHANGING),
    "1 message to 2,000 SQL rules that fail": lambda harness: fan_out(harness, 1, 2_000, FAILING),
    "1 message without session to 2,000 with": lambda harness: fan_out(harness, 1, 2_000, requires_session=True),
    "1 message to 100,000 correlation filters": many_correlated,
    "100 scheduled wake, 2,000 subscriptions": wakes,
    "batch of 4,500 is forwarded": forwarded,
    "batch of 4,500 is forwarded to a topic": lambda harness: forwarded(harness, 100),
    "10 messages, 200 x 200 subscriptions": multiplied,
    "batch of 4,500 is decoded": lambda harness: decode(harness, BATCH),
    "batch of 20,000 is refused": lambda harness: decode(harness, 20_000),
    "credit of 4,500": lambda harness: lent(harness, BATCH, QueueSettings()),
    "complete 1,000": lambda harness: settle(harness, Complete()),
    "abandon 1,000": lambda harness: settle(harness, Abandon({"why": "x"})),
    "dead-letter 1,000": lambda harness: settle(harness, DeadLetter({"DeadLetterReason": "x"})),
    "4,500 locks end": ended_locks,
    "100,000 messages expire": lambda harness: expiry(harness, 100_000, buried=False),
    "20,000 messages expire, dead-lettered": lambda harness: expiry(harness, 20_000, buried=True),
    "accept 2,000 sessions": lambda harness: accept_sessions(harness, 2_000),
    "2,000 session locks end": lambda harness: ended_sessions(harness, 2_000),
    "list 50,000 sessions": list_sessions,
    "peek 10,000": peek,
    "delete a queue with 100,000": delete,
    "delete a topic with 2,000 subscriptions": delete_topic,
}


def main() -> None:
    wanted = sys.argv[1:]
    chosen = {name: each for name, each in OPERATIONS.items() if not wanted or any(word in name for word in wanted)}
    collect_seldom()  # as a server does
    for name, operation in chosen.items():
        with TemporaryDirectory() as folder:
            harness = NamespaceHarness(Path(folder))
            operation(harness)
            worst = sorted(harness.longest.items(), key=lambda each: -each[1])[:3]
            harness.close()
        sys.stdout.write(f"{name:46}" + "  ".join(f"{kind} {spent_ms:.0f} ms" for kind, spent_ms in worst) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
