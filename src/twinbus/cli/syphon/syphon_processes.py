"""`twinbus syphon --processes N`: a syphon that has helpers, each in a process of its own, and shows them as one.

The first process does everything that one syphon does: it watches, ends, and answers. Its helpers only pump. They do
what they hear on a pipe, say on it how far they are, and stop when it is closed, whatever became of the first one.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from twinbus.cli.arguments.option_groups import BacklogArguments, LedgerArguments, PairArguments
from twinbus.cli.signals import on_signals
from twinbus.cli.syphon.syphon_setup import SyphonEnds, ends_of
from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
from twinbus.syphon.pump.pace import Keep, PaceChange

REPORT_S = 0.25
JOIN_S = 10.0
ALERTS_KEPT = 1_000
SUMS = ("moved", "moved_bytes", "rate", "received", "repeated", "in_doubt", "refused", "expired", "released", "held")


@dataclass(frozen=True, kw_only=True)
class HelperArguments:
    """What a helper is made of: it finds keys and identities as its parent did."""

    namespaces: PairArguments
    backlog: BacklogArguments
    options: SyphonOptions
    records: LedgerArguments


# --- a helper ---


def run_helper(arguments: HelperArguments, pipe: Connection, *, is_paused: bool) -> None:
    """Pump until the pipe says stop, or is closed."""
    errors_only = logging.StreamHandler()
    errors_only.setLevel(logging.ERROR)
    for name in ("syphon", "ledger"):
        # Its alerts are shown by the first process, whose ledger is in the same folder and has the same troubles.
        logging.getLogger(f"twinbus.{name}").addHandler(errors_only)
    asyncio.run(_help(arguments, pipe, is_paused=is_paused))


async def _help(arguments: HelperArguments, pipe: Connection, *, is_paused: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ends = ends_of(*arguments.namespaces.both(), arguments.backlog, arguments.options.attempt_s)

    def send(message: object) -> None:
        with suppress(OSError):  # nobody reads any more: the loop notices, too
            pipe.send(message)

    with arguments.records.open() as ledger:
        syphon = Syphon(
            ends.primary,
            ends.secondary,
            ends.names.primary,
            ends.queue_count,
            arguments.options,
            on_alert=lambda alert: send(tuple(alert)),
            ledger=ledger,
        )
        if is_paused:
            syphon.pump.pause()

        def receive() -> None:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                message = "stop"
            match message:
                case "pause":
                    syphon.pause()
                case "resume":
                    syphon.resume()
                case PaceChange():
                    syphon.change_pace(message)
                case _:
                    loop.remove_reader(pipe.fileno())
                    stop.set()

        # Ctrl-C reaches all of them, and the first one says when to stop.
        with on_signals({signal.SIGTERM: stop.set, signal.SIGINT: lambda: None}):
            async with syphon:
                loop.add_reader(pipe.fileno(), receive)
                while not stop.is_set():
                    send(counts_of(syphon.current_progress()))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REPORT_S):
                            await stop.wait()
        send(counts_of(syphon.current_progress()))  # before the ledger is closed and shipped, which may take long


def counts_of(progress: Progress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in SUMS}


# --- the first process ---


class JoinedAlerts:
    """What several processes say, once: all of them meet the same troubles.

    If one process says it again, e.g. that an entity is down for the second time, it is shown again; and so is that
    messages went to quarantine for another reason. Locks that are lost are those of one process: that is always shown.
    """

    def __init__(self, show: Callable[[Alert], None]) -> None:
        self._show = show
        self._shown: Counter[tuple[str, str, str]] = Counter()
        self._said: Counter[tuple[object, str, str, str]] = Counter()

    def hear(self, process: object, alert: Alert) -> None:
        if alert.name == "locks_lost":
            self._show(alert)
            return
        reason = alert.text.partition(":")[0] if alert.name == "quarantined" else ""
        about = (alert.name, alert.subject.casefold(), reason)
        if about not in self._shown and len(self._shown) >= ALERTS_KEPT:
            return
        self._said[process, *about] += 1
        if self._said[process, *about] > self._shown[about]:
            self._shown[about] += 1
            self._show(alert)


class HelperProcess:
    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process = process
        self.pipe = pipe
        self.counts: dict[str, Any] = dict.fromkeys(SUMS, 0)
        """What it has reported last."""

    def send(self, message: object) -> None:
        with suppress(OSError):  # it has ended: the loop notices, too
            self.pipe.send(message)


class SyphonGroup(Syphon):
    """A syphon that shares its work with helpers. What is counted is of all of them; the rate is shared."""

    def __init__(
        self,
        helpers: int,
        arguments: HelperArguments,
        ends: SyphonEnds,
        *,
        on_alert: Callable[[Alert], None],
        **named: Any,
    ) -> None:
        """`named` are those of a `Syphon`; the options are those of all together."""
        options = _share_of(arguments.options, helpers + 1)
        self._show = on_alert
        self._alerts = JoinedAlerts(on_alert)
        named["on_alert"] = partial(self._alerts.hear, self)
        super().__init__(ends.primary, ends.secondary, ends.names.primary, ends.queue_count, options, **named)
        self.processes = helpers + 1
        self._arguments = replace(arguments, options=replace(options, until_empty=False, canary=None))
        self._helpers: list[HelperProcess] = []
        self._are_helping = False
        self._counted_at = (-1, 0)
        """When the backlog was last counted, and how many helpers had moved by then."""

    async def start(self) -> None:
        await super().start()
        context = multiprocessing.get_context("spawn")
        self._are_helping = self._may_help
        for _ in range(self.processes - 1):
            ours, theirs = context.Pipe()
            run = partial(run_helper, self._arguments, theirs, is_paused=not self._are_helping)
            process = context.Process(target=run, daemon=True)
            process.start()
            theirs.close()
            helper = HelperProcess(process, ours)
            self._helpers.append(helper)
            asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, helper)

    async def stop(self) -> None:
        for helper in self._helpers:
            helper.send("stop")
        await super().stop()
        for helper in self._helpers:
            await asyncio.to_thread(helper.process.join, JOIN_S)
            if helper.process.is_alive():
                helper.process.kill()
            while not helper.pipe.closed:
                self._hear(helper)

    def pause(self) -> None:
        super().pause()
        self._let_help()

    def resume(self) -> None:
        super().resume()
        self._let_help()

    def change_pace(self, change: PaceChange) -> None:
        share = None if isinstance(change.rate, Keep) or change.rate is None else change.rate / self.processes
        shared = change if share is None else replace(change, rate=share)
        super().change_pace(shared)
        for helper in self._helpers:
            helper.send(PaceChange(rate=shared.rate, entities=change.entities))
        self._let_help()

    def current_progress(self) -> Progress:
        own = super().current_progress()
        sums = {name: getattr(own, name) + sum(each.counts[name] for each in self._helpers) for name in SUMS}
        helped = sum(each.counts["moved"] for each in self._helpers)
        if self._counted_at[0] != self._counted_ms:
            self._counted_at = (self._counted_ms, helped)
        left = None if own.left is None else max(0, own.left - (helped - self._counted_at[1]))
        seconds_left = left / sums["rate"] if left is not None and sums["rate"] > 0 and own.state == "running" else None
        return replace(own, **sums, left=left, seconds_left=seconds_left)

    # --- helpers ---

    @property
    def _may_help(self) -> bool:
        """Not while paused; and a number of messages is moved by the first one alone, which counts exactly."""
        return self.pump.pace.is_running and self.pump.pace.first_left is None

    def _let_help(self) -> None:
        if self._may_help is not self._are_helping:
            self._are_helping = self._may_help
            for helper in self._helpers:
                helper.send("resume" if self._are_helping else "pause")

    def _hear(self, helper: HelperProcess) -> None:
        try:
            message = helper.pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(helper.pipe.fileno())
            helper.pipe.close()
            helper.counts |= {"rate": 0.0, "held": 0}
            if not self._is_stopped:
                text = f"process {helper.process.pid} has ended; the others go on, and what it held comes back"
                self._show(Alert("process_ended", self.primary_name, text))
            return
        if isinstance(message, dict):
            helper.counts = message
        else:
            self._alerts.hear(helper, Alert(*message))


def _share_of(options: SyphonOptions, processes: int) -> SyphonOptions:
    return options if options.rate is None else replace(options, rate=options.rate / processes)
