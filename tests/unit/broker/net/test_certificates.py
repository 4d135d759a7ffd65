"""Certificates: made once, renewed in time, taken by strict clients; given ones are looked at before use."""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from twinbus.broker.net.certificates import Identity, load_or_make_identity, server_names, temporary_identity
from twinbus.broker.net.tls import CHECK_EVERY, Tls, make_temporary_folder, new_context, open_tls, read_identity
from twinbus.errors import OptionsError, StoreError
from twinbus.options import NamespaceOptions

NOW = datetime.now(UTC)
NAMES = server_names("127.0.0.1")
YEAR = timedelta(days=365)


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return load_or_make_identity(tmp_path, NAMES, NOW)


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake_hands(identity: Identity, name: str, *, ca: Path | None = None) -> None:
    """A TLS handshake in memory, with a client that is as strict as the library can be; raises what the client says."""
    client_context = ssl.create_default_context(cafile=ca or identity.ca)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = new_context(identity).wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", os.uname().nodename])
def test_a_strict_client_that_trusts_the_authority_takes_the_certificate(identity: Identity, name: str) -> None:
    shake_hands(identity, name)


def test_a_client_that_asks_for_another_name_does_not_take_it(identity: Identity) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(identity, "example.com")


def test_a_client_that_trusts_another_authority_does_not_take_it(identity: Identity, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(identity, "localhost", ca=load_or_make_identity(other, NAMES, NOW).ca)


def test_openssl_finds_nothing_wrong(identity: Identity) -> None:
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(identity.ca)]
    try:
        done = subprocess.run([*command, str(identity.certificate)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no openssl command")
    assert done.returncode == 0, done.stderr


def test_keys_are_for_their_owner_only_and_nothing_else_is_left(identity: Identity, tmp_path: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"ca.pem": 0o644, "server.pem": 0o644, "ca-key.pem": 0o600, "server-key.pem": 0o600}


def test_the_second_start_changes_nothing(identity: Identity, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert load_or_make_identity(tmp_path, NAMES, NOW + timedelta(days=300)) == identity
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("later", [YEAR - timedelta(days=29), YEAR * 3, -timedelta(days=2)])
def test_a_certificate_that_is_not_good_for_long_is_made_anew_by_the_same_authority(
    identity: Identity, tmp_path: Path, later: timedelta
) -> None:
    assert identity.ca is not None
    authority, old = identity.ca.read_bytes(), certificate_in(identity.certificate)
    new = certificate_in(load_or_make_identity(tmp_path, NAMES, NOW + later).certificate)
    assert new.serial_number != old.serial_number
    assert new.not_valid_before_utc <= NOW + later <= new.not_valid_after_utc - timedelta(days=300)
    assert identity.ca.read_bytes() == authority


def test_a_server_with_another_name_gets_another_certificate(identity: Identity, tmp_path: Path) -> None:
    authority = certificate_in(tmp_path / "ca.pem")
    shake_hands(load_or_make_identity(tmp_path, server_names("bus.example"), NOW), "bus.example")
    assert certificate_in(tmp_path / "ca.pem") == authority


@pytest.mark.parametrize("broken", ["server.pem", "server-key.pem"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_a_damaged_certificate_is_made_anew(
    identity: Identity, tmp_path: Path, broken: str, content: bytes | None
) -> None:
    (tmp_path / broken).unlink() if content is None else (tmp_path / broken).write_bytes(content)
    shake_hands(load_or_make_identity(tmp_path, NAMES, NOW), "localhost")


@pytest.mark.parametrize("broken", ["ca.pem", "ca-key.pem"])
def test_a_damaged_authority_is_not_replaced_behind_the_clients_backs(
    identity: Identity, tmp_path: Path, broken: str
) -> None:
    (tmp_path / broken).write_bytes(b"nonsense")
    with pytest.raises(StoreError, match=r"put back ca\.pem and ca-key\.pem, or remove both"):
        load_or_make_identity(tmp_path, NAMES, NOW)
    (tmp_path / "ca.pem").unlink()
    shake_hands(load_or_make_identity(tmp_path, NAMES, NOW), "localhost")


def test_the_key_of_another_authority_is_noticed(identity: Identity, tmp_path: Path) -> None:
    (tmp_path / "ca-key.pem").write_bytes(identity.key.read_bytes())
    with pytest.raises(StoreError, match="do not belong together"):
        load_or_make_identity(tmp_path, NAMES, NOW)


def test_an_authority_that_has_come_to_its_end_is_replaced(identity: Identity, tmp_path: Path) -> None:
    old = certificate_in(tmp_path / "ca.pem")
    load_or_make_identity(tmp_path, NAMES, old.not_valid_after_utc - timedelta(days=10))
    assert certificate_in(tmp_path / "ca.pem") != old


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        load_or_make_identity(tmp_path / "missing", NAMES, NOW)


def test_a_name_that_means_every_address_is_no_name() -> None:
    assert server_names("0.0.0.0") == server_names("::") == server_names("localhost")


# --- in memory ---


def test_namespaces_that_keep_nothing_share_an_authority_and_leave_no_folder() -> None:
    options = NamespaceOptions(name="Contoso")
    first, second = open_tls(options, 1, NOW), open_tls(options, 1, NOW)
    assert first.identity.ca is not None
    assert second.identity.ca is not None
    assert first.identity.ca != second.identity.ca
    assert first.identity.ca.read_bytes() == second.identity.ca.read_bytes()
    homes = [tls.identity.ca.parent for tls in (first, second) if tls.identity.ca is not None]
    assert [home.stat().st_mode & 0o777 for home in homes] == [0o700, 0o700]
    first.close()
    second.close()
    assert not any(home.exists() for home in homes)


def test_the_next_namespace_of_the_same_name_and_port_has_the_same_folder() -> None:
    first = make_temporary_folder("contoso", 1)
    first.rmdir()
    assert make_temporary_folder("contoso", 1) == first
    shake_hands(temporary_identity(first, NAMES, NOW), "localhost")
    Tls(lambda now: temporary_identity(first, NAMES, now), NOW, temporary_folder=first).close()
    assert not first.exists()


# --- given ones ---


def test_a_given_certificate_that_signed_itself_is_what_clients_have_to_trust(
    identity: Identity, tmp_path: Path
) -> None:
    assert identity.ca is not None
    assert read_identity(identity.ca, tmp_path / "ca-key.pem").ca == identity.ca


def test_a_given_certificate_of_somebody_else_needs_no_file(identity: Identity) -> None:
    given = read_identity(identity.certificate, identity.key)
    assert given.ca is None
    shake_hands(given, "localhost", ca=identity.ca)


def test_a_chain_that_ends_with_its_root_is_what_clients_have_to_trust(identity: Identity, tmp_path: Path) -> None:
    assert identity.ca is not None
    chain = tmp_path / "chain.pem"
    chain.write_bytes(identity.certificate.read_bytes() + identity.ca.read_bytes())
    given = read_identity(chain, identity.key)
    assert given.ca == chain
    shake_hands(given, "localhost")


def test_given_files_that_are_no_identity_are_reported_in_one_line(identity: Identity, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("hello")
    locked = tmp_path / "locked.pem"
    key = rsa.generate_private_key(65537, 2048)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for certificate, key_file, complaint in [
        (tmp_path / "missing", identity.key, "certificate file .*missing cannot be read: No such file"),
        (tmp_path, identity.key, "cannot be read: Is a directory"),
        (nonsense, identity.key, "nonsense has no certificate in PEM form"),
        (identity.key, identity.key, "has no certificate in PEM form"),
        (identity.certificate, tmp_path / "missing", "key file .*missing cannot be read"),
        (identity.certificate, nonsense, "nonsense has no private key in PEM form"),
        (identity.certificate, identity.certificate, "has no private key in PEM form"),
        (identity.certificate, locked, "protected by a passphrase"),
        (identity.certificate, tmp_path / "ca-key.pem", "does not belong to the certificate"),
    ]:
        with pytest.raises(OptionsError, match=complaint):
            read_identity(certificate, key_file)


# --- while a server runs ---


def test_a_running_server_renews_its_certificate(tmp_path: Path) -> None:
    tls = Tls(lambda now: load_or_make_identity(tmp_path, NAMES, now), NOW)
    context, serial = tls.context(NOW), certificate_in(tls.identity.certificate).serial_number
    assert tls.context(NOW + CHECK_EVERY) is context
    assert certificate_in(tls.identity.certificate).serial_number == serial
    assert tls.context(NOW + YEAR) is context
    assert certificate_in(tls.identity.certificate).serial_number != serial


def test_a_certificate_that_was_spoiled_meanwhile_does_not_end_a_running_server(
    identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(lambda _: read_identity(identity.certificate, identity.key), NOW)
    identity.certificate.unlink()
    with caplog.at_level(logging.WARNING):
        assert tls.context(NOW + CHECK_EVERY) is tls.context(NOW)
    assert "the old certificate stays in use" in caplog.text
