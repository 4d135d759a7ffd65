"""Every command of the how-to pages with exactly the keys that these pages have people make: it does what they say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from roles import BACKLOG, MANAGER, MONITOR, QUEUE_COUNT, SENDER, SYPHON, Estate, emitted_rules, estate

from twinbus import NamespaceSide, PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from twinbus.cli.main import run
from twinbus.errors import PairingError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.testing import LocalNamespace

COUNT = ["--count", str(QUEUE_COUNT)]
WAIT_S = 30


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    monkeypatch.chdir(tmp_path)
    with estate() as made:
        yield made


@pytest.fixture
def act_as(world: Estate, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Take on a role: its two connection strings are in the environment."""

    def take(role: str) -> None:
        for name, value in world.strings(role).items():
            monkeypatch.setenv(name, value)

    return take


def send_to_backlog(world: Estate, texts: list[str], time_to_live: timedelta | None = None) -> None:
    """As an application with the keys of a sender does while the primary is down."""
    options = SendAvailabilityPairedNamespaceOptions(
        world.reach(SENDER)[1], backlog_queue_count=QUEUE_COUNT, create_backlog=False
    )
    with PairedServiceBusClient(world.reach(SENDER)[0], options) as bus:
        sender = bus.get_queue_sender("orders")
        bus.force_failover("orders", stay=True)
        for text in texts:
            assert (
                sender.send_messages(ServiceBusMessage(text, time_to_live=time_to_live)).side is NamespaceSide.BACKLOG
            )


def at_home(world: Estate, number: int) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(world.primary.connection_string) as client,
        client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
    ):
        found: list[str] = []
        while len(found) < number:
            got = receiver.receive_messages(number - len(found), max_wait_time=WAIT_S)
            assert got, f"only {found} came"
            found += [str(message) for message in got]
        return sorted(found)


def test_the_emitted_keys_are_those_of_the_four_roles() -> None:
    keys = [f"{SENDER}:Send", f"{SYPHON}:Send", f"{MONITOR}:Listen"]
    assert emitted_rules("primary") == keys
    assert emitted_rules("secondary") == [
        f"{SENDER}:Send",
        f"{SYPHON}:Listen",
        f"{MONITOR}:Listen",
        f"{MANAGER}:Manage+Send+Listen",
    ]


# --- twinbus pair --role ---

ORDERS = ["--entity", "orders"]


@pytest.mark.parametrize(("role", "key"), [("sender", SENDER), ("syphon", SYPHON), ("monitor", MONITOR)])
def test_each_role_has_exactly_the_rights_it_needs(
    act_as: Any, capsys: pytest.CaptureFixture[str], role: str, key: str
) -> None:
    act_as(key)
    assert run(["pair", "--role", role, *COUNT, *ORDERS]) == 0, capsys.readouterr()
    assert capsys.readouterr().out.startswith(f"The credentials have exactly what a {role} needs.\n")
    assert run(["pair", "--role", role, *COUNT, *ORDERS, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], said["missing"], said["excess"], said["unknown"]) == ("exact", [], [], [])
    assert said["tried"] == 3 * (1 + QUEUE_COUNT)


@pytest.mark.parametrize(
    ("role", "key", "code", "missing", "excess"),
    [
        ("sender", SYPHON, 1, {("backlog", "Send")}, {("backlog", "Listen")}),
        ("syphon", SENDER, 1, {("backlog", "Listen")}, {("backlog", "Send")}),
        (
            "monitor",
            SENDER,
            1,
            {("backlog", "Listen"), ("primary", "Listen")},
            {("backlog", "Send"), ("primary", "Send")},
        ),
        ("sender", MANAGER, 3, set(), {("backlog", "Listen"), ("backlog", "Manage")}),
    ],
)
def test_what_a_role_lacks_and_what_is_more_than_it_needs_is_said(
    act_as: Any, capsys: pytest.CaptureFixture[str], role: str, key: str, code: int, missing: set[Any], excess: set[Any]
) -> None:
    act_as(key)
    assert run(["pair", "--role", role, *COUNT, *ORDERS, "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert {(each["place"], each["right"]) for each in said["missing"]} == missing
    assert {(each["place"], each["right"]) for each in said["excess"]} == excess
    assert said["unknown"] == []
    run(["pair", "--role", role, *COUNT, *ORDERS])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("missing ")]) == len(missing)
    assert len([line for line in lines if line.startswith("too much ")]) == len(excess)


def test_rights_that_nobody_could_try_are_unknown(act_as: Any, capsys: pytest.CaptureFixture[str]) -> None:
    act_as(SENDER)
    assert run(["pair", "--role", "sender", *COUNT]) == 3
    assert "rights on the primary's entities: name them with --entity" in capsys.readouterr().out
    assert run(["pair", "--role", "sender", "--count", str(QUEUE_COUNT + 1), *ORDERS, "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "unknown"
    assert {each["entity"] for each in said["unknown"]} == {backlog_path("contoso", QUEUE_COUNT)}


def test_a_role_that_does_not_exist_is_refused(act_as: Any, capsys: pytest.CaptureFixture[str]) -> None:
    act_as(SENDER)
    assert run(["pair", "--role", "owner"]) == 2
    assert "--role must be sender, syphon, monitor, got 'owner'" in capsys.readouterr().err
    assert run(["pair", "--role", "sender", "--no-create"]) == 2


def test_a_monitor_looks_at_a_pair_with_its_two_keys(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    world.fill(1, *[ServiceBusMessage("x") for _ in range(3)])
    act_as(MONITOR)
    run(["status", *COUNT, "--json"])
    assert json.loads(capsys.readouterr().out)["waiting_messages"] == 3


# --- pair.md ---


def test_a_manager_creates_the_queues_and_proves_them(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    act_as(MANAGER)
    assert run(["pair", "--count", "5", "--entity", "orders"]) == 0
    assert "5 of 5 queues can be used, 2 of them new" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("role", "options", "rights"),
    [
        (SENDER, [], ["Send"]),
        (SYPHON, ["--syphon"], ["Listen"]),
        (MANAGER, ["--syphon"], ["Send", "Listen"]),
    ],
)
def test_each_role_proves_its_own_rights_without_creating(
    act_as: Any, capsys: pytest.CaptureFixture[str], role: str, options: list[str], rights: list[str]
) -> None:
    act_as(role)
    assert run(["pair", "--no-create", *COUNT, *options, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (len(said["usable"]), said["lost"], said["rights"]) == (QUEUE_COUNT, {}, rights)
    assert [warning for warning in said["warnings"] if "same host" not in warning] == []
    assert run(["pair", "--no-create", *COUNT, *options]) == 0
    assert f"rights     {', '.join(rights)} on the backlog queues" in capsys.readouterr().out


@pytest.mark.parametrize(("role", "options", "lacks"), [(SENDER, ["--syphon"], "Listen"), (SYPHON, [], "Send")])
def test_a_role_that_lacks_a_right_gets_its_name(
    act_as: Any, capsys: pytest.CaptureFixture[str], role: str, options: list[str], lacks: str
) -> None:
    act_as(role)
    assert run(["pair", "--no-create", *COUNT, *options]) == 1
    err = capsys.readouterr().err
    assert f"does not give the right '{lacks}'" in err or f"give it {lacks} on these queues" in err
    assert err.count("\n") == 1


def test_an_application_that_sends_needs_no_more_than_send(world: Estate) -> None:
    send_to_backlog(world, ["42"])


def test_an_application_with_a_syphon_needs_send_and_listen_on_the_backlog(world: Estate) -> None:
    for role, lacks in ((SENDER, "Listen"), (SYPHON, "Send")):
        primary, secondary = world.reach(role)
        options = SendAvailabilityPairedNamespaceOptions(
            secondary, backlog_queue_count=QUEUE_COUNT, create_backlog=False, enable_syphon=True
        )
        with pytest.raises(PairingError, match=lacks):
            PairedServiceBusClient(primary, options).pair()


@pytest.mark.parametrize(
    ("role", "messages", "state"), [(SENDER, "?", "open"), (SYPHON, "3", "readable"), (MANAGER, "3", "open")]
)
def test_status_works_for_every_role_and_shows_what_it_may_know(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str], role: str, messages: str, state: str
) -> None:
    world.fill(1, *[ServiceBusMessage("x") for _ in range(3)])
    act_as(role)
    code = 3 if role == SENDER else 12
    assert run(["status", *COUNT]) == code
    out, err = capsys.readouterr()
    assert f"waiting    {messages} messages" in out
    assert state in out
    assert err == ""
    assert run(["status", *COUNT, "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == ("unknown" if role == SENDER else "waiting")
    assert said["waiting_messages"] == (None if role == SENDER else 3)
    assert said["waiting_at_least"] == (None if role == SENDER else 3)
    assert (said["oldest_age_s"] is None) == (role == SENDER)


def test_a_key_that_may_only_listen_learns_which_queues_do_not_exist(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not exist holds nothing: the number of waiting messages is known."""
    world.fill(1, *[ServiceBusMessage("x") for _ in range(3)])
    act_as(SYPHON)
    assert run(["status", "--count", str(QUEUE_COUNT + 2), "--json"]) == 10
    said = json.loads(capsys.readouterr().out)
    assert [queue["exists"] for queue in said["queues"]] == [True] * QUEUE_COUNT + [False] * 2
    assert all(queue["problem"].startswith("not found") for queue in said["queues"][QUEUE_COUNT:])
    assert (said["waiting_messages"], said["unread_queues"]) == (3, 0)
    assert "2 of 5 backlog queues cannot be used (not found" in said["text"]


def test_with_a_key_that_may_do_nothing_with_the_backlog_all_is_unknown(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = world.strings(SYPHON)["TWINBUS_SECONDARY"].replace("SharedAccessKey=", "SharedAccessKey=x")
    act_as(SYPHON)
    monkeypatch.setenv("TWINBUS_SECONDARY", wrong)
    assert run(["status", *COUNT]) == 3
    assert "backup refuses the key (unauthorised: " in capsys.readouterr().out.splitlines()[0]


# --- syphon.md and syphon-service.md ---


def test_the_syphon_brings_everything_home_with_its_two_keys(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    send_to_backlog(world, ["1", "2", "3"])
    act_as(SYPHON)
    assert run(["syphon", *COUNT, "--dry-run"]) == 0
    assert "orders" in capsys.readouterr().out
    assert run(["status", *COUNT, "--sessions"]) == 12
    assert "orders" in capsys.readouterr().out
    assert run(["syphon", *COUNT, "--until-empty", "--metrics-file", "twinbus.prom"]) == 0
    assert at_home(world, 3) == ["1", "2", "3"]
    assert "twinbus_pair_syphon_messages_total" in Path("twinbus.prom").read_text()


def test_the_syphon_looks_after_its_quarantine_with_its_two_keys(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    world.fill(0, ServiceBusMessage("nobody knows where this belongs"))
    act_as(SYPHON)
    run(["syphon", *COUNT, "--until-empty"])
    capsys.readouterr()
    assert run(["syphon", "quarantine", "list", *COUNT]) == 0
    assert "TwinbusMalformed" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "show", "0/1", *COUNT]) == 0


@pytest.mark.long
def test_the_syphon_sends_home_and_throws_away_what_is_in_quarantine_with_its_two_keys(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    lost: dict[Any, Any] = {"x-ms-path": "orders", "x-ms-timetolive": "not a number"}
    world.fill(0, ServiceBusMessage("1", application_properties=lost), ServiceBusMessage("2"))
    world.fill(2, ServiceBusMessage("3"))
    send_to_backlog(world, ["short"], time_to_live=timedelta(seconds=1))
    time.sleep(1.5)
    act_as(SYPHON)
    assert run(["syphon", *COUNT, "--until-empty"]) == 3
    assert "4 messages are in quarantine" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "redrive", "--reason", "TwinbusExpired", *COUNT]) == 0
    assert "1 sent home" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "redrive", "0/1", *COUNT]) == 3
    assert run(["syphon", "quarantine", "discard", "0/1", *COUNT]) == 0
    assert run(["syphon", "quarantine", "discard", "--all", "--yes", *COUNT]) == 0
    capsys.readouterr()
    assert run(["syphon", *COUNT, "--until-empty"]) == 0, "nothing is left there"


# --- send-and-receive.md ---


def test_a_sender_sends_through_the_pair_with_its_keys(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str]
) -> None:
    act_as(SENDER)
    assert run(["send", "orders", "42", "--no-create", "--queues", str(QUEUE_COUNT)]) == 0
    assert at_home(world, 1) == ["42"]
    world.primary.faults.add("no-send", entities=["orders"])
    assert run(["send", "orders", "43", "--no-create", "--queues", str(QUEUE_COUNT)]) == 0
    assert backlog_path("contoso", 0).rpartition("/")[0] in capsys.readouterr().out


# --- drill.md ---


def test_a_drill_that_cannot_see_the_backlog_does_not_begin(
    act_as: Any, world: Estate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries in the backlog would be taken for lost."""
    act_as(SENDER)
    monkeypatch.setenv("TWINBUS_PRIMARY", world.primary.connection_string)
    assert run(["drill", "--entity", "orders", "--by-status", "--no-create", *COUNT, "--yes"]) == 1
    err = capsys.readouterr().err
    assert "which needs Listen" in err
    assert "refuses sends" not in err, "nothing was made to fail"


@pytest.mark.long
def test_a_drill_needs_send_and_listen_on_the_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", data=tmp_path / "bus", queues=["orders"]) as primary,
        LocalNamespace("backup", rules=["drill:Send+Listen"]) as secondary,
    ):
        for index in range(QUEUE_COUNT):
            secondary.create_queue(backlog_path("contoso", index), **BACKLOG)
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string_for("drill"))
        times = ["--length", "5s", "--failover-interval", "0s", "--ping-interval", "1s", "--timeout", "30s"]
        wishes = [*times, "--no-create", *COUNT, "--yes"]
        assert run(["drill", "--entity", "orders", *wishes]) == 0, capsys.readouterr()
