"""Who may import whom: every import of every file, held to the table of rooms in ARCHITECTURE.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pages.rooms import ROOMS, Room, is_below, page_with_table, room_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "twinbus"

DOING = {
    *("asyncio", "multiprocessing", "random", "secrets", "selectors", "signal", "socket", "sqlite3", "ssl"),
    *("subprocess", "threading", "time"),
}
"""Modules that a room that decides only has no use for."""


def module_name(file: Path) -> str:
    """Without `twinbus.`, as rooms are named; the package itself is `twinbus`."""
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".") or "twinbus"


FILES = {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """All that can name a module or a class; the rest is not kept."""
    kinds = ast.Import | ast.ImportFrom | ast.ClassDef
    return [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


@cache
def imports_of(file: Path) -> tuple[str, ...]:
    """Every imported module, type-only imports too."""
    return tuple(_imports_of(file))


def _imports_of(file: Path) -> Iterator[str]:
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports by relative path"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full.removeprefix("twinbus.") in FILES else node.module


def own_imports_of(file: Path) -> Iterator[str]:
    for name in imports_of(file):
        if name == "twinbus" or name.startswith("twinbus."):
            yield name.removeprefix("twinbus.")


def may_import(room: Room, module: str) -> bool:
    allowed = (*room.may_import.split(), room.name, "errors", "deprecated")
    return "*" in allowed or any(is_below(module, other) for other in allowed)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.name))
def test_the_files_of_a_room_import_only_what_it_may(room: Room) -> None:
    unlisted = [
        f"twinbus.{module}: {name}"
        for module, file in FILES.items()
        if room_of(module) == room
        for name in own_imports_of(file)
        if not may_import(room, name)
    ]
    assert unlisted == []


@pytest.mark.parametrize("room", [room for room in ROOMS if room.is_pure], ids=lambda room: str(room.name))
def test_a_room_that_decides_has_no_clock_no_chance_and_no_io(room: Room) -> None:
    taken = [
        f"twinbus.{module}: {name}"
        for module, file in FILES.items()
        if room_of(module) == room
        for name in imports_of(file)
        if name.partition(".")[0] in DOING
    ]
    assert taken == []


def test_every_room_has_a_file_and_every_permission_is_used() -> None:
    used = {(room_of(module), name) for module, file in FILES.items() for name in own_imports_of(file)}
    idle = [
        f"{room.name}: {other}"
        for room in ROOMS
        for other in room.may_import.split()
        if other != "*" and not any(mine == room and is_below(name, other) for mine, name in used)
    ]
    empty = [room.name for room in ROOMS if not any(room_of(module) == room for module in FILES)]
    assert (empty, idle) == ([], [])


def test_the_table_in_the_architecture_page_is_made_of_these_rules() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert page == page_with_table(page), "stale: run make pages"


def test_asyncio_is_used_in_few_places_of_the_namespace() -> None:
    users = {module for module, file in FILES.items() if is_below(module, "broker") and "asyncio" in imports_of(file)}
    outside_net = {module for module in users if not is_below(module, "broker.net")}
    others = (
        *("endpoint", "server", "scheduler", "store_lifecycle"),
        *("admin.app", "admin.admin_server"),
    )
    assert outside_net == {f"broker.{name}" for name in others}


def test_a_class_name_has_one_meaning() -> None:
    """The client for threads is generated from the one for tasks: there each name stands twice."""
    places: dict[str, list[str]] = {}
    for module, file in FILES.items():
        if is_below(module, "client.sync"):
            continue
        for node in nodes_of(file):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
