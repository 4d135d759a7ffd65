"""A namespace as seen by its clients: its address and our credential, in one value that builds all clients of it.

Clients built here make exactly one attempt (`retry_total=0`): how often and when to try again is decided elsewhere.
AMQP over TLS reaches another port than 5671 only through the SDK's custom endpoint, since it drops ports otherwise.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import certifi
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.credentials import Credential, checked, for_aio, for_sync, token_source
from twinbus.client.transport_options import (
    for_the_sdk,
    is_over_websocket,
    proxy_address,
    proxy_of,
    proxy_problem,
    way_in,
)
from twinbus.connection_string import PLAIN_PORT, TLS_PORT, endpoint_of, has_secret, is_address, parts_of
from twinbus.errors import OptionsError
from twinbus.transport.dial import Dial

ATTEMPT_S = 5.0
"""How long one attempt may take, unless given."""

CA_VARIABLE = "SSL_CERT_FILE"
"""A file of certificates to trust where nothing else is said; OpenSSL and many programs know it."""

_INSTEAD = {
    "retry_total": "the pairing's retry=",
    "retry_backoff_factor": "the pairing's retry=",
    "retry_backoff_max": "the pairing's retry=",
    "retry_mode": "the pairing's retry=",
    "try_timeout": "the pairing's attempt_timeout=",
    "uamqp_transport": "the SDK's own AMQP, which it has without this option",
}
"""SDK options that would fight with ours, and what does their work here."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_HTTPS_PORT = 443


class AdminAccess(NamedTuple):
    """How administration requests get to a namespace without the SDK."""

    host: str
    """With a port, if it has one of its own. Always over https."""
    tls: ssl.SSLContext
    proxy: str | None
    """Address of an HTTP proxy on the way."""


@dataclass(frozen=True, init=False, repr=False)
class Namespace:
    """How to reach a namespace, and with which credential.

    `sdk_options` go to every client of the SDK that is built from it: `http_proxy`, `transport_type`, `user_agent`,
    `custom_endpoint_address`, `connection_verify` (a file of certificates to trust), `ssl_context` and so on.
    """

    host: str
    port: int
    name: str | None
    """Its name; None if neither its address nor the caller gives one."""
    credential: Credential
    sdk_options: Mapping[str, Any] = field(hash=False)
    is_plain: bool
    """AMQP without TLS, as the emulator speaks it."""
    _has_port: bool = field(compare=False)

    def __init__(
        self, fully_qualified_namespace: str, credential: Credential, *, name: str | None = None, **sdk_options: Any
    ) -> None:
        """As `Namespace("contoso.servicebus.windows.net", DefaultAzureCredential())`; a port may be written.

        The name is the first label of the host, unless given. Raises `OptionsError` with everything that is wrong.
        """
        is_plain = not sdk_options.pop("use_tls", True)
        problems = [f"{option} cannot be given: use {_INSTEAD[option]}" for option in sdk_options if option in _INSTEAD]
        proxy = proxy_problem(sdk_options.get("http_proxy"))
        problems += [] if proxy is None else [proxy]
        try:
            host, port = _host_and_port(fully_qualified_namespace)
        except OptionsError as error:
            problems.append(str(error))
        try:
            checked(credential)
        except OptionsError as error:
            problems.append(str(error))
        if name is not None and not _NAME.fullmatch(str(name)):
            problems.append(f"name must be letters, digits, dots, dashes and underscores, got {name!r}")
        OptionsError.raise_for(problems)
        self._set(
            host=host,
            port=port or (PLAIN_PORT if is_plain else TLS_PORT),
            name=name or _name_in(host),
            credential=credential,
            sdk_options=MappingProxyType(dict(sdk_options)),
            is_plain=is_plain,
            _has_port=port is not None,
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_connection_string(
        cls, text: str, *, name: str | None = None, credential: Credential | None = None, **sdk_options: Any
    ) -> Namespace:
        """A namespace by its connection string, with a key or with a shared access signature.

        `credential` takes their place where the string has neither. `TwinbusNamespace` in it is the name,
        `TwinbusCA` what to trust, `TransportType` and `TwinbusProxy` the way, unless given here. `EntityPath` does not
        matter: the key is used for whatever is asked for, and it is the service that knows its rights.
        """
        if not isinstance(text, str):
            raise OptionsError(f"a connection string is text, got {type(text).__name__}")
        parts = parts_of(text)
        if not parts.get("endpoint"):
            raise OptionsError("the connection string has no Endpoint")
        host, port = endpoint_of(parts["endpoint"])
        options = way_in(parts)
        if parts.get("twinbusca"):
            options["connection_verify"] = parts["twinbusca"]
        if parts.get("usedevelopmentemulator", "").lower() == "true":
            options["use_tls"] = False
        address = _joined(host, port)
        known = credential if credential is not None and not has_secret(parts) else _credential_in(parts)
        return cls(address, known, name=name or parts.get("twinbusnamespace"), **options | sdk_options)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled and copied: with the credential and the SDK's options, as far as those can be."""
        return self.__dict__ | {"sdk_options": dict(self.sdk_options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state | {"sdk_options": MappingProxyType(state["sdk_options"])})

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<Namespace{name} at {self.address}>"

    @property
    def address(self) -> str:
        """Host and port: what is equal for two values that mean the same namespace."""
        return _joined(self.host, self.port)

    @property
    def host_label(self) -> str:
        """What to call it in texts: its name, or else the first label of its host, or else its address."""
        return self.name or _name_in(self.host) or self.address

    # --- clients ---

    def sync_client(self, attempt_s: float = ATTEMPT_S) -> ServiceBusClient:
        """A client of the SDK that makes one attempt; it waits for a token and for TLS no longer than this.

        Everything else is left to `links`: the SDK's own `try_timeout` tidies up slowly and loudly.
        """
        options = self._amqp_options(is_aio=False)
        if not self.is_plain:
            options["ssl_context"] = _HandshakeLimit(self._tls(), attempt_s)
        return ServiceBusClient(self._amqp_host, for_sync(self.credential, attempt_s), **options)

    def aio_client(self, attempt_s: float = ATTEMPT_S) -> AioServiceBusClient:
        """The same for asyncio.

        Without a context that SDK reads all certificates of the machine for each connection, also for a plain one, and
        nothing else goes on meanwhile. So it gets an empty one, of which it makes no use.
        """
        options = self._amqp_options(is_aio=True)
        options["ssl_context"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self.is_plain else self._tls()
        return AioServiceBusClient(self._amqp_host, for_aio(self.credential, attempt_s), **options)

    def admin_client(self, attempt_s: float = ATTEMPT_S) -> ServiceBusAdministrationClient:
        """The administration of the namespace; one attempt a call, at most this long to connect and to answer."""
        options = self._admin_options(attempt_s)
        text = self._admin_connection_string()
        if text is not None:
            return ServiceBusAdministrationClient.from_connection_string(text, **options)
        return ServiceBusAdministrationClient(self.admin_host, for_sync(self.credential, attempt_s), **options)

    def aio_admin_client(self, attempt_s: float = ATTEMPT_S) -> AioServiceBusAdministrationClient:
        """The same for asyncio."""
        options = self._admin_options(attempt_s)
        text = self._admin_connection_string()
        if text is not None:
            return AioServiceBusAdministrationClient.from_connection_string(text, **options)
        return AioServiceBusAdministrationClient(self.admin_host, for_aio(self.credential, attempt_s), **options)

    def dial(self, attempt_s: float = ATTEMPT_S) -> Dial:
        """How our own engine gets there; a token is waited for no longer than this.

        Through an HTTP proxy it goes as the SDK does, in a WebSocket, unless `transport_type` says plain AMQP.
        """
        host, port = self.host, self._amqp_port
        gateway = self.sdk_options.get("custom_endpoint_address")
        if gateway is not None:
            host, found = _host_and_port(str(gateway))
            port = found or (_HTTPS_PORT if self.over_websocket else TLS_PORT)
        return Dial(
            host,
            port,
            tls=None if self.is_plain else self._tls(),
            server_hostname=None if self.is_plain else host,
            get_token=token_source(self.credential, attempt_s),
            hostname=self.host,
            name=self.name or self.address,
            list_queues=partial(self._list_queues, attempt_s),
            over_websocket=self.over_websocket,
            proxy=proxy_of(self.sdk_options),
        )

    @property
    def over_websocket(self) -> bool:
        """Whether AMQP goes inside a WebSocket."""
        return is_over_websocket(self.sdk_options)

    @property
    def _amqp_port(self) -> int:
        """Over a WebSocket 443 unless a port is written, or it is the emulator."""
        return _HTTPS_PORT if self.over_websocket and not self.is_plain and not self._has_port else self.port

    @property
    def admin_host(self) -> str:
        """Where it is administered, over https: its host, with a port if it has one of its own."""
        return self.address if self.is_plain or self._has_port else _joined(self.host, None)

    def admin_access(self) -> AdminAccess:
        """Reads certificates: not in an event loop. Raises `OptionsError` if there are none."""
        proxy = proxy_of(self.sdk_options)
        return AdminAccess(self.admin_host, self._tls(), None if proxy is None else proxy_address(proxy))

    async def _list_queues(self, attempt_s: float) -> list[list[str]]:
        """As `Dial.list_queues`."""
        from twinbus.client.setup.queue_names import queue_names  # not above: it is built upon this module

        return await queue_names(self, attempt_s)

    # --- what they are built from ---

    @property
    def _amqp_host(self) -> str:
        # Without TLS the SDK keeps the port that is written; with it the custom endpoint carries it.
        return self.address if self.is_plain else _joined(self.host, None)

    def _amqp_options(self, *, is_aio: bool) -> dict[str, Any]:
        options = for_the_sdk(self.sdk_options, is_aio=is_aio)
        options.pop("connection_verify", None)
        options |= {"retry_total": 0, "use_tls": not self.is_plain}
        needs_port = self.over_websocket or not self.is_plain  # the SDK keeps the one that is written only without both
        if needs_port and self._amqp_port != self._usual_port and "custom_endpoint_address" not in options:
            options["custom_endpoint_address"] = f"sb://{_joined(self.host, self._amqp_port)}"
        if options.get("http_proxy"):
            options["transport_type"] = TransportType.AmqpOverWebsocket  # it knows no other way through one
        elif "custom_endpoint_address" in options:
            options.setdefault("transport_type", TransportType.Amqp)
        return options

    @property
    def _usual_port(self) -> int:
        """Where the SDK goes if nothing is said."""
        return _HTTPS_PORT if self.over_websocket else TLS_PORT

    def _admin_options(self, attempt_s: float) -> dict[str, Any]:
        unknown_there = {"http_proxy", "transport_type", "custom_endpoint_address", "ssl_context", "logging_enable"}
        options = {name: value for name, value in self.sdk_options.items() if name not in unknown_there}
        options |= {"retry_total": 0, "connection_timeout": attempt_s, "read_timeout": attempt_s}
        if "connection_verify" in options or os.environ.get(CA_VARIABLE):
            options["connection_verify"] = str(self._trusted())
        proxy = proxy_of(self.sdk_options)
        if proxy is not None:
            options["proxies"] = {"https": proxy_address(proxy)}
        return options

    def _admin_connection_string(self) -> str | None:
        """The administration client takes keys and signatures only in this form; None for token credentials."""
        endpoint = f"Endpoint=sb://{self.admin_host}/"
        if isinstance(self.credential, AzureNamedKeyCredential):
            name, key = self.credential.named_key
            return f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key}"
        if isinstance(self.credential, AzureSasCredential):
            return f"{endpoint};SharedAccessSignature={self.credential.signature}"
        return None

    def _trusted(self) -> Path:
        path = Path(self.sdk_options.get("connection_verify") or os.environ.get(CA_VARIABLE) or certifi.where())
        if not path.is_file():
            raise OptionsError(f"{path} is not there: it should hold the certificates to trust for {self.address}")
        return path

    def _tls(self) -> ssl.SSLContext:
        given = self.sdk_options.get("ssl_context")
        if given is not None:
            return given  # type: ignore[no-any-return]
        trusted = self._trusted()
        try:
            return ssl.create_default_context(cafile=str(trusted))
        except (OSError, ssl.SSLError) as error:
            raise OptionsError(f"{trusted} holds no certificates that can be read: {error}") from None


class _HandshakeLimit:
    """A TLS context whose handshakes end.

    The sync SDK shakes hands on a socket without a time-out, and while it does nobody else can reach that socket.
    """

    def __init__(self, context: ssl.SSLContext, seconds: float) -> None:
        self._context = context
        self._seconds = seconds

    def wrap_socket(self, sock: socket.socket, **options: Any) -> ssl.SSLSocket:
        if sock.gettimeout() is None:  # which the SDK sets anew afterwards
            sock.settimeout(self._seconds)
        return self._context.wrap_socket(sock, **options)


# --- addresses ---


def _host_and_port(text: object) -> tuple[str, int | None]:
    """Of `contoso.servicebus.windows.net`, with or without a scheme, a port and a path."""
    if not isinstance(text, str):
        raise OptionsError(f"the fully qualified namespace is text, got {type(text).__name__}")
    if "endpoint=" in text.lower():  # may hold a secret, which is not repeated
        raise OptionsError("this is a connection string: use Namespace.from_connection_string(...)")
    try:
        found = urlsplit(text if "//" in text else f"//{text}")
        host, port = found.hostname, found.port
    except ValueError:
        host, port = None, None
    host = (host or "").removesuffix(".")  # a dot at its end only says that nothing is to be added to it
    if not host or found.username is not None or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise OptionsError(f"the fully qualified namespace must be HOST or HOST:PORT, got {text!r}")
    return host, None if port == _HTTPS_PORT else port


def _joined(host: str, port: int | None) -> str:
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _name_in(host: str) -> str | None:
    """The first label of a host; localhost and bare addresses have no name."""
    label = host.partition(".")[0]
    return None if label == "localhost" or is_address(host) else label


def _credential_in(parts: Mapping[str, str]) -> Credential:
    signature, key_name, key = (
        parts.get(part) for part in ("sharedaccesssignature", "sharedaccesskeyname", "sharedaccesskey")
    )
    if signature and key:
        raise OptionsError("the connection string has a SharedAccessKey and a SharedAccessSignature: keep one of them")
    if signature:
        return AzureSasCredential(signature)
    if key_name and key:
        return AzureNamedKeyCredential(key_name, key)
    raise OptionsError(
        "the connection string needs SharedAccessKeyName and SharedAccessKey, or a SharedAccessSignature"
    )
