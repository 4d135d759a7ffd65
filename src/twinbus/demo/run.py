"""The demo: two namespaces, an outage in the middle of sending, the backlog, and the way home.

`run_demo` does it all and yields what there is to show meanwhile.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twinbus.control.control_client import CONTROL_SOCKET
from twinbus.demo.entities import ENTITIES, create_all
from twinbus.demo.journal import JournalReader, MessageCounts, compare_journals
from twinbus.demo.processes import PROXY_VARIABLE, DemoProcess, DemoProcesses, ServedProcess, SparkProcess
from twinbus.demo.progress import DemoOutput, DemoOutputs, DemoProgress, OutputLine
from twinbus.demo.proxy_watch import ProxyWatch
from twinbus.errors import OptionsError, TwinbusError

PRIMARY, SECONDARY = "contoso", "backup"
MESSAGES_MIN, MESSAGES_MAX = 50, 5_000
SENDING_S = 6.0
OUTAGE_AT, RETURN_AFTER = 0.25, 0.2
"""The share of the messages after which the primary is killed, and the share in the backlog at which it comes back."""
PATIENCE_S = 300.0
LOOK_PAUSE_S = 0.02

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class DemoResult:
    counts: list[MessageCounts]
    """By the journals of the processes."""
    ledger: dict[str, Any] | None
    """By the ledger; None without Spark."""
    report: Path | None

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, by journals and ledger."""
        by_ledger = 0 if self.ledger is None else self.ledger["reconciliation"]["lost"]
        return by_ledger == 0 and not any(count.lost for count in self.counts)


def run_demo(
    messages: int, report: Path | None, *, with_proxy: bool = False
) -> Generator[DemoOutput, None, DemoResult]:
    """Send this many messages through an outage and return what became of them.

    `with_proxy`: the application has an official client and the connection string of a proxy, which does the pairing.

    With a path for a report, Spark brings the backlog home and reads the ledger; without, the syphon brings it home and
    the ledger is not read. Everything else happens in a temporary folder and in processes that end with the demo, also
    when it is left in the middle. Raises `TwinbusError` if it fails.
    """
    if not MESSAGES_MIN <= messages <= MESSAGES_MAX:
        raise OptionsError(f"messages must be from {MESSAGES_MIN} to {MESSAGES_MAX}, got {messages}")
    with tempfile.TemporaryDirectory(prefix="twinbus-demo-") as folder, DemoProcesses(Path(folder)) as processes:
        return (yield from DemoRun(processes, messages, report, with_proxy=with_proxy).run())


class Worker:
    """A process that keeps a journal."""

    def __init__(self, process: DemoProcess, journal: Path) -> None:
        self.process = process
        self.journal = journal
        self._reader = JournalReader(journal)

    def look(self, progress: DemoProgress) -> DemoOutputs:
        """Count what is new in its journal."""
        for entry in self._reader.new_entries():
            line = progress.note(entry)
            if line is not None:
                yield OutputLine(line)


class DemoRun:
    def __init__(
        self, processes: DemoProcesses, messages: int, report: Path | None, *, with_proxy: bool = False
    ) -> None:
        self._processes = processes
        self._messages = messages
        self._report = report
        self._with_proxy = with_proxy
        self._watch: ProxyWatch | None = None
        self._data = processes.folder / "data"
        self._ledger = processes.folder / "ledger"
        self._progress = DemoProgress()
        self._deadline = time.monotonic() + PATIENCE_S

    def run(self) -> Generator[DemoOutput, None, DemoResult]:
        yield OutputLine("Two namespaces start, each in a process of its own.")
        primary, secondary = self._processes.serve({PRIMARY: 0, SECONDARY: 0}, self._data, self._ledger)
        create_all(primary.connection_string)
        entities = ", ".join(entity.name for entity in ENTITIES)
        yield OutputLine(f"  {PRIMARY:8} port {primary.port}, process {primary.pid}: {entities}")
        yield OutputLine(f"  {SECONDARY:8} port {secondary.port}, process {secondary.pid}: for the backlog")
        spark = None
        if self._report is not None:
            yield OutputLine("Spark starts meanwhile, for later.")
            spark = self._processes.spark(self._ledger, self._report, primary, secondary)
        proxy = None
        if self._with_proxy:
            proxy = self._begin_proxy(primary, secondary)
            yield OutputLine(f"  {'proxy':8} port {proxy.port}, process {proxy.pid}: pairs them, for any client")
        sender = self._begin_sending(primary, secondary, proxy)
        who = "An application pairs them" if proxy is None else "An application takes the proxy for its namespace"
        yield OutputLine(f"{who} and sends {self._messages:,} numbered messages.")
        primary = yield from self._outage(primary, sender)
        yield from self._until_done([sender], "sending")
        yield from self._look_at_proxy(at_once=True)
        yield OutputLine(
            f"All sent: {self._count('to_primary')} to {PRIMARY}, {self._count('to_backlog')} to the backlog."
        )
        yield from self._bring_home(primary, secondary, spark)
        receivers = self._begin_receiving(proxy or primary, secondary)
        where = f"from {PRIMARY}" if proxy is None else "through the proxy"
        yield OutputLine(f"Now everything is received, {where}, by a process for each of {len(ENTITIES)} entities.")
        yield from self._until_done(receivers, "receiving")
        backlog = None if self._watch is None else self._watch.backlog
        self._watch = None  # it cannot be asked any more
        for served in (proxy, primary, secondary):
            if served is not None:
                served.stop()
        found = yield from self._read_ledger(spark)
        counts = compare_journals(sender.journal, [each.journal for each in receivers], backlog)
        return DemoResult(counts, found, self._report)

    # --- processes ---

    def _begin_proxy(self, primary: ServedProcess, secondary: ServedProcess) -> ServedProcess:
        data = self._processes.folder / "proxy"
        pairing = ("--failover-interval", "0s", "--ping-primary-interval", "2s", "--attempt-timeout", "2s")
        options = (*pairing, "--retry-attempts", "2", "--data", str(data), "--ledger", str(self._ledger))
        started = self._processes.proxy(options, primary, secondary)
        self._watch = ProxyWatch(data / "proxy" / CONTROL_SOCKET)
        return started

    def _begin_sending(self, primary: ServedProcess, secondary: ServedProcess, proxy: ServedProcess | None) -> Worker:
        journal = self._processes.folder / "sent.jsonl"
        arguments = [str(journal), str(self._ledger), str(self._messages), str(SENDING_S)]
        module = ["twinbus.demo.sender", *arguments]
        if proxy is None:
            process = self._processes.work("send", module, primary, secondary, stdin=subprocess.PIPE)
        else:
            strings = {PROXY_VARIABLE: proxy.connection_string}
            process = self._processes.start("send", module, strings, stdin=subprocess.PIPE)
        return Worker(process, journal)

    def _begin_receiving(self, primary: ServedProcess, secondary: ServedProcess) -> list[Worker]:
        workers = []
        for entity in ENTITIES:
            journal = self._processes.folder / f"received-{entity.name}.jsonl"
            arguments = ["twinbus.demo.receiver", str(journal), entity.name]
            workers.append(
                Worker(self._processes.work(f"receive-{entity.name}", arguments, primary, secondary), journal)
            )
        return workers

    # --- steps ---

    def _outage(self, primary: ServedProcess, sender: Worker) -> Generator[DemoOutput, None, ServedProcess]:
        """Kill the primary in the middle, see sends go on elsewhere, and start it again with the same data."""
        progress = self._progress
        # All that is sent counts: a machine that stalls may have made an entity fail over already.
        yield from self._until(sender, lambda: progress.sent >= self._messages * OUTAGE_AT, "sending")
        primary.kill()
        progress.recovered.clear()
        safe_before = progress.total("to_backlog")
        sender.process.send_line(f"{PRIMARY} is gone")
        yield OutputLine(
            f"kill -9 {primary.pid}: {PRIMARY} is gone after {self._count('to_primary')} messages. Sending goes on:"
        )
        enough = safe_before + self._messages * RETURN_AFTER
        yield from self._until(sender, lambda: progress.total("to_backlog") >= enough, f"{PRIMARY} is down")
        yield OutputLine(f"  {self._count('to_backlog')} messages are safe in {SECONDARY}.")
        (primary,) = self._processes.serve({PRIMARY: primary.port}, self._data, self._ledger)
        yield OutputLine(f"{PRIMARY} is back on port {primary.port} with the same data; pings will notice:")
        yield from self._until(sender, lambda: len(progress.recovered) == len(ENTITIES), f"{PRIMARY} is back")
        sender.process.send_line(f"{PRIMARY} is back")
        return primary

    def _bring_home(self, primary: ServedProcess, secondary: ServedProcess, spark: SparkProcess | None) -> DemoOutputs:
        if spark is None:
            yield OutputLine("The syphon brings the backlog home.")
            syphon = ["twinbus", "syphon", "--until-empty", "--json", "--ledger", str(self._ledger)]
            process = self._processes.work("syphon", syphon, primary, secondary)
            yield from self._until_done([Worker(process, self._processes.folder / "none")], "draining")
            return
        yield from self._wait_for(spark.ready, "Spark is starting")
        yield OutputLine("Spark brings the backlog home.")
        done = yield from self._wait_for(spark.ask("drain"), "draining with Spark")
        yield OutputLine(f"  {done['moved']:,} messages are home, in {done['seconds']:.1f} s.")

    def _read_ledger(self, spark: SparkProcess | None) -> Generator[DemoOutput, None, dict[str, Any] | None]:
        if spark is None:
            return None
        yield OutputLine("Spark reads the ledger that all of them wrote.")
        return (yield from self._wait_for(spark.ask("report"), "reading the ledger with Spark"))

    # --- waiting, and looking meanwhile ---

    def _count(self, what: str) -> str:
        return f"{self._progress.total(what):,}"

    def _until(self, worker: Worker, is_so: Callable[[], bool], doing: str) -> DemoOutputs:
        while not is_so():
            worker.process.is_done()  # raises if it failed
            yield from self._look([worker], doing)

    def _until_done(self, workers: list[Worker], doing: str) -> DemoOutputs:
        while not all(worker.process.is_done() for worker in workers):
            yield from self._look(workers, doing)
        yield from self._look(workers, doing)

    def _wait_for(self, answer: Callable[[], Value | None], doing: str) -> Generator[DemoOutput, None, Value]:
        while (value := answer()) is None:
            yield from self._look([], doing)
        return value

    def _look(self, workers: list[Worker], doing: str) -> DemoOutputs:
        if time.monotonic() > self._deadline:
            raise TwinbusError(f"the demo did not come to its end within {PATIENCE_S:g} s: this machine is very busy")
        for worker in workers:
            yield from worker.look(self._progress)
        yield from self._look_at_proxy()
        yield self._progress.snapshot(doing)
        time.sleep(LOOK_PAUSE_S)

    def _look_at_proxy(self, *, at_once: bool = False) -> DemoOutputs:
        if self._watch is not None:
            for entry in self._watch.look(self._progress, at_once=at_once):
                line = self._progress.note(entry)
                if line is not None:
                    yield OutputLine(line)
