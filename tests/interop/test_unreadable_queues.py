"""P2: a backlog queue that a syphon cannot empty stops nobody, and nobody says *empty* of it; it is named, and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backlog_messages import backlog_messages_for, fill
from syphon_program import ids_at

from twinbus.cli.main import run
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.syphon import Alert, Syphon, SyphonOptions
from twinbus.syphon.peeking.depth_watch import BacklogSnapshot
from twinbus.syphon.peeking.queue_discovery import DiscoveredQueues, QueueDiscovery
from twinbus.testing import LocalNamespace, NamespacePair

PATHS = [backlog_path("contoso", index) for index in range(3)]
WAIT_S = 60.0

SHUT: dict[str, tuple[dict[str, Any], str, str]] = {
    "sessions": ({"requires_session": True}, "not allowed: ", "recreate it without sessions"),
    "forwarding": ({"forward_to": "elsewhere"}, "not allowed: ", "remove the forwarding"),
    "receive-disabled": ({"status": "ReceiveDisabled"}, "disabled: ", "set its status to Active"),
    "disabled": ({"status": "Disabled"}, "disabled: ", "set its status to Active"),
}
"""What a queue can be given that keeps a syphon out, what it answers then, and what would help."""


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces in the environment of the commands; backlog queue 0 is as it should be."""
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders"], rules=["syphon:Listen"]) as primary,
        LocalNamespace("backup", queues=["elsewhere", PATHS[0]], rules=["syphon:Listen"]) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def make(spaces: NamespacePair, path: str, status: str | None = None, **settings: Any) -> None:
    with admin(spaces) as client:
        client.create_queue(path, **settings)
    if status is not None:
        change(spaces, path, status=status)


def change(spaces: NamespacePair, path: str, **settings: Any) -> None:
    with admin(spaces) as client:
        queue = client.get_queue(path)
        for name, value in settings.items():
            setattr(queue, name, value)
        client.update_queue(queue)


def admin(spaces: NamespacePair) -> Any:
    return Namespace.from_connection_string(spaces.secondary.connection_string).admin_client()


def dials(spaces: NamespacePair, rule: str | None = None) -> tuple[Any, Any]:
    there = spaces.secondary
    texts = spaces.primary.connection_string, there.connection_string_for(rule) if rule else there.connection_string
    return tuple(Namespace.from_connection_string(text).dial(WAIT_S) for text in texts)  # type: ignore[return-value]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)


OPTIONS = SyphonOptions(until_empty=True, backoff_s=(0.05, 0.1), attempt_s=WAIT_S)


# --- the program ---


@pytest.mark.parametrize("count", ["2", "1"])
@pytest.mark.parametrize("kind", SHUT)
def test_until_empty_brings_home_the_rest_and_ends_with_three_and_the_name_of_the_queue(
    spaces: NamespacePair, kind: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, said, remedy = SHUT[kind]
    make(spaces, PATHS[1], **settings)
    fill(spaces.secondary.connection_string, PATHS[0], backlog_messages_for("orders", 20))
    assert run(["syphon", "--count", count, "--until-empty"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("20 messages (")
    assert "is empty" not in out
    assert f"backlog queue 1 cannot be emptied: {said}" in out
    assert remedy in out
    assert f"queue down: {PATHS[1]}: {said}" in err, "it is said while it runs, too"
    assert len(ids_at(spaces.primary, "orders")) == 20
    assert run(["syphon", "--count", count, "--until-empty", "--json"]) == 3
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (shown["ending"], len(shown["doubts"]), shown["left"]) == ("unsure", 1, None)


def test_without_the_right_to_list_it_ends_the_same_way(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for("syphon"))
    make(spaces, PATHS[2], requires_session=True)
    assert run(["syphon", "--count", "1", "--until-empty"]) == 3
    assert "backlog queue 2 cannot be emptied: not allowed: " in capsys.readouterr().out


def test_where_no_queue_lets_it_in_it_ends_at_once_and_names_each(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    change(spaces, PATHS[0], status="ReceiveDisabled")
    make(spaces, PATHS[1], requires_session=True)
    assert run(["syphon", "--count", "2", "--until-empty"]) == 3
    out = capsys.readouterr().out
    assert "is empty" not in out
    assert [f"backlog queue {index} cannot be emptied" in out for index in (0, 1)] == [True, True]


def test_a_dry_run_shows_what_it_sees_and_which_queue_would_not_be_emptied(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    make(spaces, PATHS[1], forward_to="elsewhere")
    assert run(["syphon", "--count", "2", "--dry-run"]) == 3
    out = capsys.readouterr().out
    assert "is empty" not in out
    assert "backlog queue 1 cannot be emptied: not allowed: " in out
    change(spaces, PATHS[1], forward_to=None)
    fill(spaces.secondary.connection_string, PATHS[1], backlog_messages_for("orders", 3))
    change(spaces, PATHS[1], status="ReceiveDisabled")
    assert run(["syphon", "--count", "2", "--dry-run"]) == 3
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:4] == ["(cannot", "be", "moved)", "3"], "it does not say that these would go anywhere"


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", SHUT)
@pytest.mark.parametrize("rule", [None, "syphon"])
@pytest.mark.parametrize("count", ["2", "1"])
def test_status_names_the_queue_counts_what_it_sees_and_calls_it_failing(
    spaces: NamespacePair,
    kind: str,
    rule: str | None,
    count: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(spaces, PATHS[1], **SHUT[kind][0])
    if rule is not None:
        monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for(rule))
    assert run(["status", "--count", count]) == 10
    out, _ = capsys.readouterr()
    assert f"\n{PATHS[1]} cannot be emptied: " in out
    assert "waiting    0 messages" not in out
    assert PATHS[1] in out.splitlines()[0]
    assert run(["status", "--count", count, "--json"]) == 10
    shown = json.loads(capsys.readouterr().out)
    assert (shown["verdict"], shown["waiting_messages"], shown["waiting_at_least"], shown["unread_queues"]) == (
        "failing",
        None,
        0,
        1,
    )


# --- while it runs ---


async def test_a_queue_that_is_enabled_again_is_emptied_and_then_it_is_empty(spaces: NamespacePair) -> None:
    """One that runs for ever goes on to try: that a queue is disabled is an alert, and so is its return."""
    alerts: list[Alert] = []
    await asyncio.to_thread(fill, spaces.secondary.connection_string, PATHS[0], backlog_messages_for("orders", 5))
    await asyncio.to_thread(change, spaces, PATHS[0], status="ReceiveDisabled")
    options = replace(OPTIONS, until_empty=False)
    async with Syphon(*dials(spaces), "contoso", 1, options, on_alert=alerts.append) as moving:
        await until(lambda: moving.queues.shut == [PATHS[0]])
        seen = moving.current_progress()
        assert (seen.left, len(seen.troubles)) == (None, 1)
        await asyncio.to_thread(change, spaces, PATHS[0], status="Active")
        await until(lambda: moving.current_progress().moved == 5)
        assert (moving.queues.shut, moving.current_progress().troubles) == ([], ())
    assert [(alert.name, alert.subject) for alert in alerts] == [("queue_down", PATHS[0]), ("queue_up", PATHS[0])]


async def test_a_queue_that_is_disabled_in_the_middle_ends_it_with_a_doubt(spaces: NamespacePair) -> None:
    await asyncio.to_thread(make, spaces, PATHS[1])
    fault = await asyncio.to_thread(spaces.primary.faults.add, "no-send", entities=["orders"])
    await asyncio.to_thread(fill, spaces.secondary.connection_string, PATHS[0], backlog_messages_for("orders", 5))
    async with Syphon(*dials(spaces), "contoso", 2, OPTIONS) as moving:
        await until(lambda: all(queue.is_attached for queue in moving.pump.queues))
        await asyncio.to_thread(change, spaces, PATHS[1], status="ReceiveDisabled")
        await until(lambda: moving.queues.shut == [PATHS[1]])
        await asyncio.to_thread(spaces.primary.faults.clear, fault)
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert moving.current_progress().moved == 5
        assert "backlog queue 1 cannot be emptied: disabled: " in (moving.queues.doubt or "")


async def test_what_the_syphon_sees_is_never_empty_while_a_queue_is_shut(spaces: NamespacePair) -> None:
    await asyncio.to_thread(make, spaces, PATHS[1], forward_to="elsewhere")
    async with Syphon(*dials(spaces), "contoso", 2, replace(OPTIONS, until_empty=False)) as moving:
        await until(lambda: moving.queues.shut == [PATHS[1]] and moving.pump.queues[0].is_attached)
        moving.watch.latest = BacklogSnapshot(0.0, 0, 0, 0, None)  # a look from before anybody knew
        for _ in range(2):
            seen = moving.current_progress().backlog
            assert seen is not None
            assert (seen.waiting_messages, seen.waiting_at_least, seen.unread_queues) == (None, 0, 1)
            assert not seen.is_empty
            await moving.watch.refresh()


@pytest.mark.parametrize("has_search", [True, False])
async def test_a_queue_that_is_deleted_while_it_runs_is_not_waited_for(spaces: NamespacePair, has_search: bool) -> None:
    await asyncio.to_thread(make, spaces, PATHS[1])
    fault = await asyncio.to_thread(spaces.primary.faults.add, "no-send", entities=["orders"])
    await asyncio.to_thread(fill, spaces.secondary.connection_string, PATHS[0], backlog_messages_for("orders", 5))
    queues = None if has_search else [0, 1]
    async with Syphon(*dials(spaces), "contoso", 2, OPTIONS, queues=queues) as moving:
        await until(lambda: all(queue.is_attached for queue in moving.pump.queues))
        await asyncio.to_thread(admin(spaces).delete_queue, PATHS[1])
        await until(lambda: len(moving.current_progress().troubles) == 1)
        await asyncio.to_thread(spaces.primary.faults.clear, fault)
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert (moving.current_progress().moved, moving.queues.doubt) == (5, None)


async def test_where_there_is_no_backlog_queue_at_all_nobody_says_empty(spaces: NamespacePair) -> None:
    async with Syphon(*dials(spaces), "fabrikam", 2, OPTIONS) as moving:
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert "fabrikam has no backlog queue there" in (moving.queues.doubt or "")


class Elsewhere(QueueDiscovery):
    """Another look, of somebody else, finds a queue while the last one is made."""

    moving: Syphon
    spaces: NamespacePair
    looks = 0

    async def search(self) -> DiscoveredQueues:
        self.looks += 1
        if self.looks == 2:
            await asyncio.to_thread(self.spaces.secondary.create_queue, PATHS[2])
            text = self.spaces.secondary.connection_string
            await asyncio.to_thread(fill, text, PATHS[2], backlog_messages_for("orders", 7))
            self.moving.queues._add(await super().search())
        return await super().search()


async def test_a_queue_that_another_look_finds_meanwhile_is_emptied_before_anybody_says_empty(
    spaces: NamespacePair,
) -> None:
    here, there = dials(spaces)
    search = Elsewhere(there, "contoso", 1, attempt_s=WAIT_S)
    search.spaces = spaces
    moving = search.moving = Syphon(here, there, "contoso", 1, OPTIONS, queues=[0], discovery=search)
    async with moving:
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert (search.looks >= 3, moving.current_progress().moved) == (True, 7)


async def test_a_queue_of_which_nobody_could_say_whether_it_is_there_is_looked_for_again_soon(
    spaces: NamespacePair,
) -> None:
    await asyncio.to_thread(make, spaces, PATHS[2])
    await asyncio.to_thread(fill, spaces.secondary.connection_string, PATHS[2], backlog_messages_for("orders", 5))
    fault = await asyncio.to_thread(spaces.secondary.faults.add, "no-receive", entities=[PATHS[2]])
    options = replace(OPTIONS, until_empty=False)
    assert options.look_again_s > 2 * WAIT_S, "else the next look would find it anyway"
    async with Syphon(*dials(spaces, "syphon"), "contoso", 1, options) as moving:
        await until(lambda: len(moving.current_progress().troubles) == 1)
        await asyncio.to_thread(spaces.secondary.faults.clear, fault)
        await until(lambda: moving.current_progress().moved == 5)


async def test_that_nobody_can_say_whether_there_are_further_queues_is_an_alert_while_it_waits(
    spaces: NamespacePair,
) -> None:
    alerts: list[Alert] = []
    await asyncio.to_thread(make, spaces, PATHS[2])
    fault = await asyncio.to_thread(spaces.secondary.faults.add, "no-receive", entities=[PATHS[2]])
    async with Syphon(*dials(spaces, "syphon"), "contoso", 1, OPTIONS, on_alert=alerts.append) as moving:
        await until(lambda: len(moving.current_progress().troubles) == 1)
        assert "unknown whether messages are in backlog queue 2" in moving.current_progress().troubles[0]
        await asyncio.to_thread(spaces.secondary.faults.clear, fault)
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert moving.queues.doubt is None
    shown = [(alert.name, alert.subject) for alert in alerts]
    assert shown == [(name, "backlog queues beyond the count") for name in ("queue_down", "queue_up")]


async def test_a_credential_that_gets_no_token_for_a_while_is_waited_for(spaces: NamespacePair) -> None:
    """Whoever gives out tokens may be away: that says nothing of the queues, and is no refusal."""
    here, there = dials(spaces, "syphon")
    issuer_is_away = False

    def get_token(audience: str) -> Any:
        if issuer_is_away:
            raise OSError("the issuer is away")
        return there.get_token(audience)

    assert (await QueueDiscovery(replace(there, get_token=get_token), "contoso", 1).search()).doubt is None
    search = QueueDiscovery(replace(there, get_token=get_token), "contoso", 1, attempt_s=WAIT_S)
    issuer_is_away = True
    async with Syphon(here, there, "contoso", 1, OPTIONS, queues=[0], discovery=search) as moving:
        await until(lambda: len(moving.current_progress().troubles) == 1)
        assert "no token: OSError" in moving.current_progress().troubles[0]
        issuer_is_away = False
        async with asyncio.timeout(WAIT_S):
            await moving.finished()
        assert (moving.queues.doubt, moving.current_progress().troubles) == (None, ())


async def test_looks_are_made_one_after_the_other(spaces: NamespacePair) -> None:
    """What two looks have found comes in the order in which they looked."""
    at_once: list[int] = []
    looking = 0

    async def list_queues() -> list[list[str]]:
        nonlocal looking
        looking += 1
        at_once.append(looking)
        await asyncio.sleep(0)
        looking -= 1
        return [[PATHS[0]]]

    _, there = dials(spaces)
    search = QueueDiscovery(replace(there, list_queues=list_queues), "contoso", 1, attempt_s=WAIT_S)
    await asyncio.gather(*[search.search() for _ in range(3)])
    assert at_once == [1, 1, 1]
