"""Requests to `$cbs` and to `<entity>/$management`, and what their answers say."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from twinbus.amqp import sections
from twinbus.amqp.outcomes import Error
from twinbus.amqp.sections import PropertyField
from twinbus.amqp.types import Array, Int, Long, Timestamp, Value
from twinbus.errors import DecodeError

PREFIX = "com.microsoft:"
_UUID_CODE = 0x98
_OK_CODES = range(200, 300)


class Answer(NamedTuple):
    """What a node says to a request."""

    code: int
    text: str
    condition: str | None
    body: Any

    @property
    def is_good(self) -> bool:
        return self.code in _OK_CODES

    @property
    def error(self) -> Error:
        """The refusal, for somebody who has found the answer to be one."""
        return Error(self.condition or _CONDITIONS.get(self.code, "amqp:internal-error"), self.text)


_CONDITIONS = {401: "amqp:unauthorized-access", 404: "amqp:not-found", 410: "com.microsoft:message-lock-lost"}
"""For answers that give a status only."""


def write_request(message_id: str, reply_to: str, properties: Mapping[str, Value], body: Value) -> bytes:
    return sections.encode_message(
        properties={PropertyField.MESSAGE_ID: message_id, PropertyField.REPLY_TO: reply_to},
        application_properties=properties,
        value=body,
    )


def read_answer(payload: bytes) -> tuple[Value, Answer]:
    """What an answer says, and to which request; raises `DecodeError` if it is none."""
    layout = sections.walk(payload)
    asked = sections.read_property(payload, layout, PropertyField.CORRELATION_ID)
    said = sections.read_application_properties(payload, layout)
    code = said.get("statusCode", said.get("status-code"))
    if not isinstance(code, int):
        raise DecodeError("an answer needs a status code")
    condition = said.get("errorCondition", said.get("error-condition"))
    body = sections.read_value(payload, layout) if layout.body_kind == "value" else None
    text = str(said.get("statusDescription", said.get("status-description", "")))
    return asked, Answer(int(code), text, None if condition is None else str(condition), body)


def put_token_request(audience: str, token_type: str, expires_at_s: float) -> dict[str, Value]:
    """The application properties of a put-token; the token itself is the body."""
    return {
        "operation": "put-token",
        "type": token_type,
        "name": audience,
        "expiration": Timestamp(int(expires_at_s * 1000)),
    }


def renew_locks_body(tokens: Iterable[bytes]) -> dict[str, Value]:
    """A delivery tag has the bytes of its token in .NET's order, a request in that of AMQP."""
    return {"lock-tokens": Array([uuid.UUID(bytes_le=token) for token in tokens], _UUID_CODE)}


def peek_body(from_sequence: int, most: int) -> dict[str, Value]:
    return {"from-sequence-number": Long(from_sequence), "message-count": Int(most)}


def peeked(answer: Answer) -> list[bytes]:
    """The messages in the answer to a peek; none if there are none."""
    found = answer.body.get("messages", []) if isinstance(answer.body, dict) else []
    letters = [entry.get("message") for entry in found if isinstance(entry, dict)]
    return [letter for letter in letters if isinstance(letter, bytes)]
