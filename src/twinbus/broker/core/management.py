"""`<entity>/$management`: what is done by request rather than on a link.

A request becomes a command, and the command's reply becomes a response. What is wrong with a request is reported
by status and condition; the clients turn those into their exceptions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, assert_never

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.types import Int, Timestamp, UInt
from twinbus.broker.core.commands import (
    CancelScheduled,
    Command,
    CreateRule,
    DeleteRule,
    Enlist,
    GetSessionState,
    ListRules,
    ListSessions,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    RequestCommand,
    SendMessages,
    SetSessionState,
    SettleMessages,
)
from twinbus.broker.core.delivery_format import encode_delivery, lock_token_uuid, without_body
from twinbus.broker.core.replies import (
    EntitiesFound,
    FoundRow,
    LocksRenewed,
    MessagesFound,
    QueueDescription,
    Reply,
    RulesFound,
    SessionsFound,
    SessionStateFound,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.broker.core.rule_requests import read_rule, read_text, rule_name, write_rule
from twinbus.broker.entities.topics.rules import Rule
from twinbus.broker.links.request_fields import (
    LIST_LENGTH_MAX,
    LONG_CODE,
    LONG_MAX,
    LONG_MIN,
    read_disposition,
    read_lock_tokens,
    read_messages,
    read_sequences,
)
from twinbus.broker.links.request_messages import Request, failure_response, management_response
from twinbus.broker.message import Arrival
from twinbus.broker.operations import (
    Done,
    ReceiveMode,
    Refused,
    SenderOpened,
    SessionAccepted,
    Settled,
)
from twinbus.errors import AmqpError, ArgumentError, InternalError, NotAllowed

_TIMESTAMP_CODE, _STRING_CODE = 0x83, 0xB1
_ANY_TIME_MS = 253_402_300_800_000
"""The end of the calendar: as the time since when sessions were updated it stands for all of them."""


def command_for(
    request: Request, path: str, holder: int | None, read_message: Callable[[bytes], Arrival]
) -> RequestCommand:
    """The command a request stands for; raises `ArgumentError`, `DecodeError` or what `read_message` raises.

    A request about a session is made as its receiver on the same connection, the `holder`: a connection that has lost
    the session must not touch another's.
    """
    body = request.body
    if not isinstance(body, dict):
        raise ArgumentError(f"'{request.operation}' needs a map as its body")
    match request.operation_name:
        case "schedule-message":
            return SendMessages(path, tuple(read_message(message) for message in read_messages(body)))
        case "cancel-scheduled-message":
            return CancelScheduled(path, read_sequences(body))
        case "peek-message":
            most = _whole_number(body, "message-count")
            if most < 1:
                raise ArgumentError(f"message-count must be 1 or more, got {most}")
            return PeekMessages(path, _whole_number(body, "from-sequence-number"), most, _session_or_none(body))
        case "receive-by-sequence-number":
            mode, session_id = _receive_mode(body), _session_or_none(body)
            return ReceiveDeferred(path, read_sequences(body), mode, session_id, None if session_id is None else holder)
        case "update-disposition":
            return SettleMessages(path, read_lock_tokens(body), read_disposition(body), _session_or_none(body))
        case "renew-lock":
            return RenewMessageLocks(path, read_lock_tokens(body))
        case "renew-session-lock":
            return RenewSessionLock(path, _session(body), holder)
        case "get-session-state":
            return GetSessionState(path, _session(body), holder)
        case "set-session-state":
            state = body.get("session-state")
            if state is not None and not isinstance(state, bytes):
                raise ArgumentError(f"session-state must be binary or null, got {type(state).__name__}")
            return SetSessionState(path, _session(body), state, holder)
        case "get-message-sessions":
            since, (skip, top) = body.get("last-updated-time"), _page(body)
            if not isinstance(since, Timestamp):
                raise ArgumentError(f"last-updated-time must be a timestamp, got {type(since).__name__}")
            return ListSessions(path, None if since >= _ANY_TIME_MS else int(since), skip, top)
        case "add-rule":
            return CreateRule(path, read_rule(body))
        case "remove-rule":
            return DeleteRule(path, rule_name(body))
        case "enumerate-rules":
            skip, top = _page(body)
            return ListRules(path, skip, min(top, LIST_LENGTH_MAX))
        case _:
            raise ArgumentError(f"'{request.operation}' is not an operation of '{path}'")


def in_transaction(command: RequestCommand, transaction: int) -> Command[Reply]:
    """The command as a part of a transaction; raises `NotAllowed` for what cannot be.

    What only looks at messages, or locks them, is done at once and is not undone.
    """
    match command:
        case SendMessages() | SettleMessages() | SetSessionState() | CancelScheduled():
            return Enlist(transaction, command)
        case ReceiveDeferred(mode=ReceiveMode.RECEIVE_AND_DELETE):
            raise NotAllowed("nothing is received in a transaction: lock the message, and complete it in one")
        case CreateRule() | DeleteRule() | ListRules():
            raise NotAllowed("rules are not managed in a transaction")
        case (
            RenewMessageLocks()
            | PeekMessages()
            | ReceiveDeferred()
            | RenewSessionLock()
            | GetSessionState()
            | ListSessions()
        ):
            return command
        case _:
            assert_never(command)


def response_for(request: Request, reply: Reply) -> bytes:
    """The response that reports a reply."""
    try:
        return _response_for(request, reply)
    except AmqpError as error:  # a stored message that cannot be read: the request is answered all the same
        return failure_response(request, InternalError(f"a message in the answer is damaged: {error}"))


def _response_for(request: Request, reply: Reply) -> bytes:
    body: dict[str, Any] = {}
    match reply:
        case Refused(error=error):
            return failure_response(request, error)
        case Settled(failures=failures) if failures:
            return failure_response(request, next(iter(failures.values())))
        case MessagesFound(found=()) | RulesFound(rules=()) | SessionsFound(names=()):
            return management_response(request, 204, "No Content", {})
        case LocksRenewed(until_ms=(end,)) if request.operation_name == "renew-session-lock":
            body = {"expiration": Timestamp(end)}
        case LocksRenewed(until_ms=ends):
            body = {"expirations": Array([Timestamp(end) for end in ends], _TIMESTAMP_CODE)}
        case MessagesFound(found=found):
            omits_bodies = isinstance(request.body, dict) and request.body.get("omit-message-body") is True
            body = {"messages": [_message(each, omits_body=omits_bodies) for each in found]}
        case SessionStateFound(state=state):
            body = {"session-state": state}
        case SessionsFound(names=names, skip=skip):
            body = {"skip": Int(skip), "sessions-ids": Array(names, _STRING_CODE)}
        case RulesFound(rules=rules):
            body = {"rules": [{"rule-description": write_rule(rule)} for rule in rules]}
        case Done(sequences=sequences) if sequences:
            body = {"sequence-numbers": Array(sequences, LONG_CODE)}
        case Done() | Settled():
            pass
        case QueueDescription() | TopicDescription() | SubscriptionDescription() | EntitiesFound() | Rule():
            raise AssertionError(f"no request is answered with {reply}")
        case SenderOpened() | SessionAccepted():
            raise AssertionError(f"only links are answered with {reply}")
        case _:
            assert_never(reply)
    return management_response(request, 200, "OK", body)


def _message(each: FoundRow, *, omits_body: bool) -> dict[str, Any]:
    message = encode_delivery(each.row, each.token, each.locked_until_ms)
    found: dict[str, Any] = {"message": without_body(message) if omits_body else message}
    if each.token is not None:
        found["lock-token"] = uuid.UUID(bytes=lock_token_uuid(each.token))
    return found


# --- fields ---


def _session(body: dict[Any, Any]) -> str:
    session_id = _session_or_none(body)
    if session_id is None:
        raise ArgumentError("session-id must be a string")
    return session_id


def _session_or_none(body: dict[Any, Any]) -> str | None:
    return read_text(body, "session-id")


def _whole_number(body: dict[Any, Any], field: str) -> int:
    value = body.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not LONG_MIN <= value <= LONG_MAX:
        raise ArgumentError(f"{field} must be a whole number of at most 64 bits, got {value!r:.60}")
    return int(value)


def _page(body: dict[Any, Any]) -> tuple[int, int]:
    skip, top = _whole_number(body, "skip"), _whole_number(body, "top")
    if skip < 0 or top < 1:
        raise ArgumentError(f"skip must be 0 or more and top 1 or more, got {skip} and {top}")
    return skip, top


def _receive_mode(body: dict[Any, Any]) -> ReceiveMode:
    mode = body.get("receiver-settle-mode", UInt(1))
    if mode not in (0, 1):
        raise ArgumentError(f"receiver-settle-mode must be 0 (delete) or 1 (lock), got {mode!r}")
    return ReceiveMode.PEEK_LOCK if mode else ReceiveMode.RECEIVE_AND_DELETE
