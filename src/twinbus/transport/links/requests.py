"""Requests to `$cbs` and to `<entity>/$management`, and the pair of links on which they travel."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.codec.types import Value
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.errors import DecodeError
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.link_handler import LinkHandler

RESPONSE_CREDIT = 100
_UUID_CODE = 0x98
_OK_CODES = range(200, 300)
_CONDITIONS = {401: "amqp:unauthorized-access", 404: "amqp:not-found", 410: "com.microsoft:message-lock-lost"}
"""For responses that have a status only."""


class Response(NamedTuple):
    code: int
    text: str
    condition: str | None
    body: Any

    @property
    def is_ok(self) -> bool:
        return self.code in _OK_CODES

    @property
    def error(self) -> Error:
        """The error in a response that is not ok."""
        return Error(self.condition or _CONDITIONS.get(self.code, "amqp:internal-error"), self.text)


class RequestLink(LinkHandler):
    """A pair of links to one node: requests go out on one, responses come back on the other, matched by id."""

    def __init__(self, address: str, flush: Callable[[], None], attempt_s: float, name: str) -> None:
        """`name` says who asks."""
        super().__init__()
        self.name = f"{name}-{uuid.uuid4().hex}"
        self._address = address
        self._flush = flush
        self._attempt_s = attempt_s
        self._ids = count(1)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._failure: Failure | None = None
        self._sender: SendingLink | None = None

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._sender is not None

    def attached(self, sender: SendingLink, receiver: ReceivingLink) -> None:
        self._sender = sender
        receiver.keep_credit = RESPONSE_CREDIT
        self._flush()

    async def request(self, properties: Mapping[str, Value], body: Value) -> Response:
        """The node's response. Raises `ConnectionFailed` if the links end; the caller limits the waiting time."""
        payload = await self.exchange(sections.encode_message(application_properties=properties, value=body))
        try:
            return read_response(payload)
        except DecodeError as error:
            raise ConnectionFailed(Failure(FailureKind.INTERNAL, f"{self._address}: {error}")) from None

    async def exchange(self, payload: bytes, transaction: bytes | None = None) -> bytes:
        """The encoded response to an encoded request, in a transaction of the peer if one is given.

        Raises `ConnectionFailed`, too.

        On its way the request has an id of ours, because those of several applications may be the same; the response
        has that of the request again.
        """
        if self._failure is not None:
            raise ConnectionFailed(self._failure)
        assert self._sender is not None, "request after attached"
        await self.wait_for_credit(self._sender, self._attempt_s, self._address)
        message_id = f"{self.name}:{next(self._ids)}"
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = future
        try:
            ours = {PropertyField.MESSAGE_ID: message_id, PropertyField.REPLY_TO: self.name}
            layout = sections.walk(payload)
            theirs = sections.read_property(payload, layout, PropertyField.MESSAGE_ID)
            message = sections.rewrite(payload, layout, set_properties=ours)
            self._sender.send(message, tag=message_id[-16:].encode(), settled=True, transaction=transaction)
            self._flush()
            return sections.rewrite(await future, set_properties={PropertyField.CORRELATION_ID: theirs})
        finally:
            del self._waiting[message_id]

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            if not transfer.settled:
                transfer.link.settle(transfer.delivery_id, transfer.delivery_id, ACCEPTED)
            try:
                layout = sections.walk(transfer.payload)
                request_id = sections.read_property(transfer.payload, layout, PropertyField.CORRELATION_ID)
            except DecodeError:
                continue  # no request can be found for it; the one that waits for it times out
            future = self._waiting.get(request_id) if isinstance(request_id, str) else None
            if future is not None and not future.done():
                future.set_result(transfer.payload)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self._failure = failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionFailed(failure))


def read_response(payload: bytes) -> Response:
    """Raises `DecodeError`."""
    layout = sections.walk(payload)
    properties = sections.read_application_properties(payload, layout)
    code = properties.get("statusCode", properties.get("status-code"))
    if not isinstance(code, int):
        raise DecodeError("a response needs a status code")
    condition = properties.get("errorCondition", properties.get("error-condition"))
    body = sections.read_value(payload, layout) if layout.body_kind == "value" else None
    text = str(properties.get("statusDescription", properties.get("status-description", "")))
    return Response(int(code), text, None if condition is None else str(condition), body)


def renew_locks_body(tokens: Iterable[bytes]) -> dict[str, Value]:
    """A delivery tag has the bytes of its lock token in .NET's order, a request has them in AMQP's."""
    return {"lock-tokens": Array([uuid.UUID(bytes_le=token) for token in tokens], _UUID_CODE)}


class RequestLinks:
    """The request links of one connection: one for each address, shared by all its requests.

    A namespace allows few links to a peer that has put no token yet.
    """

    def __init__(self, open_link: Callable[[str], Awaitable[RequestLink]]) -> None:
        self._open_link = open_link
        self._links: dict[str, RequestLink] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """By address, held while its link is opened."""

    async def find(self, address: str) -> RequestLink:
        """The open link to an address; opened if there is none."""
        lock = self._locks.setdefault(address, asyncio.Lock())
        try:
            async with lock:
                link = self._links.get(address)
                if link is None or not link.is_open:
                    link = self._links[address] = await self._open_link(address)
            return link
        finally:
            if not lock.locked():  # names can be invented without end
                self._locks.pop(address, None)
