"""`twinbus status` on real namespaces: one verdict, its exit code, and the facts behind it (X7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus import Namespace
from twinbus.cli.main import run
from twinbus.cli.status import status, status_view
from twinbus.cli.status.fleet_view import FleetView
from twinbus.cli.status.spool_view import SpoolView
from twinbus.client.inspection.freshness import FRESH_S
from twinbus.client.inspection.health import EVERYTHING
from twinbus.client.inspection.inspect_pair import SAMPLE, inspect
from twinbus.testing import LocalNamespace, NamespacePair

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
BACKLOG = {"max_size_mb": 5120, "max_delivery_count": 2_147_483_647, "dead_letter_on_expiration": True}
RULES = ["sender:Send", "syphon:Listen"]
COUNT = ["--count", "2", "--timeout", "20s"]


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders"], rules=RULES) as primary,
        LocalNamespace("backup", rules=RULES) as secondary,
    ):
        for path in QUEUES:
            secondary.create_queue(path, **BACKLOG)
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


@pytest.fixture
def twinbus_status(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """What `twinbus status --json` says, and its exit code."""

    def ask(*options: str) -> tuple[int, dict[str, Any]]:
        code = run(["status", *COUNT, "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return ask


def fill(spaces: NamespacePair, *paths: str) -> None:
    """Put a message into the backlog for each of these entities."""
    with (
        ServiceBusClient.from_connection_string(spaces.secondary.connection_string) as client,
        client.get_queue_sender(QUEUES[1]) as sender,
    ):
        sender.send_messages([ServiceBusMessage("x", application_properties={"x-ms-path": path}) for path in paths])


def abilities(entity: dict[str, Any]) -> tuple[bool | None, bool | None, bool | None]:
    return entity["sending"]["works"], entity["receiving"]["works"], entity["managing"]["works"]


def test_a_healthy_pair_is_one_line_and_exit_code_0(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], twinbus_status: Any
) -> None:
    spaces.primary.create_topic("news", "all")
    spaces.primary.create_queue("steps", requires_session=True)
    assert run(["status", *COUNT]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "healthy: 3 entities work, and nothing waits in the backlog"
    assert err == ""
    assert ["orders", "healthy", "yes", "yes", "yes", "0"] in [line.split() for line in lines]
    assert QUEUES[0] not in out, "empty queues are hidden"
    assert run(["status", *COUNT, "--all"]) == 0
    assert QUEUES[0] in capsys.readouterr().out
    code, said = twinbus_status()
    assert (code, said["exit_code"], said["verdict"], said["unknown"]) == (0, 0, "healthy", [])
    assert [abilities(each) for each in said["entities"]] == [(True, True, True)] * 3


@pytest.mark.parametrize(
    ("fault", "ability"),
    [("no-send", (False, True, True)), ("no-receive", (True, False, True)), ("no-manage", (True, None, False))],
)
def test_an_entity_fails_in_three_ways_that_are_distinguished(
    spaces: NamespacePair, twinbus_status: Any, fault: str, ability: tuple[bool | None, ...]
) -> None:
    spaces.primary.create_queue("invoices")
    spaces.primary.faults.add(fault, entities=["orders"])
    code, said = twinbus_status()
    found = {each["entity"]: (each["verdict"], abilities(each)) for each in said["entities"]}
    assert (code, said["verdict"]) == (10, "failing")
    assert found["invoices"] == ("healthy", (True, True, True))
    assert found["orders"] == ("failing", ability), "a peek that management refuses does not show that nobody receives"


def test_a_full_queue_does_not_take_messages_although_its_link_opens(
    spaces: NamespacePair, twinbus_status: Any
) -> None:
    spaces.primary.faults.add("refuse", entities=["orders"], condition="amqp:resource-limit-exceeded")
    code, said = twinbus_status()
    assert (code, said["verdict"]) == (10, "failing")
    assert "quota exceeded" in said["text"]


def test_messages_in_the_backlog_wait_or_show_a_failover(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], twinbus_status: Any
) -> None:
    fill(spaces, "orders", "orders")
    code, said = twinbus_status()
    assert (code, said["verdict"], said["waiting_messages"]) == (12, "waiting", 2)
    assert [(each["entity"], each["verdict"], each["waiting"]) for each in said["entities"]] == [
        ("orders", "waiting", 2)
    ]
    spaces.primary.faults.add("unreachable")
    assert run(["status", *COUNT, "--entity", "orders"]) == 11
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("failed over: contoso does not answer (")
    assert "2 messages in the backlog" in first
    code, said = twinbus_status("--entity", "orders")
    assert [(each["verdict"], each["sending"]["works"]) for each in said["entities"]] == [("failed over", False)]


def test_a_backlog_too_deep_to_look_at_whole_hides_no_other_entity(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], twinbus_status: Any
) -> None:
    spaces.primary.create_queue("invoices")
    spaces.primary.create_queue("returns")
    spaces.primary.faults.add("no-receive", entities=["returns"])
    fill(spaces, *["orders"] * (SAMPLE + 30))
    code, said = twinbus_status()
    assert (code, said["verdict"], said["waiting_messages"]) == (10, "failing", SAMPLE + 30)
    found = {each["entity"]: (each["verdict"], each["waiting"], each["waiting_at_least"]) for each in said["entities"]}
    assert found.pop("orders")[:2] == ("waiting", None)
    assert found == {"invoices": ("works", None, 0), "returns": ("failing", None, 0)}
    assert run(["status", *COUNT]) == 10
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["invoices", "works", "yes", "yes", "yes", "?"] in rows


def test_a_message_in_quarantine_is_not_home(
    spaces: NamespacePair, twinbus_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spaces, "orders")
    with (
        ServiceBusClient.from_connection_string(spaces.secondary.connection_string) as client,
        client.get_queue_receiver(QUEUES[1]) as receiver,
    ):
        receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=30)[0])
    for key in (spaces.secondary.connection_string, spaces.secondary.connection_string_for("syphon")):
        monkeypatch.setenv("TWINBUS_SECONDARY", key)
        code, said = twinbus_status()
        assert (code, said["verdict"], said["reasons"]) == (
            12,
            "waiting",
            ["1 message in quarantine (twinbus syphon quarantine list)"],
        )


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_refused_key_is_unknown_and_says_what_was_refused(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    good = getattr(spaces, side).connection_string
    monkeypatch.setenv(f"TWINBUS_{side.upper()}", good.replace("SharedAccessKey=", "SharedAccessKey=x"))
    assert run(["status", *COUNT]) == 3
    out, _ = capsys.readouterr()
    name = {"primary": "contoso", "secondary": "backup"}[side]
    assert out.startswith(f"unknown: {name} refuses the key (unauthorised: the key or token is refused)\n")
    assert f"{name} (127.0.0.1:{getattr(spaces, side).port}) refuses the key: " in out
    assert "<" not in out, "no XML"


def test_what_a_key_may_not_ask_is_unknown_and_what_it_may_can_be_chosen(
    spaces: NamespacePair, twinbus_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBUS_PRIMARY", spaces.primary.connection_string_for("sender"))
    monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for("syphon"))
    code, said = twinbus_status()
    assert (code, said["verdict"]) == (3, "unknown"), said["text"]
    assert "--entity" in said["text"]
    code, said = twinbus_status("--entity", "orders")
    assert code == 3
    assert said["unknown"] == [
        "receiving of orders (the key may not listen)",
        "managing of orders (the key may not manage)",
        f"whether backlog queues take messages ({QUEUES[0]} and 1 more: the key may not send)",
    ]
    code, said = twinbus_status("--entity", "orders", "--check", "sending", "--check", "backlog")
    assert (code, said["verdict"], said["checked"]) == (0, "healthy", ["sending", "backlog"])
    spaces.primary.faults.add("no-send")
    assert twinbus_status("--entity", "orders", "--check", "sending")[0] == 10


def test_an_entity_that_is_named_and_does_not_exist_fails(spaces: NamespacePair, twinbus_status: Any) -> None:
    code, said = twinbus_status("--entity", "order")
    assert code == 10
    assert "sending fails for order (not found" in said["text"]


def test_wrong_words_are_wrong_arguments(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--check", "sends"]) == 2
    assert (
        "--check takes sending, receiving, managing, failover, backlog, fleet, got 'sends'" in capsys.readouterr().err
    )
    assert run(["status", "--watch", "--every", "1m"]) == 2
    assert "--every must be from 1s to 25s" in capsys.readouterr().err


# --- --watch ---


def test_watching_keeps_the_last_good_values_with_their_age_and_ends_with_the_last_verdict(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spaces, "orders")
    looks: list[str] = []

    def pause(_: float) -> None:
        looks.append(capsys.readouterr().out)
        if len(looks) == 1:
            spaces.secondary.faults.add("unreachable")
            spaces.primary.faults.add("unreachable")
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "_pause", pause)
    assert run(["status", "--count", "2", "--timeout", "2s", "--watch"]) == 10
    assert looks[0].startswith("waiting: 1 message in the backlog\n")
    assert " ago it was:" not in looks[0]
    for shown in looks[1:]:
        assert shown.startswith("failing: contoso does not answer (")
        assert "; backup does not answer (" in shown
        assert ["orders", "failing", "no", "no", "no", "?"] in [line.split() for line in shown.splitlines()]
        assert "the backlog cannot be looked into now; as of " in shown
        assert "waiting    1 messages" in shown


def test_watching_as_json_is_one_object_a_line(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(length_s: float) -> None:
        pauses.append(length_s)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "_pause", pause)
    assert run(["status", *COUNT, "--watch", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["healthy", "healthy"]
    assert err == ""


@pytest.mark.parametrize("took_s", [0.5, 6.0, 11.0])
def test_while_watching_a_look_is_replaced_before_it_is_thirty_seconds_old(
    monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    now, began, shown = [1_000.0], [0.0], list[float]()

    def look(earlier: Any) -> float:
        began[0] = now[0]
        now[0] += took_s
        return began[0]

    def show(_screen: Any, looked_at: float) -> None:
        shown.append(looked_at)
        if len(shown) > 1:
            assert now[0] - shown[-2] <= FRESH_S
        if len(shown) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(status, "_pause", lambda length_s: now.append(now.pop() + length_s))
    monkeypatch.setattr(status_view.StatusScreen, "show", show)
    views: Any = (None, None)
    status._watch(look, EVERYTHING, 25.0, views, as_json=True, show_all=False)  # type: ignore[arg-type]
    assert len(shown) == 5


def test_a_screen_says_when_what_it_shows_is_too_old(spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Screen:
        def update(self, shown: Any, *, refresh: bool) -> None:
            lines.append(shown.renderables[0].plain)

        def stop(self) -> None: ...

    here, there = (
        Namespace.from_connection_string(each.connection_string) for each in (spaces.primary, spaces.secondary)
    )
    seen = inspect(here, there, 2, attempt_s=5.0)
    views = SpoolView(None, "contoso"), FleetView(there, "contoso", 5.0, shows_all=False)
    with views[1], status_view.StatusScreen(EVERYTHING, views, as_json=False, show_all=False) as screen:
        monkeypatch.setattr(screen, "_live", Screen())
        screen.show(seen)
        screen.show(replace(seen, at=seen.at - FRESH_S))
        assert screen._old_soon is not None
        screen._old_soon.join(30)
    healthy = "healthy: it has no queue or topic, and nothing waits in the backlog"
    assert lines == [healthy, healthy, f"unknown: the last look is more than 30 s old. It said {healthy}"]
