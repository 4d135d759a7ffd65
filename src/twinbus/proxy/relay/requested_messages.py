"""Messages that applications receive by request (deferred ones), or settle by request because the link has ended.

An observer sees these as it sees those of links.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from twinbus.broker.links.request_fields import read_disposition, read_lock_tokens
from twinbus.broker.links.request_messages import Request
from twinbus.broker.operations import SettlementOutcome
from twinbus.errors import AmqpError, NamespaceError
from twinbus.transport.links.requests import read_response

RECEIVE, SETTLE = "receive-by-sequence-number", "update-disposition"
NOTES_MAX = 10_000
"""Of messages that are not settled yet; the oldest are forgotten first."""


class SettlementObserver(Protocol):
    """Is shown what receivers get and what they do with it."""

    def delivered(self, path: str, payload: bytes, *, is_final: bool) -> object:
        """A message is passed on; whatever is returned is given to `settled`. `is_final`: it is removed already."""

    def settled(self, path: str, messages: Sequence[object], outcome: SettlementOutcome) -> None:
        """The primary has confirmed it."""


class RequestedMessages:
    def __init__(self, observer: SettlementObserver) -> None:
        self._observer = observer
        self._notes: dict[bytes, object] = {}
        """By lock token, what the observer returned for messages that can be settled by request only."""

    def keep(self, notes: dict[bytes, object]) -> None:
        """Messages, by their tokens, whose link has ended before they were settled."""
        self._notes |= notes
        while len(self._notes) > NOTES_MAX:
            del self._notes[next(iter(self._notes))]

    def responded(self, path: str, request: Request, payload: bytes) -> None:
        """The primary has answered a request."""
        operation = request.operation_name
        if operation not in (RECEIVE, SETTLE) or not isinstance(request.body, dict):
            return
        with suppress(AmqpError, NamespaceError):  # what cannot be read here is passed on all the same
            response = read_response(payload)
            if not response.is_ok:
                return
            if operation == SETTLE:
                self._settled(path, request.body)
            elif isinstance(response.body, dict):
                self._received(path, response.body)

    def _received(self, path: str, body: dict[Any, Any]) -> None:
        found, notes = body.get("messages"), dict[bytes, object]()
        for entry in found if isinstance(found, list) else ():
            message = entry.get("message") if isinstance(entry, dict) else None
            if not isinstance(message, bytes):
                continue
            token = entry.get("lock-token")
            key = token.bytes_le if isinstance(token, uuid.UUID) and token.int else None
            note = self._observer.delivered(path, message, is_final=key is None)
            if key is not None:
                notes[key] = note
        self.keep(notes)

    def _settled(self, path: str, body: dict[Any, Any]) -> None:
        outcome, tokens = read_disposition(body), read_lock_tokens(body)
        self._observer.settled(path, [self._notes.pop(token) for token in tokens if token in self._notes], outcome)
