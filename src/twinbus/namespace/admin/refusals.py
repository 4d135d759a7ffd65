"""How a refusal is told over HTTP: a status both official clients know, and a text with the service's sub-code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from aiohttp import web

from twinbus.errors import NamespaceError
from twinbus.namespace.admin.documents import error_document

Refuse: TypeAlias = Callable[[web.Request], web.Response | None]
REFUSE: web.AppKey[Refuse] = web.AppKey("refuse")
"""Of an application: the answer to whoever may not ask this, by the head of the request alone; None: he may."""

CONTENT_TYPE = "application/xml;charset=utf-8"


class Refusal(NamedTuple):
    status: int
    sub_code: int


_BY_CONDITION = {
    "amqp:not-found": Refusal(404, 40400),
    "com.microsoft:message-not-found": Refusal(404, 40400),
    "com.microsoft:entity-already-exists": Refusal(409, 40900),
    "amqp:unauthorized-access": Refusal(401, 40100),
    "com.microsoft:auth-failed": Refusal(401, 40100),
    "amqp:resource-limit-exceeded": Refusal(403, 40300),
    "com.microsoft:entity-disabled": Refusal(403, 40301),
    "com.microsoft:server-busy": Refusal(503, 50300),
    "amqp:internal-error": Refusal(503, 50301),
    "amqp:link:detach-forced": Refusal(503, 50301),
    "com.microsoft:timeout": Refusal(504, 50400),
    "amqp:not-allowed": Refusal(400, 40000),
    "amqp:invalid-field": Refusal(400, 40000),
    "amqp:decode-error": Refusal(400, 40000),
    "com.microsoft:argument-error": Refusal(400, 40000),
    "com.microsoft:argument-out-of-range": Refusal(400, 40000),
}
_UNEXPECTED = Refusal(500, 50000)


def refusal_of(error: NamespaceError) -> Refusal:
    return _BY_CONDITION.get(error.condition, _UNEXPECTED)


def error_answer(status: int, sub_code: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """A refusal in the form that the official clients read; one of them looks for the sub-code in its text."""
    body = error_document(status, f"SubCode={sub_code}. {text}")
    return web.Response(body=body, status=status, headers={"Content-Type": CONTENT_TYPE, **(headers or {})})
