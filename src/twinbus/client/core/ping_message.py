"""Pings: what asks a primary whether it is back, and how a receiver knows one (P7)."""

from __future__ import annotations

import os
from datetime import timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

from twinbus.amqp.message.sections import Header, PropertyField, encode_message

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


def encoded_ping() -> bytes:
    """The same, encoded, for links of our own engine."""
    return encode_message(
        header=Header(ttl_ms=PING_LIFE // timedelta(milliseconds=1)),
        properties={
            PropertyField.MESSAGE_ID: os.urandom(16).hex(),
            PropertyField.CONTENT_TYPE: PING_CONTENT_TYPE,
            PropertyField.GROUP_ID: os.urandom(16).hex(),
        },
        data=b"",
    )


def is_ping(message: ServiceBusReceivedMessage) -> bool:
    return message.content_type == PING_CONTENT_TYPE
