"""A pump with a second way: messages whose entity is down go to a backlog queue of the secondary, if that is up.

It empties a spool. Messages wait there because neither namespace took them; the first one that is back gets them. They
go home if they can. While their entity is down they go to the backlog, in their envelopes, with what is left of their
time to live; while the secondary is down too, they stay. A throttled entity is waited for: it is not down.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.pairing.backlog.envelope import Aliases, read_aliases
from twinbus.pairing.secondary import is_about_the_secondary
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.ledger_events import NO_EVENT_LOG, SyphonEventLog
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump import dead_letter_reasons as reasons
from twinbus.syphon.pump.backlog_message import HeldMessage
from twinbus.syphon.pump.destination import Batch, Destination, DestinationState
from twinbus.syphon.pump.pump import Pump

FOR_GOOD = (reasons.EXPIRED, reasons.MALFORMED)
"""Reasons to dead-letter a message at either destination."""
NAMES_A_BACKLOG_QUEUE = "x-ms-path must not be a backlog queue of the secondary"


class SpoolPump(Pump):
    def __init__(
        self,
        paths: Sequence[str],
        options: SyphonOptions,
        now_ms: int,
        event_log: SyphonEventLog = NO_EVENT_LOG,
        detours: Sequence[str] = (),
    ) -> None:
        """`detours`: the backlog queues, by path; more may be known later."""
        super().__init__(paths, options, now_ms, event_log)
        self._detours: tuple[str, ...] = ()
        self._known: set[str] = set()
        self._choice: str | None = None
        self._detours_rest_until_ms = 0
        """The secondary as a whole is not tried before."""
        self.use_detours(detours)

    def use_detours(self, paths: Sequence[str]) -> None:
        """The backlog queues that are known now."""
        self._detours = tuple(paths)
        self._known.update(paths)

    def is_detour(self, path: str) -> bool:
        """Whether this is a backlog queue of the secondary, and not an entity of the primary."""
        return path in self._known

    def wake(self) -> None:
        super().wake()
        self._detours_rest_until_ms = 0

    # --- messages arrive ---

    def _read_envelope(self, raw: bytes) -> tuple[Aliases, bytes | None]:
        return read_aliases(raw), None  # it stays in its envelope until it is known where it goes

    def _new_destination(self, held: HeldMessage, now_ms: int) -> Destination | None:
        if self.is_detour(held.aliases.path):
            self._refuse(held, reasons.MALFORMED, NAMES_A_BACKLOG_QUEUE, now_ms)
            return None
        return super()._new_destination(held, now_ms)

    # --- the second way ---

    def _park(self, held: HeldMessage, now_ms: int) -> None:
        path = self._detour_for(held, now_ms)
        if path is None:
            held.detour = None
            super()._park(held, now_ms)
            return
        held.detour = path
        destination = self.destinations.get(path)
        if destination is None:
            destination = self.destinations[path] = self._make_destination(path)
        destination.waiting.append(held)

    def _park_doubted(self, messages: Sequence[HeldMessage], now_ms: int) -> None:
        """They may be stored already: they go home first, so that there are not more copies."""
        for held in messages:
            if not held.lock_batch.is_lost:
                held.detour = None
                super()._park(held, now_ms)

    def _detour_for(self, held: HeldMessage, now_ms: int) -> str | None:
        """The backlog queue that takes the message instead of its entity; None: there is none, or no need."""
        home = self.destinations.get(held.aliases.path)
        is_down = home is not None and home.state is DestinationState.RESTING and _is_outage(home.failure)
        if not is_down or not held.payload or not self.pace.is_running or self._is_unwanted(held):
            return None
        return self._choose(now_ms)

    def _is_unwanted(self, held: HeldMessage) -> bool:
        return self.pace.has_filter and (
            self.options.enqueued_before is not None or not self.pace.allows(held.aliases.path)
        )

    def _choose(self, now_ms: int) -> str | None:
        """One queue after another, and the same as long as it takes messages."""
        if now_ms < self._detours_rest_until_ms:
            return None
        free = [path for path in self._detours if not self._rests(path, now_ms)]
        if self._choice not in free:
            self._choice = free[int(self.options.chance() * len(free)) % len(free)] if free else None
        return self._choice

    def _rests(self, path: str, now_ms: int) -> bool:
        destination = self.destinations.get(path)
        return destination is not None and destination.is_resting(now_ms)

    def _rest(self, destination: Destination, failure: Failure, now_ms: int) -> None:
        is_secondary = self.is_detour(destination.path) and is_about_the_secondary(failure)
        if is_secondary:
            self._detours_rest_until_ms = now_ms + 1  # its messages look for no other queue there
        super()._rest(destination, failure, now_ms)
        if is_secondary:
            self._detours_rest_until_ms = destination.rest_until_ms

    def _payload(self, held: HeldMessage, now_ms: int) -> bytes:
        return super()._payload(held, now_ms) if held.detour is None else held.encode_for_backlog(now_ms)

    def _record_stored(self, destination: Destination, batch: Batch) -> None:
        if self.is_detour(destination.path):
            self.counts.to_backlog += len(batch.messages)
            self.event_log.record_backlogged(destination.path, batch)
        else:
            super()._record_stored(destination, batch)

    def _refuse(self, held: HeldMessage, reason: str, text: str, now_ms: int) -> None:
        if held.detour is None or reason in FOR_GOOD:
            super()._refuse(held, reason, text, now_ms)
        elif not held.lock_batch.is_lost:  # its entity may take what a backlog queue does not
            self._park_doubted([held], now_ms)


def _is_outage(failure: Failure | None) -> bool:
    return failure is not None and failure.kind is not FailureKind.BUSY
