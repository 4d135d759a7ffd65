"""Several processes of one syphon say what one would say, and say it in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from twinbus.cli.syphon import syphon_processes
from twinbus.cli.syphon.syphon_processes import SUMS, JoinedAlerts, run_helper
from twinbus.syphon import Alert


def test_what_all_processes_say_is_shown_once_and_what_one_says_again_is_shown_again() -> None:
    shown: list[Alert] = []
    alerts = JoinedAlerts(shown.append)
    down, up, unlisted = (
        Alert("destination_down", "orders", "it is full"),
        Alert("destination_up", "orders", "accepts messages again"),
        Alert("not_listed", "bills", "stays in the backlog"),
    )
    for alert in (down, unlisted, up, down):
        for process in ("first", "second", "third"):
            text = alert.text if process == "first" else f"{alert.text} (seen from {process})"
            alerts.hear(process, alert._replace(subject=alert.subject.title(), text=text))
    assert [each.name for each in shown] == ["destination_down", "not_listed", "destination_up", "destination_down"]


def test_what_differs_between_processes_is_shown_of_each() -> None:
    shown: list[Alert] = []
    alerts = JoinedAlerts(shown.append)
    for process, lost, reason in (("first", 5, "TooLarge"), ("second", 7, "Malformed"), ("third", 7, "Malformed")):
        alerts.hear(process, Alert("locks_lost", "queue-0", f"the locks of {lost} messages were lost: gone"))
        alerts.hear(process, Alert("quarantined", "orders", f"{reason}: message {process}"))
    assert [each.text for each in shown if each.name == "quarantined"] == [
        "TooLarge: message first",
        "Malformed: message second",
    ]
    assert [each.text.split()[3] for each in shown if each.name == "locks_lost"] == ["5", "7", "7"]


class PumplessSyphon:
    """Has moved 42 messages by the time it has stopped."""

    def __init__(self, *_: object, **__: object) -> None:
        self.moved = 0

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        self.moved = 42

    def current_progress(self) -> Any:
        return SimpleNamespace(**dict.fromkeys(SUMS, 0) | {"moved": self.moved})


def test_a_helper_has_sent_its_last_counts_before_its_ledger_is_closed_and_leaves_warnings_to_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = Pipe()
    sent: list[int] = []

    @contextmanager
    def ledger() -> Iterator[None]:
        yield
        while ours.poll():
            sent.append(ours.recv()["moved"])
        logging.getLogger("twinbus.ledger").warning("segments cannot be shipped")

    arguments = mock.Mock(records=mock.Mock(open=ledger))
    arguments.namespaces.both.return_value = ()
    monkeypatch.setattr(syphon_processes, "Syphon", PumplessSyphon)
    monkeypatch.setattr(syphon_processes, "ends_of", mock.Mock())
    loggers = [logging.getLogger(f"twinbus.{name}") for name in ("syphon", "ledger")]
    for logger in loggers:
        monkeypatch.setattr(logger, "handlers", [])
    ours.send("stop")
    with mock.patch.object(logging.getLogger(), "handlers", []):
        run_helper(arguments, theirs, is_paused=False)
    assert sent[-1] == 42
    assert capsys.readouterr().err == ""
