"""`twinbus syphon` in order, watched, killed, beside another one, and with every kind of credential."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessageState
from backlog_messages import backlog_message, backlog_messages_for, fill
from free_ports import free_port
from syphon_program import QUEUES, ids_at, started, wait_for
from token_makers import python_token

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message.sections import Header, PropertyField, encode_message
from twinbus.cli.main import run
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.testing import LocalNamespace, NamespacePair

LOCK_MS = 5_000
TEN_MINUTES = Header(ttl_ms=600_000)


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces that are in the environment of the commands; the two backlog queues have short locks."""
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders", "invoices"]) as primary,
        LocalNamespace("backup") as secondary,
    ):
        for queue in QUEUES:
            secondary.create_queue(queue, lock_ms=LOCK_MS, max_delivery_count=2_147_483_647)
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def put(spaces: NamespacePair, queue: int, messages: list[bytes]) -> None:
    fill(spaces.secondary.connection_string, QUEUES[queue], messages)


# --- order ---


def of_session(session: str, number: int, path: str = "orders") -> bytes:
    properties = {PropertyField.MESSAGE_ID: f"{session}-{number}", PropertyField.GROUP_ID: session}
    return address(encode_message(properties=properties, data=b"body"), path)


def queue_of(session: str) -> int:
    return queue_for(key_of("orders", session), (0, 1))


SESSIONS = [f"s{number}" for number in range(6)]


def put_sessions(spaces: NamespacePair, count: int) -> None:
    """So many messages of each session, in turn, each in the queue where its sender would have put it."""
    for queue in (0, 1):
        ours = [session for session in SESSIONS if queue_of(session) == queue]
        assert ours, "both queues have sessions"
        put(spaces, queue, [of_session(session, number) for number in range(count) for session in ours])


def test_every_session_comes_home_in_the_order_sent_though_its_entity_fails_in_between(spaces: NamespacePair) -> None:
    put_sessions(spaces, 60)
    with started("--order", "session", "--until-empty", "--rate", "60") as process:
        wait_for(process, "progress", moved_min=50)
        fault = spaces.primary.faults.add("no-send", entities=["orders"])
        wait_for(process, "alert", name="destination_down")
        spaces.primary.faults.clear(fault)
        wait_for(process, "finished", ending="empty")
    assert process.returncode == 0
    home = list(dict.fromkeys(ids_at(spaces.primary, "orders")))
    for session in SESSIONS:
        assert [each for each in home if each.startswith(f"{session}-")] == [f"{session}-{n}" for n in range(60)]


def test_order_is_refused_where_messages_lie_in_queues_that_are_not_theirs(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, 1 - queue_of("s0"), [of_session("s0", 0)])
    assert run(["syphon", "--order", "session", "--until-empty"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "order cannot be promised" in err.splitlines()[-1]
    assert f"belong to queue {queue_of('s0')}" in err
    assert ids_at(spaces.primary, "orders") == []
    assert run(["syphon", "--order", "session", "--dry-run", "--count", "2"]) == 0
    assert "order cannot be promised" in capsys.readouterr().out
    assert run(["syphon", "--order", "session", "--until-empty", "--count", "2", "--entity", "invoices"]) == 0


@pytest.mark.long
def test_a_message_without_known_order_that_comes_later_stops_the_syphon_and_stays(
    spaces: NamespacePair, capfd: pytest.CaptureFixture[str]
) -> None:
    put_sessions(spaces, 2)
    with started("--order", "session") as process:
        wait_for(process, "progress", moved_min=2 * len(SESSIONS))
        put(spaces, 1 - queue_of("s0"), [of_session("s0", 2)])
        wait_for(process, "finished", ending="order unknown")
    assert process.returncode == 1
    assert "order cannot be promised" in capfd.readouterr().err
    assert "s0-2" not in ids_at(spaces.primary, "orders")
    assert ids_at(spaces.secondary, QUEUES[1 - queue_of("s0")]) == ["s0-2"]


def test_status_shows_from_outside_what_lies_in_the_backlog_for_which_session(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    put_sessions(spaces, 3)
    put(spaces, 0, backlog_messages_for("invoices", 7))
    assert run(["status", "--sessions", "--count", "2"]) == 12
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["invoices", "7", "(no", "session)"] in rows
    assert ["orders", "3", "'s0'"] in rows
    assert run(["status", "--sessions", "--count", "2", "--json"]) == 12
    backlog = json.loads(capsys.readouterr().out)["backlog"]
    assert backlog["sessions"] == {"orders": dict.fromkeys(SESSIONS, 3), "invoices": {"": 7}}
    spaces.secondary.faults.add("unreachable")
    assert run(["status", "--sessions", "--count", "2", "--timeout", "500ms"]) == 10
    assert "backup (" in capsys.readouterr().out, "what is known is shown all the same"


# --- schedules ---


def test_a_schedule_that_has_passed_is_delivered_at_once_and_one_to_come_is_kept(spaces: NamespacePair) -> None:
    now_ms = int(time.time() * 1000)
    due = {"passed": now_ms - 60_000, "to come": now_ms + 3_600_000}
    messages = [
        backlog_message(
            "orders", name, header=TEN_MINUTES, annotations={"x-opt-scheduled-enqueue-time": Timestamp(at_ms)}
        )
        for name, at_ms in due.items()
    ]
    put(spaces, 0, messages)
    with started("--until-empty") as process:
        wait_for(process, "finished", ending="empty", moved=2)
    with (
        ServiceBusClient.from_connection_string(spaces.primary.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        assert [message.message_id for message in receiver.receive_messages(5, max_wait_time=10)] == ["passed"]
        peeked = {message.message_id: message for message in receiver.peek_messages(5)}
    assert peeked["to come"].state is ServiceBusMessageState.SCHEDULED
    assert peeked["to come"].time_to_live == timedelta(minutes=10)


# --- numbers ---


def sample(text: str, name: str) -> float:
    found = re.search(rf'^{name}\{{client="1",primary="contoso",secondary="backup"\}} (\S+)$', text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def test_prometheus_gets_the_numbers_of_a_running_syphon(spaces: NamespacePair) -> None:
    put(spaces, 0, backlog_messages_for("orders", 400))
    port = free_port()
    with started("--rate", "40", "--metrics", str(port)) as process:
        wait_for(process, "progress", moved_min=10)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        process.terminate()
        wait_for(process, "finished")
    assert 10 <= sample(text, "twinbus_pair_syphon_messages_total") < 400
    assert 0 < sample(text, "twinbus_pair_syphon_left_messages") <= 390
    assert sample(text, "twinbus_pair_syphon_left_seconds") > 0
    assert sample(text, "twinbus_pair_syphon_oldest_age_seconds") >= 0
    assert 'state="running"} 1.0' in text
    assert "twinbus_pair_ready" not in text, "nothing is said of a pairing"


def test_a_port_that_is_taken_is_one_line_and_moves_nothing(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, 0, backlog_messages_for("orders", 1))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address_ = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(["syphon", "--until-empty", "--count", "2", "--metrics", address_]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"cannot listen on {address_}" in err
    assert ids_at(spaces.primary, "orders") == []


def test_the_numbers_are_left_in_a_file(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, 0, backlog_messages_for("orders", 20))
    file = tmp_path / "numbers" / "syphon.prom"
    file.parent.mkdir()
    assert run(["syphon", "--until-empty", "--count", "2", "--metrics-file", str(file)]) == 0
    capsys.readouterr()
    assert sample(file.read_text(), "twinbus_pair_syphon_messages_total") == 20
    assert list(file.parent.iterdir()) == [file], "no draft is left"


def test_a_file_that_can_be_written_no_more_is_reported_once_and_messages_come_home(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    put(spaces, 0, backlog_messages_for("orders", 20))
    file = str(tmp_path / "syphon.prom")
    assert run(["syphon", "--until-empty", "--count", "2", "--rate", "20", "--metrics-file", file]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if file in line]
    assert lines == [f"twinbus: {file} cannot be written: No space left on device"]
    assert len(ids_at(spaces.primary, "orders")) == 20


# --- signals, kills, company ---


def test_sigusr2_goes_on_and_changes_nothing_where_nothing_is_paused(spaces: NamespacePair) -> None:
    put(spaces, 0, backlog_messages_for("orders", 400))  # never all of them in the time of this test
    with started("--rate", "20") as process:
        wait_for(process, "progress", moved_min=1)
        process.send_signal(signal.SIGUSR2)
        wait_for(process, "progress", moved_min=2, state="running")
        process.send_signal(signal.SIGUSR1)
        paused = wait_for(process, "progress", state="paused")
        process.send_signal(signal.SIGUSR2)
        wait_for(process, "progress", state="running", moved_min=paused["moved"] + 10)
        process.terminate()
        wait_for(process, "finished", ending="stopped")
    assert process.returncode == 0


def test_after_a_kill_the_next_one_goes_on_and_nothing_is_lost(spaces: NamespacePair) -> None:
    put(spaces, 0, backlog_messages_for("orders", 300))
    with started("--rate", "50") as process:
        wait_for(process, "progress", moved_min=20)
        process.kill()
    ended_at = time.monotonic()
    with started("--until-empty") as process:
        finished = wait_for(process, "finished", ending="empty")
    assert 0 < finished["moved"] <= 280
    assert time.monotonic() - ended_at >= LOCK_MS / 1000 - 2, "it waited for what the dead one had under lock"
    assert set(ids_at(spaces.primary, "orders")) == {f"orders-{number}" for number in range(300)}
    assert ids_at(spaces.secondary, QUEUES[0]) == []


@pytest.mark.long
def test_two_of_them_share_the_work_and_nothing_comes_twice(spaces: NamespacePair) -> None:
    put(spaces, 0, backlog_messages_for("orders", 5_000))  # more than one of them borrows at a time
    pace = ("--until-empty", "--rate", "500")
    with started(*pace) as one, started(*pace) as other:
        moved = [wait_for(each, "finished", ending="empty")["moved"] for each in (one, other)]
    assert (sum(moved), one.returncode, other.returncode) == (5_000, 0, 0)
    assert min(moved) > 0, "both had a part in it"
    assert sorted(ids_at(spaces.primary, "orders")) == sorted(f"orders-{number}" for number in range(5_000))


# --- credentials ---


def test_a_signature_instead_of_a_key_and_tls_instead_of_plain_amqp(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(spaces, 0, backlog_messages_for("orders", 10))
    for side, namespace in (("PRIMARY", spaces.primary), ("SECONDARY", spaces.secondary)):
        monkeypatch.setenv(f"TWINBUS_{side}", with_signature(namespace))
    assert run(["syphon", "--until-empty", "--count", "2"]) == 0
    assert capsys.readouterr().out.startswith("10 messages")
    put(spaces, 0, backlog_messages_for("invoices", 10))
    for side, namespace in (("PRIMARY", spaces.primary), ("SECONDARY", spaces.secondary)):
        monkeypatch.setenv(f"TWINBUS_{side}", namespace.connection_string.replace(";UseDevelopmentEmulator=true", ""))
    assert run(["syphon", "--until-empty", "--count", "2"]) == 0
    assert capsys.readouterr().out.startswith("10 messages")


def with_signature(namespace: LocalNamespace) -> str:
    parts = dict(part.split("=", 1) for part in namespace.connection_string.split(";"))
    name, key = parts.pop("SharedAccessKeyName"), parts.pop("SharedAccessKey")
    uri = parts["Endpoint"].rstrip("/")
    token = python_token(uri, name, key, int(time.time()) + 600)
    return ";".join([*(f"{each}={value}" for each, value in parts.items()), f"SharedAccessSignature={token}"])


def test_a_signature_that_has_ended_is_one_line_without_the_signature(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = dict(part.split("=", 1) for part in spaces.secondary.connection_string.split(";"))
    name, key = parts.pop("SharedAccessKeyName"), parts.pop("SharedAccessKey")
    token = python_token(parts["Endpoint"].rstrip("/"), name, key, int(time.time()) - 10)
    text = ";".join([*(f"{each}={value}" for each, value in parts.items()), f"SharedAccessSignature={token}"])
    monkeypatch.setenv("TWINBUS_SECONDARY", text)
    assert run(["syphon", "--until-empty", "--count", "2"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert token not in err
    assert "sig=" not in err
