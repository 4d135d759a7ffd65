"""The way to a namespace, as connection strings and the SDK's options name it: the kind of transport, an HTTP proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from azure.servicebus import TransportType

from twinbus.errors import OptionsError
from twinbus.transport.network.http_tunnel import HttpProxy

_TRANSPORTS = {
    "amqp": TransportType.Amqp,
    "amqptcp": TransportType.Amqp,
    "amqpwebsockets": TransportType.AmqpOverWebsocket,
}
"""As the .NET clients write them, in lower case."""
_SCHEME = "http://"
_PROXY_FORM = "TwinbusProxy must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT (with %-escapes)"


def way_in(parts: Mapping[str, str]) -> dict[str, Any]:
    """The SDK's options for what a connection string says about the way. Raises `OptionsError`."""
    options: dict[str, Any] = {}
    transport = parts.get("transporttype")
    if transport:
        if transport.lower() not in _TRANSPORTS:
            raise OptionsError("TransportType in the connection string must be Amqp or AmqpWebSockets")
        options["transport_type"] = _TRANSPORTS[transport.lower()]
    if parts.get("twinbusproxy"):
        options["http_proxy"] = _proxy_in(parts["twinbusproxy"])
    return options


def _proxy_in(text: str) -> dict[str, Any]:
    """As the SDK takes it. An error does not repeat the text: there may be a password in it."""
    try:
        found = urlsplit(text)
        host, port = found.hostname, found.port
    except ValueError:
        raise OptionsError(_PROXY_FORM) from None
    if not host or not port or found.scheme != "http" or found.path not in ("", "/") or found.query or found.fragment:
        raise OptionsError(_PROXY_FORM)
    proxy: dict[str, Any] = {"proxy_hostname": host, "proxy_port": port}
    if found.username:
        proxy |= {"username": unquote(found.username), "password": unquote(found.password or "")}
    return proxy


def proxy_problem(given: Any) -> str | None:
    """What is wrong with the SDK's option `http_proxy`; its values are not repeated."""
    if given is None or not given:
        return None
    if not isinstance(given, Mapping) or not given.get("proxy_hostname") or not _is_port(given.get("proxy_port")):
        return "http_proxy must have proxy_hostname and proxy_port, and may have username and password"
    return None


def _is_port(value: object) -> bool:
    return isinstance(value, int | str) and str(value).isdigit() and 1 <= int(value) <= 65_535


def proxy_of(options: Mapping[str, Any]) -> HttpProxy | None:
    """The HTTP proxy that the SDK's options name, checked before."""
    given = options.get("http_proxy")
    if not given:
        return None
    user, password = given.get("username"), given.get("password")
    host = str(given["proxy_hostname"]).removeprefix(_SCHEME)
    return HttpProxy(host, int(given["proxy_port"]), user or None, password or None)


def for_the_sdk(options: Mapping[str, Any], *, is_aio: bool) -> dict[str, Any]:
    """The same options, but the proxy is written as this kind of client wants it: only that for asyncio needs http://."""
    proxy = proxy_of(options)
    if proxy is None:
        return dict(options)
    written = {**options["http_proxy"], "proxy_hostname": f"{_SCHEME if is_aio else ''}{proxy.host}"}
    return {**options, "http_proxy": written}


def is_over_websocket(options: Mapping[str, Any]) -> bool:
    """Whether AMQP goes inside a WebSocket. Through an HTTP proxy it does, as the SDK does it, unless they say AMQP."""
    wanted = options.get("transport_type")
    if wanted is None:
        return bool(options.get("http_proxy"))
    return bool(wanted == TransportType.AmqpOverWebsocket)


def proxy_address(proxy: HttpProxy) -> str:
    """As HTTP clients take it, with its password."""
    login = f"{quote(proxy.user, safe='')}:{quote(proxy.password or '', safe='')}@" if proxy.user else ""
    return f"http://{login}{proxy.address}"
