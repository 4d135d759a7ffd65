"""Bytes on their way to the socket, in order."""

from __future__ import annotations

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frame_codec import disposition_frame
from twinbus.amqp.codec.frames import frame
from twinbus.amqp.codec.outcomes import DeliveryState, TransactionalState
from twinbus.amqp.codec.performatives import LinkRole, Performative


class Outbox:
    """Collects the output of a connection until it is taken.

    Frames wait until `released`, so that a client can begin and attach before headers and SASL are done.
    The latest disposition is held back for a moment: adjacent ones with the same outcome become one range.
    """

    def __init__(self) -> None:
        self.released = False
        self.chunks: list[bytes] = []
        """Frames in order. Always the same list: links append transfers to it directly."""
        self._preamble: list[bytes] = []
        self._channel = 0
        self._role = LinkRole.SENDER
        self._first = 0
        self._last = -1
        self._outcome: DeliveryState | None = None
        self._settled = False
        self._has_disposition = False

    def add_preamble(self, data: bytes) -> None:
        """Bytes that go before all frames: headers and SASL."""
        self._preamble.append(data)

    def add(self, channel: int, performative: Performative) -> None:
        """Any frame but transfers and dispositions."""
        self._write_disposition()  # a detach or an end must not overtake it
        self.chunks.append(frame(channel, encode_composite(performative)))

    def dispose(
        self, channel: int, role: LinkRole, first: int, last: int, outcome: DeliveryState | None, settled: bool
    ) -> None:
        if (
            self._has_disposition
            and first == self._last + 1
            and outcome == self._outcome
            and channel == self._channel
            and role is self._role
            and settled == self._settled
        ):
            self._last = last
            return
        self._write_disposition()
        self._channel, self._role, self._first, self._last = channel, role, first, last
        self._outcome, self._settled, self._has_disposition = outcome, settled, True
        if isinstance(outcome, TransactionalState):
            self._write_disposition()  # the transfer that ends the transaction must not overtake it

    def take(self) -> bytes:
        """Take everything that may be sent now."""
        if not self.released:
            preamble = b"".join(self._preamble)
            self._preamble.clear()
            return preamble
        self._write_disposition()
        data = b"".join((*self._preamble, *self.chunks)) if self._preamble else b"".join(self.chunks)
        self._preamble.clear()
        self.chunks.clear()
        return data

    def _write_disposition(self) -> None:
        if self._has_disposition:
            self._has_disposition = False
            self.chunks.append(
                disposition_frame(self._channel, self._role, self._first, self._last, self._outcome, self._settled)
            )
