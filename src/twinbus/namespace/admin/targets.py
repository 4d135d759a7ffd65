"""Where messages are forwarded to, as documents write it: an address of an entity in this namespace."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

MAIN_AUTHORIZATION = "Authorization"
TARGET_AUTHORIZATIONS = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""By setting: the header with a token for the target."""


def read_target(text: str, host: str) -> str:
    """The path in `sb://host:port/orders`, or in `orders`; raises `ValueError` if that is in another namespace.

    `host` is how the client reaches this namespace; a port that the address leaves out is not looked at.
    """
    if "://" not in text:
        return text
    address = urlsplit(text)
    ours = urlsplit(f"//{host}")
    if address.hostname != ours.hostname or address.port not in (None, ours.port):
        raise ValueError(text)
    return unquote(address.path).strip("/")


def write_target(path: str, base_url: str) -> str:
    """The address of a path, for a client that dialled `base_url`."""
    return f"sb://{base_url.partition('://')[2]}/{quote(path, safe='/~')}"
