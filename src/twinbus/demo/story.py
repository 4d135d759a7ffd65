"""The story: two namespaces, an outage in the middle of sending, a detour, and the way home.

`tell` really does it all, and yields what there is to show while it goes on.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twinbus.demo.cast import CAST, create_all
from twinbus.demo.crew import Crew, Member, Served, Wishes
from twinbus.demo.journal import JournalReader
from twinbus.demo.judge import Tally, judge
from twinbus.demo.scenes import Board, Scene, Scenes, Told
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
class Outcome:
    """What the story came to."""

    tallies: list[Tally]
    """By the journals of the processes."""
    ledger: dict[str, Any] | None
    """By the ledger; None: nobody read it, for that takes Spark."""
    report: Path | None

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, by anybody's account."""
        by_ledger = 0 if self.ledger is None else self.ledger["reconciliation"]["lost"]
        return by_ledger == 0 and not any(tally.lost for tally in self.tallies)


def tell(messages: int, report: Path | None) -> Generator[Scene, None, Outcome]:
    """Send this many messages through an outage and return what became of them.

    With a place for a report, Spark brings the backlog home and reads the ledger; without, the syphon does and nobody.
    Everything else happens in a temporary folder and in processes that are gone afterwards, also when the story is left
    in the middle. Raises `TwinbusError` if it cannot be brought to its end.
    """
    if not MESSAGES_MIN <= messages <= MESSAGES_MAX:
        raise OptionsError(f"messages must be from {MESSAGES_MIN} to {MESSAGES_MAX}, got {messages}")
    with tempfile.TemporaryDirectory(prefix="twinbus-demo-") as folder, Crew(Path(folder)) as crew:
        return (yield from Story(crew, messages, report).tell())


class Worker:
    """A process that keeps a journal."""

    def __init__(self, process: Member, journal: Path) -> None:
        self.process = process
        self.journal = journal
        self._reader = JournalReader(journal)

    def look(self, board: Board) -> Scenes:
        """Count what is new in its journal."""
        for entry in self._reader.new_entries():
            line = board.note(entry)
            if line is not None:
                yield Told(line)


class Story:
    def __init__(self, crew: Crew, messages: int, report: Path | None) -> None:
        self._crew = crew
        self._messages = messages
        self._report = report
        self._data = crew.folder / "data"
        self._ledger = crew.folder / "ledger"
        self._board = Board()
        self._deadline = time.monotonic() + PATIENCE_S

    def tell(self) -> Generator[Scene, None, Outcome]:
        yield Told("Two namespaces start, each in a process of its own.")
        primary, secondary = self._crew.serve({PRIMARY: 0, SECONDARY: 0}, self._data, self._ledger)
        create_all(primary.connection_string)
        entities = ", ".join(entity.name for entity in CAST)
        yield Told(f"  {PRIMARY:8} port {primary.port}, process {primary.pid}: {entities}")
        yield Told(f"  {SECONDARY:8} port {secondary.port}, process {secondary.pid}: for the backlog")
        spark = None
        if self._report is not None:
            yield Told("Spark starts meanwhile, for later.")
            spark = self._crew.spark(self._ledger, self._report, primary, secondary)
        sender = self._begin_sending(primary, secondary)
        yield Told(f"An application pairs them and sends {self._messages:,} numbered messages.")
        primary = yield from self._outage(primary, sender)
        yield from self._until_done([sender], "sending")
        yield Told(f"All sent: {self._count('to_primary')} to {PRIMARY}, {self._count('to_backlog')} to the backlog.")
        yield from self._bring_home(primary, secondary, spark)
        receivers = self._begin_receiving(primary, secondary)
        yield Told(f"Now everything is received, from {PRIMARY}, by a process for each of {len(CAST)} entities.")
        yield from self._until_done(receivers, "receiving")
        for served in (primary, secondary):
            served.stop()
        found = yield from self._read_ledger(spark)
        return Outcome(judge(sender.journal, [each.journal for each in receivers]), found, self._report)

    # --- who takes part ---

    def _begin_sending(self, primary: Served, secondary: Served) -> Worker:
        journal = self._crew.folder / "sent.jsonl"
        arguments = [str(journal), str(self._ledger), str(self._messages), str(SENDING_S)]
        process = self._crew.work(
            "send", ["twinbus.demo.sender", *arguments], primary, secondary, stdin=subprocess.PIPE
        )
        return Worker(process, journal)

    def _begin_receiving(self, primary: Served, secondary: Served) -> list[Worker]:
        workers = []
        for entity in CAST:
            journal = self._crew.folder / f"received-{entity.name}.jsonl"
            arguments = ["twinbus.demo.receiver", str(journal), entity.name]
            workers.append(Worker(self._crew.work(f"receive-{entity.name}", arguments, primary, secondary), journal))
        return workers

    # --- what happens ---

    def _outage(self, primary: Served, sender: Worker) -> Generator[Scene, None, Served]:
        """Kill the primary in the middle, see sends go on elsewhere, and start it again with the same data."""
        board = self._board
        # All that is sent counts: a machine that stalls may have made an entity fail over already.
        yield from self._until(sender, lambda: board.sent >= self._messages * OUTAGE_AT, "sending")
        primary.kill()
        board.recovered.clear()
        safe_before = board.total("to_backlog")
        sender.process.tell(f"{PRIMARY} is gone")
        yield Told(
            f"kill -9 {primary.pid}: {PRIMARY} is gone after {self._count('to_primary')} messages. Sending goes on:"
        )
        enough = safe_before + self._messages * RETURN_AFTER
        yield from self._until(sender, lambda: board.total("to_backlog") >= enough, f"{PRIMARY} is down")
        yield Told(f"  {self._count('to_backlog')} messages are safe in {SECONDARY}.")
        (primary,) = self._crew.serve({PRIMARY: primary.port}, self._data, self._ledger)
        yield Told(f"{PRIMARY} is back on port {primary.port} with the same data; pings will notice:")
        yield from self._until(sender, lambda: len(board.recovered) == len(CAST), f"{PRIMARY} is back")
        sender.process.tell(f"{PRIMARY} is back")
        return primary

    def _bring_home(self, primary: Served, secondary: Served, spark: Wishes | None) -> Scenes:
        if spark is None:
            yield Told("The syphon brings the backlog home.")
            syphon = ["twinbus", "syphon", "--until-empty", "--json", "--ledger", str(self._ledger)]
            process = self._crew.work("syphon", syphon, primary, secondary)
            yield from self._until_done([Worker(process, self._crew.folder / "none")], "draining")
            return
        yield from self._wait_for(spark.ready, "Spark is starting")
        yield Told("Spark brings the backlog home.")
        done = yield from self._wait_for(spark.ask("drain"), "draining with Spark")
        yield Told(f"  {done['moved']:,} messages are home, in {done['seconds']:.1f} s.")

    def _read_ledger(self, spark: Wishes | None) -> Generator[Scene, None, dict[str, Any] | None]:
        if spark is None:
            return None
        yield Told("Spark reads the ledger that all of them wrote.")
        return (yield from self._wait_for(spark.ask("report"), "reading the ledger with Spark"))

    # --- waiting, and looking meanwhile ---

    def _count(self, what: str) -> str:
        return f"{self._board.total(what):,}"

    def _until(self, worker: Worker, is_so: Callable[[], bool], doing: str) -> Scenes:
        while not is_so():
            worker.process.is_done()  # raises if it failed
            yield from self._look([worker], doing)

    def _until_done(self, workers: list[Worker], doing: str) -> Scenes:
        while not all(worker.process.is_done() for worker in workers):
            yield from self._look(workers, doing)
        yield from self._look(workers, doing)

    def _wait_for(self, answer: Callable[[], Value | None], doing: str) -> Generator[Scene, None, Value]:
        while (value := answer()) is None:
            yield from self._look([], doing)
        return value

    def _look(self, workers: list[Worker], doing: str) -> Scenes:
        if time.monotonic() > self._deadline:
            raise TwinbusError(f"the demo did not come to its end within {PATIENCE_S:g} s: this machine is very busy")
        for worker in workers:
            yield from worker.look(self._board)
        yield self._board.picture(doing)
        time.sleep(LOOK_PAUSE_S)
