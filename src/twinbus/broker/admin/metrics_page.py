"""`/metrics`: the metrics page, for keys and tokens with the Manage right.

A scraper that cannot sign tokens sends a rule's name and key as user and password (HTTP Basic). Requests of the admin
clients always have an `api-version`; those are about a queue called metrics.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable

from aiohttp import web

from twinbus.broker.admin.error_responses import REFUSE
from twinbus.broker.auth.authority import Authority
from twinbus.broker.operations import Right
from twinbus.broker.ops.metrics import PROMETHEUS_CONTENT_TYPE, Snapshot, as_json, as_prometheus
from twinbus.errors import Unauthorized

PATH = "/metrics"
_BASIC = "basic "

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricsPage:
    def __init__(self, authority: Authority, clock: Callable[[], int], snapshot: Callable[[], Snapshot]) -> None:
        self._authority = authority
        self._clock = clock
        self._snapshot = snapshot

    def add_to(self, app: web.Application) -> None:
        """Add the page in front of all other routes."""

        refuse_others = app[REFUSE]

        def refuse(request: web.Request) -> web.Response | None:
            return self._refuse(request) if _is_ours(request) else refuse_others(request)

        @web.middleware
        async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not _is_ours(request):
                return await handler(request)
            return self._refuse(request) or self._answer(request)

        app[REFUSE] = refuse
        app.middlewares.append(answer)

    def _refuse(self, request: web.Request) -> web.Response | None:
        try:
            self._check(request.headers.get("Authorization"))
        except Unauthorized as error:
            challenge = {"WWW-Authenticate": 'Basic realm="twinbus: name and key of a rule with Manage"'}
            return web.Response(status=401, text=f"{error}\n", headers=challenge)
        return None

    def _answer(self, request: web.Request) -> web.Response:
        if request.query.get("format") == "json" or "application/json" in request.headers.get("Accept", ""):
            return web.json_response(as_json(self._snapshot()))
        text = as_prometheus(self._snapshot())
        return web.Response(body=text.encode(), headers={"Content-Type": PROMETHEUS_CONTENT_TYPE})

    def _check(self, header: str | None) -> None:
        if header is None or not header.lower().startswith(_BASIC):
            self._authority.authorize_http(header, "", Right.MANAGE, self._clock())
            return
        name, key = _name_and_key(header[len(_BASIC) :])
        is_known, claim = self._authority.knows(name, key), self._authority.claim_of(name)
        if not is_known or claim is None:
            raise Unauthorized("the name or the key is wrong")
        if not claim.allows("", Right.MANAGE, self._clock()):
            raise Unauthorized(f"the rule '{name}' lacks the Manage right")


def _is_ours(request: web.Request) -> bool:
    return request.path == PATH and request.method == "GET" and "api-version" not in request.query


def _name_and_key(credentials: str) -> tuple[str, str]:
    try:
        name, separator, key = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Unauthorized("the credentials are not base64") from None
    if not separator:
        raise Unauthorized("the credentials must be a rule's name and its key")
    return name, key
