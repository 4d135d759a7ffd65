"""Links: how they come and go, credit, and deliveries in one frame or many."""

from __future__ import annotations

from typing import Any

import pytest
from frame_peer import attach_receiving, attach_sending, begin, link_flow, message, only, opened, payload_of

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frame_codec import read_transfer
from twinbus.amqp.codec.frames import frame
from twinbus.amqp.codec.outcomes import ACCEPTED, Error, Rejected
from twinbus.amqp.codec.performatives import (
    Attach,
    Detach,
    Disposition,
    Flow,
    LinkRole,
    Open,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.codec.types import Described, Symbol
from twinbus.amqp.events import (
    Attached,
    AttachRequested,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Drained,
    LinkRefused,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.link import LinkState
from twinbus.amqp.peer_memory import FRAME_COST
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.errors import AmqpError

SESSION_FILTER = {Symbol("com.microsoft:session-filter"): None, Symbol("x"): Described(Symbol("d"), ["v"])}


def fields(body: bytes) -> tuple[Any, ...]:
    """handle, delivery id, tag, format, settled, more, aborted"""
    return read_transfer(body, 3, len(body))[:7]


# -- attach


def test_an_attach_reply_echoes_source_and_target() -> None:
    wire = opened()
    begin(wire)
    source = Source("amqps://host:5671/q", 0, filter=SESSION_FILTER, capabilities=("queue",))
    target = Target("me", expiry_policy="session-end")
    link = only(wire.say(Attach("l", 3, LinkRole.RECEIVER, 0, 1, source, target)), AttachRequested).link
    link.accept(properties={Symbol("p"): 1}, max_message_size=262_144)
    [reply] = wire.heard_bodies()
    assert (reply.source, reply.target) == (source, target)
    assert (reply.name, reply.role) == ("l", LinkRole.SENDER)
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (0, 1)
    assert (reply.properties, reply.max_message_size) == ({"p": 1}, 262_144)
    assert link.attached


def test_what_is_accepted_may_differ_from_what_was_asked_for() -> None:
    wire = opened()
    begin(wire)
    link = only(wire.say(Attach("l", 0, LinkRole.RECEIVER, source=Source("q"))), AttachRequested).link
    link.accept(source=Source("q", filter={Symbol("com.microsoft:session-filter"): "s1"}))
    [reply] = wire.heard_bodies()
    assert reply.source.filter == {"com.microsoft:session-filter": "s1"}
    assert link.source == reply.source


@pytest.mark.parametrize("terminus", [(None, None), (Source(), Target())])
def test_a_reply_has_a_source_and_a_target_even_if_the_peer_gave_none(
    terminus: tuple[Source | None, Target | None],
) -> None:
    wire = opened()
    begin(wire)
    link = only(wire.say(Attach("l", 0, LinkRole.SENDER, 2, 0, *terminus)), AttachRequested).link
    link.accept()
    [reply] = wire.heard_bodies()
    assert (reply.source, reply.target) == (Source(), Target())


@pytest.mark.parametrize(("role", "count"), [(LinkRole.RECEIVER, 0), (LinkRole.SENDER, None)])
def test_the_initial_delivery_count_is_set_when_we_are_the_sender(role: LinkRole, count: int | None) -> None:
    wire = opened()
    begin(wire)
    only(wire.say(Attach("l", 0, role, source=Source("q"), target=Target("q"))), AttachRequested).link.accept()
    assert wire.heard_bodies()[0].initial_delivery_count == count


@pytest.mark.parametrize("role", LinkRole)
def test_a_refusal_is_an_attach_without_terminus_and_a_detach_with_the_reason(role: LinkRole) -> None:
    wire = opened()
    begin(wire)
    asked = Attach("l", 0, role, source=Source("q"), target=Target("q"))
    link = only(wire.say(asked), AttachRequested).link
    link.refuse(Error("amqp:not-found", "no"))
    attach, detach = wire.heard_bodies()
    assert attach.role is role.other
    assert (attach.source is None) == (role is LinkRole.RECEIVER)
    assert (attach.target is None) == (role is LinkRole.SENDER)
    assert detach == Detach(link.handle, True, Error("amqp:not-found", "no"))
    assert not link.attached
    assert wire.say(Detach(0, True)) == []
    assert wire.heard_bodies() == []
    assert link.session.links == []


def test_an_answer_to_a_link_that_is_gone_is_not_sent() -> None:
    wire = opened()
    begin(wire)
    link = only(wire.say(Attach("l", 0, LinkRole.SENDER, source=Source("s"))), AttachRequested).link
    assert wire.say(Detach(0, True)) == [Detached(link, None, True)]
    assert [type(body) for body in wire.heard_bodies()] == [Attach, Detach]
    link.accept()
    link.refuse(Error("amqp:not-found"))
    link.detach()
    assert wire.heard_bodies() == []
    assert not link.attached


def test_an_attach_may_be_answered_much_later() -> None:
    wire = opened()
    begin(wire)
    slow = only(wire.say(Attach("slow", 0, LinkRole.RECEIVER, source=Source("q"))), AttachRequested).link
    assert isinstance(slow, SendingLink)
    assert only(wire.say(link_flow(0, 5)), CreditChanged).credit == 5
    attach_receiving(wire, handle=1)
    slow.accept()
    assert [body.name for body in wire.heard_bodies()] == ["slow"]
    assert slow.credit == 5


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind(closed: bool) -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    error = Error("amqp:internal-error", "tired")
    assert wire.say(Detach(0, closed, error)) == [Detached(link, error, closed)]
    assert wire.heard_bodies() == [Detach(link.handle, closed)]
    assert link.state is LinkState.DETACHED
    assert attach_receiving(wire, handle=0, name="in") is not link


def test_our_detach_is_reported_when_the_peer_has_answered() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.detach(Error("com.microsoft:session-lock-lost", "late"))
    assert wire.heard_bodies() == [Detach(link.handle, True, Error("com.microsoft:session-lock-lost", "late"))]
    assert wire.say(message(1), 0, b"late") == []
    link.detach()
    assert wire.say(Detach(0, True)) == [Detached(link, None, True)]
    assert wire.heard_bodies() == []


def test_our_attach_is_answered_by_name() -> None:
    wire = opened()
    session = begin(wire)
    sender, receiver = session.attach_sender("same", "q"), session.attach_receiver("same", "q")
    wire.heard()
    assert wire.say(Attach("same", 8, LinkRole.RECEIVER, source=Source(), target=Target("q"))) == [Attached(sender)]
    reply = Attach("same", 9, LinkRole.SENDER, source=Source("q"), target=Target(), initial_delivery_count=4)
    assert wire.say(reply) == [Attached(receiver)]
    assert wire.say(link_flow(8, 3)) == [CreditChanged(sender, 3, 3, False)]


def test_our_attach_is_refused_by_an_attach_without_terminus() -> None:
    wire = opened()
    session = begin(wire)
    link = session.attach_sender("l", "q")
    wire.heard()
    assert wire.say(Attach("l", 0, LinkRole.RECEIVER, source=Source("l"))) == []
    assert wire.say(Detach(0, True, Error("amqp:not-found"))) == [LinkRefused(link, Error("amqp:not-found"))]
    assert wire.heard_bodies() == [Detach(link.handle, True)]
    assert not link.attached


# -- receiving


def test_a_delivery_in_one_frame_arrives() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    transfer = Transfer(0, 7, b"tag", 0x80013700, True)
    assert wire.say(transfer, 0, b"payload") == [TransferArrived(link, 7, b"tag", 0x80013700, True, b"payload")]


def test_incoming_deliveries_are_settled_with_the_answer() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    wire.say(message(7), 0, b"m")
    link.settle(7, 7, ACCEPTED)
    assert wire.heard_bodies() == [Disposition(LinkRole.RECEIVER, 7, 7, True, ACCEPTED)]


def test_transfers_beyond_the_credit_are_taken() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    assert [type(event) for n in range(3) for event in wire.say(message(n), 0, b"m")] == [TransferArrived] * 3
    assert (link.credit, link.delivery_count) == (0, 3)


def test_a_delivery_in_parts_arrives_when_it_is_whole() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    before = wire.connection.account.held
    assert wire.say(Transfer(0, 7, b"tag", 5, more=True), 0, b"one ") == []
    assert wire.say(Transfer(0, more=True), 0, b"two ") == []
    assert wire.say(Transfer(0, 7, b"tag", settled=True), 0, b"three") == [
        TransferArrived(link, 7, b"tag", 5, True, b"one two three")
    ]
    assert link.delivery_count == 1
    assert wire.connection.account.held == before


def test_deliveries_in_parts_on_several_links_may_be_mixed() -> None:
    wire = opened()
    begin(wire)
    attach_receiving(wire, handle=0, name="a")
    attach_receiving(wire, handle=1, name="b")
    wire.say(Transfer(0, 1, b"a", more=True), 0, b"a1")
    wire.say(Transfer(1, 2, b"b", more=True), 0, b"b1")
    assert only(wire.say(Transfer(0), 0, b"a2"), TransferArrived).payload == b"a1a2"
    assert only(wire.say(Transfer(1), 0, b"b2"), TransferArrived).payload == b"b1b2"


def test_an_aborted_delivery_is_dropped() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    before = wire.connection.account.held
    wire.say(Transfer(0, 1, b"a", more=True), 0, b"half")
    assert wire.say(Transfer(0, aborted=True)) == []
    assert wire.say(Transfer(0, 2, b"b", aborted=True), 0, b"x") == []
    assert wire.connection.account.held == before
    assert only(wire.say(message(3), 0, b"next"), TransferArrived).payload == b"next"
    assert link.delivery_count == 1


def test_a_delivery_that_is_too_large_is_rejected_when_it_ends() -> None:
    wire = opened(ConnectionLimits(message_bytes_max=100))
    begin(wire)
    link = attach_receiving(wire)
    before = wire.connection.account.held
    wire.say(Transfer(0, 9, b"a", more=True), 0, b"x" * 60)
    for _ in range(50):
        assert wire.say(Transfer(0, more=True), 0, b"x" * 60) == []
        assert wire.connection.account.held <= before + 100 + FRAME_COST
    assert wire.say(Transfer(0), 0, b"end") == []
    [answer] = wire.heard_bodies()
    assert (answer.first, answer.settled, answer.state.error.condition) == (9, True, "amqp:link:message-size-exceeded")
    assert link.attached
    assert wire.connection.account.held == before
    assert only(wire.say(message(10), 0, b"fine"), TransferArrived).payload == b"fine"


def test_unfinished_deliveries_of_a_connection_are_bounded_together() -> None:
    wire = opened()
    begin(wire)
    for handle in range(2):
        attach_receiving(wire, handle=handle, name=str(handle))
    wire.connection.account.limit = wire.connection.account.held + FRAME_COST + 150
    wire.say(Transfer(0, 1, b"a", more=True), 0, b"x" * 100)
    closed = only(wire.say(Transfer(1, 2, b"b", more=True), 0, b"x" * 100), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"


def test_an_unfinished_delivery_is_forgotten_with_its_link() -> None:
    wire = opened()
    begin(wire)
    before = wire.connection.account.held
    attach_receiving(wire)
    wire.say(Transfer(0, 1, b"a", more=True), 0, b"half")
    wire.say(Detach(0, True))
    assert wire.connection.account.held == before


@pytest.mark.parametrize("first", [Transfer(0, more=False), Transfer(0, more=True)])
def test_the_first_frame_of_a_delivery_needs_an_id(first: Transfer) -> None:
    wire = opened()
    begin(wire)
    attach_receiving(wire)
    only(wire.say(first, 0, b"m"), SessionEnded)


def test_a_delivery_cannot_begin_inside_another() -> None:
    wire = opened()
    begin(wire)
    attach_receiving(wire)
    wire.say(Transfer(0, 1, b"a", more=True), 0, b"half")
    only(wire.say(message(2), 0, b"m"), SessionEnded)


def test_a_transfer_does_not_reach_into_the_next_frame() -> None:
    wire = opened()
    begin(wire)
    attach_receiving(wire)
    whole = encode_composite(message(1))
    closed = only(wire.feed(frame(0, whole[:-8]) + whole[-8:] + bytes(64)), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:decode-error"


def test_granted_credit_is_reported_with_the_count_of_the_peer() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    wire.say(message(1), 0, b"m")
    link.grant(50)
    [flow] = wire.heard_bodies()
    assert (flow.handle, flow.link_credit, flow.delivery_count, flow.drain) == (link.handle, 50, 1, False)


def test_kept_credit_is_granted_at_once_and_again_below_half() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.keep_credit = 10
    assert [flow.link_credit for flow in wire.heard_bodies()] == [10]
    for number in range(5):
        wire.say(message(number), 0, b"m")
    assert wire.heard_bodies() == []
    wire.say(message(5), 0, b"m")
    assert [(flow.link_credit, flow.delivery_count) for flow in wire.heard_bodies()] == [(10, 6)]


def test_credit_to_keep_may_be_set_before_the_link_is_accepted() -> None:
    wire = opened()
    begin(wire)
    link = only(wire.say(Attach("l", 0, LinkRole.SENDER, target=Target("q"))), AttachRequested).link
    assert isinstance(link, ReceivingLink)
    link.keep_credit = 10
    assert wire.heard_bodies() == []
    link.accept()
    assert [type(body).__name__ for body in wire.heard_bodies()] == ["Attach", "Flow"]


def test_a_drain_of_ours_is_over_when_the_peer_has_answered() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.grant(10)
    link.drain()
    assert [flow.drain for flow in wire.heard_bodies()] == [False, True]
    only(wire.say(message(1), 0, b"m"), TransferArrived)
    assert wire.say(link_flow(0, 0, count=10, drain=True)) == [Drained(link)]
    assert (link.credit, link.delivery_count) == (0, 10)


def test_credit_and_its_drain_can_be_said_in_one_flow() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.grant(10, drain=True)
    assert [(flow.link_credit, flow.drain) for flow in wire.heard_bodies()] == [(10, True)]
    assert wire.say(link_flow(0, 0, count=10, drain=True)) == [Drained(link)]


def test_an_outcome_we_did_not_settle_is_answered() -> None:
    wire = opened()
    begin(wire)
    link = attach_receiving(wire)
    link.settle(4, 5, ACCEPTED, settled=False)
    assert wire.heard_bodies() == [Disposition(LinkRole.RECEIVER, 4, 5, False, ACCEPTED)]
    assert wire.say(Disposition(LinkRole.SENDER, 4, 9, True, ACCEPTED)) == [
        DispositionArrived(link, [(4, b""), (5, b"")], ACCEPTED, True)
    ]
    assert wire.say(Disposition(LinkRole.SENDER, 4, 9, True, ACCEPTED)) == []


# -- sending


def test_credit_is_reported_and_used() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    assert wire.say(link_flow(0, 2)) == [CreditChanged(link, 2, 2, False)]
    link.send(b"a")
    assert (link.credit, link.credit_limit, link.delivery_count) == (1, 2, 1)
    assert wire.say(link_flow(0, 5, count=0)) == [CreditChanged(link, 4, 5, False)]


@pytest.mark.parametrize("credit", [2**31, 2**32 - 1])
def test_credit_without_end_is_a_lot_of_credit(credit: int) -> None:
    wire = opened(ConnectionLimits(unsettled_max=2**31 - 1))
    begin(wire)
    attach_sending(wire)
    assert only(wire.say(link_flow(0, credit)), CreditChanged).credit == 2**31 - 1


def test_counters_start_again_at_zero() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    link.delivery_count = 2**32 - 1
    assert wire.say(link_flow(0, 3, count=2**32 - 1)) == [CreditChanged(link, 3, 2, False)]
    link.send(b"a")
    assert (link.credit, link.delivery_count, link.credit_limit) == (2, 0, 2)


def test_credit_may_be_taken_back() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    link.send(b"a")
    assert wire.say(link_flow(0, 0, count=0)) == [CreditChanged(link, 0, 1, False)]
    link.send(b"was on its way")
    assert (link.credit, link.credit_limit, link.delivery_count) == (0, 2, 2)


def test_a_drain_is_answered_with_the_credit_used_up() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    assert wire.say(link_flow(0, 10, drain=True)) == [CreditChanged(link, 10, 10, True)]
    link.send(b"a")
    wire.heard()
    link.drained()
    [flow] = wire.heard_bodies()
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (link.handle, 10, 0, True)
    assert (link.credit, link.credit_limit) == (0, 10)


def test_a_drain_is_answered_once_and_not_at_all_when_it_was_taken_back() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    wire.say(link_flow(0, 10, drain=True))
    link.drained()
    link.drained()
    assert len(wire.heard_bodies()) == 1
    wire.say(link_flow(0, 10, count=10, drain=True))
    wire.say(link_flow(0, 10, count=10))
    link.drained()
    assert wire.heard_bodies() == []
    assert link.credit == 10


@pytest.mark.parametrize("asks", [{"drain": True}, {"echo": True}], ids=["drain", "echo"])
def test_a_flow_about_a_link_comes_after_the_messages_that_it_counts(asks: dict[str, bool]) -> None:
    wire = opened()
    begin(wire, incoming_window=1)
    link = attach_sending(wire)
    wire.say(link_flow(0, 5, window=1))
    for body in (b"a", b"b", b"c"):
        link.send(body)
    wire.say(link_flow(0, 5, window=1, **asks))
    link.drained()
    heard = [type(body).__name__ for body in wire.heard_bodies()]
    for seen in (1, 2):
        wire.say(Flow(next_incoming_id=seen, incoming_window=1, next_outgoing_id=0, outgoing_window=1))
        heard += [type(body).__name__ for body in wire.heard_bodies()]
    assert heard == ["bytes", "bytes", "bytes", "Flow"]  # transfers are left encoded


def test_a_drain_without_credit_is_answered_too() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire)
    assert only(wire.say(link_flow(0, 0, drain=True)), CreditChanged).drain
    link.drained()
    assert [(flow.link_credit, flow.drain) for flow in wire.heard_bodies()] == [(0, True)]


def test_a_message_that_fits_is_one_frame() -> None:
    wire = opened()
    begin(wire, 1)
    link = attach_sending(wire, 1, credit=10)
    sent = link.send(b"payload", tag=b"lock token 16 by", message_format=7)
    [(channel, body)] = wire.heard()
    assert channel == link.session.channel
    assert fields(body) == (link.handle, sent, b"lock token 16 by", 7, False, False, False)
    assert payload_of(body) == b"payload"
    assert link.unsettled == {sent: b"lock token 16 by"}


def test_a_settled_message_without_a_tag_carries_an_empty_one_and_is_not_remembered() -> None:
    """Not null: AMQP wants a tag in the first frame of every delivery, and the Go client insists."""
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    link.send(b"m", settled=True)
    [body] = wire.heard_bodies()
    assert fields(body)[2:5] == (b"", 0, True)
    assert not link.unsettled


@pytest.mark.parametrize(("ours", "theirs"), [(65_536, 512), (600, 65_536)])
@pytest.mark.parametrize("size", [400, 512, 600, 1000, 100_000])
def test_a_message_is_split_at_the_smaller_frame_size(ours: int, theirs: int, size: int) -> None:
    wire = opened(ConnectionLimits(frame_bytes_max=ours), Open("peer", max_frame_size=theirs))
    begin(wire)
    link = attach_sending(wire, credit=10)
    payload = bytes(size)
    sent = link.send(payload, tag=b"t", message_format=9)
    bodies = wire.heard_bodies()
    assert b"".join(payload_of(body) for body in bodies) == payload
    assert all(len(body) + 8 <= min(ours, theirs) for body in bodies)
    assert [fields(body)[5] for body in bodies] == [True] * (len(bodies) - 1) + [False]
    assert fields(bodies[0])[1:4] == (sent, b"t", 9)


def test_only_the_first_frame_of_a_delivery_names_it() -> None:
    wire = opened(peer=Open("peer", max_frame_size=512))
    begin(wire)
    link = attach_sending(wire, credit=10)
    link.send(bytes(2000), tag=b"t")
    _, *others = wire.heard_bodies()
    assert others
    assert all(fields(body)[1:4] == (None, None, None) for body in others)


def test_settling_what_we_sent_says_so_and_forgets_it() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    first, second = link.send(b"a"), link.send(b"b")
    wire.heard()
    link.settle(first, second, Rejected())
    assert wire.heard_bodies() == [Disposition(LinkRole.SENDER, first, second, True, Rejected())]
    assert not link.unsettled
    link.settle(first, second, ACCEPTED)
    assert wire.heard_bodies() == []


def test_a_link_has_no_credit_beyond_its_unsettled_deliveries() -> None:
    wire = opened(ConnectionLimits(unsettled_max=4))
    begin(wire)
    link = attach_sending(wire)
    assert only(wire.say(link_flow(0, 100)), CreditChanged).credit == 4
    ids = [link.send(b"m") for _ in range(4)]
    assert link.credit == 0
    link.settle(ids[0], ids[1], ACCEPTED)
    assert wire.connection.next_tick_ms() == 0
    assert wire.connection.tick(0) == [CreditChanged(link, 2, 6, False)]
    events = wire.say(Disposition(LinkRole.RECEIVER, ids[2], ids[3], True, ACCEPTED))
    assert [type(event) for event in events] == [DispositionArrived]
    assert [link.send(b"m") for _ in range(2)]
    wire.say(link_flow(0, 100, count=6))
    assert link.credit == 2


def test_room_that_is_made_while_a_drain_is_answered_gives_no_credit() -> None:
    wire = opened(ConnectionLimits(unsettled_max=4))
    begin(wire)
    link = attach_sending(wire)
    wire.say(link_flow(0, 100))
    ids = [link.send(b"m") for _ in range(4)]
    assert wire.say(link_flow(0, 100, count=4, drain=True)) == [CreditChanged(link, 0, 4, True)]
    link.settle(ids[0], ids[1], ACCEPTED)
    link.drained()
    assert wire.connection.tick(0) == [], "it would be used though it was given back"
    assert (link.credit, link.credit_limit, link.delivery_count) == (0, 4, 4)


def test_nothing_is_sent_on_a_link_that_is_not_attached() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    link.detach()
    with pytest.raises(AmqpError, match="not attached"):
        link.send(b"m")


def test_a_tag_that_is_too_long_is_refused() -> None:
    wire = opened()
    begin(wire)
    link = attach_sending(wire, credit=10)
    with pytest.raises(ValueError, match="32"):
        link.send(b"m", tag=bytes(33))
    assert not link.unsettled
