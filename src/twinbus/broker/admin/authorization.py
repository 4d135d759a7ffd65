"""Who may administer: the Manage right to what a request is about, and to where it forwards messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from twinbus.broker.admin.error_responses import error_response, http_error_of
from twinbus.broker.admin.routes import parse_resource_path
from twinbus.broker.auth.authority import Authority
from twinbus.broker.operations import Right
from twinbus.errors import NamespaceError

MAIN_HEADER = "Authorization"


class AdminAuthorization:
    def __init__(self, authority: Authority, clock: Callable[[], int]) -> None:
        self._authority = authority
        self._clock = clock

    def refuse(self, request: web.Request) -> web.Response | None:
        """The answer to a request without the Manage right; None: it has it."""
        path = parse_resource_path(request.rel_url.raw_path).path
        try:
            self._check(request.headers.get(MAIN_HEADER), path)
        except NamespaceError as error:
            return error_response(*http_error_of(error), str(error))
        return None

    def check_target(self, headers: Mapping[str, str], header: str, path: str) -> None:
        """Raise `Unauthorized` unless a request may manage the entity to which it forwards messages.

        A token for a target has its own header; without it the request's token must be valid for both.
        """
        self._check(headers.get(header) or headers.get(MAIN_HEADER), path)

    def _check(self, token: str | None, path: str) -> None:
        self._authority.authorize_http(token, path, Right.MANAGE, self._clock())
