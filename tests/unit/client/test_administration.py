"""What the administration of a namespace says, and what it means."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError
from azure.servicebus.management import QueueProperties
from azure.servicebus.management._generated.models import QueueDescription

from twinbus.client.sdk.abandonable_threads import within
from twinbus.client.setup.administration import admin_failure, detection_of
from twinbus.client.setup.preparation import Detection
from twinbus.pairing.sending.failure import FailureKind


class Answer:
    """As much of an HTTP response as the SDK's exception looks at."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        self.reason = "because"
        self.headers: dict[str, str] = {}

    def text(self) -> str:
        return ""


def refused(status: int, text: str) -> HttpResponseError:
    return HttpResponseError(message=text, response=Answer(status))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(401, "SubCode=40100. no claims"), FailureKind.UNAUTHORISED),
        (refused(403, "Forbidden"), FailureKind.UNAUTHORISED),
        (refused(403, "SubCode=40300. The maximum number of resources has been reached"), FailureKind.FULL),
        (refused(503, "SubCode=50301. no-manage"), FailureKind.INTERNAL),
        (refused(503, "SubCode=50300. wait 10 seconds"), FailureKind.BUSY),
        (refused(429, "too many"), FailureKind.BUSY),
        (refused(404, "SubCode=40400. no such queue"), FailureKind.NOT_FOUND),
        (refused(400, "SubCode=40000. bad"), FailureKind.REJECTED),
        (ServiceRequestError("connection refused"), FailureKind.UNREACHABLE),
        (TimeoutError("no answer within 5 s"), FailureKind.NO_ANSWER),
    ],
)
def test_a_refusal_is_understood(error: Exception, kind: FailureKind) -> None:
    failure = admin_failure(error)
    assert failure.kind is kind
    assert "\n" not in failure.text


@pytest.mark.parametrize(
    ("looks", "window", "detection"),
    [
        (True, timedelta(minutes=10), Detection(600.0)),
        (False, timedelta(minutes=10), Detection(None)),
        (None, None, Detection(None)),
    ],
)
def test_duplicate_detection_is_read(looks: bool | None, window: timedelta | None, detection: Detection) -> None:
    description = QueueDescription(requires_duplicate_detection=looks, duplicate_detection_history_time_window=window)
    queue = QueueProperties._from_internal_entity("q", description)
    assert detection_of(queue) == detection


def test_a_call_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        within(0.05, release.wait)
    assert time.monotonic() - began < 20
    release.set()


def test_a_call_that_ends_gives_what_it_has() -> None:
    assert within(5, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
