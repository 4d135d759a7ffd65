"""Errors and values go to other processes and into copies as they are."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from twinbus import (
    Namespace,
    NamespaceSide,
    PairEvent,
    Retry,
    SendAvailabilityPairedNamespaceOptions,
    SendReceipt,
    errors,
)
from twinbus.broker.filters.rule_errors import SqlError
from twinbus.errors import (
    BothNamespacesUnavailable,
    ConditionError,
    EnvelopeError,
    NotSent,
    OptionsError,
    PairFaulted,
    PairingError,
    ReservedProperty,
    TooLargeForDetour,
    TwinbusError,
)

Thing = TypeVar("Thing")
RECEIPT = SendReceipt("orders", ("a", "b"), NamespaceSide.BACKLOG, 1, ("contoso/x-servicebus-transfer/3",), 2, 1, 0.5)
KEYED = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=sender;SharedAccessKey=c2VjcmV0"
SIGNED = (
    "Endpoint=sb://contoso.servicebus.windows.net;"
    "SharedAccessSignature=SharedAccessSignature sr=sb%3a%2f%2fx&sig=s3cr3t%3d&se=4102444800&skn=sender"
)

ERRORS: list[TwinbusError] = [
    BothNamespacesUnavailable("it is down", "so is this", RECEIPT),
    TooLargeForDetour(300_000, 262_144, 120),
    ReservedProperty(("x-ms-path",)),
    NotSent("given up", RECEIPT),
    PairFaulted("no right"),
    PairingError("one thing", "another"),
    EnvelopeError("no path"),
    OptionsError("a is wrong"),
    ConditionError("com.microsoft:odd", "refused"),
    SqlError("unexpected word", "a = b c", 6),
]


def pickled(thing: Thing) -> Thing:
    found: Thing = pickle.loads(pickle.dumps(thing))
    return found


def pickled_as_of_old(thing: Thing) -> Thing:
    found: Thing = pickle.loads(pickle.dumps(thing, protocol=0))
    return found


ways = pytest.mark.parametrize("again", [pickled, pickled_as_of_old, copy.copy, copy.deepcopy])


@ways
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_text_and_attributes(
    again: Callable[[TwinbusError], TwinbusError], error: TwinbusError
) -> None:
    found = again(error)
    assert found is not error
    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_no_error_needs_more_than_that() -> None:
    made_in_another_way = {type(error) for error in ERRORS}
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, TwinbusError) and kind not in made_in_another_way:
            assert str(pickled(kind("text"))) == "text"


def test_notes_on_an_error_go_along() -> None:
    error = PairFaulted("no right")
    error.add_note("seen by the night shift")
    assert pickled(error).__notes__ == ["seen by the night shift"]


@ways
def test_a_receipt_is_the_same(again: Callable[[SendReceipt], SendReceipt]) -> None:
    assert again(RECEIPT) == RECEIPT
    assert type(again(RECEIPT)) is SendReceipt


@ways
@pytest.mark.parametrize("text", [KEYED, SIGNED])
def test_a_namespace_goes_with_its_credential(again: Callable[[Namespace], Namespace], text: str) -> None:
    namespace = Namespace.from_connection_string(text, name="contoso", user_agent="shop")
    found = again(namespace)
    assert (found.address, found.name, found.is_plain) == (namespace.address, "contoso", False)
    assert _secret(found) == _secret(namespace)
    assert found.sdk_options == {"user_agent": "shop"}
    with pytest.raises(TypeError):
        found.sdk_options["user_agent"] = "other"  # type: ignore[index]


def test_a_copied_namespace_makes_clients() -> None:
    found = copy.deepcopy(Namespace.from_connection_string(KEYED))
    with found.sync_client() as client:
        assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"


@ways
def test_options_go_with_their_namespace(
    again: Callable[[SendAvailabilityPairedNamespaceOptions], SendAvailabilityPairedNamespaceOptions],
) -> None:
    options = SendAvailabilityPairedNamespaceOptions(
        Namespace.from_connection_string(KEYED),
        failover_interval=timedelta(seconds=3),
        retry=Retry(attempts=2),
        entities=("orders",),
    )
    found = again(options)
    assert found.secondary.address == options.secondary.address
    assert found.rules() == options.rules()
    assert found.entities == ("orders",)


@ways
def test_events_are_the_same(again: Callable[[PairEvent], PairEvent]) -> None:
    event = PairEvent("failed_over", "it is down", entity="orders", details={"epoch": 1})  # type: ignore[arg-type]
    assert again(event) == event


def _secret(namespace: Namespace) -> object:
    credential = namespace.credential
    if isinstance(credential, AzureNamedKeyCredential):
        return tuple(credential.named_key)
    assert isinstance(credential, AzureSasCredential)
    return credential.signature
