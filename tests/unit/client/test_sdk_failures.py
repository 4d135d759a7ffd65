"""What exceptions mean that no embedded namespace gives; the others are in tests/interop/test_failures.py."""

from __future__ import annotations

import struct

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseTimeoutError,
)
from azure.servicebus._pyamqp.error import (
    AMQPConnectionError,
    AMQPLinkError,
    AuthenticationException,
    ErrorCondition,
    MessageSendFailed,
    TokenAuthFailure,
    TokenExpired,
)
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from twinbus.client.credentials import NoToken
from twinbus.client.sdk.failures import describe, failed_to_write, no_answer, one_line, overdue
from twinbus.pairing.sending.failure import FailureKind


def http(status: int) -> HttpResponseError:
    error = HttpResponseError("answered")
    error.status_code = status
    return error


def wrapped(inner: BaseException) -> ServiceBusError:
    """As the SDK wraps what it does not expect."""
    return ServiceBusError(f"Handler failed: {inner}.", error=inner)


def bad_token(status: int) -> BaseException:
    error: BaseException = TokenAuthFailure(status, "no")  # type: ignore[no-untyped-call]
    return error


@pytest.mark.parametrize(
    ("error", "kind", "is_connection"),
    [
        (wrapped(TimeoutError("Authentication attempt timed-out.")), FailureKind.NO_ANSWER, False),
        (wrapped(NoToken("no token")), FailureKind.NO_ANSWER, True),
        (wrapped(ClientAuthenticationError("no such client")), FailureKind.UNAUTHORISED, False),
        (ServiceBusAuthenticationError(error=bad_token(401)), FailureKind.UNAUTHORISED, True),
        # On a custom port the SDK calls a wrong key a lost connection.
        (ServiceBusConnectionError(error=bad_token(401)), FailureKind.UNAUTHORISED, True),
        # The service refuses the token for an entity that is not there; the SDK calls that a wrong login, too.
        (ServiceBusAuthenticationError(error=bad_token(404)), FailureKind.NOT_FOUND, True),
        (ServiceBusConnectionError(error=bad_token(500)), FailureKind.INTERNAL, True),
        (
            ServiceBusAuthenticationError(error=TokenExpired(ErrorCondition.InternalError)),
            FailureKind.INTERNAL,
            True,
        ),
        (
            ServiceBusConnectionError(error=AuthenticationException(ErrorCondition.ClientError, description="no way")),
            FailureKind.UNREACHABLE,
            True,
        ),
        (
            ServiceBusCommunicationError(error=AMQPConnectionError(b"amqp:not-found"), condition=b"amqp:not-found"),
            FailureKind.NOT_FOUND,
            True,
        ),
        (
            ServiceBusConnectionError(error=AMQPConnectionError(ErrorCondition.ConnectionCloseForced)),
            FailureKind.UNREACHABLE,
            True,
        ),
        (wrapped(ValueError("Mismatching AMQP header protocol.")), FailureKind.INTERNAL, False),
        (http(401), FailureKind.UNAUTHORISED, False),
        (http(403), FailureKind.UNAUTHORISED, False),
        (http(400), FailureKind.REJECTED, False),
        (http(409), FailureKind.REJECTED, False),
        (http(429), FailureKind.BUSY, False),
        (http(503), FailureKind.INTERNAL, False),
        (ServiceRequestError("refused"), FailureKind.UNREACHABLE, False),
        (ServiceResponseTimeoutError("late"), FailureKind.NO_ANSWER, False),
        (ConnectionRefusedError("refused"), FailureKind.UNREACHABLE, True),
        (RuntimeError("anything"), FailureKind.INTERNAL, False),
    ],
    ids=repr,
)
def test_what_an_exception_means_while_a_link_is_opened(
    error: BaseException, kind: FailureKind, is_connection: bool
) -> None:
    failure = describe(error, sending=False)
    assert (failure.kind, failure.is_connection, failure.in_doubt) == (kind, is_connection, False)
    assert failure.error is error


def test_a_missing_resource_of_the_administration_is_not_found() -> None:
    error = ResourceNotFoundError("Queue 'orders' does not exist")
    assert describe(error, sending=False).kind is FailureKind.NOT_FOUND


def test_a_transfer_is_in_doubt_unless_it_was_refused() -> None:
    refused = ServiceBusError(
        "no", error=MessageSendFailed(ErrorCondition.InternalError), condition=b"amqp:internal-error"
    )
    lost = ServiceBusConnectionError(error=MessageSendFailed(ErrorCondition.UnknownError))
    assert not describe(refused, sending=True).in_doubt
    assert describe(lost, sending=True).in_doubt
    assert describe(lost, sending=True).kind is FailureKind.INTERNAL
    assert not describe(lost, sending=False).in_doubt
    assert not describe(lost, sending=True, has_left=False).in_doubt


def test_a_link_that_was_detached_before_the_send_leaves_no_doubt() -> None:
    error = ServiceBusConnectionError(
        error=AMQPLinkError(b"amqp:link:detach-forced"), condition=b"amqp:link:detach-forced"
    )
    failure = describe(error, sending=True, has_left=False)
    assert (failure.kind, failure.in_doubt, failure.is_connection) == (FailureKind.INTERNAL, False, False)


def test_an_answer_of_the_management_node_leaves_no_doubt() -> None:
    error = ServiceBusError("no", condition=b"com.microsoft:argument-error", status_code=400)
    failure = describe(error, sending=True)
    assert (failure.kind, failure.in_doubt) == (FailureKind.REJECTED, False)


@pytest.mark.parametrize("error", [TypeError("no message"), ValueError("not in UTC"), OverflowError("too much")])
def test_what_is_wrong_with_a_message_is_its_senders_fault(error: Exception) -> None:
    for raised in (error, wrapped(error), wrapped(struct.error("i format requires ..."))):
        failure = describe(raised, sending=True, has_left=False)
        assert (failure.kind, failure.in_doubt) == (FailureKind.REJECTED, False)


def test_nonsense_that_is_received_after_a_transfer_is_the_servers_fault() -> None:
    failure = describe(wrapped(ValueError("Received invalid frame type: 7")), sending=True, has_left=True)
    assert (failure.kind, failure.in_doubt) == (FailureKind.INTERNAL, True)


def test_a_sender_that_somebody_closed_meanwhile_is_not_the_messages_fault() -> None:
    error = ValueError("The handler has already been shutdown. Please use ServiceBusClient to create a new instance.")
    failure = describe(error, sending=True, has_left=False)
    assert (failure.kind, failure.in_doubt) == (FailureKind.UNREACHABLE, False)


def test_a_timeout_that_the_server_reported_is_distinguished_from_a_local_one() -> None:
    timeout = OperationTimeoutError(message="late")
    timeout.__cause__ = OperationTimeoutError(
        message="late", condition=b"com.microsoft:timeout", error=MessageSendFailed(b"com.microsoft:timeout")
    )
    failure = describe(timeout, sending=True)
    assert (failure.kind, failure.condition, failure.in_doubt) == (FailureKind.TIMED_OUT, "com.microsoft:timeout", True)
    assert not describe(timeout, sending=True, has_left=False).in_doubt
    failure = describe(OperationTimeoutError(message="late"), sending=True)
    assert (failure.kind, failure.condition, failure.in_doubt) == (FailureKind.NO_ANSWER, None, True)


def test_a_batch_that_is_too_large_for_the_sdk_is_too_large() -> None:
    assert describe(MessageSizeExceededError(message="too large"), sending=True).kind is FailureKind.TOO_LARGE


def test_the_text_is_one_line_without_secrets_and_bounded() -> None:
    said = "no\n way: Endpoint=sb://x;SharedAccessKey=c2Vj; SharedAccessSignature sr=a&sig=b Error condition: amqp:x."
    assert one_line(RuntimeError(said)) == "no way: Endpoint=sb://x;SharedAccessKey=***; SharedAccessSignature ***"
    assert len(one_line(RuntimeError("x" * 10_000))) <= 300
    assert one_line(TimeoutError()) == "TimeoutError"


def test_causes_that_go_round_in_a_circle_are_followed_once() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert describe(one, sending=False).kind is FailureKind.INTERNAL


def test_a_frame_that_was_not_written_is_recognised() -> None:
    inner = AMQPConnectionError(ErrorCondition.SocketError, description="Can not send frame out due to exception: x")
    assert failed_to_write(ServiceBusConnectionError(error=inner))
    assert not failed_to_write(ServiceBusConnectionError())


def test_silence_is_reported_with_the_side_that_was_silent() -> None:
    assert no_answer("orders", 5, is_connected=True).text == "orders did not answer within 5 s while a link was opened"
    assert no_answer("orders", 5, is_connected=False).is_connection
    cut = overdue(describe(ServiceBusConnectionError(), sending=True), "orders")
    assert (cut.kind, cut.is_connection, cut.in_doubt) == (FailureKind.NO_ANSWER, False, True)


def test_an_answer_without_numbers_is_an_answer() -> None:
    """As the SDK tells it when pings are scheduled, which a server drops."""
    failure = describe(wrapped(KeyError(b"sequence-numbers")), sending=True)
    assert (failure.kind, failure.in_doubt) == (FailureKind.REJECTED, False)
    assert describe(wrapped(KeyError("other")), sending=True).kind is FailureKind.INTERNAL


XML = '<?xml version="1.0"?><Error><Code>401</Code><Detail>SubCode=40100. no &lt;Manage&gt;</Detail></Error>'


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (f"Operation returned an invalid status 'Unauthorized' Content: {XML}", "no <Manage>"),
        ("Bad Gateway Content: <html><body>no backend</body></html>", "Bad Gateway"),
        ("Busy <?xml version='1.0'?><Other/>", "Busy"),
        ("orders < invoices", "orders < invoices"),
    ],
)
def test_what_an_administration_says_is_shown_without_its_document(said: str, line: str) -> None:
    assert one_line(HttpResponseError(said)) == line


def test_a_refused_key_is_said_to_be_refused() -> None:
    assert (
        describe(ServiceBusAuthenticationError(error=bad_token(401)), sending=False).text
        == "the key or token is refused"
    )
