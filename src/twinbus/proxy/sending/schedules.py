"""Requests to schedule messages, and to cancel them: what is in them, and what they are answered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.types import Value
from twinbus.broker.links.request_fields import LONG_CODE, read_items, read_messages, read_sequences
from twinbus.broker.links.request_messages import Request, failure_response, management_response
from twinbus.broker.message import Arrival, read_arrival
from twinbus.client.flows.schedule_tokens import check_cancellable, tokens_for
from twinbus.errors import AmqpError, ArgumentError, NamespaceError, NotAllowed, ScheduledInBacklog
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt
from twinbus.transport.links.requests import Response

SCHEDULE, CANCEL = "schedule-message", "cancel-scheduled-message"
_NOT_PASSED_ON = ("operation", "associated-link-name")
"""Properties of a request that are about the application's own connection."""


class ScheduleRequest(NamedTuple):
    """Messages to be scheduled, each with an id, and the request with which the primary is asked for that."""

    arrivals: tuple[Arrival, ...]
    body: dict[str, Value]
    properties: dict[str, Value]


def read_schedule(request: Request, new_message_id: Callable[[], str]) -> ScheduleRequest:
    """Raises a `NamespaceError` or `AmqpError` if it is not understood."""
    body = _body_of(request)
    arrivals = tuple([read_arrival(message, new_message_id) for message in read_messages(body)])
    entries = [
        {**entry, "message": arrival.payload, "message-id": entry.get("message-id") or arrival.message_id}
        for entry, arrival in zip(read_items(body, "messages"), arrivals, strict=True)
    ]
    properties = {name: value for name, value in request.properties.items() if name not in _NOT_PASSED_ON}
    return ScheduleRequest(arrivals, {**body, "messages": entries}, properties)


def sequences_in(response: Response) -> tuple[int, ...]:
    """The numbers that the primary gave to scheduled messages."""
    numbers = response.body.get("sequence-numbers") if isinstance(response.body, dict) else None
    return tuple(map(int, numbers)) if isinstance(numbers, list | Array) else ()


def scheduled_response(request: Request, receipt: SendReceipt) -> bytes:
    """All messages are stored. For those in the backlog there are only tokens, which cannot be cancelled."""
    on_primary = receipt.side is NamespaceSide.PRIMARY
    numbers = list(receipt.sequence_numbers) if on_primary else tokens_for(receipt.accepted)
    body = {"sequence-numbers": Array([int(number) for number in numbers], LONG_CODE)} if numbers else {}
    return management_response(request, 200, "OK", body)


def refused_cancellation(request: Request) -> bytes | None:
    """The answer to a request to cancel messages if one of them lies in a backlog; None: the primary is to be asked."""
    if request.operation_name != CANCEL:
        return None
    try:
        check_cancellable(read_sequences(_body_of(request)))
    except ScheduledInBacklog as error:
        return failure_response(request, NotAllowed(str(error)))
    except (NamespaceError, AmqpError):
        return None  # what is wrong with it, the primary will say
    return None


def _body_of(request: Request) -> dict[Any, Any]:
    if not isinstance(request.body, dict):
        raise ArgumentError(f"'{request.operation}' needs a map as its body")
    return request.body
