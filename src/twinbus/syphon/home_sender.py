"""Sends quarantined messages home, one at a time."""

from __future__ import annotations

from twinbus.amqp.message import sections
from twinbus.errors import EnvelopeError
from twinbus.pairing.backlog.envelope import open_envelope
from twinbus.syphon.pump.dead_letter_reasons import DEAD_LETTER_PROPERTIES, path_problem
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.single_sender import AskedOnceSender


class HomeSender:
    def __init__(self, connection: NamespaceConnection, attempt_s: float) -> None:
        self._sender = AskedOnceSender(connection, attempt_s)

    async def deliver(self, message: bytes) -> int:
        """Send a message home; its size there in bytes.

        Raises `ConnectionFailed`, `EnvelopeError` or `DecodeError` if it did not arrive.
        """
        home = open_envelope(sections.rewrite(message, remove_application_properties=DEAD_LETTER_PROPERTIES))
        problem = path_problem(home.path)
        if problem is not None:
            raise EnvelopeError(problem)
        await self._sender.send(home.path, home.encoded)
        return len(home.encoded)
