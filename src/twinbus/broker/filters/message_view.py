"""A message as rules see it: decoded once, and only as far as needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twinbus.amqp.codec.types import Timestamp, Value, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.filters.actions import PropertyChanges
from twinbus.broker.filters.properties import MISSING
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.filters.value_types import plain

RULE_NAME = "RuleName"
"""The application property that names the rule that changed a message."""
TTL_MS_MAX = 2**32 - 1
"""The longest time to live in a header."""

_FIELDS = {
    "MessageId": PropertyField.MESSAGE_ID,
    "To": PropertyField.TO,
    "Label": PropertyField.SUBJECT,
    "ReplyTo": PropertyField.REPLY_TO,
    "CorrelationId": PropertyField.CORRELATION_ID,
    "ContentType": PropertyField.CONTENT_TYPE,
    "SessionId": PropertyField.GROUP_ID,
    "ReplyToSessionId": PropertyField.REPLY_TO_GROUP_ID,
}
_INDEXES = tuple(map(int, _FIELDS.values()))
_ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
    "ScheduledEnqueueTimeUtc": "x-opt-scheduled-enqueue-time",
}


class TopicMessage:
    """A message while its topic distributes it. Implements `MessageView`."""

    def __init__(self, payload: bytes, sequence: int, enqueued_at_ms: int, ttl_ms: int | None) -> None:
        self.payload = payload
        self._layout = sections.walk(payload)
        self._sequence = sequence
        self._enqueued_at_ms = enqueued_at_ms
        self._ttl_ms = ttl_ms
        self._fields: dict[str, Value] | None = None
        self._annotations: dict[str, Value] = {}
        self._properties: dict[str, Value] | None = None

    @property
    def property_bytes(self) -> int:
        """The size of everything that rules can read."""
        layout = self._layout
        spans = (layout.properties, layout.application_properties, layout.message_annotations)
        return sum([span[1] - span[0] for span in spans if span is not None])

    def system(self, name: str, /) -> Value:
        if name in _FIELDS:
            return self.fields()[name]
        if name in _ANNOTATIONS:
            if name not in self._annotations:
                value = sections.read_annotation(self.payload, self._layout, _ANNOTATIONS[name])
                # All are texts or times: bytes are the text of a message that was received and sent on.
                self._annotations[name] = text_of(value) if isinstance(value, bytes) else value
            return self._annotations[name]
        known = self._known()
        if name in known:
            return known[name]
        raise FilterError(f"a message has no sys.{name} before it is delivered")

    def _known(self) -> dict[str, Any]:
        ttl_ms = self._ttl_ms
        return {
            "EnqueuedTimeUtc": Timestamp(self._enqueued_at_ms),
            "ExpiresAtUtc": None if ttl_ms is None else Timestamp(self._enqueued_at_ms + ttl_ms),
            "TimeToLive": None if ttl_ms is None else timedelta(milliseconds=ttl_ms),
            "SequenceNumber": self._sequence,
            "EnqueuedSequenceNumber": self._sequence,
            "DeliveryCount": 0,
            "Size": len(self.payload),
            "DeadLetterSource": None,
        }

    def user(self, name: str, /) -> Value:
        return self.properties().get(name, MISSING)

    def fields(self) -> dict[str, Value]:
        """The system properties that are texts, by name; ids of another type are converted."""
        if self._fields is None:
            found = sections.read_properties(self.payload, self._layout, _INDEXES)
            self._fields = {
                name: value if value is None or isinstance(value, str) else text_of(value)
                for name, value in zip(_FIELDS, found, strict=True)
            }
        return self._fields

    def properties(self) -> dict[str, Value]:
        """The application properties, by their names in lower case."""
        if self._properties is None:
            found = sections.read_application_properties(self.payload, self._layout)
            self._properties = {str(name).lower(): plain(value) for name, value in found.items()}
        return self._properties

    # --- as an action leaves it ---

    def changed(self, changes: PropertyChanges, rule_name: str) -> bytes:
        """The message with the changes of a rule, and the rule's name as a property."""
        annotations = {_ANNOTATIONS[name]: value for name, value in changes.system.items() if name in _ANNOTATIONS}
        user = {**changes.user, RULE_NAME: rule_name}
        return sections.rewrite(
            self.payload,
            self._layout,
            header=self._changed_header(changes),
            set_annotations={name: value for name, value in annotations.items() if value is not None},
            remove_annotations=[name for name, value in annotations.items() if value is None],
            set_properties={_FIELDS[name]: value for name, value in changes.system.items() if name in _FIELDS},
            set_application_properties=user,
            remove_application_properties=self._spellings_of(changes.removed | {name.lower() for name in user}),
        )

    def _changed_header(self, changes: PropertyChanges) -> Header | None:
        if "TimeToLive" not in changes.system:
            return None
        ttl = changes.system["TimeToLive"]
        ttl_ms = None if ttl is None else min(ttl // timedelta(milliseconds=1), TTL_MS_MAX)
        return sections.read_header(self.payload, self._layout)._replace(ttl_ms=ttl_ms)

    def _spellings_of(self, names: frozenset[str]) -> list[str]:
        """The application properties of these names as the message spells them."""
        there = sections.read_application_properties(self.payload, self._layout)
        return [name for name in map(str, there) if name.lower() in names]
