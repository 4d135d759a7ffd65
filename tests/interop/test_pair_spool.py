"""Both namespaces are down: messages go to the local disk and on from there, whatever happens to the process (X4)."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import SYNC, Heard, PairHarness, wait_until
from spool_program import SpoolProgram

from twinbus import NamespaceSide, PairedServiceBusClient
from twinbus.errors import BothNamespacesUnavailable, PairingError, StoreError
from twinbus.spool.folder import SpoolDirectory

QUICK = timedelta(seconds=2)


def take_down(harness: PairHarness) -> str:
    """The id of the primary's fault."""
    harness.secondary.break_("unreachable", how="refuse")
    return harness.primary.break_("unreachable", how="refuse")


def home(harness: PairHarness) -> list[str]:
    return harness.primary.texts(harness.orders)


@contextmanager
def spooling(harness: PairHarness, folder: Path, **wishes: Any) -> Iterator[PairedServiceBusClient]:
    with harness.bus(spool=folder, **({"attempt_timeout": QUICK} | wishes)) as bus:
        yield bus


def in_spool(bus: PairedServiceBusClient) -> int:
    spool = bus.status().spool
    assert spool is not None
    return spool.messages


def folders_of(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir())


# --- there and back ---


def test_with_both_down_messages_go_to_the_spool_and_home_when_the_primary_is_back(
    both: PairHarness, tmp_path: Path
) -> None:
    with spooling(both, tmp_path) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        take_down(both)
        receipt = sender.send_messages(ServiceBusMessage("during", message_id="one"))
        assert (receipt.side, receipt.places, receipt.accepted) == (NamespaceSide.SPOOL, ("spool",), 1)
        batch = sender.send_messages([ServiceBusMessage(f"batch {number}") for number in range(5)])
        assert batch.places == ("spool",) * 5
        status = bus.status()
        assert status.spool is not None
        assert (status.spool.messages, status.spool.folder) == (6, str(tmp_path / "1"))
        assert 0 < status.spool.size_bytes < status.spool.size_bytes_max
        assert "spool: 6 messages wait" in str(status)
        assert heard.wait_for("spooling").entity == both.orders
        both.primary.clear()
        heard.wait_for("spool_home")
        assert in_spool(bus) == 0
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
    assert sorted(home(both)) == sorted(["before", "during", *(f"batch {number}" for number in range(5)), "after"])
    assert "one" in [message.message_id for message in both.primary.messages(both.orders)]
    both.secondary.clear()
    assert both.backlog_texts() == []
    assert folders_of(tmp_path) == [], "an empty folder is removed"


def test_if_the_secondary_is_back_first_they_go_to_the_backlog_and_home_from_there(
    both: PairHarness, tmp_path: Path
) -> None:
    with spooling(both, tmp_path, enable_syphon=True) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        take_down(both)
        for number in range(3):
            assert sender.send_messages(ServiceBusMessage(f"{number}")).places == ("spool",)
        both.secondary.clear()
        heard.wait_for("spool_home")
        assert sorted(both.backlog_texts()) == ["0", "1", "2"]
        status = bus.status().spool
        assert status is not None
        assert (status.sent_to_backlog, status.sent_home, status.messages) == (3, 0, 0)
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.BACKLOG
        both.primary.clear()
        wait_until(lambda: len(home(both)) == 5)
    assert sorted(home(both)) == ["0", "1", "2", "3", "before"]
    assert both.backlog_texts() == []


def test_schedule_and_time_to_live_survive_both_detours(harness: PairHarness, tmp_path: Path) -> None:
    due = datetime.now(UTC) + timedelta(hours=2)
    with spooling(harness, tmp_path) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(harness.orders)
        sender.send_messages(ServiceBusMessage("before"))
        take_down(harness)
        (token,) = sender.schedule_messages(ServiceBusMessage("later", message_id="later"), due)
        assert token < 0 or token > 2**62, "a token that cannot be cancelled"
        sender.send_messages(ServiceBusMessage("ttl", time_to_live=timedelta(hours=1)))
        time.sleep(2)
        harness.secondary.clear()
        heard.wait_for("spool_home")
        (waiting,) = [message for message in harness.in_backlog() if str(message) == "ttl"]
        properties: dict[Any, Any] = dict(waiting.application_properties or {})
        left_ms = properties[b"x-ms-timetolive"]
        assert 3_500_000 < left_ms < 3_598_500, "what was left of it, and no more"
        harness.primary.clear()
        with harness.bus(enable_syphon=True):
            wait_until(lambda: len(home(harness)) == 3)
    messages = {str(message): message for message in harness.primary.messages(harness.orders)}
    found = messages["later"]
    assert found.scheduled_enqueue_time_utc is not None
    assert abs((found.scheduled_enqueue_time_utc - due).total_seconds()) < 1
    assert messages["ttl"].time_to_live is not None
    assert messages["ttl"].time_to_live < timedelta(minutes=59, seconds=59)


def test_several_entities_do_not_wait_for_each_other(harness: PairHarness, tmp_path: Path) -> None:
    with spooling(harness, tmp_path) as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(queue) for queue in (harness.orders, harness.invoices)]
        for sender in senders:
            sender.send_messages(ServiceBusMessage("before"))
        outage = take_down(harness)
        for sender in senders:
            assert sender.send_messages(ServiceBusMessage("during")).places == ("spool",)
        harness.primary.break_("no-send", harness.orders)
        harness.primary.clear(outage)
        wait_until(lambda: harness.primary.texts(harness.invoices) == ["before", "during"])
        assert home(harness) == ["before"]
        assert in_spool(bus) == 1
        harness.primary.clear()
        heard.wait_for("spool_home")
    assert home(harness) == ["before", "during"]


# --- pairing ---


def test_with_a_spool_pairing_succeeds_while_both_are_down(both: PairHarness, tmp_path: Path) -> None:
    take_down(both)
    with spooling(both, tmp_path) as bus:
        heard = Heard(bus)
        assert bus.backlog_queue_count == 0
        status = bus.status()
        assert not status.is_healthy
        assert status.secondary_status.unreachable_since is not None
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("1")).places == ("spool",)
        both.secondary.clear()
        wait_until(lambda: bus.backlog_queue_count == 2, within_s=30)
        heard.wait_for("spool_home")
        assert both.backlog_texts() == ["1"]
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        both.primary.clear()
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY


def test_without_a_spool_it_does_not(harness: PairHarness) -> None:
    take_down(harness)
    with pytest.raises(PairingError), harness.bus(attempt_timeout=QUICK):
        pass


def test_what_does_not_pass_by_itself_is_no_pair_even_with_a_spool(harness: PairHarness, tmp_path: Path) -> None:
    client = harness.client_of(harness.primary.namespace, harness.primary.namespace, spool=tmp_path)
    with pytest.raises(PairingError, match="same namespace"):
        client.pair()
    assert folders_of(tmp_path) == [], "nothing is left open"


# --- the process ends ---


def program(harness: PairHarness, folder: Path, count: int, prefix: str = "m") -> SpoolProgram:
    strings = (harness.primary.connection_string, harness.secondary.connection_string)
    return SpoolProgram(*strings, folder, harness.name, harness.orders, count=count, prefix=prefix)


def test_what_a_killed_process_had_in_its_spool_comes_home_by_the_next_one(
    harness: PairHarness, tmp_path: Path
) -> None:
    take_down(harness)
    killed = program(harness, tmp_path, 100_000)
    killed.read(at_least=200)
    killed.kill()
    assert set(killed.accepted.values()) == {"spool"}
    with spooling(harness, tmp_path) as bus:
        assert len(killed.accepted) <= in_spool(bus) <= len(killed.accepted) + 1, "one send was under way"
        harness.primary.clear()
        wait_until(lambda: in_spool(bus) == 0)
    names = [message.message_id for message in harness.primary.messages(harness.orders)]
    assert {*killed.accepted} <= {*names}, "accepted and lost"
    assert len(names) == len(set(names)) <= len(killed.accepted) + 1
    assert folders_of(tmp_path) == []


@pytest.mark.long
def test_processes_that_share_a_spool_have_a_folder_each_and_one_brings_all_of_it_home(
    harness: PairHarness, tmp_path: Path
) -> None:
    """As the workers of a prefork server do."""
    take_down(harness)
    workers = [program(harness, tmp_path, 20, f"w{number}") for number in range(4)]
    for worker in workers:
        worker.read()
    assert folders_of(tmp_path) == ["1", "2", "3", "4"]
    for worker in workers:
        worker.kill()
    with spooling(harness, tmp_path) as bus:
        spool = bus.status().spool
        assert spool is not None
        wait_until(lambda: (bus.status().spool or spool).left_behind == 60)
        assert in_spool(bus) == 20
        harness.primary.clear()
        wait_until(lambda: in_spool(bus) == 0 and (bus.status().spool or spool).left_behind == 0)
    names = [str(message.message_id) for message in harness.primary.messages(harness.orders)]
    assert sorted(names) == sorted(name for worker in workers for name in worker.accepted)
    wait_until(lambda: folders_of(tmp_path) == [])


def test_a_client_that_is_closed_leaves_its_messages_to_the_next(both: PairHarness, tmp_path: Path) -> None:
    take_down(both)
    with spooling(both, tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
    assert folders_of(tmp_path) == ["1"]
    assert not SpoolDirectory(tmp_path, both.name).holders()[tmp_path / "1"]
    both.primary.clear()
    with spooling(both, tmp_path):
        wait_until(lambda: home(both) == ["1"])


@pytest.mark.parametrize("how", ["refuse", "silent"])
def test_closing_is_quick_and_leaves_nothing_but_the_folder(both: PairHarness, tmp_path: Path, how: str) -> None:
    gc.collect()
    before = {thread.name for thread in threading.enumerate()}
    with spooling(both, tmp_path, attempt_timeout=timedelta(seconds=1)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        for side in (both.primary, both.secondary):
            side.break_("unreachable", how=how)
        assert sender.send_messages(ServiceBusMessage("during")).places == ("spool",)
        began = time.monotonic()
    assert time.monotonic() - began < 12
    mine = ("twinbus-spool", "twinbus-store", *(["asyncio_"] if both.flavour == SYNC else []))
    wait_until(lambda: not {name for name in _thread_names() - before if name.startswith(mine)})
    open_files = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in open_files if str(tmp_path) in name]
    assert folders_of(tmp_path) == ["1"]


def _thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.is_alive()}


# --- what can go wrong ---


def test_a_full_spool_says_so_and_takes_messages_again_when_there_is_room(both: PairHarness, tmp_path: Path) -> None:
    with spooling(both, tmp_path, spool_max="100 KB") as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        take_down(both)
        for _ in range(3):
            assert sender.send_messages(ServiceBusMessage("x" * 30_000)).places == ("spool",)
        with pytest.raises(BothNamespacesUnavailable) as raised:
            sender.send_messages(ServiceBusMessage("x" * 30_000))
        assert raised.value.spool_reason is not None
        assert "is full: it holds" in raised.value.spool_reason
        assert "(spool_max)" in str(raised.value)
        assert raised.value.receipt is not None
        assert raised.value.receipt.accepted == 0
        heard.wait_for("spool_full")
        status = bus.status()
        assert status.spool is not None
        assert status.spool.reason.startswith("it is full: it holds")
        assert not status.is_healthy
        both.primary.clear()
        heard.wait_for("spool_home")
        heard.wait_for("recovered")
        status = bus.status()
        assert status.spool is not None
        assert status.spool.reason == ""
        take_down(both)
        assert sender.send_messages(ServiceBusMessage("y")).places == ("spool",)
    both.primary.clear()
    assert len(home(both)) == 4


def test_a_damaged_folder_is_left_as_it_is_and_another_one_is_used(both: PairHarness, tmp_path: Path) -> None:
    take_down(both)
    with spooling(both, tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
    store = tmp_path / "1" / "store.sqlite"
    store.write_bytes(b"not a database" * 100)
    with spooling(both, tmp_path) as bus:
        spool = bus.status().spool
        assert spool is not None
        assert spool.folder == str(tmp_path / "2")
        (problem,) = spool.problems
        assert "damaged" in problem
        assert str(store) in problem
        assert not bus.status().is_healthy
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("2")).places == ("spool",)
    assert store.read_bytes() == b"not a database" * 100


def test_a_spool_of_another_pair_is_refused_before_anything_is_sent(both: PairHarness, tmp_path: Path) -> None:
    SpoolDirectory(tmp_path, "fabrikam").open()
    with pytest.raises(StoreError, match="is of another pair: its primary is fabrikam"), spooling(both, tmp_path):
        pass


def test_a_folder_of_another_pair_that_was_moved_here_is_not_brought_home(harness: PairHarness, tmp_path: Path) -> None:
    take_down(harness)
    with spooling(harness, tmp_path / "a") as bus:
        bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("1"))
    (tmp_path / "b").mkdir(mode=0o700)
    (tmp_path / "a" / "1").rename(tmp_path / "b" / "1")
    with spooling(harness, tmp_path / "b", primary_name="fabrikam") as bus:
        spool = bus.status().spool
        assert spool is not None
        assert any("is of another pair" in problem for problem in spool.problems)
        harness.primary.clear()
        assert home(harness) == []


def test_a_folder_that_is_no_folder_is_refused(harness: PairHarness, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be used"), spooling(harness, tmp_path / "file"):
        pass


def test_a_forked_child_does_not_write_into_the_spool_of_its_parent(harness: PairHarness, tmp_path: Path) -> None:
    take_down(harness)
    with spooling(harness, tmp_path, flavour="threads") as bus:
        sender = bus.get_queue_sender(harness.orders)
        sender.send_messages(ServiceBusMessage("1"))
        spool = bus._runner.state.spool
        assert spool is not None
        reading, writing = os.pipe()
        if os.fork() == 0:
            failure = spool.put(harness.orders, [b""]).result()
            os.write(writing, str(failure).encode())
            os._exit(0)
        assert b"forked" in os.read(reading, 1_000)
        os.wait()
        assert in_spool(bus) == 1


# --- the record ---


def test_the_ledger_says_where_each_message_was_and_counts_no_operation_for_the_spool(
    both: PairHarness, tmp_path: Path
) -> None:
    with spooling(both, tmp_path / "spool", ledger=tmp_path / "ledger") as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        take_down(both)
        sender.send_messages(ServiceBusMessage("during", message_id="one"))
        both.primary.clear()
        heard.wait_for("spool_home")
    lines = [json.loads(line) for file in (tmp_path / "ledger").glob("*.jsonl") for line in file.open()]
    about = {line["kind"]: line for line in lines if "one" in line.get("message_ids", ())}
    assert {*about} - {"in_doubt"} == {"spooled", "sent_home", "left_spool"}
    assert {line["entity"] for line in about.values()} == {both.orders}
    assert about["sent_home"]["program"] == "spool"
    assert not any(line["kind"] in ("received_from_backlog", "completed", "peeked", "long_poll") for line in lines)


def test_a_message_that_can_never_come_home_is_put_aside_and_shown(harness: PairHarness, tmp_path: Path) -> None:
    take_down(harness)
    with spooling(harness, tmp_path) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(harness.orders)
        sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(seconds=1)))
        sender.send_messages(ServiceBusMessage("good"))
        time.sleep(1.2)
        harness.primary.clear()
        heard.wait_for("spool_home")
        status = bus.status()
        assert status.spool is not None
        assert (status.spool.quarantined, status.spool.messages, status.spool.sent_home) == (1, 0, 1)
        assert "1 in quarantine" in str(status)
    assert home(harness) == ["good"]
    assert folders_of(tmp_path) == ["1"], "what is put aside is kept"
