"""`<entity>/$management`: what is done by request rather than on a link.

A request becomes a command, and the command's reply becomes a response. What is wrong with a request is told
by status and condition; the clients turn those into their exceptions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from twinbus.amqp.types import Array, Int, Symbol, Timestamp, UInt
from twinbus.errors import AmqpError, ArgumentError, NamespaceError, TwinbusError
from twinbus.namespace.commands import (
    Abandon,
    CancelScheduled,
    Complete,
    CreateRule,
    DeadLetter,
    Defer,
    DeleteRule,
    GetSessionState,
    ListRules,
    ListSessions,
    Peek,
    ReceiveDeferred,
    ReceiveMode,
    RenewLocks,
    RenewSessionLock,
    RequestCommand,
    Send,
    SetSessionState,
    Settle,
    Verdict,
)
from twinbus.namespace.message import Arrival, lock_token_from_uuid, lock_token_uuid, outgoing, without_body
from twinbus.namespace.nodes.requests import Request, write_response
from twinbus.namespace.nodes.rule_requests import read_rule, rule_name, written_rule
from twinbus.namespace.replies import (
    Done,
    LentRow,
    LocksRenewed,
    MessagesFound,
    Refused,
    Reply,
    RulesFound,
    SessionsFound,
    SessionStateFound,
    Settled,
)

MANAGEMENT_SUFFIX = "/$management"
_PREFIX = "com.microsoft:"
_LONG_CODE, _TIMESTAMP_CODE, _STRING_CODE = 0x81, 0x83, 0xB1
_ANY_TIME_MS = 253_402_300_800_000
"""The end of the calendar: who names that as the time since when sessions were updated wants all of them."""
LIST_LENGTH_MAX = 1_000
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def is_management(path: str) -> bool:
    return path.lower().endswith(MANAGEMENT_SUFFIX)


def managed_entity(path: str) -> str:
    return path[: -len(MANAGEMENT_SUFFIX)]


ReadArrival = Callable[[bytes], Arrival]


def command_for(request: Request, path: str, read_arrival: ReadArrival, origin: Any) -> RequestCommand:
    """The command a request stands for; raises `ArgumentError`, `DecodeError` or what `read_arrival` raises."""
    name = request.operation.removeprefix(_PREFIX)
    if not isinstance(request.body, dict):
        raise ArgumentError(f"'{request.operation}' needs a map as its body")
    if name == "schedule-message":
        return Send(path, tuple(read_arrival(message) for message in _messages(request.body)), origin)
    if name not in _COMMANDS:
        raise ArgumentError(f"'{request.operation}' is no operation that '{path}' offers")
    return _COMMANDS[name](request.body, path, origin)


def response_for(request: Request, reply: Reply) -> bytes:
    """The response that tells a reply."""
    match reply:
        case Refused(error=error):
            return failure_response(request, error)
        case Settled(failures=failures) if failures:
            return failure_response(request, next(iter(failures.values())))
        case LocksRenewed(until_ms=(end,)) if request.operation.endswith("renew-session-lock"):
            return _success(request, {"expiration": Timestamp(end)})
        case LocksRenewed(until_ms=ends):
            return _success(request, {"expirations": Array([Timestamp(end) for end in ends], _TIMESTAMP_CODE)})
        case MessagesFound(found=()) | RulesFound(rules=()) | SessionsFound(names=()):
            return _response(request, 204, "No Content", None, {})
        case MessagesFound(found=found):
            without = isinstance(request.body, dict) and request.body.get("omit-message-body") is True
            return _success(request, {"messages": [_lent(each, is_bare=without) for each in found]})
        case SessionStateFound(state=state):
            return _success(request, {"session-state": state})
        case SessionsFound(names=names, skip=skip):
            return _success(request, {"skip": Int(skip), "sessions-ids": Array(names, _STRING_CODE)})
        case RulesFound(rules=rules):
            return _success(request, {"rules": [{"rule-description": written_rule(rule)} for rule in rules]})
        case Done(sequences=sequences) if sequences:
            return _success(request, {"sequence-numbers": Array(sequences, _LONG_CODE)})
        case _:
            return _success(request, {})


def failure_response(request: Request, error: TwinbusError) -> bytes:
    condition = error.condition if isinstance(error, NamespaceError | AmqpError) else "amqp:internal-error"
    return _response(request, _STATUS.get(condition, 500), str(error), condition, {})


_STATUS = {
    "amqp:not-found": 404,
    "com.microsoft:message-not-found": 404,
    "com.microsoft:message-lock-lost": 410,
    "com.microsoft:session-lock-lost": 410,
    "com.microsoft:entity-already-exists": 409,
    "com.microsoft:session-cannot-be-locked": 409,
    "com.microsoft:server-busy": 503,
    "com.microsoft:timeout": 408,
    "amqp:unauthorized-access": 401,
    "com.microsoft:auth-failed": 401,
    "amqp:resource-limit-exceeded": 403,
    "com.microsoft:entity-disabled": 403,
    "amqp:not-allowed": 400,
    "amqp:decode-error": 400,
    "amqp:link:message-size-exceeded": 400,
    "com.microsoft:argument-error": 400,
}
"""By condition; whatever is not listed is the service's fault."""


def _success(request: Request, body: dict[str, Any]) -> bytes:
    return _response(request, 200, "OK", None, body)


def _response(request: Request, code: int, text: str, condition: str | None, body: dict[str, Any]) -> bytes:
    status: dict[str, Any] = {"statusCode": Int(code), "statusDescription": text}
    if condition is not None:
        status["errorCondition"] = Symbol(condition)
    return write_response(request, status, body)


def _lent(lent: LentRow, *, is_bare: bool) -> dict[str, Any]:
    message = outgoing(lent.row, lent.token, lent.locked_until_ms)
    found: dict[str, Any] = {"message": without_body(message) if is_bare else message}
    if lent.token is not None:
        found["lock-token"] = uuid.UUID(bytes=lock_token_uuid(lent.token))
    return found


# --- requests as commands ---------------------------------------------------------------------------


def _renew_lock(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return RenewLocks(path, _tokens(body), origin)


def _peek_message(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    most = _whole_number(body, "message-count")
    if most < 1:
        raise ArgumentError(f"message-count must be 1 or more, got {most}")
    return Peek(path, _whole_number(body, "from-sequence-number"), most, origin, _session_or_none(body))


def _cancel_scheduled_message(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return CancelScheduled(path, _sequences(body), origin)


def _receive_by_sequence_number(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    mode = body.get("receiver-settle-mode", UInt(1))
    if mode not in (0, 1):
        raise ArgumentError(f"receiver-settle-mode must be 0 (delete) or 1 (lock), got {mode!r}")
    chosen = ReceiveMode.PEEK_LOCK if mode else ReceiveMode.RECEIVE_AND_DELETE
    return ReceiveDeferred(path, _sequences(body), chosen, origin, _session_or_none(body))


def _update_disposition(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    changes = body.get("properties-to-modify") or {}
    if not isinstance(changes, dict):
        raise ArgumentError("properties-to-modify must be a map")
    properties = {str(key): value for key, value in changes.items() if value is not None}
    verdict: Verdict
    match body.get("disposition-status"):
        case "completed":
            verdict = Complete()
        case "abandoned":
            verdict = Abandon(properties)
        case "defered":  # spelled so on the wire
            verdict = Defer(properties)
        case "suspended":
            verdict = DeadLetter(properties | _dead_letter_notes(body))
        case other:
            raise ArgumentError(f"disposition-status must be completed, abandoned, defered or suspended, got {other!r}")
    return Settle(path, _tokens(body), verdict, origin, _session_or_none(body))


def _dead_letter_notes(body: dict[Any, Any]) -> dict[str, Any]:
    notes = {
        "DeadLetterReason": body.get("deadletter-reason"),
        "DeadLetterErrorDescription": body.get("deadletter-description"),
    }
    return {name: text for name, text in notes.items() if text is not None}


def _renew_session_lock(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return RenewSessionLock(path, _session(body), origin)


def _get_session_state(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return GetSessionState(path, _session(body), origin)


def _set_session_state(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    state = body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise ArgumentError(f"session-state must be binary or null, got {type(state).__name__}")
    return SetSessionState(path, _session(body), state, origin)


def _get_message_sessions(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    since, skip, top = body.get("last-updated-time"), _whole_number(body, "skip"), _whole_number(body, "top")
    if not isinstance(since, Timestamp):
        raise ArgumentError(f"last-updated-time must be a timestamp, got {type(since).__name__}")
    if skip < 0 or top < 1:
        raise ArgumentError(f"skip must be 0 or more and top 1 or more, got {skip} and {top}")
    return ListSessions(path, None if since >= _ANY_TIME_MS else int(since), skip, top, origin)


def _add_rule(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return CreateRule(path, read_rule(body), origin)


def _remove_rule(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    return DeleteRule(path, rule_name(body), origin)


def _enumerate_rules(body: dict[Any, Any], path: str, origin: Any) -> RequestCommand:
    skip, top = _whole_number(body, "skip"), _whole_number(body, "top")
    if skip < 0 or top < 1:
        raise ArgumentError(f"skip must be 0 or more and top 1 or more, got {skip} and {top}")
    return ListRules(path, skip, min(top, LIST_LENGTH_MAX), origin)


_COMMANDS: dict[str, Callable[[dict[Any, Any], str, Any], RequestCommand]] = {
    "renew-lock": _renew_lock,
    "peek-message": _peek_message,
    "cancel-scheduled-message": _cancel_scheduled_message,
    "receive-by-sequence-number": _receive_by_sequence_number,
    "update-disposition": _update_disposition,
    "renew-session-lock": _renew_session_lock,
    "get-session-state": _get_session_state,
    "set-session-state": _set_session_state,
    "get-message-sessions": _get_message_sessions,
    "add-rule": _add_rule,
    "remove-rule": _remove_rule,
    "enumerate-rules": _enumerate_rules,
}


# --- fields -----------------------------------------------------------------------------------------


def _items(body: dict[Any, Any], field: str) -> list[Any]:
    values = body.get(field)
    if not isinstance(values, list | Array) or not 1 <= len(values) <= LIST_LENGTH_MAX:
        raise ArgumentError(f"{field} must be a list of 1 to {LIST_LENGTH_MAX} items")
    return list(values)


def _tokens(body: dict[Any, Any]) -> tuple[bytes, ...]:
    tokens = _items(body, "lock-tokens")
    if not all(isinstance(token, uuid.UUID) for token in tokens):
        raise ArgumentError("lock-tokens must be uuids")
    return tuple(lock_token_from_uuid(token.bytes) for token in tokens)


def _sequences(body: dict[Any, Any]) -> tuple[int, ...]:
    numbers = _items(body, "sequence-numbers")
    if not all(isinstance(number, int) and _LONG_MIN <= number <= _LONG_MAX for number in numbers):
        raise ArgumentError("sequence-numbers must be whole numbers of at most 64 bits")
    return tuple(dict.fromkeys(int(number) for number in numbers))


def _session(body: dict[Any, Any]) -> str:
    session_id = _session_or_none(body)
    if session_id is None:
        raise ArgumentError("session-id must be a string")
    return session_id


def _session_or_none(body: dict[Any, Any]) -> str | None:
    session_id = body.get("session-id")
    if session_id is not None and not isinstance(session_id, str):
        raise ArgumentError(f"session-id must be a string, got {type(session_id).__name__}")
    return None if session_id is None else str(session_id)


def _whole_number(body: dict[Any, Any], field: str) -> int:
    value = body.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not _LONG_MIN <= value <= _LONG_MAX:
        raise ArgumentError(f"{field} must be a whole number of at most 64 bits, got {value!r:.60}")
    return int(value)


def _messages(body: dict[Any, Any]) -> list[bytes]:
    entries = _items(body, "messages")
    messages = [entry.get("message") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(message, bytes) for message in messages):
        raise ArgumentError("each of the messages must be a map with an encoded message under 'message'")
    return [message for message in messages if message is not None]
