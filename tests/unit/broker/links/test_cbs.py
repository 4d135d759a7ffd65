"""`$cbs` and the rights of requests: what is answered, and what the connection may do then."""

from __future__ import annotations

from typing import Any

import pytest
from token_makers import js_token, python_token, secret_signer, web_token

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Int, Symbol
from twinbus.amqp.message import sections
from twinbus.amqp.message.message_builder import APPLICATION_PROPERTIES, compound_section
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.claims import CLAIMS_MAX, ClaimBook
from twinbus.broker.auth.jwt import SERVICE_AUDIENCE, JwtIssuer
from twinbus.broker.links.cbs import put_token
from twinbus.broker.links.request_messages import Request, read_request
from twinbus.broker.links.request_nodes import right_for_operation
from twinbus.broker.operations import Right
from twinbus.errors import DecodeError

NOW_MS = 1_700_000_000_000
UNTIL_S = 1_700_003_600
AUDIENCE = "sb://127.0.0.1:5672/orders"
SECRET = "0123456789abcdef0123456789abcdef"
AUTHORITY = Authority(
    RuleBook((AccessRule("reader", frozenset({Right.LISTEN}), "key"),)), [JwtIssuer("me", "HS256", SECRET)]
)


def request(body: Any, name: Any = AUDIENCE, operation: str = "put-token", kind: str = "jwt") -> Request:
    return Request(7, None, operation, {"operation": operation, "name": name, "type": kind}, body)


def put(claims: ClaimBook, asked: Request) -> dict[Any, Any]:
    """The status in the answer."""
    response = put_token(asked, AUTHORITY, claims, NOW_MS)
    layout = sections.walk(response)
    assert sections.read_property(response, layout, PropertyField.CORRELATION_ID) == 7
    return sections.read_application_properties(response, layout)


SAS = python_token(AUDIENCE, "reader", "key", UNTIL_S)
JWT = web_token(
    {"alg": "HS256"},
    {"iss": "me", "aud": SERVICE_AUDIENCE, "exp": UNTIL_S, "roles": ["Azure Service Bus Data Receiver"]},
    secret_signer(SECRET),
)


@pytest.mark.parametrize("kind", ["jwt", "servicebus.windows.net:sastoken", "", "anything"])
@pytest.mark.parametrize("token", [SAS, JWT, SAS.encode()], ids=["sas", "jwt", "bytes"])
def test_a_token_is_known_by_its_text_whatever_it_is_called(token: str | bytes, kind: str) -> None:
    claims = ClaimBook()
    status = put(claims, request(token, kind=kind))
    assert status == {"status-code": 202, "status-description": "Accepted"}
    assert type(status["status-code"]) is Int
    claims.check("orders", Right.LISTEN, NOW_MS)
    assert not claims.has("orders", Right.SEND, NOW_MS)
    assert not claims.has("other", Right.LISTEN, NOW_MS)
    assert claims.review_ms == UNTIL_S * 1000


@pytest.mark.parametrize(
    "asked",
    [
        request(python_token(AUDIENCE, "reader", "wrong", UNTIL_S)),
        request(python_token(AUDIENCE, "nobody", "key", UNTIL_S)),
        request(python_token(AUDIENCE, "reader", "key", 1)),
        request(python_token("sb://127.0.0.1:5672/other", "reader", "key", UNTIL_S)),
        request(SAS, operation="delete-token"),
        request(SAS, name=None),
        request(SAS, name=5),
        request(None),
        request(5),
        request({"token": SAS}),
        request(b"\xff\xfe"),
        request("a.b.c"),
    ],
)
def test_a_bad_token_is_answered_with_401_a_condition_and_a_reason(asked: Request) -> None:
    claims = ClaimBook()
    status = put(claims, asked)
    assert status["status-code"] == 401
    assert status["error-condition"] == Symbol("amqp:unauthorized-access")
    assert status["status-description"]
    assert not claims.has("orders", None, NOW_MS)


def test_a_bad_token_takes_nothing_away() -> None:
    claims = ClaimBook()
    put(claims, request(SAS))
    put(claims, request("nonsense"))
    assert claims.has("orders", Right.LISTEN, NOW_MS)


def test_more_tokens_than_a_connection_may_hold_are_refused_not_dropped() -> None:
    claims = ClaimBook()
    token = js_token("sb://h:1", "reader", "key", UNTIL_S)
    for number in range(CLAIMS_MAX):
        assert put(claims, request(token, name=f"sb://h:1/q{number}"))["status-code"] == 202
    status = put(claims, request(token, name="sb://h:1/one-more"))
    assert (status["status-code"], status["error-condition"]) == (403, "amqp:resource-limit-exceeded")


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("com.microsoft:schedule-message", Right.SEND),
        ("com.microsoft:cancel-scheduled-message", Right.SEND),
        ("com.microsoft:peek-message", Right.LISTEN),
        ("com.microsoft:renew-lock", Right.LISTEN),
        ("com.microsoft:update-disposition", Right.LISTEN),
        ("com.microsoft:receive-by-sequence-number", Right.LISTEN),
        ("com.microsoft:renew-session-lock", Right.LISTEN),
        ("com.microsoft:add-rule", Right.MANAGE),
        ("com.microsoft:remove-rule", Right.MANAGE),
        ("com.microsoft:enumerate-rules", Right.MANAGE),
        ("nonsense", Right.LISTEN),
    ],
)
def test_each_request_needs_a_right(operation: str, right: Right) -> None:
    assert right_for(operation) is right
    assert right_for(operation.removeprefix("com.microsoft:")) is right


@pytest.mark.parametrize("operation", ["com.microsoft:Schedule-Message", "COM.MICROSOFT:schedule-message", "Add-Rule"])
def test_the_right_for_a_request_does_not_depend_on_how_its_name_is_written(operation: str) -> None:
    """A proxy passes requests on, and the namespace behind it may not care about capital letters."""
    assert right_for(operation) is right_for(operation.lower())
    assert right_for(operation) is not Right.LISTEN


def right_for(operation: str) -> Right:
    return right_for_operation(Request(None, None, operation, {}, None).operation_name)


def test_a_request_that_names_two_operations_is_none() -> None:
    """The one that is checked might not be the one that is carried out."""
    twice = b"".join([encode("operation") + encode(name) for name in ("com.microsoft:add-rule", "peek-message")])
    section = compound_section(APPLICATION_PROPERTIES, 0xC1, 4, twice)
    with pytest.raises(DecodeError, match="twice"):
        read_request(section + sections.encode_message(value={}), 100)
