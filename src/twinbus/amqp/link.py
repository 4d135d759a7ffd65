"""Links: `Link` is what both ends share, `SendingLink` gives messages and `ReceivingLink` takes them."""

from __future__ import annotations

from twinbus.amqp.endpoint import Link, LinkState
from twinbus.amqp.receiving import ReceivingLink
from twinbus.amqp.sending import SendingLink

__all__ = ["Link", "LinkState", "ReceivingLink", "SendingLink"]
