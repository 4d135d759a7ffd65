"""Records what receivers behind the proxy are done with: then a report says *delivered* for clients in any language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.operations import (
    DEAD_LETTER_REASON,
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Release,
    SettlementOutcome,
)
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.sdk.messages import MessageFacts
from twinbus.errors import DecodeError
from twinbus.ledger.kinds import COMPLETED, RECEIVED_AND_DELETED, TOLD_BY_RECEIVER, Kind

_SEQUENCE_NUMBER = "x-opt-sequence-number"


class SettlementRecords:
    """Implements `SettlementObserver`."""

    def __init__(self, recorder: ClientRecorder) -> None:
        self._recorder = recorder

    def delivered(self, path: str, payload: bytes, *, is_final: bool) -> MessageFacts:
        facts = read_facts(payload)
        if is_final:
            self._recorder.settled(Kind.RECEIVED, path, (facts,), RECEIVED_AND_DELETED)
        return facts

    def settled(self, path: str, messages: Sequence[object], outcome: SettlementOutcome) -> None:
        facts = tuple([each for each in messages if isinstance(each, MessageFacts)])
        match outcome:
            case Complete():
                self._recorder.settled(Kind.RECEIVED, path, facts, COMPLETED)
            case DeadLetter(properties):
                reason = (properties or {}).get(DEAD_LETTER_REASON, "")
                self._recorder.settled(Kind.DEAD_LETTERED, path, facts, TOLD_BY_RECEIVER, str(reason))
            case Abandon() | Defer() | Release():
                pass  # it is still there
            case _:
                assert_never(outcome)


def read_facts(payload: bytes) -> MessageFacts:
    """The little that a record says of a message; nothing of one that cannot be read."""
    try:
        layout = sections.walk(payload)
        fields = (PropertyField.MESSAGE_ID, PropertyField.GROUP_ID)
        message_id, session_id = sections.read_properties(payload, layout, fields)
        number = sections.read_annotation(payload, layout, _SEQUENCE_NUMBER) if layout.message_annotations else None
    except DecodeError:
        return MessageFacts(None, None, 0, len(payload))
    return MessageFacts(message_id, session_id, int(number) if isinstance(number, int) else 0, len(payload))
