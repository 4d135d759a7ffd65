"""A store that failed is tried again until it can be used, whatever the reason."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from twinbus.broker import store_lifecycle
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.store_lifecycle import recover_store
from twinbus.errors import StoreError


class FailingGate:
    """Cannot recover as long as there are errors left."""

    def __init__(self, *errors: Exception) -> None:
        self.failure: str | None = "the disk is gone"
        self.errors = list(errors)

    def recover(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.failure = None


def test_recovery_goes_on_after_errors_of_any_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_lifecycle, "RECOVERY_PAUSE_S", 0)
    gate = FailingGate(StoreError("no space"), OSError("no such device"), ValueError("odd"))
    with caplog.at_level(logging.INFO):
        asyncio.run(recover_store(cast("CommitGate", gate), "the spool x", logging.getLogger("twinbus.test")))
    assert gate.failure is None
    assert [record.getMessage() for record in caplog.records if record.name == "twinbus.test"] == [
        "the spool x still cannot use its store: no space",
        "the spool x still cannot use its store: no such device",
        "the spool x still cannot use its store: odd",
        "the spool x works again",
    ]
