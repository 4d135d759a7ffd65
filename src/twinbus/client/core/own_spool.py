"""The spool of a paired client, on threads as on tasks: where it is, where its messages go, what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from twinbus.client.reporting.status import SpoolStatus
from twinbus.ledger import Ledger
from twinbus.pairing.sending.failure import Failure
from twinbus.spool.folder import SpoolDirectory
from twinbus.spool.open_spool import SpoolRoutes
from twinbus.spool.spool import Spool
from twinbus.syphon import Alert, SyphonOptions
from twinbus.syphon.options import ATTEMPT_S_MIN

if TYPE_CHECKING:
    from twinbus.client.core.client_state import ClientState

BACKOFF_S = (1.0, 15.0)
"""The pauses between attempts to empty it; the client tells it as soon as it knows that a namespace is back."""
REPORTED = frozenset(("quarantined", "spool_home", "locks_lost"))
"""What its syphons report and nobody else does; how the namespaces are is known by the sends."""


class Report(Protocol):
    def __call__(self, name: str, text: str, *, details: dict[str, object]) -> None: ...


class OwnSpool:
    """Raises `OptionsError` where its messages could never go home."""

    def __init__(self, state: ClientState, report: Report, call: Callable[[Callable[[], None]], None]) -> None:
        """`report` publishes an event; `call` does something where the client runs."""
        options, attempt_s = state.options, max(state.pair.rules.attempt_s, ATTEMPT_S_MIN)
        assert options.spool is not None
        assert isinstance(options.spool_max, int)
        self._report, self._call = report, call
        self._state = state
        self._ledger_folder, self._ledger_ship_to = options.ledger, options.ledger_ship_to
        self._ledger: Ledger | None = None
        self._directory = SpoolDirectory(options.spool, state.pair.name)
        self._bytes_max = options.spool_max
        self._routes = SpoolRoutes(
            primary_name=state.pair.name,
            primary=state.primary.dial(attempt_s),
            secondary=state.secondary.dial(attempt_s),
            options=SyphonOptions(ttl=options.ttl, attempt_s=attempt_s, backoff_s=BACKOFF_S),
        )
        self._spool: Spool | None = None

    def start(self) -> None:
        """Raises `StoreError`."""
        if self._ledger_folder is not None:
            self._ledger = Ledger.at(self._ledger_folder, "spool", self._ledger_ship_to)
        try:
            self._spool = Spool(
                self._directory,
                replace(self._routes, ledger=self._ledger),
                bytes_max=self._bytes_max,
                on_alert=lambda alert: self._call(lambda: self._report_alert(alert)),
                on_problem=lambda text: self._call(lambda: self._report("spool_unusable", text, details={})),
            )
            self._spool.start()
        except BaseException:
            self._close_ledger()
            raise

    def stop(self) -> None:
        """What is in it stays there, for the next process of this pair."""
        if self._spool is not None:
            self._spool.stop()
        self._close_ledger()

    def put(self, entity: str, encoded: Sequence[bytes]) -> Future[Failure | None]:
        assert self._spool is not None, "it is used only after pairing"
        return self._spool.put(entity, encoded)

    def wake(self) -> None:
        """One of the namespaces is back."""
        if self._spool is not None:
            self._spool.wake()

    def use_queues(self, queues: Sequence[int]) -> None:
        """The backlog queues that there are."""
        if self._spool is not None:
            self._spool.use_queues(queues)

    def status(self) -> SpoolStatus | None:
        """How it is; None: it is not open."""
        state = None if self._spool is None else self._spool.state()
        if state is None:
            return None
        return SpoolStatus(
            folder=str(state.folder),
            messages=state.counts.messages,
            size_bytes=state.counts.size_bytes,
            size_bytes_max=state.bytes_max,
            quarantined=state.counts.dead_letters,
            sent_home=state.progress.home,
            sent_to_backlog=state.progress.to_backlog,
            left_behind=sum(counts.messages for counts in state.adopted.values()),
            reason=state.failure or "",
            problems=state.problems,
        )

    def _report_alert(self, alert: Alert) -> None:
        if alert.name in REPORTED:
            self._report(alert.name, alert.text, details={"subject": alert.subject, "side": "spool"})

    def _close_ledger(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
