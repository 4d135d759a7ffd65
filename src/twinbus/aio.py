"""The public names for asyncio, as `azure.servicebus.aio` has them; values and errors are the same as in `twinbus`."""

from twinbus.client.aio import PairedServiceBusClient
from twinbus.client.aio_receivers import PairedServiceBusReceiver
from twinbus.client.aio_sender import PairedServiceBusSender

__all__ = ["PairedServiceBusClient", "PairedServiceBusReceiver", "PairedServiceBusSender"]
