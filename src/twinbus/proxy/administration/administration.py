"""Administration over HTTPS through a proxy: every request goes on to the primary, every answer comes back.

A request needs the Manage right at the proxy. It travels with the proxy's own credential; of what the application sent,
only the headers that are listed here and the translated description go on. Messages are not sent or received this way:
that is what AMQP is for, where a send can be saved when the primary is down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import NamedTuple

import aiohttp
from aiohttp import web
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError
from yarl import URL

from twinbus.broker.admin.app import BODY_BYTES_MAX
from twinbus.broker.admin.authorization import MAIN_HEADER, AdminAuthorization
from twinbus.broker.admin.error_responses import REFUSE, error_response, http_error_of
from twinbus.broker.admin.routes import ResourcePath
from twinbus.broker.auth.authority import Authority
from twinbus.client.credentials import Credential, token_source
from twinbus.client.namespace import AdminAccess, Namespace
from twinbus.errors import ArgumentError, NamespaceError, TwinbusError
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.plain_text import on_one_line, without_keys
from twinbus.proxy.administration.admin_documents import (
    Hosts,
    RequestDocument,
    checked_path,
    for_application,
    keys_in,
    primary_path,
)
from twinbus.proxy.administration.atom_places import Address
from twinbus.transport.dial import JWT, CbsToken
from twinbus.transport.failures import unreachable

logger = logging.getLogger("twinbus.proxy")

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""A page of a hundred entities, each with all the rules and keys that it may have, is shorter."""
AT_ONCE = 8
"""Requests that are under way to the primary; others wait for their turn."""
ANSWER_S = 30.0
"""From a request to its answer. Creating an entity takes the service seconds."""
LARGE_BYTES = 64 * 1024
"""From here on documents are translated on a thread, so that messages do not wait for it."""

SECRET_LENGTH_MIN = 8
"""Shorter secrets, e.g. keys that were chosen for a test, occur in too many texts by chance."""

METHODS = ("DELETE", "GET", "PUT")
REQUEST_HEADERS = (
    *("Accept", "Accept-Language", "Content-Type", "If-Match", "If-None-Match", "User-Agent"),
    *("x-ms-client-request-id", "X-PROCESS-AT"),
)
RESPONSE_HEADERS = ("Allow", "Content-Type", "ETag", "Last-Modified", "Retry-After", "x-ms-request-id")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")
_TAKES_A_MESSAGE = re.compile(r".+/messages/head", re.IGNORECASE)
_SIGNATURE = re.compile(r"(?<=sig=)[^&\s]+")
_HIDDEN = b"***"


def make_administration(
    primary: Namespace,
    authority: Authority,
    clock: Callable[[], int],
    count: Callable[[str, int], None],
    tried: Callable[[str, Failure | None], None] = lambda _path, _failure: None,
    *,
    connect_s: float = 5.0,
    answer_s: float = ANSWER_S,
) -> web.Application:
    """The administration of the primary at every address, for an `Endpoint`.

    `count` takes each request: the path of its entity, in lower case, and its size; `tried`, whether the primary has
    answered it.
    """
    app = web.Application(client_max_size=BODY_BYTES_MAX)  # the HTTP server reads bodies and refuses larger ones
    relay = AdministrationRelay(primary, AdminAuthorization(authority, clock), count, tried, connect_s, answer_s)
    app[REFUSE] = relay.authorization.refuse
    app.router.add_route("*", "/{path:.*}", relay.serve)
    app.cleanup_ctx.append(relay.run)
    return app


class RelayFailed(Exception):
    """The primary gave no answer that can be passed on."""

    def __init__(self, status: int, sub_code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.sub_code = sub_code


class PrimaryAnswer(NamedTuple):
    """What the primary said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_xml(self) -> bool:
        return "xml" in self.headers.get("Content-Type", "").lower()


class AdministrationRelay:
    def __init__(
        self,
        primary: Namespace,
        authorization: AdminAuthorization,
        count: Callable[[str, int], None],
        tried: Callable[[str, Failure | None], None],
        connect_s: float,
        answer_s: float,
    ) -> None:
        self.authorization = authorization
        self._primary = primary
        self._count = count
        self._tried = tried
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._access: AdminAccess | None = None

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Keep a client session for the primary open while the application runs."""
        # A connection is used once, and a request is sent once: it may have arrived even if the connection was lost.
        connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
        self._token = token_source(self._primary.credential, self._connect_s)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Content-Type"),
            trace_configs=[_send_once()],
        )
        async with self._session:
            yield

    async def serve(self, request: web.Request) -> web.Response:
        """PrimaryAnswer any request within a bounded time; never raises for what a client or the primary sends."""
        try:
            async with asyncio.timeout(self._answer_s):
                return self.authorization.refuse(request) or await self._relay(request)
        except NamespaceError as error:
            return error_response(*http_error_of(error), str(error))
        except RelayFailed as failure:
            return error_response(failure.status, failure.sub_code, str(failure))
        except TimeoutError:
            text = f"{self._name} has not answered within {self._answer_s:g} s; check the entity before you try again"
            return error_response(504, 50400, text)
        except Exception as error:
            # Without its traceback: a library's could show a header, and headers hold tokens.
            logger.error("an administrative request failed: %s", without_keys(f"{type(error).__name__}: {error}"))
            return error_response(500, 50000, "the proxy failed to answer; its log says why")

    @property
    def _name(self) -> str:
        return f"the primary namespace {self._primary.host_label}"

    async def _relay(self, request: web.Request) -> web.Response:
        path = checked_path(request.rel_url.raw_path)
        takes_a_message = request.method == "DELETE" and _TAKES_A_MESSAGE.fullmatch(path.path)
        if request.method not in METHODS or takes_a_message:
            text = f"{request.method[:20]} is not possible here: messages are sent and received over AMQP only"
            return error_response(405, 40500, text, {"Allow": ", ".join(METHODS)})
        hosts = _hosts_of(request, self._primary.admin_host)
        body = await request.read()
        self._count(path.entity, len(body))
        async with self._turns:
            tokens = {MAIN_HEADER: await self._header(f"https://{hosts.primary}/")}
            if request.method == "PUT" and body:
                body = await self._described(request, body, hosts, path, tokens)
            answer = await self._ask(request, path, tokens, body if request.method == "PUT" else b"")
        return await self._passed_on(answer, hosts, tokens.values())

    async def _described(
        self, request: web.Request, body: bytes, hosts: Hosts, path: ResourcePath, tokens: dict[str, str]
    ) -> bytes:
        """The description for the primary. Adds tokens for the entities to which messages are to be forwarded."""
        document = RequestDocument(body, hosts)
        for target in document.targets:
            self.authorization.check_target(request.headers, target.header, target.path)
            tokens[target.header] = await self._header(target.address)
        keys = {}
        if document.has_hidden_keys:
            known = await self._ask(request, path, {MAIN_HEADER: tokens[MAIN_HEADER]}, b"", method="GET")
            keys = keys_in(known.body) if known.status == 200 and known.is_xml else {}
        return document.written(keys)

    # --- tokens ---

    async def _header(self, audience: str) -> str:
        try:
            token = await asyncio.to_thread(self._token, audience)
        except (TwinbusError, AzureError) as error:
            logger.warning("no token for administration of %s: %s", self._name, without_keys(on_one_line(str(error))))
            raise RelayFailed(503, 50300, f"the proxy has no token for {self._name}; its log says why") from None
        return _header_of(token)

    # --- the primary ---

    async def _ask(
        self,
        request: web.Request,
        path: ResourcePath,
        tokens: Mapping[str, str],
        body: bytes,
        *,
        method: str | None = None,
    ) -> PrimaryAnswer:
        access = await self._admin_access()
        query = request.rel_url.raw_query_string
        url = URL(f"https://{access.host}/{primary_path(path)}{f'?{query}' if query else ''}", encoded=True)
        headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
        if method is not None:
            headers.pop("If-Match", None)
        try:
            async with self._session.request(
                method or request.method,
                url,
                headers={**headers, "Accept-Encoding": "identity", **tokens},
                data=body or None,
                ssl=access.tls,
                proxy=access.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s, sock_connect=self._connect_s),
            ) as response:
                content = await _read_whole(response)
                self._tried(path.entity, _failure_of(response.status))
                return PrimaryAnswer(response.status, response.headers, content)
        except (aiohttp.ClientConnectorError, aiohttp.ClientProxyConnectionError, aiohttp.ServerTimeoutError) as error:
            self._access = None  # certificates may have changed
            self._tried(path.entity, unreachable(OSError(_reason(error))))
            raise RelayFailed(503, 50300, f"{self._name} cannot be reached: {_reason(error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            self._tried(path.entity, unreachable(OSError(_reason(error))))
            text = f"{self._name} was lost before it answered ({_reason(error)}); check the entity before you try again"
            raise RelayFailed(504, 50400, text) from None

    async def _admin_access(self) -> AdminAccess:
        if self._access is None:
            try:
                self._access = await asyncio.to_thread(self._primary.admin_access)
            except TwinbusError as error:
                raise RelayFailed(503, 50300, f"{self._name} cannot be administered: {error}") from None
        return self._access

    # --- what goes back ---

    async def _passed_on(self, answer: PrimaryAnswer, hosts: Hosts, tokens: Iterable[str]) -> web.Response:
        """A refusal as the primary sent it; a document with the application's host names and without keys."""
        if answer.status == 401:
            logger.warning("%s refuses the proxy's own credential", self._name)
        secrets = _secrets_of(self._primary.credential, tokens)
        body = answer.body
        if answer.status < 400 and body:
            if not answer.is_xml or "Content-Encoding" in answer.headers:
                raise RelayFailed(502, 50200, f"{self._name} did not answer as a Service Bus namespace does")
            body = await self._translated(body, hosts)
        headers = {
            name: _without(answer.headers[name].encode(), secrets).decode()
            for name in RESPONSE_HEADERS
            if name in answer.headers
        }
        return web.Response(status=answer.status, body=_without(body, secrets), headers=headers)

    async def _translated(self, body: bytes, hosts: Hosts) -> bytes:
        try:
            if len(body) < LARGE_BYTES:
                return for_application(body, hosts)
            return await asyncio.to_thread(for_application, body, hosts)
        except ArgumentError:
            raise RelayFailed(502, 50200, f"{self._name} sent a document that cannot be read") from None


class _WasSent(aiohttp.ClientError):
    """The connection was lost after the request had been sent."""


def _failure_of(status: int) -> Failure | None:
    """Why an answer with this status shows that nothing can be managed; None: it does not."""
    return None if status < 500 else Failure(FailureKind.INTERNAL, f"the administration answered with {status}")


def _send_once() -> aiohttp.TraceConfig:
    """Keeps the library from sending a request again on another connection, as it does with most methods."""

    async def note_sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.was_sent = True

    async def refuse_again(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if getattr(context, "was_sent", False):
            raise _WasSent("connection lost")

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(note_sent)
    trace.on_connection_create_start.append(refuse_again)
    return trace


def _hosts_of(request: web.Request, primary: str) -> Hosts:
    host = request.headers.get("Host", "")
    if _HOST.fullmatch(host) is None:
        raise ArgumentError("the Host header must be HOST or HOST:PORT")
    return Hosts(Address(request.scheme, host), primary)


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise RelayFailed(502, 50200, f"the primary's answer is longer than {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _header_of(token: CbsToken) -> str:
    return f"Bearer {token.text}" if token.type == JWT else token.text


def _reason(error: Exception) -> str:
    """Without the address and the objects that the library's own text shows."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate is not accepted"
        case aiohttp.ClientConnectorDNSError():
            return "its host name is unknown"
        case aiohttp.ServerTimeoutError():
            return "no connection in time"
        case aiohttp.ClientConnectorError():
            return os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
        case ssl.SSLError():
            return "TLS failed"
        case _WasSent() | aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "connection lost"
        case _:
            return type(error).__name__


def _secrets_of(credential: Credential, tokens: Iterable[str]) -> list[bytes]:
    """What must not be in an answer: the key, and the secret part of each token."""
    found = [credential.named_key.key] if isinstance(credential, AzureNamedKeyCredential) else []
    for token in tokens:
        signature = _SIGNATURE.search(token)
        found.append(token.removeprefix("Bearer ") if signature is None else signature[0])
    return [secret.encode() for secret in found if len(secret) >= SECRET_LENGTH_MIN]


def _without(text: bytes, secrets: Iterable[bytes]) -> bytes:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
