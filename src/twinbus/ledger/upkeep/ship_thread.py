"""The thread that ships the finished segments of one process. No send waits for it, and no failure reaches anybody."""

from __future__ import annotations

import logging
import threading

from twinbus.ledger.options import LedgerOptions

log = logging.getLogger("twinbus.ledger")

RETRY_S_MAX = 300.0


class ShipThread:
    """Ships what this process has finished; what it does not get to is left for `twinbus ledger ship --once`."""

    def __init__(self, options: LedgerOptions, process: str) -> None:
        self._options = options
        self._process = process
        self._is_last = threading.Event()
        self._thread: threading.Thread | None = None
        self.shipped = 0
        """Segments whose copies are right."""
        self.trouble = ""

    def start(self) -> None:
        if self._options.ship_to is not None:
            self._thread = threading.Thread(target=self._run, name="twinbus-ship", daemon=True)
            self._thread.start()

    def end(self, timeout_s: float) -> bool:
        """Ship once more what is finished now; whether that worked within the time given."""
        if self._thread is None:
            return True
        self._is_last.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self.trouble

    def _run(self) -> None:
        wait_s = self._options.ship_interval_s
        while not self._is_last.wait(wait_s):
            longer_s = max(self._options.ship_interval_s, min(2 * wait_s, RETRY_S_MAX))
            wait_s = self._options.ship_interval_s if self._ship() else longer_s
        self._ship()

    def _ship(self) -> bool:
        from twinbus.ledger.upkeep.shipping import (
            Shipper,  # not needed, and not paid for, by processes that ship nothing
        )

        try:
            result = Shipper(self._options.directory, self._options.ship_to or "").run(process=self._process)
            self.shipped = max(self.shipped, result.known + len(result.shipped))
            trouble = next((f"{name}: {why}" for name, why in result.failed.items()), "")
        except Exception as error:  # this thread must not die: nothing would be shipped any more
            trouble = f"{error}"
        if bool(trouble) != bool(self.trouble):
            what = f"cannot be shipped to {self._options.ship_to}: {trouble}" if trouble else "are shipped again"
            log.warning("segments of the ledger in %s %s", self._options.directory, what)
        self.trouble = trouble
        return not trouble
