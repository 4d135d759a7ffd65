"""The control socket, over a real socket: who may use it, what it takes, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch, NoPort
from twinbus.broker.ops.control_socket import make_control_handler
from twinbus.control import control_client
from twinbus.control import control_server as control
from twinbus.control.control_server import ControlServer, Handler
from twinbus.errors import AddressInUse, OptionsError, TwinbusError

NOW = 1_000_000
WAIT_S = 60


def control_handler(tmp_path: Path) -> Handler:
    def write_dump(reason: str) -> Path:
        return tmp_path / f"{reason}.json"

    switch = FaultSwitch(FaultTable(lambda: 0.5), NoPort(), write_dump=write_dump)
    return make_control_handler(
        switch, clock=lambda: NOW, write_dump=write_dump, status=lambda: {"namespace": "contoso"}
    )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Path]:
    server = ControlServer(tmp_path / "control.sock", control_handler(tmp_path))
    await server.start()
    yield server.path
    await server.stop()


async def ask(path: Path, request: str, **arguments: Any) -> Any:
    return await asyncio.to_thread(control_client.ask, path, request, arguments, wait_s=WAIT_S)


async def say(path: Path, said: bytes) -> list[dict[str, Any]]:
    """Every answer to these bytes."""
    async with talking(path) as (reader, writer):
        writer.write(said)
        writer.write_eof()
        answers = await asyncio.wait_for(reader.read(), WAIT_S)
    return [json.loads(line) for line in answers.splitlines()]


@asynccontextmanager
async def talking(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, closed whatever happens: one that is left over would disturb the tests that follow."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)  # the socket is closed one turn later


async def said_until_the_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    except ConnectionError:  # nobody ever took the connection
        return b""


async def test_every_request_is_answered(served: Path) -> None:
    assert await ask(served, "ping") == "pong"
    assert await ask(served, "status") == {"namespace": "contoso"}
    assert (await ask(served, "dump"))["file"].endswith("asked.json")
    added = await ask(served, "fault.add", fault="no-send", entities=["orders"], length_ms=30_000)
    assert (added["id"], added["left_ms"]) == ("no-send-1", 30_000)
    assert [one["id"] for one in await ask(served, "fault.list")] == ["no-send-1"]
    assert await ask(served, "fault.clear", id="no-send-1") == ["no-send-1"]
    assert await ask(served, "fault.clear") == []


async def test_what_makes_no_sense_and_what_cannot_be_done_are_distinguished(served: Path) -> None:
    with pytest.raises(OptionsError, match="did you mean no-send"):
        await ask(served, "fault.add", fault="no-sent")
    with pytest.raises(TwinbusError, match="there are no faults") as refused:
        await ask(served, "fault.clear", id="no-send-1")
    assert not isinstance(refused.value, OptionsError)
    with pytest.raises(OptionsError, match=r"there are fault\.add"):
        await ask(served, "explode")
    with pytest.raises(OptionsError, match="id must be"):
        await ask(served, "fault.clear", id=7)


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"no json\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"7\n",
        b"{}\n",
        b'{"request": 7}\n',
        b'{"request": "ping", "arguments": []}\n',
        b"[" * 50_000 + b"\n",
        b'{"request": "fault.add", "arguments": {"fault": {"x": 1}, "\\ud800": 1}}\n',
    ],
)
async def test_bad_input_is_one_line_of_error_and_the_conversation_goes_on(served: Path, said: bytes) -> None:
    answers = await say(served, said + b'{"request": "ping"}\n')
    assert [answer["ok"] for answer in answers] == [False, True]
    assert answers[0]["error"]
    assert "\n" not in answers[0]["error"]


async def test_a_request_without_end_is_refused_and_hung_up_on(served: Path) -> None:
    async with talking(served) as (reader, writer):
        writer.write(b"x" * (control.REQUEST_BYTES_MAX + 1))
        answer = json.loads(await asyncio.wait_for(reader.readline(), WAIT_S))
        assert f"at most {control.REQUEST_BYTES_MAX} bytes" in answer["error"]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), WAIT_S)
    assert await ask(served, "ping") == "pong"


async def test_half_a_request_is_no_request(served: Path) -> None:
    assert await say(served, b'{"request": "ping"}') == []


async def test_many_ask_at_once(served: Path) -> None:
    assert await asyncio.gather(*(ask(served, "ping") for _ in range(20))) == ["pong"] * 20


async def test_too_many_are_refused_as_such(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CLIENTS_MAX", 1)
    async with talking(served) as (reader, writer):
        writer.write(b'{"request": "ping"}\n')
        await asyncio.wait_for(reader.readline(), WAIT_S)
        with pytest.raises(TwinbusError, match="try again later"):
            await ask(served, "ping")


def test_who_is_refused_before_it_has_asked_hears_why() -> None:
    asking, refusing = socket.socketpair()
    with asking, refusing:
        refusing.sendall(b"try again later\n")
        refusing.close()
        assert control_client.answer_to(b"ping\n", asking) == b"try again later\n"


def test_a_request_without_an_answer_fails_with_an_error_that_says_so() -> None:
    asking, silent = socket.socketpair()
    with asking, silent:
        silent.close()
        with pytest.raises(ConnectionError, match="without an answer"):
            control_client.answer_to(b"ping\n", asking)


async def test_a_client_that_says_nothing_is_hung_up_on(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "IDLE_S", 0.01)
    async with talking(served) as (reader, _):
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""


async def test_a_mistake_of_ours_is_an_answer_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: str, arguments: dict[str, Any]) -> None:
        raise RuntimeError("one\ntwo")

    server = ControlServer(tmp_path / "control.sock", broken)
    await server.start()
    with pytest.raises(TwinbusError, match="unexpected RuntimeError: one two"):
        await ask(server.path, "ping")
    await server.stop()


async def test_the_socket_is_its_owners_and_gone_at_the_end(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "control.sock", control_handler(tmp_path))
    await server.start()
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    async with talking(server.path) as (reader, _):
        await server.stop()
        assert await said_until_the_end(reader) == b""
    assert list(tmp_path.iterdir()) == []
    await server.stop()
    with pytest.raises(TwinbusError, match="nothing is running"):
        await ask(server.path, "ping")


async def test_a_server_that_is_stopped_while_it_answers_is_stopped_at_once(tmp_path: Path) -> None:
    stopping: list[asyncio.Task[None]] = []

    def stop_it(request: str, arguments: dict[str, Any]) -> str:
        stopping.append(asyncio.get_running_loop().create_task(server.stop()))
        return "stopping"

    server = ControlServer(tmp_path / "control.sock", stop_it)
    await server.start()
    async with talking(server.path) as (reader, writer):
        writer.write(b'{"request": "stop", "arguments": {}}\n')
        await said_until_the_end(reader)
        async with asyncio.timeout(WAIT_S):
            await stopping[0]


async def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = ControlServer(path, control_handler(tmp_path))
    await server.start()
    assert await ask(path, "ping") == "pong"
    await server.stop()


async def test_a_socket_in_use_and_a_file_in_the_way_are_left_alone(served: Path, tmp_path: Path) -> None:
    with pytest.raises(AddressInUse):
        await ControlServer(served, control_handler(tmp_path)).start()
    assert await ask(served, "ping") == "pong"
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(TwinbusError, match="in the way"):
        await ControlServer(tmp_path / "mine", control_handler(tmp_path)).start()
    assert (tmp_path / "mine").read_text() == "mine"


async def test_a_folder_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TwinbusError, match="cannot be made"):
        await ControlServer(tmp_path / "missing" / "control.sock", control_handler(tmp_path)).start()


async def test_a_path_longer_than_an_address_may_be_works(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    home.mkdir()
    server = ControlServer(home / "control.sock", control_handler(tmp_path))
    await server.start()
    assert await ask(server.path, "ping") == "pong"
    await server.stop()
    assert list(home.iterdir()) == []


async def test_an_answer_that_is_none_is_one_line(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"hello?\n")
        writer.close()

    path = tmp_path / "control.sock"
    async with await asyncio.start_unix_server(babble, path):
        with pytest.raises(TwinbusError, match="is not twinbus"):
            await ask(path, "ping")
