"""Who may do what: shared access keys, and the signed tokens made with them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import unquote, unquote_plus

from twinbus.errors import Unauthorized

SAS_PREFIX = "SharedAccessSignature "


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A named key. Whoever holds it may do everything in the namespace."""

    name: str
    secret: str

    def matches(self, name: str, secret: str) -> bool:
        return hmac.compare_digest(self.name.encode(), name.encode()) and hmac.compare_digest(
            self.secret.encode(), secret.encode()
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What a token proves: the holder may use a resource, and everything below it, until a time."""

    resource: str
    until_ms: int

    def covers(self, path: str, now_ms: int) -> bool:
        """Whether the claim holds for an entity's path, whatever its case."""
        wanted = path.lower()
        return now_ms < self.until_ms and (
            self.resource == "" or wanted == self.resource or wanted.startswith(self.resource + "/")
        )


def resource_path(uri: str) -> str:
    """The path in an address such as `sb://host:port/orders`, lower-cased, without slashes at its ends."""
    _, separator, rest = uri.partition("://")
    path = rest.partition("/")[2] if separator else uri
    return path.strip("/").lower()


def check_token(token: str, audience: str, keys: tuple[AccessKey, ...], now_ms: int) -> Claim:
    """The claim a shared access signature proves for an audience; raises `Unauthorized` if it proves none.

    The signature covers the resource as it stands in the token, still encoded: producers encode it differently.
    """
    fields = _fields_of(token)
    key = next((key for key in keys if key.name in (unquote(fields["skn"]), unquote(unquote(fields["skn"])))), None)
    if key is None:
        raise Unauthorized("the token names a key that this namespace does not have")
    _check_signature(fields, key)
    until_ms = _expiry_ms(fields["se"])
    if until_ms <= now_ms:
        raise Unauthorized("the token has expired")
    scope, wanted = resource_path(unquote_plus(fields["sr"])), resource_path(audience)
    if scope not in ("", wanted) and not wanted.startswith(scope + "/"):
        raise Unauthorized("the token was made for another resource")
    return Claim(wanted, until_ms)


def _fields_of(token: str) -> dict[str, str]:
    if not token.startswith(SAS_PREFIX):
        raise Unauthorized("the token is not a shared access signature")
    fields = dict(part.partition("=")[::2] for part in token[len(SAS_PREFIX) :].split("&"))
    missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
    if missing:
        raise Unauthorized(f"the token lacks {', '.join(missing)}")
    return fields


def _check_signature(fields: dict[str, str], key: AccessKey) -> None:
    signed = f"{fields['sr']}\n{fields['se']}".encode()
    expected = hmac.new(key.secret.encode(), signed, hashlib.sha256).digest()
    try:
        given = base64.b64decode(unquote(fields["sig"]), validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized("the token's signature is not base64") from None
    if not hmac.compare_digest(expected, given):
        raise Unauthorized("the token's signature does not fit the key")


def _expiry_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Unauthorized("the token's expiry is not a time in seconds")
    return int(text) * 1000
