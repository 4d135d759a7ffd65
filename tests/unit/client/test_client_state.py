"""What a paired client knows of itself: how far it is, what it may be asked, how it is doing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from twinbus.client.core.client_state import ClientState
from twinbus.client.inspection.reports import UNTOUCHED_S, Inspection, QueueReport, SideReport
from twinbus.client.namespace import Namespace
from twinbus.client.options import PairedNamespaceOptions, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.client.reporting.status import EntityState, Phase
from twinbus.client.setup.preparation import Preparation
from twinbus.errors import OptionsError, PairClosed, PairFaulted, TwinbusError
from twinbus.pairing.events import FailoverForced, SendFailed
from twinbus.pairing.failover import FailedOver
from twinbus.pairing.sending.error_class import ErrorClass
from twinbus.pairing.sending.failure import Failure, FailureKind

KEY = "SharedAccessKeyName=app;SharedAccessKey=a2V5"
PRIMARY = Namespace.from_connection_string(f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}")
SECONDARY = Namespace.from_connection_string(f"Endpoint=sb://backup.servicebus.windows.net/;{KEY}")
FULL = Failure(FailureKind.FULL, "5 GB are used")
NOW = 1_000.0


def new_state(**options: object) -> ClientState:
    return ClientState(PRIMARY, SendAvailabilityPairedNamespaceOptions(SECONDARY, **options))  # type: ignore[arg-type]


def paired(**options: object) -> ClientState:
    made = new_state(**options)
    made.prepared(Preparation(queues=(0, 1), lost={2: FULL}, checked_at=1_700_000_000, warnings=("only three",)), NOW)
    return made


# --- how far it is ---


def test_a_client_that_is_not_paired_says_how_to_pair_it() -> None:
    with pytest.raises(TwinbusError, match="call pair"):
        new_state().check_usable()
    assert new_state().queue_count == 0


def test_a_client_is_usable_when_it_is_prepared() -> None:
    made = paired()
    made.check_usable()
    assert made.phase is Phase.PAIRED
    assert made.queue_count == 3, "a queue that cannot be used now is there all the same"


def test_a_closed_client_says_so_and_stays_closed() -> None:
    made = paired()
    assert made.end(Phase.CLOSED)
    assert not made.end(Phase.FAULTED, "too late")
    with pytest.raises(PairClosed, match="nothing was sent"):
        made.check_usable()
    assert made.has_ended


def test_a_faulted_client_gives_the_reason_to_everybody() -> None:
    made = paired()
    made.end(Phase.FAULTED, "the key was withdrawn")
    for check in (made.check_usable, made.check_not_ended):
        with pytest.raises(PairFaulted, match="the key was withdrawn"):
            check()
    assert made.status(NOW, lambda entity: 0, 0).fault == "the key was withdrawn"


def test_looking_at_the_queues_again_does_not_revive_a_closed_client() -> None:
    made = paired()
    made.end(Phase.CLOSED)
    made.prepared(Preparation(queues=(0, 1, 2)), NOW)
    assert made.phase is Phase.CLOSED
    assert not made.is_usable


# --- what it was given ---


ME, OTHER = 1, 2


@pytest.mark.parametrize(("kind", "patience_s"), [("storing", 10), ("recording", 10), ("sending", 2)])
def test_closing_waits_longest_for_sends_that_may_have_stored_something(kind: str, patience_s: float) -> None:
    made = new_state()
    made.recording.update([OTHER] if kind == "recording" else [])
    made.sending.extend([OTHER] if kind == "sending" else [])  # as one that opens a link

    def has_to_wait(waited_s: float) -> bool:
        return made.has_to_wait(ME, lambda: kind == "storing", waited_s)

    assert has_to_wait(0.0)
    assert has_to_wait(patience_s - 0.1)
    assert not has_to_wait(patience_s)


def test_closing_waits_for_nobody_when_only_the_closing_thread_itself_sends() -> None:
    made = new_state()
    made.recording.add(ME)
    made.sending.append(ME)
    assert not made.has_to_wait(ME, lambda: False, 0.0)


def test_what_is_no_namespace_or_no_fitting_options_is_refused() -> None:
    with pytest.raises(OptionsError, match="primary must be a Namespace, got str"):
        ClientState("contoso", SendAvailabilityPairedNamespaceOptions(SECONDARY))  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match=r"SendAvailabilityPairedNamespaceOptions\(secondary, ...\), got Paired"):
        ClientState(PRIMARY, PairedNamespaceOptions(SECONDARY))  # type: ignore[arg-type]


def test_options_reach_the_core_and_the_plan() -> None:
    made = new_state(
        backlog_queue_count=4,
        create_backlog=False,
        enable_syphon=True,
        entities=["orders"],
        retry=Retry(attempts=7),
        failover_interval=timedelta(seconds=3),
        classifier=lambda failure: ErrorClass.RAISE,
    )
    plan = made.plan
    assert (plan.queue_count, plan.creates, plan.listens, plan.entities, plan.attempts) == (
        4,
        False,
        True,
        ("orders",),
        7,
    )
    assert made.pair.rules.failover_interval_s == 3
    assert made.pair.entity("orders").is_known
    assert made.pair.classify(made.pair.entity("orders"), FULL) is ErrorClass.RAISE


def test_backlog_queues_are_called_after_the_primary_or_as_somebody_says() -> None:
    assert new_state().queue_path(2) == "contoso/x-servicebus-transfer/2"
    assert new_state(primary_name="fabrikam").queue_path(0) == "fabrikam/x-servicebus-transfer/0"


# --- how it is doing ---


def test_status_of_a_healthy_pair() -> None:
    made = paired()
    made.pair.entity("orders").tally.to_primary = 3
    status = made.status(NOW, lambda entity: 40, 5)
    assert (status.primary, status.secondary, status.phase, status.events_dropped) == ("contoso", "backup", "paired", 5)
    orders = status.entity("orders")
    assert orders is not None
    assert (orders.state, orders.since, orders.reason, orders.sent_to_primary) == (EntityState.HEALTHY, None, "", 43)
    assert status.secondary_status.checked_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert status.secondary_status.warnings == ("only three",)


def test_status_shows_since_when_and_why_an_entity_is_failed_over_and_when_its_next_ping_is() -> None:
    made = paired(failover_interval=timedelta(0), ping_primary_interval=timedelta(seconds=30))
    made.pair.feed(made.pair.entity("orders"), SendFailed(NOW - 10, 0, "refused"))
    status = made.status(NOW, lambda entity: 0, 0)
    orders = status.entity("orders")
    assert orders is not None
    assert orders.since is not None
    assert orders.next_ping_at is not None
    assert (orders.state, orders.reason, orders.epoch, orders.failovers) == ("failed over", "refused", 1, 1)
    assert status.at - orders.since == timedelta(seconds=10)
    assert orders.next_ping_at - status.at == timedelta(seconds=20)
    assert not status.is_healthy


def test_status_shows_an_entity_that_only_a_person_brings_back() -> None:
    made = paired()
    entity = made.pair.entity("orders")
    made.pair.feed(entity, FailoverForced(NOW, 0, "maintenance", stays=True))
    assert isinstance(entity.state, FailedOver)
    orders = made.status(NOW, lambda entity: 0, 0).entity("orders")
    assert orders is not None
    assert orders.stays
    assert orders.next_ping_at is None


def test_status_shows_which_backlog_queues_are_lost_until_when_and_why() -> None:
    made = paired(probation=timedelta(seconds=60))
    made.queue_sent[0] = 12
    status = made.status(NOW + 10, lambda entity: 0, 0)
    first, _, lost = status.backlog_queues
    assert (first.path, first.in_rotation, first.sent) == ("contoso/x-servicebus-transfer/0", True, 12)
    assert (lost.in_rotation, lost.reason) == (False, "quota exceeded: 5 GB are used")
    assert lost.lost_until is not None
    assert lost.lost_until - status.at == timedelta(seconds=50)
    assert made.status(NOW + 60, lambda entity: 0, 0).backlog_queues[2].in_rotation


def test_status_before_pairing_knows_nothing_and_says_so() -> None:
    status = new_state(entities=["orders"]).status(NOW, lambda entity: 0, 0)
    assert status.phase is Phase.NEW
    assert status.backlog_queues == ()
    assert status.secondary_status.checked_at is None
    assert [entity.duplicate_detection for entity in status.entities] == ["unknown"]


# --- what another proof is worth telling ---


def looked(*queues: QueueReport) -> Inspection:
    side = SideReport(name="contoso", address="contoso.example:5671", is_reachable=True)
    return Inspection(at=NOW, primary=side, secondary=side, queues=queues)


def lying(age_s: float, *, active: int | None = 7, was_delivered: bool = False) -> QueueReport:
    path = "contoso/x-servicebus-transfer/0"
    return QueueReport(path=path, exists=True, active=active, oldest_age_s=age_s, oldest_was_delivered=was_delivered)


def events_of(made: ClientState) -> list[tuple[str, str]]:
    same = Preparation(queues=(0, 1), warnings=("only three",))
    return list(made.recheck_events(same, same))


def test_messages_that_nobody_touches_show_that_a_syphon_is_missing() -> None:
    made = paired()
    made.inspection = looked(lying(UNTOUCHED_S + 1))
    assert events_of(made) == [("syphon_missing", "7 messages wait in the backlog and nobody brings them home")]
    made.inspection = looked(lying(UNTOUCHED_S + 1, active=None))
    assert events_of(made)[0][1].startswith("some messages wait")


@pytest.mark.parametrize(
    "inspection",
    [
        None,
        looked(),
        looked(lying(UNTOUCHED_S - 1)),
        looked(lying(UNTOUCHED_S + 1, was_delivered=True)),
        looked(QueueReport(path="contoso/x-servicebus-transfer/0", exists=True, active=0)),
    ],
    ids=["nobody may look", "no queues", "young", "in somebody's hand", "empty"],
)
def test_otherwise_nobody_is_alarmed(inspection: Inspection | None) -> None:
    made = paired()
    made.inspection = inspection
    assert events_of(made) == []


def test_only_warnings_that_were_not_there_before_are_reported() -> None:
    before, after = (Preparation(queues=(0,), warnings=warnings) for warnings in (("old",), ("old", "new")))
    assert list(paired().recheck_events(before, after)) == [("secondary_in_trouble", "new")]
