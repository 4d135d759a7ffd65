"""What one task of a drain does: it is a syphon for some of the queues, until they are empty.

No Spark in here: the same function runs in a test, in a task of any Spark, or in a process of its own. A failure that
another attempt on the same machine would meet again is a line in the report, not an exception: Spark would only repeat
it and bury it in a stack trace.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from twinbus.errors import OptionsError
from twinbus.ledger import Ledger
from twinbus.ledger.kinds import Kind
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.schema import Event
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.sending.failure import FailureKind
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.syphon import Alert, Progress, Syphon
from twinbus.syphon.peeking.queue_discovery import FOR_GOOD, SHUT
from twinbus.syphon.pump.destination import DestinationState
from twinbus.syphon.pump.pace import RunState
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.peek import peek

PROGRESS_S = 0.25
COLLECT_AFTER = 50_000
RECORD_WAIT_S = 0.02
"""What a killed task did in this time, except what it stored, is not in the ledger."""
FLUSH_S_MAX = 0.2
LOCKED = "messages are under lock elsewhere; they come back when the locks end"
SILENT = "no answer yet"
KILLED_AMONG_FIRST = "an attempt was killed: how many of the first messages it moved is not known, so no more are"


@dataclass(frozen=True, slots=True)
class ShardReport:
    """How one attempt at a shard ended."""

    shard: int
    attempt: int
    executor: str
    """The machine, and the process there that started this one: the same for all tasks of an executor."""
    moved: int = 0
    moved_bytes: int = 0
    received: int = 0
    repeated: int = 0
    in_doubt: int = 0
    refused: int = 0
    expired: int = 0
    seconds: float = 0.0
    trouble: str = ""
    """Why it ended before its queues were empty; empty if they are."""
    order_problem: str = ""
    """Why the order of a message is unknown, if that ended it: the message stays where it is."""
    is_cut: bool = False
    """Whether it ended because its time was over, or its number of messages was moved: there may be more."""

    def plus(self, earlier: ShardReport) -> ShardReport:
        """The sum of two on the same machine."""
        return replace(self, **{name: getattr(self, name) + getattr(earlier, name) for name in (*_COUNTS, "seconds")})

    @property
    def gone(self) -> int:
        """Messages that left the backlog for good."""
        return self.moved + self.refused + self.expired


_COUNTS = ("moved", "moved_bytes", "received", "repeated", "in_doubt", "refused", "expired")


class ShardEnd(NamedTuple):
    """How the syphon of a task ended."""

    progress: Progress | None = None
    trouble: str = ""
    order_problem: str = ""
    is_cut: bool = False


def drain_shard(options: DrainOptions, shard: Shard, attempt: int = 0) -> ShardReport:
    """Bring home what is in the shard's queues; returns when they are empty, when its time or number is over, or with
    the trouble.
    """
    who = f"{socket.gethostname()}:{os.getppid()}"
    if shard.first is not None and attempt:
        return ShardReport(shard.number, attempt, who, trouble=f"{who}: {KILLED_AMONG_FIRST}")
    try:
        primary = options.primary.namespace().dial(options.attempt_s)
        secondary = options.secondary.namespace().dial(options.attempt_s)
        ledger = _ledger(options, shard, attempt)
    except OptionsError as error:
        return ShardReport(shard.number, attempt, who, trouble=f"{who}: {error}")
    try:
        with _rare_garbage_collection():
            end = asyncio.run(_pump(options, shard, primary, secondary, ledger))
    finally:
        if ledger is not None:
            ledger.close()
    progress, trouble = end.progress, end.trouble
    if progress is None:
        return ShardReport(shard.number, attempt, who, trouble=f"{who}: {trouble}")
    return ShardReport(
        shard.number,
        attempt,
        who,
        **{name: getattr(progress, name) for name in _COUNTS},
        seconds=round(progress.seconds, 3),
        trouble=f"{who}: {trouble}" if trouble else "",
        order_problem=end.order_problem,
        is_cut=end.is_cut,
    )


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Thousands of messages are held at a time and none is in a cycle: the usual search for cycles costs a tenth."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def program_of(run: str, shard: int, attempt: int) -> str:
    """The name of an attempt in the ledger."""
    return f"twinbus drain {run} shard {shard} attempt {attempt}"


def _ledger(options: DrainOptions, shard: Shard, attempt: int) -> Ledger | None:
    if options.ledger is None:
        return None
    program = program_of(options.run, shard.number, attempt)
    return Ledger(LedgerOptions(directory=Path(options.ledger), program=program, write_interval_s=RECORD_WAIT_S))


async def _pump(options: DrainOptions, shard: Shard, primary: Dial, secondary: Dial, ledger: Ledger | None) -> ShardEnd:
    if options.spread_s:
        await asyncio.sleep(random.uniform(0, options.spread_s))  # noqa: S311
    refusal = await _refusal(secondary, [backlog_path(options.primary_name, each) for each in shard.queues], options)
    if refusal:
        return ShardEnd(trouble=refusal)
    order_problems: list[str] = []

    def on_alert(alert: Alert) -> None:
        if alert.name == "order_unknown":
            order_problems.append(f"{alert.subject}: {alert.text}")

    syphon = Syphon(
        primary,
        secondary,
        options.primary_name,
        options.queue_count,
        options.syphon(shard),
        queues=shard.queues,
        on_alert=on_alert,
        ledger=None if ledger is None else WriteAheadRecorder(ledger),
    )
    began_s = time.monotonic()
    patience, trouble, is_cut = Patience(options, began_s), "", False
    async with syphon:
        async for progress in syphon.progress(PROGRESS_S):
            now_s = time.monotonic()
            is_connected = all(queue.is_attached for queue in syphon.pump.queues)
            trouble = patience.trouble(progress, now_s, is_connected=is_connected)
            is_cut = _is_over(options, progress, now_s - began_s)
            if is_cut and not trouble and not _gone(progress):
                trouble = _hindrance(progress, is_connected=is_connected)
            if is_cut or trouble or order_problems:
                break
        else:
            await syphon.finished()
            trouble = syphon.queues.doubt or ""
    return ShardEnd(syphon.current_progress(), trouble, order_problems[0] if order_problems else "", is_cut)


def _is_over(options: DrainOptions, progress: Progress, seconds: float) -> bool:
    """Whether it has moved its number of messages, has had its time, or is wanted to end."""
    if progress.state == RunState.CANARY.value:
        return progress.held == 0  # those are counted when the backlog has let them go
    return seconds >= options.round_s or (options.signal is not None and Path(options.signal).exists())


async def _refusal(secondary: Dial, paths: Sequence[str], options: DrainOptions) -> str:
    """Why one of the queues can never be read; empty if it can. An outage may pass."""
    try:
        async with NamespaceConnection(secondary, attempt_s=options.attempt_s) as connection:
            for path in paths:
                try:
                    await peek(connection, path, 1, 1)
                except ConnectionFailed as error:
                    return f"{path}: {error.failure}" if error.failure.kind in FOR_GOOD | SHUT else ""
    except ConnectionFailed:
        pass
    return ""


class WriteAheadRecorder:
    """Writes "stored at home" to the file before the message is completed in the backlog."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def record(self, event: Event, /) -> None:
        self._ledger.record(event)
        if event.kind == Kind.SENT_HOME:
            self._ledger.flush(FLUSH_S_MAX)  # a tenth of a millisecond for a batch; a failing disk stops nothing


class Patience:
    """How long a task goes on although nothing moves."""

    def __init__(self, options: DrainOptions, now_s: float) -> None:
        self._patience_s = options.patience_s
        self._refused_s = min(options.refused_s, options.patience_s)
        self._gone = 0
        self._since_s = now_s

    def trouble(self, progress: Progress, now_s: float, *, is_connected: bool) -> str:
        """Why to give up; empty: go on. `is_connected`: whether there is a link to each of its queues."""
        gone = _gone(progress)
        if gone != self._gone:
            self._gone, self._since_s = gone, now_s
            return ""
        waited_s = now_s - self._since_s
        if waited_s < self._refused_s or (waited_s < self._patience_s and not _is_refused(progress)):
            return ""
        return _hindrance(progress, is_connected=is_connected)


def _gone(progress: Progress) -> int:
    return progress.moved + progress.refused + progress.expired


def _hindrance(progress: Progress, *, is_connected: bool) -> str:
    """What keeps messages back: locks of others only if nothing else does."""
    down = [f"{each.path}: {each.reason}" for each in progress.destinations if each.reason]
    if progress.troubles or down:
        return "; ".join([*progress.troubles, *down][:3])
    if not is_connected:
        return f"secondary: {SILENT}"
    waited_for = [
        each.path for each in progress.destinations if each.state == DestinationState.OPENING.value or each.in_flight
    ]
    return f"{waited_for[0]}: {SILENT}" if waited_for else LOCKED


def _is_refused(progress: Progress) -> bool:
    """Whether only refusals of our credential keep messages back."""
    reasons = [each.reason for each in progress.destinations if each.reason]
    reasons += [trouble.partition(": ")[2] for trouble in progress.troubles]
    return bool(reasons) and all(reason.startswith(FailureKind.UNAUTHORISED.value) for reason in reasons)
