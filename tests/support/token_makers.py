"""Tokens as the official clients make them, and web tokens as an issuer would."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from azure.servicebus._pyamqp.utils import generate_sas_token
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from twinbus.testing import LocalNamespace

Signer = Callable[[bytes], bytes]


def python_token(uri: str, name: str, key: str, until_s: int) -> str:
    """By the official Python client itself: escapes in upper case, the name encoded twice."""
    return str(generate_sas_token(uri, name, key, until_s))  # type: ignore[no-untyped-call]


def scoped_to(namespace: LocalNamespace, path: str) -> str:
    """The connection string of somebody who may do everything, with one entity alone."""
    parts = dict(part.split("=", 1) for part in namespace.connection_string.split(";"))
    name, key = parts.pop("SharedAccessKeyName"), parts.pop("SharedAccessKey")
    token = python_token(f"{parts['Endpoint'].rstrip('/')}/{path}", name, key, int(time.time()) + 600)
    return ";".join([*(f"{each}={value}" for each, value in parts.items()), f"SharedAccessSignature={token}"])


def js_token(uri: str, name: str, key: str, until_s: int) -> str:
    """As the JavaScript client does for AMQP: another order, the name encoded once."""
    resource = js_encoded(uri)
    return f"SharedAccessSignature sr={resource}&sig={_sig(resource, until_s, key)}&se={until_s}&skn={js_encoded(name)}"


def js_http_token(url: str, name: str, key: str, until_s: int) -> str:
    """As the JavaScript client does for HTTP: the whole address with its query, all in lower case; the name bare."""
    resource = js_encoded(url.lower()).lower()
    return f"SharedAccessSignature sig={_sig(resource, until_s, key)}&se={until_s}&skn={name}&sr={resource}"


def bare_token(resource: str, name: str, key: str, until_s: int) -> str:
    """By somebody who encodes nothing."""
    sig = base64.b64encode(_hmac(f"{resource}\n{until_s}", key)).decode()
    return f"SharedAccessSignature se={until_s}&skn={name}&sig={sig}&sr={resource}"


PRODUCERS: dict[str, Callable[[str, str, str, int], str]] = {
    "python": python_token,
    "javascript": js_token,
    "javascript-http": js_http_token,
    "bare": bare_token,
}


def js_encoded(text: str) -> str:
    """What `encodeURIComponent` makes of it."""
    return quote(text, safe="!'()*-._~")


def _sig(resource: str, until_s: int, key: str) -> str:
    return js_encoded(base64.b64encode(_hmac(f"{resource}\n{until_s}", key)).decode())


def _hmac(text: str, key: str) -> bytes:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()


# --- web tokens ---


def web_token(header: Any, payload: Any, sign: Signer) -> str:
    signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(payload).encode())}"
    return f"{signed}.{_part(sign(signed.encode()))}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def secret_signer(secret: str | bytes) -> Signer:
    key = secret.encode() if isinstance(secret, str) else secret
    return lambda signed: hmac.new(key, signed, hashlib.sha256).digest()


def rsa_signer(key: rsa.RSAPrivateKey) -> Signer:
    return lambda signed: key.sign(signed, padding.PKCS1v15(), SHA256())


def curve_signer(key: ec.EllipticCurvePrivateKey) -> Signer:
    def sign(signed: bytes) -> bytes:
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    return sign


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
