"""Credentials: what may be given, tokens made from them, and that none of them can make us wait for ever."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.credentials_async import AsyncTokenCredential

from twinbus.client.sdk.abandonable_threads import call_on_thread
from twinbus.errors import OptionsError, TwinbusError
from twinbus.transport.dial import JWT, SAS_TOKEN, CbsToken, key_token

Credential = AzureNamedKeyCredential | AzureSasCredential | TokenCredential | AsyncTokenCredential

SCOPE = "https://servicebus.azure.net//.default"
"""What a JSON web token for a namespace is asked for."""
_WHAT_IS_RIGHT = (
    "credential must be an AzureNamedKeyCredential, an AzureSasCredential or a token credential with get_token() "
    "(as those of azure-identity); a connection string goes to Namespace.from_connection_string"
)


class NoToken(TwinbusError):
    """A token credential gave no token in time."""


def checked(credential: object) -> Credential:
    """The credential as it is; raises `OptionsError` if it is none."""
    if isinstance(credential, AzureNamedKeyCredential):
        return credential
    if isinstance(credential, AzureSasCredential):
        expiry_of(credential.signature)
        return credential
    if not isinstance(credential, type) and callable(getattr(credential, "get_token", None)):
        return credential  # type: ignore[return-value]
    raise OptionsError(f"{_WHAT_IS_RIGHT}; got {type(credential).__name__}")


def expiry_of(signature: str) -> int:
    """When a shared access signature ends, in seconds since 1970; raises `OptionsError` if it does not say."""
    for part in signature.removeprefix("SharedAccessSignature ").split("&"):
        name, _, value = part.partition("=")
        if name == "se" and value.isascii() and value.isdigit():
            return int(value)
    raise OptionsError("a shared access signature must be SharedAccessSignature sr=...&sig=...&se=...&skn=...")


def is_async(credential: Credential) -> bool:
    """Whether it can only be asked from an event loop."""
    return inspect.iscoroutinefunction(getattr(credential, "get_token", None))


# --- for the SDK ---


def for_sync(credential: Credential, wait_s: float) -> Any:
    """The credential as the sync SDK takes it; a token is waited for no longer than this."""
    if isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
        return credential
    if is_async(credential):
        raise OptionsError("this credential is for asyncio: use it with twinbus.aio, or take one of azure.identity")
    return BoundedCredential(credential, wait_s)


def for_aio(credential: Credential, wait_s: float) -> Any:
    """The credential as the asyncio SDK takes it; one that is not for asyncio is asked on a thread."""
    if isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
        return credential
    if is_async(credential):
        return AioBoundedCredential(credential, wait_s)
    return ThreadedCredential(BoundedCredential(credential, wait_s))


class BoundedCredential:
    """A token credential that answers in time or raises `NoToken`.

    The SDK asks about once an hour, on the thread of whoever sends just then. While one question hangs, others for the
    same scopes wait for its answer instead of asking on yet another thread.
    """

    def __init__(self, credential: Any, wait_s: float) -> None:
        self._credential = credential
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._asking: dict[tuple[str, ...], Future[AccessToken]] = {}

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        with self._lock:
            answer = self._asking.get(scopes)
            if answer is None or answer.done():
                answer = call_on_thread(lambda: self._credential.get_token(*scopes, **options), "twinbus-token")
                self._asking[scopes] = answer
        if not wait([answer], self._wait_s).done:
            raise NoToken(f"the credential gave no token within {self._wait_s:g} s")
        return answer.result()


class ThreadedCredential:
    """A sync token credential for asyncio: the loop goes on while it is asked."""

    def __init__(self, credential: BoundedCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return await asyncio.to_thread(self._credential.get_token, *scopes, **options)


class AioBoundedCredential:
    """An asyncio token credential that answers in time or raises `NoToken`."""

    def __init__(self, credential: Any, wait_s: float) -> None:
        self._credential = credential
        self._wait_s = wait_s

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        try:
            async with asyncio.timeout(self._wait_s) as limit:
                token: AccessToken = await self._credential.get_token(*scopes, **options)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NoToken(f"the credential gave no token within {self._wait_s:g} s") from None
        return token


# --- for our own engine ---


def token_source(credential: Credential, wait_s: float) -> Callable[[str], CbsToken]:
    """A function from an audience to a fresh token.

    An asyncio credential is asked on the loop that runs now, so its tokens have to be fetched from another thread.
    """
    if isinstance(credential, AzureNamedKeyCredential):
        return lambda audience: key_token(audience, *credential.named_key)
    if isinstance(credential, AzureSasCredential):
        return lambda _: CbsToken(credential.signature, SAS_TOKEN, expiry_of(credential.signature))
    if is_async(credential):
        return _token_from_loop(AioBoundedCredential(credential, wait_s), asyncio.get_running_loop(), wait_s)
    bounded = BoundedCredential(credential, wait_s)
    return lambda _: _web_token(bounded.get_token(SCOPE))


def _token_from_loop(
    credential: AioBoundedCredential, loop: asyncio.AbstractEventLoop, wait_s: float
) -> Callable[[str], CbsToken]:
    def fetch(_: str) -> CbsToken:
        asked = asyncio.run_coroutine_threadsafe(credential.get_token(SCOPE), loop)
        try:
            return _web_token(asked.result(wait_s + 1))
        except TimeoutError:
            asked.cancel()
            raise NoToken(f"the credential's event loop did not answer within {wait_s:g} s") from None

    return fetch


def _web_token(token: AccessToken) -> CbsToken:
    return CbsToken(token.token, JWT, token.expires_on)
