"""P2: what lies in backlog queues beyond the count is found and comes home, and *empty* is said only of all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backlog_messages import backlog_message, backlog_messages_for, fill
from syphon_program import ids_at
from token_makers import scoped_to

from twinbus.cli.main import run
from twinbus.client.namespace import Namespace
from twinbus.ledger import Kind, LedgerReader
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.sending.failure import FailureKind
from twinbus.syphon import Alert, Syphon, SyphonOptions
from twinbus.syphon.peeking.queue_discovery import DiscoveredQueues, QueueDiscovery
from twinbus.testing import LocalNamespace, NamespacePair

PATHS = [backlog_path("contoso", index) for index in range(4)]
WAIT_S = 60.0


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces in the environment of the commands; senders have made four backlog queues."""
    monkeypatch.chdir(tmp_path)
    rules = ["syphon:Listen", "sender:Send"]
    with (
        LocalNamespace("contoso", queues=["orders"], rules=rules) as primary,
        LocalNamespace("backup", queues=PATHS, rules=rules) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def fill_all(spaces: NamespacePair, each: int = 10) -> None:
    for index, path in enumerate(PATHS):
        messages = [backlog_message("orders", f"{index}-{number}") for number in range(each)]
        fill(spaces.secondary.connection_string, path, messages)


def dial(text: str) -> Any:
    return Namespace.from_connection_string(text).dial(WAIT_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)


class CountingSearch(QueueDiscovery):
    looks = 0

    async def search(self) -> DiscoveredQueues:
        self.looks += 1
        return await super().search()


# --- looking for them ---


@pytest.mark.parametrize("rule", [None, "syphon"])
async def test_every_backlog_queue_is_found_with_the_right_to_list_and_without(
    spaces: NamespacePair, rule: str | None
) -> None:
    spaces.secondary.create_queue(backlog_path("contoso", 99))
    spaces.secondary.create_queue(backlog_path("fabrikam", 5))
    text = spaces.secondary.connection_string if rule is None else spaces.secondary.connection_string_for(rule)
    search = QueueDiscovery(dial(text), "contoso", 2)
    for _ in range(2):
        found = await search.search()
        assert (found.queues, found.extra, found.missing, found.doubt) == ((0, 1, 2, 3, 99), (2, 3, 99), {}, None)


async def test_who_may_list_finds_indexes_that_no_sender_of_ours_has(spaces: NamespacePair) -> None:
    spaces.secondary.create_queue(backlog_path("contoso", 12_345))
    found = await QueueDiscovery(dial(spaces.secondary.connection_string), "contoso", 2).search()
    assert found.extra == (2, 3, 12_345)


async def test_a_listing_that_is_refused_is_not_asked_for_again(spaces: NamespacePair) -> None:
    asked = 0

    async def refuse() -> list[list[str]]:
        nonlocal asked
        asked += 1
        raise PermissionError("no")

    search = QueueDiscovery(replace(dial(spaces.secondary.connection_string), list_queues=refuse), "contoso", 2)
    assert [(await search.search()).extra for _ in range(2)] == [(2, 3), (2, 3)]
    assert asked == 1


async def test_a_listing_that_fails_is_asked_for_again_and_links_are_tried_meanwhile(spaces: NamespacePair) -> None:
    asked = 0

    async def fail() -> list[list[str]]:
        nonlocal asked
        asked += 1
        raise OSError("the administration is down")

    search = QueueDiscovery(replace(dial(spaces.secondary.connection_string), list_queues=fail), "contoso", 2)
    assert [(await search.search()).extra for _ in range(2)] == [(2, 3), (2, 3)]
    assert asked == 2


async def test_who_is_refused_cannot_say_that_these_are_all(spaces: NamespacePair) -> None:
    found = await QueueDiscovery(dial(scoped_to(spaces.secondary, PATHS[0])), "contoso", 1).search()
    assert (found.queues, len(found.refused)) == ((0,), 99)
    assert {failure.kind for failure in found.refused.values()} == {FailureKind.UNAUTHORISED}
    assert "unknown whether messages are in backlog queue 1 and 98 more" in (found.doubt or "")


async def test_a_look_costs_one_connection_and_takes_no_message(spaces: NamespacePair) -> None:
    await asyncio.to_thread(fill_all, spaces, 3)
    started = time.monotonic()
    await QueueDiscovery(dial(spaces.secondary.connection_string_for("syphon")), "contoso", 2).search()
    assert time.monotonic() - started < 30, "usually it takes a fifth of a second"
    assert [len(await asyncio.to_thread(ids_at, spaces.secondary, path)) for path in PATHS] == [3, 3, 3, 3]


# --- the program ---


@pytest.mark.parametrize("rule", [None, "syphon"])
def test_with_fewer_queues_than_the_senders_have_everything_comes_home(
    spaces: NamespacePair, rule: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if rule is not None:
        monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for(rule))
    fill_all(spaces)
    assert run(["syphon", "--count", "2", "--until-empty"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("40 messages (")
    assert ": the backlog is empty\n" in out
    assert "beyond --queues: 2, 3;" in out
    assert err.count("extra queue: contoso/") == 2, "and it is warned about while it happens"
    assert len(set(ids_at(spaces.primary, "orders"))) == 40


def test_who_may_not_look_everywhere_never_hears_that_the_backlog_is_empty(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_all(spaces, 5)
    monkeypatch.setenv("TWINBUS_SECONDARY", scoped_to(spaces.secondary, PATHS[0]))
    assert run(["syphon", "--count", "1", "--until-empty"]) == 3
    out, _ = capsys.readouterr()
    assert out.startswith("5 messages (")
    assert "is empty" not in out
    assert "unknown whether messages are in backlog queue 1 and 98 more: unauthorised" in out
    assert run(["syphon", "--count", "1", "--until-empty", "--json"]) == 3
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["ending"], len(said["doubts"])) == ("unsure", 1)


def test_a_dry_run_counts_what_lies_beyond_the_count_and_says_what_it_cannot_see(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, PATHS[3], backlog_messages_for("orders", 7))
    assert run(["syphon", "--count", "2", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["destinations"]["orders"]["messages"] == 7
    monkeypatch.setenv("TWINBUS_SECONDARY", scoped_to(spaces.secondary, PATHS[0]))
    assert run(["syphon", "--count", "1", "--dry-run"]) == 3
    out = capsys.readouterr().out
    assert "is empty" not in out
    assert "unknown whether" in out


def test_order_is_refused_if_messages_lie_beyond_the_count_and_not_if_queues_there_are_empty(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["syphon", "--count", "2", "--order", "session", "--until-empty"]) == 0
    capsys.readouterr()
    fill(spaces.secondary.connection_string, PATHS[3], backlog_messages_for("orders", 1))
    assert run(["syphon", "--count", "2", "--order", "session", "--until-empty"]) == 1
    assert "with another number of backlog queues than 2" in capsys.readouterr().err
    assert len(ids_at(spaces.secondary, PATHS[3])) == 1


def test_the_quarantine_of_queues_beyond_the_count_is_listed_too(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, PATHS[3], [backlog_message("", "nowhere")])
    assert run(["syphon", "--count", "2", "--until-empty"]) == 3
    capsys.readouterr()
    assert run(["syphon", "quarantine", "list", "--count", "2", "--json"]) == 0
    assert [json.loads(line)["queue"] for line in capsys.readouterr().out.splitlines()] == [3]


# --- while it runs ---


def test_looks_for_queues_are_in_the_ledger_as_what_they_cost(spaces: NamespacePair, tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    assert run(["syphon", "--count", "2", "--until-empty", "--ledger", str(folder)]) == 0
    records = [record for record in LedgerReader(folder).records() if record.kind == Kind.QUEUE_CHECKED]
    assert [(record.namespace, record.count) for record in records] == [("backup", 1)] * 2, "at the start and the end"


async def test_a_queue_that_comes_up_while_it_runs_is_emptied_and_one_that_goes_is_forgotten(
    spaces: NamespacePair,
) -> None:
    alerts: list[Alert] = []
    ends = dial(spaces.primary.connection_string), dial(spaces.secondary.connection_string)
    options = SyphonOptions(backoff_s=(0.05, 0.1), attempt_s=WAIT_S, look_again_s=0.1)
    async with Syphon(*ends, "contoso", 2, options, on_alert=alerts.append) as moving:
        await until(lambda: moving.queues.indexes == [0, 1, 2, 3])
        await asyncio.to_thread(spaces.secondary.create_queue, backlog_path("contoso", 7))
        messages = backlog_messages_for("orders", 5)
        await asyncio.to_thread(fill, spaces.secondary.connection_string, backlog_path("contoso", 7), messages)
        await until(lambda: moving.current_progress().moved == 5)
        assert [(alert.name, alert.subject) for alert in alerts] == [("extra_queue", backlog_path("contoso", 7))]
        assert moving.queues.extra == [7]
        admin = Namespace.from_connection_string(spaces.secondary.connection_string).admin_client()
        await asyncio.to_thread(admin.delete_queue, PATHS[3])
        await until(lambda: moving.queues.indexes == [0, 1, 2, 7])
        assert moving.current_progress().troubles == ()
        await asyncio.to_thread(spaces.secondary.create_queue, PATHS[3])
        await until(lambda: moving.queues.indexes == [0, 1, 2, 3, 7])
        await asyncio.to_thread(fill, spaces.secondary.connection_string, PATHS[3], backlog_messages_for("orders", 5))
        await until(lambda: moving.current_progress().moved == 10)


async def test_a_queue_that_came_up_since_the_first_look_is_emptied_before_anybody_says_empty(
    spaces: NamespacePair,
) -> None:
    ends = dial(spaces.primary.connection_string), dial(spaces.secondary.connection_string)
    search = QueueDiscovery(ends[1], "contoso", 2, attempt_s=WAIT_S)
    found = await search.search()
    await asyncio.to_thread(spaces.secondary.create_queue, backlog_path("contoso", 7))
    messages = backlog_messages_for("orders", 5)
    await asyncio.to_thread(fill, spaces.secondary.connection_string, backlog_path("contoso", 7), messages)
    options = SyphonOptions(until_empty=True, attempt_s=WAIT_S)
    async with Syphon(*ends, "contoso", 2, options, queues=found.queues, discovery=search) as moving:
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert (moving.current_progress().moved, moving.queues.extra, moving.queues.doubt) == (5, [7], None)


async def test_a_queue_of_which_nobody_can_say_now_whether_it_is_there_is_waited_out(spaces: NamespacePair) -> None:
    await asyncio.to_thread(fill_all, spaces, 5)
    fault = await asyncio.to_thread(spaces.secondary.faults.add, "no-receive", entities=[PATHS[3]])
    ends = dial(spaces.primary.connection_string), dial(spaces.secondary.connection_string_for("syphon"))
    search = CountingSearch(ends[1], "contoso", 2, attempt_s=WAIT_S)
    found = await search.search()
    assert (found.queues, list(found.unsure)) == ((0, 1, 2), [3])
    options = SyphonOptions(until_empty=True, attempt_s=WAIT_S)
    async with Syphon(*ends, "contoso", 2, options, queues=found.queues, discovery=search) as moving:
        ended = asyncio.create_task(moving.finished())
        await until(lambda: moving.current_progress().moved == 15 and search.looks >= 3)
        assert not ended.done(), "nobody says empty meanwhile"
        await asyncio.to_thread(spaces.secondary.faults.clear, fault)
        async with asyncio.timeout(WAIT_S):
            await ended
        assert (moving.current_progress().moved, moving.queues.doubt) == (20, None)


async def test_an_idle_queue_beyond_the_count_costs_a_long_poll_and_one_that_does_not_exist_costs_nothing(
    spaces: NamespacePair,
) -> None:
    ends = dial(spaces.primary.connection_string), dial(spaces.secondary.connection_string_for("syphon"))
    async with Syphon(*ends, "contoso", 2, SyphonOptions(attempt_s=WAIT_S)) as moving:
        await until(lambda: len(moving.pump.queues) == 4 and all(queue.credit for queue in moving.pump.queues))
        assert moving.pump.counts.grants == 4
