"""The engine under any cut of the byte stream, any sizes and windows, and any bytes at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import examples

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frame_codec import TransferWriter, read_transfer
from twinbus.amqp.codec.frames import AMQP_HEADER, frame
from twinbus.amqp.codec.outcomes import (
    ACCEPTED,
    RELEASED,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    TransactionalState,
)
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    LinkRole,
    Open,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    AttachRequested,
    ConnectionClosed,
    CreditChanged,
    DispositionArrived,
    Event,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import ClientSasl, ServerSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import ids_between, plus, steps
from twinbus.errors import DecodeError

UINTS = st.integers(0, 2**32 - 1)
IDS = st.sampled_from([0, 1, 255, 256, 2**31, 2**32 - 1])
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        ACCEPTED,
        RELEASED,
        Rejected(),
        Rejected(Error("a:b", "c")),
        Modified(True, None, {Symbol("k"): 1}),
        Received(1, 2),
    ]
)
FIELDS = st.dictionaries(st.text(max_size=5).map(Symbol), st.text(max_size=5), max_size=2) | st.none()
SOURCES = st.builds(Source, st.none() | st.text(max_size=9), filter=FIELDS) | st.none()
TARGETS = st.builds(Target, st.none() | st.text(max_size=9)) | st.none()
ERRORS = st.builds(Error, st.text(max_size=9), st.none() | st.text(max_size=9), FIELDS) | st.none()

STATES = OUTCOMES | st.builds(TransactionalState, st.binary(max_size=20), st.none() | OUTCOMES)

TRANSFERS = st.builds(
    Transfer, IDS, st.none() | UINTS, st.none() | st.binary(max_size=40), st.none() | UINTS,
    st.none() | st.booleans(), st.booleans(), st.none() | st.integers(0, 1), st.none() | STATES, st.booleans(),
    st.booleans(), st.booleans(),
)  # fmt: skip

PERFORMATIVES = st.one_of(
    st.builds(Open, st.text(max_size=9), st.text(max_size=9), UINTS, st.integers(0, 65_535), properties=FIELDS),
    st.builds(Begin, next_outgoing_id=UINTS, incoming_window=UINTS, outgoing_window=UINTS, handle_max=UINTS),
    st.builds(
        Attach, st.text(max_size=9), IDS, st.sampled_from(LinkRole), st.integers(0, 2), st.integers(0, 1), SOURCES,
        TARGETS, initial_delivery_count=st.none() | UINTS, max_message_size=st.none() | st.integers(0, 2**64 - 1),
        properties=FIELDS,
    ),
    st.builds(
        Flow, next_incoming_id=st.none() | UINTS, incoming_window=UINTS, next_outgoing_id=UINTS, outgoing_window=UINTS,
        handle=st.none() | IDS, delivery_count=st.none() | UINTS, link_credit=st.none() | UINTS, drain=st.booleans(),
        echo=st.booleans(),
    ),
    TRANSFERS,
    st.builds(Disposition, st.sampled_from(LinkRole), IDS, st.none() | IDS, st.booleans(), st.none() | STATES),
    st.builds(Detach, IDS, st.booleans(), ERRORS),
    st.builds(End, ERRORS),
    st.builds(Close, ERRORS),
)  # fmt: skip


@given(PERFORMATIVES)
def test_every_performative_survives_the_wire(performative: Any) -> None:
    assert decode_performative(encode_composite(performative)) == performative


@given(TRANSFERS, st.binary(max_size=50), st.binary(max_size=50))
def test_the_fast_way_to_read_a_transfer_agrees_with_the_slow_one(sent: Any, payload: bytes, after: bytes) -> None:
    body = encode_composite(sent)
    read = read_transfer(body + payload + after, 3, len(body) + len(payload))
    assert read == (
        sent.handle, sent.delivery_id, sent.delivery_tag, sent.message_format, bool(sent.settled), sent.more,
        sent.aborted, len(body), sent.state.txn_id if isinstance(sent.state, TransactionalState) else None,
    )  # fmt: skip


@given(
    channel=st.integers(0, 65_535), handle=UINTS, number=UINTS, tag=st.binary(max_size=32), form=UINTS,
    settled=st.booleans(), more=st.booleans(), payload=st.binary(max_size=300),
)  # fmt: skip
def test_transfers_are_written_as_they_are_read(
    channel: int, handle: int, number: int, tag: bytes, form: int, settled: bool, more: bool, payload: bytes
) -> None:
    writer = TransferWriter(channel, handle)
    first = writer.first(number, tag, form, settled, more, len(payload)) + payload
    assert first[:8] == frame(channel, first[8:])[:8]
    fields = decode_performative(first[8 : len(first) - len(payload)])
    assert fields == Transfer(handle, number, tag, form, settled, more)
    later = writer.following(settled, more, len(payload)) + payload
    assert later[:8] == frame(channel, later[8:])[:8]
    assert decode_performative(later[8 : len(later) - len(payload)]) == Transfer(handle, settled=settled, more=more)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_transfer_or_a_decode_error(data: bytes) -> None:
    for start in (b"", b"\xc0", b"\xd0\x00\x00\x00"):
        try:
            fields = read_transfer(start + data, 0, len(start + data))
        except DecodeError:
            continue
        assert fields[7] <= len(start + data)


# -- cutting the stream


def conversation(performatives: list[Any], payload: bytes) -> bytes:
    opening = frame(0, encode_composite(Open("peer")))
    beginning = frame(1, encode_composite(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)))
    attaching = [
        frame(1, encode_composite(Attach(str(handle), handle, role, source=Source("q"), target=Target("q"))))
        for handle, role in enumerate((LinkRole.SENDER, LinkRole.RECEIVER))
    ]
    said = [
        frame(1, encode_composite(body) + (payload if isinstance(body, Transfer) else b"")) for body in performatives
    ]
    return AMQP_HEADER + opening + beginning + b"".join(attaching) + b"".join(said)


def summary(events: list[Event]) -> list[Any]:
    """Events of two connections can be compared by what they say, not by the objects they name."""
    return [
        (type(event).__name__, [_plain(getattr(event, name)) for name in type(event).__slots__]) for event in events
    ]


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, ReceivingLink | SendingLink) else _channel(value)


def _channel(value: Any) -> Any:
    return value.channel if hasattr(value, "channel") else value


def server() -> Connection:
    return Connection(role=Role.SERVER, container_id="server", limits=ConnectionLimits(frame_bytes_max=2048))


SMALL_IDS = st.integers(0, 3)
SAID = st.lists(
    st.one_of(
        st.builds(
            Transfer, SMALL_IDS, st.none() | SMALL_IDS, st.just(b"t"), st.none(), st.booleans(), st.booleans(),
            aborted=st.booleans(),
        ),
        st.builds(
            Flow, incoming_window=UINTS, next_outgoing_id=UINTS, outgoing_window=UINTS, handle=st.none() | SMALL_IDS,
            link_credit=st.none() | UINTS, delivery_count=st.none() | UINTS, drain=st.booleans(), echo=st.booleans(),
        ),
        st.builds(Disposition, st.sampled_from(LinkRole), SMALL_IDS, SMALL_IDS, st.booleans(), OUTCOMES),
        PERFORMATIVES,
    ),
    max_size=12,
)  # fmt: skip


@given(SAID, st.binary(max_size=60), st.lists(st.integers(1, 40), max_size=60))
def test_the_cut_of_the_byte_stream_makes_no_difference(said: list[Any], payload: bytes, cuts: list[int]) -> None:
    data = conversation(said, payload)
    whole, in_pieces = server(), server()
    expected = summary(whole.receive(data, 0))
    events: list[Event] = []
    rest = data
    for size in cuts:
        events += in_pieces.receive(rest[:size], 0)
        rest = rest[size:]
    events += in_pieces.receive(rest, 0)
    assert summary(events) == expected
    assert in_pieces.closed == whole.closed


# -- any bytes


@given(SAID, st.data())
@settings(max_examples=examples(200))
def test_a_damaged_conversation_never_raises(said: list[Any], data: st.DataObject) -> None:
    stream = bytearray(conversation(said, b"payload"))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    connection = server()
    events = connection.receive(bytes(stream), 0) + connection.receive(b"and more", 0)
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert len(closed) == connection.closed
    assert isinstance(connection.take_output(), bytes)


@given(st.lists(st.binary(max_size=100), max_size=5), st.booleans())
def test_garbage_never_raises(pieces: list[bytes], greets: bool) -> None:
    connection = server()
    if greets:
        connection.receive(conversation([], b""), 0)
    closed = [
        event for piece in pieces for event in connection.receive(piece, 0) if isinstance(event, ConnectionClosed)
    ]
    assert len(closed) == connection.closed


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_frame_body_never_raises(bodies: list[bytes]) -> None:
    connection = server()
    connection.receive(conversation([], b""), 0)
    for body in bodies:
        connection.receive(frame(1, b"\x00\x53" + body), 0)
    assert isinstance(connection.take_output(), bytes)


# -- two engines


@dataclass
class Side:
    """One end of a connection in memory, and what it does with messages."""

    connection: Connection
    credit: int
    to_send: list[bytes]
    sender: SendingLink | None = None
    got: list[bytes] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        for event in self.connection.receive(data, 0):
            match event:
                case AttachRequested(link=ReceivingLink() as link):
                    link.accept()
                    link.keep_credit = self.credit
                case AttachRequested(link=SendingLink() as link):
                    link.accept()
                    self.sender = link
                case TransferArrived(link=link, delivery_id=number, payload=payload):
                    self.got.append(payload)
                    link.settle(number, number, ACCEPTED)
                case DispositionArrived(deliveries=deliveries, settled=True):
                    self.accepted += [number for number, _ in deliveries]
                case CreditChanged():
                    pass
                case ConnectionClosed(error=error):
                    raise AssertionError(error)

    def send(self) -> None:
        while self.sender is not None and self.sender.attached and self.sender.credit and self.to_send:
            self.sent.append(self.sender.send(self.to_send.pop(0), tag=b"t"))


LIMITS = st.builds(
    ConnectionLimits,
    frame_bytes_max=st.sampled_from([512, 513, 700, 4096, 65_536]),
    incoming_window=st.sampled_from([2, 3, 7, 100]),
    unsettled_max=st.sampled_from([1, 2, 50]),
)
MESSAGES = st.lists(st.integers(0, 3000).map(lambda size: bytes(n % 251 for n in range(size))), max_size=12)


@given(LIMITS, LIMITS, st.integers(1, 9), st.integers(1, 9), MESSAGES, MESSAGES, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_is_lost_or_reordered_between_two_engines(
    client_limits: ConnectionLimits,
    server_limits: ConnectionLimits,
    client_credit: int,
    server_credit: int,
    upward: list[bytes],
    downward: list[bytes],
    data: st.DataObject,
) -> None:
    client = Side(
        Connection(role=Role.CLIENT, container_id="client", sasl=ClientSasl(), limits=client_limits),
        client_credit, list(upward),
    )  # fmt: skip
    broker = Side(
        Connection(role=Role.SERVER, container_id="server", sasl=ServerSasl(), limits=server_limits),
        server_credit, list(downward),
    )  # fmt: skip
    client.connection.open()
    session = client.connection.begin()
    client.sender = session.attach_sender("up", "q")
    session.attach_receiver("down", "q").keep_credit = client_credit
    cut = data.draw(st.sampled_from([1, 7, 600, 100_000]))
    _exchange(client, broker, cut)
    assert (broker.got, client.got) == (upward, downward)
    assert client.sent == client.accepted
    assert broker.sent == broker.accepted
    for side in (client, broker):
        assert side.sender is not None
        assert not side.sender.unsettled
        assert side.sender.unsent == 0


def _exchange(client: Side, broker: Side, cut: int) -> None:
    """Carry bytes in pieces until neither side has anything left to say."""
    for _ in range(2000):
        busy = False
        for here, there in ((client, broker), (broker, client)):
            here.send()
            out = here.connection.take_output()
            busy = busy or bool(out)
            for start in range(0, len(out), cut):
                there.take(out[start : start + cut])
        if not busy:
            return
    raise AssertionError("the two sides talk for ever")


# -- counters


@given(UINTS, st.integers(-(2**31), 2**31 - 1))
def test_steps_undo_plus(counter: int, distance: int) -> None:
    assert steps(counter, plus(counter, distance)) == distance


@given(st.sets(st.integers(-20, 20), max_size=20), st.integers(-20, 20), st.integers(0, 30), UINTS)
def test_ids_between_are_the_same_wherever_the_counter_stands(
    held: set[int], first: int, length: int, origin: int
) -> None:
    shifted = {plus(origin, number): None for number in held}
    found = ids_between(plus(origin, first), plus(origin, first + length), shifted)
    assert sorted(steps(origin, number) for number in found) == sorted(
        number for number in held if first <= number <= first + length
    )
