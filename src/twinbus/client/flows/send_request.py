"""The messages of one call: as the SDK takes them for the primary, and as encoded for the detour."""

from __future__ import annotations

from datetime import datetime

from twinbus.client.sdk.messages import Prepared, due_times, encode_messages, for_schedule, milliseconds, rough_sizes
from twinbus.pairing.backlog.ordering import session_id_of
from twinbus.pairing.sending.encoded_messages import pack_for_backlog

STANDARD_BATCH_BYTES = 262_144
"""What every namespace takes at once; a link may say more."""


class SendRequest:
    """Encoded only when it has to be: a message that goes straight to the primary never is."""

    def __init__(self, prepared: Prepared, path: str, when: datetime | None = None) -> None:
        """`when`: the messages are scheduled, by a call and not by themselves."""
        self.prepared = prepared
        self.when = when
        self._path = path
        self._encoded: list[bytes] | None = None
        self.sent_sizes: tuple[int, ...] = ()
        """Encoded bytes of each message as it left for the primary, once somebody knows."""
        self._packed_sizes: tuple[int, ...] = ()

    @property
    def message_ids(self) -> tuple[str, ...]:
        return self.prepared.ids

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.encoded))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each message; about, if nobody had to encode them."""
        if self.sent_sizes:
            return self.sent_sizes
        if self._encoded is None and self.when is None:
            return rough_sizes(self.prepared.message)
        try:
            return tuple(map(len, self.encoded))
        except Exception:  # a message that cannot be encoded was not sent, and its caller knows
            return rough_sizes(self.prepared.message)

    @property
    def due_ms(self) -> tuple[int, ...]:
        """When each message is to be enqueued; empty: all of them at once."""
        if self.when is None:
            return due_times(self.prepared.message)
        return (milliseconds(self.when),) * len(self.message_ids)

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        """The same as they go to a backlog queue, with what the detour adds."""
        return self._packed_sizes or self.sizes

    @property
    def encoded(self) -> list[bytes]:
        if self._encoded is None:
            when = self.when
            self._encoded = encode_messages(self.prepared) if when is None else for_schedule(self.prepared, when)
        return self._encoded

    @property
    def session_ids(self) -> frozenset[str | None]:
        """The sessions to which the messages belong; None for those that belong to none."""
        return frozenset(session_id_of(message) for message in self.encoded)

    @property
    def has_order(self) -> bool:
        """Whether they are sent now: what is scheduled comes when it is due, in whatever order."""
        return self.when is None

    def batches(self, limit_bytes: int) -> tuple[tuple[bytes, ...], ...]:
        """In envelopes, packed; raises `ReservedProperty` or `TooLargeForDetour` before anything was sent."""
        batches = pack_for_backlog(self.encoded, self._path, limit_bytes)
        self._packed_sizes = tuple([len(message) for batch in batches for message in batch])
        return batches
