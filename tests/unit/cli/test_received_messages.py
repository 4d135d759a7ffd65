"""Received messages as JSON and as text, whatever their senders wrote into them."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Int, Timestamp, Value
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.cli import receiving
from twinbus.cli.receiving import body_bytes, document, text_of


def received(encoded: bytes) -> ServiceBusReceivedMessage:
    return ServiceBusReceivedMessage(decode_payload(memoryview(encoded)), receiver=None)


def message(data: bytes = b"x", **parts: Any) -> ServiceBusReceivedMessage:
    return received(encode_message(data=data, **parts))


def refuse(constant: str) -> None:
    raise AssertionError(f"JSON has no {constant}")


def through_json(one: ServiceBusReceivedMessage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(one)), parse_constant=refuse)
    return found


IDS = [("m1", "m1"), (uuid.UUID(int=5), str(uuid.UUID(int=5))), (b"m1", "m1"), (b"\xff\xfe", "fffe"), (12, "12")]


@pytest.mark.parametrize(("given", "shown"), IDS)
def test_ids_of_every_type_are_texts(given: Value, shown: str) -> None:
    one = message(properties={PropertyField.MESSAGE_ID: given, PropertyField.CORRELATION_ID: given})
    found = through_json(one)
    assert (found["message_id"], found["correlation_id"]) == (shown, shown)
    assert text_of(one).splitlines() == [f"#None  {shown}", f"  correlation id   {shown}", "  x"]


def test_fields_that_are_no_text_are_shown_by_their_numbers() -> None:
    fields = PropertyField.SUBJECT, PropertyField.TO, PropertyField.REPLY_TO, PropertyField.CONTENT_TYPE
    one = message(properties=dict.fromkeys(fields, b"\xff"), annotations={"x-opt-partition-key": b"\xfe"})
    found = through_json(one)
    assert {found[name] for name in ("subject", "to", "reply_to", "content_type")} == {"ff"}
    assert found["partition_key"] == "fe"
    assert "  partition key    fe" in text_of(one)


UNREADABLE: list[tuple[str, dict[str, Any]]] = [
    ("dead_letter_reason", {"application_properties": {"DeadLetterReason": b"\xff"}}),
    ("dead_letter_source", {"annotations": {"x-opt-deadletter-source": b"\xff"}}),
    ("scheduled_for", {"annotations": {"x-opt-scheduled-enqueue-time": Timestamp(2**62)}}),
]


@pytest.mark.parametrize(("name", "parts"), UNREADABLE)
def test_a_fact_that_the_sdk_cannot_read_does_not_hide_the_rest(name: str, parts: dict[str, Any]) -> None:
    one = message(b"precious", properties={PropertyField.MESSAGE_ID: "m1"}, **parts)
    found = through_json(one)
    assert (found["message_id"], found["body"], found[name]) == ("m1", "precious", None)
    assert list(found["unreadable"]) == [name]
    assert f"  unreadable       {name}: " in text_of(one)
    assert text_of(one).endswith("  precious")


def test_what_could_be_read_is_not_called_unreadable() -> None:
    assert "unreadable" not in document(message())


def test_a_state_without_a_name_is_reported_by_its_number() -> None:
    assert document(message(annotations={"x-opt-message-state": Int(9)}))["state"] == "9"
    assert document(message())["state"] == "active"


def test_properties_have_only_values_that_json_knows() -> None:
    given = {"a": math.nan, "b": -math.inf, "c": b"\xff", "d": uuid.UUID(int=1), "e": 1.5, "f": True}
    found = through_json(message(application_properties=given))
    assert found["properties"] == {"a": "nan", "b": "-inf", "c": "ff", "d": str(uuid.UUID(int=1)), "e": 1.5, "f": True}


def nested(value: Value, depth: int) -> ServiceBusReceivedMessage:
    """A message with a value in so many lists, each in the other."""
    encoded = encode(value)
    for _ in range(depth):
        encoded = b"\xd0" + (len(encoded) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + encoded
    return received(b"\x00\x53\x77" + encoded)


def test_a_body_that_is_a_value_has_only_values_that_json_knows() -> None:
    one = nested({"id": uuid.UUID(int=1), "raw": b"\xff"}, 60)
    found = through_json(one)["body"]
    assert json.loads(body_bytes(one)) == found
    for _ in range(60):
        (found,) = found
    assert found == {"id": str(uuid.UUID(int=1)), "raw": "ff"}


def test_what_is_nested_too_deep_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "DEEPEST", 2)
    assert through_json(nested(7, 4))["body"] == [["[[7]]"]]


def test_a_message_without_a_body_is_shown() -> None:
    bare = received(encode_message(properties={PropertyField.MESSAGE_ID: "m1"}))
    assert through_json(bare)["message_id"] == "m1"
    assert text_of(bare).startswith("#None  m1")
