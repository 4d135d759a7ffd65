"""twinbus keeps applications sending when their message bus is down.

The public names; their asyncio twins are in `twinbus.aio`. They are imported when they are first used: pytest imports
this package at every start, also in projects that never pair anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinbus import deprecated

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.client.options import (
        PairedNamespaceOptions,
        Retry,
        SendAvailabilityPairedNamespaceOptions,
        ShareFailover,
    )
    from twinbus.client.reporting.events import PairEvent
    from twinbus.client.reporting.status import Status
    from twinbus.client.sdk.messages import PairedMessageBatch
    from twinbus.client.sync.client import PairedServiceBusClient
    from twinbus.client.sync.receivers import PairedServiceBusReceiver
    from twinbus.client.sync.sender import PairedServiceBusSender
    from twinbus.pairing.sending.error_class import ErrorClass
    from twinbus.pairing.sending.failure import Failure, FailureKind
    from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, receipt_of

_HOMES = {
    "ErrorClass": "twinbus.pairing.sending.error_class",
    "Failure": "twinbus.pairing.sending.failure",
    "FailureKind": "twinbus.pairing.sending.failure",
    "Namespace": "twinbus.client.namespace",
    "NamespaceSide": "twinbus.pairing.sending.receipt",
    "PairEvent": "twinbus.client.reporting.events",
    "PairedMessageBatch": "twinbus.client.sdk.messages",
    "PairedNamespaceOptions": "twinbus.client.options",
    "PairedServiceBusClient": "twinbus.client.sync.client",
    "PairedServiceBusReceiver": "twinbus.client.sync.receivers",
    "PairedServiceBusSender": "twinbus.client.sync.sender",
    "Retry": "twinbus.client.options",
    "ShareFailover": "twinbus.client.options",
    "SendAvailabilityPairedNamespaceOptions": "twinbus.client.options",
    "SendReceipt": "twinbus.pairing.sending.receipt",
    "Status": "twinbus.client.reporting.status",
    "receipt_of": "twinbus.pairing.sending.receipt",
}

__all__ = [
    "ErrorClass",
    "Failure",
    "FailureKind",
    "Namespace",
    "NamespaceSide",
    "PairEvent",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairedServiceBusClient",
    "PairedServiceBusReceiver",
    "PairedServiceBusSender",
    "Retry",
    "SendAvailabilityPairedNamespaceOptions",
    "SendReceipt",
    "ShareFailover",
    "Status",
    "receipt_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return deprecated.find_renamed(__name__, name)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOMES))


deprecated.install()
