"""What a report says of messages whose sender, syphon or namespace ended without closing its ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ledger_ends import let_go

from twinbus.cli.main import run
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions
from twinbus.ledger.reading import process_end

pytestmark = pytest.mark.usefixtures("spark")
MINUTE_NS = 60_000_000_000


def recorded_ledger(directory: Path, program: str, *events: tuple[int, Event], write_s: float = 0.1) -> Ledger:
    """A ledger with these events, each so many minutes after the start of 2025."""
    now = [0]
    ledger = Ledger(
        LedgerOptions(directory=directory, program=program, write_interval_s=write_s), clock_ns=lambda: now[0]
    )
    for minute, event in events:
        now[0] = 1_735_689_600_000_000_000 + minute * MINUTE_NS
        ledger.record(event)
    return ledger


def message(kind: Kind, name: str, **more: Any) -> Event:
    return Event(kind, "orders", "contoso", message_ids=(name,), **more)


def reported(ledger: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run(["pipeline", "report", "--ledger", str(ledger), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def namespace_told(directory: Path, *names: str) -> None:
    for kind in (Kind.STORED, Kind.DELIVERED):
        recorded_ledger(directory, "contoso", *((0, message(kind, name)) for name in names)).close(60.0)


@pytest.mark.long
def test_a_sender_that_was_stopped_with_nothing_to_say_leaves_the_answer_certain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = recorded_ledger(tmp_path, "shop", *((0, message(Kind.ACCEPTED, name)) for name in "abc"))
    assert client.flush(60.0)
    let_go(client)
    namespace_told(tmp_path, *"abc")
    code, found = reported(tmp_path, capsys)
    assert (code, found["reconciliation"]["verdict"]) == (0, "nothing lost")


@pytest.mark.long
def test_a_sender_that_was_stopped_with_more_to_say_makes_only_that_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = recorded_ledger(tmp_path, "shop", (0, message(Kind.ACCEPTED, "a")), write_s=60.0)
    assert client.flush(60.0)
    client.record(message(Kind.ACCEPTED, "b"))
    let_go(client)
    namespace_told(tmp_path, "a")
    code, found = reported(tmp_path, capsys)
    assert code == 3
    assert found["reconciliation"]["verdict"] == (
        "unknown: records are missing; the 1 messages on record are all accounted for"
    )
    [dark] = found["coverage"]["unknown"]
    assert (dark["program"], dark["hides_accepted"]) == ("shop", True)
    assert "it was killed: records of its last 60 s may never have been written" in dark["reason"]


@pytest.mark.long
def test_what_a_syphon_did_before_a_power_cut_is_unknown_and_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Message *a* came home in the last seconds, which were written and never synced; it was quiet before."""
    queue = "contoso/x-servicebus-transfer/0"
    others = [f"{number}" for number in range(5)]
    sent = [(minute, message(Kind.BACKLOGGED, name, queue=queue)) for minute, name in enumerate(["a", *others])]
    recorded_ledger(tmp_path, "shop", *sent[:1], *((minute + 60, event) for minute, event in sent[1:])).close(60.0)
    cut = recorded_ledger(tmp_path, "syphon", (-10, Event(Kind.LONG_POLL, queue=queue)))
    assert cut.flush(60.0)
    let_go(cut)
    home = [message(kind, name, queue=queue) for name in others for kind in (Kind.SENT_HOME, Kind.COMPLETED)]
    recorded_ledger(tmp_path, "syphon", *((90, event) for event in home)).close(60.0)
    monkeypatch.setattr(process_end, "boot_id", lambda: "a later start")
    code, found = reported(tmp_path, capsys)
    assert (code, found["reconciliation"]["lost"], found["reconciliation"]["lost_at_least"]) == (3, None, 0)
    assert [(row["message_id"], row["verdict"]) for row in found["reconciliation"]["named"]] == [("a", "unknown")]
    [dark] = found["coverage"]["unknown"]
    assert "a power cut cannot be excluded" in dark["reason"]
