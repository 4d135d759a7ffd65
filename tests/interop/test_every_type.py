"""Messages with every AMQP type in them: no queue becomes unreadable, whatever the official SDK can decode."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backlog_messages import fill
from syphon_program import QUEUES

from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from twinbus.amqp.message.sections import PropertyField, encode_message, read_application_properties, read_value, walk
from twinbus.cli.main import run
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.envelope import address
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.peek import peek

DECIMAL = Decimal64(bytes.fromhex("31a00000000004d2"))  # 123.4
TYPES: dict[str, tuple[Value, Any]] = {
    "null": (None, None),
    "boolean": (True, True),
    "ubyte": (UByte(255), 255),
    "ushort": (UShort(65_535), 65_535),
    "uint": (UInt(2**32 - 1), 2**32 - 1),
    "ulong": (ULong(2**64 - 1), 2**64 - 1),
    "byte": (Byte(-128), -128),
    "short": (Short(-5), -5),
    "int": (Int(-(2**31)), -(2**31)),
    "long": (Long(-(2**63)), -(2**63)),
    "float": (Float32(1.5), 1.5),
    "double": (2.5, 2.5),
    "decimal32": (Decimal32(bytes.fromhex("32000019")), "2.5"),
    "decimal64": (DECIMAL, "123.4"),
    "decimal128": (Decimal128(bytes.fromhex("303c000000000000002bdc545d6b4b87")), "123456789012345.67"),
    "char": (Char("ü"), "ü"),
    "timestamp": (Timestamp(2**62), 2**62),
    "uuid": (uuid.UUID(int=5), str(uuid.UUID(int=5))),
    "binary": (b"\xff", "ff"),
    "string": ("ü", "ü"),
    "symbol": (Symbol("s"), "s"),
    "list": ([1, [Char("x")]], [1, ["x"]]),
    "map": ({"a": {"b": DECIMAL}}, {"a": {"b": "123.4"}}),
    "array": (Array([Char("x"), Char("y")]), ["x", "y"]),
    "array of described": (Array([Char("x")], 0x73, (Symbol("d"),)), ["x"]),
    "described": (Described(Symbol("d"), Char("x")), "x"),
    "described by a list": (Described([1], "v"), "v"),
}


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders"]) as primary,
        LocalNamespace("backup", queues=QUEUES) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def messages() -> list[bytes]:
    """Each type in an application property, an annotation and the body; then all of them in one."""
    every = {name: value for name, (value, _) in TYPES.items()}
    ids = [{PropertyField.MESSAGE_ID: name} for name in (*TYPES, "all")]
    return [
        encode_message(
            properties=said, annotations={"seen": value}, application_properties={"it": value, "n": 7}, value=value
        )
        for said, value in zip(ids, [*every.values(), every], strict=True)
    ]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    return [json.loads(connection) for connection in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("options", [("--peek",), (), ("--delete",)])
def test_messages_with_every_type_are_peeked_and_received(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    sent = messages()
    fill(spaces.primary.connection_string, "orders", sent)
    found = printed(capsys, "receive", "orders", "--max", str(len(sent)), "--wait", "20s", *options)
    assert [each["message_id"] for each in found] == [*TYPES, "all"]
    shown = {name: value for name, (_, value) in TYPES.items()}
    assert {each["message_id"]: each["body"] for each in found} == shown | {"all": shown}
    assert {each["message_id"]: each["properties"] for each in found} == {
        name: {"it": value, "n": 7} for name, value in (shown | {"all": shown}).items()
    }
    assert all(each["sequence_number"] and each["enqueued_at"] and "unreadable" not in each for each in found)


def test_what_nobody_can_show_is_named_and_the_rest_is_shown(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = encode(None)
    for _ in range(70):
        deep = bytes((0xC0, len(deep) + 1, 1)) + deep  # a list with it alone
    stand_in = b"?" * (len(deep) - 2)
    sent = encode_message(application_properties={"deep": stand_in, "n": 7}, value=[0] * 70_000)
    fill(spaces.primary.connection_string, "orders", [sent.replace(encode(stand_in), deep)])
    (found,) = printed(capsys, "receive", "orders", "--peek")
    assert found["properties"] == {"n": 7}
    assert set(found["unreadable"]) == {"properties: deep", "body"}
    assert "70,000" in found["unreadable"]["body"]
    assert run(["receive", "orders", "--wait", "20s"]) == 0
    out = capsys.readouterr().out
    assert "  property         n = 7\n" in out
    assert "  unreadable       properties: deep: " in out


async def _raw(namespace: LocalNamespace, queue: str) -> list[bytes]:
    connection = NamespaceConnection(
        Namespace.from_connection_string(namespace.connection_string).dial(),
        attempt_s=20,
    )
    await connection.open()
    try:
        return await peek(connection, queue, 1, 250)
    finally:
        await connection.close()


def test_the_syphon_moves_every_type_unchanged_and_its_tools_show_them(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {name: value for name, (value, _) in TYPES.items()}
    home = address(encode_message(application_properties=every, value=every), "orders")
    lost = encode_message(properties={PropertyField.MESSAGE_ID: "lost"}, application_properties=every, value=every)
    fill(spaces.secondary.connection_string, QUEUES[0], [home, lost])
    status = printed_anyhow(capsys, "status", "--count", "2")
    assert status["waiting_messages"] == 2
    assert run(["syphon", "--dry-run", "--count", "2"]) == 0
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    (moved,) = asyncio.run(_raw(spaces.primary, "orders"))
    assert read_application_properties(moved, walk(moved)) == every
    assert read_value(moved, walk(moved)) == every
    (kept,) = printed(capsys, "syphon", "quarantine", "list", "--count", "2")
    shown = printed_anyhow(capsys, "syphon", "quarantine", "show", kept["number"], "--count", "2")
    assert shown["properties"]["decimal64"] == "123.4"
    assert shown["properties"]["described by a list"] == "v"


def printed_anyhow(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    run([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found
