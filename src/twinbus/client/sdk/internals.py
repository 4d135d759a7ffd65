"""The private parts of the official SDK that twinbus uses. No other file touches them; a test reads every file.

Nothing promises that they stay. A version without them is refused with what to install; a version that has them but was
not tested is used with a warning.
"""

from __future__ import annotations

import contextlib
import inspect
import select
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import Any, NoReturn

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.aio import ServiceBusReceiver as AioServiceBusReceiver
from azure.servicebus.aio import ServiceBusSender as AioServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from twinbus.amqp.sections import read_application_properties, walk
from twinbus.amqp.types import text_of
from twinbus.errors import TwinbusError
from twinbus.pairing.encoded_messages import size_in_batch, stamp_of

__all__ = [
    "AMQPConnectionError",
    "AMQPLinkError",
    "AuthenticationException",
    "MessageException",
    "TokenAuthFailure",
    "TokenExpired",
    "check_sdk",
    "decode_payload",
    "version_warning",
]

PACKAGE = "azure-servicebus"
OLDEST, NEWEST = (7, 15), (7, 15)
"""The tests of twinbus run with the first release of the one and the last of the other (`make test-sdk-versions`).

7.14 and older lack `set_batch_envelope_properties`, and their administration client does not trust the certificates of
an embedded namespace.
"""
RANGE = "azure-servicebus>=7.15,<7.16"
"""As in pyproject.toml."""
_NOWHERE = "Endpoint=sb://nowhere.example;SharedAccessKeyName=none;SharedAccessKey=bm9uZQ=="
_OF_CLIENT = ("_handlers", "_config")
_OF_RECEIVER = ("_create_handler", "_mgmt_request_response", "_open", "_receive_mode")
_OF_SENDER = ("_running", "_handler", "_max_batch_size_on_link", "_create_handler", "_open")


def installed() -> str:
    """The version of the SDK that is installed."""
    return version(PACKAGE)


_SUPPORTED = " to ".join(dict.fromkeys(".".join(map(str, each)) for each in (OLDEST, NEWEST)))


def refuse(missing: str) -> NoReturn:
    raise TwinbusError(
        f"{PACKAGE} {installed()} cannot be used: it has no {missing}, which twinbus needs. Supported is "
        f'{_SUPPORTED}: pip install "{RANGE}", or a newer twinbus'
    )


try:
    from azure.servicebus._common.tracing import is_tracing_enabled, trace_message
    from azure.servicebus._common.utils import _convert_to_single_service_bus_message
    from azure.servicebus._pyamqp._connection import Connection
    from azure.servicebus._pyamqp._decode import decode_payload
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._pyamqp.aio._client_async import SendClientAsync
    from azure.servicebus._pyamqp.aio._connection_async import Connection as AioConnection
    from azure.servicebus._pyamqp.client import ReceiveClient, SendClient
    from azure.servicebus._pyamqp.constants import MessageDeliveryState
    from azure.servicebus._pyamqp.error import (
        AMQPConnectionError,
        AMQPLinkError,
        AuthenticationException,
        MessageException,
        TokenAuthFailure,
        TokenExpired,
    )
    from azure.servicebus._pyamqp.message import BatchMessage
    from azure.servicebus._pyamqp.receiver import ReceiverLink
    from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
except ImportError as error:
    refuse(str(error))


@cache
def check_sdk() -> None:
    """Raise `TwinbusError` if a private part is missing, or is not what it was; asked once."""
    missing = list(_missing_parts())
    if missing:
        refuse(", no ".join(missing))


def version_warning() -> str | None:
    """What to say about a version that is not supported; None if it is."""
    found = installed()
    if OLDEST <= _numbers(found)[:2] <= NEWEST:
        return None
    return (
        f"{PACKAGE} {found} was not tested with this twinbus, which uses private parts of it; supported is "
        f'{_SUPPORTED}: pip install "{RANGE}", or run the tests of twinbus with it'
    )


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, e.g. (7, 16, 0) of 7.16.0b1."""
    numbers: list[int] = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _missing_parts() -> Iterator[str]:
    for made in (ServiceBusClient, AioServiceBusClient):
        client: Any = made.from_connection_string(_NOWHERE)  # connects to nothing
        yield from _missing(client, _OF_CLIENT)
        yield from _missing(client.get_queue_sender("nowhere"), _OF_SENDER)
        yield from _missing(client.get_queue_receiver("nowhere"), _OF_RECEIVER)
    yield from _missing(PyamqpTransportAsync, ("set_batch_envelope_properties", "to_outgoing_amqp_message"))
    yield from _missing(ServiceBusReceiver, ("_inner_next",))
    yield from _missing(AioServiceBusReceiver, ("_inner_anext",))
    yield from _missing(ServiceBusMessageBatch(1), ("_add", "_message", "_size", "_count", "_max_size_in_bytes"))
    yield from _missing(ServiceBusMessage("").raw_amqp_message, ("_data_body", "_sequence_body", "_value_body"))
    yield from _missing(SendClient, ("client_ready", "close", "_transfer_message", "_keep_alive"))
    yield from _missing(SendClientAsync, ("client_ready_async", "close_async", "_transfer_message_async"))
    yield from _missing(SendClientAsync, ("_keep_alive_async",))
    yield from _missing(ReceiveClient, ("_client_ready",))
    yield from _missing(ReceiverLink, ("_incoming_transfer",))
    for connection in (Connection, AioConnection):
        yield from _missing(connection, ("_incoming_open",))
        parameters = list(inspect.signature(getattr(connection, "_incoming_open", refuse)).parameters)
        if parameters[1:] != ["channel", "frame"]:
            yield f"{connection.__module__}.Connection._incoming_open(channel, frame)"


def _missing(owner: Any, names: tuple[str, ...]) -> Iterator[str]:
    name = owner.__qualname__ if isinstance(owner, type) else type(owner).__qualname__
    yield from (f"{name}.{each}" for each in names if not hasattr(owner, each))


# --- clients, senders and receivers ---


def take_handlers(client: Any) -> tuple[Any, ...]:
    """The senders and receivers that a client has made. The client forgets them, so that it does not close them."""
    made = tuple(client._handlers)
    client._handlers.clear()
    return made


def set_retries(client: ServiceBusClient | AioServiceBusClient, retries: int) -> None:
    client._config.retry_total = retries


def is_running(sender: ServiceBusSender | AioServiceBusSender) -> bool:
    """Whether the SDK takes its link for open."""
    return bool(sender._running)


def max_batch_bytes(sender: ServiceBusSender | AioServiceBusSender) -> int:
    """How large a batch the peer of an open sender takes."""
    size: int = sender._max_batch_size_on_link
    return size


def never_reopen(sender: ServiceBusSender) -> None:
    """Make an open sender fail at once where it would connect anew, on the thread of whoever sends just then."""

    def refuse_to_open(_timeout_s: float | None = None) -> None:
        if not sender._running:
            raise ServiceBusConnectionError(message="The link was closed before this send.")

    sender._open = refuse_to_open  # type: ignore[assignment, method-assign]


def never_reopen_async(sender: AioServiceBusSender) -> None:
    async def refuse_to_open(_timeout_s: float | None = None) -> None:
        if not sender._running:
            raise ServiceBusConnectionError(message="The link was closed before this send.")

    sender._open = refuse_to_open  # type: ignore[assignment, method-assign]


def keep_alive(sender: ServiceBusSender, every_s: float) -> Callable[[], None]:
    """What to run on a thread so that an idle link stays open; it ends within a second of the link's closing."""
    client: Any = sender._handler
    client._keep_alive_interval = every_s
    work: Callable[[], None] = client._keep_alive
    return work


def keep_alive_async(sender: AioServiceBusSender, every_s: float) -> Coroutine[Any, Any, None]:
    client: Any = sender._handler
    client._keep_alive_interval = every_s
    work: Coroutine[Any, Any, None] = client._keep_alive_async()
    return work


def open_receiver(receiver: ServiceBusReceiver) -> None:
    """Open its link, once and without retries; a session is accepted with it."""
    receiver._open()


class HookedReceiver(ServiceBusReceiver):
    """A receiver whose iteration goes through `choose_next`."""

    @property
    def deletes(self) -> bool:
        """Whether receiving a message deletes it."""
        return bool(self._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE)

    def choose_next(self, take: Callable[[], ServiceBusReceivedMessage]) -> ServiceBusReceivedMessage:
        """The next message to hand out; `take` takes one from the link."""
        return take()

    def _inner_next(self, wait_time: float | None = None) -> ServiceBusReceivedMessage:
        return self.choose_next(partial(super()._inner_next, wait_time))


class AioHookedReceiver(AioServiceBusReceiver):
    """A receiver whose iteration goes through `choose_next`."""

    @property
    def deletes(self) -> bool:
        """Whether receiving a message deletes it."""
        return bool(self._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE)

    async def choose_next(self, take: Callable[[], Awaitable[ServiceBusReceivedMessage]]) -> ServiceBusReceivedMessage:
        """The next message to hand out; `take` takes one from the link."""
        return await take()

    async def _inner_anext(self, wait_time: float | None = None) -> ServiceBusReceivedMessage:
        return await self.choose_next(partial(super()._inner_anext, wait_time))


MORE, PAYLOAD = 5, 11
"""Where they are in a transfer frame."""


def convert_received(receiver: Any, convert: Callable[[bytes], bytes]) -> None:
    """Pass every encoded message that a receiver of the sync SDK gets through `convert`; before it is open."""
    create, request = receiver._create_handler, receiver._mgmt_request_response

    def create_and_convert(auth: Any) -> None:
        create(auth)
        client = receiver._handler
        is_ready = client._client_ready

        def is_ready_to_convert() -> bool:
            result: bool = is_ready()
            link = client._link
            if link is not None and "_incoming_transfer" not in vars(link):
                link._incoming_transfer = partial(_convert_transfer, link, link._incoming_transfer, convert)
            return result

        client._client_ready = is_ready_to_convert

    def request_and_convert(
        mgmt_operation: Any, message: Any, callback: Callable[..., Any], *given: Any, **more: Any
    ) -> Any:
        def call_back(status: Any, response: Any, *facts: Any, **named: Any) -> Any:
            value = response.value
            for each in (value.get(b"messages") or ()) if isinstance(value, dict) else ():
                each[b"message"] = convert(each[b"message"])
            return callback(status, response, *facts, **named)

        return request(mgmt_operation, message, call_back, *given, **more)

    receiver._create_handler = create_and_convert
    receiver._mgmt_request_response = request_and_convert


def _convert_transfer(link: Any, take: Callable[[Any], None], convert: Callable[[bytes], bytes], frame: Any) -> None:
    if not frame[MORE]:
        whole = bytes(link._received_payload) + bytes(frame[PAYLOAD])
        link._received_payload = bytearray()
        frame[PAYLOAD] = memoryview(convert(whole))
    take(frame)


# --- messages and batches ---

# The asyncio sender only takes a batch of its own transport, the sync sender any of the same kind: this one is both.
_TRANSPORT = PyamqpTransportAsync
_to_outgoing = _TRANSPORT.to_outgoing_amqp_message
_DATA = 5
"""Where the data sections are in a message of the SDK."""


def to_message(message: object) -> ServiceBusMessage:
    """What the SDK makes of an object that is to be sent; raises what it raises for what it does not take."""
    return _convert_to_single_service_bus_message(message, ServiceBusMessage, _to_outgoing)  # type: ignore[arg-type]


def set_raw(message: ServiceBusMessage, raw: AmqpAnnotatedMessage) -> None:
    message._raw_amqp_message = raw


def light_id(message: object, room_bytes: int) -> str | None:
    """The id of one ordinary small message: then there is nothing to prepare.

    None for anything else: then `prepare`, `can_take_detour` and so on have to look. This is done for every send, after
    a wait that left the processor's caches to others: what counts is to touch little.
    """
    if type(message) is not ServiceBusMessage:
        return None
    raw: Any = message._raw_amqp_message
    try:
        if (
            raw._application_properties
            or raw._annotations
            or len(raw._data_body) != 1
            or len(raw._data_body[0]) >= room_bytes
            or raw._footer is not None
            or raw._delivery_annotations is not None
        ):
            return None
        found = raw._properties.message_id
    except (AttributeError, TypeError):  # the body is not bytes, or the application put strange things into it
        return None
    return found if type(found) is str and found else text_of(found) or None


def data_of(raw: AmqpAnnotatedMessage) -> list[bytes] | None:
    """The data sections of a body; None or nothing if it has other sections."""
    data: list[bytes] | None = raw._data_body  # type: ignore[assignment]  # in this form since it was given
    return data


def other_body_of(raw: AmqpAnnotatedMessage) -> Any:
    return raw._sequence_body or raw._value_body


def encode(raw: AmqpAnnotatedMessage) -> bytes:
    """A message as the SDK would put it into a batch, with the trace context of this moment."""
    encoded = bytearray()
    encode_payload(encoded, trace_message(_to_outgoing(raw), amqp_transport=_TRANSPORT))  # type: ignore[arg-type]
    return bytes(encoded)


def sections_of(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The encoded messages of a batch; the list itself."""
    sections: list[bytes] = batch._message[_DATA]
    return sections


def size_of(batch: ServiceBusMessageBatch) -> int:
    size: int = batch._size
    return size


def set_size(batch: ServiceBusMessageBatch, size: int) -> None:
    batch._size = size


class HookedBatch(ServiceBusMessageBatch):
    """A batch for senders of both kinds; each message goes through `choose` before it is added."""

    def __init__(self, max_size_in_bytes: int | None, tracing_attributes: Mapping[str, Any] | None) -> None:
        super().__init__(
            max_size_in_bytes, amqp_transport=_TRANSPORT, tracing_attributes=dict(tracing_attributes or {})
        )

    def choose(self, message: Any, add: Callable[[Any], None]) -> None:
        """Add a message, or another in its place."""
        add(message)

    def _add(self, add_message: Any) -> None:
        self.choose(add_message, super()._add)


class _EncodedBatch(ServiceBusMessageBatch):
    def __init__(self, messages: list[bytes]) -> None:
        size = sum(map(size_in_batch, messages))
        super().__init__(size, amqp_transport=_TRANSPORT)
        self._message[_DATA] = messages
        self._count, self._size = len(messages), size
        if messages:
            stamp = stamp_of(messages[0])
            _TRANSPORT.set_batch_envelope_properties(
                self._message, stamp.message_id, stamp.session_id, stamp.partition_key
            )
        if is_tracing_enabled():  # type: ignore[no-untyped-call]
            self._messages = [_Traced(message) for message in messages]  # type: ignore[misc]


class _Traced:
    """As much of a message as the SDK asks for when it links the span of a send to those of its messages."""

    def __init__(self, encoded: bytes) -> None:
        found = read_application_properties(encoded, walk(encoded))
        self.application_properties = {str(key).encode(): value for key, value in found.items()}
        self._message = self


def batch_of(messages: Iterable[bytes]) -> ServiceBusMessageBatch:
    """What an SDK sender, sync or aio, sends as one batch of these encoded messages, each as it is.

    The caller makes sure that they fit (`twinbus.pairing.encoded_messages.pack`).
    """
    return _EncodedBatch(list(messages))


# --- connections ---

ATTACHED = 3
"""The SDK's number for the state of a link that can be used."""
OFFERED_CAPABILITIES = 7
"""Where they are in an open frame."""
FRAMES_AT_ONCE = 20
"""How many frames an opening link may read before the SDK checks whether it is time to give up."""

Heard = Callable[[frozenset[str]], None]
"""Called with the capabilities that a peer offers when it opens a connection; on any thread."""


class _Connections:
    """The connections that one sender or receiver of the SDK makes, kept within reach."""

    def __init__(self, handler: Any, wrap: Callable[[Any], None]) -> None:
        """`handler` must not be open yet: the connections it makes from now on are kept."""
        self._clients: list[Any] = []
        create = handler._create_handler

        def create_and_keep(auth: Any) -> None:
            create(auth)
            wrap(handler._handler)
            self._clients.append(handler._handler)

        handler._create_handler = create_and_keep

    @property
    def is_connected(self) -> bool:
        """Whether the server has answered as one: what is missing then is missing on the link."""
        return any(
            getattr(getattr(client, "_connection", None), "_remote_max_frame_size", None) for client in self._clients
        )


class LinkConnection(_Connections):
    """Of the sync SDK."""

    def __init__(self, handler: Any, heard: Heard | None = None) -> None:
        def wrap(client: Any) -> None:
            client.client_ready = _eager(client, client.client_ready, heard)
            client.close = _thorough(client, client.close)

        super().__init__(handler, wrap)

    @property
    def has_ended(self) -> bool:
        """Whether an open link is known to be over, without waiting: detached, or the peer has hung up."""
        return any(_has_ended(client) or _is_at_end(_socket(_transport(client))) for client in self._clients)

    def be_patient(self) -> None:
        """To be called when the link is open: from now on the SDK waits in its own way."""
        for client in self._clients:
            del client.client_ready

    def cut(self) -> None:
        """Shut the connections down while they are in use, from any thread."""
        for sock in [_socket(_transport(client)) for client in self._clients]:
            if sock is not None:
                _shut(sock)

    def close(self) -> None:
        """Leave nothing open, whatever the SDK did."""
        clients, self._clients = self._clients, []
        for client in clients:
            _close_socket(_transport(client))


class AioLinkConnection(_Connections):
    """Of the asyncio SDK."""

    def __init__(self, handler: Any, heard: Heard | None = None) -> None:
        def wrap(client: Any) -> None:
            client.client_ready_async = _eager_async(client, client.client_ready_async, heard)
            client.close_async = _thorough_async(client, client.close_async)

        super().__init__(handler, wrap)

    @property
    def has_ended(self) -> bool:
        """Whether an open link is known to be over: detached, or the peer has hung up."""
        return any(_has_ended(client) or _reads_at_end(client) for client in self._clients)

    def be_patient(self) -> None:
        """To be called when the link is open: from now on the SDK waits in its own way."""
        for client in self._clients:
            del client.client_ready_async

    def cut(self) -> None:
        """Shut the connections down while they are in use."""
        for client in self._clients:
            _abort(_transport(client))

    async def close(self) -> None:
        """Leave nothing open, whatever the SDK did."""
        self.cut()
        clients, self._clients = self._clients, []
        for client in clients:
            client._shutdown = True
            transport = _transport(client)
            if getattr(transport, "session", None) is not None:  # a WebSocket
                await transport.close()


def close_thoroughly(handler: Any) -> None:
    """Have a receiver of the SDK, of either kind, close its sockets too whenever it closes a connection."""
    create = handler._create_handler

    def create_and_wrap(auth: Any) -> None:
        create(auth)
        client = handler._handler
        if hasattr(client, "close_async"):
            client.close_async = _thorough_async(client, client.close_async)
        else:
            client.close = _thorough(client, client.close)

    handler._create_handler = create_and_wrap


class LastTransfer:
    """What became of the last transfer of an open sender, as far as this end knows."""

    def __init__(self, sender: Any) -> None:
        self._delivery: Any = None
        self._message: Any = None
        self._message_bytes = 0
        client = sender._handler
        is_async = hasattr(client, "_transfer_message_async")
        name = "_transfer_message_async" if is_async else "_transfer_message"
        transfer = getattr(client, name)

        def note(message_delivery: Any, timeout: float = 0) -> Any:
            self._message = None
            self._delivery = delivery = transfer(message_delivery, timeout)
            return delivery

        async def note_async(message_delivery: Any, timeout: float = 0) -> Any:
            self._message = None
            self._delivery = delivery = await transfer(message_delivery, timeout)
            return delivery

        setattr(client, name, note_async if is_async else note)
        link = client._link
        send = link._session._outgoing_transfer

        def measure(delivery: Any, trace: Any) -> Any:
            if delivery.frame["handle"] == link.handle:  # tokens travel on this session too
                self._message, self._message_bytes = delivery.message, len(delivery.frame["payload"])
            return send(delivery, trace)

        link._session._outgoing_transfer = measure

    def sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each message in the last transfer; nothing if it was not begun."""
        if self._message is None:
            return ()
        if isinstance(self._message, BatchMessage):
            messages: list[bytes] = self._message.data  # type: ignore[assignment]
            return tuple(map(len, messages))
        return (self._message_bytes,)

    def had_left(self) -> bool:
        """Of a send that has failed: whether its transfer was written. Can be asked once for each."""
        delivery, self._delivery = self._delivery, None
        if delivery is None or not delivery.sent:
            return False
        # The SDK tells only its own callback what became of a delivery. One that was accepted was another send's.
        (message_delivery,) = delivery.on_delivery_settled.args
        return bool(message_delivery.state != MessageDeliveryState.Ok)


def _eager(client: Any, is_ready: Callable[[], bool], heard: Heard | None) -> Callable[[], bool]:
    """Reads frames as they come: the SDK sleeps 50 ms after each, which makes half a second until a link is open."""

    def is_ready_soon() -> bool:
        _hear_open(client, heard)
        return any(is_ready() for _ in range(FRAMES_AT_ONCE))

    return is_ready_soon


def _eager_async(
    client: Any, is_ready: Callable[[], Awaitable[bool]], heard: Heard | None
) -> Callable[[], Awaitable[bool]]:
    async def is_ready_soon() -> bool:
        _hear_open(client, heard)
        for _ in range(FRAMES_AT_ONCE):
            if await is_ready():
                return True
        return False

    return is_ready_soon


def _hear_open(client: Any, heard: Heard | None) -> None:
    """Read the peer's open frame when it comes; the SDK keeps nothing of what is offered in it.

    For both kinds of the SDK: what the one returns, and the other awaits, is passed on.
    """
    connection = getattr(client, "_connection", None)
    if heard is None or connection is None or "_incoming_open" in vars(connection):
        return
    incoming = connection._incoming_open

    def read_and_go_on(channel: int, frame: Any) -> Any:
        heard(_offered(frame))
        return incoming(channel, frame)

    connection._incoming_open = read_and_go_on


def _offered(frame: Any) -> frozenset[str]:
    """The offered capabilities in an open frame: nothing, one symbol, or an array of them."""
    found = frame[OFFERED_CAPABILITIES] if len(frame) > OFFERED_CAPABILITIES else None
    each = found if isinstance(found, list | tuple) else () if found is None else (found,)
    return frozenset(text_of(one) for one in each)


def _thorough(client: Any, close: Callable[[], None]) -> Callable[[], None]:
    """Closes the socket too: the SDK forgets it when its goodbye fails, or when it was not yet properly open."""

    def close_all() -> None:
        transport = _transport(client)
        try:
            close()
        finally:
            _close_socket(transport)

    return close_all


def _thorough_async(client: Any, close: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    async def close_all() -> None:
        transport = _transport(client)
        try:
            await close()
        finally:
            _abort(transport)

    return close_all


def _transport(client: Any) -> Any:
    return getattr(getattr(client, "_connection", None), "_transport", None)


def _has_ended(client: Any) -> bool:
    link, connection = client._link, client._connection
    is_over = link is None or connection is None or connection._error is not None
    return is_over or link.state.value != ATTACHED


def _is_at_end(sock: socket.socket | None) -> bool:
    """Whether the peer has closed its side, even if there is something left to read from it."""
    if sock is None:
        return True
    try:
        poll = select.poll()
        poll.register(sock, getattr(select, "POLLRDHUP", 0))  # failures are reported in any case
        return bool(poll.poll(0))
    except (OSError, ValueError):  # closed
        return True


def _reads_at_end(client: Any) -> bool:
    transport = _transport(client)
    reader, writer = getattr(transport, "reader", None), getattr(transport, "writer", None)
    if reader is None or writer is None:  # a WebSocket looks after itself
        return getattr(transport, "session", None) is None
    has_hung_up = reader._eof  # at_eof() also asks whether everything was read: there may be something left
    return bool(has_hung_up or reader.exception() is not None or writer.is_closing())


def _socket(transport: Any) -> socket.socket | None:
    found = getattr(transport, "sock", None)
    inner = getattr(found, "sock", found)  # a WebSocket has one inside
    return inner if isinstance(inner, socket.socket) else None


def _shut(sock: socket.socket) -> None:
    # Not the method of an SSLSocket: that one turns it into a plain socket, and whoever reads from it would take
    # ciphertext for frames.
    with contextlib.suppress(OSError):  # not connected yet, or not any more
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _close_socket(transport: Any) -> None:
    sock = _socket(transport)
    if sock is not None:
        _shut(sock)
        sock.close()


def _abort(transport: Any) -> None:
    writer = getattr(transport, "writer", None)
    if writer is not None:
        writer.transport.abort()
