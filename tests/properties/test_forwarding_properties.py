"""Wherever entities forward to, messages end up where a plain description of it says, and keep their bytes."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import examples

from sim.forward_model import QUEUES, Map
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import CreateQueue, SendMessages, UpdateQueue
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.entities.settings import QueueSettings, QueueStatus
from twinbus.broker.message import hops_of, read_arrival, with_hops
from twinbus.broker.store.api import RangeRows, Report, RowsRead
from twinbus.broker.store.memory import MemoryStore

NOW_MS = 1_000_000
targets = st.fixed_dictionaries(
    {path: st.none() | st.sampled_from([o for o in QUEUES if o != path]) for path in QUEUES}
)


@settings(max_examples=examples(60), deadline=None)
@given(targets, st.sets(st.sampled_from(QUEUES)), st.sampled_from(QUEUES))
def test_a_message_ends_up_where_the_map_says(forward_to: dict[str, str | None], closed: set[str], start: str) -> None:
    closed -= {start}
    map_ = Map()
    reports: list[Report] = []
    store, tokens = MemoryStore(), count(1)
    gate = CommitGate(
        store,
        lambda stored: NamespaceMachine(stored, new_token=lambda: next(tokens).to_bytes(16, "big")),
        lambda notice: None,
        lambda reason: None,
    )

    def hear(report: Report) -> None:
        reports.append(report)
        gate.report(report, NOW_MS)

    store.start(hear)
    for path in QUEUES:
        gate.do(CreateQueue(path, QueueSettings()), NOW_MS)
    for path, target in forward_to.items():
        status = QueueStatus.SEND_DISABLED if path in closed else QueueStatus.ACTIVE
        map_.settings[path] = QueueSettings(forward_to=target, status=status)
        gate.do(UpdateQueue(path, map_.settings[path]), NOW_MS)
    payload = sections.encode_message(properties={PropertyField.MESSAGE_ID: "m"}, data=b"body")
    gate.do(SendMessages(start, (read_arrival(payload, lambda: "unused"),)), NOW_MS)
    found: Counter[str] = Counter()
    for entity in gate.machine.registry.all():
        store.request(RangeRows(entity.entity_id, 0, 100, 10_000))
        rows = next(each for each in reversed(reports) if isinstance(each, RowsRead)).rows
        found[entity.row.path] += len(rows)
    assert +found == map_.ends(start)


@given(st.binary(max_size=50), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_the_number_of_hops_is_written_over_and_all_else_keeps_its_bytes(
    body: bytes, first: int, second: int, has_annotations: bool
) -> None:
    annotations = {"x-opt-partition-key": "k"} if has_annotations else None
    payload = sections.encode_message(
        annotations=annotations, properties={PropertyField.MESSAGE_ID: "m"}, application_properties={"a": 1}, data=body
    )
    changed = with_hops(with_hops(payload, first), second)
    assert hops_of(changed) == second
    assert hops_of(payload) == 0
    before, after = sections.walk(payload), sections.walk(changed)
    for part in ("properties", "application_properties", "body"):
        old, new = getattr(before, part), getattr(after, part)
        assert payload[old[0] : old[1]] == changed[new[0] : new[1]]
