"""Frames of the engine read by the codec of the official Python client, and its frames read by the engine."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from azure.servicebus._pyamqp import outcomes as official_outcomes
from azure.servicebus._pyamqp import performatives as official
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.endpoints import Source as OfficialSource
from azure.servicebus._pyamqp.endpoints import Target as OfficialTarget
from azure.servicebus._pyamqp.error import AMQPError
from frame_peer import FramePeer, attach_receiving, attach_sending, begin, link_flow, only

from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_HEADER
from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Error, Modified, Outcome, Rejected
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    AttachRequested,
    Authenticated,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Event,
    Opened,
    SessionBegun,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.sasl import ServerSasl


def theirs(performative: Any, channel: int = 1, kind: bytes = b"\x00") -> bytes:
    """A frame written by the official codec."""
    header, body = encode_frame(performative, kind)
    return bytes(header) + struct.pack(">H", channel) + bytes(body or b"")


def read_by_them(data: bytes) -> list[tuple[int, int, list[Any]]]:
    """(channel, code, fields) of every frame, read by the official codec."""
    found = []
    while data:
        size, _, _, channel = struct.unpack_from(">IBBH", data)
        code, fields = decode_frame(memoryview(data[8:size]))
        found.append((channel, code, fields))
        data = data[size:]
    return found


def fill(kind: Any, **fields: Any) -> Any:
    """One of their performatives; what is not given is null."""
    return kind(**{name: fields.get(name) for name in kind._fields})


def official_open() -> Any:
    return fill(
        official.OpenFrame, container_id="py", hostname="127.0.0.1", max_frame_size=1_048_576, channel_max=65_535
    )


def official_begin() -> Any:
    return fill(
        official.BeginFrame, next_outgoing_id=0, outgoing_window=65_536, incoming_window=65_536, handle_max=2**32 - 1
    )


def official_attach(sends: bool, handle: int = 1) -> Any:
    return official.AttachFrame(
        name="link", handle=handle, role=not sends, send_settle_mode=0, rcv_settle_mode=1,
        source=fill(OfficialSource, address="amqps://127.0.0.1:5671/q"), target=fill(OfficialTarget, address="q"),
        unsettled=None, incomplete_unsettled=None, initial_delivery_count=0 if sends else None, max_message_size=0,
        offered_capabilities=None, desired_capabilities=None,
        properties={b"com.microsoft:receiver-name": "me"},
    )  # fmt: skip


def server() -> FramePeer:
    return FramePeer(Connection(role=Role.SERVER, container_id="server", sasl=ServerSasl()))


def opened_by_them() -> FramePeer:
    wire = server()
    init = official.SASLInit(mechanism=b"ANONYMOUS", initial_response=b"", hostname="127.0.0.1")
    wire.feed(SASL_HEADER + theirs(init, 0, b"\x01") + AMQP_HEADER + theirs(official_open(), 0))
    wire.connection.take_output()
    return wire


def begun_by_them() -> FramePeer:
    wire = opened_by_them()
    wire.feed(theirs(official_begin()))
    wire.connection.take_output()
    return wire


def test_what_they_pipeline_at_the_start_is_understood() -> None:
    wire = server()
    init = official.SASLInit(mechanism=b"ANONYMOUS", initial_response=b"", hostname="127.0.0.1")
    events = wire.feed(
        SASL_HEADER + theirs(init, 0, b"\x01") + AMQP_HEADER + theirs(official_open(), 0)
        + theirs(official_begin()) + theirs(official_attach(True, 1)) + theirs(official_attach(False, 2))
    )  # fmt: skip
    expected = [Authenticated, Opened, SessionBegun, AttachRequested, AttachRequested]
    assert [type(event) for event in events] == expected
    opening = only(events, Opened).open
    assert (opening.container_id, opening.max_frame_size, opening.idle_time_out) == ("py", 1_048_576, None)


def test_they_read_the_sasl_part() -> None:
    wire = server()
    wire.feed(SASL_HEADER)
    data = wire.connection.take_output()
    assert data[:8] == SASL_HEADER
    [(_, code, fields)] = read_by_them(data[8:])
    assert (code, fields[0]) == (0x40, [b"ANONYMOUS"])
    init = official.SASLInit(mechanism=b"ANONYMOUS", initial_response=b"", hostname="127.0.0.1")
    wire.feed(theirs(init, 0, b"\x01"))
    [(_, code, fields)] = read_by_them(wire.connection.take_output())
    assert (code, fields[0]) == (0x44, 0)


def test_they_read_open_and_begin() -> None:
    wire = server()
    init = official.SASLInit(mechanism=b"ANONYMOUS", initial_response=b"", hostname="127.0.0.1")
    wire.feed(SASL_HEADER + theirs(init, 0, b"\x01"))
    wire.connection.take_output()
    wire.feed(AMQP_HEADER + theirs(official_open(), 0) + theirs(official_begin(), 1))
    opening, beginning = read_by_them(wire.connection.take_output()[8:])
    assert opening[:2] == (0, 0x10)
    assert opening[2][:5] == [b"server", None, 65_536, 1023, 240_000]
    assert beginning[1] == 0x11
    assert beginning[2][:3] == [1, 0, 5000]


@pytest.mark.parametrize("they_send", [True, False])
def test_they_read_the_answer_to_their_attach(they_send: bool) -> None:
    wire = begun_by_them()
    link = only(wire.feed(theirs(official_attach(they_send))), AttachRequested).link
    assert link.source is not None
    assert link.source.address == "amqps://127.0.0.1:5671/q"
    assert link.properties == {"com.microsoft:receiver-name": "me"}
    link.accept(max_message_size=262_144)
    [(_, code, fields)] = read_by_them(wire.connection.take_output())
    assert code == 0x12
    assert (fields[0], fields[2]) == (b"link", they_send)
    assert fields[5][0] == b"amqps://127.0.0.1:5671/q"
    assert fields[6][0] == b"q"
    assert fields[9] == (None if they_send else 0)
    assert fields[10] == 262_144


def test_they_read_a_refusal() -> None:
    wire = begun_by_them()
    only(wire.feed(theirs(official_attach(True))), AttachRequested).link.refuse(Error("amqp:not-found", "no"))
    attach, detach = read_by_them(wire.connection.take_output())
    assert attach[2][6] is None
    assert detach[2][1:] == [True, [b"amqp:not-found", b"no", None]]


def official_transfer(payload: bytes, number: int = 3, more: bool = False) -> Any:
    return official.TransferFrame(
        handle=0, delivery_id=number, delivery_tag=struct.pack(">I", number), message_format=0, settled=False,
        more=more, rcv_settle_mode=None, state=None, resume=None, aborted=None, batchable=None, payload=payload,
    )  # fmt: skip


def test_their_transfers_are_read() -> None:
    wire = opened_by_them()
    begin(wire)
    link = attach_receiving(wire)
    assert wire.feed(theirs(official_transfer(b"payload"), 0)) == [
        TransferArrived(link, 3, b"\0\0\0\3", 0, False, b"payload")
    ]
    assert wire.feed(theirs(official_transfer(b"one ", 4, True), 0)) == []
    event = only(wire.feed(theirs(official_transfer(b"two", 4), 0)), TransferArrived)
    assert (event.delivery_id, event.payload) == (4, b"one two")


def test_our_transfers_are_read_by_them() -> None:
    wire = opened_by_them()
    begin(wire)
    link = attach_sending(wire, credit=10)
    sent = link.send(b"payload", tag=b"tag", message_format=5)
    link.send(bytes(100_000), settled=True)
    one, first, second = [fields for _, _, fields in read_by_them(wire.connection.take_output())]
    assert one[:6] == [link.handle, sent, b"tag", 5, False, False]
    assert bytes(one[11]) == b"payload"
    assert first[1:6] == [sent + 1, b"", 0, True, True]
    assert (second[1:3], second[4:6]) == ([None, None], [True, False])
    assert len(first[11]) + len(second[11]) == 100_000


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (official_outcomes.Accepted(), ACCEPTED),
        (official_outcomes.Released(), RELEASED),
        (
            official_outcomes.Modified(delivery_failed=True, undeliverable_here=False, message_annotations=None),
            Modified(True, False),
        ),
        (
            official_outcomes.Rejected(
                error=AMQPError(condition=b"com.microsoft:dead-letter", description="d", info={b"Reason": "r"})
            ),
            Rejected(Error("com.microsoft:dead-letter", "d", {"Reason": "r"})),
        ),
    ],
)
def test_their_dispositions_are_read(state: Any, outcome: Outcome) -> None:
    wire = opened_by_them()
    begin(wire)
    link = attach_sending(wire, credit=10)
    ids = [link.send(b"m", tag=b"%d" % number) for number in range(2)]
    frame = official.DispositionFrame(role=True, first=ids[0], last=ids[1], settled=False, state=state, batchable=None)
    assert wire.feed(theirs(frame, 0)) == [DispositionArrived(link, [(ids[0], b"0"), (ids[1], b"1")], outcome, False)]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (ACCEPTED, {"accepted": []}),
        (Rejected(), {"rejected": []}),
        (Rejected(Error("amqp:not-allowed", "no")), {"rejected": [[b"amqp:not-allowed", b"no", None]]}),
        (Modified(True, True), {"modified": [True, True]}),
    ],
)
def test_our_dispositions_are_read_by_them(outcome: Outcome, state: dict[str, Any]) -> None:
    wire = opened_by_them()
    begin(wire)
    link = attach_receiving(wire)
    link.settle(3, 300, outcome)
    [(_, code, fields)] = read_by_them(wire.connection.take_output())
    assert code == 0x15
    assert fields[:5] == [True, 3, 300, True, state]


def test_flows_are_read_both_ways() -> None:
    wire = opened_by_them()
    begin(wire)
    sending, receiving = attach_sending(wire, handle=0), attach_receiving(wire, handle=1)
    flow = official.FlowFrame(
        next_incoming_id=0, incoming_window=65_536, next_outgoing_id=0, outgoing_window=65_536, handle=0,
        delivery_count=0, link_credit=10, available=None, drain=True, echo=None, properties=None,
    )  # fmt: skip
    assert wire.feed(theirs(flow, 0)) == [CreditChanged(sending, 10, 10, True)]
    sending.drained()
    receiving.grant(100)
    drained, granted = [fields for _, _, fields in read_by_them(wire.connection.take_output())]
    assert drained[4:9] == [sending.handle, 10, 0, None, True]
    assert granted[4:9] == [receiving.handle, 0, 100, None, False]


def test_they_may_detach_after_the_end() -> None:
    wire = begun_by_them()
    only(wire.feed(theirs(official_attach(True))), AttachRequested).link.accept()
    wire.connection.take_output()
    detach = theirs(official.DetachFrame(handle=1, closed=True, error=None))
    events = wire.feed(theirs(official.EndFrame(error=None)) + detach + theirs(official.CloseFrame(error=None), 0))
    assert [type(event) for event in events] == [SessionEnded, ConnectionClosed]
    assert [code for _, code, _ in read_by_them(wire.connection.take_output())] == [0x17, 0x18]


def test_detach_and_close_with_a_reason_are_read_both_ways() -> None:
    wire = opened_by_them()
    begin(wire)
    link = attach_receiving(wire)
    problem = AMQPError(condition=b"amqp:internal-error", description="oops", info=None)
    events: list[Event] = wire.feed(theirs(official.DetachFrame(handle=0, closed=True, error=problem), 0))
    assert events == [Detached(link, Error("amqp:internal-error", "oops"), True)]
    wire.connection.close(Error("amqp:connection:forced"))
    detach, close = [fields for _, _, fields in read_by_them(wire.connection.take_output())]
    assert detach == [link.handle, True, None]
    assert close == [[b"amqp:connection:forced", None, None]]


def test_a_link_flow_of_ours_restates_the_window() -> None:
    wire = opened_by_them()
    begin(wire)
    attach_sending(wire)
    wire.say(link_flow(0, 1, echo=True))
    [(_, _, fields)] = read_by_them(wire.connection.take_output())
    assert fields[:2] == [0, 5000]
