"""Processes that are killed, forked, or end without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from twinbus.ledger import Event, Kind, Ledger, LedgerReader, verify

RECORDS_FOR_EVER = """
import sys
from twinbus.ledger import Event, Kind, Ledger

ledger = Ledger.at(sys.argv[1])
number = 0
while True:
    for _ in range(100):
        number += 1
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",), sizes=(number,)))
    if ledger.flush():
        print(number, flush=True)
"""

ENDS_WITHOUT_CLOSING = """
import sys
from twinbus.ledger import Event, Kind, Ledger
from twinbus.ledger.writing import writer

writer.EXIT_S_MAX = 60.0
Ledger.at(sys.argv[1]).record(Event(Kind.ACCEPTED, "orders", message_ids=("1",)))
"""


def ids_in(directory: Path) -> list[str]:
    return [record.message_ids[0] for record in LedgerReader(directory).records() if record.message_ids]


def test_a_killed_process_loses_nothing_that_was_flushed_and_is_complete_only_if_nothing_waited(tmp_path: Path) -> None:
    for turn in range(3):
        directory = tmp_path / f"{turn}"
        command = [sys.executable, "-c", RECORDS_FOR_EVER, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(5 + 7 * turn):
                process.stdout.readline()
            assert verify(directory).processes[0].ending == "running"
            process.send_signal(signal.SIGKILL)
            flushed = [int(line) for line in process.stdout]
        ids = ids_in(directory)
        assert len(ids) >= max(flushed, default=0)
        assert ids == [f"{number}" for number in range(1, len(ids) + 1)], "in order, nothing missing, nothing invented"
        found = verify(directory)
        assert found.processes[0].ending in ("killed", "stopped")
        assert found.is_complete == (found.processes[0].ending == "stopped")


def test_a_process_that_ends_without_closing_has_its_ledger_closed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ENDS_WITHOUT_CLOSING, str(tmp_path)], check=True, timeout=60)
    assert ids_in(tmp_path) == ["1"]
    assert verify(tmp_path).is_complete


def in_child(ledger: Ledger, name: str) -> None:
    """Record in a forked child, which ends at once."""
    child = os.fork()
    if not child:
        ledger.record(Event(Kind.ACCEPTED, message_ids=(name,)))
        os._exit(0 if ledger.close() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_writes_as_a_process_of_its_own_and_the_parent_goes_on(tmp_path: Path) -> None:
    with Ledger.at(tmp_path) as ledger:
        ledger.record(Event(Kind.ACCEPTED, message_ids=("before",)))
        in_child(ledger, "first child")
        in_child(ledger, "second child")
        ledger.record(Event(Kind.ACCEPTED, message_ids=("after",)))
    found = verify(tmp_path)
    assert found.is_complete
    assert len(found.processes) == len({process.pid for process in found.processes}) == 3
    assert sorted(ids_in(tmp_path)) == ["after", "before", "first child", "second child"]


def test_a_child_does_not_keep_the_file_of_a_parent_that_is_gone(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    ledger.record(Event(Kind.ACCEPTED, message_ids=("parent",)))
    ledger.flush()
    (segment,) = tmp_path.iterdir()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        held = [path for path in Path("/proc/self/fd").iterdir() if path.exists() and path.resolve() == segment]
        os.write(writing, b"%d" % len(held))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"0"
    os.close(reading)
    os.close(writing)
    assert verify(tmp_path).processes[0].ending == "running", "the parent still has it"
    ledger.close()


def test_a_closed_ledger_stays_closed_in_a_child(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    ledger.close()
    in_child(ledger, "child")
    assert list(tmp_path.iterdir()) == []
