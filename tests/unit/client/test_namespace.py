from __future__ import annotations

import ssl
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import certifi
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType

from twinbus.client.namespace import Namespace
from twinbus.errors import OptionsError
from twinbus.plain_text import without_keys
from twinbus.transport.dial import JWT, SAS_TOKEN
from twinbus.transport.network.http_tunnel import HttpProxy

KEY = AzureNamedKeyCredential("sender", "c2VjcmV0")
SIGNATURE = "SharedAccessSignature sr=sb%3a%2f%2fx&sig=s3cr3t%3d&se=4102444800&skn=sender"
AZURE = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=sender;SharedAccessKey=c2VjcmV0"
EMBEDDED = (
    "Endpoint=sb://localhost:5673;SharedAccessKeyName=sender;SharedAccessKey=c2VjcmV0;"
    f"UseDevelopmentEmulator=true;TwinbusNamespace=backup;TwinbusCA={certifi.where()}"
)


class FakeCredential:
    """A token credential, as those of azure-identity."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(f"token for {scopes[0]}", 4_102_444_800)


class FakeAioCredential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(f"token for {scopes[0]}", 4_102_444_800)


# --- what it is called and where it is ---


@pytest.mark.parametrize(
    ("written", "name", "address"),
    [
        ("contoso.servicebus.windows.net.", "contoso", "contoso.servicebus.windows.net:5671"),
        ("broker.:6000", "broker", "broker:6000"),
        ("contoso.servicebus.windows.net", "contoso", "contoso.servicebus.windows.net:5671"),
        ("Contoso.ServiceBus.Windows.net", "contoso", "contoso.servicebus.windows.net:5671"),
        ("sb://contoso.servicebus.windows.net/", "contoso", "contoso.servicebus.windows.net:5671"),
        ("https://contoso.servicebus.windows.net:443/", "contoso", "contoso.servicebus.windows.net:5671"),
        ("broker:5000", "broker", "broker:5000"),
        ("localhost:5000", None, "localhost:5000"),
        ("127.0.0.1", None, "127.0.0.1:5671"),
        ("[::1]:5000", None, "[::1]:5000"),
    ],
)
def test_name_and_address_are_read_from_the_host(written: str, name: str | None, address: str) -> None:
    namespace = Namespace(written, KEY)
    assert (namespace.name, namespace.address) == (name, address)


@pytest.mark.parametrize(
    ("text", "given", "name"),
    [(AZURE, None, "contoso"), (AZURE, "other", "other"), (EMBEDDED, None, "backup"), (EMBEDDED, "other", "other")],
)
def test_a_name_that_is_given_wins(text: str, given: str | None, name: str) -> None:
    assert Namespace.from_connection_string(text, name=given).name == name


def test_two_values_mean_the_same_namespace_if_their_addresses_are_equal() -> None:
    by_string = Namespace.from_connection_string(AZURE)
    by_name = Namespace("CONTOSO.servicebus.windows.net", FakeCredential(), transport_type=TransportType.Amqp)
    assert by_string.address == by_name.address
    assert by_string != by_name


def test_a_namespace_has_something_to_be_called_by_in_texts() -> None:
    assert Namespace("localhost:5000", KEY).host_label == "localhost:5000"
    assert Namespace("localhost:5000", KEY, name="contoso").host_label == "contoso"


def test_it_is_a_value() -> None:
    one, other = (Namespace("localhost:5000", KEY, user_agent="me") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(FrozenInstanceError):
        one.host = "elsewhere"  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.sdk_options["user_agent"] = "you"  # type: ignore[index]


@pytest.mark.parametrize(
    "text", [AZURE, EMBEDDED, AZURE.partition("SharedAccessKeyName")[0] + f"SharedAccessSignature={SIGNATURE}"]
)
def test_no_secret_is_shown(text: str) -> None:
    shown = repr(Namespace.from_connection_string(text)) + repr(Namespace.from_connection_string(text).dial())
    assert "c2VjcmV0" not in shown
    assert "s3cr3t" not in shown


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no Endpoint"),
        ("nonsense", "not Name=value"),
        ("Endpoint=sb://contoso.servicebus.windows.net/", "needs SharedAccessKeyName and SharedAccessKey"),
        ("Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=sender", "SharedAccessSignature"),
        (AZURE + f";SharedAccessSignature={SIGNATURE}", "keep one of them"),
        ("Endpoint=sb://x/;SharedAccessSignature=nonsense", "sig=...&se="),
        ("Endpoint=sb://:99999/;SharedAccessKeyName=a;SharedAccessKey=b", "HOST"),
    ],
)
def test_a_wrong_connection_string_is_refused_with_what_is_right(text: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        Namespace.from_connection_string(text)


@pytest.mark.parametrize("credential", [None, "c2VjcmV0", FakeCredential, object()])
def test_what_is_no_credential_is_refused(credential: Any) -> None:
    with pytest.raises(OptionsError, match="credential must be") as refused:
        Namespace("contoso.servicebus.windows.net", credential)
    assert "c2VjcmV0" not in str(refused.value)


def test_all_problems_are_reported_at_once() -> None:
    wrong: Any = 7
    with pytest.raises(OptionsError) as refused:
        Namespace("not a host", wrong, name="a/b", retry_total=3)
    for problem in ("HOST:PORT", "credential must be", "name must be", "retry_total cannot be given"):
        assert problem in str(refused.value)


def test_a_connection_string_in_the_wrong_place_is_reported_without_its_key() -> None:
    with pytest.raises(OptionsError, match="from_connection_string") as refused:
        Namespace(AZURE, KEY)
    assert "c2VjcmV0" not in str(refused.value)


def test_certificates_that_are_not_there_are_reported() -> None:
    namespace = Namespace("broker:5000", KEY, connection_verify="/no/such/file.pem")
    with pytest.raises(OptionsError, match=r"/no/such/file.pem is not there"):
        namespace.sync_client()


def test_a_file_without_certificates_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    namespace = Namespace("broker:5000", KEY, connection_verify=str(tmp_path / "ca.pem"))
    with pytest.raises(OptionsError, match="holds no certificates"):
        namespace.sync_client()


def test_a_credential_for_asyncio_cannot_be_used_by_threads() -> None:
    namespace = Namespace("contoso.servicebus.windows.net", FakeAioCredential())  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match=r"twinbus\.aio"):
        namespace.sync_client()


# --- what clients are built with ---


def test_clients_make_one_attempt() -> None:
    for client in (Namespace.from_connection_string(AZURE).sync_client(), Namespace("x.y", KEY).aio_client()):
        assert client._config.retry_total == 0


def test_the_standard_port_needs_no_custom_endpoint() -> None:
    client = Namespace.from_connection_string(AZURE).sync_client()
    assert client._config.custom_endpoint_address is None
    assert client._config.use_tls
    assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"


def test_tls_on_another_port_goes_through_a_custom_endpoint() -> None:
    for client in (Namespace("broker:5000", KEY).sync_client(), Namespace("broker:5000", KEY).aio_client()):
        assert client._custom_endpoint_address == "sb://broker:5000"
        assert client._config.transport_type is TransportType.Amqp
        assert client.fully_qualified_namespace == "broker"


def test_the_emulators_string_means_plain_amqp_on_its_port() -> None:
    client = Namespace.from_connection_string(EMBEDDED).sync_client()
    assert not client._config.use_tls
    assert client.fully_qualified_namespace == "localhost:5673"


def test_plain_connections_of_asyncio_do_not_read_the_certificates_of_the_machine_each_time() -> None:
    """It takes 20 ms, in which the event loop does nothing else: half a second for 25 senders."""
    context = Namespace.from_connection_string(EMBEDDED).aio_client()._config.ssl_context
    assert context is not None
    assert context.get_ca_certs() == []


def test_a_gateway_of_the_users_own_is_left_as_it_is() -> None:
    namespace = Namespace("contoso.servicebus.windows.net", KEY, custom_endpoint_address="sb://gateway:6000")
    assert namespace.sync_client()._custom_endpoint_address == "sb://gateway:6000"
    dial = namespace.dial()
    assert (dial.host, dial.port, dial.server_hostname) == ("gateway", 6000, "gateway")
    assert dial.hostname == "contoso.servicebus.windows.net"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [(AZURE, "https://contoso.servicebus.windows.net"), (EMBEDDED, "https://localhost:5673")],
)
def test_the_administration_is_where_the_sdk_looks_for_it(text: str, endpoint: str) -> None:
    with Namespace.from_connection_string(text).admin_client() as admin:
        assert admin._endpoint.rstrip("/") == endpoint


def test_a_proxy_is_used_by_the_administration_too() -> None:
    proxy = {"proxy_hostname": "gate", "proxy_port": 3128, "username": "me", "password": "p@ss"}
    namespace = Namespace("contoso.servicebus.windows.net", KEY, http_proxy=proxy)
    assert namespace._admin_options(5)["proxies"] == {"https": "http://me:p%40ss@gate:3128"}
    assert namespace.sync_client()._config.transport_type is TransportType.AmqpOverWebsocket
    dial = namespace.dial()
    assert dial.over_websocket
    assert (dial.host, dial.port) == ("contoso.servicebus.windows.net", 443)
    assert dial.proxy == HttpProxy("gate", 3128, "me", "p@ss")
    assert "p@ss" not in f"{dial!r} {namespace!r}"


def test_the_engine_goes_through_a_proxy_without_a_websocket_if_amqp_is_said() -> None:
    proxy = {"proxy_hostname": "gate", "proxy_port": 3128}
    namespace = Namespace("contoso.servicebus.windows.net", KEY, http_proxy=proxy, transport_type=TransportType.Amqp)
    dial = namespace.dial()
    assert not dial.over_websocket
    assert (dial.port, dial.proxy) == (5671, HttpProxy("gate", 3128))
    assert namespace.sync_client()._config.transport_type is TransportType.AmqpOverWebsocket


@pytest.mark.parametrize("proxy", [{"proxy_hostname": "gate"}, {"proxy_port": 1}, "http://me:secret@gate:1", 3128])
def test_a_proxy_that_is_not_described_as_the_sdk_wants_it_is_refused(proxy: object) -> None:
    with pytest.raises(OptionsError, match="proxy_hostname and proxy_port") as refused:
        Namespace("contoso.servicebus.windows.net", KEY, http_proxy=proxy)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("written", ["AmqpWebSockets", "amqpwebsockets"])
def test_a_connection_string_can_ask_for_a_websocket(written: str) -> None:
    namespace = Namespace.from_connection_string(f"{AZURE};TransportType={written}")
    assert namespace.sync_client()._config.transport_type is TransportType.AmqpOverWebsocket
    dial = namespace.dial()
    assert (dial.host, dial.port, dial.over_websocket) == ("contoso.servicebus.windows.net", 443, True)
    assert namespace.address == Namespace.from_connection_string(AZURE).address, "it is the same namespace"


def test_a_port_that_is_written_counts_for_a_websocket_too() -> None:
    for text in (EMBEDDED, EMBEDDED.replace("UseDevelopmentEmulator=true", "")):
        namespace = Namespace.from_connection_string(f"{text};TransportType=AmqpWebSockets")
        assert namespace.dial().port == 5673
        assert namespace.sync_client()._custom_endpoint_address == "sb://localhost:5673"
        assert namespace.sync_client()._config.transport_type is TransportType.AmqpOverWebsocket


def test_a_connection_string_can_name_a_proxy_with_user_and_password() -> None:
    text = f"{AZURE};TwinbusProxy=http://me:p%40s%3Bs@gate:3128"
    namespace = Namespace.from_connection_string(text)
    assert namespace.dial().proxy == HttpProxy("gate", 3128, "me", "p@s;s")
    assert namespace._admin_options(5)["proxies"] == {"https": "http://me:p%40s%3Bs@gate:3128"}
    assert "p%40s" not in without_keys(text)
    assert "TwinbusProxy=http://***@gate:3128" in without_keys(text)


@pytest.mark.parametrize(
    "written",
    [
        "TransportType=carrier-pigeon-secret",
        "TwinbusProxy=gate:3128:secret",
        "TwinbusProxy=http://me:secret@gate",
        "TwinbusProxy=https://me:secret@gate:3128",
        "TwinbusProxy=http://me:secret@gate:port",
        "TwinbusProxy=http://gate:3128/secret",
    ],
)
def test_an_unknown_way_is_refused_without_repeating_it(written: str) -> None:
    with pytest.raises(OptionsError, match=written.partition("=")[0]) as refused:
        Namespace.from_connection_string(f"{AZURE};{written}")
    assert "secret" not in str(refused.value)


def test_a_given_tls_context_is_used() -> None:
    context = ssl.create_default_context()
    assert Namespace("broker:5000", KEY, ssl_context=context).dial().tls is context


# --- how our own engine gets there ---


def test_the_engine_dials_the_same_place() -> None:
    dial = Namespace.from_connection_string(EMBEDDED).dial()
    assert (dial.host, dial.port, dial.tls, dial.server_hostname) == ("localhost", 5673, None, None)
    dial = Namespace.from_connection_string(AZURE).dial()
    assert (dial.host, dial.port) == ("contoso.servicebus.windows.net", 5671)
    assert dial.tls is not None
    assert dial.tls.verify_mode is ssl.CERT_REQUIRED


def test_a_key_makes_tokens_for_an_audience() -> None:
    token = Namespace.from_connection_string(AZURE).dial().get_token("sb://contoso.servicebus.windows.net/orders")
    assert token.type == SAS_TOKEN
    assert token.text.startswith("SharedAccessSignature sr=sb%3A%2F%2Fcontoso.servicebus.windows.net%2Forders&sig=")


def test_a_signature_is_its_own_token() -> None:
    token = Namespace("contoso.servicebus.windows.net", AzureSasCredential(SIGNATURE)).dial().get_token("sb://any")
    assert (token.text, token.type, token.expires_at) == (SIGNATURE, SAS_TOKEN, 4_102_444_800)


def test_a_token_credential_is_asked_for_a_web_token() -> None:
    token = Namespace("contoso.servicebus.windows.net", FakeCredential()).dial().get_token("sb://any")
    assert (token.text, token.type) == ("token for https://servicebus.azure.net//.default", JWT)
