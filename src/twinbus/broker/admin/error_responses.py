"""Errors over HTTP: a status that both official clients know, and a text with the service's sub-code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from aiohttp import web

from twinbus.broker.admin.documents import error_document
from twinbus.errors import NamespaceError

Refuse: TypeAlias = Callable[[web.Request], web.Response | None]
REFUSE: web.AppKey[Refuse] = web.AppKey("refuse")
"""Of an application: the answer to an unauthorized request, by its headers alone; None: it is authorized."""

CONTENT_TYPE = "application/xml;charset=utf-8"


class HttpError(NamedTuple):
    status: int
    sub_code: int


_BY_CONDITION = {
    "amqp:not-found": HttpError(404, 40400),
    "com.microsoft:message-not-found": HttpError(404, 40400),
    "com.microsoft:entity-already-exists": HttpError(409, 40900),
    "amqp:unauthorized-access": HttpError(401, 40100),
    "com.microsoft:auth-failed": HttpError(401, 40100),
    "amqp:resource-limit-exceeded": HttpError(403, 40300),
    "com.microsoft:entity-disabled": HttpError(403, 40301),
    "com.microsoft:server-busy": HttpError(503, 50300),
    "amqp:internal-error": HttpError(503, 50301),
    "amqp:link:detach-forced": HttpError(503, 50301),
    "com.microsoft:timeout": HttpError(504, 50400),
    "amqp:not-allowed": HttpError(400, 40000),
    "amqp:invalid-field": HttpError(400, 40000),
    "amqp:decode-error": HttpError(400, 40000),
    "com.microsoft:argument-error": HttpError(400, 40000),
    "com.microsoft:argument-out-of-range": HttpError(400, 40000),
}
_UNEXPECTED = HttpError(500, 50000)


def http_error_of(error: NamespaceError) -> HttpError:
    return _BY_CONDITION.get(error.condition, _UNEXPECTED)


def error_response(status: int, sub_code: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error in the form that the official clients read; one of them looks for the sub-code in its text."""
    body = error_document(status, f"SubCode={sub_code}. {text}")
    return web.Response(body=body, status=status, headers={"Content-Type": CONTENT_TYPE, **(headers or {})})
