"""What a receipt says."""

from __future__ import annotations

from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

QUEUE = "contoso/x-servicebus-transfer/0"


def test_messages_on_the_primary_are_there_and_nothing_is_in_doubt() -> None:
    receipt = SendReceipt("orders", ("a", "b"), NamespaceSide.PRIMARY, 2)
    assert receipt.places == ("primary", "primary")
    assert receipt.is_complete
    assert not receipt.in_doubt


def test_a_part_that_was_accepted_is_distinguished_from_the_rest() -> None:
    receipt = SendReceipt("orders", ("a", "b", "c"), NamespaceSide.BACKLOG, 2, (QUEUE, QUEUE))
    assert receipt.places == (QUEUE, QUEUE, "not accepted")
    assert not receipt.is_complete


def test_messages_in_the_spool_are_said_to_be_there_one_by_one() -> None:
    receipt = SendReceipt("orders", ("a", "b", "c"), NamespaceSide.SPOOL, 2, (QUEUE, "spool"))
    assert receipt.places == (QUEUE, "spool", "not accepted")


def test_one_copy_without_an_answer_is_enough_for_doubt() -> None:
    assert SendReceipt("orders", ("a",), NamespaceSide.BACKLOG, 1, (QUEUE,), copies_in_doubt=1).in_doubt


def test_nothing_that_was_sent_is_nowhere_and_complete() -> None:
    receipt = SendReceipt("orders", (), NamespaceSide.PRIMARY, 0)
    assert receipt.places == ()
    assert receipt.is_complete
