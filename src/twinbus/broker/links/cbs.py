"""`$cbs`: where a client puts the tokens that say what it may use.

Only the token itself is checked here. What it does not allow, and entities that do not exist, are reported when a link
is attached: there the official clients raise at once, here they would retry.
"""

from __future__ import annotations

from typing import Any

from twinbus.amqp.codec.types import Int, Symbol
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.claims import ClaimBook
from twinbus.broker.links.request_messages import Request, write_response
from twinbus.errors import QuotaExceeded, Unauthorized


def put_token(request: Request, authority: Authority, claims: ClaimBook, now_ms: int) -> bytes:
    """Add what a token proves to the claims, if it is good; the response says whether it was."""
    try:
        token, audience = _read(request)
        claims.add(authority.check_token(token, audience, now_ms), now_ms)
    except (Unauthorized, QuotaExceeded) as error:
        status: dict[str, Any] = {
            "status-code": Int(401 if isinstance(error, Unauthorized) else 403),
            "status-description": str(error),
            "error-condition": Symbol(error.condition),
        }
        return write_response(request, status, None)
    return write_response(request, {"status-code": Int(202), "status-description": "Accepted"}, None)


def _read(request: Request) -> tuple[str, str]:
    """Token and audience. The application property `type` does not help: Python's client calls every token a JWT."""
    audience = request.properties.get("name")
    if request.operation != "put-token" or not isinstance(audience, str):
        raise Unauthorized("$cbs takes the operation put-token with the application property 'name'")
    token = request.body.decode("utf-8", "replace") if isinstance(request.body, bytes) else request.body
    if not isinstance(token, str):
        raise Unauthorized("the token must be a string")
    return token, audience
