"""The protocol of a stream that consumes: whoever is killed at whichever step, nothing is lost. Without Spark."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from consuming_world import CHUNK, TASK_MAX, ConsumingWorld, Killed
from hypothesis import event, example, given
from hypothesis import strategies as st
from object_store import PLACES, new_place

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.staging import (
    ADOPTED_MAX,
    TASKS_MAX,
    EntityTasks,
    ManifestName,
    ReceiveOffset,
    ReceiveTask,
    StagedFile,
    files_of_others,
    next_offset,
    parse_name,
    parse_offset,
    plan_tasks,
    sort_files,
    tasks_of,
)
from twinbus.spark.source.stream_offsets import CHECK_S
from twinbus.storage import open_folder

CUTS = st.lists(st.integers(-9, 9), max_size=4)
STOPS = st.sampled_from(["", "", "", "planned", "evaluated", "sunk"])
ACTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 9)),
    st.tuples(st.just("trigger"), st.tuples(CUTS, STOPS, st.booleans())),
    st.tuples(st.just("trigger"), st.tuples(CUTS, STOPS, st.booleans())),
    st.tuples(st.just("driver"), st.tuples(st.integers(0, 8), st.booleans())),
    st.tuples(st.just("wake"), st.integers(1, 12)),
    st.tuples(st.just("locks"), st.just(None)),
)


def act(world: ConsumingWorld, what: str, how: Any) -> None:
    match what:
        case "send":
            world.queue.send(how)
        case "trigger":
            cuts, stop_at, twice = how
            try:
                world.trigger(cuts, stop_at, evaluates_twice=twice)
            except Killed:
                world.restart()
        case "driver":
            world.folder.fuse.left, world.folder.fuse.after = how
            with suppress(Killed):
                world.trigger()
            world.restart()
        case "wake":
            world.wake(how)
        case "locks":
            world.troubles += 1
            world.queue.end_locks()


@given(st.lists(ACTS, max_size=25))
@example([("send", 9), ("trigger", ([-4], "", False)), ("trigger", ([], "", False)), ("wake", 12)])
def test_whoever_is_killed_every_message_is_delivered_and_never_deleted_before(acts: list[tuple[str, Any]]) -> None:
    world = ConsumingWorld()
    for what, how in acts:
        act(world, what, how)
        assert world.missing() == set(), "each message is in the queue, in a file, or in a committed batch"
    world.finish()
    delivered = world.delivered()
    assert set(delivered) == set(range(1, world.queue.sent + 1))
    repeated = delivered.total() - len(delivered)
    event(f"{min(repeated, 20)} repeated")
    assert repeated <= CHUNK * world.troubles * (world.troubles + 1), "a chunk for each attempt that lost its locks"
    assert world.staged() == {}, "delivered files are deleted"


def test_without_trouble_each_message_is_delivered_once_and_little_is_left() -> None:
    world = ConsumingWorld()
    for _ in range(20):
        world.queue.send(2 * TASK_MAX)
        world.trigger(evaluates_twice=True)
    world.finish()
    assert world.delivered() == dict.fromkeys(range(1, world.queue.sent + 1), 1)
    assert len(world.folder.content) <= 1 + 2 * 2, "the mark, and manifests of two batches"


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("kind", PLACES)
def test_messages_are_staged_in_folders_and_in_object_stores(kind: str, tmp_path: Path) -> None:
    folder = open_folder(new_place(kind, tmp_path))
    world = ConsumingWorld(place=folder)
    world.queue.send(2 * TASK_MAX)
    with pytest.raises(Killed):
        world.trigger([4, -5], stop_at="sunk", evaluates_twice=True)
    assert any(isinstance(parse_name(file.name), StagedFile) for file in folder.files())
    world.finish()
    assert set(world.delivered()) == set(range(1, 2 * TASK_MAX + 1))
    assert [file.name for file in folder.files() if isinstance(parse_name(file.name), StagedFile)] == []


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_attempt_killed_at_any_step_loses_nothing_and_repeats_at_most_a_chunk(cut: int) -> None:
    world = ConsumingWorld()
    world.queue.send(TASK_MAX)
    world.trigger([cut])
    world.finish()
    delivered = world.delivered()
    assert set(delivered) == {1, 2, 3}
    assert delivered.total() <= TASK_MAX + CHUNK


@pytest.mark.parametrize("sleeps", range(1, 9))
@pytest.mark.parametrize("batches", range(4))
def test_an_attempt_that_wakes_up_after_its_batch_is_over_adds_to_a_later_one(sleeps: int, batches: int) -> None:
    world = ConsumingWorld()
    world.queue.send(TASK_MAX)
    world.trigger([-sleeps])
    for _ in range(batches):
        world.queue.send(1)
        world.trigger()
    world.wake(100)
    assert world.missing() == set()
    world.finish()
    assert set(world.delivered()) == set(range(1, world.queue.sent + 1))
    assert world.staged() == {}


@pytest.mark.parametrize("ahead", range(9))
def test_of_two_attempts_at_a_task_both_read_what_was_named_first(ahead: int) -> None:
    world = ConsumingWorld()
    world.queue.send(2 * TASK_MAX)
    first, second = world.race(ReceiveTask("a1", 1, 0, "orders", TASK_MAX), ahead)
    assert first == second
    assert world.missing() == set()


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("operation", range(8))
def test_a_driver_killed_at_any_operation_does_not_lose_what_a_late_attempt_had(operation: int, after: bool) -> None:
    """The driver tidies up after a batch, is killed, and the attempt names its files while there is no driver."""
    for sleeps in range(1, 9):
        world = ConsumingWorld()
        world.queue.send(TASK_MAX)
        world.trigger([-sleeps])
        world.folder.fuse.left, world.folder.fuse.after = operation, after
        with suppress(Killed):
            world.trigger()
        world.wake(100)
        world.restart()
        world.trigger()
        assert world.missing() == set()
        world.finish()
        assert set(world.delivered()) == {1, 2, 3}


def test_staging_that_was_deleted_is_noticed_by_a_new_run() -> None:
    world = ConsumingWorld()
    world.queue.send(1)
    world.trigger()
    world.folder.content.clear()
    world.restart()
    with pytest.raises(TwinbusError, match=r"the staging location was deleted.*failOnDataLoss=false goes on"):
        world.trigger()
    lenient = ConsumingWorld(failOnDataLoss="false")
    lenient.queue.send(1)
    lenient.trigger()
    lenient.folder.content.clear()
    lenient.restart()
    lenient.queue.send(1)
    assert lenient.trigger()
    assert lenient.delivered() == {1: 1, 2: 1}


def test_a_file_that_is_gone_is_named_when_its_batch_is_run_again() -> None:
    world = ConsumingWorld()
    world.queue.send(TASK_MAX)
    with pytest.raises(Killed):
        world.trigger(stop_at="evaluated")
    gone = next(name for name in world.folder.content if isinstance(parse_name(name), StagedFile))
    del world.folder.content[gone]
    world.restart()
    with pytest.raises(TwinbusError, match=f"1 files of messages are gone from .*{gone}"):
        world.trigger()


def test_messages_staged_by_a_stream_whose_checkpoint_is_gone_are_adopted_if_that_is_asked_for() -> None:
    old = ConsumingWorld()
    old.queue.send(TASK_MAX)
    with pytest.raises(Killed):
        old.trigger(stop_at="evaluated")
    anew = ConsumingWorld(old)
    with pytest.raises(TwinbusError, match=r"2 files of messages that another stream has received.*adoptStaged=true"):
        anew.trigger()
    adopting = ConsumingWorld(old, adoptStaged="true")
    adopting.finish()
    assert adopting.delivered() == {1: 1, 2: 1, 3: 1}
    assert adopting.staged() == {}


def test_locks_that_always_end_too_early_end_the_stream_with_the_reason() -> None:
    world = ConsumingWorld()
    world.queue.send(1)
    world.queue.locks_are_short = True
    for _ in range(3):
        assert world.trigger()
    with pytest.raises(TwinbusError, match="their locks ended before they were staged"):
        world.trigger()


def test_messages_under_lock_elsewhere_are_waited_for_and_an_empty_queue_is_looked_at_as_ever() -> None:
    world = ConsumingWorld()
    world.queue.send(1)
    world.queue.receive(1)
    assert [world.trigger() for _ in range(7)] == [True] * 7
    assert world.pauses == [1, 2, 4, 8, 10, 10]
    world.queue.waiting.clear()
    assert not world.trigger()
    world.queue.send(1)
    assert world.trigger()
    assert len(world.pauses) == 7, "once more, because the last batch was empty"


def test_a_stream_that_is_to_end_waits_for_the_longest_lock_and_no_longer() -> None:
    world = ConsumingWorld()
    world.queue.send(1)
    world.queue.receive(1)
    world.stop_at_what_is_there()
    triggers = 0
    while world.trigger():
        triggers += 1
    assert 330 <= triggers * 2 * CHECK_S <= 400


# --- decisions ---

NAMES = st.builds(StagedFile, st.sampled_from(["a1", "b2"]), st.integers(1, 10**10), st.integers(0, 10**5),
    st.sampled_from(["0f", "a1b2"]), st.integers(0, 10**5))  # fmt: skip
MANIFESTS = st.builds(ManifestName, st.sampled_from(["a1", "b2"]), st.integers(1, 10**10), st.integers(0, 10**5))


@given(st.one_of(NAMES, MANIFESTS))
def test_names_of_staged_files_say_what_they_are(name: StagedFile | ManifestName) -> None:
    assert parse_name(name.name) == name


@pytest.mark.parametrize("name", ["a1/stream.json", "README", "a1/1-2.json", "a1/000000001-0001.json.tmp"])
def test_files_of_others_are_left_alone(name: str) -> None:
    assert parse_name(name) is None
    assert sort_files([name], ReceiveOffset("a1", 5), []) == ((), (), ())


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**7)), st.integers(1, 20_000))
def test_every_entity_gets_tasks_within_the_limits(shares: dict[str, int], most: int) -> None:
    tasks = plan_tasks(shares, most)
    assert set(tasks) == {entity for entity, share in shares.items() if share}
    assert all(1 <= each.most <= most and each.tasks >= 1 for each in tasks.values())
    assert sum(each.tasks for each in tasks.values()) <= TASKS_MAX + len(shares)
    if sum(each.tasks for each in tasks.values()) < TASKS_MAX // 2:
        assert all(each.tasks * each.most >= shares[entity] for entity, each in tasks.items())


def test_an_offset_survives_its_way_through_json_and_says_the_same_tasks() -> None:
    orphans = [StagedFile("a1", 1, 0, "0f", chunk).name for chunk in range(ADOPTED_MAX + 30)]
    offset = next_offset(ReceiveOffset("a1", 4, 3), orphans, {"orders": EntityTasks(2, 10)}, received=7)
    assert offset is not None
    again = parse_offset(json.loads(json.dumps(offset.as_json())))
    assert again == offset
    assert (again.batch, again.closed, len(again.adopted), again.received) == (5, 4, ADOPTED_MAX, 7)
    assert len(tasks_of(again)) == ADOPTED_MAX // 10 + 2
    assert next_offset(offset, [], {}) is None


@pytest.mark.parametrize("said", [{}, {"orders": {"0": {"next": 1, "first": 1}}}, {"orders": 31}])
def test_a_checkpoint_of_a_stream_that_browsed_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(TwinbusError, match=r"the checkpoint is of a stream with mode=browse.*of its own"):
        parse_offset(said)


@pytest.mark.parametrize("said", [{"mode": "receive"}, {"mode": "receive", "stream": "a", "colour": 1, "tasks": {}}])
def test_an_offset_of_another_version_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(TwinbusError, match="which this twinbus does not understand"):
        parse_offset(said)


def test_only_data_of_other_streams_counts_as_theirs() -> None:
    theirs = StagedFile("b2", 1, 0, "0f", 0).name
    names = [theirs, "b2/stream.json", ManifestName("b2", 1, 0).name, StagedFile("a1", 1, 0, "0f", 0).name]
    assert files_of_others(names, "a1") == [theirs]
