"""Receiving in commands: a receiver of the official SDK whose calls always end, and messages as text and JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from twinbus.amqp.codec.types import text_of as text_of_name
from twinbus.cli.output import or_dash
from twinbus.errors import TwinbusError
from twinbus.plain_text import harmless
from twinbus.units import utc_time

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

    from twinbus.client.namespace import Namespace

Result = TypeVar("Result")

LEAST_WAIT_S = 0.05
"""The SDK takes no zero."""
GOODBYE_S = 0.3
"""The SDK would wait longer for an answer to its goodbye; nothing depends on it."""
GRACE_S = 1.0
"""How long after its time a call may end by itself."""


@dataclass(frozen=True, slots=True)
class ReceiveSource:
    """What is to be received from, and how."""

    entity: str
    subscription: str | None = None
    dead_letters: str | None = None
    """None, or which of the two dead-letter queues: `deadletter`, `transferdeadletter`."""
    session: str | None = None
    next_session: bool = False
    deletes: bool = False
    """Whether messages are gone as soon as they are sent to us, instead of when we have dealt with them."""

    def __str__(self) -> str:
        path = self.entity if self.subscription is None else f"{self.entity}/{self.subscription}"
        return path if self.dead_letters is None else f"the dead letters of {path}"


@contextlib.contextmanager
def receiving_from(namespace: Namespace, where: ReceiveSource, attempt_s: float) -> Iterator[MessageReceiver]:
    """Raises `TwinbusError` if nothing can be received there."""
    client = namespace.sync_client(attempt_s)
    receiver = MessageReceiver(_receiver(client, where, attempt_s), f"{where} on {namespace.host_label}", attempt_s)
    try:
        yield receiver
    finally:
        receiver.close()


def _receiver(client: Any, where: ReceiveSource, attempt_s: float) -> Any:
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode, ServiceBusSubQueue

    from twinbus.client.sync.receivers import without_pings

    options: dict[str, Any] = {"keep_alive": 0}
    if where.deletes:
        options["receive_mode"] = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    if where.dead_letters is not None:
        options["sub_queue"] = ServiceBusSubQueue(where.dead_letters)
    if where.session is not None or where.next_session:
        options["session_id"] = where.session if where.session is not None else NEXT_AVAILABLE_SESSION
        options["max_wait_time"] = attempt_s
    if where.subscription is None:
        receiver = client.get_queue_receiver(where.entity, **options)
    else:
        receiver = client.get_subscription_receiver(where.entity, where.subscription, **options)
    return without_pings(receiver)


class MessageReceiver:
    """One receiver; every call raises `TwinbusError` when it fails or takes too long."""

    def __init__(self, receiver: Any, name: str, attempt_s: float) -> None:
        from twinbus.client.sdk.internals.connections import LinkConnection
        from twinbus.client.sdk.readable import read_all_of

        self.receiver = receiver
        self._name = name
        self._attempt_s = attempt_s
        read_all_of(receiver)
        self._wire = LinkConnection(receiver)

    def open(self) -> None:
        """Have the link that messages come by; a session is accepted with it."""
        from twinbus.client.sdk.internals.handlers import open_receiver

        self._do(self._attempt_s, lambda: open_receiver(self.receiver))

    def take(self, count: int, wait_s: float) -> list[ServiceBusReceivedMessage]:
        """Up to `count` messages, as soon as there is one; none if nothing came in time."""
        return self._do(
            self._attempt_s + wait_s,
            lambda: self.receiver.receive_messages(count, max_wait_time=max(LEAST_WAIT_S, wait_s)),
        )

    def peek(self, count: int, first: int) -> list[ServiceBusReceivedMessage]:
        """Up to `count` messages from this sequence number on, without locking them."""
        return self._do(
            self._attempt_s,
            lambda: self.receiver.peek_messages(count, sequence_number=first, timeout=self._attempt_s),
        )

    def complete(self, message: ServiceBusReceivedMessage) -> None:
        self._do(self._attempt_s, lambda: self.receiver.complete_message(message))

    def give_back(self, message: ServiceBusReceivedMessage) -> None:
        self._do(self._attempt_s, lambda: self.receiver.abandon_message(message))

    def close(self) -> None:
        from twinbus.client.sdk.abandonable_threads import within

        with contextlib.suppress(Exception):
            within(GOODBYE_S, self.receiver.close)
        self._wire.close()

    def _do(self, deadline_s: float, act: Callable[[], Result]) -> Result:
        from twinbus.client.sdk.abandonable_threads import within
        from twinbus.client.sdk.failures import describe

        try:
            return within(deadline_s + GRACE_S, act)
        except Exception as error:
            self._wire.cut()  # a call that hangs ends by it, and nothing is taken that nobody would see
            text = str(describe(error, sending=False)).replace("Error Description: ", "")
            raise TwinbusError(f"{self._name}: {text}") from None


BODY_SHOWN = 10_000
DEEPEST = 100
"""A value that is nested deeper (not every SDK has a bound) is written as Python would."""
FIELDS = ("subject", "content_type", "correlation_id", "reply_to", "to", "partition_key")

Reading: TypeAlias = "Callable[[ServiceBusReceivedMessage], Any]"


def body_bytes(message: ServiceBusReceivedMessage) -> bytes:
    """The body; a value or a sequence as JSON."""
    if message.body_type.value == "data":
        return b"".join(message.body)
    return json.dumps(_plain(_decoded(message))).encode()


def document(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Everything that is known of a message, for JSON; a body that is no text is `body_base64`.

    It is made of any message, for one that is deleted already has nothing else left: a fact that cannot be read is None
    or missing, and `unreadable` tells why.
    """
    from twinbus.client.sdk.readable import missing_in

    facts: dict[str, Any] = {}
    unreadable = missing_in(message)
    for name, read in _READINGS.items():
        try:
            facts[name] = _plain(read(message))
        except Exception as error:  # a sender may have written anything, and the SDK looks at it only now
            facts[name], unreadable[name] = None, f"{type(error).__name__}: {error}"
    return facts | _body(message) | ({"unreadable": unreadable} if unreadable else {})


def _named(attribute: str) -> Reading:
    def read(message: ServiceBusReceivedMessage) -> str | None:
        value = getattr(message, attribute)
        return None if value is None else text_of_name(value)

    return read


def _state(message: ServiceBusReceivedMessage) -> str:
    """By its name, or by its number if the SDK has no name for it."""
    return str(getattr(message.state, "name", message.state)).lower()


_READINGS: dict[str, Reading] = {
    "sequence_number": attrgetter("sequence_number"),
    **{name: _named(name) for name in ("message_id", "session_id", *FIELDS)},
    "enqueued_at": attrgetter("enqueued_time_utc"),
    "expires_at": attrgetter("expires_at_utc"),
    "scheduled_for": attrgetter("scheduled_enqueue_time_utc"),
    "delivery_count": attrgetter("delivery_count"),
    "state": _state,
    "dead_letter_reason": _named("dead_letter_reason"),
    "dead_letter_description": _named("dead_letter_error_description"),
    "dead_letter_source": _named("dead_letter_source"),
    "properties": lambda message: message.application_properties or {},
    "body_type": attrgetter("body_type.value"),
}


def _body(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    if message.body_type.value != "data":
        return {"body": _plain(_decoded(message))}
    data = body_bytes(message)
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(data).decode()}


def _decoded(message: ServiceBusReceivedMessage) -> Any:
    return message.body if message.body_type.value == "value" else list(message.body)


def _plain(value: Any, depth: int = 0) -> Any:
    """With nothing in it that JSON does not know."""
    match value:
        case Mapping() if depth < DEEPEST:
            return {text_of_name(key): _plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple() if depth < DEEPEST:
            return [_plain(each, depth + 1) for each in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return utc_time(value)
        case _:
            return text_of_name(value)


# --- for people ---


def text_of(message: ServiceBusReceivedMessage) -> str:
    """A head line, what else there is to know, and the body."""
    facts = document(message)
    lines = [f"#{facts['sequence_number']}  {or_dash(facts['message_id'])}  {facts['enqueued_at'] or ''}".rstrip()]
    lines += [
        f"  {name.replace('_', ' '):<16} {or_dash(facts[name])}" for name in ("session_id", *FIELDS) if facts[name]
    ]
    if facts["delivery_count"]:
        lines.append(f"  {'delivered before':<16} {facts['delivery_count']}")
    if facts["dead_letter_reason"] or facts["dead_letter_description"]:
        why = ": ".join(filter(None, (facts["dead_letter_reason"], facts["dead_letter_description"])))
        lines.append(f"  {'dead letter':<16} {or_dash(why)}")
    lines += [
        f"  {'property':<16} {or_dash(name)} = {or_dash(each)}" for name, each in (facts["properties"] or {}).items()
    ]
    lines += [
        f"  {'unreadable':<16} {or_dash(name)}: {or_dash(why)}" for name, why in facts.get("unreadable", {}).items()
    ]
    return "\n".join([*lines, *_body_lines(message)])


def _body_lines(message: ServiceBusReceivedMessage) -> list[str]:
    """The body, without anything that could harm a terminal."""
    data = body_bytes(message)
    letters = data[:BODY_SHOWN].decode("utf-8", "replace")
    text = harmless(letters, kept="\n\t")
    more = [f"  ... and {len(data) - BODY_SHOWN:,} bytes more: --body has all"] if len(data) > BODY_SHOWN else []
    return [*(f"  {line}" for line in text.splitlines()), *more]
