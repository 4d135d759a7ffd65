"""What the official SDK raises, as a `Failure`.

The SDK wraps what happened in several layers and drops half of it on the way: a time-out that the server answered with
looks like one that nobody answered, a wrong key on a custom port looks like a lost connection, a detached link hides
its condition. So the whole chain of causes is looked at, the innermost AMQP error first.
"""

from __future__ import annotations

import html
import re
import signal
import struct
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestTimeoutError,
    ServiceResponseTimeoutError,
)
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from twinbus.client.credentials import NoToken
from twinbus.client.sdk.internals.required_parts import (
    AMQPConnectionError,
    AMQPLinkError,
    AuthenticationException,
    MessageException,
    TokenAuthFailure,
    TokenExpired,
)
from twinbus.errors import TwinbusError
from twinbus.pairing.sending.failure import Failure, FailureKind

KINDS: dict[str, FailureKind] = {
    "amqp:not-found": FailureKind.NOT_FOUND,
    "com.microsoft:entity-disabled": FailureKind.DISABLED,
    "amqp:resource-limit-exceeded": FailureKind.FULL,
    "amqp:resource-deleted": FailureKind.DELETED,
    "com.microsoft:timeout": FailureKind.TIMED_OUT,
    "com.microsoft:server-busy": FailureKind.BUSY,
    "amqp:unauthorized-access": FailureKind.UNAUTHORISED,
    "com.microsoft:auth-failed": FailureKind.UNAUTHORISED,
    "amqp:link:message-size-exceeded": FailureKind.TOO_LARGE,
    "com.microsoft:argument-error": FailureKind.REJECTED,
    "com.microsoft:argument-out-of-range": FailureKind.REJECTED,
    "com.microsoft:message-not-found": FailureKind.REJECTED,
    "amqp:not-allowed": FailureKind.NOT_ALLOWED,
    "amqp:not-implemented": FailureKind.REJECTED,
    "amqp:invalid-field": FailureKind.REJECTED,
    "amqp:decode-error": FailureKind.REJECTED,
    "amqp:connection:forced": FailureKind.UNREACHABLE,
    "amqp:socket-error": FailureKind.UNREACHABLE,
}
"""Every other condition is `INTERNAL`."""

_CLIENT_SIDE = {"amqp:unknown-error", "amqp:client-error", "amqp:vendor-error"}
"""What the SDK says when it has no condition of the server's to tell."""

_NO_MESSAGE = (TypeError, ValueError, OverflowError, struct.error)
"""What encoding something raises that cannot be encoded."""

_NUMBERS = b"sequence-numbers"
"""What the SDK misses in an answer that says "done" of messages which a server drops: whoever schedules pings."""

_WRITE_FAILED = "Can not send frame out"

_CONDITION_IN_TEXT = re.compile(r"\s*Error condition: [^\s]+\.?(?=\s|$)")
_SECRET = re.compile(r"(?i)(SharedAccessKey=|SharedAccessSignature[= ])[^\s;,\"']+")
_DETAIL = re.compile(r"<Detail>(?:\s*SubCode=\d{5}\.)?\s*(.*?)\s*</Detail>", re.DOTALL | re.IGNORECASE)
_DOCUMENT = re.compile(r"(?:\s*Content:)?\s*<(?:\?xml|!DOCTYPE|html|Error)\b.*", re.DOTALL | re.IGNORECASE)
"""What an administration answered with, in XML or as a page: nobody reads that in one line."""
KEY_REFUSED, NO_ENTITY = "the key or token is refused", "the namespace has no such entity"
_NOT_FOUND = 404
"""The status with which the service refuses a token for an entity that is not there."""
_TEXT_MAX = 300
_LAYERS_MAX = 8


class LinkFailed(TwinbusError):
    """An attempt on a link failed; `failure` says how, its `error` is what the SDK raised."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def describe(error: BaseException, *, sending: bool, has_left: bool | None = None) -> Failure:
    """What an exception of the SDK means.

    `sending`: the link was open and a send under way; then the messages are in doubt unless the server refused this
    very transfer. `has_left` tells whether the transfer was written, where that is known.
    """
    layers = list(_layers(error))
    condition = _condition(layers)
    kind = _kind(layers, condition, is_encoding=sending and not has_left)
    is_answered = _is_answered(layers, condition) or kind in (FailureKind.REJECTED, FailureKind.TOO_LARGE)
    is_answered &= kind is not FailureKind.TIMED_OUT  # it took too long to say no as well as to say yes
    return Failure(
        kind,
        one_line(error),
        condition=condition,
        in_doubt=sending and has_left is not False and not is_answered,
        is_connection=_is_connection(layers, kind),
        error=error,
    )


def asked_failure(error: BaseException) -> Failure:
    """What an exception of a request (schedule, cancel) means: without an answer nobody knows whether it was done."""
    return describe(error, sending=True)


def no_answer(entity: str, deadline_s: float, *, is_connected: bool) -> Failure:
    """The time was over before a link was open; `is_connected`: somebody answered, but not about this entity."""
    what = f"{entity} did not answer" if is_connected else "nobody answered"
    text = f"{what} within {deadline_s:g} s while a link was opened"
    error = OperationTimeoutError(message=text)
    return Failure(FailureKind.NO_ANSWER, text, is_connection=not is_connected, error=error)


def overdue(failure: Failure, entity: str) -> Failure:
    """What a failure really means that was brought about by taking the connection away from a call that hung."""
    text = f"{entity} did not answer in time"
    return replace(failure, kind=FailureKind.NO_ANSWER, text=text, condition=None, is_connection=False)


def failed_to_write(error: BaseException) -> bool:
    """Whether a frame could not be written, or not wholly; during a send that frame is the transfer."""
    return any(str(getattr(layer, "description", "")).startswith(_WRITE_FAILED) for layer in _layers(error))


def interruption(error: BaseException) -> BaseException | None:
    """What was meant for the caller and only happened to come during a call; None: the call failed.

    Whatever is no `Exception`, and what a signal handler of the application raised, as the time limits of task queues
    do: the SDK takes that for an error of its connection. Nothing else the application raises in the middle of a call
    counts, such as what is wrong with its credential.
    """
    if not isinstance(error, Exception):
        return error
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    for layer in _layers(error):
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(layer.__traceback__)):
            return layer
    return None


def _code_of(handler: object) -> CodeType | None:
    """What runs when a signal comes, if that is written in Python."""
    if not callable(handler):
        return None
    function: Any = handler.func if isinstance(handler, partial) else handler
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def one_line(error: BaseException) -> str:
    """What an exception says, in one line, without secrets and without the document that it came in."""
    text = _CONDITION_IN_TEXT.sub("", " ".join(_text_of(error).split()))
    text = _SECRET.sub(r"\1***", text).strip() or type(error).__name__
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"


def _text_of(error: BaseException) -> str:
    text = str(error)
    detail = _DETAIL.search(text)
    if detail is not None:
        return html.unescape(detail[1])
    for layer in _layers(error):
        if isinstance(layer, TokenAuthFailure):  # the SDK says no more of it than that there was an error
            return NO_ENTITY if layer.status_code == _NOT_FOUND else KEY_REFUSED
    return _DOCUMENT.sub("", text)


def _layers(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was made from, the outermost first."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen and len(seen) < _LAYERS_MAX:
        seen.add(id(current))
        yield current
        inner = getattr(current, "inner_exception", None) or getattr(current, "inner_error", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__


def _condition(layers: list[BaseException]) -> str | None:
    """The AMQP condition that the server gave, or that the SDK made up for lack of one."""
    found: str | None = None
    for layer in layers:
        value = getattr(layer, "condition", None) or getattr(layer, "_condition", None)
        text = _as_text(getattr(value, "value", value))
        if text and (found is None or found in _CLIENT_SIDE):
            found = text
    return found


def _as_text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _is_answered(layers: list[BaseException], condition: str | None) -> bool:
    """Whether the server said no to this very transfer or request: nothing of it is stored."""
    if condition is None or condition in _CLIENT_SIDE:
        return False
    return any(
        isinstance(layer, MessageException) or getattr(layer, "_status_code", None) is not None for layer in layers
    )


def _kind(layers: list[BaseException], condition: str | None, *, is_encoding: bool) -> FailureKind:
    for layer in reversed(layers):
        found = _kind_of_layer(layer, condition)
        if found is not None:
            return found
    if condition is not None and condition not in _CLIENT_SIDE:
        return KINDS.get(condition, FailureKind.INTERNAL)
    if isinstance(layers[-1], KeyError) and layers[-1].args == (_NUMBERS,):
        return FailureKind.REJECTED
    is_ours = isinstance(layers[0], _NO_MESSAGE) and not isinstance(layers[0], ServiceBusError)
    if is_ours or (is_encoding and isinstance(layers[-1], _NO_MESSAGE)):
        return _kind_of_argument(layers[0])
    return FailureKind.INTERNAL


def _kind_of_layer(layer: BaseException, condition: str | None) -> FailureKind | None:
    match layer:
        case AuthenticationException():
            return _kind_of_authentication(layer)
        case ClientAuthenticationError() | ServiceBusAuthenticationError() | ServiceBusAuthorizationError():
            return FailureKind.UNAUTHORISED
        case MessageSizeExceededError():
            return FailureKind.TOO_LARGE
        case ResourceNotFoundError():
            return FailureKind.NOT_FOUND
        case HttpResponseError(status_code=int(status)):
            return _kind_of_status(status)
        case NoToken() | ServiceRequestTimeoutError() | ServiceResponseTimeoutError():
            return FailureKind.NO_ANSWER
        case TimeoutError() | OperationTimeoutError() if condition in (None, *_CLIENT_SIDE):
            return FailureKind.NO_ANSWER
        case AMQPConnectionError():
            return KINDS.get(condition or "", FailureKind.UNREACHABLE)
        case ServiceBusConnectionError() if condition is None:
            return FailureKind.UNREACHABLE
        case ServiceBusCommunicationError() | OSError():
            return FailureKind.UNREACHABLE
        case AzureError() if not isinstance(layer, ServiceBusError):
            return FailureKind.UNREACHABLE
        case _:
            return None


def _kind_of_authentication(error: AuthenticationException) -> FailureKind:
    if isinstance(error, TokenExpired):  # while the process slept; whoever opens a link gets a new one
        return FailureKind.INTERNAL
    if not isinstance(error, TokenAuthFailure):  # a WebSocket that could not be made
        return FailureKind.UNREACHABLE
    status = error.status_code
    if status == _NOT_FOUND:
        return FailureKind.NOT_FOUND
    return FailureKind.INTERNAL if isinstance(status, int) and status >= 500 else FailureKind.UNAUTHORISED


def _kind_of_status(status: int) -> FailureKind:
    """What an answer of the administration means."""
    known = {401: FailureKind.UNAUTHORISED, 403: FailureKind.UNAUTHORISED, 404: FailureKind.NOT_FOUND}
    if status in known:
        return known[status]
    if status == 429:
        return FailureKind.BUSY
    return FailureKind.INTERNAL if status >= 500 else FailureKind.REJECTED


def _kind_of_argument(error: BaseException) -> FailureKind:
    """A `ValueError` is the message's fault, unless the SDK says with it that somebody closed the sender meanwhile."""
    return FailureKind.UNREACHABLE if "already been shutdown" in str(error) else FailureKind.REJECTED


def _is_connection(layers: list[BaseException], kind: FailureKind) -> bool:
    if any(isinstance(layer, AMQPLinkError | MessageException) for layer in layers):
        return False
    about = (AMQPConnectionError, AuthenticationException, OSError, NoToken, ServiceBusConnectionError)
    is_timeout = kind is FailureKind.NO_ANSWER and not any(isinstance(layer, NoToken) for layer in layers)
    return not is_timeout and any(isinstance(layer, about) for layer in layers)
