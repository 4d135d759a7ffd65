"""A ledger ships itself: no failure reaches anybody, and what one process does not get to, the next one does."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from object_store import new_place

from twinbus.errors import OptionsError, StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, verify
from twinbus.ledger.options import SHIP_VARIABLE
from twinbus.ledger.reading.segment_files import StoredSegment, find_segments
from twinbus.ledger.upkeep.pruning import Candidate, prune
from twinbus.ledger.upkeep.ship_thread import LOCK, ShipThread
from twinbus.ledger.upkeep.shipping import SHIPPED_FILE
from twinbus.own_files import open_lock, try_lock
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


def leave(directory: Path, *, segments: int = 3) -> set[str]:
    """What a process that did not ship has left: the names of its segments."""
    with Ledger(LedgerOptions(directory=directory, segment_bytes_max=SEGMENT_BYTES)) as earlier:
        while len(find_segments(directory)) < segments:
            earlier.record(Event(Kind.PING))
            earlier.flush()
    return {each.name for each in find_segments(directory)}


def refused(left: set[str]) -> Any:
    """Uploads that a place refuses for good: those of segments that were left."""
    upload = UrlFolder.upload

    def upload_others(folder: UrlFolder, name: str, source: Path) -> None:
        if source.name in left:
            raise StoreError("not allowed")
        upload(folder, name, source)

    return mock.patch.object(UrlFolder, "upload", upload_others)


def test_what_others_left_and_cannot_be_shipped_is_no_trouble_of_a_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = leave(tmp_path)
    options = LedgerOptions(directory=tmp_path, ship_to="memory://spoiled", ship_interval_s=0.01)
    shipping = ShipThread(options, "5" * 16)
    with refused(left), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        shipping.start()
        wait_until(lambda: "that others left" in caplog.text)
        assert shipping.end(5)
    assert shipping.trouble == ""
    [line] = caplog.messages
    assert line.startswith("segments that others left of the ledger in ")
    assert "cannot be shipped to memory://spoiled" in line
    assert line.endswith(": not allowed")


def test_what_others_left_delays_neither_the_own_last_segment_nor_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, left = "memory://starved", leave(tmp_path, segments=5)
    options = LedgerOptions(directory=tmp_path, ship_to=place, ship_interval_s=0.01)
    uploads: list[str] = []
    ledger = Ledger(options)
    upload, is_closing, is_uploading = UrlFolder.upload, threading.Event(), threading.Event()

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        uploads.append(source.name)
        is_uploading.set()
        is_closing.wait(20)  # the first of them is on its way when the process ends
        upload(folder, name, source)

    with mock.patch.object(UrlFolder, "upload", upload_late), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        ledger.record(Event(Kind.PING))
        assert is_uploading.wait(20)
        end = ledger._shipping.end

        def end_now(timeout_s: float) -> bool:
            ledger._shipping._is_last.set()
            is_closing.set()
            return end(timeout_s)

        with mock.patch.object(ledger._shipping, "end", end_now):
            assert ledger.close(20)
    assert uploads[0] in left
    assert uploads[1] not in left, "its own goes before the rest"
    assert set(uploads) >= left, "there was time"
    assert (ledger.health().shipped, caplog.messages) == (1, [])


def test_the_end_does_not_wait_for_what_others_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = leave(tmp_path, segments=5)
    place, answers = "memory://in a hurry", threading.Event()
    upload = UrlFolder.upload
    uploads: list[str] = []

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        uploads.append(source.name)
        if source.name in left:
            answers.wait(20)
        upload(folder, name, source)

    ledger = Ledger(LedgerOptions(directory=tmp_path, ship_to=place))
    ledger.record(Event(Kind.PING))
    with mock.patch.object(UrlFolder, "upload", upload_late), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        assert ledger._close(20, 0.3)
        answers.set()
        thread = ledger._shipping._thread
        assert thread is not None
        thread.join(20)
    assert ledger.health().shipped == 1
    assert len(uploads) == 2, "its own, and the one that was on its way"
    assert not caplog.messages


def test_what_a_process_has_finished_meanwhile_goes_before_the_rest_of_what_others_left(tmp_path: Path) -> None:
    place, left = "memory://between", leave(tmp_path, segments=5)
    options = LedgerOptions(directory=tmp_path, ship_to=place, ship_interval_s=0.01, segment_bytes_max=SEGMENT_BYTES)
    upload, is_uploading, goes_on = UrlFolder.upload, threading.Event(), threading.Event()
    uploads: list[str] = []
    were_noted: list[bool] = []

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        uploads.append(source.name)
        were_noted.append((tmp_path / SHIPPED_FILE).exists())
        is_uploading.set()
        goes_on.wait(20)
        upload(folder, name, source)

    with mock.patch.object(UrlFolder, "upload", upload_late), Ledger(options) as ledger:
        ledger.record(Event(Kind.PING))
        assert is_uploading.wait(20)
        record_much(ledger)
        wait_until(lambda: time.monotonic() >= ledger._shipping._own.due_s)
        goes_on.set()
        wait_until(lambda: ledger._shipping._has_shipped_left_overs)
        assert not ledger._shipping._left_overs.right, "no name is kept that is not needed"
    assert uploads[0] in left
    assert uploads[1] not in left
    assert were_noted[:2] == [False, True], "what is right is noted before"
    assert len(uploads) == len(set(uploads))
    assert set(uploads) > left
    assert verify(place).is_complete


def test_one_that_others_left_and_that_cannot_be_shipped_does_not_keep_back_the_rest(tmp_path: Path) -> None:
    place, left = "memory://kept back", leave(tmp_path, segments=6)
    options = LedgerOptions(directory=tmp_path, ship_to=place, ship_interval_s=0.01)
    upload = UrlFolder.upload
    uploads: list[str] = []

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        uploads.append(source.name)
        wait_until(lambda: time.monotonic() >= shipping._own.due_s)
        if source.name == min(left):
            raise StoreError("not allowed")
        upload(folder, name, source)

    shipping = ShipThread(options, "5" * 16)
    with mock.patch.object(UrlFolder, "upload", upload_late):
        shipping.start()
        wait_until(lambda: len(uploads) > len(left))
        assert shipping.end(20)
    assert sorted(uploads[: len(left)]) == sorted(left), "each once before any is tried again"


def test_a_process_that_cannot_start_another_thread_records_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def start_unless_shipping(thread: threading.Thread) -> None:
        if thread.name == "twinbus-ship":
            raise RuntimeError("can't start new thread")
        start(thread)

    ledger = Ledger.at(tmp_path, ship_to="memory://no thread")
    with mock.patch.object(threading.Thread, "start", start_unless_shipping):
        for number in range(3):
            ledger.record(Event(Kind.ACCEPTED, message_ids=(f"{number}",)))
            assert ledger.flush()
    assert ledger.health().ship_trouble == "can't start new thread"
    assert ledger.close()
    assert ledger.health().lost == 0
    assert not ledger._shipping.end(0), "nothing was shipped"
    [segment] = find_segments(tmp_path)
    assert segment.process == ledger.process
    assert verify(tmp_path).is_complete
    [line] = caplog.messages
    assert line.endswith("cannot be shipped to memory://no thread: can't start new thread")


def test_a_last_segment_that_is_still_written_is_not_shipped_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(LedgerOptions(directory=tmp_path)) as ledger:
        ledger.record(Event(Kind.PING))
        ledger.flush()
        shipping = ShipThread(LedgerOptions(directory=tmp_path, ship_to="memory://unended"), ledger.process)
        shipping.start()
        assert not shipping.end(20)
    [line] = caplog.messages
    assert "are not all shipped to memory://unended: the last is still written" in line


def test_a_child_does_not_keep_the_lock_of_a_parent_that_ships_what_others_left(tmp_path: Path) -> None:
    leave(tmp_path)
    options = LedgerOptions(directory=tmp_path, ship_to="memory://parent", ship_interval_s=0.01)
    upload, is_uploading, answers = UrlFolder.upload, threading.Event(), threading.Event()

    def upload_late(folder: UrlFolder, name: str, source: Path) -> None:
        is_uploading.set()
        answers.wait(20)
        upload(folder, name, source)

    with mock.patch.object(UrlFolder, "upload", upload_late), Ledger(options) as ledger:
        ledger.record(Event(Kind.PING))
        assert is_uploading.wait(20)
        child = os.fork()
        if not child:
            files = [path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()]
            os._exit(files.count(tmp_path / LOCK))
        assert os.waitpid(child, 0)[1] == 0
        with open_lock(tmp_path / LOCK) as lock:
            assert not try_lock(lock.fileno()), "the parent still has it"
        answers.set()


def test_a_program_that_does_not_close_its_ledger_ships_to_a_folder_at_its_end(tmp_path: Path) -> None:
    place = (tmp_path / "copies").as_uri()
    program = "import sys; from twinbus.ledger import *; Ledger.at(*sys.argv[1:]).record(Event(Kind.PING))"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "ledger", "x", place], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert [each.ending for each in verify(place).processes] == ["closed"]


def test_several_ledgers_ship_what_was_left_once(tmp_path: Path) -> None:
    place, left = "memory://several", leave(tmp_path, segments=8)
    upload = UrlFolder.upload
    uploads: list[str] = []
    threads: set[int] = set()
    have_met = threading.Event()

    def upload_noted(folder: UrlFolder, name: str, source: Path) -> None:
        threads.add(threading.get_ident())
        if len(threads) > 1:
            have_met.set()
        elif not uploads:
            have_met.wait(0.3)
        uploads.append(source.name)
        upload(folder, name, source)

    options = LedgerOptions(directory=tmp_path, ship_to=place, ship_interval_s=0.01)
    ledgers = [Ledger(options) for _ in range(3)]
    with mock.patch.object(UrlFolder, "upload", upload_noted):
        for ledger in ledgers:
            ledger.record(Event(Kind.PING))
        wait_until(lambda: all(ledger._shipping._has_shipped_left_overs for ledger in ledgers))
        assert sorted(uploads) == sorted(left)
        for ledger in ledgers:
            ledger.close()
    assert verify(place).is_complete


def test_an_error_without_a_text_is_a_failure(tmp_path: Path) -> None:
    shipping = ShipThread(LedgerOptions(directory=tmp_path, ship_to="memory://mute", ship_interval_s=0.01), "5" * 16)
    with mock.patch("twinbus.ledger.upkeep.shipping.segments_and_held", side_effect=StopIteration):
        shipping.start()
        wait_until(lambda: shipping.trouble == "StopIteration")
        assert not shipping.end(5)


def test_a_program_that_does_not_close_its_ledger_ends_without_a_word_of_shipping(tmp_path: Path) -> None:
    program = (
        "import sys; from twinbus.ledger import *; Ledger.at(sys.argv[1], 'x', 'memory://x').record(Event(Kind.PING))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert verify(tmp_path).is_complete, "it was written"


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


HANGING_LOOKUPS = """
import os, socket, sys, threading
is_asked = threading.Event()
def hang(*_):
    is_asked.set()
    threading.Event().wait()
socket.getaddrinfo = hang
os.environ["AWS_ENDPOINT_URL"] = "http://objects.example:9000"
from pathlib import Path
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions
ledger = Ledger(LedgerOptions(directory=Path(sys.argv[1]), ship_to="s3a://bucket/ledger", ship_interval_s=0.01))
ledger.record(Event(Kind.PING))
assert ledger.close(0.5)
assert is_asked.wait(30)
"""
"""A program that records, and whose names are never resolved."""


def test_a_process_ends_although_the_name_of_its_place_is_never_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    command = [sys.executable, "-c", HANGING_LOOKUPS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    [line] = done.stderr.splitlines()
    assert "the time was over" in line
    assert verify(tmp_path).is_complete


def test_what_fails_after_the_end_is_not_said_any_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers = threading.Event()

    def upload_late(*_: object) -> None:
        answers.wait(20)
        raise StoreError("the process ends")

    ledger = Ledger(LedgerOptions(directory=tmp_path, ship_to="memory://late"))
    ledger.record(Event(Kind.PING))
    with mock.patch.object(UrlFolder, "upload", upload_late), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        assert ledger.close(0.2)
        answers.set()
        wait_until(lambda: "the process ends" in ledger.health().ship_trouble)
    [line] = caplog.messages
    assert "the time was over" in line


def calls_of(act: Callable[[], object]) -> int:
    """How many functions it calls in this thread, those of the system and of Python included."""
    calls = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what.endswith("call")

    before = sys.getprofile()
    gc.disable()  # what it calls is not ours
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def test_a_round_with_nothing_new_costs_the_same_however_much_others_have_left(tmp_path: Path) -> None:
    costs: list[int] = []
    for count in (1, 4, 40):
        directory = tmp_path / f"{count}"
        leave(directory, segments=count)
        with Ledger(LedgerOptions(directory=directory, segment_bytes_max=SEGMENT_BYTES)) as ledger:
            shipping = ShipThread(LedgerOptions(directory=directory, ship_to="memory://idle"), ledger.process)
            record_much(ledger)
            assert shipping._ship_own() == ""
            assert shipping.shipped > 1
            costs.append(calls_of(shipping._ship_own))
    assert costs[1:] == [costs[0]] * 2
    assert costs[0] < 50


def test_a_round_looks_at_segments_of_its_own_only(tmp_path: Path) -> None:
    left = leave(tmp_path, segments=5)
    with Ledger(LedgerOptions(directory=tmp_path, segment_bytes_max=SEGMENT_BYTES)) as ledger:
        shipping = ShipThread(LedgerOptions(directory=tmp_path, ship_to="memory://looks"), ledger.process)
        record_much(ledger)
        opened: list[str] = []
        open_path = Path.open

        def open_noted(path: Path, *arguments: Any, **options: Any) -> Any:
            opened.append(path.name)
            return open_path(path, *arguments, **options)

        with mock.patch.object(Path, "open", open_noted):
            shipping._ship_own()
    assert shipping.shipped > 1
    assert opened
    assert left.isdisjoint(opened)


def test_the_round_after_a_segment_was_finished_ships_it(tmp_path: Path) -> None:
    with Ledger(LedgerOptions(directory=tmp_path, segment_bytes_max=SEGMENT_BYTES)) as ledger:
        shipping = ShipThread(LedgerOptions(directory=tmp_path, ship_to="memory://rounds"), ledger.process)
        for _ in range(60):
            ledger.record(Event(Kind.PING))
            ledger.flush()
            assert shipping._ship_own() == ""
            assert shipping.shipped == len(find_segments(tmp_path)) - 1
        assert shipping.shipped > 5
    assert shipping._ship_own() == ""
    assert verify("memory://rounds").is_complete


def test_the_end_does_not_wait_until_all_that_others_left_was_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left, opened, goes_on = leave(tmp_path, segments=8), list[str](), threading.Event()
    is_opening = threading.Event()
    open_segment = StoredSegment.open

    def open_late(segment: StoredSegment) -> Any:
        if segment.name in left:
            opened.append(segment.name)
            is_opening.set()
            goes_on.wait(20)  # as one that is large and compressed
        return open_segment(segment)

    ledger = Ledger(LedgerOptions(directory=tmp_path, ship_to="memory://opened", ship_interval_s=0.01))
    with mock.patch.object(StoredSegment, "open", open_late), caplog.at_level(logging.WARNING, "twinbus.ledger"):
        ledger.record(Event(Kind.PING))
        assert is_opening.wait(20)
        end = ledger._shipping.end

        def end_now(timeout_s: float) -> bool:
            ledger._shipping._is_last.set()
            ledger._shipping._is_over.set()  # the time is short
            goes_on.set()
            return end(timeout_s)

        with mock.patch.object(ledger._shipping, "end", end_now):
            assert ledger.close(20)
    assert set(opened) == {min(left)}, "no more than the one that was on its way"
    assert (ledger.health().shipped, caplog.messages) == (1, [])


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
