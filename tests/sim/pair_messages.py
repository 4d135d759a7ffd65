"""Messages of simulated applications, as real encoded bytes, and the requests in which flows carry them."""

from __future__ import annotations

from functools import cache
from itertools import count
from random import Random

from sim.clock import START_MS
from twinbus.amqp.codec.types import Timestamp, UInt, Value
from twinbus.amqp.message.message_builder import Header, PropertyField, encode_message
from twinbus.broker.message import PING_CONTENT_TYPE, SCHEDULED_TIME
from twinbus.client.flows.send_request import SendRequest
from twinbus.client.sdk.messages import Prepared
from twinbus.pairing.backlog.envelope import PATH

FILLER_BYTES = 1024 * 1024
"""As much as the smallest queue can hold."""


class SimulatedRequest(SendRequest):
    """The shipping request, for messages that are encoded already."""

    def __init__(self, encoded: list[bytes], ids: tuple[str, ...], path: str) -> None:
        super().__init__(Prepared(encoded, ids), path)  # type: ignore[arg-type]
        self._encoded = encoded


class Writer:
    """Writes messages as one application would: some plain, some with all that has to move on the detour."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._numbers = count(1)
        self._rich_share = random.choice((0.0, 0.3, 1.0))
        self._big_share = random.choice((0.0, 0.1, 0.6))
        self._odd_share = random.choice((0.0, 0.0, 0.05))

    def request(self, path: str) -> SimulatedRequest:
        size = self._random.choice((1, 1, 1, 1, 2, 3, 8))
        ids = tuple(f"m{next(self._numbers)}" for _ in range(size))
        return SimulatedRequest([self._encode(each) for each in ids], ids, path)

    def _encode(self, message_id: str) -> bytes:
        random = self._random
        if random.random() >= self._rich_share:
            return encode_message(properties={PropertyField.MESSAGE_ID: message_id}, data=self._body())
        properties: dict[PropertyField, Value] = {PropertyField.MESSAGE_ID: message_id}
        applications: dict[str, Value] = {"colour": "green", "count": UInt(7)}
        if random.random() < 0.5:
            properties[PropertyField.GROUP_ID] = f"session {random.randrange(3)}"
        if random.random() < self._odd_share:
            applications[PATH] = "a name that is taken"
        return encode_message(
            header=Header(ttl_ms=random.choice((1, 60_000))) if random.random() < 0.5 else None,
            annotations={SCHEDULED_TIME: Timestamp(START_MS + 5_000)} if random.random() < 0.3 else None,
            properties=properties,
            application_properties=applications,
            data=self._body(),
        )

    def _body(self) -> bytes:
        is_big = self._random.random() < self._big_share
        return bytes(self._random.choice((1_500, 1_500, 3_500)) if is_big else 20)


@cache
def filler() -> bytes:
    """A message after which a queue has no room."""
    return encode_message(properties={PropertyField.MESSAGE_ID: "filler"}, data=bytes(FILLER_BYTES))


@cache
def ping() -> bytes:
    """What a shell sends to ask whether the primary is back."""
    properties: dict[PropertyField, Value] = {
        PropertyField.MESSAGE_ID: "ping",
        PropertyField.CONTENT_TYPE: PING_CONTENT_TYPE,
    }
    return encode_message(header=Header(ttl_ms=1_000), properties=properties, data=b"")
