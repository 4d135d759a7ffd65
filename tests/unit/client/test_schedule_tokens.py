"""Tokens for scheduled messages that lie in a backlog (P12)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from twinbus.client.flows.schedule_tokens import BacklogToken, check_cancellable, numbers_of, tokens_for
from twinbus.errors import ScheduledInBacklog


def test_there_is_a_token_of_its_own_for_every_message() -> None:
    tokens = tokens_for(3) + tokens_for(2)
    assert len(set(tokens)) == 5
    assert tokens_for(0) == []


def test_a_token_is_a_number_that_no_server_gives_out() -> None:
    (token,) = tokens_for(1)
    assert isinstance(token, BacklogToken)
    assert token < 0
    assert repr(token) == f"BacklogToken({int(token)})"


def test_sequence_numbers_of_the_primary_can_be_cancelled() -> None:
    check_cancellable([1, 2, 2**63 - 1])
    check_cancellable([])


def test_a_token_cannot_and_says_how_many_there_are() -> None:
    with pytest.raises(ScheduledInBacklog, match="2 of these messages"):
        check_cancellable([7, *tokens_for(2)])


def test_a_token_is_known_also_after_it_was_kept_elsewhere() -> None:
    (token,) = tokens_for(1)
    for kept in (int(token), pickle.loads(pickle.dumps(token)), int(str(int(token)))):
        with pytest.raises(ScheduledInBacklog):
            check_cancellable([kept])


def test_one_number_or_several_can_be_given() -> None:
    tokens = tokens_for(2)
    assert numbers_of(7) == [7]
    assert numbers_of(number for number in (7, 8)) == [7, 8]
    assert numbers_of(tokens) == tokens


@pytest.mark.parametrize("wrong", ["12", b"12", None, ["1"], [7, 2.0], 7.5])
def test_what_is_no_number_is_reported(wrong: Any) -> None:
    with pytest.raises(TypeError, match="sequence numbers are whole numbers"):
        numbers_of(wrong)
