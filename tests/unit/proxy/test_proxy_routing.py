"""Sends to one entity: straight while nothing is wrong, else by flows; in order, answered once, and counted."""

from __future__ import annotations

import pytest
from fake_link import rejected
from proxy_routing_scene import EntityScene

from twinbus.amqp.message.sections import encode_message
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Done, Refused
from twinbus.client.flows.io_requests import Ask, EncodeBatches, Failed, Sleep, ToBacklog, ToPrimary, WaitTurn
from twinbus.errors import ConditionError
from twinbus.pairing.entity import NOT_PLAIN
from twinbus.pairing.events import FailoverForced, MarkedHealthy, SendFailed
from twinbus.pairing.sending.failure import Failure, FailureKind

DOWN = Failure(FailureKind.UNREACHABLE, "connection refused")
REFUSED = Refused(ConditionError("com.microsoft:timeout", "because"))


def opened(**options: int) -> EntityScene:
    """With an open link and nothing on its way."""
    scene = EntityScene(**options)
    scene.send(b"first")
    link = scene.open()
    link.answer(scene.window, scene.now, 0)
    assert scene.load.bytes == 0
    return scene


def test_the_first_message_waits_for_a_link_which_is_asked_for_once() -> None:
    scene = EntityScene()
    names = [scene.send(name) for name in (b"a", b"b")]
    assert len(scene.opening) == 1
    link = scene.open()
    assert [payload for payload, _ in link.sent] == [b"a", b"b"]
    link.answer(scene.window, scene.now, 0, 1)
    assert [scene.replies[name] for name in names] == [[Done()], [Done()]]
    assert scene.load.bytes == 0
    assert scene.entity.is_known


def test_what_goes_straight_is_the_message_as_it_came() -> None:
    scene = opened()
    scene.send(b"payload")
    assert scene.links[0][0].sent[-1] == (b"payload", 0)
    assert scene.flushes
    assert scene.load.bytes > len(b"payload")
    assert scene.flows == []


def test_all_who_wait_for_a_link_fail_with_it_each_with_an_exception_of_its_own() -> None:
    scene = EntityScene()
    for name in (b"a", b"b"):
        scene.send(name)
    scene.refuse(DOWN)
    assert scene.flow_names == ["0", "1"]
    errors = {id(failure.error) for _, failure in scene.flows if failure is not None}
    assert len(errors) == 2


def test_a_send_that_fails_goes_on_as_a_flow_and_later_ones_wait_behind_it() -> None:
    scene = opened()
    failing = scene.send(b"a")
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, outcome=rejected("amqp:internal-error"))
    assert scene.flow_names == [failing]
    later = scene.send(b"b")
    assert len(link.sent) == 2
    scene.end_flow()
    assert link.sent[-1] == (b"b", 0)
    link.answer(window, scene.now, 2)
    assert scene.replies[failing] == scene.replies[later] == [Done()]
    assert scene.load.bytes == 0


def test_a_batch_that_begins_with_a_ping_is_not_taken_for_one() -> None:
    scene = opened()
    scene.pair.feed(scene.entity, FailoverForced(scene.now, scene.entity.epoch, "drill"))
    arrivals = (Arrival(b"", "ping", None, None, None, True), Arrival(b"a", "message", None, None, None, False))
    scene.sends.take(arrivals, scene.now, scene.replies.setdefault("batch", []).append)
    assert scene.replies["batch"] == [], "nothing has stored the message"
    assert [send.arrivals for send, _ in scene.flows] == [arrivals]


def test_nobody_waits_behind_a_send_that_met_a_busy_primary() -> None:
    scene = opened()
    scene.send(b"a")
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, outcome=rejected("com.microsoft:server-busy"))
    scene.send(b"b")
    assert link.sent[-1] == (b"b", 0)


@pytest.mark.parametrize("ask", [WaitTurn(1, 60.0), EncodeBatches(), ToBacklog(0, (), 5.0)])
def test_a_flow_that_waits_for_something_else_lets_others_pass(ask: Ask) -> None:
    scene = opened()
    scene.send(b"a")
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, outcome=rejected("amqp:internal-error"))
    scene.send(b"b")
    send = scene.flows[0][0]
    scene.sends.asked(send, Sleep(0.2), scene.now)
    scene.sends.asked(send, ToPrimary(5.0), scene.now)
    assert len(link.sent) == 2
    scene.sends.asked(send, ask, scene.now)
    assert link.sent[-1] == (b"b", 0)
    scene.sends.let_pass(scene.flows[0][0], scene.now)  # saying so again changes nothing
    scene.end_flow()
    scene.send(b"c")
    assert link.sent[-1] == (b"c", 0)


def test_a_flow_whose_own_attempt_fails_goes_ahead_until_the_primary_says_that_it_is_busy() -> None:
    scene = opened(failover_interval_s=60)
    scene.pair.feed(scene.entity, SendFailed(scene.now, scene.entity.epoch, "another one failed"))
    first = scene.send(b"a")
    assert scene.flow_names == [first]
    send, attempt = scene.flows[0][0], ToPrimary(5.0)
    scene.sends.answered(send, attempt, Failed(scene.now, 0.5, DOWN), scene.now)
    second = scene.send(b"b")
    assert scene.flow_names == [first]
    busy = Failure(FailureKind.BUSY, "too much")
    scene.sends.answered(send, attempt, Failed(scene.now, 0.5, busy), scene.now)
    assert scene.flow_names == [first, second]


def test_all_that_was_on_its_way_when_a_link_is_lost_is_tried_again_in_order() -> None:
    scene = opened()
    names = [scene.send(name) for name in (b"a", b"b", b"c")]
    scene.window.lost(DOWN, scene.now)
    later = scene.send(b"d")
    assert scene.flow_names == names
    assert scene.opening == []
    for _ in names:
        scene.end_flow()
    assert len(scene.opening) == 1
    assert scene.open().sent == [(b"d", 0)]
    assert scene.replies[later] == []


def test_pauses_of_sends_that_failed_together_end_in_their_order() -> None:
    scene = opened()
    for name in (b"a", b"b", b"c"):
        scene.send(name)
    scene.window.lost(DOWN, scene.now)
    ends = []
    for (send, _), chosen_s in zip(scene.flows, (1.5, 0.2, 1.9), strict=True):
        pause = scene.sends.asked(send, Sleep(chosen_s), scene.now)
        assert isinstance(pause, Sleep)
        ends.append(pause.seconds)
    assert ends[0] == pytest.approx(1.5)
    assert ends[0] < ends[1] < ends[2]
    assert ends[2] == pytest.approx(1.9)


def test_a_send_that_nobody_waits_for_pauses_as_long_as_it_chose() -> None:
    scene = opened()
    for name in (b"a", b"b"):
        scene.send(name)
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, outcome=rejected("amqp:internal-error"))
    link.answer(window, scene.now, 2, outcome=rejected("com.microsoft:server-busy"))
    (failing, _), (busy, _) = scene.flows
    scene.sends.asked(failing, Sleep(1.5), scene.now)
    assert scene.sends.asked(busy, Sleep(0.2), scene.now) == Sleep(0.2)


def test_while_an_entity_is_failed_over_every_send_is_a_flow() -> None:
    scene = opened()
    scene.pair.feed(scene.entity, FailoverForced(scene.now, scene.entity.epoch, "drill"))
    name = scene.send(b"a")
    assert scene.flow_names == [name]
    assert scene.flows[0][1] is None
    scene.end_flow(reply=REFUSED, accepted=0)
    assert scene.replies[name] == [REFUSED]


def test_after_a_failover_a_new_link_is_opened() -> None:
    scene = opened()
    scene.pair.feed(scene.entity, FailoverForced(scene.now, scene.entity.epoch, "drill"))
    scene.pair.feed(scene.entity, MarkedHealthy(scene.now, scene.entity.epoch))
    scene.send(b"a")
    assert scene.retired == [scene.links[0][1]]
    assert scene.opening == [scene.entity.epoch]
    assert scene.open().sent == [(b"a", 0)]


def test_a_late_success_is_reported_with_the_epoch_in_which_it_began() -> None:
    scene = opened(failover_interval_s=60)
    scene.send(b"a")
    scene.pair.feed(scene.entity, SendFailed(scene.now, scene.entity.epoch, "another one failed"))
    assert scene.entity.plain_epoch == NOT_PLAIN
    scene.links[0][0].answer(scene.window, scene.now, 1)
    assert scene.succeeded_epochs == [0]


def test_a_message_that_is_too_large_is_refused_at_once_and_others_are_not_disturbed() -> None:
    scene = EntityScene()
    scene.send(b"a")
    scene.open(message_bytes_max=1_000)
    name = scene.send(b"x" * 1_001)
    (reply,) = scene.replies[name]
    assert isinstance(reply, Refused)
    assert reply.error.condition == "amqp:link:message-size-exceeded"
    assert scene.sends.message_bytes_max == 1_000


def test_a_batch_is_one_transfer() -> None:
    scene = opened()
    name = scene.send(b"\x00\x53\x75\xa0\x01a", b"\x00\x53\x75\xa0\x01b")
    link, window = scene.links[0]
    payload, message_format = link.sent[-1]
    assert message_format == 0x80013700
    assert payload.count(b"\x00\x53\x75\xa0\x01") == 2
    link.answer(window, scene.now, 1)
    assert scene.replies[name] == [Done()]
    assert scene.sends.sent_directly == 3


def batch(*sizes: int) -> list[bytes]:
    return [b"\x00\x53\x75\xb0" + size.to_bytes(4) + b"x" * size for size in sizes]


def test_a_batch_that_is_too_large_goes_in_parts_and_is_done_when_all_are() -> None:
    scene = opened(batch_bytes=1_000)
    name = scene.send(*batch(400, 400, 400))
    link, window = scene.links[0]
    assert len(link.sent) == 3
    link.answer(window, scene.now, 1)
    assert scene.replies[name] == []
    link.answer(window, scene.now, 2)
    assert scene.replies[name] == [Done()]
    assert scene.load.bytes == 0


def test_of_a_batch_of_which_a_part_is_stored_the_sender_learns_how_many_messages_are() -> None:
    scene = opened(batch_bytes=1_000)
    name = scene.send(*batch(400, 400, 400))
    link, window = scene.links[0]
    link.answer(window, scene.now, 1)
    link.answer(window, scene.now, 2, outcome=rejected("amqp:internal-error"))
    scene.end_flow(reply=REFUSED, accepted=0)
    (reply,) = scene.replies[name]
    assert isinstance(reply, Refused)
    assert "2 of 3 messages are stored" in str(reply.error)
    assert reply.error.condition == "amqp:not-allowed"
    assert scene.load.bytes == 0


def test_a_batch_of_which_nothing_is_stored_is_refused_as_it_was() -> None:
    scene = opened(batch_bytes=1_000)
    name = scene.send(*batch(400, 400, 400))
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, 2, outcome=rejected("amqp:internal-error"))
    for _ in range(2):
        scene.end_flow(reply=REFUSED, accepted=0)
    (reply,) = scene.replies[name]
    assert isinstance(reply, Refused)
    assert reply.error.condition == "com.microsoft:timeout"


def test_a_ping_asks_the_primary_and_never_takes_the_detour() -> None:
    scene = opened()
    stored, refused = scene.send(b"ping", is_ping=True), scene.send(b"ping", is_ping=True)
    link, window = scene.links[0]
    link.answer(window, scene.now, 1)
    link.answer(window, scene.now, 2, outcome=rejected("com.microsoft:entity-disabled"))
    assert scene.replies[stored] == [Done()]
    (reply,) = scene.replies[refused]
    assert isinstance(reply, Refused)
    assert reply.error.condition == "com.microsoft:entity-disabled"
    assert scene.flows == []
    scene.pair.feed(scene.entity, FailoverForced(scene.now, scene.entity.epoch, "drill"))
    while_failed_over = scene.send(b"ping", is_ping=True)
    assert scene.replies[while_failed_over] == [Done()]
    assert scene.load.bytes == 0


def test_what_could_not_take_the_detour_is_announced_while_all_is_well() -> None:
    scene = opened()
    scene.send(*batch(260_096))
    scene.send(encode_message(application_properties={"x-ms-path": "mine"}, data=b"x"))
    scene.send(encode_message(application_properties={"x-ms-other": "mine"}, data=b"x-ms-path"))
    assert scene.warnings == [(), ("x-ms-path",)]


def test_properties_that_nobody_can_read_are_the_primarys_business() -> None:
    scene = opened()
    odd = b"\x00\x53\x74\xc1\x0c\x01\xa1\x09x-ms-path"  # a map with a name and no value
    scene.send(odd)
    assert scene.links[0][0].sent[-1] == (odd, 0)
    assert scene.warnings == []


def test_transfers_that_are_taken_together_are_answered_as_the_primary_answers_them() -> None:
    scene = opened()
    flushes = scene.flushes
    names = scene.send_each(b"a", b"b", b"c", b"d")
    link, window = scene.links[0]
    assert [payload for payload, _ in link.sent[1:]] == [b"a", b"b", b"c", b"d"]
    assert scene.flushes == flushes + 1
    link.answer(window, scene.now, 1, 2, 4)
    link.answer(window, scene.now, 3)
    assert scene.groups == [[names[0], names[1], names[3]], [names[2]]]
    assert all(scene.replies[name] == [Done()] for name in names)
    assert (scene.load.bytes, scene.sends.sent_directly) == (0, 5)


def test_an_answer_for_transfers_of_several_applications_reaches_each_of_them() -> None:
    scene = opened()
    together, alone, later = scene.send_each(b"a", b"b"), scene.send(b"c"), scene.send_each(b"d")
    link, window = scene.links[0]
    link.answer(window, scene.now, 1, 2, 3, 4)
    assert scene.groups == [together, later]
    assert scene.replies[alone] == [Done()]
    assert scene.load.bytes == 0


def test_of_transfers_that_are_taken_together_one_that_fails_goes_on_alone() -> None:
    scene = opened()
    names = scene.send_each(b"a", b"b", b"c")
    link, window = scene.links[0]
    link.answer(window, scene.now, 2, outcome=rejected("amqp:internal-error"))
    link.answer(window, scene.now, 1, 3)
    assert scene.flow_names == [names[1]]
    assert scene.groups == [[names[0], names[2]]]
    scene.end_flow(reply=REFUSED, accepted=0)
    assert scene.replies[names[1]] == [REFUSED]
    assert scene.load.bytes == 0


def test_transfers_that_wait_for_a_link_together_are_sent_in_their_order() -> None:
    scene = EntityScene()
    names = scene.send_each(b"a", b"b")
    link = scene.open()
    assert [payload for payload, _ in link.sent] == [b"a", b"b"]
    link.answer(scene.window, scene.now, 0, 1)
    assert scene.groups == [names]


def test_a_message_without_application_properties_is_not_searched_for_reserved_names() -> None:
    scene = opened()
    plain = read_arrival(encode_message(data=b"x-ms-path"), lambda: "new-id")
    named = read_arrival(encode_message(application_properties={"x-ms-path": 1}, data=b"x"), lambda: "new-id")
    assert plain.properties_end == 0
    assert named.payload[: named.properties_end].endswith(b"x-ms-path\x55\x01")
    for arrival in (plain, named):
        scene.sends.take((arrival,), scene.now, lambda _: None)
    assert scene.warnings == [("x-ms-path",)]
