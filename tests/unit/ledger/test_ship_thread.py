"""A ledger ships itself: no failure reaches anybody, and what one process does not get to, the next one does."""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from object_store import new_place

from twinbus.errors import OptionsError, StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, verify
from twinbus.ledger.options import SHIP_VARIABLE
from twinbus.ledger.reading.segment_files import find_segments
from twinbus.ledger.upkeep.pruning import Candidate, prune
from twinbus.storage.url_folder import UrlFolder

SEGMENT_BYTES = 1024


def record_much(ledger: Ledger) -> None:
    """Several segments."""
    for _ in range(20):
        ledger.record(Event(Kind.PING))
        ledger.flush()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_failures_reach_nobody_and_what_failed_is_shipped_later(tmp_path: Path) -> None:
    place = "memory://itself"
    options = LedgerOptions(directory=tmp_path, ship_to=place, ship_interval_s=0.01, segment_bytes_max=SEGMENT_BYTES)
    with Ledger(options) as ledger:
        with mock.patch.object(UrlFolder, "files", side_effect=StoreError("out of reach")):
            record_much(ledger)
            wait_until(lambda: ledger.health().ship_trouble == "out of reach")
            assert ledger.health().written > 0
        wait_until(lambda: ledger.health().shipped > 1)
    assert ledger.health().ship_trouble == ""
    found = verify(place)
    assert (found.is_complete, [each.ending for each in found.processes]) == (True, ["closed"]), "the rest at its end"


def test_what_a_process_has_left_is_shipped_by_the_next_one(tmp_path: Path) -> None:
    place = "memory://left"
    with Ledger(LedgerOptions(directory=tmp_path, segment_bytes_max=SEGMENT_BYTES)) as earlier:
        record_much(earlier)
    assert len(find_segments(tmp_path)) > 1
    with Ledger(LedgerOptions(directory=tmp_path, ship_to=place)) as ledger:
        ledger.record(Event(Kind.PING))
    found = verify(place)
    assert {each.process for each in found.processes} == {earlier.process, ledger.process}
    assert found.is_complete
    assert ledger.health().shipped == 1, "its own"


def test_a_process_does_not_bring_back_what_was_pruned_there(tmp_path: Path) -> None:
    place = "memory://pruned"
    options = LedgerOptions(directory=tmp_path, ship_to=place, segment_bytes_max=SEGMENT_BYTES)
    with Ledger(options) as earlier:
        record_much(earlier)
    shipped = [Candidate(each, is_read=False) for each in find_segments(place)]
    prune(place, shipped, now_ms=1, on_pruned=lambda _: None)
    with Ledger(options) as ledger:
        ledger.record(Event(Kind.PING))
    assert {each.process for each in find_segments(place)} == {ledger.process}


def test_closing_waits_for_a_place_that_does_not_answer_no_longer_than_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, answers = "memory://slow", threading.Event()
    upload = UrlFolder.upload

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        answers.wait(60)
        upload(folder, name, source)

    ledger = Ledger(LedgerOptions(directory=tmp_path, ship_to=place))
    ledger.record(Event(Kind.PING))
    with mock.patch.object(UrlFolder, "upload", upload_late), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        assert ledger.close(0.2), "all is written"
        assert f"are not all shipped to {place}" in caplog.text
        answers.set()
        wait_until(lambda: ledger.health().shipped == 1)


@pytest.mark.parametrize("says", ["given", "variable"])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("ftp://host/ledger", "not a place that ledgers can be kept in"),
        ("s3a://key:secret@bucket/ledger", "credentials come from the environment"),
        ("gs://bucket/ledger", "needs the package gcsfs: pip install 'twinbus.gcs.'"),
        ("abfss://files@account.dfs.core.windows.net/ledger", "pip install 'twinbus.azure-storage.'"),
        ("{ledger}/copies", "cannot be shipped into itself"),
    ],
)
def test_a_place_that_nothing_can_be_shipped_to_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, why: str, says: str
) -> None:
    place = place.format(ledger=tmp_path)
    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, None)
    if says == "variable":
        monkeypatch.setenv(SHIP_VARIABLE, place)
    with pytest.raises(OptionsError, match=why):
        Ledger.at(tmp_path, ship_to=place if says == "given" else None)


def test_what_was_given_counts_more_than_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHIP_VARIABLE, new_place("local", tmp_path))
    with Ledger.at(tmp_path / "ledger", ship_to="memory://given") as ledger:
        ledger.record(Event(Kind.PING))
    assert verify("memory://given").is_complete
