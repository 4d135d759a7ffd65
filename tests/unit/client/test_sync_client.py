"""The client for threads is made of the client for tasks, and is up to date."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import twinbus
import twinbus.aio
from pages import sync_client

BY_HAND = ("__init__", "board_runner", "concurrency", "links", "syphon_runner", "timers")


def names_of(file: Path) -> set[str]:
    """What a module defines for others."""
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in nodes if isinstance(node, named) and not node.name.startswith("_")}


def test_the_generated_files_are_what_their_sources_make_them() -> None:
    assert sync_client.stale() == [], "run make pages"


@pytest.mark.parametrize("folder", ["aio", "sync"])
def test_every_file_is_generated_or_named_here(folder: str) -> None:
    files = {file.stem for file in (sync_client.CLIENT / folder).glob("*.py")}
    assert files == {*sync_client.FILES, *BY_HAND}


def test_a_stale_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sync_client.sync_text
    monkeypatch.setattr(
        sync_client, "sync_text", lambda name: made(name) + ("MORE = 1\n" if name == "pair_runner" else "")
    )
    assert sync_client.stale() == ["pair_runner"]


def test_no_word_of_asyncio_is_left_in_the_client_for_threads() -> None:
    for name in sync_client.FILES:
        text = (sync_client.CLIENT / "sync" / f"{name}.py").read_text(encoding="utf-8")
        assert not {"async", "await", "asyncio", "aio", "Awaitable"} & set(
            re.findall(r"\w+", text.replace("client/aio", ""))
        ), name
        assert "client.aio" not in text


def test_what_one_has_to_replace_by_a_line_of_its_own_stays_rare() -> None:
    texts = [(sync_client.CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8") for name in sync_client.FILES]
    marked = [line for text in texts for line in text.splitlines() if "# sync: " in line or "# aio only" in line]
    assert len(marked) <= 16, "put what differs into concurrency, links, timers or syphon_runner"


def test_files_written_by_hand_have_the_same_names_in_both_folders() -> None:
    only_tasks = {"links": {"Guard", "ClientLinks", "all_closed", "cancellations"}}
    only_threads: dict[str, set[str]] = {}
    for name in BY_HAND:
        tasks, threads = (names_of(sync_client.CLIENT / folder / f"{name}.py") for folder in ("aio", "sync"))
        if name == "concurrency":
            modules = [import_module(f"twinbus.client.{folder}.concurrency") for folder in ("aio", "sync")]
            assert modules[0].__all__ == modules[1].__all__
        else:
            assert tasks - threads == only_tasks.get(name, set())
            assert threads - tasks == only_threads.get(name, set())


@pytest.mark.parametrize("name", ["PairedServiceBusClient", "PairedServiceBusSender", "PairedServiceBusReceiver"])
def test_both_clients_offer_the_same(name: str) -> None:
    ours, theirs = getattr(twinbus, name), getattr(twinbus.aio, name)
    dialects = {"__aenter__", "__aexit__", "__enter__", "__exit__"}
    own = [{each for each in vars(kind) if not each.startswith("_")} - dialects for kind in (ours, theirs)]
    assert own[0] == own[1]
    for method in own[0]:
        if inspect.isfunction(vars(ours)[method]):
            parameters = [list(inspect.signature(vars(kind)[method]).parameters) for kind in (ours, theirs)]
            assert parameters[0] == parameters[1], method
