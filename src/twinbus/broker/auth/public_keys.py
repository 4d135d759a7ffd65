"""Public keys of token issuers: read once, strictly, and then a question with a yes or a no."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from twinbus.errors import OptionsError

RSA_BITS_MIN = 2048
ES256_SIGNATURE_BYTES = 64

Verify = Callable[[bytes, bytes], bool]


def verifier_for(pem: str, algorithm: str) -> Verify:
    """(what was signed, signature) -> whether the key's owner signed it, by RS256 or ES256.

    Raises `OptionsError` if the text is no public key for the algorithm.
    """
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
