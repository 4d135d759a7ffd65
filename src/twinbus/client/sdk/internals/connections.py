"""Connections that senders and receivers of the SDK make: watched, cut while they are in use, and closed for good."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from twinbus.amqp.codec.types import text_of
from twinbus.client.sdk.internals.required_parts import BatchMessage, MessageDeliveryState

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
        """Call this when the link is open: from now on the SDK waits in its own way."""
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
        """Call this when the link is open: from now on the SDK waits in its own way."""
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
                # It was never open if there is no socket, and the SDK's own close does not expect that.
                await (transport.session if transport.sock is None else transport).close()


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
        _watch_open(client, heard)
        _watch_refusal(client)
        return any(is_ready() for _ in range(FRAMES_AT_ONCE))

    return is_ready_soon


def _eager_async(
    client: Any, is_ready: Callable[[], Awaitable[bool]], heard: Heard | None
) -> Callable[[], Awaitable[bool]]:
    async def is_ready_soon() -> bool:
        _watch_open(client, heard)
        _watch_refusal(client)
        for _ in range(FRAMES_AT_ONCE):
            if await is_ready():
                return True
        return False

    return is_ready_soon


def _watch_open(client: Any, heard: Heard | None) -> None:
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


def _watch_refusal(client: Any) -> None:
    """Keep the status with which a token was refused: the SDK drops it if a condition comes along.

    The service refuses a token for an entity that is not there with 404 and a condition, and without the status that
    would be a wrong key. For both kinds of the SDK, as above.
    """
    authenticator = getattr(client, "_cbs_authenticator", None)
    if authenticator is None or "_on_execute_operation_complete" in vars(authenticator):
        return
    complete = authenticator._on_execute_operation_complete

    def note_and_go_on(result: Any, status: Any, *more: Any) -> Any:
        authenticator._token_status_code = status
        return complete(result, status, *more)

    authenticator._on_execute_operation_complete = note_and_go_on


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
