"""Windows, handles, and dispositions that span links."""

from __future__ import annotations

import gc
import struct
import weakref
from itertools import pairwise
from typing import Any

import pytest
from frame_peer import FramePeer, attach_receiving, attach_sending, begin, link_flow, message, only, opened, payload_of

from twinbus.amqp.codec.frame_codec import read_transfer
from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, TransactionalState
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    LinkRole,
    Open,
    Source,
    Target,
)
from twinbus.amqp.events import (
    AttachRequested,
    CreditChanged,
    Detached,
    DispositionArrived,
    SessionBegun,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.errors import AmqpError, DecodeError

SESSION_FLOW = Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10)


def transfers(wire: FramePeer) -> list[bytes]:
    return [payload_of(body) for body in wire.heard_bodies() if isinstance(body, bytes)]


def test_the_incoming_window_is_opened_again_before_it_is_used_up() -> None:
    wire = opened(ConnectionLimits(incoming_window=10))
    begin(wire)
    attach_receiving(wire)
    flows = []
    for number in range(100):
        wire.say(message(number), 0, b"m")
        flows += [(number, body) for body in wire.heard_bodies() if isinstance(body, Flow)]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(flows)]
    assert max(gaps) < 10
    assert all(flow.incoming_window == 10 and flow.next_incoming_id == number + 1 for number, flow in flows)


def test_the_next_outgoing_id_of_the_peer_is_not_policed() -> None:
    wire = opened()
    begin(wire)
    attach_receiving(wire)
    for number in (7, 7000, 3):
        assert only(wire.say(message(number), 0, b"m"), TransferArrived).delivery_id == number
    wire.say(Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=12345, outgoing_window=10))
    assert not wire.connection.closed


def test_transfers_wait_while_the_window_of_the_peer_is_closed() -> None:
    wire = opened()
    begin(wire, incoming_window=2)
    link = attach_sending(wire)
    wire.say(link_flow(0, 10, window=2))
    for number in range(5):
        link.send(b"%d" % number)
    assert link.unsent == 3
    assert transfers(wire) == [b"0", b"1"]
    wire.say(link_flow(0, 8, count=2, window=2, seen=2))
    assert transfers(wire) == [b"2", b"3"]
    assert link.unsent == 1
    wire.say(Flow(next_incoming_id=4, incoming_window=2, next_outgoing_id=0, outgoing_window=1))
    assert transfers(wire) == [b"4"]
    assert link.unsent == 0


def test_a_window_counts_what_the_peer_has_not_seen_yet() -> None:
    wire = opened()
    begin(wire, incoming_window=3)
    link = attach_sending(wire)
    wire.say(link_flow(0, 10, window=3))
    for number in range(6):
        link.send(b"%d" % number)
    assert transfers(wire) == [b"0", b"1", b"2"]
    wire.say(link_flow(0, 10, window=3, seen=1))
    assert transfers(wire) == [b"3"]


def test_a_large_delivery_can_stop_half_way_at_a_closed_window() -> None:
    wire = opened(peer=Open("peer", max_frame_size=512))
    begin(wire, incoming_window=2)
    link = attach_sending(wire)
    wire.say(link_flow(0, 10, window=2))
    payload = bytes(range(256)) * 8
    link.send(payload)
    parts = transfers(wire)
    assert link.unsent == 1
    while link.unsent:
        wire.say(link_flow(0, 9, count=1, window=1, seen=len(parts)))
        parts += transfers(wire)
    assert b"".join(parts) == payload


def test_what_waits_for_a_window_is_dropped_with_its_link() -> None:
    wire = opened()
    begin(wire, incoming_window=0)
    gone = attach_sending(wire, handle=0, name="gone")
    stays = attach_sending(wire, handle=1, name="stays")
    for handle in range(2):
        wire.say(link_flow(handle, 10, window=0))
    gone.send(b"gone")
    stays.send(b"stays")
    gone.detach()
    wire.heard()
    wire.say(SESSION_FLOW)
    assert transfers(wire) == [b"stays"]


def test_a_flow_that_wants_an_echo_gets_one() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    wire.say(Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10, echo=True))
    [session_flow] = wire.heard_bodies()
    assert (session_flow.handle, session_flow.incoming_window) == (None, 5000)
    wire.say(link_flow(0, 7, echo=True))
    [answer] = wire.heard_bodies()
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (link.handle, 7, 0)


def test_frames_for_unknown_handles_are_let_pass() -> None:
    wire = opened()
    begin(wire)
    assert wire.say(Detach(9, True)) == []
    assert wire.say(link_flow(9, 10)) == []
    assert wire.say(message(1, handle=9), 0, b"nobody's") == []
    assert wire.heard_bodies() == []
    assert not wire.connection.closed


def test_a_handle_in_use_ends_the_session_only() -> None:
    wire = opened()
    session = begin(wire)
    attach_receiving(wire)
    ended = only(wire.say(Attach("other", 0, LinkRole.SENDER)), SessionEnded)
    assert ended.session is session
    [end] = wire.heard_bodies()
    assert isinstance(end, End)
    assert end.error is not None
    assert end.error.condition == "amqp:session:handle-in-use"
    assert wire.say(End()) == []
    assert not wire.connection.closed
    begin(wire)


def test_a_handle_above_handle_max_closes_the_connection() -> None:
    wire = opened(ConnectionLimits(links_per_session_max=4))
    begin(wire)
    wire.say(Attach("l", 4, LinkRole.SENDER))
    close = wire.heard_bodies()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:framing-error"


def test_a_transfer_against_the_direction_of_its_link_ends_the_session() -> None:
    wire = opened()
    begin(wire)
    attach_sending(wire)
    only(wire.say(message(1), 0, b"m"), SessionEnded)


def test_a_link_to_a_coordinator_is_accepted_with_that_as_its_target() -> None:
    wire = opened()
    begin(wire)
    requested = only(wire.say(Attach("tx", 0, LinkRole.SENDER, source=Source(), target=Coordinator())), AttachRequested)
    requested.link.accept()
    [attach] = wire.heard_bodies()
    assert attach.target == Coordinator()


@pytest.mark.parametrize("descriptor", [b"\x53\x34", b"\xa3\x1damqp:transactional-state:list"])
def test_a_transfer_says_to_which_transaction_it_belongs(descriptor: bytes) -> None:
    state = b"\x00" + descriptor + b"\xc0\x04\x01\xa0\x01x"
    fields = b"\x08" + b"\x43\x43\xa0\x01t\x43\x42\x42\x40" + state
    frame = b"\xc0" + bytes([len(fields)]) + fields
    assert read_transfer(frame, 0, len(frame))[8] == b"x"


@pytest.mark.parametrize("txn_id", [b"\xa1\x01x", b"\xb0\x00\x00\x01\x01" + 257 * b"x"])
def test_the_id_of_a_transaction_is_binary_and_short(txn_id: bytes) -> None:
    state = b"\x00\x53\x34\xd0" + struct.pack(">II", len(txn_id) + 4, 1) + txn_id
    fields = b"\x43\x43\xa0\x01t\x43\x42\x42\x40" + state
    frame = b"\xd0" + struct.pack(">II", len(fields) + 4, 8) + fields
    with pytest.raises(DecodeError):
        read_transfer(frame, 0, len(frame))


@pytest.mark.parametrize("txn_id", [b"12345678", 200 * b"x"])
@pytest.mark.parametrize("size", [10, 100_000])
def test_what_is_sent_in_a_transaction_says_so_in_its_first_frame(txn_id: bytes, size: int) -> None:
    ours, theirs = opened(), opened()
    for wire in (ours, theirs):
        begin(wire)
    link = attach_sending(ours)
    attach_receiving(theirs)
    ours.connection.take_output()
    link.send(size * b"m", tag=b"t", message_format=7, transaction=txn_id)
    arrived = only(theirs.connection.receive(ours.connection.take_output(), 0), TransferArrived)
    assert (arrived.payload, arrived.tag, arrived.message_format, arrived.transaction) == (size * b"m", b"t", 7, txn_id)


def test_an_outcome_says_to_which_transaction_it_belongs() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    sent = link.send(b"m", tag=b"a")
    state = TransactionalState(b"x", RELEASED)
    assert wire.say(Disposition(LinkRole.RECEIVER, sent, state=state)) == [
        DispositionArrived(link, [(sent, b"a")], RELEASED, False, b"x")
    ]
    link.settle(sent, sent, state)
    assert wire.heard_bodies()[-1].state == state


def test_a_range_of_dispositions_spans_the_links_of_a_session() -> None:
    wire = opened()
    begin(wire)
    one = attach_sending(wire, handle=0, name="one", credit=10)
    two = attach_sending(wire, handle=1, name="two", credit=10)
    ids = [link.send(b"m", tag=tag) for link, tag in ((one, b"a"), (two, b"b"), (one, b"c"), (two, b"d"))]
    events = wire.say(Disposition(LinkRole.RECEIVER, ids[0], ids[2], False, ACCEPTED))
    assert events == [
        DispositionArrived(one, [(ids[0], b"a"), (ids[2], b"c")], ACCEPTED, False),
        DispositionArrived(two, [(ids[1], b"b")], ACCEPTED, False),
    ]
    assert len(one.unsettled) == len(two.unsettled) == 2


def test_a_settled_disposition_forgets_the_delivery() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    sent = link.send(b"m", tag=b"a")
    assert wire.say(Disposition(LinkRole.RECEIVER, sent, None, True, RELEASED)) == [
        DispositionArrived(link, [(sent, b"a")], RELEASED, True)
    ]
    assert not link.unsettled
    assert not link.session.unsettled
    assert wire.say(Disposition(LinkRole.RECEIVER, sent, None, True, RELEASED)) == []


def test_a_range_of_all_ids_finds_what_there_is() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    ids = [link.send(b"m", tag=b"%d" % number) for number in range(3)]
    event = only(wire.say(Disposition(LinkRole.RECEIVER, 0, 2**31 - 1, False, ACCEPTED)), DispositionArrived)
    assert [delivery_id for delivery_id, _ in event.deliveries] == ids


def test_a_range_that_ends_before_it_starts_names_nothing() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    sent = link.send(b"m")
    assert wire.say(Disposition(LinkRole.RECEIVER, sent + 5, sent, False, ACCEPTED)) == []


def test_dispositions_for_unknown_ids_are_ignored() -> None:
    wire = opened()
    begin(wire)
    assert wire.say(Disposition(LinkRole.RECEIVER, 5, 900, True, ACCEPTED)) == []
    assert wire.say(Disposition(LinkRole.SENDER, 5, None, True, ACCEPTED)) == []


def test_a_detach_makes_the_deliveries_of_its_link_unknown() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    sent = link.send(b"m", tag=b"a")
    only(wire.say(Detach(0, True)), Detached)
    assert wire.say(Disposition(LinkRole.RECEIVER, sent, None, False, ACCEPTED)) == []
    wire.heard()
    link.settle(sent, sent, ACCEPTED)
    assert wire.heard_bodies() == []


def test_neighbouring_dispositions_become_one_range() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    for number in (1, 2, 3, 5, 6):
        link.settle(number, number, ACCEPTED)
    link.settle(7, 7, RELEASED)
    ranges = [(body.first, body.last, body.state) for body in wire.heard_bodies()]
    assert ranges == [(1, 3, ACCEPTED), (5, 6, ACCEPTED), (7, 7, RELEASED)]


def test_a_disposition_goes_out_before_the_detach_that_follows_it() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.settle(1, 1, ACCEPTED)
    link.detach()
    assert [type(body) for body in wire.heard_bodies()] == [Disposition, Detach]


def test_links_keep_their_handles_apart() -> None:
    wire = opened()
    session = begin(wire)
    numbers = (5, 0, 9)
    for handle in numbers:
        only(wire.say(Attach(f"l{handle}", handle, LinkRole.RECEIVER, source=Source("q"))), AttachRequested)
    assert len({link.handle for link in session.links}) == 3
    for handle in numbers:
        link = only(wire.say(link_flow(handle, handle + 1)), CreditChanged).link
        assert (link.name, link.credit) == (f"l{handle}", handle + 1)


def test_an_ended_session_keeps_its_links_for_those_who_clean_up() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    ended = only(wire.say(End()), SessionEnded)
    assert ended.session.links == [link]
    assert not link.attached
    link.settle(1, 1, ACCEPTED)
    link.detach()
    assert wire.heard_bodies() == [End()]


def test_a_target_may_be_given_as_an_address() -> None:
    wire = opened()
    session = begin(wire)
    session.attach_sender("a", "queue")
    session.attach_receiver("b", Source("queue"), target=Target("here"))
    one, two = wire.heard_bodies()
    assert (one.target, one.initial_delivery_count) == (Target("queue"), 0)
    assert (two.source, two.target, two.initial_delivery_count) == (Source("queue"), Target("here"), None)


def test_the_handle_max_of_the_peer_is_kept() -> None:
    wire = opened()
    said = Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9, handle_max=0)
    session = only(wire.say(said), SessionBegun).session
    session.attach_sender("one", "q")
    with pytest.raises(AmqpError, match="1 links"):
        session.attach_sender("two", "q")


def test_nothing_that_a_peer_held_waits_for_the_garbage_collector_when_it_is_gone() -> None:
    wire = opened()
    begin(wire)
    incoming, outgoing = attach_receiving(wire), attach_sending(wire, handle=1)
    wire.say(message(0, more=True), payload=b"x" * 1000)
    held: list[weakref.ref[Any]] = [weakref.ref(incoming), weakref.ref(outgoing), weakref.ref(incoming.session)]
    del incoming, outgoing
    gc.disable()
    try:
        wire.connection.forget()
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()
