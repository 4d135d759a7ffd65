"""Options of a proxy: checked once, every problem in one message."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from twinbus import Namespace, SendAvailabilityPairedNamespaceOptions
from twinbus.errors import OptionsError
from twinbus.options import EndpointOptions, NamespaceOptions
from twinbus.proxy.options import ProxyOptions

KEY = ";SharedAccessKeyName=app;SharedAccessKey=c2VjcmV0"
PRIMARY = Namespace.from_connection_string(f"Endpoint=sb://contoso.servicebus.windows.net/{KEY}")
SECONDARY = Namespace.from_connection_string(f"Endpoint=sb://backup.servicebus.windows.net/{KEY}")


def options(**changes: Any) -> ProxyOptions:
    given: dict[str, Any] = {"primary": PRIMARY, "pairing": SendAvailabilityPairedNamespaceOptions(SECONDARY)}
    return ProxyOptions(**given | changes)


def test_a_pair_is_all_that_a_proxy_needs() -> None:
    made = options()
    assert (made.name, made.host, made.port, made.data) == ("proxy", "127.0.0.1", 5672, None)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(OptionsError) as refused:
        options(name="-", port=70_000, key="a b", cert=Path("cert.pem"), primary="Endpoint=...")
    text = str(refused.value)
    for what in ("a namespace name has", "a port is", "a key has", "its key file", "primary must be a Namespace"):
        assert what in text


def test_a_namespace_is_not_paired_with_itself() -> None:
    with pytest.raises(OptionsError, match="are the same namespace, contoso"):
        options(pairing=SendAvailabilityPairedNamespaceOptions(PRIMARY))


def test_pairing_takes_the_options_of_the_paired_client() -> None:
    with pytest.raises(OptionsError, match="pairing must be SendAvailabilityPairedNamespaceOptions, got dict"):
        options(pairing={})


def test_no_key_is_in_the_text_of_the_options_of_the_pair() -> None:
    assert "c2VjcmV0" not in repr(options())


def test_proxies_and_namespaces_are_reached_by_the_same_options() -> None:
    common = {each.name for each in fields(EndpointOptions)}
    assert common <= {each.name for each in fields(NamespaceOptions)} & {each.name for each in fields(ProxyOptions)}
