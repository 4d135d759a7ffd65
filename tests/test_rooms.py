"""Who may import whom: the table of rooms in ARCHITECTURE.md, held to its word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "twinbus"

ENTITIES_WORLD = {
    "namespace.commands",
    "namespace.replies",
    "namespace.happenings",
    "namespace.message",
    "namespace.store.api",
    "errors",
}

ALLOWED: dict[str, set[str]] = {
    # room: what it may look into, beside itself; a name stands for everything below it
    "errors": {"pairing.receipt"},  # by name only: an error carries a receipt
    "dial": set(),
    "cost": {"errors", "ledger"},
    "own_files": {"errors"},
    "plain_text": set(),
    "ledger": {"errors", "own_files"},
    "pairing": {"amqp", "errors", "ranges"},
    "client.asks": {"pairing"},
    "client.drive": {"client.asks"},
    "client.flows": {"client.asks", "client.send_record", "errors", "pairing"},
    "client.send_record": {"errors", "pairing"},
    "client.plan": {"pairing"},
    "client.findings": {"client.duration", "client.plan", "pairing"},
    "client.queue_settings": {"client.duration"},
    "client.preparation": {"client.findings", "client.plan", "client.queue_settings", "errors", "pairing"},
    "syphon": {"amqp", "dial", "errors", "ledger", "pairing", "plain_text", "ranges"},
    "drill.measures": set(),
    "drill.limits": {"drill.measures"},
    "drill": {
        "amqp",
        "client",
        "control_client",
        "dial",
        "errors",
        "ledger",
        "own_files",
        "pairing",
        "plain_text",
        "syphon",
    },
    "connection_string": {"errors"},
    "ranges": {"errors"},
    "amqp": {"errors", "ranges"},
    "namespace.store": {"errors", "own_files"},
    "namespace.sql": {"amqp.values", "errors"},
    "namespace.view": {"amqp.sections", "amqp.types", "namespace.sql"},
    "namespace.message": {"amqp.sections", "amqp.types", "errors", "namespace.store.api"},
    "namespace.commands": {"namespace.entities.rules", "namespace.entities.settings", "namespace.message"},
    "namespace.replies": {
        "errors",
        "namespace.entities.rules",
        "namespace.entities.settings",
        "namespace.happenings",
        "namespace.store.api",
    },
    "namespace.happenings": {"namespace.store.api"},
    "namespace.clockwork": set(),
    "namespace.operations": set(),
    "namespace.sniff": set(),
    "namespace.limits": {"amqp.limits", "ranges"},
    "namespace.rights": {"errors", "namespace.operations"},
    "namespace.entities": ENTITIES_WORLD | {"amqp.types", "namespace.sql", "namespace.view"},
    "namespace.registry": ENTITIES_WORLD | {"namespace.entities"},
    "namespace.lookups": ENTITIES_WORLD | {"namespace.entities"},
    "namespace.administration": ENTITIES_WORLD | {"namespace.entities", "namespace.registry"},
    "namespace.machine": ENTITIES_WORLD
    | {
        "namespace.administration",
        "namespace.entities",
        "namespace.registry",
        "namespace.clockwork",
        "namespace.lookups",
    },
    "namespace.seam": ENTITIES_WORLD | {"namespace.machine"},
    "namespace.meter": set(),
    "namespace.faults": {"errors", "namespace.operations"},
    "namespace.nodes": {
        "amqp",
        "errors",
        "namespace.commands",
        "namespace.entities.rules",
        "namespace.faults.rulings",
        "namespace.reception",
        "namespace.turnstile",
        "namespace.message",
        "namespace.operations",
        "namespace.replies",
        "namespace.rights",
    },
}
"""Rooms that are not listed (door, server, cli ...) may look everywhere."""

OUTSIDE_WORLD = {"asyncio", "socket", "threading", "time", "random", "secrets", "sqlite3", "subprocess", "selectors"}
ACTS = ("namespace.store", "errors", "ledger", "own_files", "syphon", "drill")
DOES_NOTHING_BY_ITSELF = [room for room in ALLOWED if room not in ACTS] + [
    "namespace.door",
    "namespace.intake",
    "namespace.outlet",
    "namespace.outcomes",
    "namespace.reception",
    "namespace.turnstile",
    "sim",
]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def files_of(room: str) -> list[Path]:
    path = SOURCE.joinpath(*room.split("."))
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports_of(file: Path) -> Iterator[str]:
    """Every imported module and name, with twinbus's own ones written without `twinbus.`; type-only imports too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_below(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_looks_only_into_the_rooms_it_may(room: str) -> None:
    for file in files_of(room):
        own = [name.removeprefix("twinbus.") for name in imports_of(file) if name.startswith("twinbus.")]
        strangers = [name for name in own if not any(is_below(name, other) for other in ALLOWED[room] | {room})]
        assert strangers == [], f"{module_name(file)} looks into {strangers}"


@pytest.mark.parametrize("room", DOES_NOTHING_BY_ITSELF)
def test_a_room_that_decides_has_no_clock_no_chance_and_no_io(room: str) -> None:
    for file in files_of(room):
        taken = {name.partition(".")[0] for name in imports_of(file)} & OUTSIDE_WORLD
        if room == "sim":
            taken -= {"random"}  # seeded: it is where chance comes from
        assert taken == set(), f"{module_name(file)} imports {taken}"


def test_only_the_server_and_what_is_around_its_sockets_knows_asyncio_in_the_namespace() -> None:
    users = {module_name(file) for file in files_of("namespace") if "asyncio" in set(imports_of(file))}
    sockets = ("server", "pulse", "wire", "listener", "guest", "http_door", "held_transport", "small_tls", "control")
    assert users == {f"namespace.{name}" for name in (*sockets, "admin.app", "admin.house")}
