"""Pairing as a conversation: every answer a namespace could give, without a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.setup.plan import Plan
from twinbus.client.setup.preparation import (
    BUSY_WAIT_S,
    Ask,
    BacklogRight,
    CreateBacklogQueue,
    Detection,
    Flow,
    LinkTry,
    ListBacklogQueues,
    Pause,
    Preparation,
    ReadDetection,
    TryLinks,
    prepare,
    recheck,
)
from twinbus.client.setup.queue_settings import LONG_S, SIZE_MB, BacklogQueueSettings
from twinbus.errors import PairingError
from twinbus.pairing.sending.failure import Failure, FailureKind

Kind = FailureKind
PLAN = Plan(
    primary_name="contoso",
    primary_address="contoso.example:5671",
    secondary_name="backup",
    secondary_address="backup.example:5671",
    queue_count=3,
)
QUEUES = tuple(f"contoso/x-servicebus-transfer/{index}" for index in range(3))
NOW = 1_000.0


def failure(kind: Kind, text: str = "so it is") -> Failure:
    return Failure(kind, text)


class Town:
    """Two namespaces that answer by script; remembers what it was asked."""

    def __init__(self, queues: Iterable[str] = ()) -> None:
        self.queues = set(queues)
        self.settings = BacklogQueueSettings()
        """Of every queue that is there."""
        self.list_failures: list[Failure] = []
        self.create_failures: dict[str, list[Failure]] = {}
        self.link_failures: dict[LinkTry, list[Failure]] = {}
        self.detection: dict[str, Detection | Failure] = {}
        self.asked: list[Ask] = []

    def answer(self, ask: Ask) -> Any:
        self.asked.append(ask)
        match ask:
            case ListBacklogQueues():
                return self.list_failures.pop(0) if self.list_failures else dict.fromkeys(self.queues, self.settings)
            case CreateBacklogQueue(path):
                return self._create(path)
            case TryLinks(tries):
                return tuple(self._try(one) for one in tries)
            case ReadDetection(entity):
                return self.detection.get(entity, failure(Kind.NOT_FOUND))
            case Pause():
                return None

    def _create(self, path: str) -> Failure | None:
        if self.create_failures.get(path):
            return self.create_failures[path].pop(0)
        self.queues.add(path)
        return None

    def _try(self, one: LinkTry) -> Failure | None:
        if self.link_failures.get(one):
            return self.link_failures[one].pop(0)
        return None if one.path in self.queues else failure(Kind.NOT_FOUND)

    def run(self, flow: Flow[Preparation]) -> Preparation:
        try:
            ask = next(flow)
            while True:
                ask = flow.send(self.answer(ask))
        except StopIteration as done:
            result: Preparation = done.value
            return result

    def asks(self, kind: type) -> list[Any]:
        return [ask for ask in self.asked if isinstance(ask, kind)]


def send(path: str) -> LinkTry:
    return LinkTry(path, BacklogRight.SEND)


def listen(path: str) -> LinkTry:
    return LinkTry(path, BacklogRight.LISTEN)


# --- finding and creating (P1, P2, A3) ---


def test_nothing_there_makes_everything() -> None:
    town = Town()
    prepared = town.run(prepare(PLAN, NOW))
    assert town.queues == set(QUEUES)
    assert (prepared.queues, prepared.created, prepared.found) == ((0, 1, 2), (0, 1, 2), (0, 1, 2))
    assert (prepared.lost, prepared.warnings, prepared.checked_at) == ({}, (), NOW)


def test_only_what_is_missing_is_created_after_one_listing() -> None:
    town = Town([QUEUES[0].upper(), QUEUES[0], QUEUES[2]])
    prepared = town.run(prepare(PLAN, NOW))
    assert town.asks(CreateBacklogQueue) == [CreateBacklogQueue(QUEUES[1])]
    assert len(town.asks(ListBacklogQueues)) == 1
    assert (prepared.queues, prepared.created) == ((0, 1, 2), (1,))


def test_case_does_not_matter_to_names_of_queues() -> None:
    town = Town([path.upper() for path in QUEUES])
    town.link_failures = {}
    town.queues |= set(QUEUES)  # the service takes either spelling for a link
    town.run(prepare(PLAN, NOW))
    assert town.asks(CreateBacklogQueue) == []


def test_queues_beyond_the_count_are_left_alone() -> None:
    town = Town([*QUEUES, "contoso/x-servicebus-transfer/3", "orders"])
    assert town.run(prepare(PLAN, NOW)).queues == (0, 1, 2)
    assert {one.path for ask in town.asks(TryLinks) for one in ask.tries} == set(QUEUES)


def test_fewer_queues_than_asked_is_a_warning() -> None:
    town = Town(QUEUES[:1])
    town.create_failures[QUEUES[1]] = [failure(Kind.FULL, "no more queues")]
    prepared = town.run(prepare(PLAN, NOW))
    assert (prepared.queues, prepared.found) == ((0,), (0,))
    (warning,) = prepared.warnings
    assert "only 1 of 3" in warning
    assert "contoso/x-servicebus-transfer/1..2" in warning
    assert "no more queues" in warning
    assert len(town.asks(CreateBacklogQueue)) == 1, "what is full for one is full for the next"


def test_one_queue_that_cannot_be_made_does_not_stop_the_others() -> None:
    town = Town()
    town.create_failures[QUEUES[1]] = [failure(Kind.REJECTED, "bad name")]
    assert town.run(prepare(PLAN, NOW)).queues == (0, 2)


def test_a_creation_without_an_answer_is_believed_if_the_queue_is_there() -> None:
    town = Town(QUEUES[:2])
    town.create_failures[QUEUES[2]] = [failure(Kind.NO_ANSWER)]
    flow = prepare(PLAN, NOW)
    assert isinstance(next(flow), ListBacklogQueues)
    assert flow.send(dict.fromkeys(QUEUES[:2], BacklogQueueSettings())) == CreateBacklogQueue(QUEUES[2])
    tried = flow.send(failure(Kind.NO_ANSWER))
    assert tried == TryLinks(tuple(send(path) for path in QUEUES))
    with pytest.raises(StopIteration) as done:
        flow.send((None, None, None))
    assert done.value.value.queues == (0, 1, 2)
    assert done.value.value.created == (2,)
    assert town.run(prepare(PLAN, NOW)).queues == (0, 1), "and not if it is not"


def test_trouble_that_may_pass_is_asked_about_again() -> None:
    town = Town()
    town.list_failures = [failure(Kind.INTERNAL), failure(Kind.UNREACHABLE)]
    town.create_failures[QUEUES[0]] = [failure(Kind.BUSY)]
    town.link_failures[send(QUEUES[1])] = [failure(Kind.INTERNAL)]
    prepared = town.run(prepare(PLAN, NOW))
    assert (prepared.queues, prepared.warnings) == ((0, 1, 2), ())
    assert Pause(BUSY_WAIT_S) in town.asked
    assert [len(ask.tries) for ask in town.asks(TryLinks)] == [3, 1], "what has worked is not tried again"


def test_silence_is_not_waited_for_twice() -> None:
    town = Town(QUEUES)
    town.list_failures = [failure(Kind.NO_ANSWER)] * 3
    town.run(prepare(PLAN, NOW))
    assert len(town.asks(ListBacklogQueues)) == 1


# --- refusals (A1) ---


def refusal(town: Town, plan: Plan = PLAN) -> str:
    with pytest.raises(PairingError) as refused:
        town.run(prepare(plan, NOW))
    assert str(refused.value) == "; ".join(refused.value.problems)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_same_namespace_twice_is_refused_before_anything_is_asked() -> None:
    town = Town()
    text = refusal(town, replace(PLAN, secondary_address=PLAN.primary_address))
    assert "the same namespace, contoso.example:5671" in text
    assert town.asked == []


def test_a_primary_without_a_name_is_refused_before_anything_is_asked() -> None:
    town = Town()
    assert "primary_name=" in refusal(town, replace(PLAN, primary_name=None, primary_address="10.0.0.1:5672"))
    assert town.asked == []


def test_no_manage_says_what_to_do() -> None:
    town = Town(QUEUES)
    town.list_failures = [failure(Kind.UNAUTHORISED, "no right 'Manage'")]
    text = refusal(town)
    for part in ("backup (backup.example:5671)", "no Manage right", "twinbus pair --emit", "create_backlog=False"):
        assert part in text


def test_a_credential_that_opens_nothing_is_called_so() -> None:
    town = Town()
    town.list_failures = [failure(Kind.UNAUTHORISED, "bad signature")]
    town.link_failures[send(QUEUES[0])] = [failure(Kind.UNAUTHORISED, "bad signature")]
    text = refusal(town)
    assert "refuses the credential" in text
    assert "bad signature" in text


def test_a_right_to_list_but_not_to_create_needs_manage_too() -> None:
    town = Town()
    town.create_failures[QUEUES[0]] = [failure(Kind.UNAUTHORISED)]
    assert "no Manage right" in refusal(town)


@pytest.mark.parametrize("kind", [Kind.UNREACHABLE, Kind.NO_ANSWER])
def test_a_secondary_that_cannot_be_reached_is_named(kind: Kind) -> None:
    town = Town(QUEUES)
    town.list_failures = [failure(kind)] * 3
    town.link_failures = {send(path): [failure(kind, "port closed")] * 3 for path in QUEUES}
    text = refusal(town)
    assert "secondary backup (backup.example:5671)" in text
    assert "contoso/x-servicebus-transfer/0..2" in text
    assert "port closed" in text
    assert "check its address" in text


def test_every_reason_is_reported_once() -> None:
    town = Town(QUEUES)
    town.link_failures[send(QUEUES[0])] = [failure(Kind.DISABLED)]
    town.link_failures[send(QUEUES[1])] = [failure(Kind.UNAUTHORISED)]
    town.link_failures[send(QUEUES[2])] = [failure(Kind.DISABLED)]
    with pytest.raises(PairingError) as refused:
        town.run(prepare(PLAN, NOW))
    disabled, unauthorised = refused.value.problems
    assert "contoso/x-servicebus-transfer/0,2" in disabled
    assert "set their status to Active" in disabled
    assert "contoso/x-servicebus-transfer/1" in unauthorised
    assert "Send" in unauthorised


# --- a list that is not to be had ---


def test_queues_that_are_there_are_used_although_nobody_may_look_at_the_moment() -> None:
    town = Town(QUEUES[:2])
    town.list_failures = [failure(Kind.INTERNAL, "503")] * 3
    prepared = town.run(prepare(PLAN, NOW))
    assert (prepared.queues, prepared.lost) == ((0, 1), {})
    assert any("could not be listed" in warning for warning in prepared.warnings)
    assert any("only 2 of 3" in warning for warning in prepared.warnings)


def test_no_list_and_no_queue_is_reported_as_the_trouble_with_the_list() -> None:
    town = Town()
    town.list_failures = [failure(Kind.INTERNAL, "503 from on high")] * 3
    assert "503 from on high" in refusal(town)


# --- existing queues only (A10) ---


def test_existing_queues_are_used_without_a_listing() -> None:
    town = Town(QUEUES)
    prepared = town.run(prepare(replace(PLAN, creates=False), NOW))
    assert town.asked == [TryLinks(tuple(send(path) for path in QUEUES))]
    assert (prepared.queues, prepared.created) == ((0, 1, 2), ())


def test_of_existing_queues_some_are_enough() -> None:
    prepared = Town(QUEUES[1:]).run(prepare(replace(PLAN, creates=False), NOW))
    assert (prepared.queues, prepared.found, prepared.lost) == ((1, 2), (1, 2), {})
    assert "only 2 of 3" in prepared.warnings[0]


def test_no_existing_queue_at_all_says_how_to_get_them() -> None:
    text = refusal(Town(), replace(PLAN, creates=False))
    for part in ("has none of the 3", "contoso/x-servicebus-transfer/0..2", "twinbus pair --emit", "Manage"):
        assert part in text


# --- proof (A9) ---


def test_a_queue_that_takes_nothing_is_lost_and_counted() -> None:
    town = Town(QUEUES)
    town.link_failures[send(QUEUES[1])] = [failure(Kind.DISABLED, "it is disabled")]
    prepared = town.run(prepare(PLAN, NOW))
    assert (prepared.queues, prepared.found) == ((0, 2), (0, 1, 2))
    assert prepared.lost == {1: failure(Kind.DISABLED, "it is disabled")}
    assert "it is disabled" in prepared.warnings[0]


def test_a_syphon_proves_that_it_may_listen_too() -> None:
    town = Town(QUEUES)
    town.link_failures[listen(QUEUES[2])] = [failure(Kind.DISABLED)]
    prepared = town.run(prepare(replace(PLAN, listens=True), NOW))
    assert prepared.queues == (0, 1, 2)
    assert "cannot listen to backlog queue contoso/x-servicebus-transfer/2" in prepared.warnings[0]


def test_a_syphon_that_may_listen_nowhere_is_no_pair() -> None:
    town = Town(QUEUES)
    town.link_failures = {listen(path): [failure(Kind.UNAUTHORISED)] for path in QUEUES}
    assert "Listen" in refusal(town, replace(PLAN, listens=True))


def test_a_recheck_asks_for_links_only_and_never_raises() -> None:
    town = Town(QUEUES)
    before = town.run(prepare(PLAN, NOW))
    town.asked.clear()
    town.link_failures = {send(path): [failure(Kind.NO_ANSWER)] for path in QUEUES}
    after = town.run(recheck(PLAN, before, NOW + 3_600))
    assert (after.queues, set(after.lost), after.found) == ((), {0, 1, 2}, (0, 1, 2))
    assert after.checked_at == NOW + 3_600
    assert {type(ask) for ask in town.asked} == {TryLinks}


def test_a_recheck_finds_what_was_deleted_and_what_was_made() -> None:
    town = Town(QUEUES[:2])
    plan = replace(PLAN, creates=False)
    before = town.run(prepare(plan, NOW))
    town.queues = {QUEUES[1], QUEUES[2]}
    after = town.run(recheck(plan, before, NOW))
    assert after.queues == (1, 2)
    assert after.lost[0].kind is Kind.NOT_FOUND


@pytest.mark.parametrize("address", ["contoso.example:5672", "CONTOSO.example:5672".lower()])
def test_one_host_for_both_is_a_warning(address: str) -> None:
    prepared = Town(QUEUES).run(prepare(replace(PLAN, secondary_address=address), NOW))
    assert "on the same host, contoso.example" in prepared.warnings[0]


# --- duplicate detection on the primary (P14) ---


def detection(town: Town, *entities: str) -> Preparation:
    return town.run(prepare(replace(PLAN, entities=entities), NOW))


def test_duplicate_detection_is_judged_by_entity() -> None:
    town = Town(QUEUES)
    town.detection = {
        "fine": Detection(24 * 3600.0),
        "short": Detection(600.0),
        "off": Detection(None),
        "odd": failure(Kind.INTERNAL),
    }
    prepared = detection(town, "fine", "short", "off", "odd", "typo")
    words = {"fine": "on", "short": "short", "off": "off", "odd": "unknown", "typo": "missing"}
    assert prepared.duplicate_detection == words
    short, off, typo = prepared.warnings
    assert "short knows duplicates for 10 min only" in short
    assert "off has no duplicate detection" in off
    assert "no queue or topic 'typo'" in typo


@pytest.mark.parametrize("kind", [Kind.UNREACHABLE, Kind.NO_ANSWER, Kind.UNAUTHORISED])
def test_a_primary_that_is_down_or_closed_is_asked_once_and_does_not_stop_the_pairing(kind: Kind) -> None:
    town = Town(QUEUES)
    town.detection = {"orders": failure(kind), "other": failure(kind)}
    prepared = detection(town, "orders", "other")
    assert prepared.duplicate_detection == {"orders": "unknown", "other": "unknown"}
    assert prepared.warnings == ()
    assert len(town.asks(ReadDetection)) == 1


# --- whatever happens ---


def outcome(town: Town, plan: Plan) -> Preparation | PairingError:
    try:
        return town.run(prepare(plan, NOW))
    except PairingError as refused:
        return refused


ANY_FAILURE = st.sampled_from([failure(kind) for kind in Kind])


@given(
    st.sets(st.sampled_from(QUEUES)),
    st.lists(ANY_FAILURE, max_size=4),
    st.dictionaries(st.sampled_from(QUEUES), st.lists(ANY_FAILURE, max_size=4)),
    st.dictionaries(
        st.builds(LinkTry, st.sampled_from(QUEUES), st.sampled_from(BacklogRight)), st.lists(ANY_FAILURE, max_size=4)
    ),
    st.booleans(),
    st.booleans(),
)
def test_pairing_ends_with_something_to_use_or_with_a_reason(
    queues: set[str],
    listing: list[Failure],
    creating: dict[str, list[Failure]],
    linking: dict[LinkTry, list[Failure]],
    creates: bool,
    listens: bool,
) -> None:
    town = Town(queues)
    town.list_failures, town.create_failures, town.link_failures = listing, creating, linking
    plan = replace(PLAN, creates=creates, listens=listens)
    prepared = outcome(town, plan)
    if isinstance(prepared, PairingError):
        assert all("backup" in problem for problem in prepared.problems)
        assert prepared.problems
        return
    assert prepared.queues
    assert not set(prepared.queues) & set(prepared.lost)
    assert set(prepared.created) <= set(prepared.found)
    assert set(prepared.queues) == {0, 1, 2} or prepared.warnings
    after = town.run(recheck(plan, prepared, NOW))
    assert set(after.found) >= set(prepared.found)


# --- settings of queues that are there ---

RISKS = [
    (BacklogQueueSettings(requires_session=True), "sessions are required", "without sessions"),
    (BacklogQueueSettings(time_to_live_s=LONG_S - 1), "messages live for", "dead-lettered: set the time to live"),
    (BacklogQueueSettings(time_to_live_s=99 * LONG_S, dead_letters_expired=False), "messages live for", "are deleted"),
    (BacklogQueueSettings(max_delivery_count=10), "delivery count is limited to 10", "set it to 2147483647"),
    (BacklogQueueSettings(max_size_mb=SIZE_MB - 1), "the size is 5119 MB", "set it to 5120 MB"),
    (BacklogQueueSettings(forwards_to="elsewhere"), "forwards to elsewhere", "remove the forwarding"),
    (BacklogQueueSettings(forwards_dead_letters_to="bin"), "dead letters to bin", "remove the forwarding"),
    (BacklogQueueSettings(auto_delete_s=LONG_S - 1), "of idleness", "set auto-delete on idle to the maximum"),
    (BacklogQueueSettings(drops_duplicates=True), "duplicate detection is on", "without duplicate detection"),
    (BacklogQueueSettings(status="ReceiveDisabled"), "receiving is disabled", "set the status to Active"),
]


@pytest.mark.parametrize(("settings", "what", "right"), RISKS, ids=[what for _, what, _ in RISKS])
def test_a_setting_that_can_cost_messages_or_sends_is_warned_about(
    settings: BacklogQueueSettings, what: str, right: str
) -> None:
    town = Town(QUEUES)
    town.settings = settings
    prepared = town.run(prepare(PLAN, NOW))
    (warning,) = [each for each in prepared.warnings if what in each]
    assert "contoso/x-servicebus-transfer/0..2" in warning
    assert right in warning
    assert (prepared.queues, prepared.queue_settings) == ((0, 1, 2), "risky"), "the queue is accepted as it is"
    assert warning in town.run(recheck(PLAN, prepared, NOW)).warnings, "a look later does not make it right"


def test_queues_as_they_should_be_and_queues_made_now_are_no_reason_to_warn() -> None:
    for town in (Town(QUEUES), Town()):
        town.settings = BacklogQueueSettings(max_size_mb=81_920, dead_letters_expired=False)
        prepared = town.run(prepare(PLAN, NOW))
        assert prepared.queue_settings == "good"
        assert not prepared.lasting


def test_settings_that_could_not_be_read_are_unknown() -> None:
    assert Town(QUEUES).run(prepare(replace(PLAN, creates=False), NOW)).queue_settings == "unknown"
    town = Town(QUEUES)
    town.list_failures = [failure(Kind.NO_ANSWER)]
    assert town.run(prepare(PLAN, NOW)).queue_settings == "unknown"


# --- with a spool, pairing does not wait for the secondary (X4) ---

WAITING = replace(PLAN, can_wait=True)


def away(town: Town, kind: Kind = Kind.UNREACHABLE) -> Town:
    town.list_failures = [failure(kind)] * 100
    town.link_failures = {send(path): [failure(kind)] * 100 for path in QUEUES}
    return town


@pytest.mark.parametrize("kind", [Kind.UNREACHABLE, Kind.NO_ANSWER, Kind.INTERNAL, Kind.BUSY])
def test_with_a_spool_a_secondary_that_cannot_be_reached_is_no_reason_not_to_pair(kind: Kind) -> None:
    prepared = away(Town(), kind).run(prepare(WAITING, NOW))
    assert not prepared.is_complete
    assert (prepared.found, prepared.queues) == ((), ())
    (warning,) = prepared.warnings
    assert "cannot be reached" in warning
    assert "go to the spool" in warning
    with pytest.raises(PairingError):
        away(Town(), kind).run(prepare(PLAN, NOW))


def test_what_does_not_pass_by_itself_is_a_reason_all_the_same() -> None:
    for plan in (replace(WAITING, secondary_address=WAITING.primary_address), replace(WAITING, primary_name=None)):
        with pytest.raises(PairingError):
            Town().run(prepare(plan, NOW))
    refusing = Town()
    refusing.list_failures = [failure(Kind.UNAUTHORISED)] * 3
    with pytest.raises(PairingError):
        refusing.run(prepare(WAITING, NOW))
    nothing = Town()
    with pytest.raises(PairingError, match="none of the 3 backlog queues"):
        nothing.run(prepare(replace(WAITING, creates=False), NOW))


def test_as_soon_as_it_is_reached_the_queues_are_made_that_pairing_could_not_make() -> None:
    town = away(Town())
    before = town.run(prepare(WAITING, NOW))
    still = town.run(recheck(WAITING, before, NOW + 5))
    assert not still.is_complete
    assert still.checked_at == NOW, "since when"
    town.list_failures, town.link_failures = [], {}
    after = town.run(recheck(WAITING, still, NOW + 10))
    assert after.is_complete
    assert (after.found, after.created) == ((0, 1, 2), (0, 1, 2))
    assert town.queues == set(QUEUES)


def test_a_problem_that_shows_only_then_is_a_warning_and_it_is_tried_again() -> None:
    town = away(Town())
    before = town.run(prepare(WAITING, NOW))
    town.list_failures, town.link_failures = [failure(Kind.UNAUTHORISED)] * 3, {}
    after = town.run(recheck(WAITING, before, NOW + 10))
    assert not after.is_complete
    assert "Manage" in after.warnings[0]


def test_one_queue_that_answers_is_enough_and_the_pair_is_complete() -> None:
    town = Town(QUEUES)
    town.link_failures = {send(path): [failure(Kind.NO_ANSWER)] * 9 for path in QUEUES[1:]}
    prepared = town.run(prepare(WAITING, NOW))
    assert prepared.is_complete
    assert prepared.queues == (0,)
