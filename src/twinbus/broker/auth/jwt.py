"""JSON web tokens: signed statements of an issuer whose key the namespace was given.

Our own small reader, because little is needed and every leniency here is a known attack: the algorithm is the
issuer's and never the token's choice, unsigned tokens do not exist, extensions that must be understood are refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from twinbus.broker.auth.claims import Claim, with_implied
from twinbus.broker.operations import Right
from twinbus.errors import OptionsError, Unauthorized

SERVICE_AUDIENCE = "https://servicebus.azure.net"
"""What the official clients ask their identity provider for."""
SECRET_BYTES_MIN = 32
RSA_BITS_MIN = 2048
ES256_SIGNATURE_BYTES = 64
ALGORITHMS = ("HS256", "RS256", "ES256")
CLOCK_SKEW_MS = 60_000
"""An issuer's clock may be this much ahead. The end of a token is kept to the millisecond all the same."""
ISSUERS_MAX = 12
SECONDS_MAX = 10**12

ROLES = {
    "azure service bus data owner": Right.MANAGE,
    "azure service bus data sender": Right.SEND,
    "azure service bus data receiver": Right.LISTEN,
}

Verify = Callable[[bytes, bytes], bool]
"""(what was signed, signature) -> whether the issuer signed it."""


@dataclass(frozen=True, slots=True)
class JwtIssuer:
    """An issuer of accepted tokens: `issuer` is the `iss` in them, `audience` must be in their `aud`."""

    issuer: str
    algorithm: str
    """HS256 with a shared secret, RS256 or ES256 with a public key."""
    key: str = field(repr=False)
    """The secret (at least 32 bytes), or the public key as PEM text."""
    audience: str = SERVICE_AUDIENCE
    verify: Verify = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises `OptionsError` unless the key is one for the algorithm."""
        if not self.issuer or not self.audience:
            raise OptionsError("a token issuer needs a name (the 'iss' of its tokens) and an audience")
        if self.algorithm not in ALGORITHMS:
            raise OptionsError(f"the algorithm of a token issuer is {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        make = _secret_verifier if self.algorithm == "HS256" else _public_key_verifier
        object.__setattr__(self, "verify", make(self.key, self.algorithm))


def _secret_verifier(secret: str, _algorithm: str) -> Verify:
    if "-----BEGIN" in secret:  # a public key is public: anybody could sign with it
        raise OptionsError("HS256 takes a secret, and this is a PEM key: use RS256 or ES256 with it")
    key = secret.encode()
    if len(key) < SECRET_BYTES_MIN:
        raise OptionsError(f"a secret for HS256 has at least {SECRET_BYTES_MIN} bytes, got {len(key)}")

    def verify(signed: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(hmac.new(key, signed, hashlib.sha256).digest(), signature)

    return verify


def _public_key_verifier(pem: str, algorithm: str) -> Verify:
    """For RS256 or ES256; raises `OptionsError` if the text is not a public key for the algorithm."""
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OptionsError(f"{algorithm} needs a public key as PEM text (-----BEGIN PUBLIC KEY-----)") from None
    if algorithm == "RS256":
        return _rsa_verifier(key)
    return _curve_verifier(key)


def _rsa_verifier(key: object) -> Verify:
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < RSA_BITS_MIN:
        raise OptionsError(f"RS256 needs an RSA public key of at least {RSA_BITS_MIN} bits")

    def verify(signed: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, signed, padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True

    return verify


def _curve_verifier(key: object) -> Verify:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise OptionsError("ES256 needs a public key on the curve P-256")

    def verify(signed: bytes, signature: bytes) -> bool:
        if len(signature) != ES256_SIGNATURE_BYTES:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True

    return verify


def check_jwt(token: str, path: str, issuers: Sequence[JwtIssuer], now_ms: int) -> Claim:
    """The claim that a token proves for a plain path; raises `Unauthorized` if it proves none."""
    parts = token.split(".")
    if len(parts) != 3:
        raise Unauthorized("the token is neither a shared access signature nor a JWT")
    if not issuers:
        raise Unauthorized(
            "the token is a JWT, and no issuer is configured to check it with: "
            "give the namespace its issuer's key (jwt_issuers), or use a shared access key"
        )
    header, claims = _json_object(parts[0], "header"), _json_object(parts[1], "payload")
    issuer = _issuer_of(header, claims, issuers, token.rpartition(".")[0].encode(), _bytes(parts[2], "signature"))
    _check_audience(claims.get("aud"), issuer)
    return Claim(path, _rights_in(claims), _end_ms(claims, now_ms))


def _issuer_of(
    header: dict[str, Any], claims: dict[str, Any], issuers: Sequence[JwtIssuer], signed: bytes, signature: bytes
) -> JwtIssuer:
    """The issuer that signed it; it may be listed with several keys, so that they can be changed."""
    known = [issuer for issuer in issuers if issuer.issuer == claims.get("iss")]
    if not known:
        raise Unauthorized("the JWT comes from an issuer that is not configured")
    if "crit" in header:
        raise Unauthorized("the JWT asks for extensions that are not offered ('crit')")
    fitting = [issuer for issuer in known if issuer.algorithm == header.get("alg")]
    if not fitting:
        raise Unauthorized("the JWT is not signed with its issuer's algorithm")
    for issuer in fitting:
        if issuer.verify(signed, signature):
            return issuer
    raise Unauthorized("the JWT's signature does not fit its issuer's key")


def _check_audience(given: object, issuer: JwtIssuer) -> None:
    audiences = given if isinstance(given, list) else [given]
    wanted = issuer.audience.rstrip("/")
    if not any(isinstance(each, str) and each.rstrip("/") == wanted for each in audiences):
        raise Unauthorized("the JWT is meant for another audience ('aud')")


def _end_ms(claims: dict[str, Any], now_ms: int) -> int:
    until_ms = _time_ms(claims.get("exp"), "exp")
    if until_ms <= now_ms:
        raise Unauthorized("the token has expired")
    if "nbf" in claims and _time_ms(claims["nbf"], "nbf") > now_ms + CLOCK_SKEW_MS:
        raise Unauthorized("the token is not valid yet")
    return until_ms


def _time_ms(value: object, name: str) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= SECONDS_MAX:
        return int(value * 1000)
    raise Unauthorized(f"the JWT's '{name}' is not a time in seconds since 1970")


def _rights_in(claims: dict[str, Any]) -> frozenset[Right]:
    """`rights` names them; `roles` may also name roles that have nothing to do with us."""
    by_name = {right.value.lower(): right for right in Right}
    named = [by_name.get(name.lower()) for name in _names(claims, "rights")]
    if None in named:
        raise Unauthorized("the JWT's 'rights' may be Send, Listen and Manage")
    roles = [ROLES.get(name.lower()) for name in _names(claims, "roles")]
    rights = frozenset(right for right in (*named, *roles) if right is not None)
    if not rights:
        raise Unauthorized("the JWT gives no right: neither 'rights' nor 'roles' has one of this service")
    return with_implied(rights)


def _names(claims: dict[str, Any], claim: str) -> list[str]:
    names = claims.get(claim, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Unauthorized(f"the JWT's '{claim}' is not a list of names")
    return names


def _json_object(part: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(_bytes(part, what))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested without end
        raise Unauthorized(f"the JWT's {what} cannot be read") from None
    if not isinstance(value, dict):
        raise Unauthorized(f"the JWT's {what} cannot be read")
    return value


def _bytes(part: str, what: str) -> bytes:
    """Base64 in the form that JWTs use: the alphabet for addresses, nothing to fill up the end."""
    try:
        if not part or set(part) & set("+/="):
            raise ValueError
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized(f"the JWT's {what} is not base64") from None
