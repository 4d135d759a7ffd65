"""Pings: what asks a primary whether it is back, and how a receiver knows one (P7)."""

from __future__ import annotations

import os
from datetime import timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
PING_LIFE = timedelta(seconds=1)


def ping_message() -> ServiceBusMessage:
    """An empty message that lives for a second; entities with sessions need a session, so it has one of its own."""
    return ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=PING_LIFE,
        session_id=os.urandom(16).hex(),
        message_id=os.urandom(16).hex(),
    )


def is_ping(message: ServiceBusReceivedMessage) -> bool:
    return message.content_type == PING_CONTENT_TYPE
