"""Nobody here gives a ledger up because the disk, or the machine, takes its time."""

from __future__ import annotations

import pytest

from twinbus.ledger import Ledger

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def ledgers_have_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """To flush and to close, at the end of a block too."""
    monkeypatch.setattr(Ledger.flush, "__defaults__", (WAIT_S,))
    monkeypatch.setattr(Ledger.close, "__defaults__", (WAIT_S,))
