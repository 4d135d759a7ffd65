"""What is done to a namespace, and what one needs to be allowed it: words shared by rights, faults and the meter."""

from __future__ import annotations

from enum import Enum


class Operation(Enum):
    """A moment at which a namespace can be asked, refuse, fail or count."""

    CONNECT = "connect"
    ATTACH_SENDER = "attach-sender"
    ATTACH_RECEIVER = "attach-receiver"
    SEND = "send"
    DELIVER = "deliver"
    SETTLE = "settle"
    MANAGE = "manage"
    """A request to `<entity>/$management`."""
    ADMIN = "admin"
    """A request over HTTP."""


class Right(Enum):
    """What a key or token allows. Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"
