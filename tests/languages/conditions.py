"""Which refusals each official client retries by itself, with its default settings: seen, and written on a page.

    make proxy-conditions

runs the programs against a namespace that refuses each operation with each condition for a moment, and writes the
tables of docs/reference/proxy-conditions.md from what was seen. It takes half an hour, most of it asleep. Each client
has a queue for each case, and all conditions are tried at the same time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from languages.clients import BUILT, LANGUAGES, Answer, Client, prepare, read_ids
from twinbus.testing import LocalNamespace

CONDITIONS = (
    "com.microsoft:timeout",
    "com.microsoft:server-busy",
    "amqp:internal-error",
    "amqp:link:detach-forced",
    "amqp:connection:forced",
    "com.microsoft:operation-cancelled",
    "com.microsoft:entity-disabled",
    "amqp:not-found",
    "amqp:not-allowed",
)
CLIENTS = ("python", "python-aio", "javascript", "java", "go")
"""Qpid Proton is a library for AMQP and retries nothing."""
MOMENT = timedelta(seconds=3)
DETACHED = timedelta(milliseconds=50)
"""Long enough to detach a receiver; a client that attaches again at once may be refused as well."""
PATIENCE_S = 120

RETRIED, RAISED, NOTHING, LOST = "retried", "raised", "returned nothing", "never came back"


class Case(NamedTuple):
    """One client, one condition, one queue."""

    client: Client
    other: Client
    """Sends what the client is to receive."""
    namespace: LocalNamespace
    queue: str
    condition: str
    folder: Path

    def refuse(self, on: str, *, count: int | None = None, length: timedelta | None = None) -> None:
        counted: dict[str, Any] = {} if count is None else {"count": count}
        self.namespace.faults.add(
            "refuse", entities=[self.queue], length=length, condition=self.condition, on=on, **counted
        )

    def send(self, how: str, *ids: str) -> Answer:
        return self.client.ask("send", entity=self.queue, how=how, ids=list(ids))

    def wait_for_message(self, wait_ms: int) -> Answer:
        return self.client.ask("receive", entity=self.queue, max=1, wait_ms=wait_ms)

    def provide(self, message: str) -> None:
        self.other.must("send", entity=self.queue, how="single", ids=[message])


def _judge(answer: Answer) -> str:
    return RETRIED if answer.error is None else RAISED


def _judge_receiving(answer: Answer) -> str:
    return RAISED if answer.error is not None else RETRIED if answer.ids else NOTHING


def send_link_refused(case: Case) -> str:
    case.refuse("sends", length=MOMENT)
    return _judge(case.send("single", "1"))


def send_rejected(case: Case) -> str:
    case.send("single", "open")
    case.refuse("sends", count=1)
    return _judge(case.send("single", "1"))


def batch_rejected(case: Case) -> str:
    case.send("single", "open")
    case.refuse("sends", count=1)
    return _judge(case.send("batch", "1", "2"))


def schedule_refused(case: Case) -> str:
    case.send("schedule", "open")
    case.refuse("sends", count=1)
    return _judge(case.send("schedule", "1"))


def receive_link_refused(case: Case) -> str:
    case.provide("1")
    case.refuse("receives", length=MOMENT)
    return _judge_receiving(case.wait_for_message(PATIENCE_S * 1000))


def receiver_detached(case: Case) -> str:
    """In the middle of a receive that waits."""
    case.wait_for_message(500)
    waiting = case.client.tell("receive", entity=case.queue, max=1, wait_ms=PATIENCE_S * 1000)
    time.sleep(1)
    case.refuse("receives", length=DETACHED)
    time.sleep(1)
    case.provide("1")
    return _judge_receiving(case.client.answer(waiting))


def loop_detached(case: Case) -> str:
    """What receives for ever, in the way that suits the client; refused for a moment after the detach."""
    file = case.folder / f"{case.client.language.name}-{case.queue}"
    case.client.must("start-receiving", entity=case.queue, file=str(file))
    case.provide("before")
    if not _has_come("before", file):
        return LOST
    case.refuse("receives", length=MOMENT)
    time.sleep(MOMENT.total_seconds() + 1)
    case.provide("after")
    return RETRIED if _has_come("after", file) else LOST


def _has_come(message: str, file: Path) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if file.exists() and message in read_ids(file).copies:
            return True
        time.sleep(0.2)
    return False


def settlement_rejected(case: Case) -> str:
    case.provide("1")
    case.wait_for_message(PATIENCE_S * 1000)
    case.refuse("receives", count=1)
    return _judge(case.client.ask("settle", message="1", how="complete"))


def settlement_unanswered(case: Case) -> str:
    """Completing a message gets no answer, and then the receiver is detached."""
    case.provide("1")
    case.wait_for_message(PATIENCE_S * 1000)
    silence = case.namespace.faults.add("unreachable", entities=[case.queue], how="silent")
    completing = case.client.tell("settle", message="1", how="complete")
    time.sleep(1)
    case.namespace.faults.clear(silence)
    case.refuse("receives", length=DETACHED)
    return _judge(case.client.answer(completing))


def renewal_refused(case: Case) -> str:
    case.provide("1")
    case.wait_for_message(PATIENCE_S * 1000)
    case.refuse("receives", count=1)
    return _judge(case.client.ask("renew", message="1"))


def peek_refused(case: Case) -> str:
    case.provide("1")
    case.client.must("peek", entity=case.queue, max=1)
    case.refuse("receives", length=MOMENT)
    return _judge(case.client.ask("peek", entity=case.queue, max=1))


SITUATIONS: dict[str, tuple[str, Callable[[Case], str]]] = {
    "send": ("a send is rejected", send_rejected),
    "batch": ("a batch is rejected", batch_rejected),
    "sender": ("a sender's link is refused", send_link_refused),
    "schedule": ("`$management` refuses to schedule", schedule_refused),
    "receiver": ("a receiver's link is refused", receive_link_refused),
    "detach": ("a waiting receiver is detached", receiver_detached),
    "loop": ("what receives for ever is detached, and refused for 3 s", loop_detached),
    "settle": ("completing a message is rejected", settlement_rejected),
    "unanswered": ("completing a message is not answered, and the receiver is detached", settlement_unanswered),
    "renew": ("`$management` refuses to renew a lock", renewal_refused),
    "peek": ("`$management` refuses to peek", peek_refused),
}


class Seen(NamedTuple):
    verdict: str
    seconds: float
    """How long the whole case took."""


Table = dict[str, dict[str, Seen]]
"""What was seen, by condition and situation."""


def patience_s(name: str) -> float:
    """How long a send is tried again by the client before its application is given an error."""
    language = LANGUAGES[name]
    with (
        tempfile.TemporaryDirectory() as place,
        LocalNamespace("contoso", queues=["orders"]) as namespace,
        Client(language, prepare(language), namespace.connection_string, Path(place) / "client.log") as client,
    ):
        client.must("send", entity="orders", how="single", ids=["open"])
        namespace.faults.add("refuse", entities=["orders"], condition=CONDITIONS[0], on="sends")
        answer = client.ask("send", entity="orders", how="single", ids=["1"])
        assert answer.error is not None
        return answer.seconds


def observe(name: str, conditions: tuple[str, ...] = CONDITIONS, situations: tuple[str, ...] = ()) -> Table:
    """Try everything with one client."""
    language = LANGUAGES[name]
    command, helping = prepare(language), LANGUAGES["python"]
    chosen = situations or tuple(SITUATIONS)
    with tempfile.TemporaryDirectory() as place, LocalNamespace("contoso") as namespace:
        folder = Path(place)

        @contextmanager
        def started(label: str) -> Iterator[tuple[Client, Client]]:
            string = namespace.connection_string
            with (
                Client(language, command, string, folder / f"{label}.log") as client,
                Client(helping, prepare(helping), string, folder / f"{label}-other.log") as other,
            ):
                yield client, other

        def try_condition(number: int) -> dict[str, Seen]:
            seen: dict[str, Seen] = {}
            with started(str(number)) as (client, other):
                for situation in chosen:
                    queue = f"{situation}-{number}"
                    namespace.create_queue(queue)
                    case = Case(client, other, namespace, queue, conditions[number], folder)
                    began = time.monotonic()
                    verdict = SITUATIONS[situation][1](case)
                    seen[situation] = Seen(verdict, time.monotonic() - began)
            return seen

        with ThreadPoolExecutor(len(conditions)) as pool:
            return dict(zip(conditions, pool.map(try_condition, range(len(conditions))), strict=True))


# --- the page ---

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "proxy-conditions.md"
RESULTS = BUILT / "conditions.json"
BEGIN, END = "<!-- seen: made by `make proxy-conditions` -->", "<!-- end of what was seen -->"


def tables(results: dict[str, Any]) -> str:
    """What was seen, as Markdown; `results` by client."""
    names = [name for name in CLIENTS if name in results]
    lines: list[str] = ["| client | gives up after |", "|---|---|"]
    lines += [f"| {LANGUAGES[name].client} | {results[name]['patience_s']:.0f} s |" for name in names]
    for key, (title, _) in SITUATIONS.items():
        lines += ["", f"### {title[0].upper()}{title[1:]}", "", f"| condition | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for condition in CONDITIONS:
            cells = [_cell(results[name]["seen"][condition][key][0]) for name in names]
            lines.append(f"| `{condition}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(verdict: str) -> str:
    return verdict if verdict == RETRIED else f"**{verdict}**"


def verdicts_on_page() -> dict[tuple[str, str, str], str]:
    """By situation, condition and client what the page says."""
    seen = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    titles = {title: key for key, (title, _) in SITUATIONS.items()}
    found: dict[tuple[str, str, str], str] = {}
    for section in seen.split("\n### ")[1:]:
        title, _, table = section.partition("\n")
        rows = [[cell.strip(" *`") for cell in row.strip("|").split("|")] for row in table.strip().splitlines()]
        key = titles[title[0].lower() + title[1:]] if title[0] != "`" else titles[title]
        for condition, *cells in rows[2:]:
            found |= {(key, condition, name): cell for name, cell in zip(rows[0][1:], cells, strict=True)}
    return found


def main() -> None:
    for name in sys.argv[1:] or CLIENTS:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = {"seen": observe(name), "patience_s": patience_s(name)}
        RESULTS.write_text(json.dumps(results))
    results = json.loads(RESULTS.read_text())
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    page = f"{head}{BEGIN}\n\n{tables(results)}\n\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
