"""Several processes of one syphon say what one would say."""

from __future__ import annotations

from twinbus.cli.syphon.syphon_processes import JoinedAlerts
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
