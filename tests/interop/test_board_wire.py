"""The board on a real namespace: posted with our engine, read with it, and by the official client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from board_scene import failed_over, report
from paired import wait_until

from twinbus.board.fleet import Fleet, FleetVerdict, ProcessWord
from twinbus.board.poster import BoardPoster
from twinbus.board.queue import BOARD_SETTINGS, board_path
from twinbus.board.reader import BoardReader, read_board
from twinbus.board.report import ProcessReport, decode_report
from twinbus.board.schedule import CLEAR_EVERY_S
from twinbus.client.namespace import Namespace
from twinbus.testing import LocalNamespace

BOARD = board_path("contoso")
SETTINGS: dict[str, Any] = dict(BOARD_SETTINGS)


@pytest.fixture(scope="module")
def secondary() -> Iterator[LocalNamespace]:
    with LocalNamespace("backup", rules=("reader:Listen", "sender:Send")) as served:
        yield served


@pytest.fixture
def place(secondary: LocalNamespace) -> Iterator[Namespace]:
    """The secondary with an empty board."""
    namespace = Namespace.from_connection_string(secondary.connection_string)
    with namespace.admin_client() as admin:
        admin.create_queue(BOARD, **SETTINGS)
        yield namespace
        admin.delete_queue(BOARD)


class Posting:
    """A poster that runs until the block ends."""

    def __init__(self, namespace: Namespace, instance: str, say: Callable[[], ProcessReport]) -> None:
        self.troubles: list[str | None] = []
        self.poster = BoardPoster(namespace.dial(5.0), "contoso", instance, say, on_trouble=self.troubles.append)

    async def __aenter__(self) -> Posting:
        self._task = asyncio.create_task(self.poster.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.poster.end()


async def look_until(reader: BoardReader, is_enough: Callable[[Fleet], bool]) -> Fleet:
    async with asyncio.timeout(30):
        while not is_enough(fleet := await reader.look()):
            await asyncio.sleep(0.02)
        return fleet


async def test_a_fleet_sees_what_changes_and_who_says_goodbye(place: Namespace) -> None:
    states = {"a": report(), "b": report()}
    async with (
        BoardReader(place.dial(5.0), "contoso") as reader,
        Posting(place, "a", lambda: states["a"]),
    ):
        async with Posting(place, "b", lambda: states["b"]) as second:
            fleet = await look_until(reader, lambda fleet: len(fleet.processes) == 2)
            assert fleet.verdict is FleetVerdict.HEALTHY
            states["b"] = report(entities=(failed_over(),))
            second.poster.wake()
            fleet = await look_until(reader, lambda fleet: fleet.verdict is FleetVerdict.FAILED_OVER)
            assert fleet.processes[0].report.instance == "b"
        fleet = await look_until(reader, lambda fleet: any(p.word is ProcessWord.ENDED for p in fleet.processes))
        assert {p.report.instance: p.word for p in fleet.processes}["a"] is ProcessWord.REPORTING


async def test_the_official_client_reads_reports_by_peeking(place: Namespace) -> None:
    async with Posting(place, "a", report), BoardReader(place.dial(5.0), "contoso") as reader:
        await look_until(reader, lambda fleet: len(fleet.processes) == 1)
        async with place.aio_client(5.0) as client, client.get_queue_receiver(BOARD) as receiver:
            (message,) = await receiver.peek_messages(10)
    said = decode_report(b"".join(message.body))
    assert (said.instance, said.number, said.host) == ("a", 1, "host-a")
    assert message.time_to_live == timedelta(minutes=5)


async def test_without_a_board_there_is_no_fleet_and_no_poster_stops(secondary: LocalNamespace) -> None:
    namespace = Namespace.from_connection_string(secondary.connection_string)
    async with Posting(namespace, "a", report) as posting, BoardReader(namespace.dial(5.0), "contoso") as reader:
        fleet = await reader.look()
        assert fleet.has_board is False
        async with asyncio.timeout(20):
            while not posting.troubles:
                await asyncio.sleep(0.01)
        with namespace.admin_client() as admin:
            admin.create_queue(BOARD, **SETTINGS)
            fleet = await look_until(reader, lambda fleet: len(fleet.processes) == 1)
            admin.delete_queue(BOARD)
    assert "not found" in (posting.troubles[0] or "")
    assert posting.troubles[1] is None


def test_a_key_without_listen_and_a_secondary_that_is_away_leave_the_fleet_unknown(secondary: LocalNamespace) -> None:
    sender = Namespace.from_connection_string(secondary.connection_string_for("sender"))
    with Namespace.from_connection_string(secondary.connection_string).admin_client() as admin:
        admin.create_queue(BOARD, **SETTINGS)
        refused = read_board(sender.dial(5.0), "contoso")
        admin.delete_queue(BOARD)
    assert (refused.has_board, refused.verdict) == (None, FleetVerdict.UNKNOWN)
    assert "unauthorised" in refused.problem
    secondary.faults.add("unreachable")
    away = read_board(Namespace.from_connection_string(secondary.connection_string).dial(2.0), "contoso", attempt_s=2)
    secondary.faults.clear()
    assert (away.has_board, away.verdict) == (None, FleetVerdict.UNKNOWN)


def test_reports_are_gone_after_their_time(place: Namespace) -> None:
    assert place.admin_client().get_queue(BOARD).default_message_time_to_live == timedelta(minutes=5)
    wait_until(lambda: read_board(place.dial(5.0), "contoso").has_board is True)


class Counting:
    """What the board has cost."""

    def __init__(self) -> None:
        self.posts = self.peeks = self.clearings = 0

    def posted(self, _path: str, _size: int) -> None:
        self.posts += 1

    def peeked(self, _path: str, _messages: object) -> None:
        self.peeks += 1

    def cleared(self, _path: str) -> None:
        self.clearings += 1


@pytest.mark.parametrize(("ahead_s", "clearings"), [(0.0, 0), (400.0, 1)])
async def test_who_clears_receives_only_if_the_first_report_is_over_and_gives_back_what_is_not(
    place: Namespace, ahead_s: float, clearings: int
) -> None:
    """By its own clock: one that is wrong costs an operation, and no report."""
    counts, shift = Counting(), 0.0
    poster = BoardPoster(
        place.dial(5.0),
        "contoso",
        "a",
        report,
        clears=True,
        counts=counts,
        clock=lambda: time.monotonic() + shift,
        wall_clock=lambda: time.time() + ahead_s,
        chance=lambda: 0.0,
    )
    task = asyncio.create_task(poster.run())
    async with asyncio.timeout(30), BoardReader(place.dial(5.0), "contoso") as reader:
        while not counts.posts:
            await asyncio.sleep(0.01)
        shift = CLEAR_EVERY_S  # the next report and the clearing are due now
        poster.wake()
        while not counts.peeks:
            await asyncio.sleep(0.01)
        while counts.posts < 2 or counts.clearings < clearings:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert counts.clearings == clearings
        fleet = await look_until(reader, lambda fleet: fleet.processes[0].report.number >= 2)
        assert len(fleet.processes) == 1
    with place.admin_client() as admin:
        numbers = admin.get_queue_runtime_properties(BOARD)
        assert numbers.active_message_count == counts.posts, "what was received has been given back"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await poster.end()
