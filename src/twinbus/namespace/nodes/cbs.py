"""`$cbs`: where a client puts the tokens that say what it may use."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.amqp.types import Int, Symbol
from twinbus.errors import Unauthorized
from twinbus.namespace.nodes.requests import Request, write_response
from twinbus.namespace.rights import AccessKey, Claim, check_token

CBS_ADDRESS = "$cbs"


class TokenAnswer(NamedTuple):
    claim: Claim | None
    """What the connection may do from now on; None if the token was refused."""
    response: bytes


def put_token(request: Request, keys: tuple[AccessKey, ...], now_ms: int) -> TokenAnswer:
    """Check a token. What kind it is its text tells: the official Python client calls every token a JWT."""
    try:
        claim = _claim_of(request, keys, now_ms)
    except Unauthorized as error:
        return TokenAnswer(None, write_response(request, _status(401, str(error), error.condition), None))
    return TokenAnswer(claim, write_response(request, _status(202, "Accepted", None), None))


def _claim_of(request: Request, keys: tuple[AccessKey, ...], now_ms: int) -> Claim:
    audience = request.properties.get("name")
    if request.operation != "put-token" or not isinstance(audience, str):
        raise Unauthorized("$cbs takes the operation put-token with the application property 'name'")
    token = request.body.decode("utf-8", "replace") if isinstance(request.body, bytes) else request.body
    if not isinstance(token, str):
        raise Unauthorized("the token must be a string")
    return check_token(token, audience, keys, now_ms)


def _status(code: int, description: str, condition: str | None) -> dict[str, Any]:
    status: dict[str, Any] = {"status-code": Int(code), "status-description": description}
    if condition is not None:
        status["error-condition"] = Symbol(condition)
    return status
