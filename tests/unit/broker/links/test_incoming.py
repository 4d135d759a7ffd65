"""Transfers that came together are stored together, and each gets the answer it would have got alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from connection_harness import MEGABYTE, ConnectionHarness

from twinbus.amqp.codec.outcomes import Accepted, Outcome, Rejected
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.message.sections import encode_message
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.message import BATCH_FORMAT, BODY_SECTIONS_MAX
from twinbus.broker.operations import Done, Refused
from twinbus.broker.ops.meter import Metered
from twinbus.errors import QuotaExceeded


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()


def send(link: SendingLink, size: int = 10, *, settled: bool = False) -> int:
    return link.send(encode_message(data=b"x" * size), tag=b"t", settled=settled)


def conditions(outcomes: dict[int, Outcome | None]) -> dict[int, str]:
    return {
        at: outcome.error.condition
        for at, outcome in outcomes.items()
        if isinstance(outcome, Rejected) and outcome.error
    }


def test_transfers_that_came_together_are_one_change_set_and_one_disposition(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    ids = [send(link) for _ in range(5)]
    assert harness.outcomes() == {}, "nothing is durable yet"
    harness.store.commit(1)
    answers = [event for event in harness.exchange() if isinstance(event, DispositionArrived)]
    assert [[at for at, _ in event.deliveries] for event in answers] == [ids]
    assert all(isinstance(event.outcome, Accepted) for event in answers)
    assert harness.stored("orders") == 5


def test_when_the_queue_gets_full_those_that_fit_are_stored(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    fits, too_much, fits_still = send(link, MEGABYTE // 2), send(link, MEGABYTE - 1024), send(link, MEGABYTE // 4)
    refused = harness.outcomes()
    assert conditions(refused) == {too_much: "amqp:resource-limit-exceeded"}
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {fits: Accepted, fits_still: Accepted}
    assert harness.stored("orders") == 2
    assert harness.dispatcher.unwritten_bytes == 0


def test_what_is_no_message_is_refused_alone(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    first = send(link)
    broken = link.send(b"\x00\x53\x75", tag=b"t")
    last = send(link)
    assert list(conditions(harness.outcomes())) == [broken]
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {first: Accepted, last: Accepted}


def batch(link: SendingLink, count: int) -> int:
    message = b"\x00\x53\x75\xa0\x00"
    envelope = (b"\x00\x53\x75\xa0" + bytes((len(message),)) + message) * count
    return link.send(envelope, tag=b"t", message_format=BATCH_FORMAT)


def test_a_batch_with_too_many_messages_is_refused_whole_and_the_next_one_is_stored(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    too_many, fits = batch(link, 4_501), batch(link, 4_500)
    assert conditions(harness.outcomes()) == {too_many: "amqp:link:message-size-exceeded"}
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {fits: Accepted}
    assert harness.stored("orders") == 4_500


def test_batches_that_came_together_are_stored_together_only_up_to_the_size_of_one(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    ids = [batch(link, 2_000) for _ in range(3)]
    assert harness.outcomes() == {}
    harness.store.commit(1)
    assert list(harness.outcomes()) == ids[:2]
    harness.store.commit()
    assert list(harness.outcomes()) == ids[2:]


def test_links_that_take_turns_get_their_own_answers(harness: ConnectionHarness) -> None:
    orders, others = harness.sender("orders"), harness.sender("others")
    ids = [send(link) for link in (orders, others, orders, orders, others)]
    assert harness.outcomes() == {}
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == dict.fromkeys(ids, Accepted)
    assert (harness.stored("orders"), harness.stored("others")) == (3, 2)


def test_a_transfer_that_is_settled_already_is_stored_without_an_answer(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    first, _, last = send(link), send(link, settled=True), send(link)
    harness.exchange()
    harness.store.commit()
    assert sorted(harness.outcomes()) == [first, last]
    assert harness.stored("orders") == 3


def test_everybody_hears_that_the_store_failed(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    ids = [send(link) for _ in range(3)]
    harness.exchange()
    harness.store.fail("disk full")
    assert list(conditions(harness.outcomes())) == ids
    assert harness.dispatcher.unwritten_bytes == 0


def test_what_was_sent_before_a_detach_is_stored(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    send(link)
    send(link)
    link.detach()
    harness.exchange()
    harness.store.commit()
    assert harness.stored("orders") == 2


def test_every_message_is_metered(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    for size in (10, 100_000, 10):
        send(link, size)
    harness.exchange()
    harness.store.commit()
    (reading,) = harness.context.meter.readings()
    assert (reading.kind, reading.operations, reading.steps) == (Metered.SEND, 3, 4)


def test_a_body_in_very_many_sections_is_refused_and_one_in_many_is_stored(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    many = link.send(encode_message(data=[b""] * BODY_SECTIONS_MAX), tag=b"t")
    too_many = link.send(encode_message(data=[b""] * (BODY_SECTIONS_MAX + 1)), tag=b"t")
    assert conditions(harness.outcomes()) == {too_many: "amqp:decode-error"}
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {many: Accepted}


def test_what_a_connection_has_sent_is_its_share_of_the_disk_until_it_is_written(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    for _ in range(3):
        send(link, 1_000)
    harness.exchange()
    share = harness.dispatcher.share
    assert (share.unwritten_messages, share.unwritten_bytes > 3_000) == (3, True)
    sent = share.recent.at(harness.context.clock() / 1000)
    harness.store.commit()
    assert (share.unwritten_messages, share.unwritten_bytes) == (0, 0)
    assert share.recent.at(harness.context.clock() / 1000) == sent > 3_000


def test_a_back_end_may_answer_some_transfers_before_others_and_those_together_get_one_disposition(
    harness: ConnectionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[ReadTransfer] = []
    answer: list[Callable[[Sequence[ReadTransfer], Done | Refused], None]] = []

    def send_each(path: str, transfers: Sequence[ReadTransfer], now_ms: int, on_reply: object) -> None:
        taken.extend(transfers)
        assert callable(on_reply)
        answer.append(on_reply)

    monkeypatch.setattr(harness.backend, "send_each", send_each)
    link = harness.sender("orders")
    ids = [send(link) for _ in range(6)]
    assert harness.outcomes() == {}
    assert [transfer.event.delivery_id for transfer in taken] == ids
    answer[0](taken[2:5], Done())
    answers = [event for event in harness.exchange() if isinstance(event, DispositionArrived)]
    assert [[at for at, _ in event.deliveries] for event in answers] == [ids[2:5]]
    assert harness.dispatcher.share.unwritten_messages == 3
    answer[0](taken[:2], Refused(QuotaExceeded("full")))
    assert conditions(harness.outcomes()) == dict.fromkeys(ids[:2], "amqp:resource-limit-exceeded")
    answer[0](taken[5:], Done())
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {ids[5]: Accepted}
    assert (harness.dispatcher.share.unwritten_messages, harness.dispatcher.unwritten_bytes) == (0, 0)
    (reading,) = harness.context.meter.readings()
    assert (reading.kind, reading.operations) == (Metered.SEND, 4)
