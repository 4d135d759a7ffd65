"""Messages that are sent settled: nobody will settle them later, so they must not use up a link's room."""

from __future__ import annotations

import pytest
from frame_peer import begin, link_flow, only, opened

from twinbus.amqp.codec.performatives import Attach, LinkRole, Source, Target
from twinbus.amqp.events import AttachRequested, CreditChanged
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.sending_link import SendingLink

SETTLED, MIXED = 1, 2


def test_a_link_that_sends_settled_has_all_the_credit_its_peer_gives() -> None:
    wire = opened(ConnectionLimits(unsettled_max=4))
    begin(wire, incoming_window=1000)
    asked = Attach("out", 0, LinkRole.RECEIVER, SETTLED, 0, Source("q"), Target("me"))
    link = only(wire.say(asked), AttachRequested).link
    assert isinstance(link, SendingLink)
    link.accept()
    assert wire.say(link_flow(0, 100)) == [CreditChanged(link, 100, 100, False)]
    for _ in range(100):
        link.send(b"m", settled=True)
    assert (link.credit, link.delivery_count) == (0, 100)


@pytest.mark.parametrize("settled_first", [1, 3, 50])
def test_settled_messages_take_no_room_on_a_link_that_sends_both_kinds(settled_first: int) -> None:
    wire = opened(ConnectionLimits(unsettled_max=4))
    begin(wire, incoming_window=1000)
    asked = Attach("out", 0, LinkRole.RECEIVER, MIXED, 0, Source("q"), Target("me"))
    link = only(wire.say(asked), AttachRequested).link
    assert isinstance(link, SendingLink)
    link.accept()
    assert wire.say(link_flow(0, 100)) == [CreditChanged(link, 4, 4, False)]
    limit = 4
    for sent in range(settled_first):
        assert sent < limit
        link.send(b"m", settled=True)
        limit = max([limit, *(event.credit_limit for event in wire.connection.tick(0))])  # type: ignore[union-attr]
    while link.credit:
        link.send(b"m")
    assert 2 <= len(link.unsettled) <= 4  # the limit rises in steps of half the room
    assert link.delivery_count <= 100
