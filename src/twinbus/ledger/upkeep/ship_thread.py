"""The thread that ships the finished segments of a process. No send waits for it, and no failure reaches anybody."""

from __future__ import annotations

import logging
import threading

from twinbus.ledger.options import LedgerOptions

log = logging.getLogger("twinbus.ledger")

RETRY_S_MAX = 300.0


class ShipThread:
    """Ships what its process has finished, and once what is left of earlier ones, which ended before all was shipped.

    What it does not get to is left for the next process that ships the directory, or for `twinbus ledger ship`.
    """

    def __init__(self, options: LedgerOptions, process: str | None) -> None:
        """Without a `process` it ships what any process has finished, each time."""
        self._options = options
        self._process = process
        self._has_shipped_left_overs = process is None
        self._is_last = threading.Event()
        self._thread: threading.Thread | None = None
        self.shipped = 0
        """Segments of the process whose copies are right."""
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
        if self._thread.is_alive():
            self._log("are not all shipped", "the time was over; the next process that ships them goes on")
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
            shipper = Shipper(self._options.directory, self._options.ship_to or "")
            result = shipper.run(process=self._process)
            self.shipped = max(self.shipped, result.known + len(result.shipped))
            failed = result.failed
            if not self._has_shipped_left_overs:
                failed |= shipper.run().failed
                self._has_shipped_left_overs = not failed
            trouble = next((f"{name}: {why}" for name, why in failed.items()), "")
        except Exception as error:  # this thread must not die: nothing would be shipped any more
            trouble = f"{error}"
        if trouble and not self.trouble:
            self._log("cannot be shipped", trouble)
        elif self.trouble and not trouble:
            self._log("are shipped again", "")
        self.trouble = trouble
        return not trouble

    def _log(self, what: str, why: str) -> None:
        about = f": {why}" if why else ""
        log.warning(
            "segments of the ledger in %s %s to %s%s", self._options.directory, what, self._options.ship_to, about
        )
