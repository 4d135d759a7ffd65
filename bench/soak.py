"""Hours in minutes: 50 threads and 50 tasks send through one outage after the other, and everything is counted.

    python -m bench.soak --minutes 10 [--seed 7]

Both namespaces are processes of their own; faults come over their control sockets, the primary is killed with kill -9
now and then. At the end all queues are emptied. Fails if something accepted is missing or not where its receipt says,
if there are copies that were not announced as being in doubt, or if memory, threads or open files have grown.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

import twinbus.aio
from bench.footprint import Footprint
from bench.namespaces import ServedNamespace, served_pair
from bench.soak_tally import Found, Journal, judge
from twinbus import PairedServiceBusClient, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.backlog.backlog_queues import backlog_path

BUILD = Path(__file__).parent.parent / "build" / "soak"
SENDERS = 50
"""So many threads, and as many tasks."""
QUEUES = tuple(f"soak-{number}" for number in range(5))
BACKLOG_QUEUES = 4
PAUSE_S = (0.05, 0.75)
BODY_BYTES = 256
PROGRESS_S = 10.0
PATIENCE_S = 60.0

COMMON: dict[str, Any] = {
    "ping_primary_interval": timedelta(seconds=1),
    "attempt_timeout": timedelta(seconds=1),
    "retry": Retry(attempts=2),
    "backlog_queue_count": BACKLOG_QUEUES,
    "probation": timedelta(seconds=2),
    "entities": QUEUES,
}
AT_ONCE = {"failover_interval": timedelta(0)}
HOLDING = {"failover_interval": timedelta(seconds=1), "hold_sends": True}


# --- senders ---------------------------------------------------------------------------------------


class Crew:
    """Senders that number their messages, and record the answer for each."""

    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace, journal: Journal, seed: int) -> None:
        self._primary = primary
        self._secondary = secondary
        self._journal = journal
        self._seed = seed
        self._is_over = threading.Event()

    def stop(self) -> None:
        self._is_over.set()

    def options(self, wishes: dict[str, Any]) -> SendAvailabilityPairedNamespaceOptions:
        return SendAvailabilityPairedNamespaceOptions(self._secondary.namespace, **COMMON, **wishes)

    def payloads(self, name: str) -> Iterator[tuple[list[str], Any, float]]:
        """Ids, what to send, and how long to rest afterwards: a message, now and then a few at once."""
        dice = random.Random(f"{self._seed} {name}")
        number = 0
        while not self._is_over.is_set():
            ids = [f"{name}-{number + place:06}" for place in range(dice.choice((1, 1, 1, 1, 5)))]
            number += len(ids)
            messages = [ServiceBusMessage(each.ljust(BODY_BYTES), message_id=each) for each in ids]
            yield ids, messages if len(messages) > 1 else messages[0], dice.uniform(*PAUSE_S)

    # --- threads ---

    def run_threads(self) -> None:
        with PairedServiceBusClient(self._primary.namespace, self.options(AT_ONCE)) as bus, ExitStack() as stack:
            senders = [stack.enter_context(bus.get_queue_sender(queue)) for queue in QUEUES * 2]
            threads = [
                threading.Thread(target=self._send, args=(f"thread-{number}", senders[number % len(senders)]))
                for number in range(SENDERS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _send(self, name: str, sender: Any) -> None:
        for ids, payload, rest_s in self.payloads(name):
            try:
                self._journal.note_receipt(sender.entity_name, sender.send_messages(payload))
            except Exception as error:
                self._journal.note_error(sender.entity_name, ids, error)
            self._is_over.wait(rest_s)

    # --- tasks ---

    def run_tasks(self) -> None:
        asyncio.run(self._run_tasks())

    async def _run_tasks(self) -> None:
        async with twinbus.aio.PairedServiceBusClient(self._primary.namespace, self.options(HOLDING)) as bus:
            senders = [bus.get_queue_sender(queue) for queue in QUEUES * 2]
            await asyncio.gather(
                *(self._send_in_task(f"task-{number}", senders[number % len(senders)]) for number in range(SENDERS))
            )

    async def _send_in_task(self, name: str, sender: Any) -> None:
        for ids, payload, rest_s in self.payloads(name):
            try:
                self._journal.note_receipt(sender.entity_name, await sender.send_messages(payload))
            except Exception as error:
                self._journal.note_error(sender.entity_name, ids, error)
            await asyncio.sleep(rest_s)


# --- outages ---------------------------------------------------------------------------------------


class OutagePlan:
    """One outage after the other, with fair spells between them."""

    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace, dice: random.Random) -> None:
        self._primary = primary
        self._secondary = secondary
        self._dice = dice
        self.outages = 0
        self.now = "fair"

    def outage(self) -> float:
        """Begin one; how long it is to last, in seconds."""
        self.now, begin = self._dice.choice(self._kinds())
        self.outages += 1
        begin()
        return self._dice.uniform(0.5, 6)

    def fair(self) -> float:
        """End it; how long the sun shines."""
        for each in (self._primary, self._secondary):
            if not each.is_running:
                each.start()
            each.clear()
        self.now = "fair"
        return self._dice.uniform(0.5, 6)

    def _kinds(self) -> list[tuple[str, Callable[[], None]]]:
        primary, queue = self._primary, self._dice.choice(QUEUES)
        backlog = backlog_path(primary.name, self._dice.randrange(BACKLOG_QUEUES))
        return [
            ("primary killed", primary.kill),
            *((f"primary {how}", _fault(primary, "unreachable", how=how)) for how in ("refuse", "drop", "silent")),
            (f"{queue} cannot be sent to", _fault(primary, "no-send", queue)),
            (f"{queue} does not answer", _fault(primary, "unanswered", queue, probability=0.5)),
            ("primary slow", _fault(primary, "slow", delay_ms=700, jitter_ms=600)),
            ("primary restarts", _fault(primary, "restart", length_ms=1_500, slow_for_ms=1_000)),
            ("a backlog queue is lost", self._both("no-send", backlog)),
            ("a backlog queue does not answer", self._both("unanswered", backlog, probability=0.5)),
            ("both namespaces are silent", self._both("unreachable", how="silent")),
            ("both namespaces refuse", self._both("unreachable", how="refuse")),
        ]

    def _both(self, fault: str, *entities: str, **parameters: Any) -> Callable[[], None]:
        def begin() -> None:
            self._primary.break_("no-send")
            self._secondary.break_(fault, *entities, **parameters)

        return begin


def _fault(namespace: ServedNamespace, fault: str, *entities: str, **parameters: Any) -> Callable[[], None]:
    return lambda: namespace.break_(fault, *entities, **parameters)


# --- the end ---------------------------------------------------------------------------------------


def emptied(primary: ServedNamespace, secondary: ServedNamespace) -> Found:
    """Everything that lies in the queues of both, which it does not do afterwards."""
    found = Found()
    backlog = [backlog_path(primary.name, index) for index in range(BACKLOG_QUEUES)]
    for namespace, queues in ((primary, QUEUES), (secondary, backlog)):
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            for queue in queues:
                _empty(client, queue, found)
    return found


def _empty(client: ServiceBusClient, queue: str, found: Found) -> None:
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        while got := receiver.receive_messages(1_000, max_wait_time=3):
            for message in got:
                home: Any = (message.application_properties or {}).get(b"x-ms-path")
                found.note(queue, str(message).strip(), None if home is None else home.decode())


def soak(minutes: float, seed: int, folder: Path) -> list[str]:
    """What is wrong afterwards; nothing, one hopes."""
    dice = random.Random(seed)
    journal = Journal(folder / "journal.jsonl")
    with served_pair(folder, None, QUEUES) as (primary, secondary):
        footprint = Footprint()
        crew = Crew(primary, secondary, journal, seed)
        runners = [threading.Thread(target=run) for run in (crew.run_threads, crew.run_tasks)]
        for runner in runners:
            runner.start()
        try:
            _run_outages(OutagePlan(primary, secondary, dice), footprint, journal, minutes * 60)
        finally:
            crew.stop()
            for runner in runners:
                runner.join(PATIENCE_S)
        problems = ["senders do not end"] if any(runner.is_alive() for runner in runners) else []
        footprint.after_closing()
        print("soak: all closed; emptying the queues", flush=True)
        result = judge(journal.entries(), emptied(primary, secondary))
    unexpected = [
        f"unexpected {kind[1:]}: {count:,}" for kind, count in journal.answers.items() if kind.startswith("!")
    ]
    print(f"soak: {result.accepted:,} of {result.messages:,} messages accepted, none of them may be missing")
    print(f"soak: {result.copies:,} copies more, all of which must have been in doubt")
    print(f"soak: {footprint}")
    return problems + unexpected + result.lines + footprint.problems()


def _run_outages(plan: OutagePlan, footprint: Footprint, journal: Journal, seconds: float) -> None:
    began = time.monotonic()
    change_at, is_fair, told_at = began + 5, True, began
    while (now := time.monotonic()) < began + seconds:
        if now >= change_at:
            change_at = now + (plan.outage() if is_fair else plan.fair())
            is_fair = not is_fair
        if now >= told_at:
            told_at = now + PROGRESS_S
            print(_progress(now - began, seconds, plan, footprint, journal), flush=True)
        footprint.look(now - began, is_fair=is_fair)
        time.sleep(0.2)
    plan.fair()


def _progress(spent_s: float, of_s: float, plan: OutagePlan, footprint: Footprint, journal: Journal) -> str:
    answers = ", ".join(f"{count:,} {kind}" for kind, count in sorted(journal.answers.items()))
    clock = f"{spent_s // 60:.0f}:{spent_s % 60:02.0f} of {of_s // 60:.0f}:{of_s % 60:02.0f}"
    return f"soak: {clock}, outage {plan.outages} ({plan.now}): {answers or 'nothing yet'}; {footprint.now}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Send through one outage after the other, and count.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the outages; the timing is the machine's")
    chosen = parser.parse_args(arguments)
    if chosen.minutes <= 0:
        raise SystemExit("soak: --minutes must be more than 0")
    seed = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    print(f"soak: {chosen.minutes:g} minutes, {SENDERS} threads and {SENDERS} tasks, seed {seed}", flush=True)
    for quiet in ("twinbus", "azure"):  # outages are meant here
        logging.getLogger(quiet).setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("soak: stopped"))
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=BUILD) as folder:
        problems = soak(chosen.minutes, seed, Path(folder))
    for problem in problems:
        print(f"soak: WRONG: {problem}", file=sys.stderr)
    print("soak: " + (f"{len(problems)} things are wrong (seed {seed})" if problems else "all is well"))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
