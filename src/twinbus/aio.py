"""The public names for asyncio, as `azure.servicebus.aio` has them; values and errors are the same as in `twinbus`."""

from twinbus.client.aio.client import PairedServiceBusClient
from twinbus.client.aio.receivers import PairedServiceBusReceiver
from twinbus.client.aio.sender import PairedServiceBusSender

__all__ = ["PairedServiceBusClient", "PairedServiceBusReceiver", "PairedServiceBusSender"]
