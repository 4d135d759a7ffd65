"""Pairing against real namespaces: what is found, created and tried, and the error when it cannot be done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus.management import EntityStatus

from twinbus.client.namespace import Namespace
from twinbus.client.setup.administration import plan_for
from twinbus.client.setup.preparation import CreateBacklogQueue, ListBacklogQueues, Preparation
from twinbus.client.sync.provisioner import BacklogProvisioner
from twinbus.errors import PairingError
from twinbus.pairing.sending.failure import FailureKind
from twinbus.testing import LocalNamespace

KEYS = {"sender": "key-of-the-sender", "reader": "key-of-the-reader", "boss": "key-of-the-boss"}
RULES = [f"sender:Send:{KEYS['sender']}", f"reader:Listen:{KEYS['reader']}", f"boss:Manage:{KEYS['boss']}"]
ATTEMPT_S, SILENCE_S, QUICK_S = 10.0, 3.0, 0.8
"""Time enough for what answers, less where somebody else does not, and little where nobody does."""
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(3)]
FOR_EVER_DAYS = 10_675_199


@pytest.fixture
def primary() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"], rules=RULES) as running:
        yield running


@pytest.fixture
def secondary() -> Iterator[LocalNamespace]:
    with LocalNamespace("backup", rules=RULES) as running:
        yield running


def reach(namespace: LocalNamespace, rule: str | None = None) -> Namespace:
    text = namespace.connection_string if rule is None else namespace.connection_string_for(rule)
    return Namespace.from_connection_string(text)


def pair(primary: Namespace, secondary: Namespace, attempt_s: float = ATTEMPT_S, **wishes: Any) -> Preparation:
    plan = plan_for(primary, secondary, **{"queue_count": 3, **wishes})
    with BacklogProvisioner(
        primary, secondary, attempt_s=attempt_s, admin_s=attempt_s, pause=lambda _: None
    ) as provisioner:
        return provisioner.prepare(plan)


def refusal(primary: Namespace, secondary: Namespace, **wishes: Any) -> str:
    with pytest.raises(PairingError) as refused:
        pair(primary, secondary, **wishes)
    text = str(refused.value)
    assert "\n" not in text
    assert not [key for key in (*KEYS.values(), "SharedAccessKey") if key in text]
    return text


def without_host_warning(prepared: Preparation) -> list[str]:
    """Both namespaces of these tests are on one host, which is worth a warning, always the same."""
    assert "on the same host" in prepared.warnings[0]
    return list(prepared.warnings[1:])


# --- what is found and made ---


def test_pairing_makes_the_backlog_queues_as_they_have_to_be(
    primary: LocalNamespace, secondary: LocalNamespace
) -> None:
    prepared = pair(reach(primary), reach(secondary), queue_count=10)
    assert (prepared.queues, prepared.created) == (tuple(range(10)), tuple(range(10)))
    assert without_host_warning(prepared) == []
    with reach(secondary).admin_client() as admin:
        made = {queue.name: queue for queue in admin.list_queues()}
        assert set(made) == {f"contoso/x-servicebus-transfer/{index}" for index in range(10)}
        queue = made["contoso/x-servicebus-transfer/9"]
    assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2_147_483_647)
    assert queue.default_message_time_to_live.days == FOR_EVER_DAYS  # type: ignore[union-attr]
    assert queue.auto_delete_on_idle.days == FOR_EVER_DAYS  # type: ignore[union-attr]
    assert queue.lock_duration.total_seconds() == 60  # type: ignore[union-attr]
    assert queue.dead_lettering_on_message_expiration is True
    assert queue.enable_batched_operations is True


def test_pairing_again_makes_nothing_and_changes_nothing(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    secondary.create_queue(QUEUES[0], max_size_mb=7)
    secondary.create_queue("contoso/x-servicebus-transfer/77")
    assert pair(reach(primary), reach(secondary)).created == (1, 2)
    assert pair(reach(primary), reach(secondary)).created == ()
    with reach(secondary).admin_client() as admin:
        assert admin.get_queue(QUEUES[0]).max_size_in_megabytes == 7
        assert len(list(admin.list_queues())) == 4


def test_queues_are_found_behind_many_pages_of_others(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    for number in range(101):
        secondary.create_queue(f"aaa-{number}")
    for path in QUEUES:
        secondary.create_queue(path)
    assert pair(reach(primary), reach(secondary)).created == ()


def test_many_who_pair_at_once_all_get_the_same_queues(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    with ThreadPoolExecutor(4) as pool:
        pairs = [pool.submit(pair, reach(primary), reach(secondary)) for _ in range(4)]
        assert {one.result().queues for one in pairs} == {(0, 1, 2)}


def test_a_queue_that_somebody_else_made_meanwhile_is_fine(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    with (
        BacklogProvisioner(reach(primary), reach(secondary)) as one,
        BacklogProvisioner(reach(primary), reach(secondary)) as other,
    ):
        assert one.perform(ListBacklogQueues((QUEUES[0],))) == other.perform(ListBacklogQueues((QUEUES[0],))) == {}
        assert one.perform(CreateBacklogQueue(QUEUES[0])) is None
        assert other.perform(CreateBacklogQueue(QUEUES[0])) is None
        assert other.perform(ListBacklogQueues((QUEUES[0],))).keys() == {QUEUES[0]}


def test_the_name_of_the_primary_can_be_given(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    pair(reach(primary), reach(secondary), primary_name="other", queue_count=1)
    with reach(secondary).admin_client() as admin:
        assert [queue.name for queue in admin.list_queues()] == ["other/x-servicebus-transfer/0"]


# --- rights ---


def test_a_key_without_manage_gets_advice_what_to_do(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    for path in QUEUES:
        secondary.create_queue(path)
    text = refusal(reach(primary, "sender"), reach(secondary, "sender"))
    for part in ("backup", "no Manage right", "twinbus pair --emit", "create_backlog=False"):
        assert part in text


def test_a_key_to_send_is_enough_for_queues_that_exist(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    for path in QUEUES[:2]:
        secondary.create_queue(path)
    prepared = pair(reach(primary, "sender"), reach(secondary, "sender"), creates=False)
    assert (prepared.queues, prepared.lost) == ((0, 1), {})
    (warning,) = without_host_warning(prepared)
    assert "only 2 of 3" in warning
    assert QUEUES[2] in warning


def test_no_queue_at_all_is_reported_with_its_name(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    text = refusal(reach(primary), reach(secondary), creates=False)
    assert "contoso/x-servicebus-transfer/0..2" in text
    assert "twinbus pair --emit" in text


def test_a_key_that_may_not_send_is_no_use(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    for path in QUEUES:
        secondary.create_queue(path)
    text = refusal(reach(primary), reach(secondary, "reader"), creates=False)
    assert "Send" in text
    assert "contoso/x-servicebus-transfer/0..2" in text


@pytest.mark.parametrize("creates", [True, False])
def test_a_wrong_key_is_reported_and_not_shown(
    primary: LocalNamespace, secondary: LocalNamespace, creates: bool
) -> None:
    wrong = secondary.connection_string_for("boss").replace(KEYS["boss"], "key-of-nobody")
    text = refusal(reach(primary), Namespace.from_connection_string(wrong), creates=creates)
    assert "check the" in text
    assert "key-of-nobody" not in text


def test_a_syphon_needs_to_listen(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    for path in QUEUES:
        secondary.create_queue(path)
    assert "Listen" in refusal(reach(primary), reach(secondary, "sender"), creates=False, listens=True)
    assert pair(reach(primary), reach(secondary, "boss"), listens=True).queues == (0, 1, 2)


# --- outages ---


@pytest.mark.parametrize("how", ["refuse", "drop", "silent"])
@pytest.mark.parametrize("creates", [True, False])
def test_a_secondary_that_cannot_be_reached_is_reported_in_time(
    primary: LocalNamespace, secondary: LocalNamespace, how: str, creates: bool
) -> None:
    there = reach(secondary)
    secondary.faults.add("unreachable", how=how)
    began = time.monotonic()
    text = refusal(reach(primary), there, attempt_s=QUICK_S, creates=creates)
    assert time.monotonic() - began < 15 * QUICK_S + 10
    assert f"secondary backup ({there.address})" in text
    assert "check its address" in text


@pytest.mark.parametrize("how", ["refuse", "drop", "silent"])
def test_the_primary_may_be_down(primary: LocalNamespace, secondary: LocalNamespace, how: str) -> None:
    here = reach(primary)
    primary.faults.add("unreachable", how=how)
    prepared = pair(here, reach(secondary), SILENCE_S, entities=["orders", "other"])
    assert prepared.queues == (0, 1, 2)
    assert prepared.duplicate_detection == {"orders": "unknown", "other": "unknown"}
    assert without_host_warning(prepared) == []


def test_a_secondary_that_cannot_be_managed_delivers_what_it_has(
    primary: LocalNamespace, secondary: LocalNamespace
) -> None:
    secondary.create_queue(QUEUES[1])
    secondary.faults.add("no-manage")
    prepared = pair(reach(primary), reach(secondary))
    assert (prepared.queues, prepared.found) == ((1,), (1,))
    unlisted, missing = without_host_warning(prepared)
    assert "could not be listed" in unlisted
    assert "only 1 of 3" in missing


def test_a_secondary_that_cannot_be_managed_and_has_nothing_is_in_trouble(
    primary: LocalNamespace, secondary: LocalNamespace
) -> None:
    secondary.faults.add("no-manage")
    assert "internal error: the namespace cannot be managed" in refusal(reach(primary), reach(secondary))


def test_a_queue_that_is_disabled_is_there_but_lost(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    pair(reach(primary), reach(secondary))
    with reach(secondary).admin_client() as admin:
        admin.update_queue(admin.get_queue(QUEUES[1]), status=EntityStatus.SEND_DISABLED)
    prepared = pair(reach(primary), reach(secondary))
    assert (prepared.queues, prepared.found) == ((0, 2), (0, 1, 2))
    assert prepared.lost[1].kind is FailureKind.DISABLED


def test_a_recheck_shows_what_has_changed_and_comes_back(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    here, there = reach(primary), reach(secondary)
    plan = plan_for(here, there, queue_count=3)
    with BacklogProvisioner(here, there, attempt_s=4.0, pause=lambda _: None) as provisioner:
        before = provisioner.prepare(plan)
        secondary.faults.add("no-send", entities=[QUEUES[0]])
        worse = provisioner.recheck(plan, before)
        assert (worse.queues, set(worse.lost)) == ((1, 2), {0})
        secondary.faults.add("unreachable", how="silent")
        assert provisioner.recheck(plan, worse).queues == ()
        secondary.faults.clear()
        assert provisioner.recheck(plan, before).queues == (0, 1, 2)


# --- the rest ---


def test_the_same_namespace_twice_is_refused(primary: LocalNamespace) -> None:
    assert "the same namespace" in refusal(reach(primary), reach(primary, "boss"))


def test_duplicate_detection_is_read_where_that_is_allowed(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    prepared = pair(reach(primary), reach(secondary), entities=["orders", "ordres"])
    assert prepared.duplicate_detection == {"orders": "off", "ordres": "missing"}
    off, missing = without_host_warning(prepared)
    assert "orders has no duplicate detection" in off
    assert "'ordres'" in missing
    closed = pair(reach(primary, "sender"), reach(secondary), entities=["orders"])
    assert closed.duplicate_detection == {"orders": "unknown"}


def test_pairing_leaves_no_thread_behind(primary: LocalNamespace, secondary: LocalNamespace) -> None:
    before = set(threading.enumerate())
    pair(reach(primary), reach(secondary), listens=True)
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) - before == set()
