"""Answers given now: with the clock and the dice that flows do not have."""

from __future__ import annotations

from random import Random
from time import monotonic

from twinbus.client.flows.io_requests import EncodedBatches, Failed, NoTurn, Stored, Woke
from twinbus.pairing.sending.failure import Failure

_dice = Random()  # noqa: S311 - it spreads pings and senders, and keeps no secret


def chance() -> float:
    """From 0 up to 1."""
    return _dice.random()


def stored(sequence_numbers: tuple[int, ...] = ()) -> Stored:
    return Stored(monotonic(), chance(), sequence_numbers)


def failed(failure: Failure) -> Failed:
    return Failed(monotonic(), chance(), failure)


def packed(batches: tuple[tuple[bytes, ...], ...]) -> EncodedBatches:
    return EncodedBatches(monotonic(), chance(), batches)


def woke(*, is_closing: bool, failure: Failure | None = None, reason: str = "the client was closed") -> Woke:
    return Woke(monotonic(), chance(), is_closing, failure, reason)


def no_turn(failure: Failure, *, is_moving: bool) -> NoTurn:
    return NoTurn(monotonic(), chance(), failure, is_moving)
