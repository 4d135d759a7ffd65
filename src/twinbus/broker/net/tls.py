"""TLS of a server: which certificate it shows, and how that is renewed."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from twinbus.broker.data_directory import make_namespace_directory
from twinbus.broker.net.certificates import (
    Identity,
    load_or_make_identity,
    private_key,
    server_names,
    temporary_identity,
)
from twinbus.errors import OptionsError, StoreError, TwinbusError
from twinbus.options import EndpointOptions

logger = logging.getLogger("twinbus.namespace")

CHECK_EVERY = timedelta(hours=12)
"""How often a running server looks whether its certificate is to be renewed, or was replaced by its owner."""


def open_tls(options: EndpointOptions, port: int, now: datetime) -> Tls:
    """TLS as these options want it; raises `OptionsError` or `StoreError`."""
    certificate, key, names = options.cert, options.key_file, server_names(options.host)
    if certificate is not None and key is not None:
        return Tls(lambda _: read_identity(certificate, key), now)
    if options.data is not None:
        return Tls(partial(load_or_make_identity, make_namespace_directory(options.data, options.name), names), now)
    home = make_temporary_folder(options.name, port)
    return Tls(partial(temporary_identity, home, names), now, temporary_folder=home)


def make_temporary_folder(name: str, port: int) -> Path:
    """A folder for a namespace that keeps nothing; the same for the next one of this name and port in this process."""
    path = Path(tempfile.gettempdir()) / f"twinbus-{os.getpid()}-{name.lower()}-{port}"
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # left by a killed process, or made by another user
        return Path(tempfile.mkdtemp(prefix=f"{path.name}-"))
    except OSError as error:
        raise StoreError(f"the folder {path} for certificates cannot be made: {error.strerror}") from None
    return path


class Tls:
    """A TLS context that follows its identity, however long the server runs."""

    def __init__(
        self, find_identity: Callable[[datetime], Identity], now: datetime, *, temporary_folder: Path | None = None
    ) -> None:
        """`find_identity` is asked again from time to time. Raises what it raises, and `OptionsError`.

        `close` removes the `temporary_folder`.
        """
        self._temporary_folder = temporary_folder
        self._find_identity = find_identity
        self.identity = find_identity(now)
        self._context = new_context(self.identity)
        self._check_at = now + CHECK_EVERY

    def context(self, now: datetime) -> ssl.SSLContext:
        """For the next connection."""
        if now >= self._check_at:
            self._check_at = now + CHECK_EVERY
            self._renew(now)
        return self._context

    def close(self) -> None:
        if self._temporary_folder is not None:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)

    def _renew(self, now: datetime) -> None:
        try:
            self.identity = self._find_identity(now)
            _load(self._context, self.identity)
        except TwinbusError as error:
            logger.warning("the old certificate stays in use: %s", error)


def new_context(identity: Identity) -> ssl.SSLContext:
    """For a server that shows this identity; raises `OptionsError` if the TLS library does not take it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])  # for clients that ask; AMQP clients do not
    _load(context, identity)
    return context


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    try:
        context.load_cert_chain(identity.certificate, identity.key)
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror
        raise OptionsError(f"the certificate {identity.certificate} cannot be used for TLS: {reason}") from None


def read_identity(certificate: Path, key: Path) -> Identity:
    """The identity in files of the user's; raises `OptionsError` if they hold none."""
    pem = _read(certificate, "certificate")
    try:
        chain = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise OptionsError(f"the certificate file {certificate} has no certificate in PEM form") from None
    if _read_key(key).public_key() != chain[0].public_key():
        raise OptionsError(f"the key in {key} does not belong to the certificate in {certificate}")
    is_self_signed = chain[-1].issuer == chain[-1].subject
    return Identity(certificate.absolute(), key.absolute(), certificate.absolute() if is_self_signed else None)


def names_in(certificate: Path) -> list[str]:
    """The hosts that a certificate is for, without those of a whole domain; names come before addresses."""
    leaf = x509.load_pem_x509_certificates(_read(certificate, "certificate"))[0]
    try:
        listed = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    names = [name for name in listed.get_values_for_type(x509.DNSName) if not name.startswith("*")]
    return names + [str(address) for address in listed.get_values_for_type(x509.IPAddress)]


def _read_key(path: Path) -> PrivateKeyTypes:
    pem = _read(path, "key")
    try:
        return private_key(pem)
    except TypeError:
        raise OptionsError(f"the key file {path} is protected by a passphrase: give one without") from None
    except ValueError:
        raise OptionsError(f"the key file {path} has no private key in PEM form") from None


def _read(path: Path, kind: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionsError(f"the {kind} file {path} cannot be read: {error.strerror}") from None
