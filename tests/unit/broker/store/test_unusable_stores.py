"""A namespace whose store cannot be used says so, names it, and leaves it as it was."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from namespace_harness import NamespaceHarness

from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.data_directory import STORE_FILE
from twinbus.broker.server import NamespaceServer
from twinbus.broker.store.api import StoredNamespace
from twinbus.errors import StoreDamaged, StoreError
from twinbus.options import NamespaceOptions


def options(data: Path) -> NamespaceOptions:
    return NamespaceOptions(name="local", port=0, data=data, queues=("orders",))


async def serve(data: Path) -> None:
    async with NamespaceServer(options(data)):
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The store of a namespace that was stopped."""
    asyncio.run(serve(tmp_path))
    return tmp_path / "local" / STORE_FILE


def settings(text: str) -> str:
    return f"update entities set settings = '{text}' where kind = 'queue'"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (settings("nonsense"), "'orders'"),
        (settings('{"lock_ms":1}'), "5 s to 5 min"),
        (settings('{"future":1}'), "does not know: future"),
        (settings("[1]"), "'orders'"),
        ("delete from entities where kind <> 'queue'", "contradict"),
        (
            "delete from entities where kind <> 'queue'; delete from counters where name = 'next_sequence/2'",
            "no dead-letter queue",
        ),
        ("delete from counters where name like 'next_sequence/%'", "contradict"),
        ("update counters set name = 'next_sequence/x' where name = 'next_sequence/1'", "contradict"),
        ("drop table counters", "counters"),
        ("drop index messages_by_key", "has no messages_by_key"),
        ("drop index messages_by_expiry; drop index messages_by_due", "has no messages_by_due, messages_by_expiry"),
    ],
)
def test_a_store_that_makes_no_namespace_is_named_and_left_as_it_was(
    path: Path, tmp_path: Path, change: str, said: str
) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(change)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        asyncio.run(serve(tmp_path))
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert not path.with_name(STORE_FILE + "-wal").exists()


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), OSError("gone"), StoreError("as it is")])
def test_whatever_goes_wrong_while_a_namespace_is_rebuilt_is_a_store_error(error: Exception) -> None:
    harness = NamespaceHarness()
    broken = False

    def build(stored: StoredNamespace) -> NamespaceMachine:
        if broken:
            raise error
        return NamespaceMachine(stored, new_token=lambda: bytes(16))

    gate = CommitGate(harness.store, build, harness.replies.append, harness.failures.append)
    broken = True
    with pytest.raises(StoreError) as caught:
        gate.recover()
    assert isinstance(caught.value, StoreDamaged) or caught.value is error
    broken = False
    gate.recover()
    assert gate.failure is None
