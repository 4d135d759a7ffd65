"""twinbus keeps applications sending when their message bus is down.

The public names; their asyncio twins are in `twinbus.aio`. They are imported when they are first used: pytest imports
this package at every start, also in projects that never pair anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twinbus.client.messages import PairedMessageBatch
    from twinbus.client.namespace import Namespace
    from twinbus.client.news import News
    from twinbus.client.options import PairedNamespaceOptions, Retry, SendAvailabilityPairedNamespaceOptions
    from twinbus.client.receivers import PairedServiceBusReceiver
    from twinbus.client.sender import PairedServiceBusSender
    from twinbus.client.status import Status
    from twinbus.client.sync import PairedServiceBusClient
    from twinbus.pairing.failure import Failure, FailureKind
    from twinbus.pairing.receipt import SendReceipt, Side, receipt_of
    from twinbus.pairing.verdict import Verdict

_HOMES = {
    "Failure": "twinbus.pairing.failure",
    "FailureKind": "twinbus.pairing.failure",
    "Namespace": "twinbus.client.namespace",
    "News": "twinbus.client.news",
    "PairedMessageBatch": "twinbus.client.messages",
    "PairedNamespaceOptions": "twinbus.client.options",
    "PairedServiceBusClient": "twinbus.client.sync",
    "PairedServiceBusReceiver": "twinbus.client.receivers",
    "PairedServiceBusSender": "twinbus.client.sender",
    "Retry": "twinbus.client.options",
    "SendAvailabilityPairedNamespaceOptions": "twinbus.client.options",
    "SendReceipt": "twinbus.pairing.receipt",
    "Side": "twinbus.pairing.receipt",
    "Status": "twinbus.client.status",
    "Verdict": "twinbus.pairing.verdict",
    "receipt_of": "twinbus.pairing.receipt",
}

__all__ = [
    "Failure",
    "FailureKind",
    "Namespace",
    "News",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairedServiceBusClient",
    "PairedServiceBusReceiver",
    "PairedServiceBusSender",
    "Retry",
    "SendAvailabilityPairedNamespaceOptions",
    "SendReceipt",
    "Side",
    "Status",
    "Verdict",
    "receipt_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'twinbus' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOMES))
