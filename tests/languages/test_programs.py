"""Each program does what it is told, against a namespace where nothing fails: what the other tests rest on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from languages.clients import LANGUAGES, read_ids
from languages.conftest import StartClient
from twinbus.testing import LocalNamespace

pytestmark = [pytest.mark.languages, pytest.mark.timeout(900)]

KNOWS_MANAGEMENT = [name for name in LANGUAGES if name != "proton"]


@pytest.fixture
def served() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        yield namespace


@pytest.mark.parametrize("name", LANGUAGES)
def test_what_is_sent_in_every_way_is_received(name: str, served: LocalNamespace, start_client: StartClient) -> None:
    client = start_client(name, served.connection_string)
    client.must("send", entity="orders", how="single", ids=["1"])
    client.must("send", entity="orders", how="batch", ids=["2", "3"])
    client.must("send", entity="orders", how="schedule", ids=["4"])
    other = start_client("python", served.connection_string)
    found: list[str] = []
    while len(found) < 4:
        found += other.must("receive", entity="orders", max=10, wait_ms=20_000).ids
    assert sorted(found) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", KNOWS_MANAGEMENT)
def test_a_message_is_kept_renewed_abandoned_and_completed(
    name: str, served: LocalNamespace, start_client: StartClient
) -> None:
    client = start_client(name, served.connection_string)
    assert client.must("peek", entity="orders", max=10).ids == [], "JavaScript then has a token for $management alone"
    client.must("send", entity="orders", how="single", ids=["1"])
    assert client.must("peek", entity="orders", max=10).ids == ["1"]
    assert client.must("receive", entity="orders", max=1, wait_ms=30_000).ids == ["1"]
    client.must("renew", message="1")
    client.must("settle", message="1", how="abandon")
    (again,) = client.must("receive", entity="orders", max=1, wait_ms=30_000).values["messages"]
    assert again["delivery_count"] == 1
    client.must("settle", message="1", how="complete")
    assert client.must("receive", entity="orders", max=1, wait_ms=1_000).ids == []


@pytest.mark.parametrize("name", LANGUAGES)
def test_everything_that_was_accepted_is_received_once(
    name: str, served: LocalNamespace, start_client: StartClient, tmp_path: Path
) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    sender, receiver = (start_client(name, served.connection_string) for _ in range(2))
    receiver.must("start-receiving", entity="orders", file=str(got))
    sender.must("start-sending", entity="orders", prefix=name, file=str(sent), pause_ms=20)
    while not sent.exists() or len(read_ids(sent).accepted) < 100:
        time.sleep(0.1)
    counts = sender.must("stop").values
    lines = read_ids(sent)
    assert (counts["accepted"], counts["failed"]) == (len(lines.accepted), 0)
    while len(read_ids(got).copies) < len(lines.accepted):
        time.sleep(0.1)
    receiver.must("stop")
    received = read_ids(got)
    assert sorted(each for each, _ in received.received) == sorted(lines.accepted)
    assert received.problems == []
