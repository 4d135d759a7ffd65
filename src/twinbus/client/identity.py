"""Entra ID by the name of a credential: `default`, `cli`, `managed-identity` and so on, as azure-identity has them.

azure-identity is an extra (`twinbus[azure]`): it is imported when somebody asks for it, not before.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from azure.core.credentials import AccessToken

from twinbus.errors import OptionsError

RENEW_BEFORE_S = 300
"""A token is asked for again when it has no more than this left."""
INSTALL = "pip install 'twinbus[azure]'"


class CredentialKind(NamedTuple):
    """One kind of credential."""

    class_name: str
    """In `azure.identity`."""
    meaning: str
    takes_client_id: bool = False


KINDS: Mapping[str, CredentialKind] = {
    "default": CredentialKind("DefaultAzureCredential", "the first of those below that works"),
    "environment": CredentialKind("EnvironmentCredential", "a service principal, from AZURE_CLIENT_ID and so on"),
    "workload": CredentialKind(
        "WorkloadIdentityCredential", "the workload identity of a Kubernetes pod", takes_client_id=True
    ),
    "managed-identity": CredentialKind(
        "ManagedIdentityCredential", "the identity of this machine or app", takes_client_id=True
    ),
    "cli": CredentialKind("AzureCliCredential", "the user of az login"),
    "developer-cli": CredentialKind("AzureDeveloperCliCredential", "the user of azd auth login"),
    "powershell": CredentialKind("AzurePowerShellCredential", "the user of Connect-AzAccount"),
}
_CLIENT_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


def names() -> str:
    """What may be given, for texts."""
    return ", ".join(f"{name}[:CLIENT-ID]" if kind.takes_client_id else name for name, kind in KINDS.items())


def check_name(text: str) -> str:
    """The name as it is; raises `OptionsError` if there is no such credential. Needs no azure-identity."""
    name, colon, client_id = text.partition(":")
    kind = KINDS.get(name)
    if kind is None:  # it may be a key in the wrong place: it is not repeated
        raise OptionsError(f"a credential is one of {names()}")
    if colon and not kind.takes_client_id:
        raise OptionsError(f"{name} takes no client id: leave out what follows the colon")
    if colon and _CLIENT_ID.fullmatch(client_id) is None:
        example = "00000000-0000-0000-0000-000000000000"
        raise OptionsError(f"a client id has letters, digits and dashes, e.g. {name}:{example}")
    return text


def identity(text: str) -> CachedCredential:
    """The credential of this name; raises `OptionsError` that says what is missing.

    It asks nobody for anything yet, and it is made in the process that uses it: there is nothing in the name to hide.
    """
    name, _, client_id = check_name(text).partition(":")
    try:
        module = import_module("azure.identity")
    except ImportError:
        raise OptionsError(f"the credential {name} needs azure-identity: {INSTALL}") from None
    make: Callable[..., Any] = getattr(module, KINDS[name].class_name)
    try:
        return CachedCredential(make(client_id=client_id) if client_id else make())
    except ValueError as error:  # e.g. a workload identity outside of a pod
        raise OptionsError(f"the credential {name} cannot be used here: {' '.join(str(error).split())}") from None


class CachedCredential:
    """A token credential that keeps its tokens until shortly before their end.

    Some of azure-identity start a program for every token (`az`, which takes a second), and a client wants one for each
    of its links. Others wait while one asks: they want the same token.
    """

    def __init__(self, credential: Any, now: Callable[[], float] = time.time) -> None:
        self._credential = credential
        self._now = now
        self._lock = threading.Lock()
        self._tokens: dict[tuple[str, ...], AccessToken] = {}

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        with self._lock:
            kept = None if options.get("claims") else self._tokens.get(scopes)
            if kept is not None and kept.expires_on > self._now() + RENEW_BEFORE_S:
                return kept
            token: AccessToken = self._credential.get_token(*scopes, **options)
            self._tokens[scopes] = token
            return token
