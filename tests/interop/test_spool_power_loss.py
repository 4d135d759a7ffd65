"""The power fails under a spool, or its process is killed: what was accepted is there, and goes home once (X4).

As `test_power_loss.py` for a namespace: the files lie on a disk that forgets whatever was not synced.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode
from free_ports import free_port
from paired import wait_until
from power_cut import PowerCutDisk
from spool_program import SpoolProgram

from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.envelope import address
from twinbus.spool.folder import SpoolDirectory
from twinbus.spool.open_spool import SpoolRoutes
from twinbus.spool.spool import Spool
from twinbus.syphon import SyphonOptions
from twinbus.testing import LocalNamespace

WRITERS, CUTS, ACCEPTED_BETWEEN_CUTS = 4, 3, 150
NOWHERE = "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=k;SharedAccessKey=k;UseDevelopmentEmulator=true"


@pytest.fixture
def primary() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        yield namespace


def spool_in(folder: Path, primary: str, **how: Any) -> Spool:
    routes = SpoolRoutes(
        primary_name="contoso",
        primary=Namespace.from_connection_string(primary).dial(5),
        secondary=Namespace.from_connection_string(NOWHERE.format(free_port())).dial(5),
        options=SyphonOptions(attempt_s=5, backoff_s=(0.2, 1.0)),
    )
    return Spool(SpoolDirectory(folder, "contoso"), routes, bytes_max=10**9, **how)


def envelope(name: str) -> bytes:
    return address(encode_message(properties={PropertyField.MESSAGE_ID: name}, data=name.encode()), "orders")


def write_until_over(spool: Spool, number: int, accepted: list[str], is_over: threading.Event) -> None:
    """Single messages and batches in turn."""
    for index in count():
        names = [f"{number}-{index}-{part}" for part in range(3 if index % 2 else 1)]
        if spool.put("orders", [envelope(name) for name in names]).result(60) is None:
            accepted += names
        if is_over.is_set():
            return


def cut_the_power_while_writing(tmp_path: Path, **wishes: Any) -> list[tuple[Path, set[str]]]:
    """What each cut left, and what was promised by then."""
    accepted: list[str] = []
    cuts: list[tuple[Path, set[str]]] = []
    is_over = threading.Event()
    nowhere = NOWHERE.format(free_port())
    with PowerCutDisk(tmp_path / "disk") as disk:
        spool = spool_in(disk.root, nowhere, open_store=lambda path: SqliteStore(path, connect=disk.connect, **wishes))
        spool.start()
        arguments = [(spool, number, accepted, is_over) for number in range(WRITERS)]
        threads = [threading.Thread(target=write_until_over, args=each) for each in arguments]
        for thread in threads:
            thread.start()
        for cut in range(1, CUTS + 1):
            wait_until(lambda cut=cut: len(accepted) >= cut * ACCEPTED_BETWEEN_CUTS)  # type: ignore[misc]
            promised = set(accepted)
            disk.crash_into(tmp_path / f"after-{cut}")
            cuts.append((tmp_path / f"after-{cut}", promised))
        is_over.set()
        for thread in threads:
            thread.join(60)
        spool.stop()
    return cuts


def brought_home(left: Path, primary: LocalNamespace) -> list[str]:
    """What a process that starts on the remains brings home."""
    for folder in (left, *left.iterdir()):
        folder.chmod(0o700 if folder.is_dir() else 0o600)
    spool = spool_in(left, primary.connection_string)
    spool.start()

    def is_empty() -> bool:
        state = spool.state()
        return state is not None and not state.counts.messages

    wait_until(is_empty)
    spool.stop()
    return taken_from(primary)


def taken_from(primary: LocalNamespace) -> list[str]:
    found: list[str] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with (
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
        client.get_queue_receiver("orders", receive_mode=mode) as receiver,
    ):
        while got := receiver.receive_messages(1_000, max_wait_time=1):
            found += [str(message) for message in got]
    return found


def test_nothing_accepted_is_missing_after_the_power_fails(tmp_path: Path, primary: LocalNamespace) -> None:
    for left, promised in cut_the_power_while_writing(tmp_path):
        received = brought_home(left, primary)
        assert promised - set(received) == set(), f"accepted and lost, {left.name}"
        assert len(received) == len(set(received)), f"stored twice, {left.name}"


@pytest.mark.long
def test_without_syncing_the_same_test_finds_the_loss(tmp_path: Path, primary: LocalNamespace) -> None:
    cuts = cut_the_power_while_writing(tmp_path, synchronous="off")
    missing = [promised - set(brought_home(left, primary)) for left, promised in cuts]
    assert any(missing), "a spool that never syncs looked safe: the test above proves nothing"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_process_that_is_killed_again_and_again_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    """While it writes, while it empties what the one before it left, with the primary up and down."""
    chance = random.Random(7)
    accepted: set[str] = set()
    with (
        LocalNamespace("contoso", queues=["orders"], data=tmp_path / "data") as primary,
        LocalNamespace("backup", data=tmp_path / "data") as secondary,
    ):
        secondary.faults.add("unreachable", how="refuse")
        strings = (primary.connection_string, secondary.connection_string)
        for round_ in range(12):
            if round_ % 3 == 2:
                primary.faults.clear()
            else:
                primary.faults.clear()
                primary.faults.add("unreachable", how="refuse")
            program = SpoolProgram(
                *strings, tmp_path / "spool", "contoso", "orders", count=100_000, prefix=f"r{round_}"
            )
            program.read(at_least=20)
            time.sleep(chance.random() * 0.5)
            program.kill()
            accepted |= {*program.accepted}
        primary.faults.clear()
        received = [*brought_home(tmp_path / "spool", primary)]
    assert accepted - {*received} == set(), "accepted and lost"
    assert max(Counter(received).values()) <= 1 + 4, "at most once more for each kill with the primary up"
