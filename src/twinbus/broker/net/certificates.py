"""Certificates for TLS: for development an authority and a server certificate of our own, or given ones.

The authority is made once and kept, since clients are told to trust it; the server's certificate is made anew whenever
it is about to expire or the names of the server change.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twinbus.errors import StoreError
from twinbus.own_files import refuse_foreign_link, write_whole

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
SERVER_FILE, SERVER_KEY_FILE = "server.pem", "server-key.pem"
PUBLIC_MODE = 0o644

CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
"""What has less than this left is made anew."""
CLOCK_SLACK = timedelta(days=1)
"""How far the clock of a client may be behind ours when it gets a new certificate."""

_EVERY_ADDRESS = {"0.0.0.0", "::"}


class Identity(NamedTuple):
    """The certificate and key files of a server."""

    certificate: Path
    key: Path
    ca: Path | None
    """What a client has to trust for that; None: machines trust it anyway."""


@dataclass(frozen=True, slots=True)
class DevAuthority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def server_names(host: str) -> frozenset[str]:
    """The names and addresses by which clients may know a server that listens on `host`."""
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname(), host} - _EVERY_ADDRESS
    return frozenset(name.lower() for name in names if name and name.isascii())


# --- our own ---


def load_or_make_identity(home: Path, names: frozenset[str], now: datetime) -> Identity:
    """The identity that is kept in this folder, made or renewed where needed; raises `StoreError` if it cannot be."""
    try:
        authority = _kept_authority(home, now)
        return _identity(home, authority, names, now)
    except OSError as error:
        raise StoreError(f"the certificates in {home} cannot be written: {error.strerror}") from None


def temporary_identity(home: Path, names: frozenset[str], now: datetime) -> Identity:
    """An identity for a server that keeps nothing. All of one process have the same authority."""
    authority = _authority_of_this_process()
    if not (home / CA_FILE).exists():
        write_whole(home / CA_FILE, _pem(authority.certificate), PUBLIC_MODE)
    return _identity(home, authority, names, now)


def _identity(home: Path, authority: DevAuthority, names: frozenset[str], now: datetime) -> Identity:
    if not _is_usable(home, authority, names, now):
        _issue(home, authority, names, now)
    folder = home.absolute()
    return Identity(folder / SERVER_FILE, folder / SERVER_KEY_FILE, folder / CA_FILE)


@cache
def _authority_of_this_process() -> DevAuthority:
    return _new_authority(datetime.now(UTC))


def _kept_authority(home: Path, now: datetime) -> DevAuthority:
    refuse_foreign_link(home / CA_FILE)
    if (home / CA_FILE).exists():
        kept = _read_authority(home)
        if now < kept.certificate.not_valid_after_utc - RENEW_BEFORE:
            return kept
    made = _new_authority(now)
    write_whole(home / CA_KEY_FILE, _key_pem(made.key))
    write_whole(home / CA_FILE, _pem(made.certificate), PUBLIC_MODE)  # last: it says that the key is there too
    return made


def _read_authority(home: Path) -> DevAuthority:
    ways_out = f"put back {CA_FILE} and {CA_KEY_FILE}, or remove both and let clients trust the new {CA_FILE}"
    try:
        certificate = x509.load_pem_x509_certificate(_read(home / CA_FILE))
        key = private_key(_read(home / CA_KEY_FILE))
    except (OSError, ValueError, TypeError):
        raise StoreError(f"the certificate authority in {home} cannot be read: {ways_out}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise StoreError(f"the certificate authority in {home} and its key do not belong together: {ways_out}")
    return DevAuthority(certificate, key)


def _is_usable(home: Path, authority: DevAuthority, names: frozenset[str], now: datetime) -> bool:
    """Whether the server certificate in this folder is right, and will be for a while."""
    try:
        certificate = x509.load_pem_x509_certificate(_read(home / SERVER_FILE))
        key = private_key(_read(home / SERVER_KEY_FILE))
        certificate.verify_directly_issued_by(authority.certificate)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return (
        key.public_key() == certificate.public_key()
        and {str(name.value) for name in alternative} == names
        and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEW_BEFORE
    )


def _new_authority(now: datetime) -> DevAuthority:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own, so that two authorities in one trust store are never taken for each other.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"twinbus development CA {os.urandom(4).hex()}")])
    certificate = (
        _builder(name, name, key.public_key(), now, now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return DevAuthority(certificate, key)


def _issue(home: Path, authority: DevAuthority, names: frozenset[str], now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "twinbus development server")])
    issuer = authority.certificate
    until = min(now + SERVER_LIFE, issuer.not_valid_after_utc)
    issuer_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(name, issuer.subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    write_whole(home / SERVER_KEY_FILE, _key_pem(key))
    write_whole(home / SERVER_FILE, _pem(certificate), PUBLIC_MODE)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# --- files ---


def private_key(pem: bytes) -> PrivateKeyTypes:
    """A key that is not protected; raises `ValueError` if it is not a key, `TypeError` if it has a passphrase."""
    return serialization.load_pem_private_key(pem, password=None)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _read(path: Path) -> bytes:
    refuse_foreign_link(path)
    return path.read_bytes()
