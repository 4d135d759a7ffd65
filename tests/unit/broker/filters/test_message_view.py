"""What rules see of a message, by the types it may have on the wire."""

from __future__ import annotations

import pytest

from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.amqp.message import sections
from twinbus.broker.filters.compiler import compile_filter
from twinbus.broker.filters.message_view import TopicMessage


def seen(**annotations: Value) -> TopicMessage:
    named = {f"x-opt-{name.replace('_', '-')}": value for name, value in annotations.items()}
    return TopicMessage(sections.encode_message(annotations=named, data=b"x"), 1, 1_000, None)


@pytest.mark.parametrize("key", ["paris", b"paris"])
def test_a_key_that_came_as_bytes_is_matched_as_the_text_it_was(key: Value) -> None:
    message = seen(partition_key=key, via_partition_key=key)
    assert message.system("PartitionKey") == message.system("ViaPartitionKey") == "paris"
    for name in ("PartitionKey", "ViaPartitionKey"):
        assert compile_filter(f"sys.{name} LIKE 'par%' AND sys.{name} = 'paris'").matches(message)


def test_bytes_that_are_no_text_are_seen_as_their_numbers() -> None:
    assert seen(via_partition_key=b"\xff\x00").system("ViaPartitionKey") == "ff00"


def test_a_key_that_is_not_there_stays_absent_and_a_time_stays_a_time() -> None:
    message = seen(scheduled_enqueue_time=Timestamp(5))
    assert message.system("PartitionKey") is None
    assert message.system("ScheduledEnqueueTimeUtc") == Timestamp(5)
