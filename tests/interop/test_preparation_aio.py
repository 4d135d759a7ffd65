"""Pairing on asyncio, against real namespaces: the same conversation, carried out by tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from twinbus.client.aio.links import all_closed
from twinbus.client.aio.provisioner import BacklogProvisioner
from twinbus.client.namespace import Namespace
from twinbus.client.setup.administration import plan_for
from twinbus.client.setup.preparation import CreateBacklogQueue, Preparation
from twinbus.errors import PairingError
from twinbus.pairing.sending.failure import FailureKind
from twinbus.testing import LocalNamespace, NamespacePair

ATTEMPT_S, SILENCE_S, QUICK_S = 10.0, 3.0, 0.8
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(3)]


@pytest.fixture
def spaces() -> Iterator[NamespacePair]:
    rules = ["sender:Send:key-of-the-sender"]
    with (
        LocalNamespace("contoso", queues=["orders"], rules=rules) as primary,
        LocalNamespace("backup", rules=rules) as secondary,
    ):
        yield NamespacePair(primary, secondary)


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


def reach(namespace: LocalNamespace, rule: str | None = None) -> Namespace:
    text = namespace.connection_string if rule is None else namespace.connection_string_for(rule)
    return Namespace.from_connection_string(text)


async def pair(primary: Namespace, secondary: Namespace, attempt_s: float = ATTEMPT_S, **wishes: Any) -> Preparation:
    plan = plan_for(primary, secondary, **{"queue_count": 3, **wishes})
    async with BacklogProvisioner(
        primary, secondary, attempt_s=attempt_s, admin_s=attempt_s, pause=no_pause
    ) as provisioner:
        try:
            return await provisioner.prepare(plan)
        finally:
            await all_closed()


async def refusal(primary: Namespace, secondary: Namespace, **wishes: Any) -> str:
    with pytest.raises(PairingError) as refused:
        await pair(primary, secondary, **wishes)
    assert "\n" not in str(refused.value)
    assert "key-of" not in str(refused.value)
    return str(refused.value)


async def test_pairing_makes_what_is_missing_and_proves_it(spaces: NamespacePair) -> None:
    spaces.secondary.create_queue(QUEUES[1], max_size_mb=7)
    prepared = await pair(reach(spaces.primary), reach(spaces.secondary), listens=True, entities=["orders", "ordres"])
    assert (prepared.queues, prepared.created, prepared.lost) == ((0, 1, 2), (0, 2), {})
    assert prepared.duplicate_detection == {"orders": "off", "ordres": "missing"}
    async with reach(spaces.secondary).aio_admin_client() as admin:
        sizes = [(await admin.get_queue(path)).max_size_in_megabytes for path in QUEUES]
    assert sizes == [5120, 7, 5120]


async def test_queues_are_found_behind_many_pages_of_others(spaces: NamespacePair) -> None:
    for number in range(101):
        spaces.secondary.create_queue(f"aaa-{number}")
    for path in QUEUES:
        spaces.secondary.create_queue(path)
    assert (await pair(reach(spaces.primary), reach(spaces.secondary))).created == ()


async def test_many_who_pair_at_once_all_get_the_same_queues(spaces: NamespacePair) -> None:
    pairs = await asyncio.gather(*(pair(reach(spaces.primary), reach(spaces.secondary)) for _ in range(4)))
    assert {one.queues for one in pairs} == {(0, 1, 2)}


async def test_a_queue_that_somebody_else_made_meanwhile_is_fine(spaces: NamespacePair) -> None:
    async with BacklogProvisioner(reach(spaces.primary), reach(spaces.secondary)) as provisioner:
        assert await provisioner.perform(CreateBacklogQueue(QUEUES[0])) is None
        assert await provisioner.perform(CreateBacklogQueue(QUEUES[0])) is None


async def test_a_key_without_manage_gets_advice_what_to_do_and_does_for_queues_that_exist(
    spaces: NamespacePair,
) -> None:
    for path in QUEUES[:2]:
        spaces.secondary.create_queue(path)
    here, there = reach(spaces.primary, "sender"), reach(spaces.secondary, "sender")
    assert "create_backlog=False" in await refusal(here, there)
    prepared = await pair(here, there, creates=False)
    assert (prepared.queues, prepared.found) == ((0, 1), (0, 1))


@pytest.mark.parametrize("creates", [True, False])
@pytest.mark.parametrize("how", ["refuse", "drop", "silent"])
async def test_a_secondary_that_cannot_be_reached_is_reported_in_time(
    spaces: NamespacePair, how: str, creates: bool
) -> None:
    there = reach(spaces.secondary)
    spaces.secondary.faults.add("unreachable", how=how)
    began = time.monotonic()
    text = await refusal(reach(spaces.primary), there, attempt_s=QUICK_S, creates=creates)
    assert time.monotonic() - began < 15 * QUICK_S + 10
    assert f"secondary backup ({there.address})" in text


@pytest.mark.parametrize("how", ["refuse", "silent"])
async def test_the_primary_may_be_down(spaces: NamespacePair, how: str) -> None:
    here = reach(spaces.primary)
    spaces.primary.faults.add("unreachable", how=how)
    prepared = await pair(here, reach(spaces.secondary), SILENCE_S, entities=["orders"])
    assert prepared.duplicate_detection == {"orders": "unknown"}


async def test_a_recheck_shows_what_has_changed(spaces: NamespacePair) -> None:
    here, there = reach(spaces.primary), reach(spaces.secondary)
    plan = plan_for(here, there, queue_count=3)
    async with BacklogProvisioner(here, there, attempt_s=ATTEMPT_S, pause=no_pause) as provisioner:
        before = await provisioner.prepare(plan)
        spaces.secondary.faults.add("refuse", condition="com.microsoft:entity-disabled", entities=[QUEUES[0]])
        after = await provisioner.recheck(plan, before)
        await all_closed()
    assert (after.queues, after.lost[0].kind) == ((1, 2), FailureKind.DISABLED)


async def test_a_cancelled_pairing_leaves_no_task_behind(spaces: NamespacePair) -> None:
    there = reach(spaces.secondary)
    spaces.secondary.faults.add("unreachable", how="silent")
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pair(reach(spaces.primary), there, creates=False), 0.2)
    await all_closed()
    assert asyncio.all_tasks() == before
