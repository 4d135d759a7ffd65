"""Cannot receive, cannot manage, cannot be contacted: told apart, and reported once (S2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.primary_abilities import PATHS_MAX, Abilities, Ability, verdict
from twinbus.pairing.sending.failure import Failure, FailureKind

INTERNAL = Failure(FailureKind.INTERNAL, "no", "amqp:internal-error")
LOST = Failure(FailureKind.UNREACHABLE, "refused", is_connection=True)
SILENT = Failure(FailureKind.NO_ANSWER, "silence", is_connection=True)
SLOW_LINK = Failure(FailureKind.NO_ANSWER, "no answer to a link")


def names(events: list[ReportEvent]) -> list[str]:
    return [event.name for event in events]


def test_an_entity_that_gives_nothing_out_is_reported_once_and_so_is_its_return() -> None:
    abilities = Abilities()
    assert names(abilities.tried("orders", Ability.RECEIVE, 1, None)) == []
    assert names(abilities.tried("orders", Ability.RECEIVE, 2, INTERNAL)) == ["receive_failed"]
    assert names(abilities.tried("ORDERS", Ability.RECEIVE, 3, INTERNAL)) == []
    (record,) = abilities.records
    assert (record.works, record.since, record.failures) == (False, 2, 2)
    assert abilities.has_contact
    assert names(abilities.tried("orders", Ability.RECEIVE, 4, None)) == ["receive_works"]
    assert (record.works, record.reason) == (True, "")


@pytest.mark.parametrize("failure", [LOST, SILENT])
def test_a_primary_that_nobody_can_contact_is_more_than_one_entity(failure: Failure | None) -> None:
    abilities = Abilities()
    assert names(abilities.tried("orders", Ability.RECEIVE, 1, failure)) == ["primary_unreachable", "receive_failed"]
    assert names(abilities.tried("orders", Ability.MANAGE, 2, failure)) == ["manage_failed"]
    assert abilities.lost_since == 1
    assert not abilities.works("orders", Ability.RECEIVE)
    assert names(abilities.tried("orders", Ability.RECEIVE, 3, INTERNAL)) == ["primary_back"], "somebody answered"
    assert names(abilities.tried("orders", Ability.RECEIVE, 4, None)) == ["receive_works"]


def test_a_link_that_is_not_answered_says_nothing_of_the_whole_primary() -> None:
    abilities = Abilities()
    assert names(abilities.tried("orders", Ability.RECEIVE, 1, SLOW_LINK)) == ["receive_failed"]
    assert abilities.has_contact


@pytest.mark.parametrize(
    ("ability", "failure", "works"),
    [
        (Ability.RECEIVE, Failure(FailureKind.UNAUTHORISED, "no right"), False),
        (Ability.MANAGE, Failure(FailureKind.UNAUTHORISED, "no right"), None),
        (Ability.RECEIVE, Failure(FailureKind.NOT_FOUND, "gone"), False),
        (Ability.MANAGE, Failure(FailureKind.NOT_FOUND, "gone"), True),
        (Ability.RECEIVE, Failure(FailureKind.TIMED_OUT, "no session", "com.microsoft:timeout"), None),
        (Ability.RECEIVE, Failure(FailureKind.BUSY, "busy"), None),
        (Ability.RECEIVE, Failure(FailureKind.INTERNAL, "lock", "com.microsoft:session-lock-lost"), None),
        (Ability.RECEIVE, Failure(FailureKind.INTERNAL, "idle", "amqp:link:detach-forced"), None),
        (Ability.RECEIVE, None, True),
    ],
)
def test_each_failure_says_what_it_proves(ability: Ability, failure: Failure | None, works: bool | None) -> None:
    assert verdict(ability, failure) is works


def test_a_wrong_name_is_no_trouble_of_the_primary_and_an_entity_that_vanishes_is() -> None:
    abilities, gone = Abilities(), Failure(FailureKind.NOT_FOUND, "gone")
    assert abilities.tried("ordres", Ability.RECEIVE, 1, gone) == []
    assert abilities.records == ()
    abilities.tried("orders", Ability.RECEIVE, 2, None)
    assert names(abilities.tried("orders", Ability.RECEIVE, 3, gone)) == ["receive_failed"]


Attempt = tuple[str, Ability, Failure | None]
FAILURES = st.sampled_from([None, INTERNAL, LOST, SILENT, SLOW_LINK, Failure(FailureKind.BUSY, "busy")])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(Ability), FAILURES), max_size=40))
def test_what_is_reported_as_failed_is_reported_as_working_before_it_fails_again(
    attempts: list[Attempt],
) -> None:
    abilities = Abilities()
    open_troubles: set[tuple[str, object]] = set()
    for at, (path, ability, failure) in enumerate(attempts):
        for event in abilities.tried(path, ability, at, failure):
            what = (event.name.split("_")[0], event.details.get("path"))
            is_trouble = event.name.endswith(("failed", "unreachable"))
            assert (what in open_troubles) != is_trouble
            open_troubles ^= {what}
    failing = {(record.ability.value, record.path) for record in abilities.records if not record.works}
    assert {each for each in open_troubles if each[0] != "primary"} == failing
    assert (("primary", None) in open_troubles) == (not abilities.has_contact)


def test_what_is_remembered_is_bounded_and_troubles_stay() -> None:
    abilities = Abilities()
    abilities.tried("down", Ability.RECEIVE, 0, INTERNAL)
    for number in range(2 * PATHS_MAX):
        abilities.tried(f"q{number}", Ability.RECEIVE, 1, None)
    assert len(abilities.records) == PATHS_MAX
    assert abilities.records[0].path == "down"
