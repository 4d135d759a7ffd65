"""What clients on threads and on tasks know about the administration of a namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from azure.servicebus.management import QueueProperties, TopicProperties

from twinbus.client.namespace import Namespace
from twinbus.client.sdk.failures import describe
from twinbus.client.setup.plan import Plan
from twinbus.client.setup.preparation import Detection
from twinbus.pairing.sending.failure import Failure, FailureKind

LIST_S_MIN, ADMIN_S_MIN = 5.0, 10.0
"""Creating a queue takes the service seconds; a send does not."""
LINKS_AT_ONCE = 10

_SUB_CODE = re.compile(r"SubCode=(\d{5})")
_KIND_OF_SUB_CODE = {
    "40300": FailureKind.FULL,  # the namespace has as many queues as it may have
    "40301": FailureKind.DISABLED,
    "50300": FailureKind.BUSY,
}


def plan_for(
    primary: Namespace,
    secondary: Namespace,
    *,
    primary_name: str | None = None,
    queue_count: int = 10,
    creates: bool = True,
    listens: bool = False,
    sends: bool = True,
    entities: Iterable[str] = (),
    attempts: int = 3,
    can_wait: bool = False,
    has_board: bool = False,
    reads_board: bool = False,
) -> Plan:
    """What is to be prepared between these two; `primary_name` wins over what the namespace is called."""
    return Plan(
        primary_name=primary_name or primary.name,
        primary_address=primary.address,
        secondary_name=secondary.name,
        secondary_address=secondary.address,
        queue_count=queue_count,
        creates=creates,
        listens=listens,
        sends=sends,
        entities=tuple(entities),
        attempts=attempts,
        can_wait=can_wait,
        has_board=has_board,
        reads_board=reads_board,
    )


def admin_deadline(attempt_s: float) -> float:
    return max(attempt_s, ADMIN_S_MIN)


def list_deadline(attempt_s: float) -> float:
    return max(attempt_s, LIST_S_MIN)


def admin_failure(error: BaseException) -> Failure:
    """What an exception of the administration client means."""
    failure = describe(error, sending=False)
    code = _SUB_CODE.search(str(error))
    kind = _KIND_OF_SUB_CODE.get(code[1]) if code else None
    return failure if kind is None else replace(failure, kind=kind)


def detection_of(entity: QueueProperties | TopicProperties) -> Detection:
    window = entity.duplicate_detection_history_time_window
    if not entity.requires_duplicate_detection or not isinstance(window, timedelta):
        return Detection(None)
    return Detection(window.total_seconds())
