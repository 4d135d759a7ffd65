"""Connection strings: written, read, and what is said about wrong ones."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.connection_string import ConnectionString
from twinbus.errors import OptionsError

values = st.text(
    st.characters(exclude_characters=";\r\n\x85\u2028\u2029", exclude_categories=["Cs", "Cc"]), min_size=1
).filter(lambda text: text == text.strip())
hosts = (
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)
    | st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(str)
)
strings = st.builds(
    ConnectionString,
    host=hosts,
    port=st.integers(1, 65_535),
    namespace=values,
    key=values,
    key_name=values,
    ca_file=st.none() | values.map(Path).filter(lambda path: str(path) == str(path).strip()),
    is_emulator=st.booleans(),
)


@given(strings)
def test_what_is_written_is_read_back(said: ConnectionString) -> None:
    assert ConnectionString.parse(str(said)) == said


@given(strings, st.randoms())
def test_order_case_unknown_parts_and_spaces_do_not_matter(said: ConnectionString, chance: Random) -> None:
    parts = [*str(said).split(";"), "EntityPath=orders", "", " "]
    chance.shuffle(parts)
    turned = [
        f" {name.swapcase()} {'=' if value else ''} {value} " for name, _, value in (p.partition("=") for p in parts)
    ]
    assert ConnectionString.parse(";".join(part if part.strip() else "" for part in turned)) == said


def test_a_string_of_the_real_service_is_understood() -> None:
    said = ConnectionString.parse(
        "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey=abc=/+=;EntityPath=orders"
    )
    assert (said.host, said.port, said.namespace) == ("contoso.servicebus.windows.net", 5671, "contoso")
    assert (said.key_name, said.key, said.ca_file, said.is_emulator) == ("app", "abc=/+=", None, False)


def test_a_development_string_without_a_port_means_plain_amqp() -> None:
    text = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    said = ConnectionString.parse(text, namespace="contoso")
    assert (said.host, said.port, said.namespace) == ("localhost", 5672, "contoso")


def test_a_given_name_wins() -> None:
    text = "Endpoint=sb://a.example;SharedAccessKeyName=n;SharedAccessKey=k;TwinbusNamespace=inside"
    assert ConnectionString.parse(text).namespace == "inside"
    assert ConnectionString.parse(text, namespace="given").namespace == "given"


REST = ";SharedAccessKeyName=n;SharedAccessKey=k;TwinbusNamespace=c"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no Endpoint and no SharedAccessKeyName and no SharedAccessKey"),
        ("Endpoint=sb://h;SharedAccessKey=k", "has no SharedAccessKeyName$"),
        ("Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=", "has no SharedAccessKey$"),
        ("Endpoint=sb://h;nonsense", "part 2 .* not Name=value"),
        ("Endpoint=sb://h;=x", "part 2 .* not Name=value"),
        (f"Endpoint=https://h{REST}", "must be sb://HOST"),
        (f"Endpoint=h:5672{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://h:port{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://h:65536{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://h:0{REST}", "from 1 to 65535, got 0"),
        (f"Endpoint=sb://[::1{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://h\u2100st{REST}", "must be sb://HOST"),
        (f"Endpoint=sb://h st{REST}", "host name"),
        ("Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=n;SharedAccessKey=k", "TwinbusNamespace=NAME"),
        ("Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k", "TwinbusNamespace=NAME"),
        ("Endpoint=sb://[::1];SharedAccessKeyName=n;SharedAccessKey=k", "TwinbusNamespace=NAME"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(OptionsError, match=complaint):
        ConnectionString.parse(text)


def test_a_broken_string_does_not_give_its_key_away() -> None:
    with pytest.raises(OptionsError) as caught:
        ConnectionString.parse("Endpoint=sb://h;SharedAccessKeyName=n;c2VjcmV0")
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "a;b", " a", "a ", "a\nb"])
def test_what_cannot_be_written_is_refused(value: str) -> None:
    with pytest.raises(OptionsError, match="SharedAccessKey cannot"):
        ConnectionString(host="h", port=1, namespace="n", key=value)


@given(st.text())
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    with contextlib.suppress(OptionsError):
        ConnectionString.parse(text)


def test_a_key_behind_a_forgotten_semicolon_is_not_repeated() -> None:
    text = "Endpoint=sb://contoso:1 SharedAccessKey=verysecret=;SharedAccessKeyName=a;SharedAccessKey=b"
    with pytest.raises(OptionsError) as refused:
        ConnectionString.parse(text, namespace="contoso")
    assert "verysecret" not in str(refused.value)
    assert "'sb://contoso:1'" in str(refused.value)
